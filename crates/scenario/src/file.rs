//! The file of one scenario, TOML. `docs/scenarios.md` teaches it; `docs/scenario.schema.json` is its JSON Schema.

use crate::problems::problem;
use serde::Deserialize;
use sim::model::ModelFaults;
use std::path::{Path, PathBuf};
use vocab::effect::OperationStatus;

/// See the module. Everything that is not named keeps its default, and an unknown key is a mistake.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Short, for tables.
    pub name: String,
    /// What happens, in one sentence.
    pub story: String,
    /// Promises and rules that it guards: `S5`, `R7`, `B3`, `tools 13`, `models 2.6`.
    #[serde(default)]
    pub covers: Vec<String>,
    /// Where it can run; both by default. A fault that only one runner can make says so here.
    #[serde(default = "both")]
    pub runners: Vec<Runner>,
    /// The interface that the model has; the config's by default, which is the Realtime one where it says nothing.
    pub provider: Option<ScenarioProvider>,
    /// With `gpt_live`: who does what the model wants done. `responses` by default.
    pub delegation: Option<ScenarioDelegation>,
    /// A config folder to start from, relative to this file; the shipped one (Luigi's) by default.
    pub config: Option<PathBuf>,
    /// Laid over `answerback.toml`.
    #[serde(default)]
    pub server: toml::Table,
    /// Laid over the agent's file.
    #[serde(default)]
    pub agent: toml::Table,
    /// Laid over `tools/NAME.toml`; `like = "OTHER"` makes a new tool out of another one and gives it to the agent.
    #[serde(default)]
    pub tools: toml::Table,
    /// What the caller does, one line after the other.
    #[serde(default)]
    pub caller: Vec<CallerLine>,
    /// What the model does, the first rule that matches.
    #[serde(default)]
    pub model: Vec<ModelRule>,
    /// How the booking system treats a request, the first that matches; without one it answers at once.
    #[serde(default)]
    pub backend: Vec<BackendRule>,
    #[serde(default)]
    pub fault: Vec<Fault>,
    /// How long after the last hang-up everything may still settle, in milliseconds.
    #[serde(default = "settle_ms")]
    pub settle_ms: u64,
    /// Longest time of all, in milliseconds.
    #[serde(default = "limit_ms")]
    pub limit_ms: u64,
    pub expect: Expect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runner {
    /// In memory, in virtual time.
    Virtual,
    /// Over real sockets, against a real server.
    Live,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScenarioProvider {
    OpenaiRealtime,
    GptLive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScenarioDelegation {
    /// A backend model has the tools.
    Responses,
    /// We do it, with the agent's `delegate_tool`.
    Client,
}

fn both() -> Vec<Runner> {
    vec![Runner::Virtual, Runner::Live]
}
/// A caller whose lines do not end with it hangs up when nothing has been said or owed for so long.
const LAST_IDLE_MS: u64 = 1_500;

fn settle_ms() -> u64 {
    500
}
fn limit_ms() -> u64 {
    60_000
}

/// When something happens. At most one of `at_ms`, `after`, `heard_percent`, `quiet_ms`, `idle_ms`; nothing at all: at once.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct When {
    /// Since the call was answered.
    pub at_ms: Option<u64>,
    /// An event, `name` or `name: part of its text`, such as `backend_committed` or `agent_starts: booked`.
    pub after: Option<String>,
    /// The how manieth such event, from 1.
    pub nth: Option<u32>,
    /// So long after the event.
    pub plus_ms: Option<u64>,
    /// So much of what the agent is saying has been heard.
    pub heard_percent: Option<u32>,
    /// With `heard_percent`: a part of the words that are meant.
    pub of: Option<String>,
    /// Both have been silent for so long since then.
    pub quiet_ms: Option<u64>,
    /// The same, and the agent's public state has been `listening` for so long: nothing is owed.
    pub idle_ms: Option<u64>,
}

/// One thing that the caller does; exactly one of the acts. A line begins when its `when` has come and the line before it
/// is over. Its `when` looks at events from the moment when the line before it began.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CallerLine {
    pub when: When,
    /// Speak a recording: `builtin:NAME`, or a file beside the scenario.
    pub say: Option<String>,
    /// Speak for so long; `text` says what.
    pub speech_ms: Option<u32>,
    /// What the model will understand of it.
    pub text: Option<String>,
    /// A sound that the detector takes for speech and the model does not: a cough, a word to somebody else.
    pub blip_ms: Option<u32>,
    /// Hiss under the floor of speech.
    pub noise_ms: Option<u32>,
    pub silence_ms: Option<u32>,
    pub dtmf: Option<String>,
    pub hang_up: bool,
    /// The caller's connection breaks.
    pub drop_line: bool,
    /// The same caller calls again.
    pub call_again: bool,
}

