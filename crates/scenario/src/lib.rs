//! Scenarios: one readable file a call that must come out right, played in memory in virtual time and over real sockets
//! against a real server, judged by the same expectations.
//!
//! What is absent on purpose: any rule of the house. This crate says what happens to a call and what came of it; why is
//! the business of the floors below.

mod director;
pub mod ear;
pub mod events;
pub mod file;
pub mod from_call;
pub mod judge;
pub mod live;
mod overrides;
pub mod problems;
pub mod record;
pub mod report;
pub mod run;
pub mod schema;
mod setup;
mod sound;
pub mod virtual_run;
