//! Twilio's doors: three signed webhooks and the signed stream.

mod carrier;
mod signed;
mod status;
mod stream;
mod token;
mod twiml;
mod voice;

pub(crate) use carrier::Carrier;
pub(crate) use status::status;
pub(crate) use stream::stream;
pub(crate) use token::StreamTokens;
pub(crate) use voice::{resume, voice};

/// Our paths below the public address.
const STREAM_PATH: &str = "/twilio/stream";
const STATUS_PATH: &str = "/twilio/status";
const RESUME_PATH: &str = "/twilio/resume";
