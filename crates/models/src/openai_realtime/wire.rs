//! Server events of the Realtime interface into [`ModelEvent`]s. Pure: one message in, what it means out.
//!
//! Current and beta names are both taken, since compatible servers differ there first. Every event but the end of a
//! response is optional, an event that we do not know is counted and ignored, and nothing here is an error of ours.
//! Audio arrives tens of times a second: its path borrows, scans and decodes into the caller's buffer, and allocates
//! only for the first delta of an item.

pub use super::encode::{Dropped, Encoded, Standing, append, cancel_due, encode, session_update};
use super::errors;
use super::ids::{Ids, ItemOwner, UnfinishedCall};
use crate::codes::{UNKNOWN_CODE, is_fatal};
use crate::event_ids::read_request;
use crate::json::{BASE64, parse, str_of};
use crate::scan::{members, string};
use base64::Engine;
use serde_json::Value;
use vocab::model::{ModelEvent, ResponseEnd};
use vocab::{ModelResponseId, ProviderCallId, ResponseId, Samples};

/// The audio format that we ask for both ways: G.711 μ-law at 8 kHz, as the telephone line has it.
pub const PCMU: &str = "audio/pcmu";
/// Our key in `response.metadata`; a successful response refers back to its request in no other way.
pub const METADATA_KEY: &str = "answerback_response";

/// What one server message means.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    Event(ModelEvent),
    /// In this order: tool calls before the end of their response.
    Events(Vec<ModelEvent>),
    /// The session does not hold μ-law both ways; `None` where the server did not say.
    WrongFormat {
        input: Option<String>,
        output: Option<String>,
    },
    Ignored(Ignored),
}

/// Why a message has no consequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// Understood, and of no interest.
    Uninteresting,
    /// Says what an earlier event already said.
    Repeated,
    /// A type that we do not know.
    Unknown,
    /// Not JSON, or without a member that its type cannot do without.
    Malformed,
}

/// Reads one text message. μ-law of an audio event is appended to `audio`; any other event leaves `audio` alone.
pub fn decode(text: &str, ids: &mut Ids, audio: &mut Vec<u8>) -> Decoded {
    let [kind] = members(text, ["type"]);
    let Some(kind) = kind.and_then(string) else { return Decoded::Ignored(Ignored::Malformed) };
    let decoded = match &*kind {
        "response.output_audio.delta" | "response.audio.delta" => audio_delta(text, ids, audio),
        "response.output_audio_transcript.delta" | "response.audio_transcript.delta" => transcript_delta(text, ids),
        "response.output_audio_transcript.done" | "response.audio_transcript.done" => transcript_done(text, ids),
        "response.function_call_arguments.done" => arguments_done(text, ids),
        "response.output_item.done" => output_item_done(text, ids),
        "response.created" => response_created(text, ids),
        "response.done" => response_done(text, ids),
        "response.cancelled" => response_cancelled(text, ids),
        "input_audio_buffer.speech_started" => Some(Decoded::Event(ModelEvent::SpeechStarted)),
        "input_audio_buffer.speech_stopped" => Some(Decoded::Event(ModelEvent::SpeechStopped)),
        "input_audio_buffer.committed" => turn_committed(text, ids),
        "conversation.item.input_audio_transcription.completed" => caller_transcript(text, ids),
        "conversation.item.input_audio_transcription.failed" => transcription_failed(text),
        "session.created" => session_created(text),
        "session.updated" => session_updated(text, ids),
        "error" => parse(text).map(|event| {
            // Some servers write the error's members into the event itself.
            Decoded::Event(errors::read_error(event.get("error").unwrap_or(&event), ids))
        }),
        known if UNINTERESTING.contains(&known) => Some(Decoded::Ignored(Ignored::Uninteresting)),
        _ => Some(Decoded::Ignored(Ignored::Unknown)),
    };
    decoded.unwrap_or(Decoded::Ignored(Ignored::Malformed))
}

