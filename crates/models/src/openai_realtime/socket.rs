//! One Realtime session over one WebSocket: the only file of this adapter that awaits.
//!
//! The owner is one task. It appends and sends without waiting; [`RealtimeSocket::next`] writes what is queued before it
//! reads, so that everything queued in one step of the call leaves in one write, and one branch of the owner's loop
//! serves both directions.

use super::ids::Ids;
use super::tls;
use super::wire::{self, Decoded, Dropped, Encoded, Ignored, Standing};
use crate::{ModelError, SessionConfig};
use bytes::BytesMut;
use futures_util::{Sink, Stream, StreamExt};
use secrecy::ExposeSecret;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::TlsError;
use tokio_tungstenite::tungstenite::http::header::{AUTHORIZATION, RETRY_AFTER};
use tokio_tungstenite::tungstenite::http::{HeaderMap, HeaderValue, Request};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream, client_async_tls_with_config};
use url::Url;
use vocab::audio::SAMPLES_PER_MS;
use vocab::model::{ModelCommand, ModelEvent};

/// DNS, TCP, TLS and upgrade together. A caller waits meanwhile, and ten seconds of nothing is where callers hang up.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The whole closing handshake; a peer that does not answer it is left behind.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// A longer message grows the buffer by itself. Tungstenite fills it with zeroes before each look at the socket: its default
/// of 128 KiB costs half the CPU and twelve times the memory of a call.
pub const READ_BUFFER_BYTES: usize = 1024;
/// Queued bytes above which tungstenite writes without being flushed.
pub const WRITE_BUFFER_BYTES: usize = 16 * 1024;
/// Largest message taken. Audio comes in pieces of some kilobytes; the largest known event echoes a whole session.
pub const MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Caller audio is dropped, newest first, while more than this waits for a provider that does not read: about six seconds.
pub const AUDIO_BACKLOG_BYTES: usize = 96 * 1024;
/// Commands are never dropped for a slow provider; when this much waits, the session is lost.
pub const BACKLOG_BYTES: usize = 4 * 1024 * 1024;
/// A command larger than this is refused and reported: no model would read it.
pub const COMMAND_BYTES: usize = 1024 * 1024;
/// Longest part of a provider's refusal that is kept for people to read.
const DETAIL_BYTES: usize = 300;

/// Everything without consequence, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events of a type that we do not know.
    pub unknown_events: u64,
    /// Messages that made no sense.
    pub malformed_events: u64,
    /// Commands that would only have earned an error.
    pub dropped_commands: u64,
    /// Caller audio not sent since the provider did not read.
    pub dropped_audio_ms: u64,
}

/// See the module.
#[derive(Debug)]
pub struct RealtimeSocket<S> {
    ws: WebSocketStream<S>,
    ids: Ids,
    standing: Standing,
    /// Where one message is written before it is handed over; its memory comes back when tungstenite has copied it.
    out: BytesMut,
    /// At least what tungstenite still holds: it does not tell, so this falls to zero only when all is written.
    queued_bytes: usize,
    in_backlog: bool,
    /// Events to be told before anything else is read.
    waiting: VecDeque<ModelEvent>,
    /// Why the session is over, until it is told.
    lost: Option<String>,
    ended: bool,
    counts: Counts,
}

impl RealtimeSocket<MaybeTlsStream<TcpStream>> {
    /// Opens the connection and queues `session.update`. Bounded by [`CONNECT_TIMEOUT`].
    pub async fn connect(config: &SessionConfig) -> Result<Self, ModelError> {
        let url = session_url(config)?;
        let after_ms = CONNECT_TIMEOUT.as_millis() as u64;
        timeout(CONNECT_TIMEOUT, open(&url, config)).await.unwrap_or(Err(ModelError::TimedOut { after_ms }))
    }
}

async fn open(url: &Url, config: &SessionConfig) -> Result<RealtimeSocket<MaybeTlsStream<TcpStream>>, ModelError> {
    let request = upgrade_request(url, config)?;
    let bad = |reason: &str| ModelError::BadAddress { url: url.to_string(), reason: reason.to_owned() };
    let host = url.host_str().ok_or_else(|| bad("it names no host"))?;
    let port = url.port_or_known_default().ok_or_else(|| bad("it names no port"))?;
    let address = format!("{host}:{port}");
    let connector = if url.scheme() == "wss" {
        // The first call of a process reads the certificate files.
        let loaded = tokio::task::spawn_blocking(tls::client_config).await;
        Connector::Rustls(loaded.map_err(|died| ModelError::NoTrustedRoots { reason: died.to_string() })??)
    } else {
        Connector::Plain
    };
    let unreachable =
        |reason: std::io::Error| ModelError::Unreachable { address: address.clone(), reason: reason.to_string() };
    let stream = TcpStream::connect(&address).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let (ws, _) = client_async_tls_with_config(request, stream, Some(websocket_config()), Some(connector))
        .await
        .map_err(|error| open_error(error, &address, config))?;
    Ok(RealtimeSocket::over(ws, config))
}

