//! How a call's stream ended, for whoever started it.

use conversation::history::Entry;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct CallReport {
    pub end: CallEnd,
    pub lasted: Duration,
    /// What was said and what of it was heard.
    pub history: Vec<Entry>,
    /// Caller audio that came again or out of place, and silence put into gaps, in milliseconds.
    pub padded_ms: u64,
}

/// Why the stream is over. Only `Finished` ends the *call*: after the others the carrier's TwiML tail may bring it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// We are done with this call and it should be hung up.
    Finished { reason: String },
    /// The carrier said `stop`.
    Stopped,
    /// The carrier's socket is gone, or no media came for too long.
    StreamLost { reason: String },
    /// The server asked us to let go.
    Cancelled,
    /// The model is gone; a new stream gets a new model session.
    ModelLost { reason: String },
}
