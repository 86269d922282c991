//! Reads a log step by step. Memory is bounded by the longest line, whatever the length of the call.

use crate::header::{FORMAT, Header};
use crate::quiet::{Frame, Piece, Quiet, Unfolded, Voice};
use crate::writer::{Ended, StopReason, Stopped};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, Read};
use std::marker::PhantomData;
use vocab::{CallTime, Samples};

/// The longest line that is taken: far above any step (the largest hold a tool's result or a page of instructions).
const MAX_LINE_BYTES: u64 = 8 << 20;
/// What follows the input when the step was under way.
const REST_OF_STEP: &[u8] = br#","commands":[]}"#;

/// One step with everything that it caused.
#[derive(Clone, Debug, PartialEq)]
pub struct Step<I, C> {
    /// From 1, without a gap.
    pub n: u64,
    pub at: CallTime,
    pub input: I,
    pub commands: Vec<C>,
    /// Where its audio begins in the caller's sidecar, when the input is caller audio.
    pub caller_at: Option<u64>,
    /// Where the audio that it sent begins in the agent's sidecar.
    pub agent_at: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Recorded<I, C> {
    /// Caller audio that caused nothing.
    QuietFrame {
        n: u64,
        at: CallTime,
        caller_at: u64,
        frame: Frame,
    },
    /// A piece of the model's voice that was kept and sent in the same step, whole, and nothing else.
    SmoothPiece {
        n: u64,
        at: CallTime,
        agent_at: u64,
        piece: Piece,
    },
    Step(Step<I, C>),
}

/// A step whose commands were not all written: the process ended within it, or before the rest reached the disk.
#[derive(Clone, Debug, PartialEq)]
pub struct InsideStep<I> {
    pub n: u64,
    pub at: CallTime,
    pub input: I,
}

/// How a log ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Tail<I> {
    /// In order, with its call.
    Ended { steps: u64, at: CallTime },
    /// Before its call, on purpose. `steps` may be more than were written when the writer was behind.
    Stopped { reason: StopReason, steps: u64, at: CallTime },
    /// After a whole line: the process was ended.
    Open,
    /// Inside a line: the process was ended. The steps before it are whole.
    Torn { line: u64, bytes: usize, inside: Option<InsideStep<I>> },
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{file}: cannot be read: {error}")]
    Io { file: String, error: io::Error },
    #[error("{file}:{line}: {what}")]
    Corrupt { file: String, line: u64, what: String },
    #[error("{file}: no header: the recording was cut before its first line was written")]
    NoHeader { file: String },
    #[error("{file}: written in format {found}; this program reads up to format {FORMAT}")]
    Newer { file: String, found: u32 },
}

/// An iterator over the steps. After it has ended, [`Reader::tail`] says how the log ends.
pub struct Reader<R, I, C> {
    /// As messages name it.
    file: String,
    from: R,
    header: Header,
    /// Number of the last line read, from 1.
    line: u64,
    buffer: Vec<u8>,
    /// Next step's number.
    next: u64,
    run: std::vec::IntoIter<(u64, Quiet)>,
    /// Where the run's next step stands.
    run_at: CallTime,
    run_heard: u64,
    run_sent: u64,
    run_spoken: Option<(Voice, Samples)>,
    tail: Option<Tail<I>>,
    failed: bool,
    commands: PhantomData<C>,
}

#[derive(Deserialize)]
struct Line<I, C> {
    n: Option<u64>,
    at: Option<CallTime>,
    caller_at: Option<u64>,
    agent_at: Option<u64>,
    input: Option<I>,
    commands: Option<Vec<C>>,
    quiet: Option<Unfolded>,
    ended: Option<Ended>,
    stopped: Option<Stopped>,
}

