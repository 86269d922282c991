//! The virtual runner. The core, the executor, the adapter of the model and the detector are the real ones; the carrier is
//! `testkit`'s, the model is `sim`'s without its socket, the rows are the memory store's. Time is the paused clock of a
//! runtime of its own, so a minute of call takes milliseconds.

mod adapter;
mod backend;
mod leg;
mod store;

use crate::director::{Act, Director};
use crate::ear;
use crate::events::Event;
use crate::file::{Fault, Scenario};
use crate::record::Record;
use crate::setup::{Setup, SetupError};
use ::store::MemoryStore;
use backend::Backend;
use conversation::Input;
use executor::{Clock, Entropy, Executor, ExecutorConfig, ExecutorError, RegisteredTool, SessionOpening};
use leg::Leg;
use models::{Provider, SessionConfig};
use operations::history::Scope;
use operations::retry::ReconcileRule;
use operations::store::StoreError;
use operations::{SessionEnd, Store};
use server::config::{AgentConfig, Config};
use server::serve::RESUMED_GREETING;
use sim::model::{OfflineModel, OfflineSession, Pace};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::Disk;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use vocab::audio::{FRAME_BYTES, FRAME_MS, MULAW_SILENCE};
use vocab::work::WorkEvent;
use vocab::{CallSid, CallerId, StreamSid, WallTime};

/// How long a dead server stays away.
const DOWN_US: u64 = 400_000;
/// From a lost stream to the next one of the same call: the carrier fetches a document first.
const REOPEN_US: u64 = 200_000;
const FRAME_US: u64 = FRAME_MS as u64 * 1_000;
/// 2026-01-01, so that stored times look like times.
const WALL: WallTime = WallTime(1_767_225_600_000);
/// Steps of one moment that nothing but time or marks caused; a deadline that stays in the past would never end.
const MOST_STEPS_AT_ONCE: u32 = 10_000;
const CALLER: &str = "+15005550006";

#[derive(Debug, thiserror::Error)]
pub enum VirtualError {
    #[error("no runtime: {0}")]
    Runtime(std::io::Error),
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error("the executor: {0}")]
    Executor(#[from] ExecutorError),
    #[error("the store: {0}")]
    Store(#[from] StoreError),
    #[error("the model's session holds {input:?} and {output:?}")]
    WrongFormat { input: Option<String>, output: Option<String> },
}

/// Plays the scenario. Returns what came, and how many milliseconds of sound were none of the agent's lines.
pub fn run(scenario: &Scenario, base: &Path) -> Result<(Record, u64), VirtualError> {
    let began = std::time::Instant::now();
    let setup = Setup::make(scenario, base, crate::setup::SHIPPED_BACKEND)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(VirtualError::Runtime)?;
    let outcome = runtime.block_on(async {
        let mut world = World::open(scenario, &setup)?;
        world.play().await?;
        world.record().await
    });
    executor::on_crash_point(None);
    let (mut record, unknown_ms) = outcome?;
    record.took = began.elapsed();
    Ok((record, unknown_ms))
}

struct Life {
    executor: Executor,
    disk: Arc<Disk>,
}

/// A sound of the caller that has not all been sent.
struct Voice {
    rest: VecDeque<u8>,
    name: String,
}

struct World<'s> {
    scenario: &'s Scenario,
    setup: &'s Setup,
    config: Config,
    agent: AgentConfig,
    director: Director,
    record: Record,
    zero: Instant,
    clock: Clock,
    entropy: Entropy,
    rows: Arc<MemoryStore>,
    slow_ms: Arc<AtomicU64>,
    backend: Backend,
    model: OfflineModel,
    life: Option<Life>,
    restart_us: Option<u64>,
    leg: Option<Leg>,
    reopen_us: Option<u64>,
    /// The caller is on the line, whether or not a stream is.
    on_line: bool,
    over_us: u64,
    calls: Vec<CallSid>,
    streams: u32,
    voice: Option<Voice>,
    frame_us: u64,
    drops_marks: bool,
    delay_marks_ms: u32,
    heard: Vec<(u64, Vec<u8>)>,
    crashed: Arc<Notify>,
}

