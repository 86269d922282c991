//! Listening, serving, and stopping without losing a call.
//!
//! Connections are served by hyper directly and not by `axum::serve`: its connection builder wraps the socket, and a call
//! wants the `TcpStream` itself back after the upgrade.

use crate::calls::{CallStarter, Calls};
use crate::doors::{AddressError, Addresses, Doors};
use crate::events::LiveEvents;
use crate::health::{ModelHealth, StoreHealth};
use crate::measures::{Measures, MeasuresUnavailable};
use crate::records::CallRecords;
use crate::settings::ServerSettings;
use crate::twilio::{Carrier, StreamTokens};
use crate::{admin, health, twilio};
use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use secrecy::ExposeSecret;
use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::TimeoutLayer;
use url::Url;

/// Histogram samples pile up between two upkeeps; tokens expire after a minute.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);
/// Out of file descriptors: accepting again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Ordinary requests in flight get this long when the doors close.
const CLOSING_CAP: Duration = Duration::from_secs(1);

/// What stands behind the doors.
pub struct Wiring {
    /// Runs a checked stream's call.
    pub starter: Arc<dyn CallStarter>,
    /// The durable record of calls.
    pub records: Arc<dyn CallRecords>,
    /// Whether calls get their model; the driver of calls says so.
    pub model: Arc<ModelHealth>,
    /// The broadcast that `/api/v1/events` follows; drivers publish into the same one.
    pub events: LiveEvents,
}

/// Why the doors cannot open.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot listen on {at}")]
    Bind { at: SocketAddr, source: io::Error },
    #[error("public address {url}: {why}")]
    PublicUrl { url: Url, why: String },
    #[error("no public address is set; without one the server listens on loopback only, not on {0}")]
    NoPublicUrl(SocketAddr),
    #[error("no Twilio auth token or shared key is set: every webhook would have to be refused")]
    NoCarrierSecret,
    #[error(transparent)]
    Measures(#[from] MeasuresUnavailable),
}

/// How the server stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Calls that did not end within the grace and were closed. Their tail of TwiML leads them to another process.
    pub calls_closed: usize,
}

/// Turns the server to draining while it goes on serving: `/readyz` says no, new calls hear busy, running calls go on.
#[derive(Clone)]
pub struct DrainSwitch(Arc<Calls>);

impl DrainSwitch {
    pub fn drain(&self) {
        self.0.start_draining();
    }
}

/// The doors, open for connections but not served yet.
pub struct Server {
    listener: TcpListener,
    local_addr: SocketAddr,
    router: Router,
    doors: Arc<Doors>,
}

impl Server {
    /// Listens. Nothing is answered before [`Server::run`].
    pub async fn bind(settings: ServerSettings, wiring: Wiring) -> Result<Self, ServerError> {
        let ServerSettings { bind, public_url, twilio, admin_token, agent, limits } = settings;
        let mut secrets = twilio.auth_tokens.iter().chain(twilio.shared_keys.iter().map(|(_, secret)| secret));
        if secrets.all(|secret| secret.expose_secret().is_empty()) {
            return Err(ServerError::NoCarrierSecret);
        }
        let measures = Measures::of_this_process()?;
        let listener = TcpListener::bind(bind).await.map_err(|source| ServerError::Bind { at: bind, source })?;
        let local_addr = listener.local_addr().map_err(|source| ServerError::Bind { at: bind, source })?;
        let addresses = match &public_url {
            Some(url) => Addresses::new(url)
                .map_err(|why: AddressError| ServerError::PublicUrl { url: url.clone(), why: why.to_string() })?,
            None if local_addr.ip() == Ipv4Addr::LOCALHOST || local_addr.ip() == Ipv6Addr::LOCALHOST => {
                Addresses::of_loopback(local_addr)
            }
            None => return Err(ServerError::NoPublicUrl(local_addr)),
        };
        let doors = Arc::new(Doors {
            carrier: Carrier::new(twilio),
            addresses,
            // One place for each call that may be promised a stream; resumes of running calls come on top.
            tokens: StreamTokens::new(limits.token_ttl, limits.max_calls.saturating_mul(2)),
            calls: Arc::new(Calls::new(limits.max_calls, limits.close_cap, wiring.events.clone())),
            arrivals: Arc::new(Semaphore::new(limits.max_waiting_streams)),
            starter: wiring.starter,
            store: StoreHealth::new(Arc::clone(&wiring.records)),
            records: wiring.records,
            model: wiring.model,
            events: wiring.events,
            measures,
            admin_token,
            agent,
            limits,
            closing: CancellationToken::new(),
        });
        Ok(Self { listener, local_addr, router: router(&doors), doors })
    }

