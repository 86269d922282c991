//! A restaurant's booking backend: the system of record of the demo and of the tests, over real HTTP.
//!
//! | route | answers |
//! |---|---|
//! | `POST /bookings` | 201 with the booking; same `Idempotency-Key` and body again: 200 with the first result and `Idempotent-Replayed: true`; same key, other body: 409 |
//! | `GET /bookings` | `{"bookings":[…],"effects":{key: count},"attempts":{key: count}}` |
//! | `GET /bookings/by-key/{key}` | 200 with the booking, or 404 |
//! | `GET /switches`, `POST /switches` | the faults; a POST names only what it changes |
//!
//! A booking is `{"reference":"B-7","key":"…"|null,"details":{…the request's body…}}`. It is on disk before it is answered.

mod answer_twice;
mod ledger;

pub use ledger::{Booking, LedgerError};

use answer_twice::AnswerTwice;
use axum::body::{Body, to_bytes};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use ledger::Ledger;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// A booking is a handful of fields.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// As Stripe and others limit theirs.
const MAX_KEY_BYTES: usize = 255;

/// Faults of the backend. In `POST /switches` every field may be left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Switches {
    /// Think this long before the booking is made.
    pub delay_before_commit_ms: u64,
    /// Make the booking, then answer this late.
    pub delay_after_commit_ms: u64,
    /// Make the next booking, then drop the connection without an answer; turns itself off.
    pub lose_response_once: bool,
    /// Answer the next request with 500 before anything is made; turns itself off.
    pub error_once: bool,
    /// Answer every request with 422 and make nothing.
    pub refuse: bool,
    /// Write each answer twice on the connection, as a confused proxy would.
    pub duplicate_answer: bool,
    /// Be a backend without idempotency: every request is a new booking.
    pub ignore_keys: bool,
}

/// Looks over the backend's shoulder: decides the faults of each single request, and is told what happened.
pub trait Overseer: Send + Sync {
    /// The faults of this request; `None` leaves it to the switches. `details` is the body, or what the query of a
    /// `GET /bookings` names.
    fn switches(&self, details: &Value) -> Option<Switches>;
    /// A booking is on disk and not yet answered.
    fn committed(&self, booking: &Booking);
    /// Whether this question about a key is turned away with 401, unanswered.
    fn refuses_look_up(&self) -> bool {
        false
    }
}

/// Nobody, or somebody.
#[derive(Clone, Default)]
pub struct Oversight(pub Option<Arc<dyn Overseer>>);

impl std::fmt::Debug for Oversight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "overseen" } else { "alone" })
    }
}

impl Oversight {
    fn switches(&self, details: &Value) -> Option<Switches> {
        self.0.as_ref()?.switches(details)
    }

    fn refuses_look_up(&self) -> bool {
        self.0.as_ref().is_some_and(|overseer| overseer.refuses_look_up())
    }
}

#[derive(Clone, Debug)]
pub struct BookingConfig {
    /// `127.0.0.1:0` picks a free port.
    pub listen: SocketAddr,
    /// The system of record's own file, one JSON booking a line, synced at each commit. Made when it is not there.
    pub file: PathBuf,
    pub switches: Switches,
    /// The number of the first booking in an empty file; the recorded confirmation says "B seven".
    pub first_number: u32,
    pub overseer: Oversight,
}

