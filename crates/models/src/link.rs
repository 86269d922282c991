//! One WebSocket to a provider, whoever that is: bounded writing, the order in which news are told, the end of a session.
//! What the messages say is the adapter's.
//!
//! The owner is one task. It queues without waiting; [`Link::poll_text`] writes what is queued before it reads, so that
//! everything queued in one step of the call leaves in one write, and one branch of the owner's loop serves both
//! directions.

use crate::ModelError;
use bytes::{Bytes, BytesMut};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use vocab::audio::SAMPLES_PER_MS;
use vocab::model::ModelEvent;

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
/// A provider from which nothing has come for so long is asked whether it is there …
pub const PING_AFTER: Duration = Duration::from_secs(5);
/// … and is lost when it does not say so in this time.
pub const PONG_WITHIN: Duration = Duration::from_secs(5);
/// A command larger than this is refused and reported: no model would read it.
pub const COMMAND_BYTES: usize = 1024 * 1024;

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

/// What to do next, when nothing has to be read for it.
pub enum Due {
    Event(ModelEvent),
    Ended,
}

/// See the module.
#[derive(Debug)]
pub struct Link<S> {
    ws: WebSocketStream<S>,
    /// Where one message is written before it is queued; its memory comes back when tungstenite has copied it.
    pub out: BytesMut,
    /// At least what tungstenite still holds: it does not tell, so this falls to zero only when all is written.
    queued_bytes: usize,
    in_backlog: bool,
    /// Events to be told before anything else is read.
    waiting: VecDeque<ModelEvent>,
    /// Why the session is over, until it is told.
    lost: Option<String>,
    ended: bool,
    /// Something came since this was last looked at.
    heard: bool,
    /// Since when nothing has come, and since when a ping has waited for its pong.
    silent_since: Option<Instant>,
    pinged: Option<Instant>,
    /// The provider has taken the session as we want it.
    ready: bool,
    pub counts: Counts,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Link<S> {
    /// Over an established WebSocket, made with [`websocket_config`].
    pub fn over(ws: WebSocketStream<S>) -> Self {
        Self {
            ws,
            out: BytesMut::new(),
            queued_bytes: 0,
            in_backlog: false,
            waiting: VecDeque::new(),
            lost: None,
            ended: false,
            heard: true,
            silent_since: None,
            pinged: None,
            ready: false,
            counts: Counts::default(),
        }
    }

    /// What has to be told before anything is read. The loss of the connection is told once.
    pub fn due(&mut self) -> Option<Due> {
        if let Some(event) = self.waiting.pop_front() {
            return Some(Due::Event(self.tell(event)));
        }
        if self.ended {
            return Some(Due::Ended);
        }
        let reason = self.lost.take()?;
        Some(Due::Event(self.tell(ModelEvent::SessionLost { reason })))
    }

    /// The next text message; writes what is queued first. `None` when there is news for [`Link::due`] instead.
    pub fn poll_text(&mut self, cx: &mut Context<'_>) -> Poll<Option<Utf8Bytes>> {
        loop {
            if self.queued_bytes > 0 {
                // Not done yet is no reason to stop reading: a peer that waits for us to read would never go on.
                let _ = self.poll_flush(cx);
            }
            if self.lost.is_some() {
                return Poll::Ready(None);
            }
            let message = ready!(Pin::new(&mut self.ws).poll_next(cx));
            self.heard = true;
            match message {
                Some(Ok(Message::Text(text))) => return Poll::Ready(Some(text)),
                Some(Ok(Message::Binary(_))) => self.counts.unknown_events += 1,
                // Tungstenite has queued the pong, and sends it when the socket is read next.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(frame))) => self.lose(close_reason(frame.as_ref())),
                Some(Err(error)) => self.lose(error.to_string()),
                None => self.lose("the connection was closed".to_owned()),
            }
        }
    }

    /// To be called now and then. A provider from which nothing comes is asked by a ping; one that does not answer that is lost,
    /// though its socket stands: a process that froze, or a path that drops everything.
    pub fn look_alive(&mut self, now: Instant) {
        if std::mem::take(&mut self.heard) {
            self.silent_since = Some(now);
            self.pinged = None;
            return;
        }
        match (self.pinged, self.silent_since) {
            _ if self.is_over() => {}
            (Some(pinged), _) if now.duration_since(pinged) >= PONG_WITHIN => {
                self.lose(format!("the provider has not answered a ping within {} s", PONG_WITHIN.as_secs()));
            }
            (None, Some(since)) if now.duration_since(since) >= PING_AFTER => {
                self.pinged = Some(now);
                if let Err(error) = Pin::new(&mut self.ws).start_send(Message::Ping(Bytes::new())) {
                    self.lose(error.to_string());
                }
                // Written with whatever comes next, and that is the caller's audio.
                self.queued_bytes += 1;
            }
            _ => {}
        }
    }

    /// Whether caller audio may be queued now. While the provider does not read and [`AUDIO_BACKLOG_BYTES`] wait, audio is
    /// dropped and counted; the first loss of a backlog is told as the non-fatal error `audio_backlog`.
    pub fn takes_audio(&mut self, mulaw: &[u8]) -> bool {
        if mulaw.is_empty() || self.is_over() {
            return false;
        }
        if self.queued_bytes <= AUDIO_BACKLOG_BYTES {
            return true;
        }
        self.counts.dropped_audio_ms += mulaw.len() as u64 / u64::from(SAMPLES_PER_MS);
        if !std::mem::replace(&mut self.in_backlog, true) {
            tracing::warn!(queued_bytes = self.queued_bytes, "the model provider does not read; audio is dropped");
            self.report("audio_backlog", "caller audio is dropped: the provider does not read");
        }
        false
    }

    /// Queues the message in `out` unless it is above [`COMMAND_BYTES`], which is told as the non-fatal error
    /// `command_too_large`.
    pub fn queue_command(&mut self) {
        if self.out.len() <= COMMAND_BYTES {
            return self.queue();
        }
        tracing::error!(bytes = self.out.len(), "a command for the model is too large and is not sent");
        self.out = BytesMut::new();
        self.counts.dropped_commands += 1;
        self.report("command_too_large", "a command was not sent: it is larger than any model would read");
    }

    /// Hands the one message in `out` to tungstenite.
    pub fn queue(&mut self) {
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

    /// Whether anything may still wait to be written.
    pub fn has_queued(&self) -> bool {
        self.queued_bytes > 0
    }

    /// Whether [`Link::due`] has something to tell that did not come from the wire.
    pub fn has_news(&self) -> bool {
        !self.waiting.is_empty() || self.lost.is_some()
    }

    /// Writes what is queued. A failure ends the session.
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

    /// Ends the session: what is queued is sent, then the WebSocket is closed, after the provider's last word where the
    /// protocol has one. All of it takes at most [`CLOSE_TIMEOUT`], since the caller has left and nobody needs the rest.
    pub async fn close(&mut self, is_last_word: Option<fn(&str) -> bool>) {
        self.ended = true;
        let goodbye = async {
            if self.ws.flush().await.is_err() {
                return;
            }
            if let Some(is_last_word) = is_last_word {
                while let Some(Ok(message)) = self.ws.next().await {
                    if matches!(&message, Message::Text(text) if is_last_word(text)) {
                        break;
                    }
                }
            }
            if self.ws.close(None).await.is_ok() {
                while let Some(Ok(_)) = self.ws.next().await {}
            }
        };
        if timeout(CLOSE_TIMEOUT, goodbye).await.is_err() {
            tracing::debug!("the model provider did not answer the close in time");
        }
    }

    /// Tells `event` before anything that is read later.
    pub fn tell_first(&mut self, event: ModelEvent) {
        self.waiting.push_back(event);
    }

    /// Tells an error of our own.
    pub fn report(&mut self, code: &str, message: &str) {
        let (code, message) = (code.to_owned(), message.to_owned());
        self.waiting.push_back(ModelEvent::ErrorReported { code, message, fatal: false });
    }

    /// Nothing is told any more.
    pub fn end(&mut self) {
        self.ended = true;
    }

    pub fn lose(&mut self, reason: String) {
        // The first reason is the cause; the others follow from it.
        self.lost.get_or_insert(reason);
    }

    pub fn is_over(&self) -> bool {
        self.ended || self.lost.is_some()
    }

    /// Every event passes here on its way out: the loss of the session is the last one.
    pub fn tell(&mut self, event: ModelEvent) -> ModelEvent {
        match &event {
            ModelEvent::SessionReady => self.ready = true,
            // Before a call can use the session, its core has nothing to log: key, model or instructions are not liked.
            ModelEvent::ErrorReported { code, message, fatal } if !self.ready => {
                let message = crate::connect::shortened(message.clone());
                tracing::warn!(code, message, fatal, "the model provider reports an error before the session is ready");
            }
            ModelEvent::SessionLost { reason } => {
                if !self.ready {
                    tracing::warn!(reason, "the model session ended before it was ready");
                }
                self.ended = true;
                self.waiting.clear();
            }
            ModelEvent::ErrorReported { .. }
            | ModelEvent::SessionOpened { .. }
            | ModelEvent::SessionExpires { .. }
            | ModelEvent::SpeechStarted
            | ModelEvent::SpeechStopped
            | ModelEvent::TurnCommitted { .. }
            | ModelEvent::CallerTranscript { .. }
            | ModelEvent::ResponseCreated { .. }
            | ModelEvent::AudioReceived { .. }
            | ModelEvent::TranscriptReceived { .. }
            | ModelEvent::ToolCallReceived { .. }
            | ModelEvent::ResponseEnded { .. }
            | ModelEvent::CreateRefused { .. } => {}
        }
        event
    }
}

/// The provider's session does not hold μ-law both ways.
pub fn wrong_format(input: Option<String>, output: Option<String>) -> ModelError {
    let name = |format: Option<String>| format.unwrap_or_else(|| "an unnamed format".to_owned());
    ModelError::WrongFormat { input: name(input), output: name(output) }
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

fn close_reason(frame: Option<&CloseFrame>) -> String {
    match frame {
        Some(frame) if frame.reason.is_empty() => format!("closed by the provider with code {}", frame.code),
        Some(frame) => format!("closed by the provider with code {}: {}", frame.code, frame.reason),
        None => "closed by the provider".to_owned(),
    }
}