impl<S: AsyncRead + AsyncWrite + Unpin> RealtimeSocket<S> {
    /// A session over an established WebSocket (made with [`websocket_config`]); queues `session.update`.
    pub fn over(ws: WebSocketStream<S>, config: &SessionConfig) -> Self {
        let mut socket = Self {
            ws,
            ids: Ids::default(),
            standing: Standing::of(config),
            out: BytesMut::new(),
            queued_bytes: 0,
            in_backlog: false,
            waiting: VecDeque::new(),
            lost: None,
            ended: false,
            counts: Counts::default(),
        };
        wire::session_update(config, &mut socket.ids, &mut socket.out);
        socket.queue();
        socket
    }

    /// The next event; writes what is queued while it waits. The μ-law of [`ModelEvent::AudioReceived`] is appended to
    /// `audio`, which stays as it is for any other event. The loss of the connection is an event too, told once; after
    /// it comes [`ModelError::Ended`].
    ///
    /// Cancel safe: an event is taken from the socket only in the poll that returns it.
    pub async fn next(&mut self, audio: &mut Vec<u8>) -> Result<ModelEvent, ModelError> {
        poll_fn(|cx| self.poll_next(cx, audio)).await
    }

    /// As [`RealtimeSocket::next`], for an owner that polls by itself.
    pub fn poll_next(&mut self, cx: &mut Context<'_>, audio: &mut Vec<u8>) -> Poll<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Poll::Ready(Ok(self.tell(event)));
            }
            if self.ended {
                return Poll::Ready(Err(ModelError::Ended));
            }
            if let Some(reason) = self.lost.take() {
                return Poll::Ready(Ok(self.tell(ModelEvent::SessionLost { reason })));
            }
            if self.queued_bytes > 0 {
                // Not done yet is no reason to stop reading: a peer that waits for us to read would never go on.
                let _ = self.poll_flush(cx);
                if self.lost.is_some() {
                    continue;
                }
            }
            match ready!(Pin::new(&mut self.ws).poll_next(cx)) {
                Some(Ok(Message::Text(text))) => {
                    if let Some(result) = self.take(&text, audio) {
                        return Poll::Ready(result.map(|event| self.tell(event)));
                    }
                }
                Some(Ok(Message::Binary(_))) => self.counts.unknown_events += 1,
                // Tungstenite has queued the pong, and sends it when the socket is read next.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(frame))) => self.lose(close_reason(frame.as_ref())),
                Some(Err(error)) => self.lose(error.to_string()),
                None => self.lose("the connection was closed".to_owned()),
            }
        }
    }

    /// Queues caller audio, μ-law at 8 kHz. Never waits; allocates nothing once the buffers have grown. While the
    /// provider does not read and [`AUDIO_BACKLOG_BYTES`] wait, audio is dropped and counted; the first loss of a
    /// backlog is told as the non-fatal error `audio_backlog`.
    pub fn append_audio(&mut self, mulaw: &[u8]) {
        if mulaw.is_empty() || self.is_over() {
            return;
        }
        if self.queued_bytes > AUDIO_BACKLOG_BYTES {
            self.counts.dropped_audio_ms += mulaw.len() as u64 / u64::from(SAMPLES_PER_MS);
            if !std::mem::replace(&mut self.in_backlog, true) {
                tracing::warn!(queued_bytes = self.queued_bytes, "the model provider does not read; audio is dropped");
                self.report("audio_backlog", "caller audio is dropped: the provider does not read");
            }
            return;
        }
        wire::append(mulaw, &mut self.out);
        self.queue();
    }

    /// Queues a command. Never waits. One that would only earn an error is dropped and counted; one above
    /// [`COMMAND_BYTES`] is told as the non-fatal error `command_too_large`.
    pub fn send(&mut self, command: &ModelCommand) {
        if self.is_over() {
            return;
        }
        match wire::encode(command, &self.standing, &mut self.ids, &mut self.out) {
            Encoded::Written if self.out.len() > COMMAND_BYTES => {
                tracing::error!(bytes = self.out.len(), "a command for the model is too large and is not sent");
                self.out = BytesMut::new();
                self.counts.dropped_commands += 1;
                self.report("command_too_large", "a command was not sent: it is larger than any model would read");
            }
            Encoded::Written => self.queue(),
            Encoded::Deferred => tracing::debug!("the response is not created yet; it will be cancelled then"),
            Encoded::Dropped(why) => {
                self.counts.dropped_commands += 1;
                match why {
                    Dropped::CommitWithTurnDetection | Dropped::NotTheModels => {
                        tracing::warn!(?why, "a command for the model is dropped");
                    }
                    Dropped::NothingToCancel | Dropped::NoSuchItem | Dropped::AlreadyShorter => {
                        tracing::debug!(?why, "a command for the model is dropped");
                    }
                }
            }
        }
    }

    /// Whether anything may still wait to be written.
    pub fn has_queued(&self) -> bool {
        self.queued_bytes > 0
    }

    /// Whether [`RealtimeSocket::next`] has something to tell that did not come from the wire.
    pub fn has_news(&self) -> bool {
        !self.waiting.is_empty() || self.lost.is_some()
    }

    /// Writes what is queued. A failure ends the session, which `next` tells.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.queued_bytes == 0 || self.is_over() {
            return Poll::Ready(());
        }
        match ready!(Pin::new(&mut self.ws).poll_flush(cx)) {
            Ok(()) => {
                self.queued_bytes = 0;
                self.in_backlog = false;
            }
            Err(error) => self.lose(error.to_string()),
        }
        Poll::Ready(())
    }

    /// Writes what is queued and waits for it. Cancel safe: what was not written stays queued.
    pub async fn flush(&mut self) {
        poll_fn(|cx| self.poll_flush(cx)).await;
    }

    /// Says goodbye, waits for the answer at most [`CLOSE_TIMEOUT`], and ends the session. What is queued is sent first.
    pub async fn close(&mut self) {
        self.ended = true;
        let goodbye = async {
            if self.ws.close(None).await.is_ok() {
                while let Some(Ok(_)) = self.ws.next().await {}
            }
        };
        if timeout(CLOSE_TIMEOUT, goodbye).await.is_err() {
            tracing::debug!("the model provider did not answer the close in time");
        }
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn take(&mut self, text: &Utf8Bytes, audio: &mut Vec<u8>) -> Option<Result<ModelEvent, ModelError>> {
        let decoded = wire::decode(text, &mut self.ids, audio);
        while wire::cancel_due(&mut self.ids, &mut self.out) {
            self.queue();
        }
        match decoded {
            Decoded::Event(event) => Some(Ok(event)),
            Decoded::Events(events) => {
                self.waiting.extend(events);
                self.waiting.pop_front().map(Ok)
            }
            Decoded::WrongFormat { input, output } => {
                let name = |format: Option<String>| format.unwrap_or_else(|| "an unnamed format".to_owned());
                self.ended = true;
                Some(Err(ModelError::WrongFormat { input: name(input), output: name(output) }))
            }
            Decoded::Ignored(Ignored::Uninteresting | Ignored::Repeated) => None,
            Decoded::Ignored(Ignored::Unknown) => {
                self.counts.unknown_events += 1;
                tracing::trace!(text = text.as_str(), "unknown event");
                None
            }
            Decoded::Ignored(Ignored::Malformed) => {
                self.counts.malformed_events += 1;
                tracing::trace!(text = text.as_str(), "malformed event");
                None
            }
        }
    }

    /// Hands the one message in `out` to tungstenite.
    fn queue(&mut self) {
        let bytes = self.out.split().freeze();
        self.queued_bytes += bytes.len();
        if self.queued_bytes > BACKLOG_BYTES {
            self.lose(format!("the provider does not read: {} bytes wait", self.queued_bytes));
            return;
        }
        // Our JSON is UTF-8 always; the check costs less than the reason to trust it.
        let queued = match Utf8Bytes::try_from(bytes) {
            Ok(text) => Pin::new(&mut self.ws).start_send(Message::Text(text)),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = queued {
            self.lose(error.to_string());
        }
    }

    fn report(&mut self, code: &str, message: &str) {
        let (code, message) = (code.to_owned(), message.to_owned());
        self.waiting.push_back(ModelEvent::ErrorReported { code, message, fatal: false });
    }

    fn lose(&mut self, reason: String) {
        // The first reason is the cause; the others follow from it.
        self.lost.get_or_insert(reason);
    }

    fn is_over(&self) -> bool {
        self.ended || self.lost.is_some()
    }

    fn tell(&mut self, event: ModelEvent) -> ModelEvent {
        if matches!(event, ModelEvent::SessionLost { .. }) {
            self.ended = true;
            self.waiting.clear();
        }
        event
    }
}

/// Small buffers, bounded messages.
pub fn websocket_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        // Above our own limit, so that ours is the one that speaks: masking and headers add a little.
        .max_write_buffer_size(2 * BACKLOG_BYTES)
        .max_message_size(Some(MESSAGE_BYTES))
        .max_frame_size(Some(MESSAGE_BYTES))
}

