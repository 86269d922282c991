//! Server events of the Live interface as what they say. Pure, and without memory: what follows from an event is
//! [`super::session`]'s.
//!
//! Audio arrives ten and more times a second for the whole call, silence included: its path scans and decodes into the
//! caller's buffer and allocates nothing. Every other event is rare and is parsed whole.

use crate::codes::UNKNOWN_CODE;
use crate::json::{BASE64, parse, scalar, str_of};
use crate::scan::{members, string};
use base64::Engine;
use serde_json::Value;
use vocab::model::ResponseEnd;

/// The audio format that we ask for, both ways: G.711 μ-law, as the telephone line has it …
pub const PCMU: &str = "audio/pcmu";
/// … at its rate, which this interface wants named.
pub const RATE_HZ: u32 = 8_000;
/// Longest id of the provider that is taken; real ones have about 40 bytes. A longer one makes its event malformed.
pub const ID_BYTES: usize = 128;
/// The reason of `session.closed` when the session's time was up.
const EXPIRED: &str = "expired";

/// What one server message says.
#[derive(Clone, Debug, PartialEq)]
pub enum LiveEvent {
    /// The session holds what `session.start` asked for. `format` is what it will really send, `None` if it did not say.
    Started {
        format: Option<String>,
        /// In seconds since 1970.
        expires_at: Option<u64>,
    },
    /// The μ-law is in the caller's buffer. `start_ms` only where the service gives positions (it does on sidebands).
    Audio {
        start_ms: Option<u64>,
    },
    /// A piece of what the model says, and when on the session's timeline.
    ModelWords(Words),
    /// A piece of what the caller says.
    CallerWords(Words),
    /// One of our appends was put into the context. It was not spoken by that.
    Appended {
        client_event_id: Option<String>,
    },
    /// The model wants the application to do something; what, only the conversation says.
    Delegated {
        delegation: String,
    },
    /// A run of the backend, told under its delegation; `None` for one that the service does not tie to any.
    Run {
        delegation: Option<String>,
        event: RunEvent,
    },
    /// Nothing comes after it.
    Closed {
        reason: String,
    },
    Error(LiveError),
    Ignored(Ignored),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    pub text: String,
    pub start_ms: u64,
    pub end_ms: u64,
}

/// A nested event of the Responses interface, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEvent {
    Created {
        name: String,
    },
    /// A call whose item is complete; others are never told.
    Call {
        call: String,
        name: String,
        arguments: String,
    },
    /// Its answer has begun to exist: from here on the voice may speak of it.
    Answering,
    Ended(ResponseEnd),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveError {
    pub code: String,
    /// The category, which may be the telling one.
    pub kind: String,
    pub message: String,
    /// Our event that it answers.
    pub client_event_id: Option<String>,
}

/// Why a message has no consequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// Understood, and of no interest.
    Uninteresting,
    /// A type that we do not know.
    Unknown,
    /// Not JSON, or without a member that its type cannot do without.
    Malformed,
}

/// Known and without consequence on a telephone.
const UNINTERESTING: [&str; 20] = [
    "session.updated",
    "session.input_audio.append",
    "session.input_audio.muted",
    "session.input_audio.unmuted",
    "session.output_audio.fixture.playing",
    "session.output_audio.fixture.played",
    "session.usage.updated",
    "decision.event",
    "decision.item.created",
    "decision.item.deleted",
    "info",
    "transport.answered",
    "transport.dtmf.received",
    "transport.dtmf.send",
    "transport.dtmf.sent",
    "transport.failed",
    "transport.ringing",
    "rate_limits.updated",
    "conversation.created",
    "session.created",
];

/// Reads one text message. The μ-law of an audio event is appended to `audio`; any other event leaves it alone.
pub fn decode(text: &str, audio: &mut Vec<u8>) -> LiveEvent {
    let [kind] = members(text, ["type"]);
    let Some(kind) = kind.and_then(string) else { return LiveEvent::Ignored(Ignored::Malformed) };
    let decoded = match &*kind {
        "session.output_audio.delta" => audio_delta(text, audio),
        "session.output_transcript.delta" => words(text).map(LiveEvent::ModelWords),
        "session.input_transcript.delta" => words(text).map(LiveEvent::CallerWords),
        "session.started" => started(text),
        "session.instructions.appended" | "session.thinking.appended" | "session.commentary.appended" => {
            parse(text).map(|event| LiveEvent::Appended { client_event_id: id_of(&event, "client_event_id") })
        }
        "session.delegation.created" => delegated(text),
        "response.event" => run(text),
        "session.closed" => closed(text),
        "error" => parse(text).map(|event| LiveEvent::Error(error(&event))),
        known if UNINTERESTING.contains(&known) => Some(LiveEvent::Ignored(Ignored::Uninteresting)),
        _ => Some(LiveEvent::Ignored(Ignored::Unknown)),
    };
    decoded.unwrap_or(LiveEvent::Ignored(Ignored::Malformed))
}

/// Whether this is the service's last word in a session.
pub fn is_last_word(text: &str) -> bool {
    let [kind] = members(text, ["type"]);
    kind.and_then(string).as_deref() == Some("session.closed")
}

