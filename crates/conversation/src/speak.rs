//! What follows from every moved clock: deliveries are judged again, the next response is asked for if one is due and the
//! slot is free, audio is fed, the public state is told, and the deadlines are set anew. Check and send, with nothing between.

use crate::command::{CloseReason, Command};
use crate::conversation::{Conversation, Phase};
use crate::deadline::Deadline;
use crate::decision::Decision;
use crate::directions::directions;
use crate::gate::{GateDecision, GateReason, judge};
use crate::owed::AgentState;
use crate::response::{Fruitless, Purpose, Response, ResponseState};
use crate::snapshot::Snapshot;
use crate::turn::Voice;
use vocab::delivery::DeliveryState;
use vocab::model::ModelCommand;
use vocab::{CallTime, DeliveryId, ResponseId};

/// An answer that is due.
struct Due {
    purpose: Purpose,
    answers: Vec<ResponseId>,
}

impl Conversation {
    pub(crate) fn settle(&mut self, out: &mut Vec<Command>) {
        self.playback_moves(out);
        self.playbacks_ended(out);
        if self.phase == Phase::Closed {
            return;
        }
        let due = self.due();
        self.judge_deliveries(due.is_some(), out);
        self.create_response(due, out);
        if self.phase == Phase::Closed {
            return;
        }
        self.publish(out);
        self.renew_session(out);
        // A renewal may have closed the caller's turn.
        self.publish(out);
        if self.phase == Phase::Draining && self.published == AgentState::Listening && self.turn.open_turn().is_none() {
            return self.close_stream(CloseReason::Drained, out);
        }
        self.arm();
    }

    fn playback_moves(&mut self, out: &mut Vec<Command>) {
        let room_at = self.playback.pump(self.now, &self.policy.playback, out);
        self.deadlines.set(Deadline::SendDue, room_at);
    }

    pub(crate) fn snapshot(&self, response_due: bool) -> Snapshot {
        let quiet_since = match (self.turn.quiet_since(), self.playback.silent_since()) {
            (Some(caller), Some(agent)) => Some(caller.max(agent)),
            (Some(caller), None) if !self.playback.is_live() => Some(caller),
            (Some(_) | None, _) => None,
        };
        Snapshot {
            caller_speaking: self.turn.caller_is_speaking(),
            open_turn: self.turn.open_turn(),
            // Tool calls whose output is about to come bring an answer too.
            response_owed: response_due
                || self.responses.in_slot().is_some()
                || self.own_answer_is_awaited()
                || self.work.output_awaited_until().is_some_and(|until| until > self.now),
            playback_live: self.playback.is_live(),
            urgent_voice: self.pending.iter().any(|pending| pending.is_urgent_voice()),
            quiet_ms: quiet_since.map_or(0, |since| u32::try_from(self.now.ms_since(since)).unwrap_or(u32::MAX)),
        }
    }

    /// The one answer that is due now: to the latest turn, to tool outputs, or the greeting.
    fn due(&mut self) -> Option<Due> {
        let answerable = self.work.answerable(self.now);
        let ask_for_turn = self.must_ask_for_turn();
        if self.model_speaks_by_itself() && answerable.is_empty() {
            let purpose = match (ask_for_turn, self.must_ask_to_attach()) {
                (true, _) => Some(Purpose::Prod),
                (false, true) => Some(Purpose::Reply),
                (false, false) => self.owed.greeting.is_some().then_some(Purpose::Greet),
            };
            return purpose.map(|purpose| Due { purpose, answers: Vec::new() });
        }
        if !ask_for_turn && answerable.is_empty() {
            return self.owed.greeting.is_some().then_some(Due { purpose: Purpose::Greet, answers: Vec::new() });
        }
        let awaits_outcome = answerable.iter().all(|group| group.awaits_outcome);
        let purpose = if self.owed.turn.is_none() && awaits_outcome { Purpose::Acknowledge } else { Purpose::Reply };
        Some(Due { purpose, answers: answerable.into_iter().map(|group| group.response).collect() })
    }