/// `base_url` plus `/realtime?model=…`; a `base_url` that ends in `/realtime` already is taken as it is.
fn session_url(config: &SessionConfig) -> Result<Url, ModelError> {
    let bad = |reason: String| ModelError::BadAddress { url: config.base_url.clone(), reason };
    let mut url = Url::parse(&config.base_url).map_err(|error| bad(error.to_string()))?;
    if !matches!(url.scheme(), "wss" | "ws") {
        return Err(bad(format!(
            "`{}://` is not a WebSocket scheme; use wss:// (or ws:// for loopback)",
            url.scheme()
        )));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(bad("it names no host".to_owned()));
    }
    if url.fragment().is_some() {
        return Err(bad("a fragment (`#…`) cannot be sent".to_owned()));
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&if path.ends_with("/realtime") { path } else { format!("{path}/realtime") });
    url.query_pairs_mut().append_pair("model", &config.model);
    Ok(url)
}

fn upgrade_request(url: &Url, config: &SessionConfig) -> Result<Request<()>, ModelError> {
    let bad = |reason: tungstenite::Error| ModelError::BadAddress { url: url.to_string(), reason: reason.to_string() };
    let mut request = url.as_str().into_client_request().map_err(bad)?;
    let bearer = format!("Bearer {}", config.api_key.expose_secret());
    let mut bearer = HeaderValue::from_str(&bearer).map_err(|_| ModelError::BadKey)?;
    bearer.set_sensitive(true);
    request.headers_mut().insert(AUTHORIZATION, bearer);
    Ok(request)
}