/// The hot path: no allocation once `audio` has grown.
fn audio_delta(text: &str, audio: &mut Vec<u8>) -> Option<LiveEvent> {
    let [delta] = members(text, ["delta"]);
    let delta = string(delta?)?;
    let before = audio.len();
    if BASE64.decode_vec(delta.as_bytes(), audio).is_err() {
        audio.truncate(before);
        return None;
    }
    let [start] = members(text, ["start_ms"]);
    Some(LiveEvent::Audio { start_ms: start.and_then(|start| start.parse().ok()) })
}

fn words(text: &str) -> Option<Words> {
    let event = parse(text)?;
    let ms = |name: &str| event.get(name).and_then(Value::as_u64);
    let start_ms = ms("start_ms")?;
    Some(Words {
        text: str_of(&event, "delta")?.to_owned(),
        start_ms,
        end_ms: ms("end_ms").unwrap_or(start_ms).max(start_ms),
    })
}

fn started(text: &str) -> Option<LiveEvent> {
    let event = parse(text)?;
    let session = event.get("session")?;
    let format = session.pointer("/audio/format");
    let kind = format.and_then(|format| str_of(format, "type").or(format.as_str()));
    let rate = format.and_then(|format| format.get("rate")).and_then(Value::as_u64);
    // μ-law at another rate than the telephone's is as wrong as another law.
    let named = kind.map(|kind| match rate {
        Some(rate) if rate != u64::from(RATE_HZ) => format!("{kind} at {rate} Hz"),
        Some(_) | None => kind.to_owned(),
    });
    let expires_at = session.get("expires_at").and_then(Value::as_u64);
    Some(LiveEvent::Started { format: named, expires_at })
}

fn delegated(text: &str) -> Option<LiveEvent> {
    let event = parse(text)?;
    let delegation = event.get("delegation")?;
    let id = id_of(delegation, "id")?;
    match str_of(delegation, "target") {
        Some("client") | None => Some(LiveEvent::Delegated { delegation: id }),
        // The backend's: its runs tell of themselves.
        Some(_) => Some(LiveEvent::Ignored(Ignored::Uninteresting)),
    }
}

fn run(text: &str) -> Option<LiveEvent> {
    let outer = parse(text)?;
    let delegation = id_of(&outer, "delegation_id");
    let event = outer.get("event")?;
    let body = event.get("response").unwrap_or(&Value::Null);
    let told = match str_of(event, "type")? {
        // Without an id it is still a run: its events are tied together by the delegation.
        "response.created" => RunEvent::Created { name: id_of(body, "id").unwrap_or_default() },
        "response.output_item.done" => match finished_item(event.get("item")?)? {
            Some(event) => event,
            None => return Some(LiveEvent::Ignored(Ignored::Uninteresting)),
        },
        "response.output_text.delta" => RunEvent::Answering,
        "response.completed" => RunEvent::Ended(ResponseEnd::Completed),
        "response.failed" | "response.cancelled" => {
            let error = body.get("error").unwrap_or(&Value::Null);
            let code = str_of(error, "code").or(str_of(error, "type")).unwrap_or(UNKNOWN_CODE).to_owned();
            RunEvent::Ended(ResponseEnd::Failed { code })
        }
        "response.incomplete" => {
            let details = body.get("incomplete_details").unwrap_or(&Value::Null);
            let reason = str_of(details, "reason").unwrap_or(UNKNOWN_CODE).to_owned();
            RunEvent::Ended(ResponseEnd::Incomplete { reason })
        }
        _ => return Some(LiveEvent::Ignored(Ignored::Uninteresting)),
    };
    Some(LiveEvent::Run { delegation, event: told })
}

/// `None` is malformed, `Some(None)` an item that says nothing to us: reasoning, or a call that was cut off.
#[expect(clippy::option_option, reason = "the two kinds of nothing differ, and are told apart one line later")]
fn finished_item(item: &Value) -> Option<Option<RunEvent>> {
    match str_of(item, "type")? {
        "message" => Some(Some(RunEvent::Answering)),
        "function_call" if str_of(item, "status") == Some("completed") => {
            let text = |name: &str| str_of(item, name).map(str::to_owned);
            let (call, name) = (id_of(item, "call_id")?, text("name").filter(|name| !name.is_empty())?);
            Some(Some(RunEvent::Call { call, name, arguments: text("arguments")? }))
        }
        _ => Some(None),
    }
}

fn closed(text: &str) -> Option<LiveEvent> {
    let event = parse(text)?;
    let reason = match str_of(&event, "reason") {
        Some(EXPIRED) => format!("{}: the session reached the provider's time limit", crate::codes::SESSION_EXPIRED),
        Some(reason) => format!("closed by the provider: {reason}"),
        None => "closed by the provider".to_owned(),
    };
    Some(LiveEvent::Closed { reason })
}

fn error(event: &Value) -> LiveError {
    // Some servers write the error's members into the event itself.
    let error = event.get("error").unwrap_or(event);
    let text = |name: &str| error.get(name).and_then(scalar).filter(|text| !text.is_empty());
    let kind = text("type").unwrap_or_default();
    LiveError {
        code: text("code").unwrap_or_else(|| if kind.is_empty() { UNKNOWN_CODE.to_owned() } else { kind.clone() }),
        message: text("message").or_else(|| error.as_str().map(str::to_owned)).unwrap_or_default(),
        client_event_id: text("client_event_id").or_else(|| id_of(event, "client_event_id")),
        kind,
    }
}

fn id_of(value: &Value, name: &str) -> Option<String> {
    str_of(value, name).filter(|id| !id.is_empty() && id.len() <= ID_BYTES).map(str::to_owned)
}