    /// Asks the gate about every delivery that nobody is saying.
    fn judge_deliveries(&mut self, response_due: bool, out: &mut Vec<Command>) {
        self.deadlines.set(Deadline::QuietOver, None);
        if self.pending.is_empty() {
            return;
        }
        let now = self.snapshot(response_due);
        let at = self.now;
        let mut quiet_over: Option<CallTime> = None;
        let (mut offers, mut stale) = (Vec::new(), Vec::new());
        for pending in self.pending.iter_mut() {
            if pending.brief.state == DeliveryState::Offered {
                continue;
            }
            let view = pending.view(at);
            let (decision, reason) = judge(&now, &view, &self.policy.gate);
            if pending.judged != Some((decision, reason)) {
                pending.judged = Some((decision, reason));
                let delivery = pending.brief.delivery.clone();
                out.push(Command::Explain(Decision::GateJudged { delivery, decision, reason, snapshot: now }));
            }
            match decision {
                GateDecision::DeliverNow | GateDecision::InterruptAndDeliver => {
                    offers.push(pending.brief.delivery.clone());
                }
                GateDecision::QueueUntilQuiet if reason == GateReason::QuietTooShort => {
                    let window = view.quiet_ms.unwrap_or(self.policy.gate.quiet_ms);
                    let over = at.plus_ms(u64::from(window - now.quiet_ms));
                    quiet_over = Some(quiet_over.map_or(over, |before| before.min(over)));
                }
                GateDecision::SuppressAndPersist => stale.push(pending.brief.delivery.clone()),
                GateDecision::QueueUntilQuiet
                | GateDecision::QueueAfterPlayback
                | GateDecision::AttachToNextResponse => {}
            }
        }
        self.deadlines.set(Deadline::QuietOver, quiet_over);
        for delivery in stale {
            let saved = self.pending.suppress(&delivery, "stale");
            out.extend(saved.map(Command::Work));
        }
        // Durable before it is said: a crash in between must not make it news a second time.
        if self.session.ready {
            for delivery in offers {
                let saved = self.pending.offer(self.now, &delivery, false);
                out.extend(saved.map(Command::Work));
            }
        }
    }

    /// Asks the model for the next response, if one is due or the gate says so, and nothing forbids it.
    fn create_response(&mut self, due: Option<Due>, out: &mut Vec<Command>) {
        if !self.session.ready {
            return;
        }
        let due = due.filter(|_| self.turn.open_turn().is_none() && !self.turn.caller_is_speaking());
        if let Some(due) = due {
            self.withdraw_stale(out);
            if self.responses.may_create(self.now)
                && !self.half_told_news()
                && !self.past_voice_plays()
                && !self.is_attaching(out)
            {
                self.answer(due, out);
            }
            return;
        }
        if let Some(purpose) = self.idle_is_over(out) {
            return self.plan(purpose, Vec::new(), Vec::new(), out);
        }
        if self.phase == Phase::Closed {
            return;
        }
        // Nothing is due: what was offered of its own accord asks the gate once more.
        let now = self.snapshot(false);
        let (mut say, mut passed, mut interrupt) = (Vec::new(), Vec::new(), false);
        for pending in self.pending.iter().filter(|pending| pending.may_be_said()) {
            let delivery = pending.brief.delivery.clone();
            match judge(&now, &pending.view_before_offer(self.now), &self.policy.gate) {
                (GateDecision::DeliverNow, _) => say.push(delivery),
                (GateDecision::InterruptAndDeliver, _) => {
                    say.push(delivery);
                    interrupt = true;
                }
                // The caller may yet turn out to have made no sound that counts.
                (GateDecision::QueueUntilQuiet, _) if matches!(self.turn.voice(), Voice::Tentative { .. }) => {}
                (_, reason) => passed.push((delivery, reason)),
            }
        }
        for (delivery, reason) in passed {
            self.withdraw(&delivery, reason, out);
        }
        if say.is_empty() {
            return;
        }
        if interrupt {
            self.interrupt_own_voice(out);
        }
        if self.responses.may_create(self.now) {
            self.plan(Purpose::Deliver, Vec::new(), say, out);
        }
    }

    /// A response that told news broke off, and what came of it still plays: the answer waits to learn whether it must tell it.
    fn half_told_news(&self) -> bool {
        let broke_off = |id| {
            let state = self.responses.get(id).map(|response| response.state);
            matches!(state, Some(ResponseState::Failed | ResponseState::Incomplete))
        };
        self.pending.iter().any(|pending| pending.said_by.is_some_and(broke_off))
    }

