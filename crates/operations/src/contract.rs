//! What a tool promises and what we promise about it. Written by an operator in `config/tools/*.toml`, read by
//! `server::config`, obeyed by admission and executor.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use vocab::ToolName;
use vocab::effect::{EffectClass, Priority};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolContract {
    pub name: ToolName,
    /// Shown to the model.
    pub description: String,
    /// JSON Schema (2020-12) of the arguments; shown to the model and checked by admission.
    pub parameters: Value,
    pub effect: EffectClass,
    /// Arguments that make the intent; empty means all of them.
    pub intent_fields: Vec<String>,
    /// JSON Pointer templates joined to name what is changed, e.g. `table:{/date}:{/time}`; one mutation at a time a resource.
    pub resource: Option<String>,
    /// From admission; nothing is sent after it.
    pub deadline_ms: u64,
    /// One request to the backend.
    pub attempt_timeout_ms: u64,
    pub retry: RetryRule,
    /// How long the model waits for a direct answer before it is told `accepted` (behaviour.md 4: 700 ms).
    pub inline_wait_ms: u32,
    /// Running at once, over all callers.
    pub max_running: u32,
    /// Waiting beyond that; the next one is refused with a speakable reason.
    pub max_queued: u32,
    pub delivery: DeliveryRule,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetryRule {
    /// Attempts in all, the first one included.
    pub max_attempts: u32,
    /// Exponential with full jitter: a random wait in `0..min(cap, base * 2^n)`.
    pub base_ms: u64,
    pub cap_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeliveryRule {
    pub priority: Priority,
    /// The tool's own quiet window; `None` takes the agent's.
    pub quiet_ms: Option<u32>,
    /// After this the outcome is no longer news; `None` is never.
    pub stale_after_ms: Option<u64>,
}
