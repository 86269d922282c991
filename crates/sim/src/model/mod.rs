//! A realtime speech model's service over a real WebSocket, driven by a script and speaking with recorded voices: OpenAI's
//! Realtime interface (`/v1/realtime?model=`) and its Live interface (`/v1/live/sessions`). It records what it was told.
//!
//! Sources of the event shapes and their order: the vendor's guides and the types of its Python SDK.

mod events;
mod formats;
mod generation;
mod live;
mod offline;
mod record;
mod script;
mod session;
mod turn_detection;

pub(crate) use events::{default_session, detection_of, update_session};
pub use generation::Pace;
pub use live::{AppendRecord, CreateRecord, LiveSessionRecord, RunRecord, SaidRecord};
pub use offline::{OfflineModel, OfflineRecord, OfflineSession};
pub use record::{
    CallRecord, CancelRecord, ErrorRecord, ModelRecord, ResponseRecord, SessionRecord, TruncationRecord, TurnRecord,
};
pub use script::{After, Call, LoadedScript, ModelScript, Progress, Rule, Say, ScriptError};

use crate::clock::Clock;
use futures_util::{SinkExt, StreamExt};
use live::LiveSession;
use script::ScriptProgress;
use serde_json::{Value, json};
use session::{Opening, Session};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_util::sync::CancellationToken;

/// Length of a session, as the service has it today.
const SESSION_SECONDS: u64 = 3_600;
/// About two hours were observed of a Live one.
const LIVE_SESSION_SECONDS: u64 = 7_200;

/// What may go wrong on purpose. Changeable while the server runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelFaults {
    /// Answer upgrades with 503.
    pub refuse_connections: bool,
    /// Refuse the next n `response.create` as if another response were active.
    pub refuse_creates: u32,
    /// Answer each tool output without being asked, as other services do.
    pub answers_by_itself: bool,
    /// What a caller said is told so long after the turn was committed.
    pub transcript_delay_ms: u64,
    /// `response.done` is never sent, whatever became of the response.
    pub swallow_ends: bool,
    /// Send `response.created` this late.
    pub create_delay_ms: u64,
    /// Think this much longer in every response.
    pub answer_delay_ms: u64,
    /// Errors carry neither code nor event id, as old reports show.
    pub anonymous_errors: bool,
    /// Do not echo response metadata, as clones of the service do.
    pub no_metadata: bool,
    /// Drop the connection (no close frame) when so many responses of a session have ended.
    pub drop_after_responses: Option<u32>,
    /// Drop the connection so long after it opened.
    pub drop_after_ms: Option<u64>,
    /// Drop the sessions that were opened by then, on the service's clock.
    pub drop_opened_by_us: Option<u64>,
    /// Live only: the words of what the model says come so much later than its voice.
    pub words_delay_ms: u64,
    /// Live only: the next n runs of the backend fail.
    pub fail_runs: u32,
    /// Live only: the model speaks on when the caller begins.
    pub never_yields: bool,
    /// Live only: commentary is taken into the context and never spoken of.
    pub silent_commentary: bool,
    /// Live only: a built-in voice that the model lets hear while the backend takes results up.
    pub filler: Option<&'static str>,
    /// Live only: the session reaches its time limit so long after it started.
    pub expire_after_ms: Option<u64>,
    /// Live only: the present session reaches its time limit now. It is unset when that has happened.
    pub expires_now: bool,
    /// Live only: so many of the script's `unprompted` lines have been due so far.
    pub unprompted: usize,
}

#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// `127.0.0.1:0` picks a free port.
    pub listen: SocketAddr,
    /// The bearer token to ask for; `None` takes any that is not empty.
    pub api_key: Option<String>,
    pub script: LoadedScript,
    pub pace: Pace,
    pub faults: ModelFaults,
    /// Write every event of both directions here, one JSON line each, audio left out.
    pub wire_log: Option<PathBuf>,
}

