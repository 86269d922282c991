//! One thing to be said. A finished operation makes a pending delivery; the conversation decides when it can be heard.

use crate::effect::Priority;
use crate::{AudioMs, DeliveryId, OperationId};
use serde::{Deserialize, Serialize};

/// Where a delivery stands, in the store and in the core alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// May be spoken when the gate lets it. An interrupted delivery is ready again, with one more offer behind it.
    Ready,
    /// A response was asked to say it; no evidence yet.
    Offered,
    /// Mark evidence covers it. Final.
    Heard,
    /// A crash fell between speaking and evidence: never volunteered as news again.
    Uncertain,
    /// Not to be said (stale, no longer relevant). Final.
    Suppressed,
    /// A newer delivery says it better. Final.
    Superseded,
    /// Its time has passed. Final.
    Expired,
}

impl DeliveryState {
    pub const fn is_final(self) -> bool {
        match self {
            Self::Heard | Self::Suppressed | Self::Superseded | Self::Expired => true,
            Self::Ready | Self::Offered | Self::Uncertain => false,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Offered => "offered",
            Self::Heard => "heard",
            Self::Uncertain => "uncertain",
            Self::Suppressed => "suppressed",
            Self::Superseded => "superseded",
            Self::Expired => "expired",
        }
    }
}

/// All that the conversation needs to know of a delivery in order to judge and speak it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryBrief {
    pub delivery: DeliveryId,
    pub operations: Vec<OperationId>,
    /// The outcome in words and data for the model, e.g. `book_table committed: {"reference":"B-7"}`.
    pub text: String,
    /// Some member is still unknown or failed, so success must not be claimed for it.
    pub all_committed: bool,
    pub priority: Priority,
    /// The tool's own quiet window; `None` takes the agent's.
    pub quiet_ms: Option<u32>,
    /// How long from now the news is news; `None` is for ever.
    pub fresh_for_ms: Option<u64>,
    /// `Ready` or `Uncertain`.
    pub state: DeliveryState,
    /// How often it was offered so far.
    pub offers: u32,
    /// Made in an earlier call of the same verified caller.
    pub from_earlier_call: bool,
}

/// A change of a delivery that the core asks the store to keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryChange {
    /// A response is about to be asked to say it; `attached` when it joins a response that is due anyway.
    Offered {
        attached: bool,
    },
    /// Mark evidence covers it up to here.
    Heard {
        heard: AudioMs,
    },
    /// Cut before the threshold: ready again.
    Interrupted {
        heard: AudioMs,
    },
    /// All of it went out and no mark came back: uncertain, never volunteered as news again.
    Unproven {
        possible: AudioMs,
    },
    /// Offered but never sounded: as before. `counts`: the number of offers stays as it is (it had joined an answer, or the
    /// model made nothing of it); else the offer is taken back.
    Withdrawn {
        counts: bool,
    },
    Suppressed {
        reason: String,
    },
    Superseded {
        by: DeliveryId,
    },
    Expired,
}
