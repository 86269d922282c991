//! Records one call: what came goes into the log before the step, what it caused after. Nothing here waits: bytes gather in a
//! buffer of the call and are handed to the one writer thread of the process about once a second, at once when an operation
//! is concerned. When the thread does not keep up, the recording stops and the call goes on.
//!
//! What a killed process loses: what has not been handed over yet, and what the thread has not written. What a panic in the
//! core loses: nothing, the input that it died of included, since the buffer is handed over while the stack unwinds.

mod retention;
mod writer;

pub use retention::{Swept, sweep};
pub use writer::{RecordingThread, Recordings};

use conversation::{Command, Input};
use recording::{Frame, Piece, StopReason, Voice, Writer};
use std::path::PathBuf;
use std::time::Duration;
use vocab::model::ModelEvent;
use vocab::{CallTime, ModelItemId, ModelResponseId, Samples};
use writer::{Chunk, Mailbox};

/// Bytes are handed over this long after the last time. Steps come every 20 ms while the carrier sends, so what a crash loses
/// stays under a second.
const HAND_OVER_EVERY: Duration = Duration::from_millis(900);
/// Or when there are this many: a burst of the model is no reason to hold them.
const HAND_OVER_BYTES: usize = 128 * 1024;

/// What an operator sets in `[recording]`, and the limits that keep it from hurting anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingLimits {
    pub dir: PathBuf,
    /// A recording that reaches this ends with a `stopped` line; the call goes on. An hour takes about 65 MB.
    pub max_bytes_each: u64,
    /// Bytes of all calls on their way to the disk. Beyond it a recording that hands over stops.
    pub max_bytes_waiting: usize,
    /// Messages to the writer thread that may wait: about one a call and second.
    pub max_waiting: usize,
}

impl RecordingLimits {
    /// Two hours a call; what a disk that hangs for seconds under a thousand calls leaves in memory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), max_bytes_each: 160 << 20, max_bytes_waiting: 64 << 20, max_waiting: 4_096 }
    }
}

/// The recording of one call. Dropping it without [`Recorder::end`] leaves a log without its last line.
pub struct Recorder {
    /// `None` once the recording has stopped.
    log: Option<Log>,
    mailbox: Mailbox,
}

struct Log {
    /// The steps of the present chunk.
    steps: Writer<Vec<u8>>,
    caller: Vec<u8>,
    agent: Vec<u8>,
    /// All that was ever given, in bytes: where the next audio begins.
    caller_bytes: u64,
    agent_bytes: u64,
    /// Where the audio of the input in hand begins.
    heard_at: u64,
    /// Steps handed over, in bytes.
    step_bytes: u64,
    /// An input that may be folded, if nothing is decided of it.
    held: Option<(CallTime, Held)>,
    /// A step since the last hand-over concerned an operation.
    hurry: bool,
    /// Audio of the last step is still to come: handed over now, its line would be on the disk before its sound.
    awaits_audio: bool,
    handed_over: CallTime,
    max_bytes: u64,
}

/// An input whose step has not ended.
#[derive(Clone, Copy)]
enum Held {
    Frame(Frame),
    Voice { response: ModelResponseId, item: ModelItemId, samples: Samples },
}

impl Held {
    fn input(self) -> Input {
        match self {
            Self::Frame(Frame { samples, evidence }) => Input::CallerAudio { samples, evidence },
            Self::Voice { response, item, samples } => {
                Input::Model(ModelEvent::AudioReceived { response, item, samples })
            }
        }
    }
}

impl Recorder {
    /// `steps` has written its header, in `step_bytes` bytes, and what comes goes into `chunk`.
    fn new(mut steps: Writer<Vec<u8>>, step_bytes: usize, chunk: Chunk, max_bytes: u64, mailbox: Mailbox) -> Self {
        *steps.out_mut() = chunk.steps;
        let log = Log {
            steps,
            caller: chunk.caller,
            agent: chunk.agent,
            caller_bytes: 0,
            agent_bytes: 0,
            heard_at: 0,
            step_bytes: step_bytes as u64,
            held: None,
            hurry: false,
            awaits_audio: false,
            handed_over: CallTime(0),
            max_bytes,
        };
        Self { log: Some(log), mailbox }
    }

    /// μ-law of the caller that the next [`Input::CallerAudio`] stands for.
    pub fn caller_audio(&mut self, codes: &[u8]) {
        let Some(log) = &mut self.log else { return };
        log.heard_at = log.caller_bytes;
        log.caller.extend_from_slice(codes);
        log.caller_bytes += codes.len() as u64;
    }

    /// μ-law that the step in hand sends to the carrier, padding included.
    pub fn agent_audio(&mut self, codes: &[u8]) {
        let Some(log) = &mut self.log else { return };
        log.agent.extend_from_slice(codes);
        log.agent_bytes += codes.len() as u64;
    }

