//! The world's clock and what happens in it: acts of the plan, streams that come and go, crashes, and the end in quiet.

use super::backend::Backend;
use super::chance::Chance;
use super::checks::Checks;
use super::plan::{Act, Fault, Faults, Goal, Plan, What};
use super::process::{Process, Reply, Verb, Who};
use super::queue::{Event, MS, Micros, Queue, ToLine};
use super::stream::Stream;
use super::{Options, Outcome, Violation, catalog};
use conversation::{Command, Input};
use operations::SessionEnd;
use operations::admission::ToolCatalog;
use operations::store::OpenSession;
use store::MemoryStore;
use vocab::model::ModelEvent;
use vocab::{AgentId, CallSid, CallerId, SessionId, StreamSid, WallTime};

/// After the faults stop, everything must have settled within this much virtual time: the longest waits of the policy (an
/// operation's deadline, the look-ups, ten deliveries told one after another) add up to about half of it.
const SETTLES_WITHIN: Micros = 120_000 * MS;
const LOOK_EVERY: Micros = 500 * MS;
/// The first steps of all worlds in Unix milliseconds; any number would do.
const WALL_BASE: i64 = 1_790_000_000_000;
/// More inputs than this without time passing is a circle.
const MOST_STEPS_AT_ONCE: u32 = 2_000;

/// A caller and the carrier's leg.
pub struct Call {
    pub caller: CallerId,
    pub verified: bool,
    /// The caller holds the receiver.
    pub on_line: bool,
    pub stream: Option<usize>,
    pub speaking_until: Micros,
    pub faint_until: Micros,
    /// What was said and not committed yet.
    pub said: Vec<Goal>,
    streams: u32,
}

pub struct World {
    pub now: Micros,
    pub queue: Queue,
    pub chance: Chance,
    pub faults: Faults,
    pub plan: Plan,
    skip: Vec<usize>,
    pub store: MemoryStore,
    pub backend: Backend,
    pub catalog: &'static ToolCatalog,
    pub process: Process,
    /// Rises at each crash: what belonged to an earlier life is void.
    pub life: u32,
    /// The process runs and has recovered.
    pub ready: bool,
    pub calls: Vec<Call>,
    pub streams: Vec<Stream>,
    pub checks: Checks,
    pub trace: Option<Vec<String>>,
    pub hash: u64,
    pub steps: u64,
    pub violations: Vec<Violation>,
    pub commands: Vec<Command>,
    pub last_id: u32,
    wall_shift_ms: i64,
    calm_since: Option<Micros>,
    /// By how much the wall clock went back in all, and a look at the store for each time.
    set_back: Micros,
    steps_at_once: u32,
    stops: bool,
}

impl World {
    pub fn build(seed: u64, options: &Options) -> Self {
        let mut plan = Plan::draw(seed);
        plan.faults = plan.faults.without(options.without);
        if let Some(end_ms) = options.end_ms {
            plan.calm_ms = plan.calm_ms.min(end_ms);
        }
        let call = |(caller, verified): &(CallerId, bool)| Call {
            caller: caller.clone(),
            verified: *verified,
            on_line: false,
            stream: None,
            speaking_until: 0,
            faint_until: 0,
            said: Vec::new(),
            streams: 0,
        };
        let mut world = Self {
            now: 0,
            queue: Queue::default(),
            chance: Chance::new(seed, 2),
            faults: plan.faults,
            skip: options.skip.clone(),
            store: MemoryStore::new(),
            backend: Backend::default(),
            catalog: catalog(),
            process: Process::default(),
            life: 1,
            ready: false,
            calls: plan.callers.iter().map(call).collect(),
            streams: Vec::new(),
            checks: Checks::default(),
            trace: options.trace.then(Vec::new),
            hash: 0xcbf2_9ce4_8422_2325,
            steps: 0,
            violations: Vec::new(),
            commands: Vec::new(),
            last_id: 0,
            wall_shift_ms: 0,
            calm_since: None,
            set_back: 0,
            steps_at_once: 0,
            stops: false,
            plan,
        };
        for (n, act) in world.plan.acts.iter().enumerate() {
            if !world.skip.contains(&n) && act.at_ms <= world.plan.calm_ms {
                world.queue.at(act.at_ms * MS, Event::Act(n));
            }
        }
        world.queue.at(world.plan.calm_ms * MS, Event::Calm);
        world.ask_store(Who::Start, Verb::Recover, Some(5));
        world
    }

    pub fn wall(&self) -> WallTime {
        WallTime(WALL_BASE + (self.now / MS) as i64 + self.wall_shift_ms)
    }

