//! All that is known of one demo when it is over: what the caller, the model, the booking system and the server each say.

use super::ear::{Heard, Hearing};
use super::moment::Moment;
use super::world::Faults;
use crate::live::Step;
use crate::sound::audible_bytes;
use operations::delivery::Delivery;
use operations::history::{OperationHistory, SessionHistory};
use sim::booking::BookingReport;
use sim::model::ModelRecord;
use sim::phone::CallResult;

/// The agent's lines that claim a booking.
pub(crate) const CONFIRMING: [&str; 3] =
    ["window_and_confirmation.ulaw", "builtin:agent_confirmation", "builtin:agent_back_booked"];
pub(crate) const ACKNOWLEDGING: &str = "builtin:agent_acknowledge";

/// One call. Its own times count from its dialling.
#[derive(Debug)]
pub(crate) struct CallStory {
    /// Since the first call was dialled.
    pub dialled_us: u64,
    /// When the media stream opened: zero of the server's steps. On the call's own axis.
    pub opened_us: u64,
    pub result: CallResult,
    pub hearing: Hearing,
    pub steps: Vec<Step>,
    /// The server was killed during it.
    pub killed: bool,
}

#[derive(Debug)]
pub(crate) struct Story {
    pub faults: Faults,
    pub seed: u64,
    pub took_ms: u64,
    pub calls: Vec<CallStory>,
    /// When the booking was seen in the backend's book.
    pub committed_us: Option<u64>,
    pub killed_us: Option<u64>,
    /// Live events were lost on their way to us.
    pub missed: bool,
    pub report: BookingReport,
    pub model: ModelRecord,
    /// Where the zero of the model's record lies on our axis.
    pub model_zero_us: i64,
    pub sessions: Vec<SessionHistory>,
    pub moments: Vec<Moment>,
    pub stopped_well: bool,
}

impl Story {
    pub fn operations(&self) -> impl Iterator<Item = &OperationHistory> {
        self.sessions.iter().flat_map(|session| &session.operations)
    }

    pub fn deliveries(&self) -> impl Iterator<Item = &Delivery> {
        self.sessions.iter().flat_map(|session| &session.deliveries)
    }

    /// Every hearing of the given lines, with its call.
    pub fn heard<'a>(&'a self, voices: &'a [&str]) -> impl Iterator<Item = (&'a CallStory, &'a Heard)> {
        self.calls.iter().flat_map(move |call| {
            call.hearing.heard.iter().filter(|heard| voices.contains(&heard.voice.as_str())).map(move |h| (call, h))
        })
    }
}

impl CallStory {
    /// When a voice of the caller was audible, from its first to its last sound, on the call's axis.
    pub fn audible(&self, voice: &str) -> Option<(u64, u64)> {
        let said = self.result.said.iter().find(|said| said.file == voice)?;
        let (first, last) = audible_bytes(&said.mulaw)?;
        Some((said.at_us + first as u64 * 125, said.at_us + last as u64 * 125))
    }
}
