//! One task owns one call. It polls both sockets and the executor's desk itself, so a frame crosses no channel, takes no
//! lock and wakes no second task; the order in which it sees things is the order of the recording; and its panic ends one
//! call.
//!
//! The way of a frame: `actor.rs` stamps the time once → `listen.rs` adds the evidence → `recorder.rs` logs it → the core
//! steps → `perform.rs` carries the commands out. Nothing is judged here.

mod actor;
mod desk;
mod listen;
mod perform;
mod playout;
pub mod recorder;
mod report;
mod sources;

pub use actor::{CallLimits, CallSetup, Seen, Watch, run};
pub use desk::{Desk, DeskFull};
pub use report::{CallEnd, CallReport};