/// What the model does on a response; all conditions given must hold. As `sim::model`'s rules.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelRule {
    pub after: sim::model::After,
    pub nth: Option<u32>,
    pub once: bool,
    pub instructions_contain: Option<String>,
    pub context_contains: Option<String>,
    /// Think so long before the first word, in milliseconds.
    pub delay_ms: u64,
    /// The words. Each rule should have its own: what was heard is told apart by its sound, and each text has its own.
    pub say: Option<String>,
    /// How long they sound, in milliseconds; by default 60 a character.
    pub ms: Option<u32>,
    /// Speak them with this recording: `builtin:NAME`.
    pub voice: Option<String>,
    pub call: Option<sim::model::Call>,
    pub more_calls: Vec<sim::model::Call>,
    pub fail: Option<String>,
    pub empty: bool,
}

/// How the booking system treats requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BackendRule {
    /// Arguments that the request must have.
    pub arguments: serde_json::Map<String, serde_json::Value>,
    /// Only for the first so many requests that match.
    pub times: Option<u32>,
    /// Work so long before the booking is made, or the question answered.
    pub commit_ms: u64,
    /// Then take so long to answer.
    pub answer_ms: u64,
    /// The booking is made and the answer lost.
    pub lose_answer: bool,
    /// Fail with 500 before anything is made.
    pub error: bool,
    /// Say no, and make nothing.
    pub refuse: bool,
    /// The answer arrives twice.
    pub answer_twice: bool,
    /// Ignore idempotency keys.
    pub ignore_keys: bool,
}

/// Something goes wrong; exactly one of the acts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    pub when: When,
    /// The server dies at the named crash point (`executor::crash_point`) and is started again. `when` does not apply.
    pub kill_at: Option<String>,
    /// The server dies now and is started again.
    pub kill: bool,
    /// The carrier swallows marks from now on.
    pub drop_marks: Option<bool>,
    /// The carrier returns marks so late from now on.
    pub delay_marks_ms: Option<u32>,
    /// The model's socket breaks.
    pub lose_model: bool,
    /// The model refuses the next so many responses as if another one were active.
    pub refuse_creates: Option<u32>,
    /// The model answers tool outputs without being asked, from now on.
    pub answers_by_itself: Option<bool>,
    /// What the caller said is told so late, from now on.
    pub late_transcripts_ms: Option<u64>,
    /// The model never says that a response has ended, from now on.
    pub swallow_ends: Option<bool>,
    /// The next so many runs of the backend fail before they made anything. GPT-Live only, as all down to `expire_model`.
    pub fail_runs: Option<u32>,
    /// The words of what the model says come so much later than its voice, from now on.
    pub late_words_ms: Option<u64>,
    /// The model takes what it is given to say and says nothing of it, from now on.
    pub silent_commentary: Option<bool>,
    /// The model speaks on when the caller begins, from now on.
    pub never_yields: Option<bool>,
    /// The model says this without any occasion; it sounds 60 ms a character.
    pub unprompted: Option<String>,
    /// The model's session reaches its time limit.
    pub expire_model: bool,
    /// The booking system turns the next so many look-ups away without an answer.
    pub refuse_look_ups: Option<u32>,
    /// From now on each write takes so long. Only in virtual time.
    pub slow_disk_ms: Option<u64>,
}

impl Fault {
    /// How many of the acts that only GPT-Live knows.
    pub(crate) fn live_acts(&self) -> u32 {
        u32::from(self.fail_runs.is_some())
            + u32::from(self.late_words_ms.is_some())
            + u32::from(self.silent_commentary.is_some())
            + u32::from(self.never_yields.is_some())
            + u32::from(self.unprompted.is_some())
            + u32::from(self.expire_model)
    }

