//! Recordings as directories.

use conversation::{Command, Input, Policy};
use recording::{CALLER_FILE, Header, Piece, ReadError, Reader, Recorded, STEPS_FILE, Voice};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use vocab::CallTime;
use vocab::model::ModelEvent;

/// How deep below a folder recordings are looked for: an export may keep one folder a day.
const MAX_DEPTH: u32 = 3;

/// The steps of a recorded call.
pub type Log = Reader<BufReader<File>, Input, Command>;

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{place}: {error}")]
    Io { place: String, error: io::Error },
    #[error("{place}: the recorded policy is not one that this program knows: {error}")]
    Policy { place: String, error: serde_json::Error },
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
    Ok(Reader::new(file.display().to_string(), BufReader::with_capacity(64 * 1024, steps))?)
}

/// The caller's audio of a recording.
pub fn caller_audio(dir: &Path) -> Result<BufReader<File>, ReplayError> {
    let file = dir.join(CALLER_FILE);
    File::open(&file).map(|audio| BufReader::with_capacity(64 * 1024, audio)).map_err(|error| io_error(&file, error))
}

pub(crate) fn policy(place: &Path, header: &Header) -> Result<Policy, ReplayError> {
    serde_json::from_value(header.policy.clone())
        .map_err(|error| ReplayError::Policy { place: place.display().to_string(), error })
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