impl<'s> World<'s> {
    fn open(scenario: &'s Scenario, setup: &'s Setup) -> Result<Self, VirtualError> {
        let config = setup.config(scenario, Vec::new())?;
        let agent = config.default_agent().ok_or(SetupError::NoAgent)?.clone();
        let zero = Instant::now();
        let crashed = Arc::new(Notify::new());
        if let Some(point) = scenario.fault.iter().find_map(|fault| fault.kill_at.clone()) {
            let (witness, mut armed) = (Arc::clone(&crashed), true);
            executor::on_crash_point(Some(Box::new(move |name| {
                let dies = armed && name == point;
                if dies {
                    armed = false;
                    witness.notify_one();
                }
                dies
            })));
        }
        Ok(Self {
            scenario,
            setup,
            agent,
            config,
            director: Director::new(scenario, &setup.lines),
            record: Record::default(),
            zero,
            clock: Clock::runtime(WALL),
            entropy: Entropy::seeded(1),
            rows: Arc::default(),
            slow_ms: Arc::default(),
            backend: Backend::new(scenario, zero),
            model: OfflineModel::new(setup.script.clone(), Pace::default()),
            life: None,
            restart_us: Some(0),
            leg: None,
            reopen_us: Some(0),
            on_line: true,
            over_us: 0,
            calls: vec![call_sid(1)],
            streams: 0,
            voice: None,
            frame_us: FRAME_US,
            drops_marks: false,
            delay_marks_ms: 0,
            heard: Vec::new(),
            crashed,
        })
    }

    fn now_us(&self) -> u64 {
        self.zero.elapsed().as_micros() as u64
    }

    async fn play(&mut self) -> Result<(), VirtualError> {
        loop {
            self.everything_due().await?;
            let now_us = self.now_us();
            let over = self.director.is_done() && !self.on_line && self.leg.is_none() && self.life.is_some();
            if over && now_us >= self.over_us + self.scenario.settle_ms * 1_000 {
                return Ok(());
            }
            if now_us >= self.scenario.limit_ms * 1_000 {
                self.record.violations.push(format!("not over after {} ms", self.scenario.limit_ms));
                return Ok(());
            }
            let next_us = self.next_us(now_us).max(now_us + 1);
            let crashed = Arc::clone(&self.crashed);
            let until = sleep_until(self.zero + Duration::from_micros(next_us));
            let next_work = async {
                match &mut self.leg {
                    Some(leg) => leg.desk.next().await,
                    None => std::future::pending().await,
                }
            };
            let work: Option<Option<WorkEvent>> = tokio::select! {
                biased;
                () = crashed.notified() => {
                    self.die();
                    None
                }
                work = next_work => Some(work),
                () = until => None,
            };
            match work {
                Some(Some(event)) => {
                    // What the backend did came before what the executor made of it.
                    self.hear_of_backend();
                    self.step(Input::Work(event));
                }
                // The desk is gone: its process is dying, or another stream took over.
                Some(None) => {
                    tokio::task::yield_now().await;
                    if tokio::time::timeout(Duration::ZERO, self.crashed.notified()).await.is_ok() {
                        self.die();
                    } else {
                        self.end_leg().await;
                    }
                }
                None => {}
            }
        }
    }

