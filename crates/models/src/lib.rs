//! The edge to the realtime speech models: one folder a provider, each with `wire.rs` (pure) and `socket.rs` (awaits).

pub mod error;
pub mod openai_realtime;
pub mod socket;

pub use error::ModelError;
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

/// What a model session is opened with.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// `wss://api.openai.com/v1` or any compatible one (`ws://` for loopback).
    pub base_url: String,
    pub model: String,
    pub api_key: SecretString,
    pub instructions: String,
    pub voice: String,
    /// ISO 639-1, a hint for the transcription.
    pub language: Option<String>,
    /// Model of the caller's transcript; `None` turns transcripts off.
    pub transcription: Option<String>,
    pub tools: Vec<ToolSpec>,
    pub turn_detection: TurnDetection,
}
