//! The carrier's HTTP side: signed webhooks and the signed WebSocket upgrade, to the public URL or to a stand-in address.

use super::signature::sign;
use super::twiml::{self, Verb};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};
use url::Url;

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Twilio gives a webhook 15 s.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(15);
/// And a stream's handshake about as much before 31901.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);

/// Where requests go and how they are signed.
#[derive(Clone, Debug)]
pub(crate) struct Web {
    client: reqwest::Client,
    auth_token: String,
    /// Requests to any public URL go here, in plain HTTP.
    connect_addr: Option<SocketAddr>,
}

/// Why a stream could not be opened, with Twilio's code.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{code}: {reason}")]
pub(crate) struct UpgradeFailed {
    pub(crate) code: u32,
    pub(crate) reason: String,
}

impl Web {
    pub(crate) fn new(auth_token: &str, connect_addr: Option<SocketAddr>) -> Result<Self, String> {
        crate::tls::choose_crypto();
        let mut client = reqwest::Client::builder()
            .timeout(WEBHOOK_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent("TwilioProxy/1.1");
        if connect_addr.is_some() {
            // The address is where to connect in fact: the user's proxy would connect elsewhere, or not at all.
            client = client.no_proxy();
        }
        let client = client.build().map_err(|error| error.to_string())?;
        Ok(Self { client, auth_token: auth_token.to_owned(), connect_addr })
    }

    /// Ask for a document, as Twilio does: fields in the body of a POST or in the query of a GET.
    pub(crate) async fn document(
        &self,
        url: &str,
        post: bool,
        fields: &[(String, String)],
    ) -> Result<Vec<Verb>, String> {
        let text = self.send(url, post, fields).await?;
        twiml::parse(&text).map_err(|error| format!("{error} in {text:?}"))
    }

    /// Returns the body of a 2xx answer.
    pub(crate) async fn send(&self, url: &str, post: bool, fields: &[(String, String)]) -> Result<String, String> {
        let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = if post {
            let (target, host) = self.target(url)?;
            let mut request = self.client.post(target).body(form);
            request = request.header("content-type", "application/x-www-form-urlencoded; charset=UTF-8");
            request.header("host", host).header("x-twilio-signature", sign(&self.auth_token, url, fields))
        } else {
            let joint = if url.contains('?') { '&' } else { '?' };
            let full = format!("{url}{joint}{form}");
            let (target, host) = self.target(&full)?;
            self.client
                .get(target)
                .header("host", host)
                .header("x-twilio-signature", sign(&self.auth_token, &full, &[]))
        };
        let answer = request.send().await.map_err(|error| describe(&error))?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| describe(&error))?;
        if status.is_success() { Ok(text) } else { Err(format!("HTTP {}", status.as_u16())) }
    }

    /// The address to call and the `Host` to name.
    fn target(&self, public: &str) -> Result<(Url, String), String> {
        let mut url = Url::parse(public).map_err(|error| format!("{public}: {error}"))?;
        let host = authority(&url).ok_or_else(|| format!("{public} has no host"))?;
        if let Some(addr) = self.connect_addr {
            let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
            url = Url::parse(&format!("http://{addr}{path}")).map_err(|error| error.to_string())?;
        }
        Ok((url, host))
    }

    /// Open the stream. The signature covers the public URL whatever the address.
    pub(crate) async fn upgrade(&self, public: &str, limits: WebSocketConfig) -> Result<Socket, UpgradeFailed> {
        let failed = |code, reason: String| UpgradeFailed { code, reason };
        let url = Url::parse(public).map_err(|error| failed(31_923, error.to_string()))?;
        let host = authority(&url).ok_or_else(|| failed(31_923, "no host".into()))?;
        let target = match self.connect_addr {
            Some(addr) => format!("ws://{addr}{}", url.path()),
            None => public.to_owned(),
        };
        let mut request = target.into_client_request().map_err(|error| failed(31_923, error.to_string()))?;
        for (name, value) in [
            ("host", host),
            ("user-agent", "Twilio.TmeWs/1.0".to_owned()),
            ("x-twilio-signature", sign(&self.auth_token, public, &[])),
        ] {
            let value = HeaderValue::from_str(&value).map_err(|error| failed(31_923, error.to_string()))?;
            request.headers_mut().insert(name, value);
        }
        let opening = async {
            match self.connect_addr {
                Some(addr) => {
                    let socket = TcpStream::connect(addr).await.map_err(tungstenite::Error::Io)?;
                    let _ = socket.set_nodelay(true);
                    let plain = MaybeTlsStream::Plain(socket);
                    tokio_tungstenite::client_async_with_config(request, plain, Some(limits)).await
                }
                None => tokio_tungstenite::connect_async_with_config(request, Some(limits), true).await,
            }
        };
        match tokio::time::timeout(UPGRADE_TIMEOUT, opening).await {
            Err(_) => Err(failed(31_901, "no answer in time".into())),
            Ok(Ok((socket, _))) => Ok(socket),
            Ok(Err(tungstenite::Error::Http(answer))) => {
                Err(failed(31_920, format!("the upgrade was answered with HTTP {}", answer.status().as_u16())))
            }
            Ok(Err(tungstenite::Error::Tls(error))) => Err(failed(31_910, error.to_string())),
            Ok(Err(error @ tungstenite::Error::Io(_))) => Err(failed(31_902, error.to_string())),
            Ok(Err(error)) => Err(failed(31_920, error.to_string())),
        }
    }
}

fn authority(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

fn describe(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
