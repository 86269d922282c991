//! The words of the house: identities, time, audio units, and the enums that the rooms speak to each other.
//!
//! What is absent here on purpose: no clock is read, no randomness drawn, no I/O done. A type that only one
//! room uses belongs in that room.

pub mod audio;
pub mod delivery;
pub mod effect;
pub mod ids;
pub mod mark;
pub mod model;
pub mod time;
pub mod work;

pub use audio::{AudioMs, Samples, VoiceEvidence};
pub use ids::*;
pub use mark::MarkName;
pub use time::{CallTime, WallTime};
