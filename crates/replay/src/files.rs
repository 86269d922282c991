//! Recordings as directories.

use conversation::policy::PolicyFault;
use conversation::{Command, Input, Policy};
use recording::{CALLER_FILE, Header, Piece, ReadError, Reader, Recorded, STEPS_FILE, Tail, Voice};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use vocab::audio::SAMPLES_PER_MS;
use vocab::model::ModelEvent;
use vocab::{CallTime, Samples, WallTime};

/// How deep below a folder recordings are looked for: an export may keep one folder a day.
const MAX_DEPTH: u32 = 3;

/// A call lasts a day at most (`limits.max_call_s`); a step beyond twice that is damage.
const MAX_AT: CallTime = CallTime::from_ms(48 * 3_600_000);
/// Where a piece of sound may begin in its sidecar: six days of it.
const MAX_OFFSET: u64 = u32::MAX as u64;
/// The end of the year 9999; a scrubbed recording started at 0.
const LATEST_START: WallTime = WallTime(253_402_300_799_999);
/// One piece of sound, of caller or model: far above what a message can carry.
const MAX_PIECE: Samples = Samples::from_ms(600_000);

/// The steps of a recorded call, in their order. One that no call can have made is an error, for no reader to trip over.
/// After it has ended, [`Log::tail`] says how the log ends.
pub struct Log {
    /// As messages name it.
    file: String,
    reader: Reader<BufReader<File>, Input, Command>,
    failed: bool,
}

impl Log {
    pub fn header(&self) -> &Header {
        self.reader.header()
    }

    /// How the log ends; `None` until all of it was read.
    pub fn tail(&self) -> Option<&Tail<Input>> {
        self.reader.tail()
    }
}

impl Iterator for Log {
    type Item = Result<ReplayStep, ReplayError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let read = self.reader.next()?.map_err(ReplayError::from).map(ReplayStep::from);
        let read = read.and_then(|step| match impossible(&step) {
            None => Ok(step),
            Some(why) => Err(ReplayError::Unfit { place: self.file.clone(), what: format!("step {} {why}", step.n) }),
        });
        self.failed = read.is_err();
        Some(read)
    }
}

/// What no call can have done.
fn impossible(step: &ReplayStep) -> Option<String> {
    if step.at > MAX_AT {
        return Some(format!("is at {} µs, longer than any call lasts: the recording is damaged", step.at.0));
    }
    if let Some(offset) = [step.caller_at, step.agent_at].into_iter().flatten().find(|offset| *offset > MAX_OFFSET) {
        return Some(format!("has its audio at byte {offset}, beyond any call's: the recording is damaged"));
    }
    let heard = match &step.input {
        Input::CallerAudio { samples, .. } | Input::Model(ModelEvent::AudioReceived { samples, .. }) => *samples,
        Input::CallStarted { .. }
        | Input::MarkReturned { .. }
        | Input::DtmfPressed { .. }
        | Input::StreamEnded
        | Input::Model(_)
        | Input::Work(_)
        | Input::DrainRequested
        | Input::TimePassed => Samples::ZERO,
    };
    let minutes = MAX_PIECE.0 / SAMPLES_PER_MS / 60_000;
    let too_long = |samples: Samples| {
        let what =
            format!("holds {} samples in one piece, more than {minutes} minutes: the recording is damaged", samples.0);
        (samples > MAX_PIECE).then_some(what)
    };
    too_long(heard).or_else(|| {
        step.commands.iter().find_map(|command| {
            let Command::SendAudio { from, to, .. } = command else { return None };
            let backwards = format!("sends audio from sample {} back to {}: the recording is damaged", from.0, to.0);
            if from > to { Some(backwards) } else { too_long(*to - *from) }
        })
    })
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{place}: {error}")]
    Io { place: String, error: io::Error },
    #[error("{place}: the recorded policy is not one that this program knows: {error}")]
    Policy { place: String, error: serde_json::Error },
    #[error("{place}: the recorded policy cannot be worked with: {fault}")]
    PolicyFault { place: String, fault: PolicyFault },
    #[error("{place}: {what}")]
    Unfit { place: String, what: String },
}

pub(crate) fn io_error(place: &Path, error: io::Error) -> ReplayError {
    ReplayError::Io { place: place.display().to_string(), error }
}

/// Opens the log of a recording: its directory, or the log itself.
pub fn open(place: &Path) -> Result<Log, ReplayError> {
    let file = if place.is_dir() { place.join(STEPS_FILE) } else { place.to_owned() };
    let steps = File::open(&file).map_err(|error| io_error(&file, error))?;
    let file = file.display().to_string();
    let reader = Reader::new(file.clone(), BufReader::with_capacity(64 * 1024, steps))?;
    let started = reader.header().started;
    if !(WallTime(0)..=LATEST_START).contains(&started) {
        let what = format!("the call started at {} ms, which is no time: the recording is damaged", started.0);
        return Err(ReplayError::Unfit { place: file, what });
    }
    Ok(Log { file, reader, failed: false })
}

