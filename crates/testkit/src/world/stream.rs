//! One stream of a call: the driver's loop around the core, as `call::actor` runs it.

use super::chance::Chance;
use super::engine::World;
use super::line::Line;
use super::model::Model;
use super::plan::{Fault, Faults, Goal};
use super::queue::{Event, MS, Micros, ToLine};
use super::truth::Truth;
use conversation::{AgentState, CloseReason, Command, Conversation, Input, Policy};
use operations::{Delivery, SessionEnd};
use std::io;
use vocab::effect::OperationStatus;
use vocab::model::{ModelCommand, ModelEvent};
use vocab::work::WorkEvent;
use vocab::{CallTime, Samples, VoiceEvidence};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Its session is being opened.
    Opening,
    Running,
    Over,
}

pub struct Stream {
    pub call: usize,
    life: Life,
    begun: bool,
    /// The carrier's side is gone, noticed or not.
    cut_off: bool,
    started: Micros,
    pub conversation: Conversation,
    pub line: Line,
    pub model: Model,
    pub desk: Option<usize>,
    pub resumed: bool,
    /// As the opening returned them.
    pub waiting: Vec<Delivery>,
    armed: Option<Micros>,
    pub truth: Truth,
}

impl Stream {
    pub fn new(call: usize, chance: &mut Chance, faults: Faults) -> Self {
        let slow = faults.has(Fault::Jitter);
        let most_ms = if slow { 150 } else { 60 };
        let line = Line::new(chance.between(5, most_ms), chance.between(5, most_ms));
        Self {
            call,
            life: Life::Opening,
            begun: false,
            cut_off: false,
            started: 0,
            conversation: Conversation::new(Policy::default()),
            line,
            model: Model::default(),
            desk: None,
            resumed: false,
            waiting: Vec::new(),
            armed: None,
            truth: Truth::default(),
        }
    }

    pub fn has_begun(&self) -> bool {
        self.begun
    }
    pub fn is_running(&self) -> bool {
        self.life == Life::Running
    }
    pub fn is_alive(&self) -> bool {
        self.life != Life::Over
    }
    pub fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    pub fn begin(&mut self, now: Micros, policy: Policy) {
        self.begun = true;
        self.life = Life::Running;
        self.started = now;
        self.conversation = Conversation::new(policy);
    }

    pub fn end(&mut self) {
        self.life = Life::Over;
    }

    /// Nothing reaches the caller any more, and nothing comes back.
    pub fn cut_off(&mut self, now: Micros) {
        self.cut_off = true;
        self.line.clear(now);
    }

    pub fn unsettled(&self, now: Micros) -> Option<String> {
        match self.life {
            Life::Opening => Some("its session is still being opened".into()),
            Life::Over => None,
            Life::Running => match self.conversation.agent_state() {
                AgentState::Listening if self.line.sounds(now) => Some("the line still sounds".into()),
                AgentState::Listening => self.truth.unanswered_call(),
                AgentState::Thinking => Some("the agent is still thinking".into()),
                AgentState::Speaking => Some("the agent still speaks".into()),
            },
        }
    }
}

/// What of an input the checks want to know after it has been consumed.
enum Kind {
    Other,
    Transcript,
    Finished { operation: vocab::OperationId, status: OperationStatus },
}