    fn next_us(&mut self, now_us: u64) -> u64 {
        let leg = self.leg.as_mut().and_then(|leg| leg.next_us(now_us));
        let frame = (self.leg.is_some() || self.voice.is_some()).then_some(self.frame_us);
        let backend = self.backend.next().map(|at| at.duration_since(self.zero).as_micros() as u64);
        let settled = (!self.on_line).then_some(self.over_us + self.scenario.settle_ms * 1_000);
        let reopen = self.reopen_us.filter(|_| self.life.is_some());
        [leg, frame, backend, settled, self.restart_us, reopen, self.director.next_us()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(self.scenario.limit_ms * 1_000)
    }

    /// Everything that is due by now, in a fixed order.
    async fn everything_due(&mut self) -> Result<(), VirtualError> {
        let now_us = self.now_us();
        self.hear_of_backend();
        if self.restart_us.is_some_and(|at| at <= now_us) {
            self.start().await?;
        }
        if self.life.is_some() && self.on_line && self.reopen_us.is_some_and(|at| at <= now_us) {
            self.reopen_us = None;
            self.open_leg().await?;
        }
        let setup = self.setup;
        let words = |rule| setup.words_of_rule(rule);
        let mut events = Vec::new();
        if let Some(leg) = &mut self.leg {
            events = leg.model_says(now_us, &words)?;
        }
        self.note_all(events);
        self.reopen_model();
        let mut steps = 0;
        while let Some(input) = self.leg.as_mut().filter(|leg| !leg.closing).and_then(|leg| leg.due(now_us)) {
            self.step(input);
            steps += 1;
            if steps > MOST_STEPS_AT_ONCE {
                self.record.violations.push(format!("at {} ms: the core never comes to rest", now_us / 1_000));
                self.die();
                self.on_line = false;
            }
        }
        while (self.leg.is_some() || self.voice.is_some()) && self.frame_us <= now_us {
            self.frame_us += FRAME_US;
            self.frame();
        }
        self.frame_us = self.frame_us.max(now_us.div_ceil(FRAME_US) * FRAME_US);
        if self.leg.as_ref().is_some_and(|leg| leg.closing) {
            self.end_leg().await;
            self.reopen_us = Some(now_us + REOPEN_US);
        }
        let takes_time = |n: usize| setup.caller[n].is_some();
        while let Some(act) = self.director.due(now_us, takes_time) {
            match act {
                Act::Caller(n) => self.caller_does(n).await,
                Act::Fault(n) => self.fault(&self.scenario.fault[n].clone()),
            }
        }
        self.hear_of_backend();
        Ok(())
    }

    fn hear_of_backend(&mut self) {
        let news = self.backend.news();
        self.note_all(news);
    }

    fn note_all(&mut self, events: Vec<Event>) {
        for event in events {
            self.director.note(&event);
            self.record.events.push(event);
        }
    }

    fn note(&mut self, name: &'static str, text: impl Into<String>) {
        let event = Event { at_us: self.now_us(), name, text: text.into() };
        self.note_all(vec![event]);
    }

    fn step(&mut self, input: Input) {
        let (now_us, setup) = (self.now_us(), self.setup);
        let Some(leg) = &mut self.leg else { return };
        let events = leg.step(now_us, input, &|rule| setup.words_of_rule(rule));
        self.note_all(events);
    }

    fn frame(&mut self) {
        let mut frame = [MULAW_SILENCE; FRAME_BYTES];
        let mut done = None;
        if let Some(voice) = &mut self.voice {
            let spoken = voice.rest.len().min(FRAME_BYTES);
            for (slot, byte) in frame.iter_mut().zip(voice.rest.drain(..spoken)) {
                *slot = byte;
            }
            if voice.rest.is_empty() {
                done = self.voice.take().map(|voice| voice.name);
            }
        }
        let now_us = self.now_us();
        if let Some(leg) = self.leg.as_mut().filter(|leg| !leg.closing) {
            let input = leg.hear(now_us, &frame);
            self.step(input);
        }
        if let Some(name) = done {
            self.note("caller_done", name);
        }
    }

    async fn caller_does(&mut self, n: usize) {
        let line = &self.scenario.caller[n];
        if let Some(sound) = &self.setup.caller[n] {
            self.voice = Some(Voice { rest: sound.mulaw.iter().copied().collect(), name: sound.name.clone() });
            self.note("caller_says", sound.name.clone());
        } else if let Some(digits) = &line.dtmf {
            for digit in digits.chars() {
                self.step(Input::DtmfPressed { digit });
            }
        } else if line.hang_up || line.drop_line {
            self.note("hung_up", "");
            self.on_line = false;
            self.reopen_us = None;
            self.over_us = self.now_us();
            self.end_leg().await;
        } else if line.call_again {
            self.calls.push(call_sid(self.calls.len() + 1));
            self.on_line = true;
            self.reopen_us = Some(self.now_us());
        }
    }

    fn fault(&mut self, fault: &Fault) {
        let (now_us, setup) = (self.now_us(), self.setup);
        if fault.kill {
            self.die();
        }
        if let Some(on) = fault.drop_marks {
            self.drops_marks = on;
        }
        if let Some(ms) = fault.delay_marks_ms {
            self.delay_marks_ms = ms;
        }
        if let Some(leg) = &mut self.leg {
            leg.carrier.drops_marks = self.drops_marks;
            leg.delay_marks_ms = self.delay_marks_ms;
            if fault.lose_model {
                let events = leg.lose_model(now_us, &|rule| setup.words_of_rule(rule));
                self.note_all(events);
                self.reopen_model();
            }
        }
        self.model.set_faults(|faults| fault.model_faults(faults));
        if let Some(count) = fault.refuse_look_ups {
            self.backend.refuse_look_ups(count);
        }
        if let Some(ms) = fault.slow_disk_ms {
            self.slow_ms.store(ms, Ordering::Relaxed);
        }
    }

    // ---- the server's process -------------------------------------------------------------------------------------------

    async fn start(&mut self) -> Result<(), VirtualError> {
        self.restart_us = None;
        let twice = self.scenario.backend.iter().any(|rule| rule.answer_twice);
        let disk = Arc::new(Disk::new(Arc::clone(&self.rows), Arc::clone(&self.slow_ms), twice));
        let tools = self.config.tools.values().map(|tool| RegisteredTool {
            contract: tool.contract.clone(),
            tool: Arc::new(self.backend.tool(tool.contract.effect, tool.http.look_up.is_some())),
        });
        let wanted = &self.config.executor;
        let config = ExecutorConfig {
            max_running: u32::try_from(wanted.workers).unwrap_or(u32::MAX),
            reconcile: ReconcileRule {
                settle_ms: wanted.settle_ms,
                base_ms: wanted.look_up_base_ms,
                cap_ms: wanted.look_up_cap_ms,
                max_look_ups: wanted.max_look_ups,
            },
            clock: self.clock,
            entropy: self.entropy.clone(),
            ..ExecutorConfig::default()
        };
        let executor = Executor::start(Arc::clone(&disk) as Arc<dyn Store>, tools.collect(), config).await?;
        if !self.calls.is_empty() && self.streams > 0 {
            self.note("restarted", "");
        }
        self.life = Some(Life { executor, disk });
        Ok(())
    }

    /// The process is gone between two instructions: nobody says goodbye.
    fn die(&mut self) {
        let now_us = self.now_us();
        if let Some(life) = self.life.take() {
            life.disk.die();
        }
        if let Some(leg) = self.leg.take() {
            let (_, spans, broken) = leg.heard(now_us);
            self.heard.extend(spans);
            self.record.violations.extend(broken);
        }
        self.note("killed", "");
        self.restart_us = Some(now_us + DOWN_US);
        self.reopen_us = Some(now_us + DOWN_US + REOPEN_US);
    }

    fn open_model(&mut self, session: &SessionConfig) -> OfflineSession {
        let now_us = self.now_us();
        match session.provider {
            Provider::OpenAiRealtime => self.model.open(now_us),
            Provider::GptLive(_) => self.model.open_live(now_us),
        }
    }

    /// Another model session, if the core wants one.
    fn reopen_model(&mut self) {
        if !self.leg.as_ref().is_some_and(|leg| leg.wants_model && !leg.closing) {
            return;
        }
        let session = self.config.session_config(&self.agent);
        let (now_us, model) = (self.now_us(), self.open_model(&session));
        if let Some(leg) = &mut self.leg {
            leg.reopen_model(now_us, model, &session);
        }
    }

    async fn open_leg(&mut self) -> Result<(), VirtualError> {
        let Some(life) = &self.life else { return Ok(()) };
        self.streams += 1;
        let opening = SessionOpening {
            call_sid: self.calls.last().cloned().unwrap_or_else(|| call_sid(1)),
            stream_sid: StreamSid(format!("MZ{:032}", self.streams)),
            caller: CallerId::new(CALLER),
            caller_verified: true,
            agent: self.agent.id.clone(),
            tools: self.agent.tools.clone(),
        };
        let desk = life.executor.open_session(opening).await?;
        let greeting = if desk.resumed { Some(RESUMED_GREETING.to_owned()) } else { self.agent.greeting.clone() };
        let now_us = self.now_us();
        let session = self.config.session_config(&self.agent);
        let detector = self.config.audio.detector.open();
        let model = self.open_model(&session);
        let mut leg = Leg::new(now_us, desk, model, &session, self.agent.policy.clone(), detector);
        leg.carrier.drops_marks = self.drops_marks;
        leg.delay_marks_ms = self.delay_marks_ms;
        self.leg = Some(leg);
        self.step(Input::CallStarted { greeting });
        Ok(())
    }

    async fn end_leg(&mut self) {
        self.step(Input::StreamEnded);
        let now_us = self.now_us();
        if let Some(leg) = self.leg.take() {
            let (desk, spans, broken) = leg.heard(now_us);
            self.heard.extend(spans);
            self.record.violations.extend(broken);
            // As the server: a stream that ends does not end the call.
            desk.close(SessionEnd::StreamLost).await;
        }
    }

    async fn record(mut self) -> Result<(Record, u64), VirtualError> {
        self.record.violations.extend(self.director.unfinished());
        if self.scenario.fault.iter().any(|fault| fault.kill_at.is_some())
            && !self.record.events.iter().any(|event| event.name == "killed")
        {
            self.record.violations.push("the crash point was never reached".into());
        }
        for call in &self.calls {
            let history = self.rows.history(Scope::Call(call.clone())).await?;
            self.record.take_history(&history);
        }
        self.record.bookings = self.backend.keys();
        let (heard, unknown_ms) = ear::listen(&self.heard, &self.setup.lines);
        self.record.heard = heard;
        Ok((self.record, unknown_ms))
    }
}

fn call_sid(number: usize) -> CallSid {
    CallSid(format!("CA{number:032}"))
}
