//! `GET /twilio/stream`: from a signed upgrade to a call. Nothing is opened towards a model before the last check is passed.

use super::STREAM_PATH;
use super::token::Grant;
use crate::calls::{AcceptedStream, NotAdmitted};
use crate::doors::Doors;
use crate::events::LiveEvent;
use crate::upgrade::Handshake;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use phone::twilio::{Inbound, PhoneError, SocketConfig, Start, TwilioSocket};
use secrecy::SecretString;
use std::sync::Arc;
use std::time::Instant;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

const PROTOCOL_ERROR: u16 = 1002;
const POLICY_VIOLATION: u16 = 1008;
const TOO_BIG: u16 = 1009;
const TRY_AGAIN_LATER: u16 = 1013;

pub(crate) async fn stream(State(doors): State<Arc<Doors>>, mut request: Request) -> Response {
    let handshake = match Handshake::of(&mut request) {
        Ok(handshake) => handshake,
        Err(error) => {
            tracing::debug!(%error, "not a WebSocket handshake");
            return error.into_response();
        }
    };
    // A query cannot come from the carrier, which drops it; it is signed like the rest of the address if it is there.
    let path = request.uri().path_and_query().map_or(STREAM_PATH, |path| path.as_str());
    if let Err(refusal) = doors.carrier.check_upgrade(&doors.addresses.stream(path), request.headers()) {
        metrics::counter!("streams_refused_total", "reason" => "signature").increment(1);
        tracing::warn!(%refusal, "stream refused");
        return (StatusCode::FORBIDDEN, "the signature does not match").into_response();
    }
    if doors.calls.is_draining() {
        metrics::counter!("streams_refused_total", "reason" => "draining").increment(1);
        return (StatusCode::SERVICE_UNAVAILABLE, "draining").into_response();
    }
    let Ok(place) = Arc::clone(&doors.arrivals).try_acquire_owned() else {
        metrics::counter!("streams_refused_total", "reason" => "arrivals_at_limit").increment(1);
        tracing::warn!(
            at_most = doors.limits.max_waiting_streams,
            "stream refused: too many sockets wait for their start"
        );
        return (StatusCode::SERVICE_UNAVAILABLE, "too many streams are arriving").into_response();
    };
    let upgraded_at = Instant::now();
    let (response, socket) = handshake.accepted();
    let calls = Arc::clone(&doors.calls);
    calls.spawn_arrival(async move {
        match socket.await {
            Ok((socket, read)) => arrive(&doors, socket, read, upgraded_at).await,
            Err(error) => tracing::warn!(%error, "stream lost before it began"),
        }
        drop(place);
    });
    response
}

/// Why an upgraded socket is closed before a call.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    code: u16,
    /// A metric label and the close reason.
    reason: &'static str,
}

const NO_START: Refusal = Refusal { code: POLICY_VIOLATION, reason: "no start in time" };
const BAD_START: Refusal = Refusal { code: POLICY_VIOLATION, reason: "start refused" };
const OVERSIZE: Refusal = Refusal { code: TOO_BIG, reason: "message too big" };
const BROKEN: Refusal = Refusal { code: PROTOCOL_ERROR, reason: "protocol broken" };
const BAD_TOKEN: Refusal = Refusal { code: POLICY_VIOLATION, reason: "token refused" };
const BAD_ACCOUNT: Refusal = Refusal { code: POLICY_VIOLATION, reason: "account refused" };
const DRAINING: Refusal = Refusal { code: TRY_AGAIN_LATER, reason: "draining" };
const AT_LIMIT: Refusal = Refusal { code: TRY_AGAIN_LATER, reason: "all calls are taken" };

