//! Media Streams messages from the carrier's side, written from Twilio's page and not from our server's code.
//! (Twilio, "Media Streams: WebSocket messages"; errors 31950, 31951.)

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// What the server may ask of the carrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Media(Vec<u8>),
    Mark(String),
    Clear,
}

/// A message as understood, and what Twilio would complain of. One with extra fields still works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Understood {
    pub(super) command: Option<Command>,
    pub(super) complaint: Option<String>,
}

pub(super) fn understand(text: &str, stream_sid: &str) -> Understood {
    let bad = |complaint: String| Understood { command: None, complaint: Some(complaint) };
    let message = match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(message)) => message,
        Ok(_) => return bad("not a JSON object".into()),
        Err(error) => return bad(format!("not JSON: {error}")),
    };
    match message.get("streamSid").and_then(Value::as_str) {
        Some(sid) if sid == stream_sid => {}
        Some(other) => return bad(format!("streamSid {other} is not this stream's")),
        None => return bad("no streamSid".into()),
    }
    let event = message.get("event").and_then(Value::as_str).unwrap_or_default();
    let body = |field: &'static str| match message.get(field) {
        Some(Value::Object(body)) => Ok(body),
        _ => Err(format!("{event} without its {field} object")),
    };
    match event {
        "media" => match body("media") {
            Err(complaint) => bad(complaint),
            Ok(media) => match media.get("payload").and_then(Value::as_str).map(|p| STANDARD.decode(p)) {
                Some(Ok(mulaw)) => {
                    let header = mulaw.starts_with(b"RIFF") || mulaw.starts_with(b".snd");
                    let complaint = header
                        .then(|| "the payload starts with a file header".to_owned())
                        .or_else(|| extra(&message, &["event", "streamSid", "media"]))
                        .or_else(|| extra(media, &["payload"]));
                    Understood { command: Some(Command::Media(mulaw)), complaint }
                }
                Some(Err(error)) => bad(format!("the payload is not base64: {error}")),
                None => bad("media without payload".into()),
            },
        },
        "mark" => match body("mark") {
            Err(complaint) => bad(complaint),
            Ok(mark) => match mark.get("name").and_then(Value::as_str) {
                Some(name) => Understood {
                    command: Some(Command::Mark(name.to_owned())),
                    complaint: extra(&message, &["event", "streamSid", "mark"]).or_else(|| extra(mark, &["name"])),
                },
                None => bad("mark without name".into()),
            },
        },
        "clear" => Understood { command: Some(Command::Clear), complaint: extra(&message, &["event", "streamSid"]) },
        other => bad(format!("unknown event {other:?}")),
    }
}

fn extra(fields: &Map<String, Value>, known: &[&str]) -> Option<String> {
    fields.keys().find(|name| !known.contains(&name.as_str())).map(|name| format!("extra field {name:?}"))
}

/// Writes the carrier's messages. Sequence numbers, chunks and timestamps are strings on the wire.
#[derive(Debug)]
pub(crate) struct Carrier {
    pub(crate) stream_sid: String,
    pub(crate) account_sid: String,
    pub(crate) call_sid: String,
    sequence: u64,
    chunk: u64,
    /// Frames of the stream's clock, sent or skipped.
    position: u64,
    /// Timestamp of the first media message; 60 to 160 ms were seen on real calls.
    first_timestamp: u64,
}

pub(crate) const CONNECTED: &str = r#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#;

impl Carrier {
    pub(crate) fn new(stream_sid: String, account_sid: String, call_sid: String, first_timestamp: u64) -> Self {
        Self { stream_sid, account_sid, call_sid, sequence: 0, chunk: 0, position: 0, first_timestamp }
    }

    fn sequence(&mut self) -> String {
        self.sequence += 1;
        self.sequence.to_string()
    }

