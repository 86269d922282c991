//! What the simulated caller does, step by step.

use crate::audio_file::AudioFileError;
use crate::voices;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A script file, TOML:
///
/// ```toml
/// [[steps]]
/// wait_for_agent = { quiet_ms = 600 }
/// [[steps]]
/// say = { file = "builtin:caller_request" }
/// [[steps]]
/// wait_for_agent = { heard_ms = 1200, timeout_ms = 10000 }
/// [[steps]]
/// say = { file = "builtin:caller_talk_over" }
/// [[steps]]
/// hang_up = {}
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CallScript {
    pub steps: Vec<Step>,
}

/// The caller's line is open all the time: between steps it carries silence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Speak a file (`builtin:NAME` or a path that starts at the script's folder) to its end.
    Say {
        file: String,
    },
    /// Be silent for so long.
    Silence {
        ms: u32,
    },
    /// The same: a pause in the script.
    Wait {
        ms: u32,
    },
    WaitForAgent(WaitForAgent),
    /// One message a key.
    Dtmf {
        digits: String,
    },
    /// From now on marks are swallowed (or no longer).
    DropMarks {
        on: bool,
    },
    /// From now on marks return this much late.
    DelayMarks {
        ms: u32,
    },
    /// Twilio's end of a call: `stop`, then close.
    HangUp {},
    /// The connection breaks: no `stop`, no close frame, and the call is over.
    AbruptDrop {},
}

/// Wait for what the caller hears. Exactly one condition; audio counts from the start of this step, so that what was
/// said before cannot satisfy it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WaitForAgent {
    /// Until the agent is audible.
    pub start: bool,
    /// Until the agent was audible and has then been silent for so long.
    pub quiet_ms: Option<u32>,
    /// Until so much of the agent was heard.
    pub heard_ms: Option<u32>,
    /// Then the script goes on regardless, and the result says so.
    pub timeout_ms: Option<u32>,
}

/// How long a wait lasts when it does not say.
pub const DEFAULT_TIMEOUT_MS: u32 = 20_000;

#[derive(Debug, thiserror::Error)]
pub enum CallScriptError {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("the call script is wrong: {0}")]
    Syntax(#[from] toml::de::Error),
    #[error("step {step} of the call script: {problem}")]
    Step { step: usize, problem: &'static str },
    #[error("step {step} of the call script: {source}")]
    Audio { step: usize, source: AudioFileError },
}

/// A step that is ready to be done.
#[derive(Clone, Debug)]
pub(super) enum Ready {
    Say { file: String, mulaw: Vec<u8> },
    Silence { ms: u32 },
    WaitForAgent { until: Until, timeout_ms: u32 },
    Dtmf { digits: String },
    DropMarks { on: bool },
    DelayMarks { ms: u32 },
    HangUp,
    AbruptDrop,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    Audible,
    Quiet { ms: u32 },
    Heard { ms: u32 },
}

impl CallScript {
    pub fn parse(text: &str) -> Result<Self, CallScriptError> {
        Ok(toml::from_str(text)?)
    }

    /// Read a script file. Its audio starts at the file's folder, see [`super::PhoneConfig::audio_base`].
    pub fn read(path: &Path) -> Result<Self, CallScriptError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| CallScriptError::Unreadable { path: path.to_owned(), source })?;
        Self::parse(&text)
    }

    pub(super) fn ready(&self, base: &Path) -> Result<Vec<Ready>, CallScriptError> {
        self.steps.iter().enumerate().map(|(n, step)| step.ready(n + 1, base)).collect()
    }
}

impl Step {
    pub(super) fn ready(&self, number: usize, base: &Path) -> Result<Ready, CallScriptError> {
        Ok(match self {
            Self::Say { file } => {
                let mulaw =
                    voices::load(file, base).map_err(|source| CallScriptError::Audio { step: number, source })?;
                Ready::Say { file: file.clone(), mulaw }
            }
            Self::Silence { ms } | Self::Wait { ms } => Ready::Silence { ms: *ms },
            Self::WaitForAgent(wait) => {
                let until = match (wait.start, wait.quiet_ms, wait.heard_ms) {
                    (true, None, None) => Until::Audible,
                    (false, Some(ms), None) => Until::Quiet { ms },
                    (false, None, Some(ms)) => Until::Heard { ms },
                    _ => {
                        let problem = "wait_for_agent takes exactly one of start, quiet_ms, heard_ms";
                        return Err(CallScriptError::Step { step: number, problem });
                    }
                };
                Ready::WaitForAgent { until, timeout_ms: wait.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS) }
            }
            Self::Dtmf { digits } if digits.chars().all(|d| "0123456789*#ABCD".contains(d)) => {
                Ready::Dtmf { digits: digits.clone() }
            }
            Self::Dtmf { .. } => {
                return Err(CallScriptError::Step { step: number, problem: "digits are 0-9 * # A-D" });
            }
            Self::DropMarks { on } => Ready::DropMarks { on: *on },
            Self::DelayMarks { ms } => Ready::DelayMarks { ms: *ms },
            Self::HangUp {} => Ready::HangUp,
            Self::AbruptDrop {} => Ready::AbruptDrop,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_reads_from_toml() {
        let script = CallScript::parse(
            r#"
            [[steps]]
            wait_for_agent = { quiet_ms = 600 }
            [[steps]]
            say = { file = "builtin:caller_request" }
            [[steps]]
            wait_for_agent = { start = true, timeout_ms = 500 }
            [[steps]]
            wait_for_agent = { heard_ms = 1200 }
            [[steps]]
            silence = { ms = 20 }
            [[steps]]
            wait = { ms = 20 }
            [[steps]]
            dtmf = { digits = "1*#" }
            [[steps]]
            drop_marks = { on = true }
            [[steps]]
            delay_marks = { ms = 300 }
            [[steps]]
            abrupt_drop = {}
            [[steps]]
            hang_up = {}
            "#,
        )
        .unwrap();
        assert_eq!(script.steps.len(), 11);
        assert_eq!(script.ready(Path::new(".")).unwrap().len(), 11);
    }

    #[test]
    fn a_step_that_cannot_work_is_refused_with_its_number() {
        for (text, found) in [
            ("[[steps]]\nhang_up = {}\n[[steps]]\nwait_for_agent = { start = true, quiet_ms = 1 }", "step 2"),
            ("[[steps]]\nwait_for_agent = {}", "exactly one"),
            ("[[steps]]\ndtmf = { digits = \"x\" }", "digits are"),
            ("[[steps]]\nsay = { file = \"builtin:nobody\" }", "nobody"),
            ("[[steps]]\nshout = {}", "shout"),
        ] {
            let refused = CallScript::parse(text).and_then(|s| s.ready(Path::new(".")).map(|_| s));
            assert!(refused.unwrap_err().to_string().contains(found), "{text}");
        }
    }
}