impl BookingConfig {
    /// A free loopback port, no faults.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            file: file.into(),
            switches: Switches::default(),
            first_number: 7,
            overseer: Oversight::default(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BookingError {
    #[error("the booking backend cannot listen on {listen}: {source}")]
    Listen { listen: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// A running backend. Dropping it stops it.
#[derive(Debug)]
pub struct BookingServer {
    pub addr: SocketAddr,
    desk: Arc<Desk>,
    stop: CancellationToken,
}

/// How often each key was asked for, and how often it took effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BookingReport {
    pub bookings: Vec<Booking>,
    /// Bookings made, by key. More than one is the failure that everything here exists to show.
    pub effects: BTreeMap<String, u32>,
    /// Requests that arrived, by key, since this process started.
    pub attempts: BTreeMap<String, u32>,
}

#[derive(Debug)]
struct Desk {
    /// Held over lookup and commit, so that two requests with one key cannot both find nothing.
    ledger: tokio::sync::Mutex<Ledger>,
    switches: Mutex<Switches>,
    attempts: Mutex<BTreeMap<String, u32>>,
    overseer: Oversight,
}

/// Open the file and serve until the handle is stopped or dropped.
pub async fn start(config: BookingConfig) -> Result<BookingServer, BookingError> {
    let ledger = Ledger::open(&config.file, config.first_number)?;
    let listen = |source| BookingError::Listen { listen: config.listen, source };
    let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
    let addr = listener.local_addr().map_err(listen)?;
    let desk = Arc::new(Desk {
        ledger: tokio::sync::Mutex::new(ledger),
        switches: Mutex::new(config.switches),
        attempts: Mutex::default(),
        overseer: config.overseer,
    });
    let stop = CancellationToken::new();
    tokio::spawn(accept(listener, Arc::clone(&desk), stop.clone()));
    Ok(BookingServer { addr, desk, stop })
}

impl BookingServer {
    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
    pub fn set_switches(&self, change: impl FnOnce(&mut Switches)) {
        change(&mut locked(&self.desk.switches));
    }
    pub async fn report(&self) -> BookingReport {
        self.desk.report().await
    }
    /// No further connection is taken, and open ones are dropped.
    pub fn stop(&self) {
        self.stop.cancel();
    }
}

impl Drop for BookingServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept(listener: TcpListener, desk: Arc<Desk>, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, _)) => {
                let (desk, stop) = (Arc::clone(&desk), stop.clone());
                tokio::spawn(async move { stop.run_until_cancelled(serve(socket, desk)).await });
            }
            Err(error) => {
                tracing::warn!(%error, "the booking backend could not accept a connection");
                // Out of file descriptors, most likely: the next accept would fail at once again.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve(socket: TcpStream, desk: Arc<Desk>) {
    let twice = Arc::new(AtomicBool::new(false));
    let io = TokioIo::new(AnswerTwice::new(socket, Arc::clone(&twice)));
    let service = service_fn(move |request| {
        let (desk, twice) = (Arc::clone(&desk), Arc::clone(&twice));
        async move {
            let (answer, duplicate) = desk.answer(request).await;
            twice.store(duplicate, Ordering::Relaxed);
            // An error out of the service makes hyper drop the connection without a byte: the lost response.
            answer.ok_or_else(|| std::io::Error::other("the answer was lost"))
        }
    });
    if let Err(error) = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await {
        tracing::debug!(%error, "booking connection ended");
    }
}

impl Desk {
    /// `None`: drop the connection. With whether the answer goes out twice.
    async fn answer(&self, request: Request<hyper::body::Incoming>) -> (Option<Response<Body>>, bool) {
        let mut duplicate = locked(&self.switches).duplicate_answer;
        let answer = self.route(request, &mut duplicate).await;
        (answer, duplicate)
    }

    async fn route(&self, request: Request<hyper::body::Incoming>, duplicate: &mut bool) -> Option<Response<Body>> {
        let path = request.uri().path().to_owned();
        let by_key = path.strip_prefix("/bookings/by-key/");
        match (request.method(), path.as_str(), by_key) {
            (&Method::POST, "/bookings", _) => self.book(request, duplicate).await,
            (&Method::GET, "/bookings", _) => {
                if let Some(query) = request.uri().query() {
                    let named = url::form_urlencoded::parse(query.as_bytes());
                    let details = named.map(|(name, value)| (name.into_owned(), Value::from(value))).collect();
                    if let Some(wanted) = self.overseer.switches(&Value::Object(details)) {
                        pause(wanted.delay_before_commit_ms).await;
                    }
                }
                Some(json_answer(StatusCode::OK, &json!(self.report().await)))
            }
            (&Method::GET, _, Some(_)) if self.overseer.refuses_look_up() => {
                Some(problem(StatusCode::UNAUTHORIZED, "not_allowed", "this caller may not ask"))
            }
            (&Method::GET, _, Some(key)) => Some(self.look_up(&percent_decoded(key)).await),
            (&Method::GET, "/switches", _) => Some(json_answer(StatusCode::OK, &json!(*locked(&self.switches)))),
            (&Method::POST, "/switches", _) => Some(self.change_switches(request).await),
            _ => Some(problem(StatusCode::NOT_FOUND, "not_found", "no such route")),
        }
    }

    async fn book(&self, request: Request<hyper::body::Incoming>, duplicate: &mut bool) -> Option<Response<Body>> {
        let key = match request.headers().get("idempotency-key").map(HeaderValue::to_str) {
            None => None,
            Some(Ok(key)) if (1..=MAX_KEY_BYTES).contains(&key.len()) => Some(key.to_owned()),
            Some(_) => {
                return Some(problem(
                    StatusCode::BAD_REQUEST,
                    "bad_key",
                    "Idempotency-Key must be 1 to 255 ASCII characters",
                ));
            }
        };
        if let Some(key) = &key {
            *locked(&self.attempts).entry(key.clone()).or_default() += 1;
        }
        let details = match read_json(request).await {
            Ok(Value::Object(details)) => Value::Object(details),
            Ok(_) => return Some(problem(StatusCode::BAD_REQUEST, "bad_body", "the body must be a JSON object")),
            Err(answer) => return Some(answer),
        };
        let overseen = self.overseer.switches(&details);
        let switches = overseen.unwrap_or(*locked(&self.switches));
        *duplicate |= switches.duplicate_answer;
        if std::mem::take(&mut locked(&self.switches).error_once) || overseen.is_some_and(|wanted| wanted.error_once) {
            return Some(problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the booking system stumbled"));
        }
        pause(switches.delay_before_commit_ms).await;
        if switches.refuse {
            return Some(problem(StatusCode::UNPROCESSABLE_ENTITY, "no_table", "no table is free at that time"));
        }
        let (status, booking) = {
            let mut ledger = self.ledger.lock().await;
            let known = key.as_deref().filter(|_| !switches.ignore_keys).and_then(|key| ledger.by_key(key)).cloned();
            match known {
                Some(booking) if booking.details == details => (StatusCode::OK, booking),
                Some(_) => {
                    return Some(problem(
                        StatusCode::CONFLICT,
                        "key_reused",
                        "this Idempotency-Key was used with another body",
                    ));
                }
                None => match ledger.commit(key, details) {
                    Ok(booking) => (StatusCode::CREATED, booking),
                    Err(error) => {
                        tracing::error!(%error, "the booking file cannot be written");
                        return Some(problem(
                            StatusCode::INTERNAL_SERVER_ERROR,
                            "disk",
                            "the booking could not be kept",
                        ));
                    }
                },
            }
        };
        if status == StatusCode::CREATED
            && let Some(overseer) = &self.overseer.0
        {
            overseer.committed(&booking);
        }
        // Only a booking that this request made can lose its answer: a repeat would say nothing new.
        if status == StatusCode::CREATED
            && (std::mem::take(&mut locked(&self.switches).lose_response_once) || switches.lose_response_once)
        {
            return None;
        }
        pause(switches.delay_after_commit_ms).await;
        let mut answer = json_answer(status, &json!(booking));
        if status == StatusCode::OK {
            answer.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
        }
        Some(answer)
    }

    async fn look_up(&self, key: &str) -> Response<Body> {
        match self.ledger.lock().await.by_key(key) {
            Some(booking) => json_answer(StatusCode::OK, &json!(booking)),
            None => problem(StatusCode::NOT_FOUND, "unknown_key", "no booking was made under this key"),
        }
    }

    async fn change_switches(&self, request: Request<hyper::body::Incoming>) -> Response<Body> {
        let change = match read_json(request).await {
            Ok(change) => change,
            Err(answer) => return answer,
        };
        let mut switches = locked(&self.switches);
        let mut merged = json!(*switches);
        let (Value::Object(all), Value::Object(change)) = (&mut merged, change) else {
            return problem(StatusCode::BAD_REQUEST, "bad_switches", "the body must be a JSON object");
        };
        all.extend(change);
        match serde_json::from_value(merged) {
            Ok(changed) => {
                *switches = changed;
                json_answer(StatusCode::OK, &json!(changed))
            }
            Err(error) => problem(StatusCode::BAD_REQUEST, "bad_switches", &error.to_string()),
        }
    }

    async fn report(&self) -> BookingReport {
        let ledger = self.ledger.lock().await;
        let mut effects = BTreeMap::new();
        for key in ledger.bookings().iter().filter_map(|b| b.key.clone()) {
            *effects.entry(key).or_default() += 1;
        }
        let attempts = locked(&self.attempts).clone();
        BookingReport { bookings: ledger.bookings().to_vec(), effects, attempts }
    }
}

async fn read_json(request: Request<hyper::body::Incoming>) -> Result<Value, Response<Body>> {
    let bytes = to_bytes(Body::new(request.into_body()), MAX_BODY_BYTES).await.map_err(|_| {
        problem(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "the body is longer than 64 KiB or broke off")
    })?;
    serde_json::from_slice(&bytes).map_err(|error| problem(StatusCode::BAD_REQUEST, "bad_json", &error.to_string()))
}

fn json_answer(status: StatusCode, body: &Value) -> Response<Body> {
    let mut answer = Response::new(Body::from(body.to_string()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

fn problem(status: StatusCode, error: &str, message: &str) -> Response<Body> {
    json_answer(status, &json!({ "error": error, "message": message }))
}

/// A key travels in the path as one escaped segment.
fn percent_decoded(segment: &str) -> String {
    let escaped = segment.replace('+', "%2B").replace('&', "%26");
    url::form_urlencoded::parse(escaped.as_bytes()).next().map(|(key, _)| key.into_owned()).unwrap_or_default()
}

async fn pause(ms: u64) {
    if ms > 0 {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

/// A poisoned lock guards plain values that are whole between statements.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
