//! The append-only record of every change of state, written in the transaction that makes the change.

use serde::{Deserialize, Serialize};
use vocab::{DeliveryId, OperationId, SessionId, WallTime};

/// One change. Holds identities and states, never arguments or results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRow {
    /// Given by the store, rising.
    pub seq: i64,
    pub at: WallTime,
    pub session: Option<SessionId>,
    pub operation: Option<OperationId>,
    pub delivery: Option<DeliveryId>,
    pub kind: AuditKind,
    pub from: Option<String>,
    pub to: Option<String>,
    /// Short reason for people.
    pub detail: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditKind {
    SessionOpened,
    SessionResumed,
    SessionLeft,
    /// An operation's status changed; the first one has no `from`.
    OperationMoved,
    /// A second request for the same intent was answered from the first.
    OperationAttached,
    /// The request of the current fence is about to leave.
    AttemptSent,
    /// The system of record was asked and its answer settled nothing.
    LookUpFruitless,
    BatchSealed,
    BatchDrained,
    DeliveryMoved,
    /// Passed to another session of the same caller.
    DeliveryPassed,
}

impl AuditKind {
    pub const ALL: [Self; 11] = [
        Self::SessionOpened,
        Self::SessionResumed,
        Self::SessionLeft,
        Self::OperationMoved,
        Self::OperationAttached,
        Self::AttemptSent,
        Self::LookUpFruitless,
        Self::BatchSealed,
        Self::BatchDrained,
        Self::DeliveryMoved,
        Self::DeliveryPassed,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SessionOpened => "session_opened",
            Self::SessionResumed => "session_resumed",
            Self::SessionLeft => "session_left",
            Self::OperationMoved => "operation_moved",
            Self::OperationAttached => "operation_attached",
            Self::AttemptSent => "attempt_sent",
            Self::LookUpFruitless => "look_up_fruitless",
            Self::BatchSealed => "batch_sealed",
            Self::BatchDrained => "batch_drained",
            Self::DeliveryMoved => "delivery_moved",
            Self::DeliveryPassed => "delivery_passed",
        }
    }
}
