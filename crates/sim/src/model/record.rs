//! What the simulated model was told and did: the model's side of every verdict.

use super::live::LiveSessionRecord;
use serde::Serialize;
use serde_json::Value;

#[derive(Clone, Debug, Default, Serialize)]
pub struct ModelRecord {
    pub sessions: Vec<SessionRecord>,
    pub live_sessions: Vec<LiveSessionRecord>,
    /// Upgrades refused, with the reason.
    pub refused: Vec<String>,
}

/// One WebSocket. Times are microseconds since the server started.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SessionRecord {
    pub opened_us: u64,
    pub closed_us: Option<u64>,
    pub model: String,
    /// The `session` of each accepted `session.update`, as sent.
    pub updates: Vec<Value>,
    /// Items that the client created, as kept (with their ids).
    pub items: Vec<Value>,
    pub responses: Vec<ResponseRecord>,
    pub truncations: Vec<TruncationRecord>,
    pub deletions: Vec<String>,
    pub cancels: Vec<CancelRecord>,
    pub turns: Vec<TurnRecord>,
    /// Caller audio received.
    pub appended_bytes: u64,
    /// Every error that was answered.
    pub errors: Vec<ErrorRecord>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ResponseRecord {
    pub id: String,
    pub created_us: u64,
    pub done_us: Option<u64>,
    /// As the client sent it.
    pub metadata: Value,
    /// The response's own instructions, when it had some.
    pub instructions: Option<String>,
    /// Which rule answered, from 1; `None` when no rule matched and the response was empty.
    pub rule: Option<usize>,
    pub texts: Vec<String>,
    pub calls: Vec<CallRecord>,
    /// Audio sent so far, in milliseconds.
    pub audio_ms: u64,
    /// `in_progress`, `completed`, `cancelled`, `failed`
    pub status: String,
    /// Created by the server's own turn detection.
    pub by_turn_detection: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct CallRecord {
    pub call_id: String,
    pub name: String,
    pub arguments: String,
    /// The item was finished: it may be executed.
    pub completed: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct TruncationRecord {
    pub at_us: u64,
    pub item_id: String,
    pub audio_end_ms: i64,
    /// What the item held when the truncation came.
    pub item_audio_ms: u64,
    pub accepted: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct CancelRecord {
    pub at_us: u64,
    pub response_id: Option<String>,
    /// The response it ended; `None` when nothing was active.
    pub ended: Option<String>,
}

/// A caller turn as the server's turn detection (or the client's commit) saw it.
#[derive(Clone, Debug, Serialize)]
pub struct TurnRecord {
    pub item_id: String,
    pub started_us: Option<u64>,
    pub committed_us: Option<u64>,
    pub transcript: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct ErrorRecord {
    pub at_us: u64,
    pub code: Option<String>,
    pub message: String,
    pub event_id: Option<String>,
}

impl ModelRecord {
    /// Every tool output of every session: call id and text, in order of arrival.
    pub fn tool_outputs(&self) -> Vec<(String, String)> {
        let text = |item: &Value, field: &str| item[field].as_str().unwrap_or_default().to_owned();
        let realtime = self.sessions.iter().flat_map(|s| &s.items);
        realtime
            .chain(self.live_sessions.iter().flat_map(|s| &s.items))
            .filter(|item| item["type"] == "function_call_output")
            .map(|item| (text(item, "call_id"), text(item, "output")))
            .collect()
    }
}