    /// The voice of a session that is gone still plays: the next one answers when it knows what of it was heard.
    fn past_voice_plays(&self) -> bool {
        self.playback.live_responses().any(|response| self.responses.is_of_the_past(response))
    }

    /// The disk took so long over an offer that it is no news any more.
    fn withdraw_stale(&mut self, out: &mut Vec<Command>) {
        let stale = |pending: &&crate::pending::Pending| pending.may_be_said() && pending.view(self.now).stale;
        let stale: Vec<_> = self.pending.iter().filter(stale).map(|pending| pending.brief.delivery.clone()).collect();
        for delivery in stale {
            self.withdraw(&delivery, GateReason::Stale, out);
            let saved = self.pending.suppress(&delivery, "stale");
            out.extend(saved.map(Command::Work));
        }
    }

    /// Deliveries that join the due answer are made durable first. Returns whether some of that is still under way.
    fn is_attaching(&mut self, out: &mut Vec<Command>) -> bool {
        let joining: Vec<DeliveryId> = self
            .pending
            .iter()
            .filter(|pending| matches!(pending.judged, Some((GateDecision::AttachToNextResponse, _))))
            .filter(|pending| pending.brief.state != DeliveryState::Offered)
            .map(|pending| pending.brief.delivery.clone())
            .collect();
        for delivery in &joining {
            let saved = self.pending.offer(self.now, delivery, true);
            out.extend(saved.map(Command::Work));
        }
        self.pending.saves_awaited_until().is_some_and(|until| until > self.now)
    }

    fn answer(&mut self, due: Due, out: &mut Vec<Command>) {
        let say: Vec<_> = self
            .pending
            .iter()
            .filter(|pending| pending.may_be_said())
            .map(|pending| pending.brief.delivery.clone())
            .collect();
        for group in &due.answers {
            self.work.answered(*group);
        }
        self.plan(due.purpose, due.answers, say, out);
    }

    fn plan(&mut self, purpose: Purpose, answers: Vec<ResponseId>, say: Vec<DeliveryId>, out: &mut Vec<Command>) {
        // News of its own accord ticks off no debt.
        let of_its_own = matches!(purpose, Purpose::Deliver | Purpose::CheckIn | Purpose::Farewell);
        let turn = if of_its_own { None } else { self.owed.turn.take() };
        if turn.is_some() {
            // The caller spoke first: a greeting now would answer nothing.
            self.owed.greeting = None;
        }
        let greeting = if purpose == Purpose::Greet { self.owed.greeting.take() } else { None };
        let told = say.iter().filter_map(|delivery| self.pending.get(delivery));
        let directions = directions(purpose, greeting.as_deref(), told);
        let (id, response) = self.responses.plan(self.now, purpose);
        response.turn = turn;
        response.answers = answers;
        response.deliveries.clone_from(&say);
        response.greeting = greeting;
        for delivery in &say {
            self.pending.said_by(delivery, id);
        }
        // Saying what is done must not start something new.
        let tools = matches!(purpose, Purpose::Reply | Purpose::Greet);
        out.push(Command::Explain(Decision::ResponsePlanned { response: id, purpose, turn, deliveries: say }));
        out.push(Command::Model(ModelCommand::CreateResponse { response: id, directions, tools }));
    }

    /// Nothing came of a response: what it was to answer is due again, within a bounded number of attempts. A model that chooses
    /// silence each time has its way; one that cannot answer is changed for another session of it.
    pub(crate) fn owe_again(&mut self, id: ResponseId, response: &Response, why: Fruitless, out: &mut Vec<Command>) {
        let policy = &self.policy.response;
        let may_go_on = match why {
            Fruitless::Silent | Fruitless::Failed => self.responses.back_off(self.now, policy),
            Fruitless::Busy => self.responses.wait_for_busy(self.now, policy),
        };
        if may_go_on {
            return self.restore_debt(response);
        }
        out.push(Command::Explain(Decision::AnswerAbandoned { response: id }));
        let reason = match why {
            Fruitless::Silent => return,
            Fruitless::Failed => "the model fails to answer",
            Fruitless::Busy => "the model is busy with another response and does not end it",
        };
        self.restore_debt(response);
        self.session_gives_no_answer(reason, out);
    }

