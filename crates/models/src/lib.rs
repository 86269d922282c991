//! The edge to the realtime speech models: one folder a provider, each with `wire.rs` (pure) and `socket.rs` (awaits).

pub mod codes;
pub mod connect;
pub mod error;
mod event_ids;
pub mod gpt_live;
mod json;
pub mod link;
pub mod openai_realtime;
mod scan;
pub mod socket;
mod tls;

pub use error::ModelError;
pub use gpt_live::{Delegation, GptLiveSettings};
pub use socket::ModelSocket;

use secrecy::SecretString;
use serde_json::Value;

/// A tool as the model sees it.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// JSON Schema.
    pub parameters: Value,
}

/// Who detects the end of the caller's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnDetection {
    /// Semantic turn detection as events only: the provider creates and interrupts nothing.
    SemanticEvents { eagerness: Eagerness },
    /// Off: we commit.
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eagerness {
    Low,
    Medium,
    High,
    Auto,
}

/// Whose interface a session speaks.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Provider {
    #[default]
    OpenAiRealtime,
    GptLive(GptLiveSettings),
}

/// What a model session is opened with.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    pub provider: Provider,
    /// `wss://api.openai.com/v1` or any compatible one (`ws://` for loopback).
    pub base_url: String,
    pub model: String,
    pub api_key: SecretString,
    pub instructions: String,
    pub voice: String,
    /// ISO 639-1, a hint for the transcription.
    pub language: Option<String>,
    /// Model of the caller's transcript; `None` turns transcripts off. GPT-Live always transcribes, with its own.
    pub transcription: Option<String>,
    pub tools: Vec<ToolSpec>,
    /// GPT-Live has none: it judges for itself.
    pub turn_detection: TurnDetection,
}