impl ModelConfig {
    /// A free loopback port, any key, bursts, no faults.
    pub fn new(script: LoadedScript) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            api_key: None,
            script,
            pace: Pace::default(),
            faults: ModelFaults::default(),
            wire_log: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("the simulated model cannot listen on {listen}: {source}")]
    Listen { listen: SocketAddr, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    WireLog { path: PathBuf, source: std::io::Error },
}

/// A running model service. Dropping it stops it, connections included.
#[derive(Debug)]
pub struct ModelServer {
    pub addr: SocketAddr,
    service: Arc<Service>,
    stop: CancellationToken,
}

#[derive(Debug)]
struct Service {
    config: ModelConfig,
    clock: Clock,
    faults: Arc<Mutex<ModelFaults>>,
    progress: Arc<Mutex<ScriptProgress>>,
    record: Mutex<ModelRecord>,
    wire_log: Option<Mutex<std::fs::File>>,
}

pub async fn start(config: ModelConfig) -> Result<ModelServer, ModelError> {
    let listen = |source| ModelError::Listen { listen: config.listen, source };
    let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
    let addr = listener.local_addr().map_err(listen)?;
    let wire_log = match &config.wire_log {
        None => None,
        Some(path) => {
            let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
            Some(Mutex::new(opened.map_err(|source| ModelError::WireLog { path: path.clone(), source })?))
        }
    };
    let service = Arc::new(Service {
        faults: Arc::new(Mutex::new(config.faults)),
        clock: Clock::start(),
        progress: Arc::default(),
        record: Mutex::default(),
        wire_log,
        config,
    });
    let stop = CancellationToken::new();
    tokio::spawn(accept(listener, Arc::clone(&service), stop.clone()));
    Ok(ModelServer { addr, service, stop })
}

