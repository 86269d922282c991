//! The four clocks at one moment, as the gate sees them and as every gate decision is logged with.

use serde::{Deserialize, Serialize};
use vocab::TurnId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Tentative speech counts.
    pub caller_speaking: bool,
    /// The caller holds the floor: speaking, or not yet answered for by a turn end.
    pub open_turn: Option<TurnId>,
    /// An answer is owed or being generated: to a turn, to tool outputs, or the greeting.
    pub response_owed: bool,
    /// Something of ours is queued, playing, or may still be in the carrier's buffer.
    pub playback_live: bool,
    /// What is being said is itself urgent: it is not interrupted by its like.
    #[serde(default)]
    pub urgent_voice: bool,
    /// Both sides have been silent for this long.
    pub quiet_ms: u32,
}
