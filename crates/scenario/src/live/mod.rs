//! The live runner: a real server in a process of its own that can be killed, and `sim`'s phone, model and booking system
//! over real sockets. What happens in the core is read from the server's own live events.

mod server;
pub mod watch;

use crate::director::{Act, Director};
use crate::ear;
use crate::events::{Event, Steps, WordsOf};
use crate::file::{BackendRule, Fault, Scenario};
use crate::record::Record;
use crate::setup::{BackendRules, PUBLIC_URL, Setup, SetupError, switches};
use models::openai_realtime::wire::METADATA_KEY;
use operations::history::History;
use serde_json::Value;
use server::{AUTH_TOKEN, Running};
use sim::booking::{self, Booking, BookingConfig, BookingError, BookingServer, Overseer, Oversight, Switches};
use sim::model::{self, ModelConfig, ModelError, ModelRecord, ModelServer};
use sim::phone::{
    CallResult, CallScript, CallScriptError, Happened, PhoneCall, PhoneConfig, Step as PhoneStep, TimelineEvent,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use vocab::ResponseId;
use watch::{Live, Step};

pub use server::Launch;

const CALLER: &str = "+15005550006";
/// Events of the phone on their way to us; a call has some hundreds, and marks make most of them.
const PHONE_EVENTS: usize = 16_384;
/// A server that died at a crash point is waited for so often.
const DEATH_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Booking(#[from] BookingError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Call(#[from] CallScriptError),
    #[error("{what}: {source}")]
    Io { what: &'static str, source: std::io::Error },
    #[error("{what}: {source}")]
    Http { what: &'static str, source: reqwest::Error },
    #[error("the server: {0}")]
    Server(String),
}

/// The log of what went over the model's wire, in the folder that is kept.
const WIRE_LOG: &str = "model-wire.jsonl";

/// Plays the scenario. Returns what came, and how many milliseconds of sound were none of the agent's lines. The server's
/// recordings of its calls are copied into the folder `keep`, which is made, beside what went over the model's wire.
pub async fn run(
    scenario: &Scenario,
    base: &Path,
    launch: &Launch,
    keep: Option<&Path>,
) -> Result<(Record, u64), LiveError> {
    let began = Instant::now();
    let folder = Setup::make(scenario, base, "127.0.0.1:0")?;
    let (told, backend_says) = mpsc::unbounded_channel();
    let rules = Mutex::new(BackendRules::new(scenario));
    let watch = Arc::new(Watch { rules, told, refused_look_ups: AtomicU32::new(0) });
    let mut config = BookingConfig::new(folder.folder.join("bookings.jsonl"));
    config.overseer = Oversight(Some(Arc::clone(&watch) as Arc<dyn Overseer>));
    let booking = booking::start(config).await?;
    drop(folder);
    let setup = Setup::make(scenario, base, &booking.addr.to_string())?;
    // The server would tell it by the name of a file that is gone by then.
    setup.config(scenario, server::environment())?;
    let mut config = ModelConfig::new(setup.script.clone());
    if let Some(keep) = keep {
        std::fs::create_dir_all(keep)
            .map_err(|source| LiveError::Io { what: "the folder for what is kept cannot be made", source })?;
        config.wire_log = Some(keep.join(WIRE_LOG));
    }
    let model = model::start(config).await?;
    let crash_at = scenario.fault.iter().find_map(|fault| fault.kill_at.clone());
    let (server, seen) = Running::start(launch, &setup, &model.base_url(), crash_at.as_deref()).await?;
    let (observer, phone_says) = mpsc::channel(PHONE_EVENTS);
    let mut house = House {
        scenario,
        base,
        launch,
        setup: &setup,
        live: setup.is_live(scenario)?,
        director: Director::new(scenario, &setup.lines),
        record: Record::default(),
        zero: Instant::now(),
        booking,
        model,
        server,
        seen,
        backend_says,
        watch,
        observer,
        phone_says,
        call: None,
        dialled_us: 0,
        results: Vec::new(),
        steps: BTreeMap::new(),
        speaking: None,
    };
    house.dial()?;
    house.play().await?;
    let outcome = house.record().await;
    if let Some(keep) = keep {
        copy_folder(&setup.folder.join("data/recordings"), keep)
            .map_err(|source| LiveError::Io { what: "the recordings cannot be kept", source })?;
    }
    outcome.map(|(mut record, unknown_ms)| {
        record.took = began.elapsed();
        (record, unknown_ms)
    })
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &place)?;
        } else {
            std::fs::copy(entry.path(), place)?;
        }
    }
    Ok(())
}

