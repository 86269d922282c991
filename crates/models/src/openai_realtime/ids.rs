//! What the adapter remembers of one provider session: the provider's ids as small ordinals, how much audio of each item
//! arrived, which of our requests are still unanswered. Everything has a bound; reaching it forgets the oldest first.
//!
//! Forgetting is harmless by size: an hour of a turn every five seconds makes 720 responses, and only the last few are
//! ever cancelled or truncated. An id that comes back after it was forgotten is a new one.

use crate::event_ids::event_id;
use std::collections::VecDeque;
use vocab::{AudioMs, ModelItemId, ModelResponseId, ResponseId, Samples};

/// Responses remembered; the oldest is forgotten first.
pub const RESPONSES_KEPT: usize = 64;
/// Items remembered, the caller's and the model's; the oldest is forgotten first.
pub const ITEMS_KEPT: usize = 256;
/// Tool calls remembered as reported, so that none is reported twice; the oldest is forgotten first.
pub const CALLS_KEPT: usize = 256;
/// Complete arguments whose item has not ended yet; the oldest is forgotten first.
pub const UNFINISHED_CALLS_KEPT: usize = 32;
/// Creates that the provider has not answered; the oldest is forgotten first. One at a time is the rule of the house.
pub const REQUESTS_KEPT: usize = 16;
/// Longest provider id that is taken; real ones have about 30 bytes. A longer one makes its event malformed.
pub const ID_BYTES: usize = 128;

/// Whose conversation item it is: only the model's can be truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemOwner {
    Caller,
    Model,
}

#[derive(Debug)]
pub(super) struct Response {
    ordinal: ModelResponseId,
    pub name: String,
    pub request: Option<ResponseId>,
    pub created: bool,
    pub ended: bool,
    pub cancel_sent: bool,
}

#[derive(Debug)]
pub(super) struct Item {
    ordinal: ModelItemId,
    pub name: String,
    pub owner: ItemOwner,
    /// Audio that arrived of this item.
    pub received: Samples,
    /// Where we cut it last; the provider holds no more than this.
    pub cut_at: Option<AudioMs>,
    pub deleted: bool,
    /// Whether transcript came in pieces, so that the whole at the end would be a repetition.
    pub transcript_in_pieces: bool,
}

/// Arguments are complete, but the item may still be cut off.
#[derive(Debug)]
pub(super) struct UnfinishedCall {
    pub call: String,
    pub response: ModelResponseId,
    pub name: Option<String>,
    pub arguments: String,
}

/// A create that the provider has neither created nor refused.
#[derive(Debug)]
struct Request {
    response: ResponseId,
    cancel_when_created: bool,
}

/// What became of a wish to cancel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CancelTarget {
    /// Active at the provider, under this id.
    Active(String),
    /// Asked for, not yet created: remembered.
    NotYetCreated,
    /// Already cancelled, ended or never asked for.
    Nothing,
}

/// See the module. One for each provider session.
#[derive(Debug, Default)]
pub struct Ids {
    responses: VecDeque<Response>,
    next_response: ModelResponseId,
    items: VecDeque<Item>,
    next_item: ModelItemId,
    reported_calls: VecDeque<String>,
    unfinished_calls: VecDeque<UnfinishedCall>,
    requests: VecDeque<Request>,
    due_cancels: VecDeque<ModelResponseId>,
    sent_events: u64,
    pub(super) ready: bool,
    /// When the provider will end the session, in seconds since 1970.
    pub(super) expires_at: Option<u64>,
}

impl Ids {
    /// Audio received of an item; `None` if it is unknown or forgotten.
    pub fn received(&self, item: ModelItemId) -> Option<Samples> {
        self.item(item).map(|item| item.received)
    }

    /// The request that a response answers, if the provider said so.
    pub fn request_of(&self, response: ModelResponseId) -> Option<ResponseId> {
        self.response(response).and_then(|response| response.request)
    }

