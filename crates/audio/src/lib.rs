//! Telephone audio, pure: G.711 laws, frame cutting, resampling, and evidence of voice.
//!
//! One sound has three forms here: μ-law or A-law bytes as the carrier sends them, 16-bit linear samples at 8 kHz, and
//! 16-bit linear samples at the rate that a provider asks for. A provider that takes μ-law gets the carrier's bytes
//! untouched: nothing in this crate is on that path but the detector's decode.
//!
//! What is absent on purpose: no clock, no runtime, no randomness, no file format. In steady state nothing here
//! allocates: every function writes into a buffer that the caller keeps (`tests/allocations.rs` counts).

pub mod cascade;
pub mod earshot;
pub mod frames;
pub mod g711;
pub mod level;
pub mod resample;
mod sendable_vad;
mod tonality;
pub mod voice_activity;
pub mod webrtc;
mod windows;

pub use frames::FrameCutter;
pub use level::level_dbfs;
pub use resample::{Rate, Resampler};
pub use voice_activity::{Detector, VoiceActivity};
