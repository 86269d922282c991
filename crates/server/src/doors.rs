//! What every door shares.

use crate::calls::{CallStarter, Calls};
use crate::events::LiveEvents;
use crate::health::{ModelHealth, StoreHealth};
use crate::measures::Measures;
use crate::records::CallRecords;
use crate::settings::Limits;
use crate::twilio::{Carrier, StreamTokens};
use secrecy::SecretString;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use url::Url;
use vocab::AgentId;

pub(crate) struct Doors {
    pub addresses: Addresses,
    pub carrier: Carrier,
    pub tokens: StreamTokens,
    pub calls: Arc<Calls>,
    /// Places between the upgrade and a valid `start`.
    pub arrivals: Arc<Semaphore>,
    pub starter: Arc<dyn CallStarter>,
    pub records: Arc<dyn CallRecords>,
    pub store: StoreHealth,
    pub model: Arc<ModelHealth>,
    pub events: LiveEvents,
    pub measures: Measures,
    pub admin_token: Option<SecretString>,
    pub agent: AgentId,
    pub limits: Limits,
    /// Cancelled when the doors close for good: endless answers end.
    pub closing: CancellationToken,
}

/// Our own addresses as the carrier sees them.
pub(crate) struct Addresses {
    /// `https://host[:port][/prefix]`, no slash at the end.
    base: String,
    /// The same with `wss` (or `ws` for a local `http` address).
    stream_base: String,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    #[error("the scheme must be https (http only for a loopback address)")]
    Scheme,
    #[error("it must name a host")]
    Host,
    #[error("it must have no user, password, query or fragment: the carrier drops a query from a stream's address")]
    Extras,
}

impl Addresses {
    pub fn new(public_url: &Url) -> Result<Self, AddressError> {
        let loopback = match public_url.host().ok_or(AddressError::Host)? {
            url::Host::Domain(name) => name == "localhost",
            url::Host::Ipv4(address) => address.is_loopback(),
            url::Host::Ipv6(address) => address.is_loopback(),
        };
        if public_url.query().is_some()
            || public_url.fragment().is_some()
            || !public_url.username().is_empty()
            || public_url.password().is_some()
        {
            return Err(AddressError::Extras);
        }
        let base = public_url.as_str().trim_end_matches('/').to_owned();
        let stream_base = match public_url.scheme() {
            "https" => base.replacen("https", "wss", 1),
            "http" if loopback => base.replacen("http", "ws", 1),
            _ => return Err(AddressError::Scheme),
        };
        Ok(Self { base, stream_base })
    }

    /// A server that only this machine can reach is its own public address.
    pub fn of_loopback(address: SocketAddr) -> Self {
        Self { base: format!("http://{address}"), stream_base: format!("ws://{address}") }
    }

    /// `path` starts with a slash and may carry a query.
    pub fn page(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub fn stream(&self, path: &str) -> String {
        format!("{}{path}", self.stream_base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(text: &str) -> Result<Addresses, AddressError> {
        Addresses::new(&Url::parse(text).unwrap())
    }

    #[test]
    fn the_stream_address_follows_the_public_address() {
        let plain = addresses("https://voice.example.com").unwrap();
        assert_eq!(plain.page("/twilio/resume?n=1"), "https://voice.example.com/twilio/resume?n=1");
        assert_eq!(plain.stream("/twilio/stream"), "wss://voice.example.com/twilio/stream");
        let deep = addresses("https://voice.example.com:8443/phone/").unwrap();
        assert_eq!(deep.stream("/twilio/stream"), "wss://voice.example.com:8443/phone/twilio/stream");
        assert_eq!(addresses("http://127.0.0.1:8080").unwrap().stream("/s"), "ws://127.0.0.1:8080/s");
    }

    #[test]
    fn a_public_address_that_the_carrier_cannot_use_is_refused() {
        assert_eq!(addresses("http://voice.example.com").err(), Some(AddressError::Scheme));
        assert_eq!(addresses("ftp://127.0.0.1").err(), Some(AddressError::Scheme));
        assert_eq!(addresses("https://voice.example.com/?token=1").err(), Some(AddressError::Extras));
        assert_eq!(addresses("https://u:p@voice.example.com/").err(), Some(AddressError::Extras));
        assert_eq!(addresses("data:text/plain,x").err(), Some(AddressError::Host));
    }
}
