//! One Media Streams message, bytes ↔ enums (Twilio, "Media Streams: WebSocket messages"). Pure.
//!
//! Inbound, nothing fails: a message that we cannot use is [`Inbound::Ignored`] with the reason, an unknown field is passed
//! over, and a number may be written as a number or as a string. Only `start` can be refused, since audio in an unknown
//! format would reach a caller's ear as noise.
//!
//! Outbound there are three shapes and no way to make a fourth: the carrier warns once a stream about an extra field and
//! is silent afterwards, so this encoder has to be right by type.

use super::scan::{self, Count};
use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::BytesMut;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use vocab::{AudioMs, CallSid, MarkName, StreamSid};

/// Longest message looked at, in bytes. The carrier's are 0.4 kB; a `start` full of parameters is a few kB.
pub const MESSAGE_LIMIT_BYTES: usize = 64 * 1024;
/// Deepest nesting looked at: `start.customParameters` is 3. Far under serde_json's own 128.
const DEPTH_LIMIT: usize = 16;
/// Longest piece of a foreign text that is kept for a log.
const QUOTE_CHARS: usize = 64;

/// Padding is written as the standard says and not missed when absent.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What the carrier says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbound {
    /// First, once. The version is for the log: never match on it (0.2.0 and 1.0.0 are both in the wild).
    Connected { protocol: String, version: String },
    /// Second, once: from here on we may send.
    Started(Box<Start>),
    /// Caller audio: the bytes are in the buffer that was passed in.
    Media(MediaFrame),
    /// A key, `0`-`9`, `*`, `#` or `A`-`D`. One message a press.
    KeyPressed { digit: char },
    /// One of our marks came back. Played and cleared look the same.
    MarkReturned(MarkName),
    /// Last. The stream is over; whether the call is, only the call's state knows (a redirect stops it too).
    Stopped,
    /// `start` describes a stream that we cannot serve.
    StartRefused(StartProblem),
    /// Nothing that we can use; the stream goes on.
    Ignored(Ignored),
}

/// The identity of a stream.
#[derive(Clone, PartialEq, Eq)]
pub struct Start {
    pub stream: StreamSid,
    pub call: CallSid,
    /// `AC…`; to be compared with the configured one.
    pub account: String,
    /// `inbound` and perhaps `outbound`.
    pub tracks: Vec<String>,
    /// The `<Parameter>`s of the TwiML. One of them is the one-time token, so `Debug` shows their names only.
    pub parameters: BTreeMap<String, String>,
}

impl fmt::Debug for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Start")
            .field("stream", &self.stream)
            .field("call", &self.call)
            .field("account", &self.account)
            .field("tracks", &self.tracks)
            .field("parameters", &self.parameters.keys())
            .finish()
    }
}

/// The label of a stretch of caller audio. Its length is the buffer's: no document promises 160 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaFrame {
    /// Counts the frames of the track from 1.
    pub chunk: Option<u32>,
    /// Position in the carrier's media clock, not an arrival time. The first one is not 0.
    pub timestamp: Option<AudioMs>,
    /// Counts all messages of the stream; `start` is 1.
    pub sequence: Option<u32>,
}

/// Why a stream cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartProblem {
    #[error("the start message is {dialect}'s, not Twilio's: use that carrier's Twilio-compatible mode")]
    OtherDialect { dialect: &'static str },
    #[error("the start message lacks {field}")]
    Lacks { field: &'static str },
    #[error(
        "the stream carries {encoding} at {rate} Hz on {channels} channel(s); audio/x-mulaw at 8000 Hz on 1 is needed"
    )]
    Format { encoding: String, rate: String, channels: String },
}

/// Why a message was passed over. Texts are cut to 64 characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// Over [`MESSAGE_LIMIT_BYTES`].
    TooLong { bytes: usize },
    /// Not JSON, or nested deeper than 16.
    Malformed,
    /// No `event`, or not an object.
    NoEvent,
    /// The carrier adds events as it likes.
    UnknownEvent(String),
    /// A known event without what makes it one, e.g. `mark` without a name.
    Incomplete { event: &'static str },
    /// The payload of a `media` is not base64.
    BadPayload,
    /// Our own sound on its way out; a `<Connect>` stream never carries it, and it must not be heard as the caller.
    OtherTrack(String),
    /// A key that no telephone has.
    NotAKey(String),
    /// The name of a mark that we never send.
    ForeignMark(String),
    /// Comes before `start`, after `stop`, or a second time.
    OutOfOrder { event: &'static str },
    /// Names another stream than `start` did.
    OtherStream(String),
}

/// A message and the stream that it names, if it names one.
#[derive(Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    pub stream: Option<std::borrow::Cow<'a, str>>,
    pub inbound: Inbound,
}

