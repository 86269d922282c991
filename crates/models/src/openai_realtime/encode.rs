//! [`ModelCommand`]s into client events. Pure: appends one JSON text to a buffer, or says why nothing is to be sent.

use super::ids::{CancelTarget, Ids, ItemOwner};
use super::wire::{METADATA_KEY, PCMU};
use crate::json::{append_audio, write};
use crate::{Eagerness, SessionConfig, TurnDetection};
use bytes::BytesMut;
use serde_json::{Value, json};
use vocab::model::{ModelCommand, Speaker};
use vocab::{AudioMs, ModelItemId};

/// What stands for the whole session and is needed to encode later commands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Instructions of a response replace the session's, so directions are sent together with these.
    pub instructions: String,
    pub turn_detection: TurnDetection,
}

impl Standing {
    pub fn of(config: &SessionConfig) -> Self {
        Self { instructions: config.instructions.clone(), turn_detection: config.turn_detection }
    }
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoded {
    /// One client event was appended to the buffer.
    Written,
    /// The response does not exist yet; it is cancelled as soon as it does.
    Deferred,
    Dropped(Dropped),
}

/// Why a command is not sent: each of these would only have earned an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The provider's turn detection commits; a second commit is an empty one.
    CommitWithTurnDetection,
    /// The response has ended, is being cancelled already, or was never asked for.
    NothingToCancel,
    /// The item is unknown, forgotten or already deleted.
    NoSuchItem,
    /// Only what the model said can be truncated.
    NotTheModels,
    /// The item is already that short.
    AlreadyShorter,
}

/// `session.update` in the GA shape: μ-law both ways, and no response that we did not ask for.
pub fn session_update(config: &SessionConfig, ids: &mut Ids, out: &mut BytesMut) {
    // Absent means unchanged, so what is off is written as null.
    let transcription = config.transcription.as_ref().map(|model| {
        let mut transcription = json!({"model": model});
        if let Some(language) = &config.language {
            transcription["language"] = json!(language);
        }
        transcription
    });
    let turn_detection = match config.turn_detection {
        TurnDetection::SemanticEvents { eagerness } => json!({
            "type": "semantic_vad",
            "eagerness": match eagerness {
                Eagerness::Low => "low",
                Eagerness::Medium => "medium",
                Eagerness::High => "high",
                Eagerness::Auto => "auto",
            },
            "create_response": false,
            "interrupt_response": false,
        }),
        TurnDetection::Off => Value::Null,
    };
    let tools: Vec<Value> = config
        .tools
        .iter()
        .map(|tool| {
            json!({
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            })
        })
        .collect();
    let event = json!({
        "type": "session.update",
        "event_id": ids.event_id("session"),
        "session": {
            "type": "realtime",
            "output_modalities": ["audio"],
            "instructions": config.instructions,
            "audio": {
                "input": {
                    "format": {"type": PCMU},
                    "transcription": transcription,
                    "turn_detection": turn_detection,
                },
                "output": {"format": {"type": PCMU}, "voice": config.voice},
            },
            "tools": tools,
            "tool_choice": "auto",
        },
    });
    write(&event, out);
}

