//! What the caller is still due: the greeting, an answer to each turn, an answer to tool outputs. An interruption cuts the
//! voice, not the debt. The public state is derived from it and never pulses through `listening`. (behaviour.md 6)

use serde::{Deserialize, Serialize};
use vocab::{CallTime, TurnId};

/// What the world may know of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    #[default]
    Listening,
    Thinking,
    Speaking,
}

#[derive(Clone, Debug, Default)]
pub struct Owed {
    /// Directions of a greeting that has not been asked for yet.
    pub greeting: Option<String>,
    /// The latest closed turn without an answer: one answer covers the turns before it.
    pub turn: Option<TurnId>,
    /// When that turn closed.
    pub turn_closed_at: Option<CallTime>,
    /// When the caller stopped speaking, for the measure of what follows.
    pub turn_ended_at: Option<CallTime>,
}

impl Owed {
    pub fn is_due(&self) -> bool {
        self.greeting.is_some() || self.turn.is_some()
    }
}