impl<R: BufRead, I: DeserializeOwned, C: DeserializeOwned> Reader<R, I, C> {
    /// Reads the header. `file` is what messages call the source.
    pub fn new(file: impl Into<String>, from: R) -> Result<Self, ReadError> {
        #[derive(Deserialize)]
        struct First {
            recording: serde_json::Value,
        }
        let file = file.into();
        let mut buffer = Vec::new();
        let mut from = from;
        let whole = read_line(&mut from, &mut buffer).map_err(|error| ReadError::Io { file: file.clone(), error })?;
        if whole != Whole::Yes {
            return Err(ReadError::NoHeader { file });
        }
        let corrupt = |what: serde_json::Error| ReadError::Corrupt { file: file.clone(), line: 1, what: told(&what) };
        let first: First = serde_json::from_slice(&buffer).map_err(corrupt)?;
        // The format goes first: a later one may have another header.
        let found = first.recording.get("format").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if found > u64::from(FORMAT) {
            return Err(ReadError::Newer { file, found: u32::try_from(found).unwrap_or(u32::MAX) });
        }
        let header: Header = serde_json::from_value(first.recording).map_err(corrupt)?;
        Ok(Self {
            file,
            from,
            header,
            line: 1,
            buffer,
            next: 1,
            run: Vec::new().into_iter(),
            run_at: CallTime(0),
            run_heard: 0,
            run_sent: 0,
            run_spoken: None,
            tail: None,
            failed: false,
            commands: PhantomData,
        })
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How the log ends; `None` until all of it was read.
    pub fn tail(&self) -> Option<&Tail<I>> {
        self.tail.as_ref()
    }

    fn corrupt(&self, what: impl Into<String>) -> ReadError {
        ReadError::Corrupt { file: self.file.clone(), line: self.line, what: what.into() }
    }

    fn read(&mut self) -> Result<Option<Recorded<I, C>>, ReadError> {
        loop {
            if let Some((gap, step)) = self.run.next() {
                return self.unfold(gap, step).map(Some);
            }
            let whole = read_line(&mut self.from, &mut self.buffer)
                .map_err(|error| ReadError::Io { file: self.file.clone(), error })?;
            if whole == Whole::Nothing {
                self.tail.get_or_insert(Tail::Open);
                return Ok(None);
            }
            self.line += 1;
            if self.tail.is_some() {
                return Err(self.corrupt("something follows the last line of a closed log"));
            }
            if whole == Whole::TooLong {
                return Err(self.corrupt(format!("a line of more than {MAX_LINE_BYTES} bytes")));
            }
            match serde_json::from_slice::<Line<I, C>>(&self.buffer) {
                Ok(line) => {
                    if let Some(step) = self.take(line)? {
                        return Ok(Some(step));
                    }
                }
                Err(_) if whole == Whole::Torn => {
                    self.tail = Some(Tail::Torn {
                        line: self.line,
                        bytes: self.buffer.len(),
                        inside: inside_step::<I, C>(&self.buffer).filter(|inside| inside.n == self.next),
                    });
                    return Ok(None);
                }
                Err(error) => return Err(self.corrupt(told(&error))),
            }
        }
    }

    /// The next step of the run in hand.
    fn unfold(&mut self, gap: u64, step: Quiet) -> Result<Recorded<I, C>, ReadError> {
        self.run_at = CallTime(self.run_at.0.saturating_add(gap));
        let (n, at) = (self.next, self.run_at);
        self.next += 1;
        match (step, &mut self.run_spoken) {
            (Quiet::Frame(frame), _) => {
                let caller_at = self.run_heard;
                self.run_heard = caller_at.saturating_add(u64::from(frame.samples.0));
                Ok(Recorded::QuietFrame { n, at, caller_at, frame })
            }
            (Quiet::Piece(samples), Some((voice, next))) => {
                let piece = Piece { voice: *voice, from: *next, samples };
                let to = next.0.checked_add(samples.0).map(Samples);
                let agent_at = self.run_sent;
                self.run_sent = agent_at.saturating_add(u64::from(samples.0));
                match to {
                    Some(to) => *next = to,
                    None => return Err(self.corrupt("a playback longer than can be counted")),
                }
                Ok(Recorded::SmoothPiece { n, at, agent_at, piece })
            }
            (Quiet::Piece(_), None) => Err(self.corrupt("pieces of a voice that is not named")),
        }
    }

    fn take(&mut self, line: Line<I, C>) -> Result<Option<Recorded<I, C>>, ReadError> {
        match line {
            Line { ended: Some(Ended { steps, at }), .. } => {
                if steps != self.next - 1 {
                    return Err(
                        self.corrupt(format!("the log ends after step {steps}, and {} were read", self.next - 1))
                    );
                }
                self.tail = Some(Tail::Ended { steps, at });
                Ok(None)
            }
            Line { stopped: Some(Stopped { reason, steps, at }), .. } => {
                self.tail = Some(Tail::Stopped { reason, steps, at });
                Ok(None)
            }
            Line { n: Some(n), .. } if n != self.next => {
                Err(self.corrupt(format!("step {n} where step {} must be", self.next)))
            }
            Line { n: Some(_), at: Some(at), caller_at, agent_at, quiet: Some(quiet), .. } => {
                self.run = quiet.steps.into_iter();
                self.run_at = at;
                self.run_heard = caller_at.unwrap_or(self.run_heard);
                self.run_sent = agent_at.unwrap_or(self.run_sent);
                self.run_spoken = quiet.spoken;
                Ok(None)
            }
            Line {
                n: Some(n),
                at: Some(at),
                caller_at,
                agent_at,
                input: Some(input),
                commands: Some(commands),
                ..
            } => {
                self.next += 1;
                Ok(Some(Recorded::Step(Step { n, at, input, commands, caller_at, agent_at })))
            }
            _ => Err(self.corrupt("neither a step nor the end of a log")),
        }
    }
}

impl<R: BufRead, I: DeserializeOwned, C: DeserializeOwned> Iterator for Reader<R, I, C> {
    type Item = Result<Recorded<I, C>, ReadError>;