impl ModelServer {
    /// The `base_url` for a client: `ws://127.0.0.1:PORT/v1`; the endpoints are `{base_url}/realtime?model=…` and
    /// `{base_url}/live/sessions`.
    pub fn base_url(&self) -> String {
        format!("ws://{}/v1", self.addr)
    }
    /// What it was told so far, open sessions included.
    pub fn record(&self) -> ModelRecord {
        locked(&self.service.record).clone()
    }
    pub fn set_faults(&self, change: impl FnOnce(&mut ModelFaults)) {
        change(&mut locked(&self.service.faults));
    }
    pub fn stop(&self) {
        self.stop.cancel();
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept(listener: TcpListener, service: Arc<Service>, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, _)) => {
                let (service, stop) = (Arc::clone(&service), stop.clone());
                tokio::spawn(async move { stop.run_until_cancelled(converse(socket, service)).await });
            }
            Err(error) => {
                tracing::warn!(%error, "the simulated model could not accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn converse(socket: TcpStream, service: Arc<Service>) {
    let _ = socket.set_nodelay(true);
    let mut asked = Asked::Live;
    let limits = WebSocketConfig::default().read_buffer_size(16 * 1024);
    // The shape of this callback is the library's.
    #[allow(clippy::result_large_err)]
    let check = |request: &Request, response: Response| service.check_upgrade(request, response, &mut asked);
    let mut ws = match tokio_tungstenite::accept_hdr_async_with_config(socket, check, Some(limits)).await {
        Ok(ws) => ws,
        Err(error) => {
            locked(&service.record).refused.push(error.to_string());
            return;
        }
    };
    let (mut session, place) = service.open_session(asked);
    let outcome = run(&mut ws, &mut session, place, &service).await;
    tracing::debug!(session = place, outcome, "simulated model session ended");
    session.closed_at(service.clock.now_us());
    service.keep(place, &session);
}

/// What an upgrade asked for.
enum Asked {
    Realtime { model: String },
    Live,
}

/// A session of either interface.
enum AnySession {
    Realtime(Box<Session>),
    Live(Box<LiveSession>),
}

impl AnySession {
    fn receive(&mut self, now_us: u64, text: &str) {
        match self {
            Self::Realtime(session) => session.receive(now_us, text),
            Self::Live(session) => session.receive(now_us, text),
        }
    }
    fn advance(&mut self, now_us: u64) -> Vec<Value> {
        let events = match self {
            Self::Realtime(session) => {
                session.advance(now_us);
                &mut session.events
            }
            Self::Live(session) => {
                session.advance(now_us);
                &mut session.events
            }
        };
        std::mem::take(events)
    }
    fn next_at_us(&self) -> Option<u64> {
        match self {
            Self::Realtime(session) => session.next_at_us(),
            Self::Live(session) => session.next_at_us(),
        }
    }
    fn has_events(&self) -> bool {
        match self {
            Self::Realtime(session) => !session.events.is_empty(),
            Self::Live(session) => !session.events.is_empty(),
        }
    }
    fn ended(&self) -> u32 {
        match self {
            Self::Realtime(session) => session.ended,
            Self::Live(session) => session.ended(),
        }
    }
    fn opened_us(&self) -> u64 {
        match self {
            Self::Realtime(session) => session.record.opened_us,
            Self::Live(session) => session.record.opened_us,
        }
    }
    fn closed_at(&mut self, now_us: u64) {
        match self {
            Self::Realtime(session) => session.record.closed_us = Some(now_us),
            Self::Live(session) => session.record.closed_us = Some(now_us),
        }
    }
    /// The service has said its last word.
    fn is_closed(&self) -> bool {
        matches!(self, Self::Live(session) if session.closed)
    }
}

/// Returns why it ended.
async fn run(
    ws: &mut WebSocketStream<TcpStream>,
    session: &mut AnySession,
    place: usize,
    service: &Service,
) -> &'static str {
    let mut event_number = 0u64;
    loop {
        let now_us = service.clock.now_us();
        let events = session.advance(now_us);
        let something = !events.is_empty();
        for mut event in events {
            // The audio of a Live session bears none.
            if event["type"] != "session.output_audio.delta" {
                event_number += 1;
                event["event_id"] = format!("event_{place}_{event_number}").into();
            }
            service.log(now_us, place, "out", &event);
            if ws.feed(Message::Text(Utf8Bytes::from(event.to_string()))).await.is_err() {
                return "the client went away";
            }
        }
        if something {
            service.keep(place, session);
            if ws.flush().await.is_err() {
                return "the client went away";
            }
        }
        if session.is_closed() {
            let _ = ws.close(None).await;
            return "closed by the service";
        }
        let faults = *locked(&service.faults);
        if faults.drop_after_responses.is_some_and(|n| session.ended() >= n) {
            return "dropped after responses";
        }
        if faults.drop_opened_by_us.is_some_and(|by| session.opened_us() <= by) {
            return "dropped";
        }
        let drop_at = faults.drop_after_ms.map(|ms| session.opened_us() + ms * 1_000);
        let wake_us = [session.next_at_us(), drop_at].into_iter().flatten().min();
        let wake = async {
            match wake_us {
                Some(us) => tokio::time::sleep_until(service.clock.at(us)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            message = ws.next() => match message {
                Some(Ok(Message::Text(text))) => {
                    let now_us = service.clock.now_us();
                    session.receive(now_us, &text);
                    service.log_text(now_us, place, &text);
                }
                Some(Ok(Message::Close(_))) => {
                    // The answer to it lies ready; a connection that just ends is a failure to careful clients.
                    let _ = ws.flush().await;
                    return "closed by the client";
                }
                None => return "closed by the client",
                Some(Ok(_)) => {}
                Some(Err(_)) => return "the client went away",
            },
            () = wake => if drop_at.is_some_and(|at| at <= service.clock.now_us()) {
                return "dropped after time";
            },
        }
    }
}

impl Service {
    #[allow(clippy::result_large_err)]
    fn check_upgrade(
        &self,
        request: &Request,
        mut response: Response,
        asked: &mut Asked,
    ) -> Result<Response, ErrorResponse> {
        let refuse = |status: StatusCode, message: &str| {
            let body = json!({ "error": { "type": "invalid_request_error", "message": message } }).to_string();
            let mut refusal = ErrorResponse::new(Some(body));
            *refusal.status_mut() = status;
            Err(refusal)
        };
        if locked(&self.faults).refuse_connections {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "overloaded");
        }
        let is_live = request.uri().path() == "/v1/live/sessions";
        if !is_live && request.uri().path() != "/v1/realtime" {
            return refuse(StatusCode::NOT_FOUND, "no such route");
        }
        let header = request.headers().get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
        let token = header.strip_prefix("Bearer ").unwrap_or_default();
        if token.is_empty() || self.config.api_key.as_ref().is_some_and(|key| key != token) {
            return refuse(StatusCode::UNAUTHORIZED, "Incorrect API key provided");
        }
        if is_live {
            *asked = Asked::Live;
            return Ok(response);
        }
        let query = request.uri().query().unwrap_or_default();
        match url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "model") {
            Some((_, name)) if !name.is_empty() => *asked = Asked::Realtime { model: name.into_owned() },
            _ => return refuse(StatusCode::BAD_REQUEST, "you must provide a model parameter"),
        }
        let offered = request.headers().get("sec-websocket-protocol").and_then(|v| v.to_str().ok()).unwrap_or_default();
        if offered.split(',').any(|p| p.trim() == "realtime") {
            response.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static("realtime"));
        }
        Ok(response)
    }