    /// What of it the simulated model itself does, whichever runner holds it.
    pub fn model_faults(&self, faults: &mut ModelFaults) {
        if let Some(count) = self.refuse_creates {
            faults.refuse_creates = count;
        }
        if let Some(on) = self.answers_by_itself {
            faults.answers_by_itself = on;
        }
        if let Some(ms) = self.late_transcripts_ms {
            faults.transcript_delay_ms = ms;
        }
        if let Some(on) = self.swallow_ends {
            faults.swallow_ends = on;
        }
        if let Some(count) = self.fail_runs {
            faults.fail_runs = count;
        }
        if let Some(ms) = self.late_words_ms {
            faults.words_delay_ms = ms;
        }
        if let Some(on) = self.silent_commentary {
            faults.silent_commentary = on;
        }
        if let Some(on) = self.never_yields {
            faults.never_yields = on;
        }
        faults.unprompted += usize::from(self.unprompted.is_some());
        faults.expires_now |= self.expire_model;
    }
}

/// What must have come of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expect {
    /// The status of every operation, in order of admission.
    pub operations: Option<Vec<OperationStatus>>,
    /// The state of every delivery, in order of age.
    pub deliveries: Option<Vec<vocab::delivery::DeliveryState>>,
    /// Bookings at the backend.
    pub effects: Option<u32>,
    /// Requests for a booking that reached the backend.
    pub requests: Option<u32>,
    /// These events came in this order, whatever came in between.
    pub order: Vec<String>,
    /// None of these came.
    pub never: Vec<String>,
    /// How often an event came.
    pub times: std::collections::BTreeMap<String, u32>,
    /// The public state between two events was never `listening`.
    pub never_listening: Vec<Between>,
    /// Every public state, in order, from the first `listening` on.
    pub states: Option<Vec<conversation::AgentState>>,
    /// What the caller heard of the agent.
    pub heard: Vec<Heard>,
    /// The agent is silent so soon after the event.
    pub silent: Vec<Silent>,
    /// Clears that the carrier got.
    pub clears: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Between {
    pub from: String,
    pub to: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heard {
    /// A part of the words.
    pub text: String,
    /// Hearings, exactly. By default once.
    #[serde(default = "once")]
    pub times: u32,
    /// Only hearings to the end count (`true`), or only those that were cut (`false`).
    pub whole: Option<bool>,
}

fn once() -> u32 {
    1
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Silent {
    pub after: String,
    pub within_ms: u64,
}

/// A file that cannot be a scenario.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{}: {}", path.display(), in_words(source))]
    Syntax { path: PathBuf, source: Box<toml::de::Error> },
    #[error("{}: {problem}", path.display())]
    Wrong { path: PathBuf, problem: String },
}

/// The parser names the types of our structs, which mean nothing to whoever writes a scenario.
fn in_words(error: &toml::de::Error) -> String {
    let whole = "a whole number from 0";
    error
        .to_string()
        .replace("expected u32", &format!("expected {whole}"))
        .replace("expected u64", &format!("expected {whole}"))
}

impl Scenario {
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| FileError::Unreadable { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// `path` is for the errors, and where relative paths start.
    pub fn parse(text: &str, path: &Path) -> Result<Self, FileError> {
        let mut scenario: Self = toml::from_str(text)
            .map_err(|source| FileError::Syntax { path: path.to_owned(), source: Box::new(source) })?;
        if scenario.caller.last().is_none_or(|last| !last.hang_up && !last.drop_line) {
            let when = When { idle_ms: Some(LAST_IDLE_MS), ..When::default() };
            scenario.caller.push(CallerLine { when, hang_up: true, ..CallerLine::default() });
        }
        match problem(&scenario) {
            None => Ok(scenario),
            Some(problem) => Err(FileError::Wrong { path: path.to_owned(), problem }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        let text = format!("name = \"t\"\nstory = \"t\"\n{text}\n[expect]\n");
        Scenario::parse(&text, Path::new("t.toml")).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn what_only_gpt_live_has_needs_it_and_what_it_lacks_is_told() {
        let live = "provider = \"gpt_live\"\n";
        for fault in
            ["fail_runs = 1", "late_words_ms = 9", "never_yields = true", "unprompted = \"x\"", "expire_model = true"]
        {
            let fault = format!("[[fault]]\n{fault}");
            assert!(problem(&fault).contains("fault 1 is one of GPT-Live"), "{fault}");
            assert_eq!(problem(&format!("{live}{fault}")), "");
        }
        assert!(problem(&format!("{live}[[fault]]\nswallow_ends = true")).contains("no ends of responses"));
        assert!(problem("delegation = \"client\"").contains("belongs to `provider"));
        assert!(problem("provider = \"gemini\"").contains("gpt_live"));
    }
}
