//! Operations that close together: the tool calls of one response. Neither the order nor the number of their callbacks
//! matters; the batch drains once.

use serde::{Deserialize, Serialize};
use vocab::effect::OperationStatus;
use vocab::{BatchId, DeliveryId, ResponseId, SessionId, WallTime};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchState {
    /// More tool calls may come from its response.
    Open,
    /// No more members; some may still be at work.
    Sealed,
    /// Every member can be told, and the final delivery exists. Final.
    Drained,
}

impl BatchState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Sealed => "sealed",
            Self::Drained => "drained",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    pub id: BatchId,
    pub session: SessionId,
    /// With `response`: what it is found by. Response ordinals start again with each stream.
    pub session_epoch: u32,
    pub response: ResponseId,
    pub state: BatchState,
    /// Deliveries made so far: 1 after draining, more when an unknown member settled later.
    pub deliveries: u32,
    pub opened_at: WallTime,
    pub drained_at: Option<WallTime>,
}

impl Batch {
    /// No more members. Sealing twice changes nothing; `false` says so.
    pub fn seal(&mut self) -> bool {
        match self.state {
            BatchState::Open => {
                self.state = BatchState::Sealed;
                true
            }
            BatchState::Sealed | BatchState::Drained => false,
        }
    }

    /// Sealed, and each member is terminal or unknown. An unknown member is told as such rather than waited for: it
    /// may stay unknown for days. What settles later makes a correction. A batch without a member never drains, since
    /// there is nothing to tell.
    pub fn may_drain(&self, members: impl IntoIterator<Item = OperationStatus>) -> bool {
        let mut any = false;
        let all = members.into_iter().all(|status| {
            any = true;
            can_be_told(status)
        });
        match self.state {
            BatchState::Sealed => any && all,
            BatchState::Open | BatchState::Drained => false,
        }
    }

    /// Marks it drained.
    pub fn drain(&mut self, now: WallTime) {
        self.state = BatchState::Drained;
        self.drained_at = Some(now);
    }

    /// The id of the next delivery of this batch: its own identity, so that the same event can never make two.
    pub fn next_delivery(&mut self) -> DeliveryId {
        self.deliveries += 1;
        self.delivery(self.deliveries)
    }

    /// The latest delivery made.
    pub fn latest_delivery(&self) -> Option<DeliveryId> {
        (self.deliveries > 0).then(|| self.delivery(self.deliveries))
    }

    /// The deliveries made after `delivery`, oldest first.
    pub fn deliveries_after(&self, delivery: &DeliveryId) -> Vec<DeliveryId> {
        let all = (1..=self.deliveries).map(|revision| self.delivery(revision));
        all.skip_while(|id| id != delivery).skip(1).collect()
    }

    fn delivery(&self, revision: u32) -> DeliveryId {
        let tail = self.id.as_str().strip_prefix("bat_").unwrap_or(self.id.as_str());
        DeliveryId(if revision == 1 { format!("dlv_{tail}") } else { format!("dlv_{tail}.{revision}") })
    }
}

/// A status that ends the wait of a batch: a terminal one, or `Unknown`.
pub const fn can_be_told(status: OperationStatus) -> bool {
    match status {
        OperationStatus::Committed
        | OperationStatus::FailedFinal
        | OperationStatus::Cancelled
        | OperationStatus::Unknown => true,
        OperationStatus::Admitted | OperationStatus::Running | OperationStatus::FailedRetryable => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OperationStatus::*;

    fn batch(state: BatchState) -> Batch {
        Batch {
            id: BatchId::new("bat_1"),
            session: SessionId::new("ses_1"),
            session_epoch: 1,
            response: ResponseId(1),
            state,
            deliveries: 0,
            opened_at: WallTime(0),
            drained_at: None,
        }
    }

    #[test]
    fn it_drains_only_when_sealed_and_every_member_can_be_told() {
        assert!(!batch(BatchState::Open).may_drain([Committed]));
        assert!(!batch(BatchState::Sealed).may_drain([Committed, Running]));
        assert!(!batch(BatchState::Sealed).may_drain([FailedRetryable]));
        assert!(batch(BatchState::Sealed).may_drain([Committed, Unknown, FailedFinal, Cancelled]));
        assert!(!batch(BatchState::Drained).may_drain([Committed]));
    }

    #[test]
    fn a_batch_without_members_never_drains() {
        assert!(!batch(BatchState::Sealed).may_drain([]));
    }

    #[test]
    fn each_delivery_of_a_batch_has_its_own_id() {
        let mut batch = batch(BatchState::Sealed);
        assert_eq!(batch.latest_delivery(), None);
        assert_eq!(batch.next_delivery().as_str(), "dlv_1");
        assert_eq!(batch.next_delivery().as_str(), "dlv_1.2");
        assert_eq!(batch.latest_delivery(), Some(DeliveryId::new("dlv_1.2")));
    }
}