/// When the newest session that is still open was opened.
fn newest_session(record: &ModelRecord) -> Option<u64> {
    let realtime = record.sessions.iter().map(|session| (session.opened_us, session.closed_us));
    let live = record.live_sessions.iter().map(|session| (session.opened_us, session.closed_us));
    realtime.chain(live).filter(|(_, closed_us)| closed_us.is_none()).map(|(opened_us, _)| opened_us).max()
}

/// Stands beside the booking system.
struct Watch {
    rules: Mutex<BackendRules>,
    told: mpsc::UnboundedSender<(&'static str, String)>,
    /// So many look-ups are still to be turned away.
    refused_look_ups: AtomicU32,
}

impl Overseer for Watch {
    fn switches(&self, details: &Value) -> Option<Switches> {
        let rule: BackendRule = self.rules.lock().unwrap_or_else(PoisonError::into_inner).take(details);
        let _ = self.told.send(("backend_request", details.to_string()));
        Some(switches(&rule))
    }

    fn committed(&self, booking: &Booking) {
        let _ = self.told.send(("backend_committed", booking.reference.clone()));
    }

    fn refuses_look_up(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        self.refused_look_ups.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

struct House<'s> {
    scenario: &'s Scenario,
    base: &'s Path,
    launch: &'s Launch,
    setup: &'s Setup,
    /// The model has the Live interface.
    live: bool,
    director: Director,
    record: Record,
    zero: Instant,
    booking: BookingServer,
    model: ModelServer,
    server: Running,
    seen: mpsc::Receiver<Live>,
    backend_says: mpsc::UnboundedReceiver<(&'static str, String)>,
    watch: Arc<Watch>,
    observer: mpsc::Sender<TimelineEvent>,
    phone_says: mpsc::Receiver<TimelineEvent>,
    call: Option<PhoneCall>,
    dialled_us: u64,
    /// With the moment of dialling.
    results: Vec<(u64, CallResult)>,
    /// By call.
    steps: BTreeMap<String, Steps>,
    /// Name of the sound that the caller is making.
    speaking: Option<String>,
}

enum Came {
    Server(Option<Live>),
    Backend(&'static str, String),
    Phone(TimelineEvent),
    Time,
}

impl House<'_> {
    fn now_us(&self) -> u64 {
        self.zero.elapsed().as_micros() as u64
    }

    fn note(&mut self, name: &'static str, text: impl Into<String>) {
        let event = Event { at_us: self.now_us(), name, text: text.into() };
        self.director.note(&event);
        self.record.events.push(event);
    }

    fn dial(&mut self) -> Result<(), LiveError> {
        let mut phone = PhoneConfig::new(format!("{PUBLIC_URL}/twilio/voice"), AUTH_TOKEN);
        phone.connect_addr = Some(self.server.address);
        CALLER.clone_into(&mut phone.from);
        phone.audio_base = self.base.to_owned();
        phone.max_seconds = (self.scenario.limit_ms / 1_000 + 5) as u32;
        // A server that was killed is away for about a second.
        (phone.redirect_attempts, phone.redirect_retry_ms) = (40, 250);
        phone.observer = Some(self.observer.clone());
        let script = CallScript { steps: vec![PhoneStep::Wait { ms: self.scenario.limit_ms as u32 + 5_000 }] };
        self.dialled_us = self.now_us();
        self.call = Some(PhoneCall::start(phone, &script)?);
        Ok(())
    }

    async fn play(&mut self) -> Result<(), LiveError> {
        let limit_us = self.scenario.limit_ms * 1_000;
        loop {
            let setup = self.setup;
            while let Some(act) = self.director.due(self.now_us(), |n| setup.caller[n].is_some()) {
                match act {
                    Act::Caller(n) => self.caller_does(n).await?,
                    Act::Fault(n) => self.fault(&self.scenario.fault[n]).await?,
                }
            }
            if self.director.is_done() && self.call.is_none() {
                break;
            }
            if self.now_us() >= limit_us {
                self.record.violations.push(format!("not over after {} ms", self.scenario.limit_ms));
                self.hang_up().await?;
                return Ok(());
            }
            let next_us = self.director.next_us().unwrap_or(limit_us).min(limit_us);
            self.listen(self.zero + Duration::from_micros(next_us)).await?;
        }
        let settled = Instant::now() + Duration::from_millis(self.scenario.settle_ms);
        while Instant::now() < settled {
            self.listen(settled).await?;
        }
        Ok(())
    }

    /// The next thing that happens, or the moment `until`.
    async fn listen(&mut self, until: Instant) -> Result<(), LiveError> {
        let came = tokio::select! {
            biased;
            seen = self.seen.recv() => Came::Server(seen),
            Some((name, text)) = self.backend_says.recv() => Came::Backend(name, text),
            Some(event) = self.phone_says.recv() => Came::Phone(event),
            () = sleep_until(until) => Came::Time,
        };
        match came {
            Came::Server(Some(Live::Step { call_sid, step })) => self.step(&call_sid, &step),
            // The carrier's side tells when a call is over.
            Came::Server(Some(Live::CallEnded { .. })) => {}
            Came::Server(Some(Live::Missed)) => self.record.violations.push("live events were lost on the way".into()),
            // The events ended: the server did.
            Came::Server(None) => self.server_died().await?,
            Came::Backend(name, text) => self.note(name, text),
            Came::Phone(event) => match event.what {
                Happened::CallerSilent => {
                    let name = self.speaking.take().unwrap_or_default();
                    self.note("caller_done", name);
                }
                Happened::ViolationSeen { code } => {
                    self.record.violations.push(format!("the carrier complains with {code}"));
                }
                Happened::CallEnded if self.call.is_some() => {
                    self.record.violations.push("the call ended by itself".into());
                    self.hang_up().await?;
                }
                _ => {}
            },
            Came::Time => {}
        }
        Ok(())
    }

    fn step(&mut self, call_sid: &str, step: &Step) {
        let at_us = self.now_us();
        let mut events = Vec::new();
        let steps = self.steps.entry(call_sid.to_owned()).or_default();
        if let Some(input) = &step.input {
            if matches!(input, conversation::Input::CallStarted { .. }) {
                *steps = Steps::default();
            }
            steps.input(at_us, input, &mut events);
        }
        if let Some(command) = &step.command {
            let (model, setup) = (&self.model, self.setup);
            let words_of = |response: ResponseId| {
                let name = response.to_string();
                let record = model.record();
                let responses = &record.sessions.last()?.responses;
                let asked = responses.iter().rev().find(|r| r.metadata[METADATA_KEY] == name.as_str())?;
                setup.words_of_rule(asked.rule)
            };
            let now = || model.record().live_sessions.last()?.newest_said().map(|said| said.text.clone());
            let words_of = if self.live { WordsOf::Now(&now) } else { WordsOf::Response(&words_of) };
            steps.command(at_us, command, words_of, &mut events);
        }
        for event in events {
            self.director.note(&event);
            self.record.events.push(event);
        }
    }

    async fn caller_does(&mut self, n: usize) -> Result<(), LiveError> {
        let line = &self.scenario.caller[n];
        if let Some(sound) = &self.setup.caller[n] {
            let path = self.setup.folder.join(format!("caller_{n}.ulaw"));
            std::fs::write(&path, &sound.mulaw)
                .map_err(|source| LiveError::Io { what: "a sound of the caller", source })?;
            self.speaking = Some(sound.name.clone());
            self.note("caller_says", sound.name.clone());
            let file = path.to_string_lossy().into_owned();
            self.ask_phone(&PhoneStep::Say { file })?;
        } else if let Some(digits) = &line.dtmf {
            self.ask_phone(&PhoneStep::Dtmf { digits: digits.clone() })?;
        } else if line.hang_up {
            self.note("hung_up", "");
            self.ask_phone(&PhoneStep::HangUp {})?;
            self.hang_up().await?;
        } else if line.drop_line {
            self.note("hung_up", "");
            self.ask_phone(&PhoneStep::AbruptDrop {})?;
            self.hang_up().await?;
        } else if line.call_again {
            self.dial()?;
        }
        Ok(())
    }

    fn ask_phone(&mut self, step: &PhoneStep) -> Result<(), LiveError> {
        let taken = match &self.call {
            Some(call) => call.step_now(step)?,
            None => false,
        };
        if !taken {
            self.record.violations.push(format!("the phone could not do {step:?}"));
        }
        Ok(())
    }

    /// Waits for the call's end, which was asked for or has come by itself.
    async fn hang_up(&mut self) -> Result<(), LiveError> {
        let Some(call) = self.call.take() else { return Ok(()) };
        // The phone reads what it is asked between two frames.
        let ended = tokio::time::timeout(Duration::from_secs(5), call.wait()).await;
        match ended {
            Ok(result) => self.results.push((self.dialled_us, result)),
            Err(_) => self.record.violations.push("the call does not end".into()),
        }
        Ok(())
    }

    async fn fault(&mut self, fault: &Fault) -> Result<(), LiveError> {
        if fault.kill {
            self.server.kill().await?;
            self.server_died().await?;
        }
        if let Some(on) = fault.drop_marks {
            self.ask_phone(&PhoneStep::DropMarks { on })?;
        }
        if let Some(ms) = fault.delay_marks_ms {
            self.ask_phone(&PhoneStep::DelayMarks { ms })?;
        }
        if fault.lose_model {
            // It looks at its faults with the next frame of the caller; a session that is opened after this one is sound.
            let last = newest_session(&self.model.record());
            self.model.set_faults(|faults| faults.drop_opened_by_us = last);
        }
        self.model.set_faults(|faults| fault.model_faults(faults));
        if let Some(count) = fault.refuse_look_ups {
            self.watch.refused_look_ups.store(count, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn server_died(&mut self) -> Result<(), LiveError> {
        while !self.server.is_dead()? {
            tokio::time::sleep(DEATH_EVERY).await;
        }
        self.note("killed", "");
        let (server, seen) =
            Running::again(self.launch, self.setup, &self.model.base_url(), self.server.address).await?;
        (self.server, self.seen) = (server, seen);
        self.note("restarted", "");
        Ok(())
    }

    async fn record(mut self) -> Result<(Record, u64), LiveError> {
        self.record.violations.extend(self.director.unfinished());
        if self.scenario.fault.iter().any(|fault| fault.kill_at.is_some())
            && !self.record.events.iter().any(|event| event.name == "killed")
        {
            self.record.violations.push("the crash point was never reached".into());
        }
        let mut spans = Vec::new();
        for (dialled_us, result) in &self.results {
            let history: History = self.server.history(&result.call_sid).await?;
            self.record.take_history(&history);
            spans.extend(result.heard.iter().map(|span| (dialled_us + span.at_us, span.mulaw.clone())));
        }
        self.record.bookings = self.booking.report().await.bookings.into_iter().map(|booking| booking.key).collect();
        let (heard, unknown_ms) = ear::listen(&spans, &self.setup.lines);
        self.record.heard = heard;
        self.server.kill().await?;
        Ok((self.record, unknown_ms))
    }
}
