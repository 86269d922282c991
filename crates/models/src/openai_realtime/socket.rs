//! One Realtime session over one WebSocket: the only file of this adapter that awaits. The queueing is the [`Link`]'s.

use super::ids::Ids;
use super::wire::{self, Decoded, Dropped, Encoded, Ignored, Standing};
use crate::link::{Counts, Due, Link, wrong_format};
use crate::{ModelError, SessionConfig, connect};
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};
use url::Url;
use vocab::model::{ModelCommand, ModelEvent};

/// See the module.
#[derive(Debug)]
pub struct RealtimeSocket<S> {
    link: Link<S>,
    ids: Ids,
    standing: Standing,
}

impl RealtimeSocket<MaybeTlsStream<TcpStream>> {
    /// Opens the connection and queues `session.update`. Bounded by [`connect::CONNECT_TIMEOUT`].
    pub async fn connect(config: &SessionConfig) -> Result<Self, ModelError> {
        let ws = connect::open(&session_url(config)?, config).await?;
        Ok(Self::over(ws, config))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> RealtimeSocket<S> {
    /// A session over an established WebSocket (made with [`crate::link::websocket_config`]); queues `session.update`.
    pub fn over(ws: WebSocketStream<S>, config: &SessionConfig) -> Self {
        let mut socket = Self { link: Link::over(ws), ids: Ids::default(), standing: Standing::of(config) };
        wire::session_update(config, &mut socket.ids, &mut socket.link.out);
        socket.link.queue();
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
            match self.link.due() {
                Some(Due::Event(event)) => return Poll::Ready(Ok(event)),
                Some(Due::Ended) => return Poll::Ready(Err(ModelError::Ended)),
                None => {}
            }
            if let Some(text) = ready!(self.link.poll_text(cx))
                && let Some(result) = self.take(&text, audio)
            {
                return Poll::Ready(result.map(|event| self.link.tell(event)));
            }
        }
    }

    /// Queues caller audio, μ-law at 8 kHz. Never waits; allocates nothing once the buffers have grown. What becomes of
    /// it while the provider does not read says [`Link::takes_audio`].
    pub fn append_audio(&mut self, mulaw: &[u8]) {
        if self.link.takes_audio(mulaw) {
            wire::append(mulaw, &mut self.link.out);
            self.link.queue();
        }
    }

    /// Queues a command. Never waits. One that would only earn an error is dropped and counted; one above
    /// [`crate::link::COMMAND_BYTES`] is told as the non-fatal error `command_too_large`.
    pub fn send(&mut self, command: &ModelCommand) {
        if self.link.is_over() {
            return;
        }
        match wire::encode(command, &self.standing, &mut self.ids, &mut self.link.out) {
            Encoded::Written => self.link.queue_command(),
            Encoded::Deferred => tracing::debug!("the response is not created yet; it will be cancelled then"),
            Encoded::Dropped(why) => {
                self.link.counts.dropped_commands += 1;
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
        self.link.has_queued()
    }

    /// Whether [`RealtimeSocket::next`] has something to tell that did not come from the wire.
    pub fn has_news(&self) -> bool {
        self.link.has_news()
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

    /// Says goodbye, waits for the answer at most [`crate::link::CLOSE_TIMEOUT`], and ends the session. What is queued is
    /// sent first.
    pub async fn close(&mut self) {
        self.link.close(None).await;
    }

    pub fn counts(&self) -> Counts {
        self.link.counts
    }

    fn take(&mut self, text: &Utf8Bytes, audio: &mut Vec<u8>) -> Option<Result<ModelEvent, ModelError>> {
        let decoded = wire::decode(text, &mut self.ids, audio);
        while wire::cancel_due(&mut self.ids, &mut self.link.out) {
            self.link.queue();
        }
        match decoded {
            Decoded::Event(event) => {
                if let Some(expires_at) = self.ids.expires_at.take() {
                    connect::expiry(expires_at).into_iter().for_each(|event| self.link.tell_first(event));
                }
                Some(Ok(event))
            }
            Decoded::Events(events) => {
                let mut events = events.into_iter();
                let first = events.next()?;
                events.for_each(|event| self.link.tell_first(event));
                Some(Ok(first))
            }
            Decoded::WrongFormat { input, output } => {
                self.link.end();
                Some(Err(wrong_format(input, output)))
            }
            Decoded::Ignored(Ignored::Uninteresting | Ignored::Repeated) => None,
            Decoded::Ignored(Ignored::Unknown) => {
                self.link.counts.unknown_events += 1;
                tracing::trace!(text = text.as_str(), "unknown event");
                None
            }
            Decoded::Ignored(Ignored::Malformed) => {
                self.link.counts.malformed_events += 1;
                tracing::trace!(text = text.as_str(), "malformed event");
                None
            }
        }
    }
}

/// `base_url` plus `/realtime?model=…`.
fn session_url(config: &SessionConfig) -> Result<Url, ModelError> {
    let mut url = connect::endpoint(config, "/realtime")?;
    url.query_pairs_mut().append_pair("model", &config.model);
    Ok(url)
}
