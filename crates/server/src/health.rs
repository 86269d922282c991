//! `/healthz` says that the process answers; `/readyz` whether a new call should be sent here, and if not, why.

use crate::doors::Doors;
use crate::records::CallRecords;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A probe gives up after a few seconds; an answer after that is none.
const STORE_ANSWER_CAP: Duration = Duration::from_secs(2);
/// A good answer of the store holds for so long, so that whoever knocks cannot make it write. A bad one is asked again.
const STORE_ANSWER_HOLDS: Duration = Duration::from_millis(250);
/// A failure to open model sessions is told for so long; then calls may show whether it has passed.
const MODEL_FAILURE_HOLDS: Duration = Duration::from_secs(30);

/// Does the store take what a call must have on record?
pub(crate) struct StoreHealth {
    records: Arc<dyn CallRecords>,
    good_at: tokio::sync::Mutex<Option<Instant>>,
}

impl StoreHealth {
    pub fn new(records: Arc<dyn CallRecords>) -> Self {
        Self { records, good_at: tokio::sync::Mutex::default() }
    }

    /// The reason if it does not. Those who ask while it is being found out wait for the one answer.
    pub async fn check(&self) -> Result<(), String> {
        let mut good_at = self.good_at.lock().await;
        if good_at.is_some_and(|at| at.elapsed() < STORE_ANSWER_HOLDS) {
            return Ok(());
        }
        *good_at = None;
        match tokio::time::timeout(STORE_ANSWER_CAP, self.records.usable()).await {
            Ok(Ok(())) => {
                *good_at = Some(Instant::now());
                Ok(())
            }
            Ok(Err(unavailable)) => Err(unavailable.to_string()),
            Err(_) => Err(format!("store unavailable: no answer within {} ms", STORE_ANSWER_CAP.as_millis())),
        }
    }
}

/// Can calls open model sessions? Known from the calls themselves: nothing is opened just to find out.
#[derive(Debug, Default)]
pub struct ModelHealth(Mutex<Option<Failing>>);

#[derive(Clone, Copy, Debug)]
struct Failing {
    calls: u32,
    since: Instant,
    last: Instant,
}

impl ModelHealth {
    /// A call's model session is ready.
    pub fn opened(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// A call got no model session, within all its attempts.
    pub fn failed(&self) {
        metrics::counter!("calls_without_model_total").increment(1);
        let now = Instant::now();
        let mut failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let so_far = failing.unwrap_or(Failing { calls: 0, since: now, last: now });
        *failing = Some(Failing { calls: so_far.calls + 1, last: now, ..so_far });
    }

    fn why_not(&self) -> Option<String> {
        let failing = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        (failing.last.elapsed() < MODEL_FAILURE_HOLDS).then(|| {
            let (calls, since) = (failing.calls, failing.since.elapsed().as_secs());
            let calls = if calls == 1 { "one call".to_owned() } else { format!("{calls} calls in a row") };
            format!("no model session could be opened for {calls}, first {since} s ago; the log says why")
        })
    }
}

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
    why.extend(doors.model.why_not());
    why.extend(doors.store.check().await.err());
    let status = if why.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "ready": why.is_empty(), "why_not": why, "calls": running }))).into_response()
}

pub(crate) async fn metrics(State(doors): State<Arc<Doors>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], doors.measures.rendered()).into_response()
}
