//! What the provider's `error` event means for us. The event does not end the session by itself, and most are recoverable:
//! a fixed list ends a call, nothing else does.

use super::ids::Ids;
use crate::codes::{SESSION_EXPIRED, UNKNOWN_CODE, is_fatal};
use crate::event_ids::{Sent, read_event_id};
use crate::json::scalar;
use serde_json::Value;
use vocab::model::ModelEvent;

/// Another response is writing the conversation; ours was not created.
pub const ALREADY_ACTIVE: &str = "conversation_already_has_active_response";
/// `error` is the member of that name of the event.
pub fn read_error(error: &Value, ids: &mut Ids) -> ModelEvent {
    let text = |name: &str| error.get(name).and_then(scalar).filter(|text| !text.is_empty());
    let code = text("code");
    let kind = text("type");
    let message = text("message").or_else(|| error.as_str().map(str::to_owned)).unwrap_or_default();
    let sent = text("event_id").and_then(|event_id| read_event_id(&event_id));

    let is = |wanted: &str| code.as_deref() == Some(wanted) || kind.as_deref() == Some(wanted);
    if is(SESSION_EXPIRED) {
        return ModelEvent::SessionLost { reason: format!("{SESSION_EXPIRED}: {message}") };
    }
    let fatal = [&code, &kind].into_iter().flatten().any(|told| is_fatal(told));
    // Early servers sent the overlap without code and event id; then only the words tell.
    let busy = is(ALREADY_ACTIVE) || (code.is_none() && says_already_active(&message));
    let refused = match sent {
        Some(Sent::Create(request)) => Some(request).filter(|request| ids.is_outstanding(*request)),
        Some(Sent::SessionUpdate | Sent::Other) => None,
        None if busy => ids.only_outstanding(),
        None => None,
    };
    let code = code.or(kind).unwrap_or_else(|| UNKNOWN_CODE.to_owned());
    if let Some(request) = refused
        && !fatal
    {
        ids.request_answered(request);
        let message = if message.is_empty() { code } else { message };
        return ModelEvent::CreateRefused { request, busy, message };
    }
    // A session that does not hold our configuration has the wrong voice, tools and audio: it cannot be used.
    let unusable = sent == Some(Sent::SessionUpdate) && !ids.ready;
    ModelEvent::ErrorReported { code, message, fatal: fatal || unusable }
}

fn says_already_active(message: &str) -> bool {
    message.to_ascii_lowercase().contains("already has an active response")
}
