//! The webhooks that give a call its stream: the first one, and the way back after a stream was lost.

use super::signed::SignedForm;
use super::token::{Grant, MintError};
use super::twiml::Twiml;
use super::{RESUME_PATH, STATUS_PATH, STREAM_PATH};
use crate::calls::NotAdmitted;
use crate::doors::Doors;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use phone::twilio::twiml::ConnectStream;
use secrecy::ExposeSecret;
use std::sync::Arc;

/// How long a call that cannot be resumed here waits before it asks again, seconds. Five of these outlast a restart.
const ASK_AGAIN_S: u32 = 2;

const CANNOT_TAKE: &str = "We are sorry, we cannot take your call right now. Please call again later.";
const LINE_DISTURBED: &str = "We are sorry, the line is disturbed. Please call again.";

/// `POST /twilio/voice`: a call comes in. Draining or full, it is rejected as busy: that costs the caller nothing, needs no
/// voice, and their phone says what it means. While the store takes no writes nothing could be promised, and calling again
/// at once would not help: that is said.
///
/// A call whose stream runs here gets no second one this way: a repeated webhook must not take the line from under a caller
/// who is speaking. Should the carrier truly follow this answer, the stream is dead without our knowing, and the way back
/// leads to a new one.
pub(crate) async fn voice(State(doors): State<Arc<Doors>>, form: SignedForm) -> Response {
    if doors.calls.is_live(&form.call_sid) {
        tracing::warn!(call_sid = %form.call_sid, "a webhook came again for a call whose stream runs; it keeps its stream");
        return Twiml::ask_again(ASK_AGAIN_S, &resume_url(&doors, 1)).into_response();
    }
    match room(&doors, &form).await.and_then(|()| connect(&doors, &form, 1)) {
        Ok(twiml) => {
            tracing::info!(call_sid = %form.call_sid, "call promised a stream");
            twiml.into_response()
        }
        Err(why) => {
            turned_away(&form, why);
            match why {
                TurnedAway::Store => Twiml::say_and_hang_up(CANNOT_TAKE).into_response(),
                TurnedAway::Draining
                | TurnedAway::AtLimit
                | TurnedAway::NoToken
                | TurnedAway::NoDocument
                | TurnedAway::NoModel
                | TurnedAway::GivenUp => Twiml::busy().into_response(),
            }
        }
    }
}

/// `POST /twilio/resume?n=`: the document's tail, asked for when a stream's socket is closed, by us, by a fault, or by the
/// death of the process that served it. `n` counts the streams offered since one of them held.
pub(crate) async fn resume(State(doors): State<Arc<Doors>>, RawQuery(query): RawQuery, form: SignedForm) -> Response {
    let call_sid = &form.call_sid;
    let finished = doors.calls.ended_on_purpose(call_sid)
        || doors.records.finished(call_sid).await.unwrap_or_else(|error| {
            // In doubt the caller is kept: hanging up on a living call is worse than greeting a finished one.
            tracing::warn!(%call_sid, %error, "resume without knowing whether the call is finished");
            false
        });
    if finished {
        // The record comes before the end of the stream, and only the stream's end says what to tell the caller.
        doors.calls.let_go(call_sid).await;
    }
    if doors.calls.ended_without_model(call_sid) {
        turned_away(&form, TurnedAway::NoModel);
        return Twiml::say_and_hang_up(CANNOT_TAKE).into_response();
    }
    if finished {
        tracing::info!(%call_sid, "call finished on purpose: hanging up");
        return Twiml::hang_up().into_response();
    }
    let asked = match attempt_of(query.as_deref()) {
        Ok(asked) => asked,
        Err(bad) => {
            tracing::warn!(%call_sid, %bad, "resume refused");
            return (StatusCode::BAD_REQUEST, bad.to_string()).into_response();
        }
    };
    let held = doors.calls.newest_stream_lived(call_sid).is_some_and(|lived| lived >= doors.limits.steady_stream);
    let attempt = if held { 1 } else { asked };
    if attempt > doors.limits.resume_attempts {
        tracing::warn!(%call_sid, attempt, "call given up: no stream of it holds");
        turned_away(&form, TurnedAway::GivenUp);
        return Twiml::say_and_hang_up(LINE_DISTURBED).into_response();
    }
    match room(&doors, &form).await.and_then(|()| connect(&doors, &form, attempt + 1)) {
        Ok(twiml) => {
            tracing::info!(%call_sid, attempt, "call resumes with a new stream");
            twiml.into_response()
        }
        Err(why) => {
            tracing::info!(%call_sid, attempt, why = why.name(), "call cannot resume here yet; it asks again");
            Twiml::ask_again(ASK_AGAIN_S, &resume_url(&doors, attempt + 1)).into_response()
        }
    }
}

