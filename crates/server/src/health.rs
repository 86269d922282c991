//! `/healthz` says that the process answers; `/readyz` whether a new call should be sent here, and if not, why.

use crate::doors::Doors;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// A probe gives up after a few seconds; an answer after that is none.
const STORE_ANSWER_CAP: Duration = Duration::from_secs(2);

pub(crate) async fn healthz() -> Response {
    Json(json!({ "alive": true, "version": env!("CARGO_PKG_VERSION") })).into_response()
}

pub(crate) async fn readyz(State(doors): State<Arc<Doors>>) -> Response {
    let mut why = Vec::new();
    if doors.calls.is_draining() {
        why.push("draining: no new call is taken".to_owned());
    }
    let (running, at_most) = (doors.calls.count(), doors.calls.max_calls());
    if running >= at_most {
        why.push(format!("all calls are taken ({running} of {at_most})"));
    }
    if doors.arrivals.available_permits() == 0 {
        why.push(format!("all places for arriving streams are taken ({})", doors.limits.max_waiting_streams));
    }
    match tokio::time::timeout(STORE_ANSWER_CAP, doors.records.reachable()).await {
        Ok(Ok(())) => {}
        Ok(Err(unavailable)) => why.push(unavailable.to_string()),
        Err(_) => why.push(format!("store unavailable: no answer within {} ms", STORE_ANSWER_CAP.as_millis())),
    }
    let status = if why.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "ready": why.is_empty(), "why_not": why, "calls": running }))).into_response()
}

pub(crate) async fn metrics(State(doors): State<Arc<Doors>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], doors.measures.rendered()).into_response()
}