    pub fn log(&mut self, line: String) {
        let at = self.now / MS;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>4}.{:03} {line}", at / 1_000, at % 1_000));
        }
    }

    /// Something that must never be. The run ends here.
    pub fn violated(&mut self, rule: &'static str, what: String) {
        self.log(format!("!! {rule}: {what}"));
        self.violations.push(Violation { rule, what, at_ms: self.now / MS });
        self.stops = true;
    }

    pub fn run_to_end(mut self) -> Outcome {
        while let Some((at, event)) = self.queue.next() {
            if at > self.now {
                self.now = at;
                self.steps_at_once = 0;
            }
            self.steps_at_once += 1;
            if self.steps_at_once > MOST_STEPS_AT_ONCE {
                self.violated("R14", "time stands still: a circle of inputs and commands".into());
            }
            self.happens(event);
            if self.stops {
                break;
            }
        }
        Outcome {
            steps: self.steps,
            hash_of_all_commands: self.hash,
            violations: self.violations,
            calls: self.calls.len() as u32,
            acts: self.plan.acts.len(),
            faults: self.plan.faults,
            calm_ms: self.plan.calm_ms,
            timeline: self.trace.unwrap_or_default(),
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Act(n) => self.act(self.plan.acts[n]),
            Event::Connect { call } => self.connect(call),
            Event::Frames { stream, count } => self.frames(stream, count),
            Event::Deadline { stream } => self.deadline(stream),
            Event::LineGot { stream, what } => self.line_got(stream, what),
            Event::MarkDue { stream, number } => {
                if let Some(mark) = self.streams[stream].line.take_mark(number) {
                    self.echo(stream, mark);
                }
            }
            Event::Echo { stream, mark } => self.step(stream, Input::MarkReturned { mark }),
            Event::SocketBreaks { stream } => self.stream_breaks(stream, SessionEnd::StreamLost),
            Event::TalkOver { stream } => {
                if self.streams[stream].is_running() {
                    let call = self.streams[stream].call;
                    let ms = self.chance.between(220, 1_500);
                    self.act(Act { at_ms: self.now / MS, call, what: What::Say { ms, goal: Goal::Chat } });
                }
            }
            Event::ModelGot { stream, command } => self.model_got(stream, command),
            Event::ModelSays { stream, of, event } => self.model_says(stream, of, event),
            Event::TurnDetection { stream, spurious } => self.turn_detection(stream, spurious),
            Event::Told { stream, event } => self.step(stream, Input::Work(event)),
            Event::Apply { life, write } if life == self.life => self.apply(write),
            Event::Replied { life, who, reply } if life == self.life => self.replied(who, *reply),
            Event::Dispatch { life, ticket } if life == self.life => self.dispatch(ticket),
            Event::ToolAnswers { life, worker, answer } if life == self.life => self.tool_answers(worker, *answer),
            Event::ToolTimesOut { life, worker } if life == self.life => self.tool_times_out(worker),
            Event::Restart { life } if life == self.life => self.ask_store(Who::Start, Verb::Recover, Some(5)),
            Event::Apply { .. }
            | Event::Replied { .. }
            | Event::Dispatch { .. }
            | Event::Restart { .. }
            | Event::ToolAnswers { .. }
            | Event::ToolTimesOut { .. } => {}
            Event::BackendGot(request) => self.backend_got(request),
            Event::BackendActs(request) => self.backend_acts(&request),
            Event::Calm => self.calm(),
            Event::Look => self.look(),
        }
    }

    fn act(&mut self, act: Act) {
        let Act { call, what, .. } = act;
        if self.trace.is_some() && !matches!(what, What::Begin) {
            self.log(format!("caller {call}: {what:?}"));
        }
        let stream = self.calls[call].stream;
        match what {
            What::Begin => {
                self.calls[call].on_line = true;
                self.connect(call);
            }
            What::Say { ms, goal } => {
                let end = self.now + ms * MS;
                let known = &mut self.calls[call];
                known.speaking_until = known.speaking_until.max(end);
                known.said.push(goal);
                if let Some(stream) = stream {
                    if self.faults.has(Fault::MissingCommits) && self.chance.percent(30) {
                        return;
                    }
                    let wait = self.chance.pick(&[150, 250, 400, 900, 2_000]) * MS;
                    self.queue.at(end + wait, Event::TurnDetection { stream, spurious: false });
                }
            }
            What::Blip { ms } => {
                let known = &mut self.calls[call];
                known.speaking_until = known.speaking_until.max(self.now + ms * MS);
                if let Some(stream) = stream
                    && self.faults.has(Fault::SpuriousCommits)
                    && self.chance.percent(40)
                {
                    let wait = self.chance.between(0, 900) * MS;
                    self.queue.at(self.now + wait, Event::TurnDetection { stream, spurious: true });
                }
            }
            What::Faint { ms } => self.calls[call].faint_until = self.now + ms * MS,
            What::Key(digit) => self.on_stream(stream, Input::DtmfPressed { digit }),
            What::HangUp => {
                self.calls[call].on_line = false;
                self.end_stream_of(call);
            }
            What::Drain => self.on_stream(stream, Input::DrainRequested),
            What::BreakStream { back_in_ms, half_open } => {
                if self.calls[call].on_line {
                    if half_open {
                        // The carrier has given the socket up; we learn of it when the next one is there.
                        if let Some(stream) = stream {
                            self.streams[stream].cut_off(self.now);
                        }
                    } else {
                        self.end_stream_of(call);
                    }
                    self.queue.at(self.now + back_in_ms * MS, Event::Connect { call });
                }
            }
            What::LoseModel => {
                let fatal = self.chance.percent(10);
                let (code, message) = ("insufficient_quota".to_owned(), String::new());
                self.on_stream(
                    stream,
                    Input::Model(if fatal {
                        ModelEvent::ErrorReported { code, message, fatal }
                    } else {
                        ModelEvent::SessionLost { reason: "reset".into() }
                    }),
                );
            }
            What::Crash { down_ms } => self.crash(down_ms),
            What::ClockJump { ms } => {
                self.wall_shift_ms += ms;
                self.set_back += (60_000 + ms.min(0).unsigned_abs()) * MS;
            }
        }
    }

    fn on_stream(&mut self, stream: Option<usize>, input: Input) {
        if let Some(stream) = stream {
            self.step(stream, input);
        }
    }

    // ---- streams --------------------------------------------------------------------------------------------------------

    fn connect(&mut self, call: usize) {
        if !self.calls[call].on_line {
            return;
        }
        if !self.ready {
            self.queue.at(self.now + 400 * MS, Event::Connect { call });
            return;
        }
        // A second socket of the call retires the first.
        self.end_stream_of(call);
        let known = &mut self.calls[call];
        known.streams += 1;
        let stream = self.streams.len();
        known.stream = Some(stream);
        let (stream_sid, caller, caller_verified) =
            (StreamSid(format!("MZ{call}.{}", known.streams)), known.caller.clone(), known.verified);
        let built = Stream::new(call, &mut self.chance, self.faults);
        self.streams.push(built);
        self.last_id += 1;
        let open = OpenSession {
            fresh: SessionId(format!("ses_{:04}", self.last_id)),
            call_sid: CallSid(format!("CA{call}")),
            stream_sid,
            caller,
            caller_verified,
            agent: AgentId::new("agent"),
            now: self.wall(),
        };
        self.log(format!("stream {stream} of call {call} connects"));
        self.ask_store(Who::Opening { stream }, Verb::Open(open), super::desk::DESK_TRIES);
    }

    pub fn session_opened(&mut self, stream: usize, reply: Reply) {
        match reply {
            Reply::Opened(opened) => {
                let desk = self.open_desk(stream, &opened);
                self.streams[stream].desk = Some(desk);
                self.streams[stream].resumed = opened.resumed;
                self.streams[stream].waiting = opened.deliveries;
            }
            _ => {
                self.streams[stream].end();
                let call = self.streams[stream].call;
                if self.calls[call].stream == Some(stream) {
                    self.calls[call].stream = None;
                    self.queue.at(self.now + 1_000 * MS, Event::Connect { call });
                }
            }
        }
    }

    /// The door has everything: the call's own loop begins.
    pub fn stream_runs(&mut self, stream: usize) {
        let call = self.streams[stream].call;
        self.streams[stream].begin(self.now, self.plan.policy.clone());
        let greeting = (self.plan.greets || self.streams[stream].resumed).then(|| "Say hello.".to_owned());
        self.step(stream, Input::CallStarted { greeting });
        if self.calls[call].stream != Some(stream) {
            return self.stream_breaks(stream, SessionEnd::StreamLost);
        }
        self.queue.at(self.now + 20 * MS, Event::Frames { stream, count: 1 });
        let ready = self.chance.between(80, 900) * MS;
        self.queue.at(self.now + ready, Event::ModelSays { stream, of: None, event: ModelEvent::SessionReady });
    }

    fn end_stream_of(&mut self, call: usize) {
        if let Some(stream) = self.calls[call].stream.take() {
            self.stream_breaks(stream, SessionEnd::StreamLost);
        }
    }

    /// Ended from outside.
    pub fn stream_breaks(&mut self, stream: usize, end: SessionEnd) {
        if self.streams[stream].is_running() {
            self.step(stream, Input::StreamEnded);
            self.stream_over(stream, end);
        }
    }

    /// The driver lets go of a stream.
    pub fn stream_over(&mut self, stream: usize, end: SessionEnd) {
        if !self.streams[stream].is_running() {
            return;
        }
        self.log(format!("stream {stream} is over ({end:?})"));
        self.ended_truth(stream);
        self.streams[stream].end();
        if let Some(desk) = self.streams[stream].desk {
            self.close_desk(desk, end);
        }
        let call = self.streams[stream].call;
        if self.calls[call].stream == Some(stream) {
            self.calls[call].stream = None;
            match end {
                SessionEnd::CallEnded => self.calls[call].on_line = false,
                SessionEnd::StreamLost => {
                    let back = self.chance.between(100, 1_500) * MS;
                    self.queue.at(self.now + back, Event::Connect { call });
                }
            }
        }
    }

    fn crash(&mut self, down_ms: u64) {
        self.life += 1;
        self.ready = false;
        self.process = Process::default();
        for stream in 0..self.streams.len() {
            if self.streams[stream].is_alive() {
                // No step: its memory is gone. The carrier sees a closed socket and comes again.
                self.streams[stream].cut_off(self.now);
                self.ended_truth(stream);
                self.streams[stream].end();
                let call = self.streams[stream].call;
                if self.calls[call].stream == Some(stream) {
                    self.calls[call].stream = None;
                    let back = self.chance.between(100, 1_500) * MS;
                    self.queue.at(self.now + back, Event::Connect { call });
                }
            }
        }
        self.queue.at(self.now + down_ms * MS, Event::Restart { life: self.life });
    }

    pub fn not_recovered(&mut self) {
        self.queue.at(self.now + 500 * MS, Event::Restart { life: self.life });
    }

    // ---- the carrier ----------------------------------------------------------------------------------------------------

    fn line_got(&mut self, stream: usize, what: ToLine) {
        let now = self.now;
        if self.streams[stream].is_cut_off() {
            return;
        }
        let line = &mut self.streams[stream].line;
        match what {
            ToLine::Audio { playback, from, to } => {
                let was_silent = line.audio(now, playback, to - from);
                if was_silent && self.faults.has(Fault::TalkOver) && self.chance.percent(20) {
                    let after = self.chance.between(100, 2_500) * MS;
                    self.queue.at(now + after, Event::TalkOver { stream });
                }
            }
            ToLine::Mark(mark) => {
                let (due, number) = line.mark(now, mark);
                self.queue.at(due, Event::MarkDue { stream, number });
            }
            ToLine::Clear => {
                for mark in line.clear(now) {
                    self.echo(stream, mark);
                }
            }
        }
    }

    fn echo(&mut self, stream: usize, mark: vocab::MarkName) {
        let faults = self.faults;
        let jitter = if faults.has(Fault::Jitter) { self.chance.between(0, 120) } else { 0 };
        let dropped = faults.has(Fault::DroppedMarks) && self.chance.percent(8);
        let late =
            if faults.has(Fault::DelayedMarks) && self.chance.percent(6) { self.chance.between(300, 4_000) } else { 0 };
        let line = &mut self.streams[stream].line;
        line.disturbed |= dropped || late > 0;
        if !dropped {
            line.last_down = line.last_down.max(self.now + (line.down_ms + jitter + late) * MS);
            let at = line.last_down;
            self.queue.at(at, Event::Echo { stream, mark });
        }
    }

    // ---- the end --------------------------------------------------------------------------------------------------------

    fn calm(&mut self) {
        self.log("the faults stop".into());
        self.faults = Faults::default();
        self.calm_since = Some(self.now);
        self.queue.at(self.now + LOOK_EVERY, Event::Look);
    }

    fn look(&mut self) {
        match self.unsettled() {
            None => {
                self.log("all has settled".into());
                for stream in 0..self.streams.len() {
                    if self.streams[stream].is_running() {
                        self.ended_truth(stream);
                    }
                }
                self.stops = true;
            }
            // What was due before a clock went back is due when it has caught up, and looked at within a minute.
            Some(why) if self.now > self.calm_since.unwrap_or(0) + SETTLES_WITHIN + self.set_back => {
                self.violated("liveness", why);
            }
            Some(_) => self.queue.at(self.now + LOOK_EVERY, Event::Look),
        }
    }

    /// The first thing that has not come to its end.
    fn unsettled(&self) -> Option<String> {
        if !self.ready {
            return Some("the process is down".into());
        }
        if let Some(call) = self.calls.iter().position(|call| call.on_line && call.stream.is_none()) {
            return Some(format!("call {call} waits for a stream"));
        }
        for (n, stream) in self.streams.iter().enumerate().filter(|(_, stream)| stream.is_alive()) {
            if let Some(why) = stream.unsettled(self.now) {
                return Some(format!("stream {n}: {why}"));
            }
        }
        let holders = self.streams.iter().filter(|stream| stream.is_running()).filter_map(|stream| stream.desk);
        let live: Vec<SessionId> = holders.map(|desk| self.process.desks[desk].session.clone()).collect();
        self.checks.unsettled(&self.store, &live, self.plan.policy.gate.max_offers)
    }
}
