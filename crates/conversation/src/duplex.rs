//! A model that listens and speaks at once (`Speaks::ByItself`): its answers to the caller are not asked for, they come. What
//! the call still owes is the same; only who begins is not. (behaviour.md 6, realtime-models.md B)

use crate::command::Command;
use crate::conversation::Conversation;
use crate::gate::{GateDecision, GateReason};
use crate::policy::TurnEnd;
use vocab::model::{ModelCommand, Speaks};
use vocab::{CallTime, DeliveryId};

impl Conversation {
    pub(crate) fn model_speaks_by_itself(&self) -> bool {
        self.session.capabilities.speaks == Speaks::ByItself
    }

    /// Who ends the caller's turns in this session.
    pub(crate) fn turn_end(&self) -> TurnEnd {
        if self.session.capabilities.turn_events { self.policy.turn.end } else { TurnEnd::Local }
    }

    /// Until when the model has time to answer the caller of itself.
    pub(crate) fn own_answer_by(&self) -> Option<CallTime> {
        let ended_at =
            self.owed.turn_closed_at.filter(|_| self.model_speaks_by_itself() && self.owed.turn.is_some())?;
        Some(ended_at.plus_ms(u64::from(self.policy.response.own_answer_ms)))
    }

    /// The model is about to answer the caller of itself. News put to it now would seem to be told by that answer, which knows
    /// nothing of them (R7).
    pub(crate) fn own_answer_is_awaited(&self) -> bool {
        self.own_answer_by().is_some_and(|by| by > self.now)
    }

    /// The turn that is owed an answer must be asked for: the model has had its time. Of one that answers only when asked, always.
    pub(crate) fn must_ask_for_turn(&self) -> bool {
        self.owed.turn.is_some() && self.own_answer_by().is_none_or(|by| by <= self.now)
    }

    /// What is never volunteered can only join an answer, and answers that come of themselves take nothing along: so it is put to
    /// the model while it owes one.
    pub(crate) fn must_ask_to_attach(&self) -> bool {
        let only_joins = |reason| matches!(reason, GateReason::MayHaveBeenHeard | GateReason::OfferedEnough);
        self.owed.turn.is_some()
            && self.pending.iter().any(|pending| {
                matches!(pending.judged, Some((GateDecision::AttachToNextResponse, reason)) if only_joins(reason))
            })
    }

    /// A voice that nobody asked for began to sound, or a tool was called: the caller has their answer, or it is on its way.
    pub(crate) fn answered_of_itself(&mut self) {
        self.owed.turn = None;
        self.owed.turn_closed_at = None;
    }

    /// The caller's turn closed: a voice that began after their last word answers it already.
    pub(crate) fn turn_may_be_answered(&mut self) {
        let Some(last_speech) = self.turn.last_speech() else { return };
        let began_after =
            |id| self.responses.get(id).is_some_and(|response| response.sounded && response.asked_at >= last_speech);
        if self.responses.of_itself().any(began_after) {
            self.answered_of_itself();
        }
    }

    /// The model was given results and chose silence: to ask again would bring the same. What is news goes to the gate (B10); where
    /// nothing is, the caller still waits for a word.
    pub(crate) fn results_met_silence(&mut self, deliveries: &[DeliveryId]) {
        if deliveries.is_empty() {
            self.owe_latest_turn();
        }
    }

    /// What came of it was no answer, or not all of one.
    pub(crate) fn owe_latest_turn(&mut self) {
        self.owed.turn = self.owed.turn.max(self.turn.latest_turn());
        self.owed.turn_closed_at = Some(self.now);
    }

    /// What the model goes on saying of itself is not wanted any more.
    pub(crate) fn hush(&mut self, out: &mut Vec<Command>) {
        let open: Vec<_> = self.responses.of_itself().collect();
        for response in open {
            // One that only calls tools has no voice to be cut (R5).
            let sounds = self.responses.get(response).is_some_and(|open| open.sounded);
            if sounds && self.responses.cancel(self.now, response) {
                out.push(Command::Model(ModelCommand::CancelResponse { response }));
            }
        }
    }
}
