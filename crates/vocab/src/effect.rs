//! What a tool does to the world outside, and where an operation stands.

use serde::{Deserialize, Serialize};

/// What may be done about a request whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Changes nothing: may be asked again.
    Read,
    /// The backend honours our idempotency key: may be sent again under the same key.
    Keyed,
    /// The backend can be asked whether it happened.
    Lookup,
    /// Neither: a lost answer stays unknown until a person settles it.
    Opaque,
}

/// Business policy of a tool, never the model's idea (R10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    #[default]
    Normal,
    /// May interrupt the agent's own voice.
    Urgent,
}

/// Where an operation stands. `cancel_requested` is a flag beside it, not a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationStatus {
    Admitted,
    Running,
    Committed,
    FailedRetryable,
    FailedFinal,
    /// The request left and nobody knows whether it took effect.
    Unknown,
    Cancelled,
}

impl OperationStatus {
    /// Nothing that we do by ourselves can change it any more. `Unknown` is not terminal: reconciliation may settle it.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Committed | Self::FailedFinal | Self::Cancelled => true,
            Self::Admitted | Self::Running | Self::FailedRetryable | Self::Unknown => false,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Running => "running",
            Self::Committed => "committed",
            Self::FailedRetryable => "failed_retryable",
            Self::FailedFinal => "failed_final",
            Self::Unknown => "unknown",
            Self::Cancelled => "cancelled",
        }
    }
}