    /// A step begins.
    pub fn input(&mut self, at: CallTime, input: &Input) {
        if self.log.as_mut().is_some_and(|log| std::mem::take(&mut log.awaits_audio)) {
            self.hand_over_when_due();
        }
        let Some(log) = &mut self.log else { return };
        let written = match input {
            Input::CallerAudio { samples, evidence } => {
                log.held = Some((at, Held::Frame(Frame { samples: *samples, evidence: *evidence })));
                Ok(())
            }
            Input::Model(ModelEvent::AudioReceived { response, item, samples }) => {
                log.held = Some((at, Held::Voice { response: *response, item: *item, samples: *samples }));
                Ok(())
            }
            Input::Work(_) | Input::StreamEnded | Input::DrainRequested => {
                log.hurry = true;
                log.steps.begin_step(at, None, input)
            }
            Input::CallStarted { .. }
            | Input::MarkReturned { .. }
            | Input::DtmfPressed { .. }
            | Input::Model(_)
            | Input::TimePassed => log.steps.begin_step(at, None, input),
        };
        self.go_on(written);
    }

    /// The step is done and these are to be carried out.
    pub fn commands(&mut self, commands: &[Command]) {
        let Some(log) = &mut self.log else { return };
        let written = log.commands(commands);
        let awaits_audio = log.awaits_audio;
        self.go_on(written);
        if !awaits_audio {
            self.hand_over_when_due();
        }
    }

    /// The call is over.
    pub fn end(&mut self) {
        let Some(log) = &mut self.log else { return };
        self.mailbox.ended(log.steps.steps(), log.steps.at());
        let written = log.steps.end();
        self.go_on(written);
        self.hand_over();
        self.log = None;
    }

    /// A step that cannot be put into words ends the recording: a log with a hole would replay something else.
    fn go_on(&mut self, written: std::io::Result<()>) {
        if let Err(error) = written {
            tracing::error!(%error, "a step could not be recorded");
            self.give_up(StopReason::WriteFailed);
        }
    }

    fn hand_over_when_due(&mut self) {
        let Some(log) = &mut self.log else { return };
        let at = log.steps.at();
        let bytes = log.steps.out_mut().len() + log.caller.len() + log.agent.len();
        let due = at.since(log.handed_over) >= HAND_OVER_EVERY || bytes >= HAND_OVER_BYTES;
        if !due && !std::mem::take(&mut log.hurry) {
            return;
        }
        log.hurry = false;
        log.handed_over = at;
        if log.step_bytes + log.steps.out_mut().len() as u64 + log.caller_bytes + log.agent_bytes > log.max_bytes {
            let written = log.steps.stop(StopReason::MaxBytes);
            self.go_on(written);
            self.hand_over();
            if self.log.take().is_some() {
                writer::count_stop(StopReason::MaxBytes);
            }
            return;
        }
        let written = log.steps.flush_run();
        self.go_on(written);
        self.hand_over();
    }

    /// Gives the buffers to the thread and takes emptied ones.
    fn hand_over(&mut self) {
        let Some(log) = &mut self.log else { return };
        let mut chunk = self.mailbox.spare();
        std::mem::swap(&mut chunk.steps, log.steps.out_mut());
        std::mem::swap(&mut chunk.caller, &mut log.caller);
        std::mem::swap(&mut chunk.agent, &mut log.agent);
        log.step_bytes += chunk.steps.len() as u64;
        if !self.mailbox.send(chunk) {
            self.give_up(self.mailbox.failure());
        }
    }

    /// The thread is told by a flag, not by a message: it may be the messages that do not go through.
    fn give_up(&mut self, reason: StopReason) {
        let Some(mut log) = self.log.take() else { return };
        // What was folded into the run in hand is counted, though it is lost.
        self.mailbox.give_up(reason, log.steps.steps(), log.steps.at());
        log.steps.out_mut().clear();
        tracing::warn!(reason = reason.as_str(), "the recording of this call stops here");
        writer::count_stop(reason);
    }
}

impl Log {
    fn commands(&mut self, commands: &[Command]) -> std::io::Result<()> {
        if let Some((at, held)) = self.held.take() {
            match (held, commands) {
                (Held::Frame(frame), []) => return self.steps.quiet_frame(at, self.heard_at, frame),
                (
                    Held::Voice { response, item, samples },
                    &[
                        Command::KeepAudio { playback, from },
                        Command::SendAudio { playback: same, from: also_from, to },
                    ],
                ) if playback == same && from == also_from && to == from + samples => {
                    self.awaits_audio = true;
                    let piece = Piece { voice: Voice { response, item, playback }, from, samples };
                    return self.steps.smooth_piece(at, self.agent_bytes, piece);
                }
                (held, _) => self.begin_held(at, held)?,
            }
        }
        self.hurry |= commands.iter().any(|command| matches!(command, Command::Work(_)));
        let sends = commands.iter().any(|command| matches!(command, Command::SendAudio { .. }));
        self.awaits_audio = sends;
        self.steps.end_step(sends.then_some(self.agent_bytes), commands)
    }

    fn begin_held(&mut self, at: CallTime, held: Held) -> std::io::Result<()> {
        let caller_at = matches!(held, Held::Frame(_)).then_some(self.heard_at);
        self.steps.begin_step(at, caller_at, &held.input())
    }
}

impl Drop for Recorder {
    /// The call's task ended without a word: its last input may be what it died of.
    fn drop(&mut self) {
        if let Some(log) = &mut self.log {
            self.mailbox.ended(log.steps.steps(), log.steps.at());
            let written = match log.held.take() {
                Some((at, held)) => log.begin_held(at, held),
                None => log.steps.flush_run(),
            };
            self.go_on(written);
            self.hand_over();
        }
        self.mailbox.close();
    }
}