impl World {
    /// One step of the core, its commands carried out, its promises checked.
    pub fn step(&mut self, n: usize, input: Input) {
        if !self.streams[n].is_running() {
            return;
        }
        let stream = &mut self.streams[n];
        let at = CallTime(self.now - stream.started);
        let kind = match &input {
            Input::Model(ModelEvent::CallerTranscript { .. } | ModelEvent::TranscriptReceived { .. }) => {
                Kind::Transcript
            }
            Input::Model(event) => {
                stream.truth.model_said(event);
                Kind::Other
            }
            Input::Work(WorkEvent::Finished { operation, status, .. }) => {
                Kind::Finished { operation: operation.clone(), status: *status }
            }
            Input::Work(event) => {
                stream.truth.work_said(event);
                Kind::Other
            }
            _ => Kind::Other,
        };
        if self.trace.is_some() && !matches!(input, Input::CallerAudio { .. } | Input::TimePassed) {
            let text = short(&format!("{input:?}"));
            self.log(format!("s{n} ← {text}"));
        }
        let mut out = std::mem::take(&mut self.commands);
        let stream = &mut self.streams[n];
        let by_time = stream.conversation.next_deadline().is_some_and(|due| due <= at);
        stream.conversation.step(at, input, &mut out);
        self.steps += 1;
        let broken = match &kind {
            // Deadlines that are due fire in the same step.
            Kind::Transcript if by_time => None,
            Kind::Other => None,
            Kind::Transcript => out
                .iter()
                .any(|command| matches!(command, Command::PublishState { .. }))
                .then(|| ("B5", "a transcript alone changed the public state".to_owned())),
            Kind::Finished { .. } => None,
        };
        if let Some((rule, what)) = broken {
            self.violated(rule, what);
        }
        if let Kind::Finished { operation, status } = &kind
            && let Some(what) = self.streams[n].truth.finished(operation, *status, &out)
        {
            self.violated("R11", what);
        }
        let mut close = None;
        for command in out.drain(..) {
            hash(&mut self.hash, &command);
            if self.trace.is_some() && !is_noise(&command) {
                let text = short(&format!("{command:?}"));
                self.log(format!("s{n} → {text}"));
            }
            self.check_command(n, &command);
            self.perform(n, command, &mut close);
        }
        self.commands = out;
        if let Some(broken) = self.streams[n].conversation.broken_invariant() {
            self.violated("core", broken);
        }
        match close {
            // As `server::serve`: only what ends on purpose ends the call.
            Some(CloseReason::ModelRefused { .. } | CloseReason::ModelSilent { .. } | CloseReason::CallerAway) => {
                self.stream_over(n, SessionEnd::CallEnded)
            }
            Some(CloseReason::ModelLost { .. }) => self.stream_over(n, SessionEnd::StreamLost),
            Some(CloseReason::Drained) => {
                let call = self.streams[n].call;
                self.calls[call].on_line = false;
                self.stream_over(n, SessionEnd::StreamLost);
            }
            None => self.arm(n),
        }
    }

    fn arm(&mut self, n: usize) {
        let stream = &mut self.streams[n];
        if let Some(due) = stream.conversation.next_deadline() {
            let due = (stream.started + due.0).max(self.now);
            // A timer that fires too early finds nothing due and sets itself again.
            if stream.armed.is_none_or(|armed| due < armed) {
                stream.armed = Some(due);
                self.queue.at(due, Event::Deadline { stream: n });
            }
        }
    }

    pub fn deadline(&mut self, n: usize) {
        if self.streams[n].armed.is_some_and(|armed| armed <= self.now) {
            self.streams[n].armed = None;
            let stream = &self.streams[n];
            let due = stream.conversation.next_deadline();
            if due.is_some_and(|due| stream.started + due.0 <= self.now) {
                self.step(n, Input::TimePassed);
            } else if stream.is_running() {
                self.arm(n);
            }
        }
    }

    fn perform(&mut self, n: usize, command: Command, close: &mut Option<CloseReason>) {
        match command {
            Command::SendAudio { playback, from, to } => self.line_gets(n, ToLine::Audio { playback, from, to }),
            Command::SendMark { mark } => self.line_gets(n, ToLine::Mark(mark)),
            Command::ClearPlayback => {
                self.streams[n].line.clears_under_way += 1;
                self.line_gets(n, ToLine::Clear);
            }
            Command::Model(command) => self.model_gets(n, command),
            Command::Work(command) => {
                if let Some(desk) = self.streams[n].desk {
                    self.desk_gets(desk, command);
                }
            }
            Command::OpenModel => self.reopen_model(n),
            Command::CloseStream { reason } => *close = Some(reason),
            Command::KeepAudio { .. }
            | Command::ReleaseAudio { .. }
            | Command::PublishState { .. }
            | Command::Measure { .. }
            | Command::Explain(_) => {}
        }
    }