/// Known and without consequence. What they say comes to us in other events, or is not needed on a telephone.
const UNINTERESTING: [&str; 34] = [
    "conversation.created",
    "conversation.item.added",
    "conversation.item.created",
    "conversation.item.deleted",
    "conversation.item.done",
    "conversation.item.input_audio_transcription.delta",
    "conversation.item.input_audio_transcription.segment",
    "conversation.item.retrieved",
    "conversation.item.truncated",
    "input_audio_buffer.cleared",
    "input_audio_buffer.dtmf_event_received",
    "input_audio_buffer.timeout_triggered",
    "mcp_list_tools.completed",
    "mcp_list_tools.failed",
    "mcp_list_tools.in_progress",
    "output_audio_buffer.cleared",
    "output_audio_buffer.started",
    "output_audio_buffer.stopped",
    "rate_limits.updated",
    "response.audio.done",
    "response.content_part.added",
    "response.content_part.done",
    "response.function_call_arguments.delta",
    "response.mcp_call.completed",
    "response.mcp_call.failed",
    "response.mcp_call.in_progress",
    "response.mcp_call_arguments.delta",
    "response.mcp_call_arguments.done",
    "response.output_audio.done",
    "response.output_item.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.text.delta",
    "response.text.done",
];

/// The hot path: no allocation once the item is known and `audio` has grown.
fn audio_delta(text: &str, ids: &mut Ids, audio: &mut Vec<u8>) -> Option<Decoded> {
    let [response, item, delta] = members(text, ["response_id", "item_id", "delta"]);
    let (response, item, delta) = (string(response?)?, string(item?)?, string(delta?)?);
    let before = audio.len();
    if BASE64.decode_vec(delta.as_bytes(), audio).is_err() {
        audio.truncate(before);
        return None;
    }
    // One byte of μ-law is one sample.
    let samples = Samples(u32::try_from(audio.len() - before).unwrap_or(u32::MAX));
    if samples == Samples::ZERO {
        return Some(Decoded::Ignored(Ignored::Uninteresting));
    }
    let interned = ids.intern_response(&response).zip(ids.intern_item(&item, ItemOwner::Model));
    let Some((response, item)) = interned else {
        audio.truncate(before);
        return None;
    };
    if let Some(known) = ids.item_mut(item) {
        known.received = Samples(known.received.0.saturating_add(samples.0));
    }
    Some(Decoded::Event(ModelEvent::AudioReceived { response, item, samples }))
}

fn transcript_delta(text: &str, ids: &mut Ids) -> Option<Decoded> {
    let [response, item, delta] = members(text, ["response_id", "item_id", "delta"]);
    let delta = string(delta?)?;
    let response = ids.intern_response(&string(response?)?)?;
    let item = ids.intern_item(&string(item?)?, ItemOwner::Model)?;
    if let Some(known) = ids.item_mut(item) {
        known.transcript_in_pieces = true;
    }
    Some(Decoded::Event(ModelEvent::TranscriptReceived { response, item, text: delta.into_owned() }))
}

/// The whole transcript, which is news only from a server that sent no pieces.
fn transcript_done(text: &str, ids: &mut Ids) -> Option<Decoded> {
    let [response, item, transcript] = members(text, ["response_id", "item_id", "transcript"]);
    let response = ids.intern_response(&string(response?)?)?;
    let item = ids.intern_item(&string(item?)?, ItemOwner::Model)?;
    let known = ids.item_mut(item)?;
    if std::mem::replace(&mut known.transcript_in_pieces, true) {
        return Some(Decoded::Ignored(Ignored::Repeated));
    }
    let text = transcript.and_then(string).unwrap_or_default().into_owned();
    if text.is_empty() {
        return Some(Decoded::Ignored(Ignored::Uninteresting));
    }
    Some(Decoded::Event(ModelEvent::TranscriptReceived { response, item, text }))
}

/// Complete arguments are not yet a call: the item may still be cut off by a cancellation.
fn arguments_done(text: &str, ids: &mut Ids) -> Option<Decoded> {
    let [response, call, name, arguments] = members(text, ["response_id", "call_id", "name", "arguments"]);
    let response = ids.intern_response(&string(response?)?)?;
    let call = string(call?)?.into_owned();
    let arguments = string(arguments?)?.into_owned();
    let name = name.and_then(string).map(|name| name.into_owned());
    ids.arguments_complete(UnfinishedCall { call, response, name, arguments });
    Some(Decoded::Ignored(Ignored::Uninteresting))
}

fn output_item_done(text: &str, ids: &mut Ids) -> Option<Decoded> {
    let event = parse(text)?;
    let item = event.get("item")?;
    if str_of(item, "type") != Some("function_call") {
        return Some(Decoded::Ignored(Ignored::Uninteresting));
    }
    let response = ids.intern_response(str_of(&event, "response_id")?)?;
    finished_call(item, response, ids)
}

