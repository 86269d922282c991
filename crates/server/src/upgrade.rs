//! The WebSocket handshake by hand, so that the call gets the plain TCP socket back and not a boxed stream.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// A request that asks well for a WebSocket.
pub(crate) struct Handshake {
    accept_key: String,
    upgrade: OnUpgrade,
}

/// What is wrong with an upgrade request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("a WebSocket is opened with GET")]
    Method,
    #[error("this address speaks WebSocket only: `Connection: Upgrade` and `Upgrade: websocket` are needed")]
    NoUpgrade,
    #[error("WebSocket version 13 is needed")]
    Version,
    #[error("`Sec-WebSocket-Key` must be 16 bytes in base64")]
    Key,
    #[error("this connection cannot be upgraded")]
    NotUpgradable,
}

/// The connection did not come over, or not as the socket it was.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeOverError {
    #[error("the connection was lost in the upgrade: {0}")]
    Lost(hyper::Error),
    #[error("the connection is not a plain TCP socket")]
    NotTcp,
}

impl Handshake {
    /// Checks the headers of RFC 6455 section 4.2.1. `Origin` is not asked for: the carrier sends none, and no browser may
    /// pass the signature check that follows.
    pub fn of(request: &mut Request) -> Result<Self, HandshakeError> {
        if request.method() != Method::GET {
            return Err(HandshakeError::Method);
        }
        let headers = request.headers();
        if !lists(headers, header::CONNECTION, "upgrade") || !lists(headers, header::UPGRADE, "websocket") {
            return Err(HandshakeError::NoUpgrade);
        }
        if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
            return Err(HandshakeError::Version);
        }
        let mut keys = headers.get_all(header::SEC_WEBSOCKET_KEY).iter();
        let (Some(key), None) = (keys.next(), keys.next()) else {
            return Err(HandshakeError::Key);
        };
        if !is_sixteen_bytes_in_base64(key) {
            return Err(HandshakeError::Key);
        }
        let accept_key = derive_accept_key(key.as_bytes());
        let upgrade = request.extensions_mut().remove::<OnUpgrade>().ok_or(HandshakeError::NotUpgradable)?;
        Ok(Self { accept_key, upgrade })
    }

    /// The 101 to answer with, and the socket that follows once it is written.
    pub fn accepted(self) -> (Response, impl Future<Output = Result<(TcpStream, Bytes), TakeOverError>>) {
        let headers = [
            (header::CONNECTION, "upgrade"),
            (header::UPGRADE, "websocket"),
            (header::SEC_WEBSOCKET_ACCEPT, self.accept_key.as_str()),
        ];
        let response = (StatusCode::SWITCHING_PROTOCOLS, headers).into_response();
        let upgrade = self.upgrade;
        let socket = async move {
            let upgraded = upgrade.await.map_err(TakeOverError::Lost)?;
            let parts = upgraded.downcast::<TokioIo<TcpStream>>().map_err(|_| TakeOverError::NotTcp)?;
            Ok((parts.io.into_inner(), parts.read_buf))
        };
        (response, socket)
    }
}

impl IntoResponse for HandshakeError {
    fn into_response(self) -> Response {
        let text = self.to_string();
        match self {
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET")], text).into_response(),
            Self::NoUpgrade => (StatusCode::UPGRADE_REQUIRED, [(header::UPGRADE, "websocket")], text).into_response(),
            Self::Version => {
                let offered = [(header::UPGRADE, "websocket"), (header::SEC_WEBSOCKET_VERSION, "13")];
                (StatusCode::UPGRADE_REQUIRED, offered, text).into_response()
            }
            Self::Key | Self::NotUpgradable => (StatusCode::BAD_REQUEST, text).into_response(),
        }
    }
}

/// Does a comma-separated header name `word`, in any case, in any of its lines?
fn lists(headers: &HeaderMap, name: header::HeaderName, word: &str) -> bool {
    let mut lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.any(|line| line.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
}

fn is_sixteen_bytes_in_base64(key: &HeaderValue) -> bool {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(key.as_bytes()).is_ok_and(|bytes| bytes.len() == 16)
}