    /// The bound address, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// A switch to start draining before the server is told to stop.
    pub fn drain_switch(&self) -> DrainSwitch {
        DrainSwitch(Arc::clone(&self.doors.calls))
    }

    /// Serves until `until` is cancelled, then stops gracefully: no new call, running calls up to the grace, then their
    /// sockets, then the doors. Health, metrics and resumes are answered to the end, so that the outside can watch the drain.
    pub async fn run(self, until: CancellationToken) -> Stopped {
        let Self { listener, local_addr, router, doors } = self;
        // Also when this future is dropped: nothing may go on serving behind our back.
        let _closing = doors.closing.clone().drop_guard();
        let connections = TaskTracker::new();
        connections.spawn(upkeep(Arc::clone(&doors)));
        connections.spawn(serve(listener, router, Arc::clone(&doors), connections.clone()));
        tracing::info!(%local_addr, "listening");

        until.cancelled().await;
        tracing::info!(calls = doors.calls.count(), "stopping: no new call is taken");
        let calls_closed = doors.calls.drain(doors.limits.drain_grace).await;
        doors.closing.cancel();
        connections.close();
        if tokio::time::timeout(CLOSING_CAP + CLOSING_CAP, connections.wait()).await.is_err() {
            tracing::warn!(left = connections.len(), "connections did not close in time");
        }
        tracing::info!(calls_closed, "stopped");
        Stopped { calls_closed }
    }
}

fn router(doors: &Arc<Doors>) -> Router {
    let limits = doors.limits;
    let api = Router::new()
        .route("/api/v1/calls", get(admin::calls))
        .route("/api/v1/calls/{call_sid}", get(admin::call))
        .route("/api/v1/calls/{call_sid}/history", get(admin::history))
        .route("/api/v1/events", get(admin::events))
        .route_layer(from_fn_with_state(Arc::clone(doors), admin::admit));
    let timed = Router::new()
        .route("/twilio/voice", post(twilio::voice))
        .route("/twilio/resume", post(twilio::resume))
        .route("/twilio/status", post(twilio::status))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .merge(api)
        .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, limits.request_timeout));
    Router::new()
        .route("/twilio/stream", axum::routing::any(twilio::stream))
        .merge(timed)
        .layer(RequestBodyLimitLayer::new(limits.max_body_bytes))
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(Arc::clone(doors))
}

#[allow(clippy::needless_pass_by_value)] // The layer's signature.
fn panicked(_: Box<dyn std::any::Any + Send + 'static>) -> Response {
    metrics::counter!("http_panics_total").increment(1);
    tracing::error!("a request's handling panicked");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

async fn upkeep(doors: Arc<Doors>) {
    let mut ticks = tokio::time::interval(UPKEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = doors.closing.cancelled() => {
                // After a drain there are none; when `run` was dropped, nobody else tells them.
                doors.calls.start_draining();
                doors.calls.close_all();
                return;
            }
            _ = ticks.tick() => {
                doors.measures.upkeep();
                doors.tokens.sweep();
            }
        }
    }
}

async fn serve(listener: TcpListener, router: Router, doors: Arc<Doors>, connections: TaskTracker) {
    let places = Arc::new(Semaphore::new(doors.limits.max_connections));
    loop {
        let accepted = tokio::select! {
            () = doors.closing.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_the_peers(&error) => continue,
            Err(error) => {
                tracing::error!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            metrics::counter!("connections_refused_total").increment(1);
            tracing::warn!(%peer, at_most = doors.limits.max_connections, "connection refused: all places are taken");
            // Best effort, without waiting: a fresh socket has room for it.
            if let Ok(mut socket) = socket.into_std() {
                let _ =
                    socket.write(b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            }
            continue;
        };
        // A media frame must not wait for the acknowledgement of the one before (Nagle).
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%peer, %error, "connection lost before its first request");
            continue;
        }
        let (router, doors) = (router.clone(), Arc::clone(&doors));
        connections.spawn(async move {
            converse(socket, router, &doors).await;
            drop(place);
        });
    }
}

/// Serves one connection to its end or to its upgrade.
async fn converse(socket: TcpStream, router: Router, doors: &Doors) {
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        router.clone().oneshot(request.map(Body::new))
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(doors.limits.header_timeout)
        .serve_connection(TokioIo::new(socket), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = doors.closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(CLOSING_CAP, connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended badly");
    }
}

/// An accept error that belongs to one peer and not to us.
fn is_the_peers(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset)
}
