//! The response clock: planned → generating → completed | cancelled | failed | incomplete, and the one slot in which a
//! response may write the conversation. Completed inside the model says nothing about the caller's ear.

use crate::policy::ResponsePolicy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocab::model::ResponseEnd;
use vocab::{CallTime, DeliveryId, ModelItemId, ModelResponseId, ResponseId, TurnId};

/// What a response is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The first words of a call.
    Greet,
    /// Answers a turn or the outputs of tool calls.
    Reply,
    /// Says that work was accepted; claims nothing.
    Acknowledge,
    /// Says what finished.
    Deliver,
    /// Reminds a model that speaks by itself of a turn that it left without an answer.
    Prod,
    /// Asks a caller who has been silent whether they are there.
    CheckIn,
    /// Says goodbye to one who was not; the call ends once it was heard.
    Farewell,
    /// The provider made it without being asked: it is never heard.
    Unasked,
    /// A model that speaks by itself did so: its answer to the caller, or tool calls.
    OfItself,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseState {
    /// Asked for.
    Planned,
    Generating,
    Completed,
    Cancelled,
    Failed,
    Incomplete,
}

impl ResponseState {
    pub const fn is_over(self) -> bool {
        match self {
            Self::Planned | Self::Generating => false,
            Self::Completed | Self::Cancelled | Self::Failed | Self::Incomplete => true,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Response {
    pub purpose: Purpose,
    pub state: ResponseState,
    /// The turn that it answers.
    pub turn: Option<TurnId>,
    /// Responses whose tool outputs it answers.
    pub answers: Vec<ResponseId>,
    /// The greeting's directions, owed again if nothing comes of it.
    pub greeting: Option<String>,
    /// What it was asked to say.
    pub deliveries: Vec<DeliveryId>,
    pub asked_at: CallTime,
    /// The model session that it was asked of.
    pub session: u32,
    /// When the provider last said anything of it.
    pub last_word: CallTime,
    /// Items whose audio came.
    pub items: Vec<ModelItemId>,
    /// From here on its audio and tool calls are not wanted.
    pub cancelled_at: Option<CallTime>,
    pub sounded: bool,
    /// Its sound, if it had any, has ended.
    pub silent: bool,
    /// Something came after it was no longer wanted: told once.
    pub late: bool,
    pub proposed_calls: u32,
    model: Option<ModelResponseId>,
    /// The provider did not say that it is ours.
    guessed: bool,
}

/// Why nothing came of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fruitless {
    /// It completed without a sound or a call.
    Silent,
    /// It failed, or was refused.
    Failed,
    /// Another response is in its way.
    Busy,
}

/// A response as it was when it left the slot.
#[derive(Clone, Debug)]
pub struct Ended {
    pub response: ResponseId,
    pub end: ResponseEnd,
}

#[derive(Clone, Debug, Default)]
pub struct ResponseClock {
    last: ResponseId,
    /// The present model session; each numbers what belongs to it.
    pub session: u32,
    /// Kept until its playback has ended.
    kept: BTreeMap<ResponseId, Response>,
    slot: Option<ResponseId>,
    /// Failed attempts at the answer that is owed now.
    attempts: u32,
    retry_at: Option<CallTime>,
    /// The wait is for another response to end, not for a failure to heal.
    busy: bool,
    /// Since when one after the other was refused for that.
    busy_since: Option<CallTime>,
    /// The provider has named a request of ours in a response: one that names none is not ours.
    names_requests: bool,
}

impl ResponseClock {
    pub fn get(&self, response: ResponseId) -> Option<&Response> {
        self.kept.get(&response)
    }

    pub fn get_mut(&mut self, response: ResponseId) -> Option<&mut Response> {
        self.kept.get_mut(&response)
    }

    /// The response that may write the conversation now.
    pub fn in_slot(&self) -> Option<ResponseId> {
        self.slot
    }

    /// Nothing writes, and no retry is being waited for.
    pub fn may_create(&self, at: CallTime) -> bool {
        self.slot.is_none() && self.retry_at.is_none_or(|retry_at| retry_at <= at)
    }

    pub fn retry_at(&self) -> Option<CallTime> {
        self.retry_at
    }

    pub fn plan(&mut self, at: CallTime, purpose: Purpose) -> (ResponseId, &mut Response) {
        self.last = self.last.next();
        let id = self.last;
        self.slot = Some(id);
        self.retry_at = self.retry_at.filter(|_| purpose == Purpose::OfItself);
        let response = self.kept.entry(id).or_insert(Response {
            purpose,
            state: ResponseState::Planned,
            turn: None,
            answers: Vec::new(),
            greeting: None,
            deliveries: Vec::new(),
            asked_at: at,
            session: self.session,
            last_word: at,
            items: Vec::new(),
            cancelled_at: None,
            sounded: false,
            silent: true,
            late: false,
            proposed_calls: 0,
            model: None,
            guessed: false,
        });
        (id, response)
    }

    /// The model spoke, or called tools, of itself. Such a response needs no slot: it is no answer to a request of ours.
    pub fn began_of_itself(&mut self, at: CallTime, model: ModelResponseId) -> ResponseId {
        let slot = self.slot;
        let (id, response) = self.plan(at, Purpose::OfItself);
        response.model = Some(model);
        response.state = ResponseState::Generating;
        self.slot = slot;
        id
    }

    /// The provider started a response. A provider that never echoes metadata leaves `request` empty: then it is the one that
    /// we are waiting for, else one that nobody asked for, which takes the slot but is never heard.
    pub fn created(&mut self, at: CallTime, model: ModelResponseId, request: Option<ResponseId>) -> ResponseId {
        let waiting = self.slot.filter(|slot| {
            self.kept
                .get(slot)
                .is_some_and(|response| response.state == ResponseState::Planned && response.model.is_none())
        });
        let known = request.filter(|request| self.kept.contains_key(request));
        self.names_requests |= known.is_some();
        let id = match (known, request, waiting) {
            (Some(known), _, _) => known,
            (None, None, Some(waiting)) if !self.names_requests => waiting,
            (None, _, _) => {
                let taken = self.slot;
                let (id, response) = self.plan(at, Purpose::Unasked);
                response.cancelled_at = Some(at);
                // Ours stays the one that is waited for: the provider will refuse or start it.
                if taken.is_some() {
                    self.slot = taken;
                }
                id
            }
        };
        if known.is_some() || Some(id) == waiting {
            self.busy_since = None;
        }
        if let Some(response) = self.kept.get_mut(&id) {
            response.model = Some(model);
            response.last_word = at;
            response.guessed = request.is_none();
            if response.state == ResponseState::Planned {
                response.state = ResponseState::Generating;
            }
        }
        id
    }

    /// Our ordinal for the provider's response.
    pub fn by_model(&self, model: ModelResponseId) -> Option<ResponseId> {
        self.kept.iter().rev().find(|(_, response)| response.model == Some(model)).map(|(id, _)| *id)
    }

    /// Whether audio and tool calls of it are still wanted.
    pub fn is_wanted(&self, response: ResponseId) -> bool {
        self.kept.get(&response).is_some_and(|response| response.cancelled_at.is_none())
    }

    /// From now on nothing of it is wanted. Returns whether the provider must be told.
    pub fn cancel(&mut self, at: CallTime, response: ResponseId) -> bool {
        let in_slot = self.slot == Some(response);
        match self.kept.get_mut(&response) {
            Some(response) if response.cancelled_at.is_none() => {
                response.cancelled_at = Some(at);
                self.busy_since = None;
                in_slot || (response.purpose == Purpose::OfItself && !response.state.is_over())
            }
            Some(_) | None => false,
        }
    }

    /// The provider ended a response, with or without having announced it.
    pub fn ended(&mut self, model: ModelResponseId, request: Option<ResponseId>, end: ResponseEnd) -> Option<Ended> {
        let id = self.by_model(model).or(request.filter(|request| self.kept.contains_key(request)))?;
        let response = self.kept.get_mut(&id)?;
        if response.state.is_over() {
            // Closed in our books already: the provider's word is only an acknowledgement.
            return None;
        }
        response.state = match end {
            ResponseEnd::Completed => ResponseState::Completed,
            ResponseEnd::Cancelled => ResponseState::Cancelled,
            ResponseEnd::Incomplete { .. } => ResponseState::Incomplete,
            ResponseEnd::Failed { .. } => ResponseState::Failed,
        };
        self.leave_slot(id);
        Some(Ended { response: id, end })
    }

    /// The provider refused to create it, or never answered: it is as if it had not been asked for.
    pub fn refused(&mut self, at: CallTime, response: ResponseId) -> Option<Ended> {
        let refused = self.kept.get_mut(&response)?;
        if refused.guessed && refused.state == ResponseState::Generating && !refused.sounded {
            // What we took for it was one that nobody asked for.
            refused.state = ResponseState::Planned;
            refused.guessed = false;
            if let Some(model) = refused.model.take() {
                let (_, unasked) = self.plan(at, Purpose::Unasked);
                unasked.cancelled_at = Some(at);
                unasked.model = Some(model);
                unasked.state = ResponseState::Generating;
                self.slot = Some(response);
            }
        }
        let refused = self.kept.get_mut(&response)?;
        if refused.state != ResponseState::Planned {
            return None;
        }
        refused.state = ResponseState::Failed;
        self.leave_slot(response);
        Some(Ended { response, end: ResponseEnd::Failed { code: "create_refused".into() } })
    }

    /// The session is gone, and with it whatever the provider was doing. Returns what had not ended.
    pub fn session_lost(&mut self) -> Vec<ResponseId> {
        self.slot = None;
        self.retry_now();
        // Another session gives its own names, and may give the same.
        self.kept.values_mut().for_each(|response| response.model = None);
        self.names_requests = false;
        let unfinished = self.kept.iter_mut().filter(|(_, response)| !response.state.is_over());
        unfinished
            .map(|(id, response)| {
                response.state = ResponseState::Failed;
                *id
            })
            .collect()
    }

    /// We end it in our books: a cancelled response must not block the next one for ever.
    pub fn close_cancelled(&mut self) -> Option<Ended> {
        let id = self.slot?;
        let response = self.kept.get_mut(&id)?;
        response.cancelled_at?;
        response.state = ResponseState::Cancelled;
        self.leave_slot(id);
        Some(Ended { response: id, end: ResponseEnd::Cancelled })
    }

    pub fn stalls_at(&self, policy: &ResponsePolicy) -> Option<CallTime> {
        let response = self.kept.get(&self.slot?)?;
        (response.state == ResponseState::Generating && response.cancelled_at.is_none())
            .then(|| response.last_word.plus_ms(u64::from(policy.stall_timeout_ms)))
    }

    fn leave_slot(&mut self, response: ResponseId) {
        if self.slot == Some(response) {
            self.slot = None;
        }
    }

    /// An attempt at an owed answer failed. Returns `false` when the budget is used up.
    pub fn back_off(&mut self, at: CallTime, policy: &ResponsePolicy) -> bool {
        self.attempts += 1;
        if self.attempts >= policy.max_attempts {
            self.attempts = 0;
            return false;
        }
        self.retry_at = Some(at.plus_ms(u64::from(policy.retry_base_ms) << (self.attempts - 1).min(6)));
        true
    }

    /// A provider that was busy with another response costs no attempt; the end of that one, or the timer, brings us back. Returns
    /// `false` when it has been busy for longer than any response may take.
    pub fn wait_for_busy(&mut self, at: CallTime, policy: &ResponsePolicy) -> bool {
        let since = *self.busy_since.get_or_insert(at);
        self.busy = true;
        self.retry_at = Some(at.plus_ms(u64::from(policy.retry_base_ms)));
        at < since.plus_ms(u64::from(policy.stall_timeout_ms))
    }

    /// The wait is over.
    pub fn retry_now(&mut self) {
        self.retry_at = None;
        self.busy = false;
    }

    /// Another response ended: if it was the one in our way, the way is free.
    pub fn retry_if_busy(&mut self) {
        if self.busy {
            self.retry_now();
        }
    }

    /// Whether it was asked of a session that is gone.
    pub fn is_of_the_past(&self, response: ResponseId) -> bool {
        self.kept.get(&response).is_some_and(|response| response.session != self.session)
    }

    /// Responses that the model began of itself and that have not ended.
    pub fn of_itself(&self) -> impl Iterator<Item = ResponseId> {
        let open = |response: &Response| response.purpose == Purpose::OfItself && !response.state.is_over();
        self.kept.iter().filter(move |(_, response)| open(response)).map(|(id, _)| *id)
    }

    pub fn succeeded(&mut self) {
        self.attempts = 0;
        self.busy_since = None;
    }

    pub fn create_times_out_at(&self, policy: &ResponsePolicy) -> Option<CallTime> {
        let response = self.kept.get(&self.slot?)?;
        (response.state == ResponseState::Planned && response.cancelled_at.is_none())
            .then(|| response.asked_at.plus_ms(u64::from(policy.create_timeout_ms)))
    }

    pub fn cancel_times_out_at(&self, policy: &ResponsePolicy) -> Option<CallTime> {
        let response = self.kept.get(&self.slot?)?;
        response.cancelled_at.map(|at| at.plus_ms(u64::from(policy.cancel_timeout_ms)))
    }

    /// Forgets it once its generation and its sound have both ended.
    pub fn forget_if_over(&mut self, response: ResponseId) {
        let over = self.kept.get(&response).is_some_and(|kept| kept.silent && kept.state.is_over());
        if over {
            self.kept.remove(&response);
        }
    }
}