    /// After an error nothing more comes.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let read = self.read().transpose();
        self.failed = matches!(read, Some(Err(_)));
        read
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whole {
    Yes,
    /// The end of the file came before the end of the line.
    Torn,
    TooLong,
    Nothing,
}

fn read_line(from: &mut impl BufRead, buffer: &mut Vec<u8>) -> io::Result<Whole> {
    buffer.clear();
    let read = from.take(MAX_LINE_BYTES).read_until(b'\n', buffer)?;
    Ok(if read == 0 {
        Whole::Nothing
    } else if buffer.ends_with(b"\n") {
        Whole::Yes
    } else if read as u64 == MAX_LINE_BYTES {
        Whole::TooLong
    } else {
        Whole::Torn
    })
}

/// The input of a line that was cut after it.
fn inside_step<I: DeserializeOwned, C: DeserializeOwned>(torn: &[u8]) -> Option<InsideStep<I>> {
    // Inside a JSON string the quotes would be escaped, so these can only be keys.
    let key = [&br#","agent_at":"#[..], &br#","commands":"#[..]]
        .into_iter()
        .filter_map(|key| torn.windows(key.len()).position(|window| window == key))
        .min();
    // Before the first of them was written whole, it may be there in part.
    let cuts = [Some(key.unwrap_or(torn.len())), torn.iter().rposition(|byte| *byte == b',')];
    let line = cuts.into_iter().flatten().find_map(|cut| {
        let mut closed = torn[..cut].to_vec();
        closed.extend_from_slice(REST_OF_STEP);
        serde_json::from_slice::<Line<I, C>>(&closed).ok()
    })?;
    Some(InsideStep { n: line.n?, at: line.at?, input: line.input? })
}

/// A parser's complaint without the line number, which counts within our one line.
fn told(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) => format!("{what} (column {})", error.column()),
        None => text,
    }
}
