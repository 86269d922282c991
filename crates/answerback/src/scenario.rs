//! `answerback scenario`: calls played in virtual time or against servers of their own, and made out of recordings.

use crate::args::{FromCallArgs, ScenarioRunArgs};
use crate::{FAILED, FINE, words};
use ::scenario::from_call::{FromCalls, Target, from_call as write_scenarios};
use ::scenario::live::Launch;
use ::scenario::report;
use ::scenario::run::{files, run_live, run_virtual};
use anyhow::{Context, bail};
use std::process::ExitCode;
use std::sync::Arc;

pub(crate) async fn run(args: ScenarioRunArgs) -> anyhow::Result<ExitCode> {
    let files = files(&args.path).with_context(|| format!("cannot read {}", args.path.display()))?;
    let outcomes = if args.live {
        let program = std::env::current_exe().context("the path of this program is unknown")?;
        let launch = Launch(Arc::new(move |config| {
            let mut command = std::process::Command::new(&program);
            command.arg("serve").arg("--config").arg(config);
            command
        }));
        run_live(&files, &launch, args.at_once, args.keep.as_deref()).await
    } else {
        tokio::task::spawn_blocking(move || run_virtual(&files)).await.context("the scenarios ended badly")?
    };
    if outcomes.is_empty() {
        bail!("{}: no scenario is for this runner", args.path.display());
    }
    if let Some(path) = &args.junit {
        std::fs::write(path, report::junit(&outcomes)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        outln!("{:#}", report::json(&outcomes));
    } else {
        out!("{}", report::table(&outcomes));
        if args.details {
            out!("{}", report::details(&outcomes));
        }
    }
    Ok(if outcomes.iter().all(|outcome| outcome.passed()) { FINE } else { FAILED })
}

pub(crate) fn from_call(args: &FromCallArgs) -> anyhow::Result<ExitCode> {
    let target = Target { folder: &args.to, config: args.config.as_deref() };
    let FromCalls { written, skipped } = write_scenarios(&args.place, &target)?;
    for file in &written {
        outln!("written: {}", file.display());
    }
    let outcomes = if written.is_empty() { Vec::new() } else { run_virtual(&written) };
    if !outcomes.is_empty() {
        out!("{}", report::table(&outcomes));
        if args.details {
            out!("{}", report::details(&outcomes));
        }
    }
    for (_, why) in &skipped {
        outln!("skipped: {why}");
    }
    let other = outcomes.iter().filter(|outcome| !outcome.passed()).count();
    if other > 0 {
        outln!(
            "{other} of {} did not come out as recorded: mend these files, or loosen what they expect.",
            outcomes.len()
        );
    }
    if !skipped.is_empty() {
        outln!("{}", words::skipped(skipped.len()));
    }
    Ok(if other == 0 && skipped.is_empty() { FINE } else { FAILED })
}
