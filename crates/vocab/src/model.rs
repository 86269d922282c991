//! What a realtime speech model tells the call, and what the call asks of it, in words that no vendor owns.

use crate::{AudioMs, ModelItemId, ModelResponseId, ProviderCallId, ResponseId, Samples};
use serde::{Deserialize, Serialize};

/// How a model's generation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseEnd {
    Completed,
    Cancelled,
    /// Stopped by a limit or filter; what came is kept.
    Incomplete {
        reason: String,
    },
    Failed {
        code: String,
    },
}

/// Past tense: it has happened at the provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelEvent {
    /// The session holds our configuration; responses may be asked for.
    SessionReady,
    /// The provider's turn detection heard the caller start.
    SpeechStarted,
    /// The provider's turn detection heard the caller stop.
    SpeechStopped,
    /// The caller's speech became a conversation item: the provider considers the turn ended.
    TurnCommitted { item: ModelItemId },
    /// The caller's words; may be late. Placed by item, never by order.
    CallerTranscript { item: ModelItemId, text: String },
    /// `request` is ours when the provider echoes our metadata; `None` for a response nobody asked for.
    ResponseCreated { response: ModelResponseId, request: Option<ResponseId> },
    /// The driver holds the bytes; the core counts them.
    AudioReceived { response: ModelResponseId, item: ModelItemId, samples: Samples },
    /// A piece of the transcript of what the model says. Not aligned with the audio.
    TranscriptReceived { response: ModelResponseId, item: ModelItemId, text: String },
    /// A complete tool call. One whose item was cut off by a cancellation is never reported.
    ToolCallReceived {
        response: ModelResponseId,
        provider_call: ProviderCallId,
        name: String,
        /// JSON text as the model wrote it; not yet trusted.
        arguments: String,
    },
    /// May come without `ResponseCreated` before it.
    ResponseEnded { response: ModelResponseId, request: Option<ResponseId>, end: ResponseEnd },
    /// The provider refused to create the response that we asked for. `busy`: another response is active.
    CreateRefused { request: ResponseId, busy: bool, message: String },
    /// Anything else that the provider calls an error. `fatal` ones end the session for good.
    ErrorReported { code: String, message: String, fatal: bool },
    /// The connection is gone.
    SessionLost { reason: String },
}

/// Imperative: what we ask of the provider. Caller audio does not pass here; the driver appends it directly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelCommand {
    /// Make the caller's buffered audio a conversation item (only when the provider's turn detection is off).
    CommitTurn,
    CreateResponse {
        response: ResponseId,
        /// Added to the agent's instructions for this one response.
        directions: Option<String>,
        /// Whether the model may propose tool calls in this response.
        tools: bool,
    },
    CancelResponse {
        response: ResponseId,
    },
    /// Cut the provider's item to what was heard. Clamped by the adapter to the audio it received.
    TruncateItem {
        item: ModelItemId,
        audio_end: AudioMs,
    },
    /// Nothing of the item was heard.
    DeleteItem {
        item: ModelItemId,
    },
    /// Answer a tool call; silent until a response is created.
    SubmitToolOutput {
        provider_call: ProviderCallId,
        output: String,
    },
    /// Put a fact into the conversation without a word said.
    AddContext {
        text: String,
    },
}