    fn line_gets(&mut self, n: usize, what: ToLine) {
        let jitter = if self.faults.has(Fault::Jitter) { self.chance.between(0, 120) } else { 0 };
        let line = &mut self.streams[n].line;
        line.last_up = line.last_up.max(self.now + (line.up_ms + jitter) * MS);
        let at = line.last_up;
        self.queue.at(at, Event::LineGot { stream: n, what });
    }

    fn model_gets(&mut self, n: usize, command: ModelCommand) {
        let way = self.chance.between(4, 50) * MS;
        let model = &mut self.streams[n].model;
        model.last_got = model.last_got.max(self.now + way);
        let at = model.last_got;
        self.queue.at(at, Event::ModelGot { stream: n, command });
    }

    /// Caller audio, 20 ms a frame.
    pub fn frames(&mut self, n: usize, count: u32) {
        const FRAME: Micros = 20 * MS;
        for back in (0..u64::from(count)).rev() {
            if !self.streams[n].is_running() {
                return;
            }
            if self.streams[n].cut_off {
                break;
            }
            let at = self.now.saturating_sub(back * FRAME);
            let call = &self.calls[self.streams[n].call];
            let evidence = if call.speaking_until > at.saturating_sub(FRAME) {
                VoiceEvidence { speech: true, level_dbfs: -22 }
            } else if call.faint_until > at {
                VoiceEvidence { speech: true, level_dbfs: -65 }
            } else {
                VoiceEvidence { speech: false, level_dbfs: -70 }
            };
            self.step(n, Input::CallerAudio { samples: Samples::from_ms(20), evidence });
        }
        let held = self.faults.has(Fault::Bursts) && self.chance.percent(1);
        let count = if held { self.chance.between(5, 40) as u32 } else { 1 };
        self.queue.at(self.now + FRAME * u64::from(count), Event::Frames { stream: n, count });
    }

    /// The provider's own turn detection, which hears the same line.
    pub fn turn_detection(&mut self, n: usize, spurious: bool) {
        let stream = &self.streams[n];
        if !stream.is_running() || !stream.model.ready || stream.cut_off || self.commits_itself() {
            return;
        }
        let call = stream.call;
        if !spurious && self.calls[call].speaking_until + 100 * MS > self.now {
            let again = self.calls[call].speaking_until + 250 * MS;
            self.queue.at(again, Event::TurnDetection { stream: n, spurious });
            return;
        }
        if spurious || !self.calls[call].said.is_empty() {
            self.commit_turn(n);
        }
    }

    pub fn commits_itself(&self) -> bool {
        self.plan.policy.turn.end == conversation::policy::TurnEnd::Local
    }

    pub fn commit_turn(&mut self, n: usize) {
        let call = self.streams[n].call;
        let said: Vec<Goal> = std::mem::take(&mut self.calls[call].said);
        let late = self.faults.has(Fault::LateTranscripts) && self.chance.percent(40);
        let wait = if late { self.chance.between(1_000, 12_000) } else { self.chance.between(50, 900) };
        let model = &mut self.streams[n].model;
        model.goals.extend(said);
        let item = model.next_item();
        let transcript = ModelEvent::CallerTranscript { item, text: "words".into() };
        self.queue.at(self.now + wait * MS, Event::ModelSays { stream: n, of: None, event: transcript });
        self.step(n, Input::Model(ModelEvent::TurnCommitted { item }));
    }
}

fn is_noise(command: &Command) -> bool {
    use conversation::Decision;
    matches!(
        command,
        Command::KeepAudio { .. }
            | Command::ReleaseAudio { .. }
            | Command::Measure { .. }
            | Command::SendAudio { .. }
            | Command::Explain(Decision::ToolCallProposed { .. } | Decision::ResponseSounds { .. })
    )
}

fn short(text: &str) -> String {
    text.chars().take(230).collect()
}

/// FNV-1a over the command as a recording writes it.
fn hash(state: &mut u64, command: &Command) {
    struct Fnv<'a>(&'a mut u64);
    impl io::Write for Fnv<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            for byte in bytes {
                *self.0 = (*self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    // Commands are plain enums: writing them as JSON into a hash cannot fail.
    let _ = serde_json::to_writer(Fnv(state), command);
}
