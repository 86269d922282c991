//! Client events of the Live interface. Pure: each function makes one event.

use super::wire::{PCMU, RATE_HZ};
use super::{Delegation, GptLiveSettings};
use crate::{SessionConfig, ToolSpec, json};
use bytes::BytesMut;
use serde_json::{Value, json};

/// Longest text of one append. The service takes 500 tokens and there is no tokenizer here: no tokenizer in use makes more
/// than one token of two bytes of ordinary text, in any script.
pub const APPEND_BYTES: usize = 1_000;
/// Longest text that is appended in pieces; what is beyond it is cut off, since no caller would listen to it.
pub const TEXT_BYTES: usize = 8 * APPEND_BYTES;

/// How a text enters the conversation while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Append {
    /// To be said soon, in the model's own words.
    Commentary,
    /// To be known, not said.
    Thinking,
}

/// `session.start`: μ-law both ways, and who does the work.
pub fn session_start(config: &SessionConfig, settings: &GptLiveSettings, event_id: &str) -> Value {
    let delegation = match &settings.delegation {
        Delegation::Client { .. } => json!({"type": "client"}),
        Delegation::Responses { model, instructions } => json!({
            "type": "responses",
            "responses": {
                "model": model,
                // The rules of the business are the backend's as much as the voice's.
                "instructions": instructions.as_ref().unwrap_or(&config.instructions),
                "tools": config.tools.iter().map(tool).collect::<Vec<_>>(),
                "tool_choice": "auto",
                "parallel_tool_calls": true,
            },
        }),
    };
    let mut session = json!({
        "model": config.model,
        "audio": {"format": {"type": PCMU, "rate": RATE_HZ}, "output": {"voice": config.voice}},
        "delegation": delegation,
    });
    // Blank ones would be replaced by the service's own all the same.
    if !config.instructions.is_empty() {
        session["instructions"] = json!(config.instructions);
    }
    json!({"type": "session.start", "event_id": event_id, "session": session})
}

fn tool(tool: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        // Our schemas may have optional arguments, which the strict mode has not.
        "strict": false,
    })
}

/// `session.input_audio.append` of μ-law. Nothing is allocated but what `out` lacks; no event id, since it is never answered.
pub fn audio(mulaw: &[u8], out: &mut BytesMut) {
    json::append_audio(br#"{"type":"session.input_audio.append","audio":""#, mulaw, out);
}

/// `delegation` only for one that the service gave to us to do.
pub fn append(how: Append, delegation: Option<&str>, content: &str, event_id: &str) -> Value {
    let kind = match how {
        Append::Commentary => "session.commentary.append",
        Append::Thinking => "session.thinking.append",
    };
    json!({"type": kind, "event_id": event_id, "delegation_id": delegation, "content": content})
}

pub fn tool_output(call: &str, output: &str, event_id: &str) -> Value {
    let item = json!({"type": "function_call_output", "call_id": call, "output": output});
    json!({"type": "response.item.create", "event_id": event_id, "item": item})
}

/// A direction for the backend's next run, as an item of its conversation.
pub fn backend_direction(text: &str, event_id: &str) -> Value {
    let content = json!([{"type": "input_text", "text": text}]);
    let item = json!({"type": "message", "role": "developer", "content": content});
    json!({"type": "response.item.create", "event_id": event_id, "item": item})
}

pub fn response_create(event_id: &str) -> Value {
    json!({"type": "response.create", "event_id": event_id})
}

pub fn session_close(event_id: &str) -> Value {
    json!({"type": "session.close", "event_id": event_id})
}

/// The text in pieces of at most [`APPEND_BYTES`], cut between words where there are any, and at most [`TEXT_BYTES`] of it.
pub fn pieces(text: &str) -> Vec<&str> {
    let mut rest = text.get(..floor_char(text, TEXT_BYTES)).unwrap_or_default().trim();
    let mut pieces = Vec::new();
    while rest.len() > APPEND_BYTES {
        let hard = floor_char(rest, APPEND_BYTES);
        let window = &rest[..hard];
        // A text without spaces is cut where it must be.
        let cut = window.rfind(char::is_whitespace).filter(|at| *at > 0).unwrap_or(hard);
        let (piece, more) = rest.split_at(cut);
        pieces.push(piece.trim_end());
        rest = more.trim_start();
    }
    if !rest.is_empty() {
        pieces.push(rest);
    }
    pieces
}

/// The nearest character boundary at or before `at`.
pub fn floor_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_words_and_nothing_of_it_is_lost() {
        let text = "The table by the window is free at nine. ".repeat(60);
        let pieces = pieces(&text);
        assert!(pieces.len() > 2 && pieces.iter().all(|piece| piece.len() <= APPEND_BYTES));
        assert_eq!(pieces.join(" "), text.trim());
    }

    #[test]
    fn a_text_without_spaces_is_cut_between_characters_and_a_huge_one_is_bounded() {
        let text = "窓".repeat(10_000);
        let pieces = pieces(&text);
        assert!(pieces.iter().all(|piece| piece.len() <= APPEND_BYTES && !piece.is_empty()));
        let total: usize = pieces.iter().map(|piece| piece.len()).sum();
        assert_eq!(total, TEXT_BYTES / 3 * 3);
        assert!(super::pieces("  ").is_empty());
    }
}
