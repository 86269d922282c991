//! The ActivityGate: the only component that may let the agent speak of its own accord (R4). A decision table; the rows are
//! in the order of behaviour.md 5: first whether the delivery is still relevant, then which channel it may take.

use crate::policy::GatePolicy;
use crate::snapshot::Snapshot;
use serde::{Deserialize, Serialize};
use vocab::delivery::DeliveryState;
use vocab::effect::Priority;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateDecision {
    DeliverNow,
    /// Cut our own voice for it.
    InterruptAndDeliver,
    QueueUntilQuiet,
    QueueAfterPlayback,
    /// It joins the response that is due anyway.
    AttachToNextResponse,
    SuppressAndPersist,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateReason {
    /// Its story has ended: heard, suppressed, superseded or expired.
    AlreadySettled,
    /// A response is saying it right now.
    BeingSaid,
    /// The model was asked to say it and made nothing of it.
    NothingCame,
    /// No longer news.
    Stale,
    /// It may have been heard before a crash: never volunteered as news.
    MayHaveBeenHeard,
    /// Offered too often of its own accord.
    OfferedEnough,
    Urgent,
    CallerSpeaking,
    PlaybackLive,
    /// The caller's turn is open, or an answer is owed.
    ResponseDue,
    /// The stream has ended.
    NobodyThere,
    /// The silence is shorter than the quiet window.
    QuietTooShort,
    Quiet,
}

/// What the gate needs to know of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryView {
    pub state: DeliveryState,
    pub priority: Priority,
    /// Its own window; `None` takes the policy's.
    pub quiet_ms: Option<u32>,
    pub offers: u32,
    pub stale: bool,
}

pub fn judge(now: &Snapshot, delivery: &DeliveryView, policy: &GatePolicy) -> (GateDecision, GateReason) {
    use GateDecision as D;
    use GateReason as R;
    let quiet_window = delivery.quiet_ms.unwrap_or(policy.quiet_ms);
    if delivery.state.is_final() {
        (D::SuppressAndPersist, R::AlreadySettled)
    } else if delivery.state == DeliveryState::Offered {
        (D::QueueAfterPlayback, R::BeingSaid)
    } else if delivery.stale {
        (D::SuppressAndPersist, R::Stale)
    } else if delivery.state == DeliveryState::Uncertain {
        (D::AttachToNextResponse, R::MayHaveBeenHeard)
    } else if delivery.offers >= policy.max_offers {
        (D::AttachToNextResponse, R::OfferedEnough)
    } else if delivery.priority == Priority::Urgent && !now.urgent_voice && (now.playback_live || now.caller_speaking) {
        (D::InterruptAndDeliver, R::Urgent)
    } else if now.caller_speaking {
        (D::QueueUntilQuiet, R::CallerSpeaking)
    } else if now.playback_live && !now.response_owed && now.open_turn.is_none() {
        (D::QueueAfterPlayback, R::PlaybackLive)
    } else if now.open_turn.is_some() || now.response_owed {
        (D::AttachToNextResponse, R::ResponseDue)
    } else if now.quiet_ms < quiet_window && delivery.priority != Priority::Urgent {
        (D::QueueUntilQuiet, R::QuietTooShort)
    } else {
        (D::DeliverNow, R::Quiet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::TurnId;

    const SILENT: Snapshot = Snapshot {
        caller_speaking: false,
        open_turn: None,
        response_owed: false,
        playback_live: false,
        urgent_voice: false,
        quiet_ms: 10_000,
    };
    const NEWS: DeliveryView = DeliveryView {
        state: DeliveryState::Ready,
        priority: Priority::Normal,
        quiet_ms: None,
        offers: 0,
        stale: false,
    };

    fn verdict(now: Snapshot, delivery: DeliveryView) -> (GateDecision, GateReason) {
        judge(&now, &delivery, &GatePolicy::default())
    }

    #[test]
    fn every_row_of_the_table_decides_as_written() {
        use GateDecision as D;
        use GateReason as R;
        let speaking = Snapshot { caller_speaking: true, ..SILENT };
        let playing = Snapshot { playback_live: true, ..SILENT };
        let turn = Snapshot { open_turn: Some(TurnId(1)), ..SILENT };
        let owed = Snapshot { response_owed: true, ..SILENT };
        let urgent = DeliveryView { priority: Priority::Urgent, ..NEWS };
        let state = |state| DeliveryView { state, ..NEWS };
        let rows = [
            (SILENT, state(DeliveryState::Heard), D::SuppressAndPersist, R::AlreadySettled),
            (SILENT, state(DeliveryState::Suppressed), D::SuppressAndPersist, R::AlreadySettled),
            (SILENT, state(DeliveryState::Superseded), D::SuppressAndPersist, R::AlreadySettled),
            (SILENT, state(DeliveryState::Expired), D::SuppressAndPersist, R::AlreadySettled),
            (SILENT, state(DeliveryState::Offered), D::QueueAfterPlayback, R::BeingSaid),
            (SILENT, DeliveryView { stale: true, ..NEWS }, D::SuppressAndPersist, R::Stale),
            (playing, DeliveryView { stale: true, ..urgent }, D::SuppressAndPersist, R::Stale),
            (SILENT, state(DeliveryState::Uncertain), D::AttachToNextResponse, R::MayHaveBeenHeard),
            (SILENT, DeliveryView { offers: 3, ..NEWS }, D::AttachToNextResponse, R::OfferedEnough),
            (playing, urgent, D::InterruptAndDeliver, R::Urgent),
            (speaking, urgent, D::InterruptAndDeliver, R::Urgent),
            (Snapshot { urgent_voice: true, ..playing }, urgent, D::QueueAfterPlayback, R::PlaybackLive),
            (Snapshot { quiet_ms: 0, ..SILENT }, urgent, D::DeliverNow, R::Quiet),
            (speaking, NEWS, D::QueueUntilQuiet, R::CallerSpeaking),
            (Snapshot { playback_live: true, ..speaking }, NEWS, D::QueueUntilQuiet, R::CallerSpeaking),
            (playing, NEWS, D::QueueAfterPlayback, R::PlaybackLive),
            (turn, NEWS, D::AttachToNextResponse, R::ResponseDue),
            (owed, NEWS, D::AttachToNextResponse, R::ResponseDue),
            (Snapshot { playback_live: true, ..owed }, NEWS, D::AttachToNextResponse, R::ResponseDue),
            (Snapshot { quiet_ms: 649, ..SILENT }, NEWS, D::QueueUntilQuiet, R::QuietTooShort),
            (Snapshot { quiet_ms: 650, ..SILENT }, NEWS, D::DeliverNow, R::Quiet),
        ];
        for (place, (now, delivery, decision, reason)) in rows.into_iter().enumerate() {
            assert_eq!(verdict(now, delivery), (decision, reason), "row {place}: {now:?} {delivery:?}");
        }
    }

    #[test]
    fn a_tools_own_quiet_window_goes_before_the_policys() {
        let patient = DeliveryView { quiet_ms: Some(2_000), ..NEWS };
        let hasty = DeliveryView { quiet_ms: Some(100), ..NEWS };
        let now = Snapshot { quiet_ms: 700, ..SILENT };
        assert_eq!(verdict(now, patient).0, GateDecision::QueueUntilQuiet);
        assert_eq!(verdict(Snapshot { quiet_ms: 100, ..SILENT }, hasty).0, GateDecision::DeliverNow);
    }
}
