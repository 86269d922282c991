//! The edge to the systems of record. A tool kind turns an attempt into a request and the answer into what is *known*
//! about the effect; it retries nothing, remembers nothing, and speaks to nobody.

pub mod http;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use vocab::{CallerId, IntentKey, OperationId, SessionId};

/// One try. The same operation always carries the same key.
#[derive(Clone, Debug)]
pub struct ToolRequest {
    pub operation: OperationId,
    pub key: IntentKey,
    pub session: SessionId,
    pub caller: CallerId,
    /// Validated and normalised.
    pub arguments: Value,
    /// Attempts so far, this one included; from 1.
    pub attempt: u32,
    /// What is left for this attempt.
    pub timeout: Duration,
}

/// What is known after one try.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// The system of record says it happened.
    Committed { result: Value, provider_ref: Option<String> },
    /// The system of record says no, and nothing was done: a business answer, not to be retried.
    Refused { result: Value },
    /// Certain that nothing was done, and it may work later (connection refused, 429, 503 before work).
    Retryable { reason: String },
    /// The request left and the answer is missing, makes no sense, or lacks the reference that the tool's config declares: it
    /// may have happened.
    Unclear { reason: String },
}

/// What the system of record says when asked about a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LookUp {
    Found {
        result: Value,
        provider_ref: Option<String>,
    },
    /// It reached the record of keys and there is none. Counts only after the tool's settle time.
    Absent,
    /// No answer that proves anything: a refusal met while asking proves nothing either.
    Unanswered {
        reason: String,
    },
}

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A kind of tool, set up for one tool of the config. Calls are never cancelled by dropping the future on an
/// interruption of speech; the executor owns the deadline.
pub trait Tool: Send + Sync {
    fn run(&self, request: ToolRequest) -> BoxFuture<'_, ToolOutcome>;
    /// `None` when the backend cannot be asked.
    fn look_up(&self, request: ToolRequest) -> Option<BoxFuture<'_, LookUp>>;
}
