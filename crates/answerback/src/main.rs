//! `answerback`: the verbs, nothing else. What a verb does lives in the rooms; here it is read from the command line, started,
//! and told to a person.

// A closed pipe must not panic: `out!`, `outln!` and `errln!` write instead.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod terminal;

mod args;
mod call;
mod config;
mod demo;
mod live;
mod load;
mod logs;
mod onlooker;
mod outside;
mod recordings;
mod scenario;
mod serve;
mod sound;
mod words;

use args::{CallsVerb, Cli, ScenarioVerb, Verb};
use clap::Parser;
use std::process::ExitCode;

/// Everything went as asked.
const FINE: ExitCode = ExitCode::SUCCESS;
/// It did not, and the reason was printed. Wrong arguments are clap's 2.
const FAILED: ExitCode = ExitCode::FAILURE;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Before any TLS or HTTP client exists: rustls takes the provider that is installed then.
    // An error means that one is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match server::runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            errln!("answerback: the runtime cannot start: {error}");
            return FAILED;
        }
    };
    if let Err(error) = runtime.block_on(survive_the_file_limit()) {
        errln!("answerback: signals cannot be listened to: {error}");
        return FAILED;
    }
    let outcome = match cli.verb {
        Verb::Serve(args) => runtime.block_on(serve::serve(args)),
        Verb::Demo(args) => runtime.block_on(demo::demo(args)),
        Verb::Check(args) => config::check(&args),
        Verb::PrintConfig(args) => config::print(&args),
        Verb::Call(args) => runtime.block_on(call::call(args)),
        Verb::Load(args) => runtime.block_on(load::load(args)),
        Verb::Replay(args) => recordings::replay(&args),
        Verb::Rehear(args) => recordings::rehear(&args),
        Verb::WhatIf(args) => recordings::what_if(&args),
        Verb::Calls(CallsVerb::Export(args)) => recordings::export(&args),
        Verb::Scenario(ScenarioVerb::Run(args)) => runtime.block_on(scenario::run(args)),
        Verb::Scenario(ScenarioVerb::FromCall(args)) => scenario::from_call(&args),
        Verb::Sim(part) => runtime.block_on(outside::run(part)),
    };
    // A blocking read of stdin cannot be interrupted; nobody waits for it.
    runtime.shutdown_background();
    match outcome {
        Ok(_) if terminal::output_was_lost() => FAILED,
        Ok(code) => code,
        Err(error) => {
            errln!("answerback: {}", words::error_in_words(&error));
            FAILED
        }
    }
}

/// A write beyond the limit of a file's size (`ulimit -f`, `LimitFSIZE=`) sends a signal whose default is death, in the midst
/// of calls. Caught, the write fails with an error, and is treated as on a full disk. The handler stays when its listener goes.
#[cfg(unix)]
async fn survive_the_file_limit() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    signal(SignalKind::from_raw(libc::SIGXFSZ)).map(drop)
}

#[cfg(not(unix))]
async fn survive_the_file_limit() -> std::io::Result<()> {
    Ok(())
}
