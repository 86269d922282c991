//! The conversation core: who may speak when, what was heard, and what is still owed.
//!
//! Time comes in, commands go out: `step(at, input, &mut commands)`. A step cannot fail; it explains itself with
//! [`Decision`]s. Deadlines at or before `at` fire inside the step, in a fixed order, so the same inputs give the same
//! commands, byte for byte (R13). The driver's loop is: carry out the commands, sleep until `next_deadline` or the next
//! input, step again.
//!
//! What is absent here on purpose: no runtime, no socket, no clock, no randomness, no audio bytes (samples are counted, the
//! driver holds them), no knowledge of how operations are made durable, and no name of a carrier or a model vendor.

mod barge_in;
mod claims;
mod command;
mod conversation;
mod deadline;
mod decision;
mod directions;
mod duplex;
mod floor;
pub mod gate;
pub mod history;
mod idle;
mod input;
mod invariant;
mod owed;
mod pending;
mod playback;
pub mod policy;
mod response;
mod session;
mod snapshot;
mod speak;
mod turn;
mod work;

pub use command::{CloseReason, Command, Measure};
pub use conversation::Conversation;
pub use decision::{Decision, DropReason, LatePart};
pub use input::Input;
pub use owed::AgentState;
pub use playback::{MarkVerdict, PlaybackEnd, PlaybackEndedBy};
pub use policy::Policy;
pub use response::Purpose;
pub use snapshot::Snapshot;
pub use turn::{TurnEndedBy, Voice};
