//! What goes wrong between us and a model provider, by meaning: who has to act, and whether trying again can help.

/// Errors of opening and using a model session. What the provider says inside a session are `ModelEvent`s.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Ours: the configuration.
    #[error("model address `{url}` cannot be used: {reason}")]
    BadAddress { url: String, reason: String },
    /// Ours: the key holds bytes that no HTTP header may.
    #[error("the API key cannot be sent: it holds characters that are not allowed in a header")]
    BadKey,
    /// Ours: the machine or image has no certificate authorities.
    #[error("no trusted certificate authorities found on this machine ({reason}); install ca-certificates")]
    NoTrustedRoots { reason: String },
    /// Ours: 401 or 403.
    #[error("the model provider does not accept the API key (HTTP {status}): {detail}")]
    Unauthorised { status: u16, detail: String },
    /// Ours: 404, or a refusal that says so.
    #[error("the model provider has no model `{model}` at this address: {detail}")]
    NoSuchModel { model: String, detail: String },
    /// Ours: the account has no money left (429 with that code, or 402).
    #[error("the account at the model provider is exhausted: {detail}")]
    OutOfQuota { detail: String },
    /// Theirs, passing: 429.
    #[error("the model provider limits our rate: {detail}")]
    RateLimited {
        /// From `Retry-After`, in seconds.
        retry_after_s: Option<u32>,
        detail: String,
    },
    /// Theirs, passing: any 5xx.
    #[error("the model provider is unavailable (HTTP {status}): {detail}")]
    Unavailable { status: u16, detail: String },
    /// Any other answer than the upgrade to a WebSocket.
    #[error("the model provider refused the session (HTTP {status}): {detail}")]
    Refused { status: u16, detail: String },
    /// Nobody answers there: DNS, TCP, a reset.
    #[error("the model provider cannot be reached at `{address}`: {reason}")]
    Unreachable { address: String, reason: String },
    /// The peer's certificate or TLS is not acceptable.
    #[error("no secure connection to `{address}`: {reason}")]
    NotSecure { address: String, reason: String },
    #[error("the model provider did not open the session within {after_ms} ms")]
    TimedOut { after_ms: u64 },
    /// The peer speaks something else than the WebSocket protocol.
    #[error("the model provider broke the WebSocket protocol: {reason}")]
    Protocol { reason: String },
    /// The session holds another audio format than the telephone's.
    #[error("the model session must take and give audio/pcmu, but it holds {input} in and {output} out")]
    WrongFormat { input: String, output: String },
    /// `next` was called after the session's end had been told.
    #[error("the model session has ended")]
    Ended,
}

impl ModelError {
    /// Whether the same attempt may succeed a little later, without anybody acting.
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::RateLimited { .. } | Self::Unavailable { .. } | Self::Unreachable { .. } | Self::TimedOut { .. } => {
                true
            }
            Self::BadAddress { .. }
            | Self::BadKey
            | Self::NoTrustedRoots { .. }
            | Self::Unauthorised { .. }
            | Self::NoSuchModel { .. }
            | Self::OutOfQuota { .. }
            | Self::Refused { .. }
            | Self::NotSecure { .. }
            | Self::Protocol { .. }
            | Self::WrongFormat { .. }
            | Self::Ended => false,
        }
    }
}