    /// How many entries each table holds: responses, items, reported calls, unfinished calls, requests.
    pub fn sizes(&self) -> [usize; 5] {
        [
            self.responses.len(),
            self.items.len(),
            self.reported_calls.len(),
            self.unfinished_calls.len(),
            self.requests.len(),
        ]
    }

    /// The ordinal of a provider's response id; `None` if the id is empty or too long. Allocates only for a new one.
    pub(super) fn intern_response(&mut self, name: &str) -> Option<ModelResponseId> {
        // Newest first: nearly every event is about the response that runs now.
        if let Some(known) = self.responses.iter().rev().find(|response| response.name == name) {
            return Some(known.ordinal);
        }
        if name.is_empty() || name.len() > ID_BYTES {
            return None;
        }
        let ordinal = self.next_response;
        self.next_response = ordinal.next();
        push_bounded(
            &mut self.responses,
            RESPONSES_KEPT,
            Response {
                ordinal,
                name: name.to_owned(),
                request: None,
                created: false,
                ended: false,
                cancel_sent: false,
            },
        );
        Some(ordinal)
    }

    /// The ordinal of a provider's item id; `None` if the id is empty or too long. Allocates only for a new one.
    pub(super) fn intern_item(&mut self, name: &str, owner: ItemOwner) -> Option<ModelItemId> {
        if let Some(known) = self.items.iter().rev().find(|item| item.name == name) {
            return Some(known.ordinal);
        }
        if name.is_empty() || name.len() > ID_BYTES {
            return None;
        }
        let ordinal = self.next_item;
        self.next_item = ordinal.next();
        push_bounded(
            &mut self.items,
            ITEMS_KEPT,
            Item {
                ordinal,
                name: name.to_owned(),
                owner,
                received: Samples::ZERO,
                cut_at: None,
                deleted: false,
                transcript_in_pieces: false,
            },
        );
        Some(ordinal)
    }

    pub(super) fn response(&self, ordinal: ModelResponseId) -> Option<&Response> {
        self.responses.iter().rev().find(|response| response.ordinal == ordinal)
    }

    pub(super) fn response_mut(&mut self, ordinal: ModelResponseId) -> Option<&mut Response> {
        self.responses.iter_mut().rev().find(|response| response.ordinal == ordinal)
    }

    /// The newest response that has not ended.
    pub(super) fn open_response(&self) -> Option<ModelResponseId> {
        self.responses.iter().rev().find(|response| !response.ended).map(|response| response.ordinal)
    }

    pub(super) fn item(&self, ordinal: ModelItemId) -> Option<&Item> {
        self.items.iter().rev().find(|item| item.ordinal == ordinal)
    }

    pub(super) fn item_mut(&mut self, ordinal: ModelItemId) -> Option<&mut Item> {
        self.items.iter_mut().rev().find(|item| item.ordinal == ordinal)
    }

    // Requests: from `response.create` to the first word about it.

    pub(super) fn request_sent(&mut self, response: ResponseId) {
        self.request_answered(response);
        push_bounded(&mut self.requests, REQUESTS_KEPT, Request { response, cancel_when_created: false });
    }

    /// Forgets the request; tells whether it was outstanding, and whether it was cancelled meanwhile.
    pub(super) fn request_answered(&mut self, response: ResponseId) -> Option<bool> {
        let at = self.requests.iter().position(|request| request.response == response)?;
        self.requests.remove(at).map(|request| request.cancel_when_created)
    }

    pub(super) fn is_outstanding(&self, response: ResponseId) -> bool {
        self.requests.iter().any(|request| request.response == response)
    }

    /// The one request that an error without a back-reference can mean; `None` if there are several or none.
    pub(super) fn only_outstanding(&self) -> Option<ResponseId> {
        match (self.requests.front(), self.requests.len()) {
            (Some(request), 1) => Some(request.response),
            _ => None,
        }
    }

