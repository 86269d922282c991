//! The stream's WebSocket. The only file of this dialect that awaits.
//!
//! One task owns it and everything takes `&mut self`, so there is one reader and one writer by construction: nothing can
//! slip out between a `clear` and the fence that follows it. The `send_*` methods only encode and queue; [`next`] writes
//! what is queued while it waits, and [`flush`] does it at once. Nothing here is lost by dropping a future of either.
//!
//! **When the carrier does not read**, the queue grows to [`SocketConfig::media_limit_bytes`], and further media is refused
//! whole ([`PhoneError::OutboundFull`]): it was not sent and must not be counted or marked. Marks and clears still have
//! [`SocketConfig::control_reserve_bytes`], so an interruption gets out. When that is full too, nobody is reading: close.
//!
//! **Memory**: a read buffer of 2 KiB, and two write buffers as large as the largest burst was. In steady state a frame
//! either way allocates nothing (`tests/allocations.rs` counts); that needs every message dropped before the next read,
//! which is why [`next`] hands out values and fills the caller's buffer instead of lending its own.
//!
//! [`next`]: TwilioSocket::next
//! [`flush`]: TwilioSocket::flush

use super::order::MessageOrder;
use super::wire::{self, Encoder, Ignored, Inbound, StartProblem};
use bytes::BytesMut;
use futures_util::{Sink, SinkExt, Stream};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WsError, Message, Utf8Bytes};
use vocab::{MarkName, StreamSid};

/// Sizes and bounds of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketConfig {
    /// Inbound frames are 0.4 kB; a longer message grows the buffer by itself. The library fills it with zeroes before each
    /// look at the socket: its default of 128 KiB costs twelve times the memory and half the CPU.
    pub read_buffer_bytes: usize,
    /// Longest frame and message taken. A longer one closes with 1009.
    pub message_limit_bytes: usize,
    /// Media is refused beyond this many queued bytes: 64 KiB is 6 s of sound, far beyond any lead that we pace at.
    pub media_limit_bytes: usize,
    /// Room for marks and clears on top: more than 200 of them.
    pub control_reserve_bytes: usize,
    /// The longest that [`TwilioSocket::close`] takes. The carrier may never answer a close (10 s stalls were reported).
    pub close_limit: Duration,
}

impl Default for SocketConfig {
    fn default() -> Self {
        Self {
            read_buffer_bytes: 512,
            message_limit_bytes: wire::MESSAGE_LIMIT_BYTES,
            media_limit_bytes: 64 * 1024,
            control_reserve_bytes: 16 * 1024,
            close_limit: Duration::from_secs(1),
        }
    }
}

/// Why the socket did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PhoneError {
    /// Theirs, normal: the closing handshake. Final.
    #[error("the carrier closed the stream (code {code:?})")]
    Closed { code: Option<u16> },
    /// Nobody's or the network's: no closing handshake. Final.
    #[error("the connection was lost: {0}")]
    Lost(io::ErrorKind),
    /// Theirs: we answered with 1009. Final.
    #[error("a message of {bytes} bytes is over the limit of {limit_bytes}")]
    TooLong { bytes: usize, limit_bytes: usize },
    /// Theirs: no valid WebSocket traffic; we answered with 1002, or 1007 for text that is no UTF-8. Final.
    #[error("the carrier broke the WebSocket protocol: {0}")]
    Protocol(String),
    /// Theirs: a stream that we cannot serve. The socket is still open, for the driver to close.
    #[error(transparent)]
    StartRefused(StartProblem),
    /// Ours: nothing can be sent before `start` has named the stream, nor after the socket was closed.
    #[error("the stream is not open for sending")]
    NotOpen,
    /// Theirs: the carrier does not read. The message was not queued, not even in part.
    #[error("{queued_bytes} bytes wait for the carrier to read; the message was not queued")]
    OutboundFull { queued_bytes: usize },
}

/// Counted over the life of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SocketCounts {
    /// Text messages, used or not.
    pub messages: u64,
    /// Text messages of no use: see [`Ignored`].
    pub ignored: u64,
    /// Of those, what is no valid message at all.
    pub malformed: u64,
    /// Binary messages: this dialect has none.
    pub binary: u64,
    pub pings: u64,
    /// Messages of ours that found the queue full.
    pub refused: u64,
}

