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

/// What a provider's session can do. The core decides by `speaks` and `turn_events`, never by a provider's name; what cannot be
/// cancelled, cut or kept silent the adapter puts into other words, so that the same commands serve (realtime-models.md, C4).
/// The default is what a Realtime session with explicit responses can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    pub speaks: Speaks,
    /// A generation can be stopped.
    pub cancel: bool,
    /// An item can be cut to what was heard. Where it cannot, the model is told in words.
    pub truncate: bool,
    /// A tool output may be given without the model speaking of it.
    pub silent_output: bool,
    /// The provider's turn detection says when the caller's turn has ended.
    pub turn_events: bool,
}

/// Who decides when the model speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaks {
    /// A response is asked for, and has an end.
    WhenAsked,
    /// The model listens and speaks at once. A response is a stretch of its voice, found by the adapter; answers to the caller
    /// come by themselves.
    ByItself,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self { speaks: Speaks::WhenAsked, cancel: true, truncate: true, silent_output: true, turn_events: true }
    }
}

/// Past tense: it has happened at the provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelEvent {
    /// A connection stands; what follows comes of a session with these capabilities. A second one in a call takes the
    /// place of the one before.
    SessionOpened { capabilities: Capabilities },
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
    /// The provider will end the session so many milliseconds from now, whatever happens in it.
    SessionExpires { after_ms: u64 },
}

/// Whose words a remembered part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    Caller,
    /// What of the agent's words could have been heard.
    Agent,
    /// Facts: outcomes of tools, keys that were pressed.
    Application,
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
    /// A part of what an earlier session of this call held: a new session knows nothing. Oldest first.
    AddHistory {
        speaker: Speaker,
        text: String,
    },
}
