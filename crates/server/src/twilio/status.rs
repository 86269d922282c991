//! `POST /twilio/status`: what the carrier tells about calls and streams. The only in-band view of a failed handshake.

use super::signed::SignedForm;
use crate::doors::Doors;
use crate::events::LiveEvent;
use axum::extract::State;
use axum::http::StatusCode;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Callbacks remembered, so that a repeated one is not counted twice.
const KEPT_CALLBACKS: usize = 1_024;

/// `StreamError` codes of Twilio's error dictionary; another one is counted as `other`, so that labels stay bounded.
const STREAM_ERRORS: [&str; 14] = [
    "31901", "31902", "31903", "31910", "31920", "31921", "31922", "31923", "31924", "31930", "31931", "31941",
    "31950", "31951",
];

/// The callbacks that were seen lately.
#[derive(Default)]
pub(crate) struct SeenCallbacks {
    seen: Mutex<(BTreeSet<String>, VecDeque<String>)>,
}

impl SeenCallbacks {
    /// `true` the first time.
    fn is_new(&self, key: String) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (set, order) = &mut *seen;
        if !set.insert(key.clone()) {
            return false;
        }
        order.push_back(key);
        if order.len() > KEPT_CALLBACKS
            && let Some(oldest) = order.pop_front()
        {
            set.remove(&oldest);
        }
        true
    }
}

/// Stream events (`StreamEvent`) and call statuses (`CallStatus`). Answered with 204 whatever it says and however often.
pub(crate) async fn status(State(doors): State<Arc<Doors>>, form: SignedForm) -> StatusCode {
    let field = |name: &str| form.field(name).unwrap_or_default();
    let call_sid = &form.call_sid;
    let key =
        ["StreamSid", "StreamEvent", "StreamError", "CallStatus", "SequenceNumber", "Timestamp"].map(field).join("\n");
    if !doors.carrier.callbacks.is_new(format!("{call_sid}\n{key}")) {
        tracing::debug!(%call_sid, "a status callback came again");
        return StatusCode::NO_CONTENT;
    }
    match field("StreamEvent") {
        "" => {}
        "stream-error" => {
            // The field holds a code, or a sentence that starts with one.
            let told = field("StreamError");
            let code = STREAM_ERRORS.into_iter().find(|code| told.contains(code)).unwrap_or("other");
            metrics::counter!("carrier_stream_errors_total", "code" => code).increment(1);
            let stream_sid = field("StreamSid");
            if code == "31921" {
                // Raised for every socket that we close, deliberate ends included.
                tracing::debug!(%call_sid, stream_sid, code, "the carrier saw us close a stream");
            } else {
                tracing::warn!(%call_sid, stream_sid, code, told, "the carrier reports a stream error");
            }
            doors.events.publish(call_sid, LiveEvent::CarrierError { code: code.to_owned() });
        }
        event => tracing::debug!(%call_sid, stream_sid = field("StreamSid"), event, "stream status"),
    }
    let call_status = field("CallStatus");
    if form.field("StreamEvent").is_none() && is_over(call_status) {
        tracing::info!(%call_sid, call_status, "the carrier says that the call is over");
        doors.tokens.forget(call_sid);
        let (calls, doors, call_sid) = (Arc::clone(&doors.calls), Arc::clone(&doors), call_sid.clone());
        calls.spawn_arrival(async move {
            // Its stream first: what the caller heard must be on record before the session closes.
            doors.calls.carrier_ended(&call_sid).await;
            if let Err(error) = doors.records.end_call(&call_sid).await {
                tracing::warn!(%call_sid, %error, "an ended call stays unfinished on record");
            }
        });
    }
    StatusCode::NO_CONTENT
}

/// Twilio's final call statuses.
fn is_over(call_status: &str) -> bool {
    matches!(call_status, "completed" | "busy" | "failed" | "no-answer" | "canceled")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_is_new_once_and_the_memory_is_bounded() {
        let seen = SeenCallbacks::default();
        assert!(seen.is_new("a".into()));
        assert!(!seen.is_new("a".into()));
        for number in 0..KEPT_CALLBACKS {
            assert!(seen.is_new(number.to_string()));
        }
        assert_eq!(seen.seen.lock().unwrap().0.len(), KEPT_CALLBACKS);
        assert!(seen.is_new("a".into()), "the oldest was forgotten");
    }
}