/// A server's end of one Media Streams WebSocket.
pub struct TwilioSocket<S> {
    ws: WebSocketStream<Counted<S>>,
    config: SocketConfig,
    order: MessageOrder,
    /// Known from `start` on.
    encoder: Option<Encoder>,
    /// Messages are built here; its memory comes back as soon as the library has copied them out.
    outgoing: BytesMut,
    /// Everything handed to the library to write, frame headers included.
    handed_bytes: u64,
    unflushed: bool,
    close_sent: bool,
    /// Writing failed. What the carrier said before it went is still read.
    write_lost: bool,
    /// Reading ended, and how. Told again to everyone who asks.
    ended: Option<PhoneError>,
    counts: SocketCounts,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> TwilioSocket<S> {
    /// Takes over a connection whose HTTP upgrade is done. Nothing is compressed: the carrier offers no extension.
    pub async fn accept(io: S, config: SocketConfig) -> Self {
        Self::accept_partially_read(io, Vec::new(), config).await
    }

    /// The same, when bytes after the upgrade request were read already.
    pub async fn accept_partially_read(io: S, read: Vec<u8>, config: SocketConfig) -> Self {
        let write_bytes = config.media_limit_bytes + config.control_reserve_bytes;
        let library = WebSocketConfig::default()
            .read_buffer_size(config.read_buffer_bytes)
            // Never written by a `send_*`, always by a flush: what belongs together leaves in one write.
            .write_buffer_size(write_bytes)
            // Pongs and the close frame come on top, at most 139 bytes each.
            .max_write_buffer_size(write_bytes + 4 * 1024)
            .max_message_size(Some(config.message_limit_bytes))
            .max_frame_size(Some(config.message_limit_bytes));
        let ws = WebSocketStream::from_partially_read(Counted::new(io), read, Role::Server, Some(library)).await;
        Self {
            ws,
            config,
            order: MessageOrder::new(),
            encoder: None,
            outgoing: BytesMut::with_capacity(1024),
            handed_bytes: 0,
            unflushed: false,
            close_sent: false,
            write_lost: false,
            ended: None,
            counts: SocketCounts::default(),
        }
    }

    /// The next message, in the order of the stream; sends what is queued while it waits. After [`Inbound::Media`] `audio`
    /// holds the μ-law bytes, after anything else it is empty. Cancel-safe. A final error is returned again on every call.
    pub async fn next(&mut self, audio: &mut Vec<u8>) -> Result<Inbound, PhoneError> {
        loop {
            match poll_fn(|cx| self.poll_message(cx)).await? {
                Message::Text(text) => return self.read(&text, audio),
                Message::Binary(_) => self.counts.binary += 1,
                Message::Ping(payload) => {
                    self.counts.pings += 1;
                    // The library has queued the pong, and writes it with the next read.
                    self.handed_bytes += framed_bytes(payload.len());
                }
                // A pong answers a ping that we do not send; raw frames never come out of a read; a close ends the read.
                Message::Pong(_) | Message::Frame(_) | Message::Close(_) => {}
            }
        }
    }

    /// Queues caller-bound μ-law bytes as one message, at most about 48 kB (6 s). Multiples of 160 sound best.
    pub fn send_media(&mut self, audio: &[u8]) -> Result<(), PhoneError> {
        self.queue(self.config.media_limit_bytes, |encoder, message| encoder.media(audio, message))
    }

    /// Queues a mark behind everything queued before.
    pub fn send_mark(&mut self, name: MarkName) -> Result<(), PhoneError> {
        let limit = self.config.media_limit_bytes + self.config.control_reserve_bytes;
        self.queue(limit, |encoder, message| encoder.mark(name, message))
    }

    /// Queues a clear. The media queued before it goes out first and is then cleared with the rest.
    pub fn send_clear(&mut self) -> Result<(), PhoneError> {
        let limit = self.config.media_limit_bytes + self.config.control_reserve_bytes;
        self.queue(limit, Encoder::clear)
    }

    /// Writes what is queued, if anything is, as far as the connection takes it.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PhoneError>> {
        if !self.unflushed {
            return Poll::Ready(Ok(()));
        }
        if self.write_lost {
            return Poll::Ready(Err(PhoneError::Lost(io::ErrorKind::BrokenPipe)));
        }
        let flushed = ready!(Pin::new(&mut self.ws).poll_flush(cx));
        self.unflushed = false;
        Poll::Ready(flushed.map_err(|error| {
            self.write_lost = true;
            tracing::debug!(%error, "writing to the carrier failed");
            meaning(error)
        }))
    }