/// Reads one text message. `audio` is emptied; after [`Inbound::Media`] it holds the μ-law bytes. A plain `media` or `mark`
/// allocates nothing once `audio` has grown to the size of a frame.
pub fn decode<'a>(text: &'a str, audio: &mut Vec<u8>) -> Decoded<'a> {
    audio.clear();
    if text.len() > MESSAGE_LIMIT_BYTES {
        return Decoded { stream: None, inbound: Inbound::Ignored(Ignored::TooLong { bytes: text.len() }) };
    }
    match scan::fields(text) {
        Some(fields) => {
            let inbound = match (fields.event, fields.media) {
                (Some("mark"), _) => mark(fields.mark),
                (_, None) => Inbound::Ignored(Ignored::Incomplete { event: "media" }),
                (_, Some(scan::Media { track, chunk, timestamp, payload })) => {
                    media(Media { track, chunk, timestamp, payload, sequence: fields.sequence }, audio)
                }
            };
            Decoded { stream: fields.stream.map(Into::into), inbound }
        }
        None => parse(text, audio),
    }
}

/// The same, by the real parser: any key order, escape and nesting.
fn parse<'a>(text: &str, audio: &mut Vec<u8>) -> Decoded<'a> {
    let ignored = |why| Decoded { stream: None, inbound: Inbound::Ignored(why) };
    if nesting(text) > DEPTH_LIMIT {
        return ignored(Ignored::Malformed);
    }
    let Ok(message) = serde_json::from_str::<Value>(text) else { return ignored(Ignored::Malformed) };
    let Some(event) = message.get("event").and_then(Value::as_str) else { return ignored(Ignored::NoEvent) };
    let field = |object: &str, key: &str| message.get(object).and_then(|o| o.get(key));
    let text_of = |object: &str, key: &str| field(object, key).and_then(Value::as_str);
    let inbound = match event {
        "connected" => {
            let word = |key| quote(message.get(key).and_then(Value::as_str).unwrap_or_default());
            Inbound::Connected { protocol: word("protocol"), version: word("version") }
        }
        "start" => match start(&message) {
            Ok(start) => Inbound::Started(Box::new(start)),
            Err(problem) => Inbound::StartRefused(problem),
        },
        "media" if !message.get("media").is_some_and(Value::is_object) => {
            Inbound::Ignored(Ignored::Incomplete { event: "media" })
        }
        "media" => {
            let count_of = |key| field("media", key).and_then(count);
            let media_fields = Media {
                track: text_of("media", "track"),
                chunk: count_of("chunk"),
                timestamp: count_of("timestamp"),
                payload: text_of("media", "payload"),
                sequence: message.get("sequenceNumber").and_then(count),
            };
            media(media_fields, audio)
        }
        "dtmf" => key(text_of("dtmf", "digit").map(str::to_owned).or_else(|| {
            // A clone may write the digit 5 as the number 5.
            field("dtmf", "digit").and_then(Value::as_u64).map(|digit| digit.to_string())
        })),
        "mark" => mark(text_of("mark", "name")),
        "stop" => Inbound::Stopped,
        unknown => Inbound::Ignored(Ignored::UnknownEvent(quote(unknown))),
    };
    let stream = message.get("streamSid").and_then(Value::as_str).map(|sid| sid.to_owned().into());
    Decoded { stream, inbound }
}

/// Deepest nesting of brackets outside strings, seen before anything is built from them.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

struct Media<'a> {
    track: Option<&'a str>,
    chunk: Count,
    timestamp: Count,
    payload: Option<&'a str>,
    sequence: Count,
}

fn media(fields: Media<'_>, audio: &mut Vec<u8>) -> Inbound {
    let Media { track, chunk, timestamp, payload, sequence } = fields;
    if let Some(track) = track
        && track != "inbound"
    {
        return Inbound::Ignored(Ignored::OtherTrack(quote(track)));
    }
    let Some(payload) = payload else { return Inbound::Ignored(Ignored::Incomplete { event: "media" }) };
    if BASE64.decode_vec(payload, audio).is_err() {
        audio.clear();
        return Inbound::Ignored(Ignored::BadPayload);
    }
    Inbound::Media(MediaFrame { chunk, timestamp: timestamp.map(AudioMs), sequence })
}

fn mark(name: Option<&str>) -> Inbound {
    match name {
        None => Inbound::Ignored(Ignored::Incomplete { event: "mark" }),
        Some(name) => match name.parse() {
            Ok(mark) => Inbound::MarkReturned(mark),
            Err(vocab::mark::NotOurMark) => Inbound::Ignored(Ignored::ForeignMark(quote(name))),
        },
    }
}

fn key(digit: Option<String>) -> Inbound {
    let Some(digit) = digit else { return Inbound::Ignored(Ignored::Incomplete { event: "dtmf" }) };
    let mut chars = digit.chars();
    match (chars.next(), chars.next()) {
        (Some(key @ ('0'..='9' | '*' | '#' | 'A'..='D')), None) => Inbound::KeyPressed { digit: key },
        (Some(key @ 'a'..='d'), None) => Inbound::KeyPressed { digit: key.to_ascii_uppercase() },
        _ => Inbound::Ignored(Ignored::NotAKey(quote(&digit))),
    }
}

