//! The server's live events, as they come.

use anyhow::{Context, bail};
use conversation::{Command, Input};
use futures_util::StreamExt;
use operations::history::History;
use serde::Deserialize;
use tokio::sync::mpsc;
use vocab::CallTime;

/// Where a server's admin API is, and what opens it.
#[derive(Clone, Debug)]
pub(crate) struct AdminApi {
    /// No slash at its end.
    pub base: String,
    pub token: String,
}

/// Far more than one call has in a second.
const IN_FLIGHT: usize = 4_096;

/// One thing that happened in the server.
#[derive(Debug)]
pub(crate) enum Live {
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
    /// The server is gone.
    Gone,
}

/// One step of the core.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Step {
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

/// Subscribes; what is received is complete from then on.
pub(crate) async fn subscribe(api: &AdminApi, client: &reqwest::Client) -> anyhow::Result<mpsc::Receiver<Live>> {
    let url = format!("{}/api/v1/events", api.base);
    let answer = client.get(&url).bearer_auth(&api.token).send().await.context("the server's live events")?;
    if !answer.status().is_success() {
        bail!("the server's live events are refused: {}", answer.status());
    }
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    tokio::spawn(async move {
        let mut body = answer.bytes_stream();
        let mut text: Vec<u8> = Vec::new();
        while let Some(Ok(bytes)) = body.next().await {
            text.extend_from_slice(&bytes);
            // An event is one `data:` line between empty ones.
            while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                if let Some(live) = understood(&line)
                    && sender.send(live).await.is_err()
                {
                    return;
                }
            }
        }
        let _ = sender.send(Live::Gone).await;
    });
    Ok(receiver)
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

/// What the server keeps of the session of a call.
pub(crate) async fn history(api: &AdminApi, client: &reqwest::Client, call_sid: &str) -> anyhow::Result<History> {
    let url = format!("{}/api/v1/calls/{call_sid}/history", api.base);
    let answer = client.get(&url).bearer_auth(&api.token).send().await.context("the call's history")?;
    if !answer.status().is_success() {
        bail!("the history of {call_sid} is refused: {}", answer.status());
    }
    answer.json().await.context("the call's history cannot be read")
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