    /// Writes all that is queued. Cancel-safe: what is not written stays queued.
    pub async fn flush(&mut self) -> Result<(), PhoneError> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Closes: queued messages first, then the close frame, then waits for the carrier's, all within
    /// [`SocketConfig::close_limit`]. Says whether the handshake was completed; the connection is to be dropped either way.
    /// `reason` is cut to 123 bytes, which the protocol allows.
    pub async fn close(&mut self, code: u16, reason: &str) -> bool {
        let finished = tokio::time::timeout(self.config.close_limit, self.finish(code, reason)).await;
        self.ended.get_or_insert(PhoneError::NotOpen);
        finished.unwrap_or(false)
    }

    /// The stream that `start` named.
    pub const fn stream(&self) -> Option<&StreamSid> {
        self.order.stream()
    }

    /// Bytes queued and not yet taken by the connection, frame headers included.
    pub fn queued_bytes(&self) -> usize {
        self.handed_bytes.saturating_sub(self.ws.get_ref().written_bytes) as usize
    }

    pub const fn counts(&self) -> SocketCounts {
        self.counts
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Message, PhoneError>> {
        if let Some(error) = &self.ended {
            return Poll::Ready(Err(error.clone()));
        }
        if self.unflushed && !self.write_lost {
            // Waiting for room does not keep us from reading, and a carrier that went away may have said `stop` before.
            let _ = self.poll_flush(cx);
        }
        let error = match ready!(Pin::new(&mut self.ws).poll_next(cx)) {
            Some(Ok(Message::Close(frame))) => {
                // The library has queued the answer.
                self.close_sent = true;
                let _ = Pin::new(&mut self.ws).poll_flush(cx);
                PhoneError::Closed { code: frame.map(|frame| frame.code.into()) }
            }
            Some(Ok(message)) => return Poll::Ready(Ok(message)),
            Some(Err(error)) => {
                self.queue_close(close_code(&error), "");
                let _ = Pin::new(&mut self.ws).poll_flush(cx);
                meaning(error)
            }
            None => PhoneError::Closed { code: None },
        };
        self.ended = Some(error.clone());
        Poll::Ready(Err(error))
    }

    fn read(&mut self, text: &str, audio: &mut Vec<u8>) -> Result<Inbound, PhoneError> {
        self.counts.messages += 1;
        let inbound = self.order.admit(wire::decode(text, audio));
        match &inbound {
            Inbound::Media(_) => return Ok(inbound),
            Inbound::Started(start) => self.encoder = Some(Encoder::new(&start.stream)),
            Inbound::StartRefused(problem) => return Err(PhoneError::StartRefused(problem.clone())),
            Inbound::Ignored(why) => {
                self.counts.ignored += 1;
                match why {
                    Ignored::TooLong { .. } | Ignored::Malformed | Ignored::NoEvent => self.counts.malformed += 1,
                    Ignored::UnknownEvent(_)
                    | Ignored::Incomplete { .. }
                    | Ignored::BadPayload
                    | Ignored::OtherTrack(_)
                    | Ignored::NotAKey(_)
                    | Ignored::ForeignMark(_)
                    | Ignored::OutOfOrder { .. }
                    | Ignored::OtherStream(_) => {}
                }
            }
            Inbound::Connected { .. } | Inbound::KeyPressed { .. } | Inbound::MarkReturned(_) | Inbound::Stopped => {}
        }
        // Media of a wrong time or stream was decoded before it was refused: it must not be heard.
        audio.clear();
        Ok(inbound)
    }

    fn queue(&mut self, limit_bytes: usize, write: impl FnOnce(&Encoder, &mut BytesMut)) -> Result<(), PhoneError> {
        let Some(encoder) = &self.encoder else { return Err(PhoneError::NotOpen) };
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        if self.close_sent {
            return Err(PhoneError::NotOpen);
        }
        if self.write_lost {
            return Err(PhoneError::Lost(io::ErrorKind::BrokenPipe));
        }
        write(encoder, &mut self.outgoing);
        let message = self.outgoing.split().freeze();
        let bytes = framed_bytes(message.len());
        let queued_bytes = self.queued_bytes();
        if queued_bytes + bytes as usize > limit_bytes {
            self.counts.refused += 1;
            return Err(PhoneError::OutboundFull { queued_bytes });
        }
        // Ours is ASCII, but for what a clone put into its stream id, and that was a string.
        let text = Utf8Bytes::try_from(message).map_err(|error| PhoneError::Protocol(error.to_string()))?;
        Pin::new(&mut self.ws).start_send(Message::Text(text)).map_err(|error| match error {
            WsError::WriteBufferFull(_) => PhoneError::OutboundFull { queued_bytes },
            error => {
                self.write_lost = true;
                meaning(error)
            }
        })?;
        self.handed_bytes += bytes;
        self.unflushed = true;
        Ok(())
    }

    fn queue_close(&mut self, code: CloseCode, reason: &str) {
        if std::mem::replace(&mut self.close_sent, true) {
            return;
        }
        let mut end = reason.len().min(123);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        let frame = CloseFrame { code, reason: reason[..end].into() };
        // Fails only when there is no connection any more to close.
        if let Err(error) = Pin::new(&mut self.ws).start_send(Message::Close(Some(frame))) {
            tracing::debug!(%error, "the close frame could not be queued");
        }
    }

    async fn finish(&mut self, code: u16, reason: &str) -> bool {
        self.queue_close(CloseCode::from(code), reason);
        let mut completed = matches!(self.ended, Some(PhoneError::Closed { .. }));
        if self.ws.flush().await.is_ok() && self.ended.is_none() {
            // What the carrier says after our close is of no interest, its own close is.
            while let Some(message) = poll_fn(|cx| Pin::new(&mut self.ws).poll_next(cx)).await {
                match message {
                    Ok(Message::Close(_)) => completed = true,
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
        }
        let io = &mut self.ws.get_mut().io;
        let _ = io.shutdown().await;
        if !completed {
            // The library reads no more after an error. Unread bytes would turn our close into a reset, and the carrier
            // would never see its code: take them until it hangs up.
            let mut unread = [0; 512];
            while io.read(&mut unread).await.is_ok_and(|bytes| bytes > 0) {}
        }
        completed
    }
}

fn close_code(error: &WsError) -> CloseCode {
    match error {
        WsError::Capacity(_) => CloseCode::Size,
        WsError::Utf8(_) => CloseCode::Invalid,
        _ => CloseCode::Protocol,
    }
}

fn meaning(error: WsError) -> PhoneError {
    match error {
        WsError::ConnectionClosed | WsError::AlreadyClosed => PhoneError::Closed { code: None },
        WsError::Io(error) => PhoneError::Lost(error.kind()),
        WsError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
            PhoneError::Lost(io::ErrorKind::UnexpectedEof)
        }
        WsError::Capacity(CapacityError::MessageTooLong { size, max_size }) => {
            PhoneError::TooLong { bytes: size, limit_bytes: max_size }
        }
        other => PhoneError::Protocol(other.to_string()),
    }
}

/// Length of an unmasked frame (RFC 6455, 5.2).
const fn framed_bytes(payload: usize) -> u64 {
    let header = match payload {
        0..=125 => 2,
        126..=65_535 => 4,
        _ => 10,
    };
    header + payload as u64
}

/// The connection, counting what it took: the library does not tell how much it still holds.
struct Counted<S> {
    io: S,
    written_bytes: u64,
}

impl<S> Counted<S> {
    const fn new(io: S) -> Self {
        Self { io, written_bytes: 0 }
    }

    fn count(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.written_bytes += bytes as u64;
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.count(written)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