fn start(message: &Value) -> Result<Start, StartProblem> {
    let lacks = |field| StartProblem::Lacks { field };
    let start = message.get("start").filter(|start| start.is_object()).ok_or(lacks("start"))?;
    let text = |key: &str| start.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let has = |key: &str| start.get(key).is_some();
    let stream = text("streamSid").or_else(|| message.get("streamSid").and_then(Value::as_str));
    if stream.is_none() || !has("callSid") {
        // Each carrier's own pair of names (twilio.md section 4).
        let dialect = if has("call_control_id") {
            Some("Telnyx")
        } else if has("streamId") || has("callId") {
            Some("Plivo")
        } else if has("stream_sid") || has("call_sid") {
            Some("Exotel")
        } else {
            None
        };
        if let Some(dialect) = dialect {
            return Err(StartProblem::OtherDialect { dialect });
        }
    }
    let stream = stream.ok_or(lacks("start.streamSid"))?;
    let call = text("callSid").ok_or(lacks("start.callSid"))?;
    let account = text("accountSid").ok_or(lacks("start.accountSid"))?;
    let format = start.get("mediaFormat").ok_or(lacks("start.mediaFormat"))?;
    let encoding = format.get("encoding").and_then(Value::as_str).ok_or(lacks("start.mediaFormat.encoding"))?;
    let rate = format.get("sampleRate").ok_or(lacks("start.mediaFormat.sampleRate"))?;
    let channels = format.get("channels").ok_or(lacks("start.mediaFormat.channels"))?;
    if !encoding.eq_ignore_ascii_case("audio/x-mulaw") || count(rate) != Some(8_000) || count(channels) != Some(1) {
        return Err(StartProblem::Format { encoding: quote(encoding), rate: shown(rate), channels: shown(channels) });
    }
    let tracks = start.get("tracks").and_then(Value::as_array).into_iter().flatten();
    let parameters = start.get("customParameters").and_then(Value::as_object).into_iter().flatten();
    Ok(Start {
        stream: StreamSid::new(stream),
        call: CallSid::new(call),
        account: account.to_owned(),
        tracks: tracks.filter_map(Value::as_str).map(quote).collect(),
        parameters: parameters.map(|(name, value)| (name.clone(), plain(value))).collect(),
    })
}

/// A count written as a number or as a string of digits.
fn count(value: &Value) -> Count {
    match value {
        Value::Number(number) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
        Value::String(text) => scan::count(text),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

fn shown(value: &Value) -> String {
    quote(&plain(value))
}

fn quote(text: &str) -> String {
    text.chars().take(QUOTE_CHARS).collect()
}

/// Writes what we say on one stream: three shapes, exactly their documented fields.
#[derive(Clone, Debug)]
pub struct Encoder {
    /// `,"streamSid":"MZ…"`, escaped once.
    stream_field: String,
}

impl Encoder {
    pub fn new(stream: &StreamSid) -> Self {
        // Escaped, because a clone may put anything into its id.
        Self { stream_field: format!(",\"streamSid\":{}", Value::from(stream.as_str())) }
    }

    /// Appends one `media` with these μ-law bytes, which are queued and played in order. Any length is legal; multiples
    /// of 160, up to 200 ms, serve the carrier's buffer best.
    pub fn media(&self, audio: &[u8], message: &mut BytesMut) {
        message.extend_from_slice(b"{\"event\":\"media\"");
        message.extend_from_slice(self.stream_field.as_bytes());
        message.extend_from_slice(b",\"media\":{\"payload\":\"");
        let start = message.len();
        message.resize(start + audio.len().div_ceil(3) * 4, 0);
        // Cannot fail: the room is base64's exact length. Were it ever to, no bytes go out instead of wrong ones.
        let written = BASE64.encode_slice(audio, &mut message[start..]).unwrap_or(0);
        message.truncate(start + written);
        message.extend_from_slice(b"\"}}");
    }

    /// Appends one `mark`: it returns when everything before it has left the carrier's player, or was cleared.
    pub fn mark(&self, name: MarkName, message: &mut BytesMut) {
        message.extend_from_slice(b"{\"event\":\"mark\"");
        message.extend_from_slice(self.stream_field.as_bytes());
        message.extend_from_slice(b",\"mark\":{\"name\":\"");
        // A mark's name is letters, digits and colons, and a `BytesMut` grows as it is written to.
        let _ = write!(message, "{name}");
        message.extend_from_slice(b"\"}}");
    }

    /// Appends one `clear`: empties the carrier's buffer and returns all outstanding marks.
    pub fn clear(&self, message: &mut BytesMut) {
        message.extend_from_slice(b"{\"event\":\"clear\"");
        message.extend_from_slice(self.stream_field.as_bytes());
        message.extend_from_slice(b"}");
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