fn open_error(error: tungstenite::Error, address: &str, config: &SessionConfig) -> ModelError {
    let address = address.to_owned();
    match error {
        tungstenite::Error::Http(response) => {
            let body = response.body().as_deref().unwrap_or_default();
            refusal(response.status().as_u16(), response.headers(), body, config)
        }
        tungstenite::Error::Tls(TlsError::Rustls(reason)) => {
            ModelError::NotSecure { address, reason: reason.to_string() }
        }
        tungstenite::Error::Tls(reason) => ModelError::NotSecure { address, reason: reason.to_string() },
        // The TLS handshake's failures arrive as I/O errors that carry rustls's own.
        tungstenite::Error::Io(reason) if reason.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) => {
            ModelError::NotSecure { address, reason: reason.to_string() }
        }
        tungstenite::Error::Io(reason) => ModelError::Unreachable { address, reason: reason.to_string() },
        tungstenite::Error::Url(reason) => ModelError::BadAddress { url: address, reason: reason.to_string() },
        other => ModelError::Protocol { reason: other.to_string() },
    }
}

fn refusal(status: u16, headers: &HeaderMap, body: &[u8], config: &SessionConfig) -> ModelError {
    let said: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let of = |path: &str| said.pointer(path).and_then(serde_json::Value::as_str);
    let detail = of("/error/message").map_or_else(|| String::from_utf8_lossy(body).trim().to_owned(), str::to_owned);
    let detail = shortened(if detail.is_empty() { "no reason given".to_owned() } else { detail });
    let is = |wanted: &str| of("/error/code") == Some(wanted) || of("/error/type") == Some(wanted);
    match status {
        _ if is("model_not_found") => ModelError::NoSuchModel { model: config.model.clone(), detail },
        _ if is("insufficient_quota") || is("credit_balance_exhausted") || is("billing_hard_limit_reached") => {
            ModelError::OutOfQuota { detail }
        }
        401 | 403 => ModelError::Unauthorised { status, detail },
        402 => ModelError::OutOfQuota { detail },
        404 => ModelError::NoSuchModel { model: config.model.clone(), detail },
        429 => {
            let retry_after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            ModelError::RateLimited { retry_after_s: retry_after.and_then(|text| text.trim().parse().ok()), detail }
        }
        500..=599 => ModelError::Unavailable { status, detail },
        _ => ModelError::Refused { status, detail },
    }
}

fn shortened(mut text: String) -> String {
    let mut end = text.len().min(DETAIL_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

fn close_reason(frame: Option<&CloseFrame>) -> String {
    match frame {
        Some(frame) if frame.reason.is_empty() => format!("closed by the provider with code {}", frame.code),
        Some(frame) => format!("closed by the provider with code {}: {}", frame.code, frame.reason),
        None => "closed by the provider".to_owned(),
    }
}