async fn arrive(doors: &Arc<Doors>, socket: TcpStream, read: Bytes, upgraded_at: Instant) {
    let config = SocketConfig { message_limit_bytes: doors.limits.max_frame_bytes, ..SocketConfig::default() };
    let mut socket = TwilioSocket::accept_partially_read(socket, read.into(), config).await;
    let start = tokio::select! {
        () = doors.calls.draining().cancelled() => Err(Some(DRAINING)),
        start = tokio::time::timeout(doors.limits.start_timeout, start_of(&mut socket)) => start.unwrap_or(Err(Some(NO_START))),
    };
    let start = match start {
        Ok(start) => start,
        Err(Some(refusal)) => return refuse(socket, refusal).await,
        Err(None) => {
            metrics::counter!("streams_refused_total", "reason" => "gone").increment(1);
            tracing::debug!("a socket went away before its start");
            return;
        }
    };
    let call_sid = start.call.clone();
    let grant = match checked(doors, &start) {
        Ok(grant) => grant,
        Err(refusal) => {
            doors.events.publish(&call_sid, LiveEvent::StreamRefused { reason: refusal.reason });
            return refuse(socket, refusal).await;
        }
    };
    let stream = AcceptedStream {
        socket,
        start,
        caller: grant.caller,
        caller_verified: grant.caller_verified,
        agent: doors.agent.clone(),
        drain: doors.calls.handing_over().clone(),
        let_go: CancellationToken::new(),
    };
    match doors.calls.run(Arc::clone(&doors.starter), stream).await {
        Ok(()) => metrics::histogram!("stream_accept_ms").record(upgraded_at.elapsed().as_secs_f64() * 1_000.0),
        Err(refused) => {
            let refusal = match refused.why {
                NotAdmitted::Draining => DRAINING,
                NotAdmitted::AtLimit => AT_LIMIT,
            };
            doors.events.publish(&call_sid, LiveEvent::StreamRefused { reason: refusal.reason });
            refuse(*refused.socket, refusal).await;
        }
    }
}

/// Reads to the `start`. `Err(None)`: the socket is gone, nobody is left to be told.
async fn start_of(socket: &mut TwilioSocket<TcpStream>) -> Result<Start, Option<Refusal>> {
    // Nobody may speak before the start, so nothing worth keeping ever lands here.
    let mut audio = Vec::new();
    loop {
        match socket.next(&mut audio).await {
            Ok(Inbound::Started(start)) => return Ok(*start),
            Ok(Inbound::StartRefused(problem)) | Err(PhoneError::StartRefused(problem)) => {
                tracing::warn!(%problem, "stream refused");
                return Err(Some(BAD_START));
            }
            // The socket counts what it cannot use and what comes out of its order.
            Ok(
                Inbound::Connected { .. }
                | Inbound::Ignored(_)
                | Inbound::Media(_)
                | Inbound::KeyPressed { .. }
                | Inbound::MarkReturned(_)
                | Inbound::Stopped,
            ) => {}
            Err(error @ PhoneError::TooLong { .. }) => {
                tracing::warn!(%error, "stream refused");
                return Err(Some(OVERSIZE));
            }
            Err(error @ PhoneError::Protocol(_)) => {
                tracing::warn!(%error, "stream refused");
                return Err(Some(BROKEN));
            }
            Err(
                PhoneError::Closed { .. } | PhoneError::Lost(_) | PhoneError::NotOpen | PhoneError::OutboundFull { .. },
            ) => return Err(None),
        }
    }
}

/// The token first: without it nothing else of the `start` is worth a word.
fn checked(doors: &Doors, start: &Start) -> Result<Grant, Refusal> {
    let token = start.parameters.get("token").map(|token| SecretString::from(token.as_str()));
    let call_sid = &start.call;
    let grant = doors.tokens.redeem(call_sid, token.as_ref()).map_err(|why| {
        tracing::warn!(%call_sid, stream_sid = %start.stream, %why, "stream refused");
        BAD_TOKEN
    })?;
    if grant.account_sid != start.account || !doors.carrier.takes_account(&start.account) {
        tracing::warn!(%call_sid, stream_sid = %start.stream, account_sid = start.account, "stream refused: another account");
        return Err(BAD_ACCOUNT);
    }
    Ok(grant)
}

async fn refuse(mut socket: TwilioSocket<TcpStream>, refusal: Refusal) {
    metrics::counter!("streams_refused_total", "reason" => refusal.reason).increment(1);
    tracing::info!(code = refusal.code, reason = refusal.reason, "stream closed before its call");
    // Bounded by the socket itself; the connection goes either way.
    let _ = socket.close(refusal.code, refusal.reason).await;
}