    pub(super) fn cancel_target(&mut self, request: ResponseId) -> CancelTarget {
        if let Some(active) =
            self.responses.iter_mut().rev().find(|response| response.request == Some(request) && !response.ended)
        {
            if active.cancel_sent {
                return CancelTarget::Nothing;
            }
            active.cancel_sent = true;
            return CancelTarget::Active(active.name.clone());
        }
        match self.requests.iter_mut().find(|outstanding| outstanding.response == request) {
            Some(outstanding) => {
                outstanding.cancel_when_created = true;
                CancelTarget::NotYetCreated
            }
            None => CancelTarget::Nothing,
        }
    }

    pub(super) fn cancel_is_due(&mut self, response: ModelResponseId) {
        self.due_cancels.push_back(response);
    }

    /// Provider id of a response that was cancelled before it was created and now exists; each is handed out once.
    pub(super) fn take_due_cancel(&mut self) -> Option<String> {
        while let Some(ordinal) = self.due_cancels.pop_front() {
            if let Some(response) = self.response_mut(ordinal)
                && !response.ended
                && !response.cancel_sent
            {
                response.cancel_sent = true;
                return Some(response.name.clone());
            }
        }
        None
    }

    // Tool calls.

    /// True the first time; a call is reported once, whatever the provider repeats.
    pub(super) fn first_report_of(&mut self, call: &str) -> bool {
        if self.reported_calls.iter().any(|reported| reported == call) {
            return false;
        }
        push_bounded(&mut self.reported_calls, CALLS_KEPT, call.to_owned());
        true
    }

    pub(super) fn arguments_complete(&mut self, call: UnfinishedCall) {
        self.take_unfinished(&call.call);
        push_bounded(&mut self.unfinished_calls, UNFINISHED_CALLS_KEPT, call);
    }

    pub(super) fn take_unfinished(&mut self, call: &str) -> Option<UnfinishedCall> {
        let at = self.unfinished_calls.iter().position(|unfinished| unfinished.call == call)?;
        self.unfinished_calls.remove(at)
    }

    /// Every call of a response whose arguments were complete and whose item never ended.
    pub(super) fn take_unfinished_of(&mut self, response: ModelResponseId) -> Vec<UnfinishedCall> {
        let (taken, kept) = self.unfinished_calls.drain(..).partition(|call| call.response == response);
        self.unfinished_calls = kept;
        let taken: VecDeque<UnfinishedCall> = taken;
        taken.into()
    }

    // Our own event ids: they come back only in `error.event_id`, and name what they were for.

    pub(super) fn event_id(&mut self, what: &str) -> String {
        event_id(&mut self.sent_events, what)
    }

    pub(super) fn create_event_id(&mut self, response: ResponseId) -> String {
        self.event_id(&format!("create-{response}"))
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, most: usize, entry: T) {
    if queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(entry);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_forgets_the_oldest_and_keeps_counting() {
        let mut ids = Ids::default();
        for n in 0..ITEMS_KEPT as u32 + 10 {
            assert_eq!(ids.intern_item(&format!("item_{n}"), ItemOwner::Model), Some(ModelItemId(n)));
        }
        assert_eq!(ids.items.len(), ITEMS_KEPT);
        assert!(ids.item(ModelItemId(9)).is_none());
        assert_eq!(ids.intern_item("item_10", ItemOwner::Model), Some(ModelItemId(10)));
        assert_eq!(ids.intern_item("item_9", ItemOwner::Model), Some(ModelItemId(ITEMS_KEPT as u32 + 10)));
    }

    #[test]
    fn an_id_that_is_empty_or_too_long_is_not_taken() {
        let mut ids = Ids::default();
        assert_eq!(ids.intern_response(""), None);
        assert_eq!(ids.intern_response(&"x".repeat(ID_BYTES + 1)), None);
        assert_eq!(ids.intern_item(&"x".repeat(ID_BYTES), ItemOwner::Model), Some(ModelItemId(0)));
    }
}