/// `input_audio_buffer.append` of μ-law. Nothing is allocated but what `out` lacks; no event id, since it is never answered.
pub fn append(mulaw: &[u8], out: &mut BytesMut) {
    append_audio(br#"{"type":"input_audio_buffer.append","audio":""#, mulaw, out);
}

/// Appends the client event of `command` to `out`.
pub fn encode(command: &ModelCommand, standing: &Standing, ids: &mut Ids, out: &mut BytesMut) -> Encoded {
    let event = match command {
        ModelCommand::CommitTurn => match standing.turn_detection {
            TurnDetection::SemanticEvents { .. } => return Encoded::Dropped(Dropped::CommitWithTurnDetection),
            TurnDetection::Off => json!({"type": "input_audio_buffer.commit", "event_id": ids.event_id("commit")}),
        },
        ModelCommand::CreateResponse { response, directions, tools } => {
            let mut body = json!({"metadata": {METADATA_KEY: response.to_string()}});
            if let Some(directions) = directions {
                body["instructions"] = json!(with_directions(&standing.instructions, directions));
            }
            if !tools {
                body["tool_choice"] = json!("none");
            }
            ids.request_sent(*response);
            json!({"type": "response.create", "event_id": ids.create_event_id(*response), "response": body})
        }
        ModelCommand::CancelResponse { response } => match ids.cancel_target(*response) {
            CancelTarget::Active(name) => cancel(&name, ids),
            CancelTarget::NotYetCreated => return Encoded::Deferred,
            CancelTarget::Nothing => return Encoded::Dropped(Dropped::NothingToCancel),
        },
        ModelCommand::TruncateItem { item, audio_end } => match truncate(*item, *audio_end, ids) {
            Ok(event) => event,
            Err(dropped) => return Encoded::Dropped(dropped),
        },
        ModelCommand::DeleteItem { item } => match delete(*item, ids) {
            Ok(event) => event,
            Err(dropped) => return Encoded::Dropped(dropped),
        },
        ModelCommand::SubmitToolOutput { provider_call, output } => json!({
            "type": "conversation.item.create",
            "event_id": ids.event_id("output"),
            "item": {"type": "function_call_output", "call_id": provider_call.as_str(), "output": output},
        }),
        ModelCommand::AddContext { text } => json!({
            "type": "conversation.item.create",
            "event_id": ids.event_id("context"),
            "item": {"type": "message", "role": "system", "content": [{"type": "input_text", "text": text}]},
        }),
        // The provider takes no audio of the assistant, so its words come back as text.
        ModelCommand::AddHistory { speaker, text } => {
            let (role, kind) = match speaker {
                Speaker::Caller => ("user", "input_text"),
                Speaker::Agent => ("assistant", "output_text"),
                Speaker::Application => ("system", "input_text"),
            };
            json!({
                "type": "conversation.item.create",
                "event_id": ids.event_id("history"),
                "item": {"type": "message", "role": role, "content": [{"type": kind, "text": text}]},
            })
        }
    };
    write(&event, out);
    Encoded::Written
}

/// Appends the cancel of a response that was cancelled before it existed; `false` when none is due.
pub fn cancel_due(ids: &mut Ids, out: &mut BytesMut) -> bool {
    let Some(name) = ids.take_due_cancel() else { return false };
    let event = cancel(&name, ids);
    write(&event, out);
    true
}

fn cancel(name: &str, ids: &mut Ids) -> Value {
    json!({"type": "response.cancel", "event_id": ids.event_id("cancel"), "response_id": name})
}

/// The one place that truncates. The provider answers an end beyond the item's audio with an error and leaves the item
/// whole, so the end is clamped to what arrived, and to where it was cut before; with nothing left, the item is deleted.
fn truncate(ordinal: ModelItemId, audio_end: AudioMs, ids: &mut Ids) -> Result<Value, Dropped> {
    let item = ids.item_mut(ordinal).filter(|item| !item.deleted).ok_or(Dropped::NoSuchItem)?;
    match item.owner {
        ItemOwner::Model => {}
        ItemOwner::Caller => return Err(Dropped::NotTheModels),
    }
    let end = audio_end.min(item.received.ms());
    if end == AudioMs(0) {
        return delete(ordinal, ids);
    }
    if item.cut_at.is_some_and(|cut_at| end >= cut_at) {
        return Err(Dropped::AlreadyShorter);
    }
    item.cut_at = Some(end);
    let name = item.name.clone();
    Ok(json!({
        "type": "conversation.item.truncate",
        "event_id": ids.event_id("truncate"),
        "item_id": name,
        "content_index": 0,
        "audio_end_ms": end.0,
    }))
}

fn delete(ordinal: ModelItemId, ids: &mut Ids) -> Result<Value, Dropped> {
    let item = ids.item_mut(ordinal).filter(|item| !item.deleted).ok_or(Dropped::NoSuchItem)?;
    item.deleted = true;
    let name = item.name.clone();
    Ok(json!({"type": "conversation.item.delete", "event_id": ids.event_id("delete"), "item_id": name}))
}

fn with_directions(instructions: &str, directions: &str) -> String {
    if instructions.is_empty() { directions.to_owned() } else { format!("{instructions}\n\n{directions}") }
}
