//! Twilio Media Streams, bidirectional (`<Connect><Stream>`).
//!
//! - [`wire`]: one message, bytes ↔ enums.
//! - [`order`]: which message may come when, and on which stream.
//! - [`inbound`]: gaps, bursts, repeats and stalls of caller audio.
//! - [`socket`]: the WebSocket, one reader and one writer by `&mut self`.
//! - [`signature`]: who sent a webhook or an upgrade.
//! - [`twiml`]: the documents that we answer webhooks with.

pub mod inbound;
pub mod order;
mod scan;
pub mod signature;
pub mod socket;
pub mod twiml;
pub mod wire;

pub use inbound::{InboundAudio, Placement};
pub use socket::{PhoneError, SocketConfig, TwilioSocket};
pub use wire::{Ignored, Inbound, MediaFrame, Start, StartProblem};