    fn open_session(&self, asked: Asked) -> (AnySession, usize) {
        let mut record = locked(&self.record);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let script_progress = match self.config.script.script.progress {
            Progress::Server => Arc::clone(&self.progress),
            Progress::Session => Arc::default(),
        };
        let (script, faults, now_us) = (self.config.script.clone(), Arc::clone(&self.faults), self.clock.now_us());
        match asked {
            Asked::Realtime { model } => {
                let place = record.sessions.len();
                let session = Session::open(Opening {
                    name: (place + 1).to_string(),
                    model,
                    expires_at: unix + SESSION_SECONDS,
                    script,
                    script_progress,
                    pace: self.config.pace,
                    faults,
                    now_us,
                });
                record.sessions.push(session.record.clone());
                (AnySession::Realtime(Box::new(session)), place)
            }
            Asked::Live => {
                let place = record.live_sessions.len();
                let session = LiveSession::open(live::Opening {
                    name: (place + 1).to_string(),
                    expires_at: unix + LIVE_SESSION_SECONDS,
                    script,
                    script_progress,
                    faults,
                    now_us,
                });
                record.live_sessions.push(session.record.clone());
                (AnySession::Live(Box::new(session)), place)
            }
        }
    }

    fn keep(&self, place: usize, session: &AnySession) {
        let mut record = locked(&self.record);
        match session {
            AnySession::Realtime(session) => record.sessions[place].clone_from(&session.record),
            AnySession::Live(session) => record.live_sessions[place].clone_from(&session.record),
        }
    }

    fn log_text(&self, at_us: u64, place: usize, text: &str) {
        if self.wire_log.is_some() {
            let event = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
            self.log(at_us, place, "in", &event);
        }
    }

    fn log(&self, at_us: u64, place: usize, direction: &str, event: &Value) {
        let Some(file) = &self.wire_log else { return };
        let mut event = event.clone();
        let audio = match event["type"].as_str() {
            Some("response.output_audio.delta" | "session.output_audio.delta") => "delta",
            Some("input_audio_buffer.append" | "session.input_audio.append") => "audio",
            _ => "",
        };
        if let Some(Value::String(text)) = event.get_mut(audio) {
            *text = format!("({} characters)", text.len());
        }
        let mut line = json!({ "us": at_us, "session": place + 1, "dir": direction, "event": event }).to_string();
        line.push('\n');
        // One write a line, so that servers may share the file. A full disk must not end the call that is being watched.
        let _ = locked(file).write_all(line.as_bytes());
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