/// The caller's audio of a recording.
pub fn caller_audio(dir: &Path) -> Result<BufReader<File>, ReplayError> {
    let file = dir.join(CALLER_FILE);
    File::open(&file).map(|audio| BufReader::with_capacity(64 * 1024, audio)).map_err(|error| io_error(&file, error))
}

/// The policy that a call was recorded under, which must be one that a server would have taken.
pub fn recorded_policy(place: &Path, header: &Header) -> Result<Policy, ReplayError> {
    let place = || place.display().to_string();
    let policy: Policy = serde_json::from_value(as_it_was(header.policy.clone()))
        .map_err(|error| ReplayError::Policy { place: place(), error })?;
    match policy.faults().into_iter().next() {
        None => Ok(policy),
        Some(fault) => Err(ReplayError::PolicyFault { place: place(), fault }),
    }
}

/// Every recording at or below `place`, in the order of their names. Links are not followed.
pub fn find_recordings(place: &Path) -> Result<Vec<PathBuf>, ReplayError> {
    let mut found = Vec::new();
    look(place, MAX_DEPTH, &mut found)?;
    found.sort();
    Ok(found)
}

fn look(place: &Path, depth: u32, found: &mut Vec<PathBuf>) -> Result<(), ReplayError> {
    if place.join(STEPS_FILE).is_file() {
        found.push(place.to_owned());
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    for entry in std::fs::read_dir(place).map_err(|error| io_error(place, error))? {
        let entry = entry.map_err(|error| io_error(place, error))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            look(&entry.path(), depth - 1, found)?;
        }
    }
    Ok(())
}

/// A recorded step as the core takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayStep {
    pub n: u64,
    pub at: CallTime,
    pub input: Input,
    pub commands: Vec<Command>,
    pub caller_at: Option<u64>,
    pub agent_at: Option<u64>,
}

impl From<Recorded<Input, Command>> for ReplayStep {
    fn from(recorded: Recorded<Input, Command>) -> Self {
        match recorded {
            Recorded::QuietFrame { n, at, caller_at, frame } => Self {
                n,
                at,
                input: Input::CallerAudio { samples: frame.samples, evidence: frame.evidence },
                commands: Vec::new(),
                caller_at: Some(caller_at),
                agent_at: None,
            },
            Recorded::SmoothPiece { n, at, agent_at, piece: Piece { voice, from, samples } } => {
                let Voice { response, item, playback } = voice;
                Self {
                    n,
                    at,
                    input: Input::Model(ModelEvent::AudioReceived { response, item, samples }),
                    commands: vec![
                        Command::KeepAudio { playback, from },
                        Command::SendAudio { playback, from, to: from + samples },
                    ],
                    caller_at: None,
                    agent_at: Some(agent_at),
                }
            }
            Recorded::Step(step) => Self {
                n: step.n,
                at: step.at,
                input: step.input,
                commands: step.commands,
                caller_at: step.caller_at,
                agent_at: step.agent_at,
            },
        }
    }
}

/// A policy that a call was made under holds what there was then. What has come since must not change its replay: each number that is
/// missing stands for how the program of that time behaved, not for the default of today.
fn as_it_was(mut policy: Value) -> Value {
    let floor = policy.pointer("/turn/floor_dbfs").cloned();
    let confirm = policy.pointer("/turn/confirm_ms").cloned();
    let since = [
        ("turn", "floor_over_voice_dbfs", floor),
        ("turn", "confirm_over_voice_ms", confirm),
        ("idle", "check_in_after_ms", Some(json!(0))),
        ("claims", "words", Some(json!([]))),
        ("session", "max_openings", Some(json!(0))),
    ];
    if let Value::Object(tables) = &mut policy {
        for (table, key, then) in since {
            let table = tables.entry(table).or_insert_with(|| json!({}));
            if let (Value::Object(table), Some(then)) = (table, then) {
                table.entry(key).or_insert(then);
            }
        }
    }
    policy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_old_policy_does_not_say_is_as_it_was_and_what_it_says_stands() {
        let old = as_it_was(json!({"turn": {"floor_dbfs": -42, "confirm_ms": 260}, "gate": {"quiet_ms": 700}}));
        let policy: Policy = serde_json::from_value(old).unwrap();
        assert_eq!((policy.turn.floor_over_voice_dbfs, policy.turn.confirm_over_voice_ms), (-42, 260));
        assert_eq!((policy.idle.check_in_after_ms, policy.session.max_openings), (0, 0));
        assert!(policy.claims.words.is_empty() && policy.gate.quiet_ms == 700);
        let mut today = Policy::default();
        today.idle.check_in_after_ms = 7_000;
        let read: Policy = serde_json::from_value(as_it_was(serde_json::to_value(&today).unwrap())).unwrap();
        assert_eq!(read, today);
    }
}