/// A `function_call` item that ended, from its own event or from the output of its response.
fn finished_call(item: &Value, response: ModelResponseId, ids: &mut Ids) -> Option<Decoded> {
    let call = str_of(item, "call_id").filter(|call| !call.is_empty())?;
    let unfinished = ids.take_unfinished(call);
    let complete = match str_of(item, "status") {
        Some(status) => status == "completed",
        // Servers that give items no status: complete arguments have to stand for it.
        None => unfinished.is_some(),
    };
    if !complete {
        return Some(Decoded::Ignored(Ignored::Uninteresting));
    }
    let (kept_name, kept_arguments) = unfinished.map_or((None, None), |kept| (kept.name, Some(kept.arguments)));
    let name = str_of(item, "name").map(str::to_owned).or(kept_name).filter(|name| !name.is_empty())?;
    let arguments = str_of(item, "arguments").map(str::to_owned).or(kept_arguments)?;
    Some(report_call(response, call, name, arguments, ids))
}

fn report_call(response: ModelResponseId, call: &str, name: String, arguments: String, ids: &mut Ids) -> Decoded {
    if !ids.first_report_of(call) {
        return Decoded::Ignored(Ignored::Repeated);
    }
    let provider_call = ProviderCallId::new(call);
    Decoded::Event(ModelEvent::ToolCallReceived { response, provider_call, name, arguments })
}

fn response_created(text: &str, ids: &mut Ids) -> Option<Decoded> {
    let event = parse(text)?;
    let body = event.get("response")?;
    let response = ids.intern_response(str_of(body, "id")?)?;
    let request = request_in(body);
    let known = ids.response_mut(response)?;
    if known.created || known.ended {
        // After its end it would look active for ever.
        return Some(Decoded::Ignored(Ignored::Repeated));
    }
    known.created = true;
    known.request = request;
    if let Some(request) = request
        && ids.request_answered(request) == Some(true)
    {
        ids.cancel_is_due(response);
    }
    Some(Decoded::Event(ModelEvent::ResponseCreated { response, request }))
}

fn response_done(text: &str, ids: &mut Ids) -> Option<Decoded> {
    let event = parse(text)?;
    let body = event.get("response")?;
    let response = match str_of(body, "id") {
        Some(name) => ids.intern_response(name)?,
        None => ids.open_response()?,
    };
    let end = read_end(body);
    let completed = end == ResponseEnd::Completed;
    if ids.response(response).is_some_and(|known| known.ended) {
        return Some(Decoded::Ignored(Ignored::Repeated));
    }
    let mut events = Vec::new();
    if completed {
        // For servers that leave out the item's own end.
        for item in body.get("output").and_then(Value::as_array).into_iter().flatten() {
            if str_of(item, "type") == Some("function_call")
                && let Some(Decoded::Event(call)) = finished_call(item, response, ids)
            {
                events.push(call);
            }
        }
    }
    for call in ids.take_unfinished_of(response) {
        if completed
            && let Some(name) = call.name
            && let Decoded::Event(call) = report_call(response, &call.call, name, call.arguments, ids)
        {
            events.push(call);
        }
    }
    let fatal = match &end {
        ResponseEnd::Failed { code } if is_fatal(code) => Some(code.clone()),
        ResponseEnd::Failed { .. }
        | ResponseEnd::Completed
        | ResponseEnd::Cancelled
        | ResponseEnd::Incomplete { .. } => None,
    };
    let ended = end_response(response, request_in(body), end, ids);
    if events.is_empty() && fatal.is_none() {
        return Some(Decoded::Event(ended));
    }
    events.push(ended);
    if let Some(code) = fatal {
        let message = body
            .pointer("/status_details/error/message")
            .and_then(Value::as_str)
            .unwrap_or("the response failed for a reason that will not pass")
            .to_owned();
        events.push(ModelEvent::ErrorReported { code, message, fatal: true });
    }
    Some(Decoded::Events(events))
}

/// Not a GA event; compatible servers send it before or instead of `response.done`.
fn response_cancelled(text: &str, ids: &mut Ids) -> Option<Decoded> {
    let event = parse(text)?;
    let body = event.get("response").unwrap_or(&Value::Null);
    let response = match str_of(body, "id").or_else(|| str_of(&event, "response_id")) {
        Some(name) => ids.intern_response(name)?,
        None => ids.open_response()?,
    };
    if ids.response(response).is_some_and(|known| known.ended) {
        return Some(Decoded::Ignored(Ignored::Repeated));
    }
    ids.take_unfinished_of(response);
    Some(Decoded::Event(end_response(response, request_in(body), ResponseEnd::Cancelled, ids)))
}

