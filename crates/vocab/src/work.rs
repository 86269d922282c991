//! What a call asks of the operation executor, and what it hears back.

use crate::delivery::{DeliveryBrief, DeliveryChange};
use crate::effect::OperationStatus;
use crate::{DeliveryId, OperationId, ProviderCallId, ResponseId, SaveId, ToolCallId, TurnId};
use serde::{Deserialize, Serialize};

/// A tool call as the model proposed it. Not permission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    pub tool_call: ToolCallId,
    pub provider_call: ProviderCallId,
    /// As the model wrote it; may name no tool of ours.
    pub tool: String,
    /// JSON text as the model wrote it.
    pub arguments: String,
    /// The caller's turn that the decision came from; `None` before the first one.
    pub turn: Option<TurnId>,
    /// The response that proposed it; its calls form one batch.
    pub response: ResponseId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkCommand {
    Propose(Proposal),
    /// No more tool calls will come from this response: its batch may drain.
    SealBatch {
        response: ResponseId,
    },
    SaveDelivery {
        save: SaveId,
        delivery: DeliveryId,
        change: DeliveryChange,
    },
}

/// Why a proposal was not admitted. `code` is for programs, `say` is a sentence that the model may speak from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub code: String,
    pub say: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkEvent {
    /// Committed to the store before it was said here.
    Admitted {
        tool_call: ToolCallId,
        operation: OperationId,
        /// Bounded wait for a direct answer before the model is told `accepted`, in milliseconds.
        inline_wait_ms: u32,
        /// The same intent was there already: this is its state, and no second effect was started.
        attached_to: Option<OperationStatus>,
        /// With `attached_to`: the outcome so far, for the model.
        result: Option<String>,
        /// With `attached_to`: details of the operation that are others than those just given, as JSON. What was given now
        /// was not taken.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stands: Option<String>,
    },
    Refused {
        tool_call: ToolCallId,
        refusal: Refusal,
    },
    /// The operation reached a state that can be told: a terminal one, or `Unknown`. `result` is words for the model.
    Finished {
        operation: OperationId,
        status: OperationStatus,
        result: String,
    },
    /// Its batch has drained, or it came from an earlier call of this caller.
    DeliveryReady(DeliveryBrief),
    /// The write is durable.
    Saved {
        save: SaveId,
    },
    /// The write was refused: the delivery is no longer ours to change (`reason` says why).
    SaveRefused {
        save: SaveId,
        reason: String,
    },
    /// The write was not done, and nothing says that it may not be: it can be asked for again.
    SaveFailed {
        save: SaveId,
        reason: String,
    },
}
