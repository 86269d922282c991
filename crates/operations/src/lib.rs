//! The durable rules: what may be admitted, what sameness is, what an outcome changes, when a batch closes and what is
//! then to be said. Pure: no runtime, no clock, no randomness; times and ids come in as arguments.
//!
//! *That* a delivery exists is decided here; *when* it may be heard is the conversation's.

pub mod contract;
