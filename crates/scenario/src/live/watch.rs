//! The live events of a server, as they come.

use conversation::{Command, Input};
use futures_util::StreamExt;
use serde::Deserialize;
use tokio::sync::mpsc;
use vocab::CallTime;

/// Far more than one call has in a second.
const IN_FLIGHT: usize = 8_192;

/// One thing that happened in the server.
#[derive(Debug)]
pub enum Live {
    Step {
        call_sid: String,
        step: Box<Step>,
    },
    CallEnded {
        call_sid: String,
        /// The server's word for it.
        end: String,
    },
    /// Events were lost: whatever needs all of them is not proven.
    Missed,
}

/// One step of a call's core.
#[derive(Clone, Debug, Deserialize)]
pub struct Step {
    pub at_us: CallTime,
    pub input: Option<Input>,
    pub command: Option<Command>,
}

#[derive(Debug, Deserialize)]
struct Event {
    call_sid: String,
    event: String,
    name: Option<String>,
    end: Option<String>,
    fields: Option<Box<serde_json::value::RawValue>>,
}

/// What comes out of the answer of `/api/v1/events`. It is complete from now on, and ends when the server does.
pub fn watch(answer: reqwest::Response) -> mpsc::Receiver<Live> {
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    tokio::spawn(async move {
        let mut body = answer.bytes_stream();
        let mut text: Vec<u8> = Vec::new();
        while let Some(Ok(bytes)) = body.next().await {
            text.extend_from_slice(&bytes);
            let mut start = 0;
            // An event is one `data:` line between empty ones.
            while let Some(end) = text[start..].iter().position(|&byte| byte == b'\n') {
                if let Some(live) = understood(&text[start..start + end])
                    && sender.send(live).await.is_err()
                {
                    return;
                }
                start += end + 1;
            }
            text.drain(..start);
        }
    });
    receiver
}

fn understood(line: &[u8]) -> Option<Live> {
    let line = std::str::from_utf8(line).ok()?.trim_end();
    if line == "event: resync" {
        return Some(Live::Missed);
    }
    let event: Event = serde_json::from_str(line.strip_prefix("data: ")?).ok()?;
    match (event.event.as_str(), event.name.as_deref(), event.fields) {
        ("call_ended", _, _) => Some(Live::CallEnded { call_sid: event.call_sid, end: event.end.unwrap_or_default() }),
        // A step that we cannot read is one that we missed.
        ("note", Some("step"), Some(fields)) => Some(match serde_json::from_str(fields.get()) {
            Ok(step) => Live::Step { call_sid: event.call_sid, step: Box::new(step) },
            Err(_) => Live::Missed,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_read_from_its_event() {
        let line = br#"data: {"number":3,"at":1,"call_sid":"CA1","event":"note","name":"step","fields":{"at_us":2500,"input":"stream_ended"}}"#;
        match understood(line) {
            Some(Live::Step { call_sid, step }) => {
                assert_eq!((call_sid.as_str(), step.at_us), ("CA1", CallTime(2_500)));
                assert_eq!(step.input, Some(Input::StreamEnded));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(understood(b"event: resync\n"), Some(Live::Missed)));
        assert!(understood(b": keep-alive\n").is_none());
    }
}
