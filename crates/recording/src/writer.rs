//! Writes a log: the input before the step, its commands after. In steady state a quiet frame costs no allocation.

use crate::header::Header;
use crate::quiet::{Folded, Frame, MAX_RUN, Piece, Quiet, Voice};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use vocab::{CallTime, Samples};

/// Why a recording ends before its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It reached the size that one recording may have.
    MaxBytes,
    /// The disk did not keep up, and a call never waits for it.
    WriterBehind,
    /// The disk refused.
    WriteFailed,
}

impl StopReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MaxBytes => "max_bytes",
            Self::WriterBehind => "writer_behind",
            Self::WriteFailed => "write_failed",
        }
    }
}

/// How far the log came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub steps: u64,
    pub at: CallTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stopped {
    pub reason: StopReason,
    pub steps: u64,
    pub at: CallTime,
}

/// One log on its way into `W`. Lines are written whole or, for a step that is under way, up to its input.
pub struct Writer<W> {
    out: W,
    /// Steps told so far, folded ones included.
    steps: u64,
    at: CallTime,
    run: Vec<(CallTime, Quiet)>,
    /// Where the run's first frame begins in the caller's audio, and where its last one ends.
    run_heard: Option<(u64, u64)>,
    run_spoken: Option<RunSpoken>,
    inside_step: bool,
}

/// The pieces of a run follow one another, in their playback and in the agent's audio.
#[derive(Clone, Copy)]
struct RunSpoken {
    voice: Voice,
    from: Samples,
    to: Samples,
    agent_at: u64,
}

impl RunSpoken {
    fn goes_on_with(&self, agent_at: u64, piece: &Piece) -> bool {
        let so_far = u64::from((self.to - self.from).0);
        self.voice == piece.voice && self.to == piece.from && self.agent_at + so_far == agent_at
    }
}

