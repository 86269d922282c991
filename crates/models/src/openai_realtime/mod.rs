//! OpenAI's Realtime interface (GA), and everything that speaks it: `base_url` decides who answers.
//!
//! `wire` and what it stands on (`encode`, `errors`, `ids`) are pure; `socket` alone awaits. Absent on purpose:
//! no timer but those that bound connecting and closing, no retry, no judgement about when to speak.

pub mod encode;
pub mod errors;
pub mod ids;
pub mod socket;
pub mod wire;

use vocab::model::{Capabilities, Speaks};

/// Explicit responses, our own cancel and truncate, outputs that stay silent until a response is asked for.
pub const CAPABILITIES: Capabilities =
    Capabilities { speaks: Speaks::WhenAsked, cancel: true, truncate: true, silent_output: true, turn_events: true };
