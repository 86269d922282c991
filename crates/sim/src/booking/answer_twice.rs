//! A socket that repeats what is written to it, for the fault "the backend answers twice".

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// While `twice` is set, each answer that begins in a write goes out a second time. Answers here are small enough that
/// hyper writes one in one piece; vectored writes stay off for the same reason.
pub(super) struct AnswerTwice {
    socket: TcpStream,
    twice: Arc<AtomicBool>,
    /// The repeat that is still to be written.
    repeat: Vec<u8>,
}

impl AnswerTwice {
    pub(super) fn new(socket: TcpStream, twice: Arc<AtomicBool>) -> Self {
        Self { socket, twice, repeat: Vec::new() }
    }

    fn poll_repeat(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.repeat.is_empty() {
            let written = ready!(Pin::new(&mut self.socket).poll_write(cx, &self.repeat))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.repeat.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for AnswerTwice {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for AnswerTwice {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_repeat(cx))?;
        let written = ready!(Pin::new(&mut self.socket).poll_write(cx, buf))?;
        if written == buf.len() && buf.starts_with(b"HTTP/1.") && self.twice.load(Ordering::Relaxed) {
            self.repeat.extend_from_slice(buf);
        }
        Poll::Ready(Ok(written))
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_repeat(cx))?;
        Pin::new(&mut self.socket).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_repeat(cx))?;
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
