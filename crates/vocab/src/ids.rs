//! Identities. Ordinals count inside one call and are `Copy`; names are prefixed strings and live outside it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// An ordinal inside one call: cheap, readable in a recording, meaningless outside the call.
macro_rules! ordinal {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The next ordinal of this kind.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

/// A name that is valid outside the call: in the store, at the carrier, at the model provider, in the logs.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

ordinal!(
    /// The caller's hold of the floor.
    TurnId, "t"
);
ordinal!(
    /// One model generation that we asked for.
    ResponseId, "r"
);
ordinal!(
    /// The sound of one response on its way to the caller.
    PlaybackId, "p"
);
ordinal!(
    /// Rises by one at each `clear` that we send to the carrier.
    Epoch, "e"
);
ordinal!(
    /// A tool call that the model proposed.
    ToolCallId, "c"
);
ordinal!(
    /// A durable write that the core asked for; its acknowledgement carries the same ordinal.
    SaveId, "s"
);
ordinal!(
    /// The provider's response, interned by the model adapter.
    ModelResponseId, "mr"
);
ordinal!(
    /// The provider's conversation item, interned by the model adapter.
    ModelItemId, "mi"
);

name!(
    /// The logical conversation, `ses_…`. Outlives a stream, a node and a model session.
    SessionId
);
name!(
    /// The carrier leg: Twilio's `CA…`.
    CallSid
);
name!(
    /// One WebSocket of a call: Twilio's `MZ…`.
    StreamSid
);
name!(
    /// One admitted business intent, `op_…`.
    OperationId
);
name!(
    /// Operations that close together and produce one final delivery, `bat_…`.
    BatchId
);
name!(
    /// One thing to be said, `dlv_…`.
    DeliveryId
);
name!(
    /// The sameness of two requests; derived from tool, caller and normalised arguments. Sent to the backend as the idempotency key.
    IntentKey
);
name!(
    /// The model's id for its tool call. Never a business key.
    ProviderCallId
);
name!(
    /// The agent that holds the conversation, as its config file is named.
    AgentId
);
name!(
    /// A tool, as its config file is named.
    ToolName
);
name!(
    /// Who is calling: the verified E.164 number, or `anonymous:<CallSid>`. Deliveries and intents belong to it.
    CallerId
);
