//! One thing to be said, as the store keeps it: its state machine and its words.

use crate::batch::can_be_told;
use crate::operation::{DEADLINE_PASSED, Operation, PROVEN_ABSENT};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use vocab::delivery::{DeliveryBrief, DeliveryChange, DeliveryState};
use vocab::effect::{OperationStatus, Priority};
use vocab::{AudioMs, BatchId, CallerId, DeliveryId, OperationId, SessionId, WallTime};

/// Longest outcome told of one operation, in characters. A model reads it aloud; more than this is no news.
pub const MAX_OUTCOME_CHARS: usize = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryKind {
    /// The outcome of the whole batch. One for each batch, or the one that superseded it before it was heard.
    Final,
    /// An operation that was told as unknown has settled.
    Correction,
}

impl DeliveryKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Final => "final",
            Self::Correction => "correction",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    pub id: DeliveryId,
    pub batch: BatchId,
    pub kind: DeliveryKind,
    /// The session whose call asked for the work.
    pub session: SessionId,
    /// Whom it is for.
    pub caller: CallerId,
    /// The caller was verified when the work was asked for: it may pass to a later call of the same caller.
    pub caller_verified: bool,
    /// The live session that may change it now.
    pub holder: Option<SessionId>,
    pub operations: Vec<OperationId>,
    pub text: String,
    pub all_committed: bool,
    pub priority: Priority,
    pub quiet_ms: Option<u32>,
    /// From `became_ready_at`.
    pub stale_after_ms: Option<u64>,
    pub state: DeliveryState,
    /// A crash once fell between speaking and evidence: it never goes back to plain `Ready`.
    pub was_uncertain: bool,
    /// Rises with every change of the row.
    pub version: u32,
    /// Times that it was offered and may have sounded.
    pub offers: u32,
    /// Furthest that mark evidence reached.
    pub heard_ms: AudioMs,
    pub reason: Option<String>,
    pub superseded_by: Option<DeliveryId>,
    pub became_ready_at: WallTime,
    pub offered_at: Option<WallTime>,
    /// When a final state was reached.
    pub settled_at: Option<WallTime>,
}

/// A change that the state does not allow; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the delivery is {}", state.as_str())]
pub struct NotNow {
    pub state: DeliveryState,
}

impl Delivery {
    /// One delivery over `members`, to be told now.
    pub fn new(id: DeliveryId, batch: BatchId, kind: DeliveryKind, members: &[Operation], now: WallTime) -> Self {
        let lines: Vec<String> = members.iter().map(outcome).collect();
        let first = members.first();
        // The longest quiet window asked for is quiet enough for all; one member that is news for ever keeps it all.
        let quiet_ms = members.iter().filter_map(|m| m.delivery.quiet_ms).max();
        let stale_after_ms = members
            .iter()
            .map(|m| m.delivery.stale_after_ms)
            .try_fold(0, |longest, one| one.map(|one| one.max(longest)))
            .filter(|_| !members.is_empty());
        Self {
            id,
            batch,
            kind,
            session: first.map_or_else(|| SessionId::new(""), |m| m.session.clone()),
            caller: first.map_or_else(|| CallerId::new(""), |m| m.caller.clone()),
            caller_verified: false,
            holder: None,
            operations: members.iter().map(|m| m.id.clone()).collect(),
            text: lines.join("\n"),
            all_committed: members.iter().all(|m| m.status == OperationStatus::Committed),
            priority: members.iter().map(|m| m.delivery.priority).max().unwrap_or_default(),
            quiet_ms,
            stale_after_ms,
            state: DeliveryState::Ready,
            was_uncertain: false,
            version: 1,
            offers: 0,
            heard_ms: AudioMs(0),
            reason: None,
            superseded_by: None,
            became_ready_at: now,
            offered_at: None,
            settled_at: None,
        }
    }