/// Why a call gets no stream now.
#[derive(Clone, Copy, Debug)]
enum TurnedAway {
    Draining,
    AtLimit,
    /// The store takes no writes.
    Store,
    NoToken,
    NoDocument,
    NoModel,
    GivenUp,
}

impl TurnedAway {
    fn name(self) -> &'static str {
        match self {
            Self::Draining => "draining",
            Self::AtLimit => "at_limit",
            Self::Store => "store",
            Self::NoToken => "no_token",
            Self::NoDocument => "no_document",
            Self::NoModel => "no_model",
            Self::GivenUp => "given_up",
        }
    }
}

impl From<NotAdmitted> for TurnedAway {
    fn from(why: NotAdmitted) -> Self {
        match why {
            NotAdmitted::Draining => Self::Draining,
            NotAdmitted::AtLimit => Self::AtLimit,
        }
    }
}

async fn room(doors: &Doors, form: &SignedForm) -> Result<(), TurnedAway> {
    doors.calls.room_for(&form.call_sid, &doors.tokens.promised())?;
    doors.store.check().await.map_err(|why| {
        tracing::error!(why, "no call can be taken");
        TurnedAway::Store
    })
}

/// The document that opens a stream; should the stream end, attempt `next` follows.
fn connect(doors: &Doors, form: &SignedForm, next: u32) -> Result<Twiml, TurnedAway> {
    let caller = form.caller();
    let grant =
        Grant { account_sid: form.account_sid.clone(), caller: caller.id.clone(), caller_verified: caller.verified };
    let token = doors.tokens.mint(&form.call_sid, grant).map_err(|error| {
        match &error {
            MintError::Full => tracing::warn!(%error, "no stream token"),
            MintError::NoRandomness(_) => tracing::error!(%error, "no stream token"),
        }
        TurnedAway::NoToken
    })?;
    Twiml::connect(&ConnectStream {
        url: &doors.addresses.stream(STREAM_PATH),
        status_callback: &doors.addresses.page(STATUS_PATH),
        parameters: &[("token", token.expose_secret()), ("caller", caller.id.as_str())],
        resume_url: &resume_url(doors, next),
    })
    .map_err(|error| {
        tracing::error!(call_sid = %form.call_sid, %error, "no TwiML for this call");
        TurnedAway::NoDocument
    })
}

fn resume_url(doors: &Doors, attempt: u32) -> String {
    doors.addresses.page(&format!("{RESUME_PATH}?n={attempt}"))
}

/// `n` is not one of ours. The address was signed, so somebody wrote it into a document of their own.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("n counts the streams offered to this call: a whole number from 1, not `{0}`")]
struct BadAttempt(String);

/// `n` of the query; without one it is the first.
fn attempt_of(query: Option<&str>) -> Result<u32, BadAttempt> {
    let mut pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let Some((_, given)) = pairs.find(|(name, _)| name == "n") else { return Ok(1) };
    match given.parse() {
        Ok(0) | Err(_) => Err(BadAttempt(given.chars().take(20).collect())),
        Ok(attempt) => Ok(attempt),
    }
}

fn turned_away(form: &SignedForm, why: TurnedAway) {
    metrics::counter!("calls_turned_away_total", "reason" => why.name()).increment(1);
    tracing::warn!(call_sid = %form.call_sid, why = why.name(), "call turned away");
}
