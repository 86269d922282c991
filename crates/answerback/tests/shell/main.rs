//! The built program as a shell sees it. Three of these tests are telephone calls and run in real time, half a minute at most
//! each: what is proven is the sound in the caller's ear, through processes and sockets. One program, so that they overlap.

mod demo;
mod recordings;
mod trouble;
mod verbs;

use std::process::{Command, Output};

/// The program, without what the developer's own environment would tell it.
fn answerback() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_answerback"));
    for (name, _) in std::env::vars() {
        if name.starts_with("ANSWERBACK__") || name == "OPENAI_API_KEY" || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command.env("NO_COLOR", "1");
    command
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
