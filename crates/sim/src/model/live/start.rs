//! `session.start` and `session.update`: which fields there are, and what the service answers to others.

use super::super::events::Refusal;
use serde_json::{Map, Value, json};

const START_FIELDS: &[&str] =
    &["model", "instructions", "input", "audio", "delegation", "store", "triggers", "client", "safety_identifier"];
const RESPONSES_FIELDS: &[&str] = &[
    "model",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "text",
    "service_tier",
    "max_output_tokens",
];
const DELEGATION_FIELDS: &[&str] = &["type", "responses", "decisions", "acknowledgement_delay_ms"];
const UPDATE_FIELDS: &[&str] = &["delegation", "triggers"];
/// Messages of history that a session starts with at most.
const MOST_INPUT: usize = 128;

/// The session as `session.started` shows it.
pub(super) fn session(id: &str, expires_at: u64, given: &Value) -> Result<Value, Refusal> {
    let Value::Object(fields) = given else {
        return Err(
            Refusal::new("missing_required_parameter", "Missing required parameter: 'session'.").about("session")
        );
    };
    only_known(fields, START_FIELDS, "session")?;
    if given["model"].as_str().is_none_or(str::is_empty) {
        let missing = "Missing required parameter: 'session.model'.";
        return Err(Refusal::new("missing_required_parameter", missing).about("session.model"));
    }
    if given["input"].as_array().is_some_and(|input| input.len() > MOST_INPUT) {
        return Err(Refusal::new("invalid_value", "At most 128 messages may be supplied.").about("session.input"));
    }
    if let Value::Object(audio) = &given["audio"] {
        only_known(audio, &["format", "output"], "session.audio")?;
        check_format(&given["audio"]["format"])?;
    }
    check_delegation(&given["delegation"])?;
    let mut session = given.clone();
    let mut audio = json!({ "format": { "type": "audio/pcm", "rate": 24_000 }, "output": { "voice": "marin" } });
    for part in ["format", "output"] {
        if given["audio"][part].is_object() {
            audio[part].clone_from(&given["audio"][part]);
        }
    }
    session["id"] = id.into();
    session["expires_at"] = expires_at.into();
    session["status"] = "active".into();
    session["audio"] = audio;
    session["store"] = given["store"].as_bool().unwrap_or(false).into();
    if given["delegation"].is_null() {
        session["delegation"] = json!({ "type": "client", "acknowledgement_delay_ms": 0 });
    }
    Ok(session)
}

/// Lays an update over the session.
pub(super) fn update(session: &mut Value, change: &Value) -> Result<(), Refusal> {
    let Value::Object(fields) = change else {
        return Err(
            Refusal::new("missing_required_parameter", "Missing required parameter: 'session'.").about("session")
        );
    };
    if let Some(field) = fields.keys().find(|field| !UPDATE_FIELDS.contains(&field.as_str())) {
        let place = format!("session.{field}");
        return Err(if START_FIELDS.contains(&field.as_str()) {
            Refusal::new("immutable_field_update", format!("'{place}' cannot be changed after startup.")).about(place)
        } else {
            unknown(place)
        });
    }
    let delegation = &change["delegation"];
    if let Value::Object(_) = delegation {
        check_delegation_fields(delegation)?;
        if delegation["type"] != session["delegation"]["type"] {
            let place = "session.delegation.type";
            return Err(Refusal::new("immutable_field_update", format!("'{place}' cannot be changed.")).about(place));
        }
        for (field, value) in delegation.as_object().into_iter().flatten() {
            match (value, &mut session["delegation"][field]) {
                (Value::Object(over), Value::Object(under)) => under.extend(over.clone()),
                (value, slot) => slot.clone_from(value),
            }
        }
    }
    if !change["triggers"].is_null() {
        session["triggers"].clone_from(&change["triggers"]);
    }
    Ok(())
}

/// Only the fields that an event has.
pub(super) fn check_event(event: &Value, known: &[&str]) -> Result<(), Refusal> {
    let fields = event.as_object().into_iter().flat_map(Map::keys);
    match fields.into_iter().find(|field| !known.contains(&field.as_str()) && *field != "type" && *field != "event_id")
    {
        Some(field) => Err(unknown(field.clone())),
        None => Ok(()),
    }
}

fn check_format(format: &Value) -> Result<(), Refusal> {
    let good = match (format["type"].as_str(), format["rate"].as_u64()) {
        (None, _) => format.is_null(),
        (Some("audio/pcm"), Some(16_000 | 24_000)) | (Some("audio/pcmu" | "audio/pcma"), Some(8_000)) => true,
        (Some(_), _) => false,
    };
    if good {
        return Ok(());
    }
    let message =
        format!("Invalid format {format}: audio/pcm has rate 16000 or 24000, audio/pcmu and audio/pcma 8000.");
    Err(Refusal::new("invalid_value", message).about("session.audio.format"))
}

fn check_delegation(delegation: &Value) -> Result<(), Refusal> {
    if delegation.is_null() {
        return Ok(());
    }
    check_delegation_fields(delegation)?;
    match delegation["type"].as_str() {
        Some("client") => Ok(()),
        Some("responses") if delegation["responses"]["model"].is_string() => Ok(()),
        Some("responses") => {
            let place = "session.delegation.responses.model";
            let missing = format!("Missing required parameter: '{place}'.");
            Err(Refusal::new("missing_required_parameter", missing).about(place))
        }
        // The service has decisions as well; nobody here makes any.
        _ => Err(Refusal::new("invalid_value", "Unknown delegation type.").about("session.delegation.type")),
    }
}

fn check_delegation_fields(delegation: &Value) -> Result<(), Refusal> {
    if let Value::Object(fields) = delegation {
        only_known(fields, DELEGATION_FIELDS, "session.delegation")?;
    }
    match &delegation["responses"] {
        Value::Object(fields) => only_known(fields, RESPONSES_FIELDS, "session.delegation.responses"),
        _ => Ok(()),
    }
}

fn only_known(fields: &Map<String, Value>, known: &[&str], place: &str) -> Result<(), Refusal> {
    match fields.keys().find(|field| !known.contains(&field.as_str())) {
        None => Ok(()),
        Some(field) => Err(unknown(format!("{place}.{field}"))),
    }
}

fn unknown(place: String) -> Refusal {
    Refusal::new("unknown_parameter", format!("Unknown parameter: '{place}'.")).about(place)
}
