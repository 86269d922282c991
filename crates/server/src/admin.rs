//! `/api/v1`: reading what goes on, behind the admin token.

use crate::doors::Doors;
use crate::events::{CallEvent, Subscription};
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use secrecy::ExposeSecret;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use vocab::CallSid;

/// Proxies cut a silent connection after 30 to 60 s.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Lets only the bearer of the admin token through.
pub(crate) async fn admit(State(doors): State<Arc<Doors>>, request: Request, next: Next) -> Response {
    let Some(expected) = &doors.admin_token else {
        let closed = "the admin API is closed: no admin token is configured";
        return (StatusCode::FORBIDDEN, Json(json!({ "error": closed }))).into_response();
    };
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim());
    // Digests have one length, so the comparison tells nothing about the token's.
    let admitted =
        given.is_some_and(|given| Sha256::digest(given).ct_eq(&Sha256::digest(expected.expose_secret())).into());
    if admitted {
        next.run(request).await
    } else {
        let challenge = [(header::WWW_AUTHENTICATE, r#"Bearer realm="answerback""#)];
        let error = Json(json!({ "error": "this needs the admin token as a bearer token" }));
        (StatusCode::UNAUTHORIZED, challenge, error).into_response()
    }
}

/// The streams that run and those that ended lately.
pub(crate) async fn calls(State(doors): State<Arc<Doors>>) -> Response {
    let (live, ended) = doors.calls.views();
    Json(json!({ "live": live, "ended": ended })).into_response()
}

/// Every remembered stream of one call, newest first.
pub(crate) async fn call(State(doors): State<Arc<Doors>>, Path(call_sid): Path<String>) -> Response {
    let call_sid = CallSid::new(call_sid);
    let streams = doors.calls.views_of(&call_sid);
    if streams.is_empty() {
        let error = Json(json!({ "error": "this process remembers no such call" }));
        return (StatusCode::NOT_FOUND, error).into_response();
    }
    let live = streams.iter().any(|stream| stream.end.is_none());
    Json(json!({ "call_sid": call_sid, "live": live, "streams": streams })).into_response()
}

/// What the store knows of a call, living or long over: operations with their attempts, deliveries, audit rows.
pub(crate) async fn history(State(doors): State<Arc<Doors>>, Path(call_sid): Path<String>) -> Response {
    match doors.records.history(&CallSid::new(call_sid)).await {
        Ok(Some(history)) => Json(history).into_response(),
        Ok(None) => (StatusCode::NOT_FOUND, Json(json!({ "error": "no such call is on record" }))).into_response(),
        Err(unavailable) => {
            (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "error": unavailable.to_string() }))).into_response()
        }
    }
}

/// Live call events. `resync` says: events were missed, read everything again.
pub(crate) async fn events(State(doors): State<Arc<Doors>>, headers: HeaderMap) -> Response {
    // Past events are not kept here, so a client that comes back has missed some.
    let comes_back = headers.contains_key("last-event-id");
    let opening = futures_util::stream::iter(comes_back.then(|| Ok(resync(None))));
    let live = sent_events(doors.events.subscribe());
    let until_closing = opening.chain(live).take_until(doors.closing.clone().cancelled_owned());
    Sse::new(until_closing).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

fn sent_events(live: Subscription) -> impl Stream<Item = Result<Event, Infallible>> {
    live.map(|received| {
        Ok(match received {
            Ok(event) => sent_event(&event),
            Err(BroadcastStreamRecvError::Lagged(missed)) => resync(Some(missed)),
        })
    })
}

fn sent_event(event: &CallEvent) -> Event {
    let named = Event::default().id(event.number.to_string()).event(event.event.name());
    named.json_data(event).unwrap_or_else(|error| {
        tracing::warn!(%error, "a call event could not be written as JSON");
        resync(None)
    })
}

fn resync(missed: Option<u64>) -> Event {
    Event::default().event("resync").data(json!({ "missed": missed }).to_string())
}