impl<W: Write> Writer<W> {
    /// Writes the header line.
    pub fn new(mut out: W, header: &Header) -> io::Result<Self> {
        #[derive(Serialize)]
        struct Line<'a> {
            recording: &'a Header,
        }
        serde_json::to_writer(&mut out, &Line { recording: header })?;
        out.write_all(b"\n")?;
        let run = Vec::with_capacity(MAX_RUN);
        Ok(Self { out, steps: 0, at: CallTime(0), run, run_heard: None, run_spoken: None, inside_step: false })
    }

    /// Steps told so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Time of the last step.
    pub fn at(&self) -> CallTime {
        self.at
    }

    pub fn out_mut(&mut self) -> &mut W {
        &mut self.out
    }

    pub fn into_inner(self) -> W {
        self.out
    }

    /// A caller frame that caused nothing. `caller_at`: where its audio begins, in bytes. Held until the run is full, ends,
    /// or is asked for by [`Self::flush_run`].
    pub fn quiet_frame(&mut self, at: CallTime, caller_at: u64, frame: Frame) -> io::Result<()> {
        // Time that runs backwards, or audio with a hole, does not fold.
        let follows = self.run_heard.is_none_or(|(_, to)| to == caller_at);
        if at < self.at || !follows || self.run.len() >= MAX_RUN {
            self.flush_run()?;
        }
        self.run_heard.get_or_insert((caller_at, caller_at)).1 += u64::from(frame.samples.0);
        self.fold(at, Quiet::Frame(frame));
        Ok(())
    }

    /// A piece of the model's voice that was sent on as it came. `agent_at`: where its audio begins, in bytes. Held like a
    /// quiet frame; its audio must be there before the run is asked for.
    pub fn smooth_piece(&mut self, at: CallTime, agent_at: u64, piece: Piece) -> io::Result<()> {
        let follows = self.run_spoken.is_none_or(|spoken| spoken.goes_on_with(agent_at, &piece));
        if at < self.at || !follows || self.run.len() >= MAX_RUN {
            self.flush_run()?;
        }
        let Piece { voice, from, samples } = piece;
        self.run_spoken.get_or_insert(RunSpoken { voice, from, to: from, agent_at }).to += samples;
        self.fold(at, Quiet::Piece(samples));
        Ok(())
    }

    fn fold(&mut self, at: CallTime, step: Quiet) {
        self.run.push((at, step));
        self.steps += 1;
        self.at = at;
    }

    /// Writes the run that is held.
    pub fn flush_run(&mut self) -> io::Result<()> {
        let Some((at, _)) = self.run.first() else { return Ok(()) };
        let first = self.steps + 1 - self.run.len() as u64;
        write!(self.out, r#"{{"n":{first},"at":{}"#, at.0)?;
        if let Some((caller_at, _)) = self.run_heard.take() {
            write!(self.out, r#","caller_at":{caller_at}"#)?;
        }
        let spoken = self.run_spoken.take();
        if let Some(spoken) = spoken {
            write!(self.out, r#","agent_at":{}"#, spoken.agent_at)?;
        }
        self.out.write_all(br#","quiet":"#)?;
        let spoken = spoken.map(|spoken| (spoken.voice, spoken.from));
        serde_json::to_writer(&mut self.out, &Folded { steps: &self.run, spoken })?;
        self.out.write_all(b"}\n")?;
        self.run.clear();
        Ok(())
    }

    /// A step begins: its input is written now. `caller_at` when the input is caller audio.
    pub fn begin_step<I: Serialize>(&mut self, at: CallTime, caller_at: Option<u64>, input: &I) -> io::Result<()> {
        if self.inside_step {
            return Err(io::Error::other("the step before has not ended"));
        }
        self.flush_run()?;
        self.inside_step = true;
        self.steps += 1;
        self.at = at;
        write!(self.out, r#"{{"n":{},"at":{}"#, self.steps, at.0)?;
        if let Some(caller_at) = caller_at {
            write!(self.out, r#","caller_at":{caller_at}"#)?;
        }
        self.out.write_all(br#","input":"#)?;
        serde_json::to_writer(&mut self.out, input)?;
        Ok(())
    }

    /// The step is done. `agent_at`: where the audio that it sends begins, when it sends any.
    pub fn end_step<C: Serialize>(&mut self, agent_at: Option<u64>, commands: &[C]) -> io::Result<()> {
        if !self.inside_step {
            return Err(io::Error::other("no step has begun"));
        }
        self.inside_step = false;
        if let Some(agent_at) = agent_at {
            write!(self.out, r#","agent_at":{agent_at}"#)?;
        }
        self.out.write_all(br#","commands":"#)?;
        serde_json::to_writer(&mut self.out, commands)?;
        self.out.write_all(b"}\n")
    }

    /// The log ends with its call.
    pub fn end(&mut self) -> io::Result<()> {
        #[derive(Serialize)]
        struct Line {
            ended: Ended,
        }
        self.flush_run()?;
        serde_json::to_writer(&mut self.out, &Line { ended: Ended { steps: self.steps, at: self.at } })?;
        self.out.write_all(b"\n")
    }

    /// The log ends before its call.
    pub fn stop(&mut self, reason: StopReason) -> io::Result<()> {
        self.flush_run()?;
        stopped_line(&mut self.out, reason, self.steps, self.at)
    }

    /// The last line of a log that another writer had to give up.
    pub fn write_stopped(mut out: W, reason: StopReason, steps: u64, at: CallTime) -> io::Result<()> {
        stopped_line(&mut out, reason, steps, at)
    }
}

fn stopped_line(out: &mut impl Write, reason: StopReason, steps: u64, at: CallTime) -> io::Result<()> {
    #[derive(Serialize)]
    struct Line {
        stopped: Stopped,
    }
    serde_json::to_writer(&mut *out, &Line { stopped: Stopped { reason, steps, at } })?;
    out.write_all(b"\n")
}