    /// What a response was to answer is due again.
    pub(crate) fn restore_debt(&mut self, response: &Response) {
        self.owed.turn = self.owed.turn.max(response.turn);
        if response.greeting.is_some() {
            self.owed.greeting.clone_from(&response.greeting);
        }
        for group in &response.answers {
            self.work.owe_again(*group);
        }
    }

    /// Something urgent goes before what is being said; an answer that it cut off stays due.
    fn interrupt_own_voice(&mut self, out: &mut Vec<Command>) {
        let slot = self.responses.in_slot().filter(|id| self.responses.is_wanted(*id));
        let cut = self.cut_voice(out);
        for id in slot.into_iter().chain(cut) {
            if let Some(mut response) = self.responses.get(id).cloned() {
                if response.purpose == Purpose::OfItself {
                    self.owe_latest_turn();
                }
                if self.model_speaks_by_itself() {
                    // It has the outputs and cannot be asked for their answer a second time.
                    response.answers.clear();
                }
                self.restore_debt(&response);
            }
        }
    }

    pub(crate) fn withdraw(&mut self, delivery: &DeliveryId, reason: GateReason, out: &mut Vec<Command>) {
        let fruitless = reason == GateReason::NothingCame;
        if let Some(saved) = self.pending.withdraw(delivery, fruitless) {
            out.push(Command::Work(saved));
            out.push(Command::Explain(Decision::OfferWithdrawn { delivery: delivery.clone(), reason }));
        }
    }

    /// What was offered but given to no response is as before the offer.
    pub(crate) fn withdraw_unsaid(&mut self, reason: GateReason, out: &mut Vec<Command>) {
        let unsaid: Vec<_> = self
            .pending
            .iter()
            .filter(|pending| pending.brief.state == DeliveryState::Offered && pending.said_by.is_none())
            .map(|pending| pending.brief.delivery.clone())
            .collect();
        for delivery in unsaid {
            self.withdraw(&delivery, reason, out);
        }
    }

    fn publish(&mut self, out: &mut Vec<Command>) {
        let news_waits = || {
            self.pending.iter().any(|pending| !pending.uncertain && pending.brief.offers < self.policy.gate.max_offers)
        };
        let state = if self.playback.is_live() {
            AgentState::Speaking
        } else if self.owed.is_due()
            || self.responses.in_slot().is_some()
            || self.work.owes_answer()
            || self.work.is_running()
            || news_waits()
        {
            AgentState::Thinking
        } else {
            AgentState::Listening
        };
        if state != self.published {
            self.published = state;
            out.push(Command::PublishState { state });
        }
    }

    fn arm(&mut self) {
        let policy = &self.policy;
        self.deadlines.set(Deadline::MarkLost, self.playback.mark_lost_at(&policy.playback));
        self.deadlines.set(Deadline::FenceLost, self.playback.fence_lost_at());
        // Of a model that speaks by itself a voice is waited for, and its adapter knows for how long.
        let begins_by = self.responses.create_times_out_at(&policy.response).filter(|_| !self.model_speaks_by_itself());
        self.deadlines.set(Deadline::CreateTimeout, begins_by);
        self.deadlines.set(Deadline::CancelTimeout, self.responses.cancel_times_out_at(&policy.response));
        self.deadlines.set(Deadline::GenerationStalled, self.responses.stalls_at(&policy.response));
        self.deadlines.set(Deadline::RetryDue, self.responses.retry_at());
        self.deadlines.set(Deadline::SaveOverdue, self.pending.saves_awaited_until().filter(|at| *at > self.now));
        self.deadlines.set(Deadline::SaveRetry, self.pending.save_again_at());
        self.deadlines.set(Deadline::InlineWait, self.work.inline_wait_ends());
        self.deadlines.set(Deadline::RenewalDue, self.session.renewal_due(self.now));
        self.deadlines.set(Deadline::OwnAnswer, self.own_answer_by().filter(|by| *by > self.now));
        self.deadlines.set(Deadline::OutputWait, self.work.output_wait_ends(self.now));
        self.deadlines.set(Deadline::AnswerWait, self.work.answer_wait_ends().filter(|at| *at > self.now));
        self.deadlines.set(Deadline::IdleOver, self.idle_until().map(|until| until.max(self.now)));
        self.deadlines.set(Deadline::DeliveryStale, self.pending.stale_at());
    }
}
