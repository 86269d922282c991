//! The outside world of a call, over real sockets: the carrier with a caller on it, the realtime model's service, and a
//! booking backend that is a system of record. Each starts by itself, takes faults, and keeps a record for verdicts.
//!
//! What is absent on purpose: the server's own wire code. Twilio's and OpenAI's messages are written here a second time,
//! from the vendors' documents, so that one misreading cannot hide itself by standing on both sides of the socket.

pub mod audio_file;
pub mod booking;
pub mod load;
pub mod load_model;
pub mod model;
pub mod phone;
pub mod voices;

mod clock;
mod g711;
mod resample;
mod ticker;
mod tls;
