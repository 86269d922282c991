//! The durable side of a session: who is calling, whether a call holds it now, and under which epoch.

use serde::{Deserialize, Serialize};
use vocab::{AgentId, CallSid, CallerId, SessionId, StreamSid, WallTime};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// A stream holds it.
    Live,
    /// Its stream or its process is gone; a new stream of the same call takes it up again.
    Lost,
    /// The call is over. Final.
    Ended,
}

impl SessionState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Lost => "lost",
            Self::Ended => "ended",
        }
    }
}

/// How a stream let go of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionEnd {
    /// The call is over, whoever hung up.
    CallEnded,
    /// The stream broke; the carrier may open another one for the same call.
    StreamLost,
}

impl SessionEnd {
    /// For logs: a stream that is over is no trouble by itself, since an ordinary hang-up looks the same.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::CallEnded => "the call is over",
            Self::StreamLost => "the stream is over; the call may still come back",
        }
    }

    pub const fn leaves(self) -> SessionState {
        match self {
            Self::CallEnded => SessionState::Ended,
            Self::StreamLost => SessionState::Lost,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    pub id: SessionId,
    pub call_sid: CallSid,
    /// The latest stream.
    pub stream_sid: StreamSid,
    pub caller: CallerId,
    /// Only a verified caller's deliveries pass from one call to the next.
    pub caller_verified: bool,
    pub agent: AgentId,
    pub state: SessionState,
    /// Rises by one at each opening: what an older stream still writes is refused, and response ordinals, which start
    /// again with each stream, cannot be mixed up.
    pub epoch: u32,
    pub started_at: WallTime,
    pub ended_at: Option<WallTime>,
}
