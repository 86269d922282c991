//! The call's loop: whatever comes first of carrier, model, desk and time is stamped once and given to the core.

use crate::desk::Desk;
use crate::listen::Listener;
use crate::playout::Playout;
use crate::recorder::Recorder;
use crate::report::{CallEnd, CallReport};
use crate::sources::{Source, Sources};
use audio::Detector;
use conversation::{Command, Conversation, Input, Policy};
use models::{ModelError, ModelSocket, SessionConfig};
use phone::twilio::{Inbound, InboundAudio, PhoneError, Placement, TwilioSocket};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use vocab::audio::MULAW_SILENCE;
use vocab::model::{ModelCommand, ModelEvent};
use vocab::work::{WorkCommand, WorkEvent};
use vocab::{CallTime, Samples};

/// How often stalls, silence of the carrier, the call's length and the two signals to let go are looked at. The signals are
/// no branch of the loop: they come once a call, and to listen for them would cost two locks a frame.
const CHORES_EVERY: Duration = Duration::from_millis(250);
/// While nobody speaks the model is given the line in pieces of this length (60 ms): each is a write to a socket, and the
/// quiet is most of a call. Speech, tentative speech and an open turn go out frame by frame.
const QUIET_PIECE_BYTES: usize = 3 * vocab::audio::FRAME_BYTES;
/// Caller audio kept for a model session that is still being opened: 10 s (cases C23 of twilio.md).
const PREBUFFER_BYTES: usize = 80_000;
/// After this long a session that took our configuration but never answered is given up.
const READY_TIMEOUT: Duration = Duration::from_secs(4);
/// All attempts at opening a model session together: nobody listens to silence for longer, and a sentence can be said then.
const OPEN_TIMEOUT: Duration = Duration::from_secs(4);
/// Waits before the second and third attempt at opening a model session.
const OPEN_RETRIES: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(1_000)];
/// A call that reached its longest length may finish its sentence for so long.
const LAST_WORDS: Duration = Duration::from_secs(30);
/// A full desk gets this often, this far apart, to take what was last asked of it: two seconds.
const LAST_DESK_TRIES: u32 = 100;
const DESK_PAUSE: Duration = Duration::from_millis(20);
/// WebSocket close codes (RFC 6455, 7.4.1).
const CLOSE_NORMAL: u16 = 1000;