fn end_response(response: ModelResponseId, said: Option<ResponseId>, end: ResponseEnd, ids: &mut Ids) -> ModelEvent {
    let mut request = said;
    if let Some(known) = ids.response_mut(response) {
        known.ended = true;
        known.request = known.request.or(said);
        request = known.request;
    }
    if let Some(request) = request {
        ids.request_answered(request);
    }
    ModelEvent::ResponseEnded { response, request, end }
}

fn read_end(body: &Value) -> ResponseEnd {
    let details = body.get("status_details").unwrap_or(&Value::Null);
    match str_of(body, "status") {
        // A terminal event is the end, whatever a careless server calls the state.
        None | Some("completed" | "in_progress") => ResponseEnd::Completed,
        Some("cancelled") => ResponseEnd::Cancelled,
        Some("incomplete") => {
            ResponseEnd::Incomplete { reason: str_of(details, "reason").unwrap_or(UNKNOWN_CODE).to_owned() }
        }
        Some("failed") => {
            let error = details.get("error").unwrap_or(&Value::Null);
            let (code, kind) = (str_of(error, "code"), str_of(error, "type"));
            // The type may be the telling one: `{type: insufficient_quota, code: null}`.
            let told = kind.filter(|kind| is_fatal(kind)).or(code).or(kind).or(str_of(details, "reason"));
            ResponseEnd::Failed { code: told.unwrap_or(UNKNOWN_CODE).to_owned() }
        }
        Some(other) => ResponseEnd::Failed { code: other.to_owned() },
    }
}

fn turn_committed(text: &str, ids: &mut Ids) -> Option<Decoded> {
    let [item] = members(text, ["item_id"]);
    let item = ids.intern_item(&string(item?)?, ItemOwner::Caller)?;
    Some(Decoded::Event(ModelEvent::TurnCommitted { item }))
}

fn caller_transcript(text: &str, ids: &mut Ids) -> Option<Decoded> {
    let [item, transcript] = members(text, ["item_id", "transcript"]);
    let text = string(transcript?)?.into_owned();
    let item = ids.intern_item(&string(item?)?, ItemOwner::Caller)?;
    Some(Decoded::Event(ModelEvent::CallerTranscript { item, text }))
}

fn transcription_failed(text: &str) -> Option<Decoded> {
    let event = parse(text)?;
    let error = event.get("error").unwrap_or(&Value::Null);
    Some(Decoded::Event(ModelEvent::ErrorReported {
        code: "transcription_failed".to_owned(),
        message: str_of(error, "message").unwrap_or_default().to_owned(),
        fatal: false,
    }))
}

fn session_created(text: &str) -> Option<Decoded> {
    parse(text).map(|_| Decoded::Ignored(Ignored::Uninteresting))
}

/// The provider echoes the whole effective session; what it will really send is there, not in what we asked for.
fn session_updated(text: &str, ids: &mut Ids) -> Option<Decoded> {
    let event = parse(text)?;
    let session = event.get("session")?;
    let format = |nested: &str, flat: &str| {
        let nested = session.pointer(nested).and_then(|format| str_of(format, "type").or(format.as_str()));
        nested.or_else(|| str_of(session, flat)).map(str::to_owned)
    };
    let input = format("/audio/input/format", "input_audio_format");
    let output = format("/audio/output/format", "output_audio_format");
    if !is_pcmu(input.as_deref()) || !is_pcmu(output.as_deref()) {
        return Some(Decoded::WrongFormat { input, output });
    }
    if std::mem::replace(&mut ids.ready, true) {
        return Some(Decoded::Ignored(Ignored::Repeated));
    }
    ids.expires_at = session.get("expires_at").and_then(Value::as_u64);
    Some(Decoded::Event(ModelEvent::SessionReady))
}

/// A format that was not named is not trusted either: 24 kHz samples played as μ-law are noise at full volume.
fn is_pcmu(format: Option<&str>) -> bool {
    matches!(format, Some(PCMU | "g711_ulaw" | "pcmu"))
}

fn request_in(body: &Value) -> Option<ResponseId> {
    body.get("metadata").and_then(|metadata| str_of(metadata, METADATA_KEY)).and_then(read_request)
}
