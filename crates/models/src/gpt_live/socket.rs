//! One Live session over one WebSocket: the only file of this adapter that awaits. The queueing is the [`Link`]'s, the
//! meaning the [`LiveSession`]'s; here are the clock, and the caller's audio.

use super::commands::Obeyed;
use super::session::{LiveSession, Received};
use super::wire::{self, Ignored};
use super::{GptLiveSettings, encode};
use crate::link::{Counts, Due, Link, wrong_format};
use crate::{ModelError, SessionConfig, connect, json};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};
use vocab::model::{ModelCommand, ModelEvent};

/// Caller audio kept until the session has started; the newest. The model hears a stream in real time, so all that it is
/// given at once it is behind by from then on: enough for a "hello?", and no more.
pub const HELD_AUDIO_BYTES: usize = 16_000;
/// Longest piece of held audio in one message.
const HELD_PIECE_BYTES: usize = 4_000;

/// See the module.
#[derive(Debug)]
pub struct LiveSocket<S> {
    link: Link<S>,
    session: LiveSession,
    held_audio: VecDeque<u8>,
    opened: Instant,
    timer: Pin<Box<Sleep>>,
    /// What the timer is set for.
    armed_ms: Option<u64>,
}

impl LiveSocket<MaybeTlsStream<TcpStream>> {
    /// Opens the connection and queues `session.start`. Bounded by [`connect::CONNECT_TIMEOUT`].
    pub async fn connect(config: &SessionConfig, settings: &GptLiveSettings) -> Result<Self, ModelError> {
        // The model is named in `session.start`, not in the address.
        let url = connect::endpoint(config, "/live/sessions")?;
        let ws = connect::open(&url, config).await?;
        Ok(Self::over(ws, config, settings))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> LiveSocket<S> {
    /// A session over an established WebSocket (made with [`crate::link::websocket_config`]); queues `session.start`.
    pub fn over(ws: WebSocketStream<S>, config: &SessionConfig, settings: &GptLiveSettings) -> Self {
        let opened = Instant::now();
        let mut socket = Self {
            link: Link::over(ws),
            session: LiveSession::new(config, settings),
            held_audio: VecDeque::new(),
            opened,
            timer: Box::pin(sleep_until(opened)),
            armed_ms: None,
        };
        socket.queue_all();
        socket
    }

    /// The next event; writes what is queued while it waits. The μ-law of [`ModelEvent::AudioReceived`] is appended to
    /// `audio`, which stays as it is for any other event. The loss of the connection is an event too, told once; after
    /// it comes [`ModelError::Ended`].
    ///
    /// Cancel safe: nothing that was read is lost with the future.
    pub async fn next(&mut self, audio: &mut Vec<u8>) -> Result<ModelEvent, ModelError> {
        poll_fn(|cx| self.poll_next(cx, audio)).await
    }

    /// As [`LiveSocket::next`], for an owner that polls by itself.
    pub fn poll_next(&mut self, cx: &mut Context<'_>, audio: &mut Vec<u8>) -> Poll<Result<ModelEvent, ModelError>> {
        loop {
            // What came before the end is told before it.
            if let Some(event) = self.session.next_event(audio) {
                return Poll::Ready(Ok(self.link.tell(event)));
            }
            match self.link.due() {
                Some(Due::Event(event)) => return Poll::Ready(Ok(event)),
                Some(Due::Ended) => return Poll::Ready(Err(ModelError::Ended)),
                None => {}
            }
            if self.poll_time(cx).is_ready() {
                continue;
            }
            match self.link.poll_text(cx) {
                Poll::Ready(Some(text)) => {
                    if let Some(error) = self.take(&text) {
                        return Poll::Ready(Err(error));
                    }
                }
                Poll::Ready(None) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Queues caller audio, μ-law at 8 kHz. Never waits; allocates nothing once the buffers have grown. Until the session
    /// has started the newest [`HELD_AUDIO_BYTES`] are kept. What becomes of it while the provider does not read says
    /// [`Link::takes_audio`].
    pub fn append_audio(&mut self, mulaw: &[u8]) {
        if !self.session.is_started() {
            self.held_audio.extend(mulaw);
            let over = self.held_audio.len().saturating_sub(HELD_AUDIO_BYTES);
            self.held_audio.drain(..over);
            return;
        }
        if self.link.takes_audio(mulaw) {
            encode::audio(mulaw, &mut self.link.out);
            self.link.queue();
        }
    }

    /// Queues a command. Never waits. One that has no counterpart here is dropped and counted; one whose text is longer
    /// than anybody would listen to is cut and told as the non-fatal error `command_too_large`.
    pub fn send(&mut self, command: &ModelCommand) {
        if self.link.is_over() {
            return;
        }
        let now_ms = self.now_ms();
        match self.session.command(now_ms, command) {
            Obeyed::Yes => {}
            Obeyed::NothingToDo => {
                self.link.counts.dropped_commands += 1;
                tracing::debug!("a command has no counterpart in a Live session");
            }
            Obeyed::Shortened => {
                self.link.report("command_too_large", "a text for the model was cut: the service takes no longer one");
            }
        }
        self.queue_all();
    }

    /// Whether anything may still wait to be written.
    pub fn has_queued(&self) -> bool {
        self.link.has_queued()
    }

    /// Whether [`LiveSocket::next`] has to be asked again though nothing came from the wire.
    pub fn has_news(&mut self) -> bool {
        let is_timed_anew = !self.link.is_over() && self.session.next_tick_ms() != self.armed_ms;
        is_timed_anew || self.session.has_events() || self.link.has_news()
    }

    /// See [`Link::look_alive`].
    pub fn look_alive(&mut self, now: Instant) {
        self.link.look_alive(now);
    }

    /// Writes what is queued. A failure ends the session, which `next` tells.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.link.poll_flush(cx)
    }

    /// Writes what is queued and waits for it. Cancel safe: what was not written stays queued.
    pub async fn flush(&mut self) {
        poll_fn(|cx| self.poll_flush(cx)).await;
    }

    /// Asks the service to close the session and waits for its last word and the end of the connection, at most
    /// [`crate::link::CLOSE_TIMEOUT`]. The service may take ten seconds to finish a backend's run; nobody would hear what
    /// comes of it, and operations are not its runs.
    pub async fn close(&mut self) {
        let id = self.session.event_id("close");
        let may_ask = self.session.is_started() && !self.link.is_over();
        if may_ask {
            json::write(&encode::session_close(&id), &mut self.link.out);
            self.link.queue();
        }
        self.link.close(may_ask.then_some(wire::is_last_word)).await;
    }

    pub fn counts(&self) -> Counts {
        let mut counts = self.link.counts;
        counts.dropped_commands += self.session.dropped;
        counts
    }

    fn take(&mut self, text: &str) -> Option<ModelError> {
        let was_started = self.session.is_started();
        let now_ms = self.now_ms();
        match self.session.receive(now_ms, text) {
            Received::Taken | Received::Ignored(Ignored::Uninteresting) => {}
            Received::WrongFormat(format) => {
                self.link.end();
                return Some(wrong_format(format.clone(), format));
            }
            Received::Ignored(Ignored::Unknown) => {
                self.link.counts.unknown_events += 1;
                tracing::trace!(text, "unknown event");
            }
            Received::Ignored(Ignored::Malformed) => {
                self.link.counts.malformed_events += 1;
                tracing::trace!(text, "malformed event");
            }
        }
        if !was_started && self.session.is_started() {
            let expiry = self.session.expires_at.and_then(connect::expiry);
            expiry.into_iter().for_each(|event| self.link.tell_first(event));
            self.give_held_audio();
        }
        self.queue_all();
        None
    }

    /// What was heard before it was said before.
    fn give_held_audio(&mut self) {
        let mut held = std::mem::take(&mut self.held_audio);
        for piece in held.make_contiguous().chunks(HELD_PIECE_BYTES) {
            self.append_audio(piece);
        }
    }

    fn queue_all(&mut self) {
        while let Some(event) = self.session.next_client_event() {
            json::write(&event, &mut self.link.out);
            self.link.queue_command();
        }
    }

    /// Ready when time has brought something about.
    fn poll_time(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let next_ms = self.session.next_tick_ms();
        if next_ms != self.armed_ms {
            self.armed_ms = next_ms;
            if let Some(next_ms) = next_ms {
                self.timer.as_mut().reset(self.opened + Duration::from_millis(next_ms));
            }
        }
        if self.armed_ms.is_none() || self.timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        let now_ms = self.now_ms();
        self.session.tick(now_ms);
        self.armed_ms = None;
        self.queue_all();
        Poll::Ready(())
    }

    fn now_ms(&self) -> u64 {
        self.opened.elapsed().as_millis() as u64
    }
}
