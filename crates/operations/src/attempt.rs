//! One try at an operation, and the fence without which a late write is dropped.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use vocab::{OperationId, WallTime};

/// Rises by one at each claim of an operation. A write that carries another fence than the row's changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub u32);

impl Fence {
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What the try was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptKind {
    /// The request itself.
    Execute,
    /// A question to the system of record whether it happened.
    Reconcile,
}

impl AttemptKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Reconcile => "reconcile",
        }
    }
}

/// How the try ended, as far as it is known. `Info` is Jepsen's word for "may have happened".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptEnd {
    Ok,
    Rejected,
    Retryable,
    Info,
    /// Claimed, but the process ended (or the deadline passed) before the request left.
    Unsent,
}

impl AttemptEnd {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Rejected => "rejected",
            Self::Retryable => "retryable",
            Self::Info => "info",
            Self::Unsent => "unsent",
        }
    }
}

/// One row a claim. Identified by operation and fence; `number` counts the requests that really left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    pub operation: OperationId,
    pub fence: Fence,
    pub kind: AttemptKind,
    /// For `Execute`: which request of the operation this is, from 1. For `Reconcile`: which look-up.
    pub number: u32,
    pub claimed_at: WallTime,
    /// Durable before the first byte leaves.
    pub sent_at: Option<WallTime>,
    pub finished_at: Option<WallTime>,
    pub end: Option<AttemptEnd>,
    pub provider_ref: Option<String>,
    /// Short reason for people; never arguments.
    pub detail: Option<String>,
}

/// What is known after one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptAnswer {
    /// The system of record says it happened.
    Committed { result: Value, provider_ref: Option<String> },
    /// The system of record says no, and nothing was done.
    Refused { result: Value },
    /// Certain that nothing was done by this request, and it may work later.
    Retryable { reason: String },
    /// The request left and the answer is missing: it may have happened.
    Unclear { reason: String },
}

impl AttemptAnswer {
    pub const fn end(&self) -> AttemptEnd {
        match self {
            Self::Committed { .. } => AttemptEnd::Ok,
            Self::Refused { .. } => AttemptEnd::Rejected,
            Self::Retryable { .. } => AttemptEnd::Retryable,
            Self::Unclear { .. } => AttemptEnd::Info,
        }
    }

    /// The reason for people; a business refusal is kept as it came.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Committed { .. } => None,
            Self::Refused { result } => Some(result.to_string()),
            Self::Retryable { reason } | Self::Unclear { reason } => Some(reason.clone()),
        }
    }
}

/// What the system of record says when asked about a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LookUpAnswer {
    Found {
        result: Value,
        provider_ref: Option<String>,
    },
    /// The record of keys was reached and holds none. Proof only after the settle time.
    Absent,
    Unanswered {
        reason: String,
    },
    /// This backend cannot be asked: a person has to settle it.
    CannotAsk,
}

impl LookUpAnswer {
    pub const fn end(&self) -> AttemptEnd {
        match self {
            Self::Found { .. } => AttemptEnd::Ok,
            Self::Absent => AttemptEnd::Rejected,
            Self::Unanswered { .. } | Self::CannotAsk => AttemptEnd::Info,
        }
    }

    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Found { .. } => None,
            Self::Absent => Some("absent".into()),
            Self::Unanswered { reason } => Some(reason.clone()),
            Self::CannotAsk => Some("cannot be asked".into()),
        }
    }
}