    pub(crate) fn start(&mut self, parameters: &[(String, String)]) -> String {
        let custom: Map<String, Value> = parameters.iter().map(|(n, v)| (n.clone(), v.as_str().into())).collect();
        json!({
            "event": "start",
            "sequenceNumber": self.sequence(),
            "start": {
                "accountSid": self.account_sid,
                "streamSid": self.stream_sid,
                "callSid": self.call_sid,
                "tracks": ["inbound"],
                "mediaFormat": { "encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1 },
                "customParameters": custom
            },
            "streamSid": self.stream_sid
        })
        .to_string()
    }

    /// `wobble_ms` is -1, 0 or 1: steps of the real timestamps are not exactly 20.
    pub(crate) fn media(&mut self, mulaw: &[u8], wobble_ms: i64) -> String {
        self.chunk += 1;
        self.sequence += 1;
        let timestamp = (self.first_timestamp + self.position * 20).saturating_add_signed(wobble_ms);
        self.position += 1;
        let mut text = String::with_capacity(400);
        let _ = write!(
            text,
            r#"{{"event":"media","sequenceNumber":"{}","media":{{"track":"inbound","chunk":"{}","timestamp":"{timestamp}","payload":""#,
            self.sequence, self.chunk
        );
        STANDARD.encode_string(mulaw, &mut text);
        let _ = write!(text, r#""}},"streamSid":"{}"}}"#, self.stream_sid);
        text
    }

    /// 20 ms pass without a message.
    pub(crate) fn skip(&mut self) {
        self.position += 1;
    }

    pub(crate) fn mark(&mut self, name: &str) -> String {
        let sequence = self.sequence();
        json!({ "event": "mark", "sequenceNumber": sequence, "streamSid": self.stream_sid, "mark": { "name": name } })
            .to_string()
    }

    pub(crate) fn dtmf(&mut self, digit: char) -> String {
        let sequence = self.sequence();
        json!({
            "event": "dtmf", "streamSid": self.stream_sid, "sequenceNumber": sequence,
            "dtmf": { "track": "inbound_track", "digit": digit.to_string() }
        })
        .to_string()
    }

    pub(crate) fn stop(&mut self) -> String {
        let sequence = self.sequence();
        json!({
            "event": "stop", "sequenceNumber": sequence, "streamSid": self.stream_sid,
            "stop": { "accountSid": self.account_sid, "callSid": self.call_sid }
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_messages_are_understood_and_nothing_else() {
        let heard = |text: &str| understand(text, "MZ1");
        let good = |command| Understood { command: Some(command), complaint: None };
        assert_eq!(
            heard(r#"{"event":"media","streamSid":"MZ1","media":{"payload":"//8="}}"#),
            good(Command::Media(vec![0xff, 0xff]))
        );
        assert_eq!(heard(r#"{"event":"mark","streamSid":"MZ1","mark":{"name":"a"}}"#), good(Command::Mark("a".into())));
        assert_eq!(heard(r#"{"event":"clear","streamSid":"MZ1"}"#), good(Command::Clear));
        for (text, works, complaint) in [
            (r#"{"event":"clear","streamSid":"MZ2"}"#, false, "not this stream's"),
            (r#"{"event":"clear"}"#, false, "no streamSid"),
            (r#"{"event":"clear","streamSid":"MZ1","sequenceNumber":"1"}"#, true, "sequenceNumber"),
            (r#"{"event":"media","streamSid":"MZ1","media":{"payload":"","track":"outbound"}}"#, true, "track"),
            (r#"{"event":"media","streamSid":"MZ1","media":{"payload":"%"}}"#, false, "base64"),
            (r#"{"event":"media","streamSid":"MZ1","media":{"payload":"UklGRg=="}}"#, true, "file header"),
            (r#"{"event":"media","streamSid":"MZ1"}"#, false, "media object"),
            (r#"{"event":"mark","streamSid":"MZ1"}"#, false, "mark object"),
            (r#"{"event":"mark","streamSid":"MZ1","mark":{}}"#, false, "without name"),
            (r#"{"event":"hangup","streamSid":"MZ1"}"#, false, "unknown event"),
            ("[]", false, "not a JSON object"),
            ("x", false, "not JSON"),
        ] {
            let understood = heard(text);
            assert_eq!(understood.command.is_some(), works, "{text}");
            assert!(understood.complaint.is_some_and(|c| c.contains(complaint)), "{text}");
        }
    }

    #[test]
    fn numbers_travel_as_strings_and_every_message_counts() {
        let mut carrier = Carrier::new("MZ1".into(), "AC1".into(), "CA1".into(), 100);
        let read = |text: String| serde_json::from_str::<Value>(&text).unwrap();
        let start = read(carrier.start(&[("token".into(), "a\"b".into())]));
        assert_eq!(
            (&start["sequenceNumber"], &start["start"]["customParameters"]["token"]),
            (&json!("1"), &json!("a\"b"))
        );
        assert_eq!(start["start"]["mediaFormat"]["sampleRate"], json!(8000));
        let first = read(carrier.media(&[0xff; 160], 0));
        assert_eq!(
            first,
            json!({ "event": "media", "sequenceNumber": "2", "streamSid": "MZ1", "media": {
                "track": "inbound", "chunk": "1", "timestamp": "100", "payload": STANDARD.encode([0xff; 160]) } })
        );
        assert_eq!(read(carrier.mark("m"))["sequenceNumber"], "3");
        assert_eq!(read(carrier.dtmf('#'))["dtmf"], json!({ "track": "inbound_track", "digit": "#" }));
        let second = read(carrier.media(&[0xff; 160], 1));
        assert_eq!((&second["media"]["chunk"], &second["media"]["timestamp"]), (&json!("2"), &json!("121")));
        carrier.skip();
        let third = read(carrier.media(&[0xff; 160], 0));
        assert_eq!((&third["media"]["chunk"], &third["media"]["timestamp"]), (&json!("3"), &json!("160")));
        assert_eq!(read(carrier.stop())["stop"], json!({ "accountSid": "AC1", "callSid": "CA1" }));
    }
}