/// What the watcher of a call is shown: everything but the caller's audio frames and the model's audio.
pub enum Seen<'a> {
    Input(&'a Input),
    Command(&'a Command),
}

pub type Watch = Box<dyn FnMut(CallTime, Seen<'_>) + Send>;

#[derive(Clone, Copy, Debug)]
pub struct CallLimits {
    /// No media for this long and the stream is given up.
    pub media_timeout: Duration,
    /// Longest call.
    pub max_call: Duration,
}

/// Everything that a call is made of.
pub struct CallSetup<S, D> {
    pub phone: TwilioSocket<S>,
    pub desk: D,
    pub model: SessionConfig,
    /// Directions for the first response.
    pub greeting: Option<String>,
    pub policy: Policy,
    pub detector: Detector,
    pub limits: CallLimits,
    pub watch: Option<Watch>,
    pub recorder: Option<Recorder>,
    /// Finish the sentence, then let go.
    pub drain: CancellationToken,
    /// Let go now.
    pub let_go: CancellationToken,
}

type Opening = Pin<Box<dyn Future<Output = Result<Box<ModelSocket>, ModelError>> + Send>>;

pub(crate) enum ModelSlot {
    Opening(Opening),
    Open(Box<ModelSocket>),
    Gone,
}

pub(crate) struct Actor<S, D> {
    pub(crate) phone: TwilioSocket<S>,
    pub(crate) model: ModelSlot,
    pub(crate) desk: D,
    pub(crate) conversation: Conversation,
    pub(crate) playout: Playout,
    pub(crate) watch: Option<Watch>,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) commands: Vec<Command>,
    /// μ-law of the model event in hand.
    pub(crate) model_audio: Vec<u8>,
    /// One message to the carrier.
    pub(crate) frame: Vec<u8>,
    pub(crate) model_waiting: Vec<ModelCommand>,
    pub(crate) desk_waiting: VecDeque<WorkCommand>,
    pub(crate) desk_answers: VecDeque<WorkEvent>,
    pub(crate) end: Option<CallEnd>,
    listener: Listener,
    inbound: InboundAudio,
    /// Caller audio for a model session that is still being opened.
    prebuffer: VecDeque<u8>,
    /// Caller audio that the open session has not been given yet, see [`QUIET_PIECE_BYTES`].
    unsent: Vec<u8>,
    silence: Vec<u8>,
    started: Instant,
    last_media: Instant,
    /// What a session is opened with, whenever that is.
    model_config: SessionConfig,
    /// A session took our configuration and has not answered since.
    awaits_ready: Option<Instant>,
    pub(crate) model_was_ready: bool,
    /// The call reached its longest length: its drain ends it for good.
    pub(crate) too_long: bool,
    /// The carrier does not read what we send.
    pub(crate) unsendable: Option<PhoneError>,
    limits: CallLimits,
    sources: Sources,
}

/// Something happened.
enum Event {
    Phone(Result<Inbound, PhoneError>),
    Opened(Result<Box<ModelSocket>, ModelError>),
    Model(Result<ModelEvent, ModelError>),
    Work(Option<WorkEvent>),
    Time,
}

/// Runs the call until its stream is over.
pub async fn run<S: AsyncRead + AsyncWrite + Unpin + Send, D: Desk>(setup: CallSetup<S, D>) -> CallReport {
    let CallSetup { phone, desk, model, greeting, policy, detector, limits, watch, recorder, drain, let_go } = setup;
    let now = Instant::now();
    let mut actor = Actor {
        phone,
        model: ModelSlot::Opening(Box::pin(open_model(model.clone()))),
        desk,
        conversation: Conversation::new(policy),
        playout: Playout::default(),
        watch,
        recorder,
        commands: Vec::with_capacity(16),
        model_audio: Vec::with_capacity(4_096),
        frame: Vec::with_capacity(1_600),
        model_waiting: Vec::new(),
        desk_waiting: VecDeque::new(),
        desk_answers: VecDeque::new(),
        end: None,
        listener: Listener::new(detector),
        inbound: InboundAudio::new(),
        prebuffer: VecDeque::new(),
        unsent: Vec::with_capacity(QUIET_PIECE_BYTES + vocab::audio::FRAME_BYTES),
        silence: Vec::new(),
        started: now,
        last_media: now,
        model_config: model,
        awaits_ready: None,
        model_was_ready: false,
        too_long: false,
        unsendable: None,
        limits,
        sources: Sources::new(),
    };
    actor.step(CallTime(0), Input::CallStarted { greeting });
    actor.live(&drain, &let_go).await;
    actor.finish().await
}

/// A session, within a few attempts where trying again can help, and within [`OPEN_TIMEOUT`].
async fn open_model(config: SessionConfig) -> Result<Box<ModelSocket>, ModelError> {
    let after_ms = OPEN_TIMEOUT.as_millis() as u64;
    tokio::time::timeout(OPEN_TIMEOUT, try_to_open(config)).await.unwrap_or(Err(ModelError::TimedOut { after_ms }))
}

async fn try_to_open(config: SessionConfig) -> Result<Box<ModelSocket>, ModelError> {
    for wait in OPEN_RETRIES {
        match ModelSocket::connect(&config).await {
            Err(error) if error.is_passing() => {
                tracing::warn!(%error, "no model session yet; trying again");
                tokio::time::sleep(wait).await;
            }
            opened => return opened.map(Box::new),
        }
    }
    ModelSocket::connect(&config).await.map(Box::new)
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send, D: Desk> Actor<S, D> {
    async fn live(&mut self, drain: &CancellationToken, let_go: &CancellationToken) {
        let mut caller_audio = Vec::with_capacity(1_024);
        let mut draining = false;
        let mut chores_at = self.started + CHORES_EVERY;
        let mut timer = Box::pin(sleep_until(chores_at));
        while self.end.is_none() {
            caller_audio.clear();
            self.model_audio.clear();
            let due = self.conversation.next_deadline().map(|at| self.started + Duration::from_micros(at.0));
            let due = due.map_or(chores_at, |due| due.min(chores_at));
            // Most frames leave the timer alone.
            if timer.deadline() != due || timer.is_elapsed() {
                timer.as_mut().reset(due);
                self.sources.ask(Source::Time);
            }
            let event = poll_fn(|cx| self.poll_event(cx, timer.as_mut(), &mut caller_audio)).await;
            let now = Instant::now();
            let at = CallTime(now.duration_since(self.started).as_micros() as u64);
            match event {
                Event::Phone(Ok(inbound)) => self.phone_said(at, now, inbound, &caller_audio),
                Event::Phone(Err(error)) => self.over(at, CallEnd::StreamLost { reason: error.to_string() }),
                Event::Opened(Ok(socket)) => self.model_opened(at, now, socket),
                Event::Opened(Err(error)) => self.model_lost(at, &error),
                Event::Model(Ok(event)) => self.model_said(at, event),
                Event::Model(Err(error)) => self.model_lost(at, &error),
                Event::Work(Some(event)) => self.step(at, Input::Work(event)),
                Event::Work(None) => self.over(at, CallEnd::LetGo),
                // Or it is only time for the chores.
                Event::Time if self.conversation.next_deadline().is_some_and(|due| due <= at) => {
                    self.step(at, Input::TimePassed);
                }
                Event::Time => {}
            }
            if now >= chores_at {
                chores_at = now + CHORES_EVERY;
                self.chores(at, now);
                if let_go.is_cancelled() {
                    self.over(at, CallEnd::LetGo);
                } else if !draining && drain.is_cancelled() {
                    draining = true;
                    self.step(at, Input::DrainRequested);
                }
            }
        }
    }

    /// Whatever comes first. What the last step queued leaves before anything new is looked at.
    fn poll_event(&mut self, cx: &Context<'_>, mut timer: Pin<&mut Sleep>, caller_audio: &mut Vec<u8>) -> Poll<Event> {
        let Self { phone, model, desk, model_audio, sources, .. } = self;
        sources.look(cx.waker());
        // What is left waits for room, and whoever is waited for calls. A failure is told by the next read.
        let _ = phone.poll_flush(&mut sources.context(Source::Phone));
        if let ModelSlot::Open(socket) = model {
            let _ = socket.poll_flush(&mut sources.context(Source::Model));
            if socket.has_news() {
                sources.ask(Source::Model);
            }
        }
        for source in Source::ALL {
            if !sources.is_due(source) {
                continue;
            }
            let mut cx = sources.context(source);
            let event = match (source, &mut *model) {
                (Source::Phone, _) => pin!(phone.next(caller_audio)).poll(&mut cx).map(Event::Phone),
                (Source::Model, ModelSlot::Opening(opening)) => opening.as_mut().poll(&mut cx).map(Event::Opened),
                (Source::Model, ModelSlot::Open(socket)) => socket.poll_next(&mut cx, model_audio).map(Event::Model),
                (Source::Model, ModelSlot::Gone) => Poll::Pending,
                (Source::Desk, _) => desk.poll_next(&mut cx).map(Event::Work),
                (Source::Time, _) => timer.as_mut().poll(&mut cx).map(|()| Event::Time),
            };
            if event.is_ready() {
                return event;
            }
            sources.not_yet(source);
        }
        Poll::Pending
    }

    fn phone_said(&mut self, at: CallTime, now: Instant, inbound: Inbound, audio: &[u8]) {
        match inbound {
            Inbound::Media(frame) => {
                self.last_media = now;
                match self.inbound.place(at, &frame, Samples(audio.len() as u32)) {
                    Placement::Heard { silence } => {
                        if silence > Samples::ZERO {
                            self.hear_silence(at, silence);
                        }
                        self.hear(at, audio);
                    }
                    Placement::Repeated => {}
                }
            }
            Inbound::MarkReturned(mark) => self.step(at, Input::MarkReturned { mark }),
            Inbound::KeyPressed { digit } => self.step(at, Input::DtmfPressed { digit }),
            Inbound::Stopped => self.over(at, CallEnd::Stopped),
            Inbound::Connected { .. } | Inbound::Started(_) => {}
            Inbound::StartRefused(problem) => self.over(at, CallEnd::StreamLost { reason: problem.to_string() }),
            Inbound::Ignored(why) => tracing::debug!(?why, "message passed over"),
        }
    }

    /// Caller audio goes to the model as it is, and to the core as evidence.
    fn hear(&mut self, at: CallTime, audio: &[u8]) {
        if audio.is_empty() {
            return;
        }
        match &self.model {
            ModelSlot::Open(_) => self.unsent.extend_from_slice(audio),
            ModelSlot::Opening(_) => {
                let over = (self.prebuffer.len() + audio.len()).saturating_sub(PREBUFFER_BYTES);
                self.prebuffer.drain(..over.min(self.prebuffer.len()));
                self.prebuffer.extend(audio);
            }
            ModelSlot::Gone => {}
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.caller_audio(audio);
        }
        let evidence = self.listener.hear(audio);
        self.step(at, Input::CallerAudio { samples: Samples(audio.len() as u32), evidence });
        if self.unsent.len() >= QUIET_PIECE_BYTES || self.conversation.caller_has_the_floor() {
            self.append_unsent();
        }
    }

    /// The model hears what it has not been given yet.
    pub(crate) fn append_unsent(&mut self) {
        if let ModelSlot::Open(socket) = &mut self.model {
            socket.append_audio(&self.unsent);
        }
        self.unsent.clear();
    }

    fn hear_silence(&mut self, at: CallTime, length: Samples) {
        let mut silence = std::mem::take(&mut self.silence);
        silence.resize(length.0 as usize, MULAW_SILENCE);
        for piece in silence.chunks(vocab::audio::FRAME_BYTES) {
            self.hear(at, piece);
        }
        silence.clear();
        self.silence = silence;
    }

    fn model_opened(&mut self, at: CallTime, now: Instant, mut socket: Box<ModelSocket>) {
        let capabilities = socket.capabilities();
        self.awaits_ready = Some(now);
        let (first, second) = self.prebuffer.as_slices();
        socket.append_audio(first);
        socket.append_audio(second);
        self.prebuffer = VecDeque::new();
        for command in std::mem::take(&mut self.model_waiting) {
            socket.send(&command);
        }
        self.model = ModelSlot::Open(socket);
        self.step(at, Input::Model(ModelEvent::SessionOpened { capabilities }));
    }

    /// Another session in the place of the one before: the caller's audio waits for it meanwhile.
    pub(crate) fn reopen_model(&mut self) {
        let opening = ModelSlot::Opening(Box::pin(open_model(self.model_config.clone())));
        if let ModelSlot::Open(mut socket) = std::mem::replace(&mut self.model, opening) {
            // Its goodbye takes up to a second, which nobody waits for.
            tokio::spawn(async move { socket.close().await });
        }
        self.model_waiting.clear();
        self.awaits_ready = None;
        self.sources.ask(Source::Model);
    }

    fn model_said(&mut self, at: CallTime, event: ModelEvent) {
        if event == ModelEvent::SessionReady {
            self.model_was_ready = true;
            self.awaits_ready = None;
        }
        self.step(at, Input::Model(event));
    }

    fn model_lost(&mut self, at: CallTime, error: &ModelError) {
        let passing = error.is_passing();
        self.model = ModelSlot::Gone;
        tracing::error!(%error, "the model session is lost");
        let event = if passing || *error == ModelError::Ended {
            ModelEvent::SessionLost { reason: error.to_string() }
        } else {
            ModelEvent::ErrorReported { code: "no_session".into(), message: error.to_string(), fatal: true }
        };
        self.step(at, Input::Model(event));
    }

    /// What needs looking at now and then.
    fn chores(&mut self, at: CallTime, now: Instant) {
        self.retry_desk();
        if let ModelSlot::Open(socket) = &mut self.model {
            socket.look_alive(now);
        }
        if let Some(silence) = self.inbound.inject_silence(at, self.conversation.caller_is_speaking()) {
            tracing::warn!("the carrier stopped sending while the caller spoke");
            self.hear_silence(at, silence);
        }
        if now.duration_since(self.last_media) > self.limits.media_timeout {
            self.over(at, CallEnd::StreamLost { reason: "no media came for too long".into() });
        }
        if self.awaits_ready.is_some_and(|opened| now.duration_since(opened) > READY_TIMEOUT) {
            self.awaits_ready = None;
            self.model_lost(at, &ModelError::TimedOut { after_ms: READY_TIMEOUT.as_millis() as u64 });
        }
        let age = now.duration_since(self.started);
        if age > self.limits.max_call + LAST_WORDS {
            self.over(at, CallEnd::Finished { reason: "the call reached its longest length".into() });
        } else if age > self.limits.max_call && !self.too_long {
            self.too_long = true;
            self.step(at, Input::DrainRequested);
        }
    }

    pub(crate) fn over(&mut self, at: CallTime, end: CallEnd) {
        self.step(at, Input::StreamEnded);
        self.end.get_or_insert(end);
    }

    async fn finish(mut self) -> CallReport {
        let lasted = self.started.elapsed();
        // What was heard must reach the store before the desk closes.
        for _ in 0..LAST_DESK_TRIES {
            self.retry_desk();
            if self.desk_waiting.is_empty() {
                break;
            }
            tokio::time::sleep(DESK_PAUSE).await;
        }
        if let Some(mut recorder) = self.recorder.take() {
            recorder.end();
        }
        let end = self.end.unwrap_or(CallEnd::LetGo);
        let close_model = async {
            if let ModelSlot::Open(socket) = &mut self.model {
                socket.close().await;
            }
        };
        // The end is on record before the socket closes: the carrier asks how to go on within a second of the close.
        let close_phone = async {
            self.desk.close(end.ends_call()).await;
            self.phone.close(CLOSE_NORMAL, "").await;
        };
        tokio::join!(close_model, close_phone);
        let padded = Samples(u32::try_from(self.inbound.counts().padded).unwrap_or(u32::MAX));
        CallReport {
            end,
            lasted,
            history: self.conversation.history().entries().cloned().collect(),
            padded_ms: u64::from(padded.ms().0),
        }
    }
}
