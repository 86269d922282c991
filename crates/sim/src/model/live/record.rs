//! What a Live session was told and did.

use super::super::record::{CallRecord, ErrorRecord, TurnRecord};
use serde::Serialize;
use serde_json::Value;

/// One WebSocket. Times are microseconds since the server started.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LiveSessionRecord {
    pub opened_us: u64,
    /// When `session.start` was accepted.
    pub started_us: Option<u64>,
    pub closed_us: Option<u64>,
    /// The `reason` of `session.closed`, when it came to that.
    pub closed_for: Option<String>,
    /// The session as `session.start` gave it.
    pub start: Value,
    /// The `session` of each accepted `session.update`.
    pub updates: Vec<Value>,
    pub appends: Vec<AppendRecord>,
    /// What the client put into the backend's conversation, in order.
    pub items: Vec<Value>,
    /// `response.create`, accepted or not.
    pub creates: Vec<CreateRecord>,
    pub delegations: Vec<String>,
    pub runs: Vec<RunRecord>,
    /// What the model said, in order.
    pub said: Vec<SaidRecord>,
    pub turns: Vec<TurnRecord>,
    /// Caller audio received.
    pub appended_bytes: u64,
    /// Every error that was answered.
    pub errors: Vec<ErrorRecord>,
}

impl LiveSessionRecord {
    /// What is being said, or was said last.
    pub fn newest_said(&self) -> Option<&SaidRecord> {
        self.said.iter().rev().find(|said| said.sent_ms > 0)
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct AppendRecord {
    pub at_us: u64,
    /// `commentary`, `thinking`, `instructions`
    pub kind: String,
    pub content: String,
    pub delegation_id: Option<String>,
    pub acknowledged_us: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct CreateRecord {
    pub at_us: u64,
    pub accepted: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct RunRecord {
    pub id: String,
    pub delegation_id: Option<String>,
    /// Which rule it follows, from 1.
    pub rule: Option<usize>,
    /// It was started by `response.create`.
    pub continues: bool,
    pub calls: Vec<CallRecord>,
    /// `in_progress`, `completed`, `failed`, `cancelled`
    pub status: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct SaidRecord {
    /// Which rule it follows, from 1; `None` for what a fault makes it say.
    pub rule: Option<usize>,
    pub text: String,
    pub began_us: u64,
    /// On the session's timeline.
    pub began_ms: u64,
    pub sent_ms: u64,
    pub whole_ms: u64,
    /// It yielded to the caller.
    pub cut: bool,
    pub done: bool,
}