    /// The change of a live session. Final states absorb everything.
    pub fn change(&mut self, change: &DeliveryChange, now: WallTime) -> Result<(), NotNow> {
        use DeliveryState as S;
        let again = if self.was_uncertain { S::Uncertain } else { S::Ready };
        let refused = Err(NotNow { state: self.state });
        let to = match (change, self.state) {
            (_, S::Heard | S::Suppressed | S::Superseded | S::Expired) => return refused,
            (DeliveryChange::Offered { .. }, S::Ready | S::Uncertain) => S::Offered,
            (DeliveryChange::Offered { .. }, S::Offered) => return refused,
            (DeliveryChange::Heard { .. }, S::Offered) => S::Heard,
            (DeliveryChange::Interrupted { .. } | DeliveryChange::Withdrawn { .. }, S::Offered) => again,
            (DeliveryChange::Unproven { .. }, S::Offered) => S::Uncertain,
            (
                DeliveryChange::Heard { .. }
                | DeliveryChange::Interrupted { .. }
                | DeliveryChange::Unproven { .. }
                | DeliveryChange::Withdrawn { .. },
                S::Ready | S::Uncertain,
            ) => return refused,
            (DeliveryChange::Suppressed { .. }, S::Ready | S::Offered | S::Uncertain) => S::Suppressed,
            (DeliveryChange::Superseded { .. }, S::Ready | S::Offered | S::Uncertain) => S::Superseded,
            (DeliveryChange::Expired, S::Ready | S::Offered | S::Uncertain) => S::Expired,
        };
        match change {
            DeliveryChange::Offered { attached } => {
                // Joining an answer that is due anyway is no offer of its own accord.
                self.offers += u32::from(!attached);
                self.offered_at = Some(now);
            }
            DeliveryChange::Heard { heard } | DeliveryChange::Interrupted { heard } => {
                self.heard_ms = self.heard_ms.max(*heard);
            }
            DeliveryChange::Unproven { .. } => self.was_uncertain = true,
            DeliveryChange::Withdrawn { counts } => self.offers = self.offers.saturating_sub(u32::from(!counts)),
            DeliveryChange::Suppressed { reason } => self.reason = Some(reason.clone()),
            DeliveryChange::Superseded { by } => self.superseded_by = Some(by.clone()),
            DeliveryChange::Expired => {}
        }
        self.enter(to, now);
        Ok(())
    }

    /// Nobody is left who could say whether it was heard: the stream or the process that offered it is gone.
    /// `false`: it was not on offer, nothing changed.
    pub fn lose_evidence(&mut self, now: WallTime) -> bool {
        match self.state {
            DeliveryState::Offered => {
                self.was_uncertain = true;
                self.enter(DeliveryState::Uncertain, now);
                true
            }
            DeliveryState::Ready
            | DeliveryState::Heard
            | DeliveryState::Uncertain
            | DeliveryState::Suppressed
            | DeliveryState::Superseded
            | DeliveryState::Expired => false,
        }
    }

    fn enter(&mut self, to: DeliveryState, now: WallTime) {
        self.state = to;
        self.version += 1;
        if to.is_final() {
            self.settled_at = Some(now);
        }
    }

    /// Waits to be told, here or in a later call.
    pub const fn is_waiting(&self) -> bool {
        match self.state {
            DeliveryState::Ready | DeliveryState::Uncertain => true,
            DeliveryState::Offered
            | DeliveryState::Heard
            | DeliveryState::Suppressed
            | DeliveryState::Superseded
            | DeliveryState::Expired => false,
        }
    }

    pub fn is_stale(&self, now: WallTime) -> bool {
        self.stale_after_ms.is_some_and(|ms| now >= self.became_ready_at.plus_ms(ms))
    }

    /// What the conversation of `session` needs to know. `now` turns the expiry into a time that is left.
    pub fn brief(&self, session: &SessionId, now: WallTime) -> DeliveryBrief {
        DeliveryBrief {
            delivery: self.id.clone(),
            operations: self.operations.clone(),
            text: self.text.clone(),
            all_committed: self.all_committed,
            priority: self.priority,
            quiet_ms: self.quiet_ms,
            fresh_for_ms: self.stale_after_ms.map(|ms| ms.saturating_sub(now.ms_since(self.became_ready_at))),
            state: self.state,
            offers: self.offers,
            from_earlier_call: self.session != *session,
        }
    }
}

/// The outcome of one operation in words and data for the model, e.g. `book_table: committed {"reference":"B-7"}`.
/// Claims nothing that the system of record did not say.
pub fn outcome(operation: &Operation) -> String {
    let tool = &operation.tool;
    let result = operation.result.as_ref().map(|result| cut(&result.to_string())).unwrap_or_default();
    match operation.status {
        OperationStatus::Committed => format!("{tool}: committed {result}"),
        OperationStatus::FailedFinal if operation.result.is_some() => {
            format!("{tool}: refused, nothing was done {result}")
        }
        OperationStatus::FailedFinal => format!("{tool}: failed, nothing was done ({})", why(operation)),
        OperationStatus::Unknown => {
            format!("{tool}: not confirmed yet. It may or may not have happened.")
        }
        OperationStatus::Cancelled => format!("{tool}: cancelled, nothing was done"),
        OperationStatus::Admitted | OperationStatus::Running | OperationStatus::FailedRetryable => {
            format!("{tool}: accepted, in progress, not done yet")
        }
    }
}

/// A reason that can be said to a caller. What a library or a system called it stays with the attempt, for operators.
fn why(operation: &Operation) -> &'static str {
    match operation.reason.as_deref() {
        Some(DEADLINE_PASSED) => "there was no time left for it",
        Some(PROVEN_ABSENT) => "the request did not get through",
        Some(_) | None => "the system that does it could not be reached, or could not do it now",
    }
}

/// The outcome, if there is one that can be told.
pub fn tellable_outcome(operation: &Operation) -> Option<String> {
    can_be_told(operation.status).then(|| outcome(operation))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_OUTCOME_CHARS) {
        Some((end, _)) => format!("{}… (cut)", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
#[path = "delivery_tests.rs"]
mod tests;
