//! How a call's stream ended, for whoever started it.

use conversation::history::Entry;
use std::fmt;
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

/// Why the stream is over. `Finished` and `NoModel` end the *call*: after the others the carrier's TwiML tail may bring it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// We are done with this call and it should be hung up.
    Finished { reason: String },
    /// The carrier said `stop`.
    Stopped,
    /// The carrier's socket is gone, or no media came for too long.
    StreamLost { reason: String },
    /// The server asked us to let go.
    LetGo,
    /// No model session could be opened, or the provider refuses to serve us: a new stream would fare no better.
    NoModel { reason: String },
    /// The model session that served this call is gone; a new stream gets a new model session.
    ModelLost { reason: String },
}

impl fmt::Display for CallEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished { reason } => write!(f, "we ended the call: {reason}"),
            Self::Stopped => f.write_str("the carrier stopped the stream, as at a hang-up"),
            Self::StreamLost { reason } => write!(f, "the stream broke: {reason}"),
            Self::LetGo => f.write_str("the server let go of it"),
            Self::NoModel { reason } => write!(f, "there was no model: {reason}"),
            Self::ModelLost { reason } => write!(f, "the model session was lost: {reason}"),
        }
    }
}

impl CallEnd {
    pub(crate) const fn ends_call(&self) -> bool {
        match self {
            Self::Finished { .. } | Self::NoModel { .. } => true,
            Self::Stopped | Self::StreamLost { .. } | Self::LetGo | Self::ModelLost { .. } => false,
        }
    }
}
