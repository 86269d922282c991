//! The telephone carriers. One folder a dialect: `wire.rs` is pure (bytes ↔ enums), `socket.rs` is the only file that
//! awaits. Carriers' words stop at this crate's edge.
//!
//! What is absent on purpose: no call state (the conversation judges marks, the driver ends calls), no HTTP server, no
//! resampling: μ-law goes through as it came.

pub mod twilio;
