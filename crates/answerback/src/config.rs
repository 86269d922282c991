//! `check` and `print-config`, and how every verb reads a config.

use crate::args::ConfigArgs;
use crate::terminal::count;
use crate::{FAILED, FINE};
use server::config::{Config, ConfigErrors, Drawing};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// The files below `dir`, and this process's environment.
pub(crate) fn load(dir: &Path) -> Result<Config, ConfigErrors> {
    // What is not Unicode is none of our variables, and must not end the program.
    let env =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Config::load(dir, env)
}

/// Draws every mistake, to standard error.
pub(crate) fn show(mistakes: ConfigErrors) -> ExitCode {
    // A reader that has seen enough (`| head`) is no failure of ours.
    let _ = write!(std::io::stderr(), "{:?}", miette::Report::new(Drawing::from(mistakes)));
    FAILED
}

pub(crate) fn check(args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let config = match load(&args.config) {
        Ok(config) => config,
        Err(mistakes) => return Ok(show(mistakes)),
    };
    if let Some(mistake) = config.without_agent() {
        return Ok(show(ConfigErrors(vec![mistake])));
    }
    outln!(
        "{}: no mistake ({}, {})",
        args.config.display(),
        count(config.agents.len(), "agent"),
        count(config.tools.len(), "tool")
    );
    match config.ready_to_serve() {
        Ok(()) => outln!("ready to serve"),
        Err(missing) => {
            outln!("`answerback serve` needs beside it:");
            for one in &missing.0 {
                outln!("  {}: {}", one.key, one.help.as_deref().unwrap_or(&one.message));
            }
        }
    }
    Ok(FINE)
}

pub(crate) fn print(args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    Ok(match load(&args.config) {
        Ok(config) => {
            out!("{}", config.print());
            FINE
        }
        Err(mistakes) => show(mistakes),
    })
}
