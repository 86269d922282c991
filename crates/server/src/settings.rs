//! What the doors must be told. A plain struct: the config files are read elsewhere and end here.

use secrecy::SecretString;
use std::net::SocketAddr;
use std::time::Duration;
use url::Url;
use vocab::AgentId;

/// Everything that [`crate::Server::bind`] needs besides the rooms behind the doors.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Where to listen. Port 0 takes a free port; ask [`crate::Server::local_addr`] which.
    pub bind: SocketAddr,
    /// The address at which the carrier reaches us, without query or fragment. A path prefix is one that a proxy
    /// in front takes off: our own paths start at the root. Signatures are
    /// checked against it and never against `Host` or `X-Forwarded-*`, which a sender may write as he likes.
    /// `None` takes the bound address, and only when that is loopback: a demo needs no domain.
    pub public_url: Option<Url>,
    /// How Twilio proves that it is Twilio.
    pub twilio: TwilioSettings,
    /// Opens `/api/v1`. `None` keeps it closed.
    pub admin_token: Option<SecretString>,
    /// The agent that answers calls at this number.
    pub agent: AgentId,
    /// Every cap and every wait.
    pub limits: Limits,
}

/// The carrier's accounts and secrets.
#[derive(Clone, Debug, Default)]
pub struct TwilioSettings {
    /// Accounts (`AC…`) whose calls we take. Empty: any account whose signature one of our secrets verifies.
    pub account_sids: Vec<String>,
    /// Auth tokens, the current one first; a second one while secrets rotate.
    pub auth_tokens: Vec<SecretString>,
    /// SharedKey secrets, `(key id, secret)`, for requests that carry `X-Twilio-Webhooks-Signature-Settings`.
    pub shared_keys: Vec<(String, SecretString)>,
}

/// Caps and waits. Reaching one is counted or logged, never silent.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Calls that run at the same time, counting those that were just promised a stream.
    pub max_calls: usize,
    /// Upgraded sockets that have not shown a valid `start` yet.
    pub max_waiting_streams: usize,
    /// Open HTTP connections. A call's socket stops counting here once it is upgraded.
    pub max_connections: usize,
    /// Bytes of a request body. Twilio's form posts stay below 4 KiB.
    pub max_body_bytes: usize,
    /// Bytes of one WebSocket message from the carrier. A media frame is about 400 bytes.
    pub max_frame_bytes: usize,
    /// From serving the TwiML to the `start` that brings the token back. Twilio needs about 0.6 s.
    pub token_ttl: Duration,
    /// From the upgrade to a valid `start`.
    pub start_timeout: Duration,
    /// For a request's headers to arrive, and for an idle connection to say something.
    pub header_timeout: Duration,
    /// For a request that is not a stream to be answered. Twilio itself gives a webhook 15 s.
    pub request_timeout: Duration,
    /// How long running calls may finish by themselves when the server stops.
    pub drain_grace: Duration,
    /// How long a cancelled call may take to close before its task is ended.
    pub close_cap: Duration,
    /// New streams offered to one call, one after the other, before we give it up. A stream that held for
    /// [`Limits::steady_stream`] starts the count again.
    pub resume_attempts: u32,
    /// A stream that lived this long counts as a success for [`Limits::resume_attempts`].
    pub steady_stream: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_calls: 300,
            max_waiting_streams: 64,
            max_connections: 2_048,
            max_body_bytes: 64 * 1024,
            max_frame_bytes: 64 * 1024,
            token_ttl: Duration::from_secs(60),
            start_timeout: Duration::from_secs(5),
            header_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(10),
            drain_grace: Duration::from_secs(30),
            close_cap: Duration::from_secs(2),
            resume_attempts: 5,
            steady_stream: Duration::from_secs(30),
        }
    }
}
