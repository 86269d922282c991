//! From an address in the configuration to an open WebSocket, and what every refusal on the way means.

use crate::link::websocket_config;
use crate::{ModelError, SessionConfig, tls};
use secrecy::ExposeSecret;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::TlsError;
use tokio_tungstenite::tungstenite::http::header::{AUTHORIZATION, RETRY_AFTER};
use tokio_tungstenite::tungstenite::http::{HeaderMap, HeaderValue, Request};
use tokio_tungstenite::tungstenite::{self};
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream, client_async_tls_with_config};
use url::Url;
use vocab::model::ModelEvent;

/// DNS, TCP, TLS and upgrade together. A caller waits meanwhile, and ten seconds of nothing is where callers hang up.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest part of a provider's refusal that is kept for people to read.
const DETAIL_BYTES: usize = 300;

/// What the end that a provider announced means from now on. One that has passed is another clock's: nothing is told of it.
pub fn expiry(expires_at: u64) -> Option<ModelEvent> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let left = Duration::from_secs(expires_at).checked_sub(now)?;
    Some(ModelEvent::SessionExpires { after_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX) })
}

/// A WebSocket to a provider, over TLS unless the address says otherwise.
pub type ProviderStream = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// `base_url` plus `path`; a `base_url` that ends in `path` already is taken as it is.
pub fn endpoint(config: &SessionConfig, path: &str) -> Result<Url, ModelError> {
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
    let given = url.path().trim_end_matches('/').to_owned();
    url.set_path(&if given.ends_with(path) { given } else { format!("{given}{path}") });
    Ok(url)
}

/// Bounded by [`CONNECT_TIMEOUT`].
pub async fn open(url: &Url, config: &SessionConfig) -> Result<ProviderStream, ModelError> {
    let after_ms = CONNECT_TIMEOUT.as_millis() as u64;
    timeout(CONNECT_TIMEOUT, upgrade(url, config)).await.unwrap_or(Err(ModelError::TimedOut { after_ms }))
}

async fn upgrade(url: &Url, config: &SessionConfig) -> Result<ProviderStream, ModelError> {
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
    Ok(ws)
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

pub(crate) fn shortened(mut text: String) -> String {
    let mut end = text.len().min(DETAIL_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}
