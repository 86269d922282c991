//! The one type that the call driver holds, whoever the provider is.

use crate::gpt_live::socket::LiveSocket;
use crate::openai_realtime::socket::RealtimeSocket;
use crate::{ModelError, Provider, SessionConfig};
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_tungstenite::MaybeTlsStream;
use vocab::model::{Capabilities, ModelCommand, ModelEvent};

/// One provider session. A further provider is a folder, an arm here, and the choice of it in [`SessionConfig`].
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a call keeps its socket in a box already")]
pub enum ModelSocket {
    OpenAiRealtime(RealtimeSocket<MaybeTlsStream<TcpStream>>),
    GptLive(LiveSocket<MaybeTlsStream<TcpStream>>),
}

impl ModelSocket {
    /// Opens a session and queues its configuration. It may be used once [`ModelEvent::SessionReady`] arrived; how long
    /// to wait for that is the driver's deadline.
    pub async fn connect(config: &SessionConfig) -> Result<Self, ModelError> {
        match &config.provider {
            Provider::OpenAiRealtime => RealtimeSocket::connect(config).await.map(Self::OpenAiRealtime),
            Provider::GptLive(settings) => LiveSocket::connect(config, settings).await.map(Self::GptLive),
        }
    }

    /// What sessions of this provider can do.
    pub fn capabilities(&self) -> Capabilities {
        match self {
            Self::OpenAiRealtime(_) => crate::openai_realtime::CAPABILITIES,
            Self::GptLive(_) => crate::gpt_live::CAPABILITIES,
        }
    }

    /// See [`RealtimeSocket::next`].
    pub async fn next(&mut self, audio: &mut Vec<u8>) -> Result<ModelEvent, ModelError> {
        match self {
            Self::OpenAiRealtime(socket) => socket.next(audio).await,
            Self::GptLive(socket) => socket.next(audio).await,
        }
    }

    /// See [`RealtimeSocket::poll_next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>, audio: &mut Vec<u8>) -> Poll<Result<ModelEvent, ModelError>> {
        match self {
            Self::OpenAiRealtime(socket) => socket.poll_next(cx, audio),
            Self::GptLive(socket) => socket.poll_next(cx, audio),
        }
    }

    /// See [`RealtimeSocket::append_audio`].
    pub fn append_audio(&mut self, mulaw: &[u8]) {
        match self {
            Self::OpenAiRealtime(socket) => socket.append_audio(mulaw),
            Self::GptLive(socket) => socket.append_audio(mulaw),
        }
    }

    /// See [`RealtimeSocket::send`].
    pub fn send(&mut self, command: &ModelCommand) {
        match self {
            Self::OpenAiRealtime(socket) => socket.send(command),
            Self::GptLive(socket) => socket.send(command),
        }
    }

    /// See [`RealtimeSocket::has_news`].
    pub fn has_news(&mut self) -> bool {
        match self {
            Self::OpenAiRealtime(socket) => socket.has_news(),
            Self::GptLive(socket) => socket.has_news(),
        }
    }

    /// See [`crate::link::Link::look_alive`].
    pub fn look_alive(&mut self, now: Instant) {
        match self {
            Self::OpenAiRealtime(socket) => socket.look_alive(now),
            Self::GptLive(socket) => socket.look_alive(now),
        }
    }

    /// See [`RealtimeSocket::poll_flush`].
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::OpenAiRealtime(socket) => socket.poll_flush(cx),
            Self::GptLive(socket) => socket.poll_flush(cx),
        }
    }

    /// See [`RealtimeSocket::close`].
    pub async fn close(&mut self) {
        match self {
            Self::OpenAiRealtime(socket) => socket.close().await,
            Self::GptLive(socket) => socket.close().await,
        }
    }
}
