//! The server's events and objects as JSON: the GA interface of OpenAI Realtime, field by field.

use serde_json::{Map, Value, json};

/// `invalid_request_error` with a code, as the service answers a client's mistake.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(super) param: Option<String>,
}

impl Refusal {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), param: None }
    }
    pub(super) fn about(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }
}

/// What a session is before its first update.
pub(crate) fn default_session(id: &str, model: &str, expires_at: u64) -> Value {
    json!({
        "type": "realtime",
        "object": "realtime.session",
        "id": id,
        "model": model,
        "expires_at": expires_at,
        "output_modalities": ["audio"],
        "instructions": "You are a helpful assistant.",
        "tools": [],
        "tool_choice": "auto",
        "max_output_tokens": "inf",
        "tracing": null,
        "truncation": "auto",
        "prompt": null,
        "include": null,
        "audio": {
            "input": {
                "format": { "type": "audio/pcm", "rate": 24000 },
                "transcription": null,
                "noise_reduction": null,
                "turn_detection": {
                    "type": "server_vad",
                    "threshold": 0.5,
                    "prefix_padding_ms": 300,
                    "silence_duration_ms": 500,
                    "idle_timeout_ms": null,
                    "create_response": true,
                    "interrupt_response": true
                }
            },
            "output": { "format": { "type": "audio/pcm", "rate": 24000 }, "voice": "marin", "speed": 1.0 }
        }
    })
}

/// What a client may set; the server adds `id`, `object` and `expires_at` by itself.
const SESSION_FIELDS: &[&str] = &[
    "type",
    "model",
    "output_modalities",
    "instructions",
    "audio",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "max_output_tokens",
    "truncation",
    "tracing",
    "prompt",
    "include",
];
const INPUT_FIELDS: &[&str] = &["format", "noise_reduction", "transcription", "turn_detection"];
const OUTPUT_FIELDS: &[&str] = &["format", "voice", "speed"];

/// Check a sparse `session.update` and lay it over the session.
pub(crate) fn update_session(session: &mut Value, change: &Value, audio_was_sent: bool) -> Result<(), Refusal> {
    let Value::Object(fields) = change else {
        return Err(Refusal::new("invalid_value", "session must be an object").about("session"));
    };
    if change["type"] != "realtime" {
        let missing = "Missing or wrong required parameter: 'session.type' must be 'realtime'.";
        return Err(Refusal::new("missing_required_parameter", missing).about("session.type"));
    }
    only_known(fields, SESSION_FIELDS, "session")?;
    for (side, known) in [("input", INPUT_FIELDS), ("output", OUTPUT_FIELDS)] {
        if let Value::Object(fields) = &change["audio"][side] {
            only_known(fields, known, &format!("session.audio.{side}"))?;
            check_format(&change["audio"][side]["format"], side)?;
        }
    }
    if fields.contains_key("model") && change["model"] != session["model"] {
        return Err(Refusal::new("invalid_value", "The model of a session cannot be changed.").about("session.model"));
    }
    let voice = &change["audio"]["output"]["voice"];
    if audio_was_sent && !voice.is_null() && *voice != session["audio"]["output"]["voice"] {
        let locked = "Cannot update a conversation's voice if assistant audio is present.";
        return Err(Refusal::new("cannot_update_voice", locked).about("session.audio.output.voice"));
    }
    if let Value::Array(modalities) = &change["output_modalities"]
        && !(modalities.len() == 1 && (modalities[0] == "audio" || modalities[0] == "text"))
    {
        let either = "output_modalities is [\"audio\"] or [\"text\"], never both.";
        return Err(Refusal::new("invalid_value", either).about("session.output_modalities"));
    }
    overlay(session, change);
    Ok(())
}

fn only_known(fields: &Map<String, Value>, known: &[&str], place: &str) -> Result<(), Refusal> {
    match fields.keys().find(|field| !known.contains(&field.as_str())) {
        None => Ok(()),
        Some(field) => {
            let param = format!("{place}.{field}");
            Err(Refusal::new("unknown_parameter", format!("Unknown parameter: '{param}'.")).about(param))
        }
    }
}

fn check_format(format: &Value, side: &str) -> Result<(), Refusal> {
    let good = match format["type"].as_str() {
        None => format.is_null(),
        Some("audio/pcm") => format["rate"] == 24_000,
        Some("audio/pcmu" | "audio/pcma") => format.get("rate").is_none(),
        Some(_) => false,
    };
    if good {
        return Ok(());
    }
    let message = format!("Invalid format {format}: audio/pcm has rate 24000, audio/pcmu and audio/pcma have none.");
    Err(Refusal::new("invalid_value", message).about(format!("session.audio.{side}.format")))
}

/// Objects merge; everything else, formats and turn detection among it, is replaced whole.
fn overlay(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (field, value) in over {
                let slot = under.entry(field.clone()).or_insert(Value::Null);
                match field.as_str() {
                    "audio" | "input" | "output" => overlay(slot, value),
                    "turn_detection" => *slot = with_detection_defaults(value),
                    _ => slot.clone_from(value),
                }
            }
        }
        (under, over) => under.clone_from(over),
    }
}

fn with_detection_defaults(detection: &Value) -> Value {
    let mut full = match detection["type"].as_str() {
        Some("server_vad") => json!({
            "type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 500,
            "idle_timeout_ms": null, "create_response": true, "interrupt_response": true
        }),
        Some("semantic_vad") => json!({
            "type": "semantic_vad", "eagerness": "auto", "create_response": true, "interrupt_response": true
        }),
        _ => return Value::Null,
    };
    if let (Value::Object(full), Value::Object(given)) = (&mut full, detection) {
        full.extend(given.clone());
    }
    full
}

/// Turn detection as the session has it now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detection {
    pub(crate) prefix_ms: u64,
    pub(crate) silence_ms: u64,
    pub(crate) create_response: bool,
    pub(crate) interrupt_response: bool,
}

pub(crate) fn detection_of(session: &Value) -> Option<Detection> {
    let detection = &session["audio"]["input"]["turn_detection"];
    let silence_ms = match detection["type"].as_str()? {
        "server_vad" => detection["silence_duration_ms"].as_u64().unwrap_or(500),
        // Meaning decides there; a fixed wait stands for it, longer for the patient settings.
        _ => match detection["eagerness"].as_str() {
            Some("high") => 400,
            Some("low") => 1_200,
            _ => 700,
        },
    };
    Some(Detection {
        prefix_ms: detection["prefix_padding_ms"].as_u64().unwrap_or(300),
        silence_ms,
        create_response: detection["create_response"].as_bool().unwrap_or(true),
        interrupt_response: detection["interrupt_response"].as_bool().unwrap_or(true),
    })
}

/// Everything that a rule may look for in an item.
pub(super) fn item_text(item: &Value) -> String {
    let mut text = String::new();
    for field in ["output", "arguments", "name"] {
        text.push_str(item[field].as_str().unwrap_or_default());
        text.push(' ');
    }
    for part in item["content"].as_array().into_iter().flatten() {
        for field in ["text", "transcript"] {
            text.push_str(part[field].as_str().unwrap_or_default());
            text.push(' ');
        }
    }
    text.trim().to_owned()
}

/// Token counts are made up in proportion; their shape is not.
pub(super) fn usage(audio_ms: u64, text_chars: usize) -> Value {
    let (audio, text) = (audio_ms / 50, text_chars as u64 / 4);
    json!({
        "total_tokens": 100 + audio + text,
        "input_tokens": 100,
        "output_tokens": audio + text,
        "input_token_details": {
            "text_tokens": 60, "audio_tokens": 40, "image_tokens": 0, "cached_tokens": 0,
            "cached_tokens_details": { "text_tokens": 0, "audio_tokens": 0, "image_tokens": 0 }
        },
        "output_token_details": { "text_tokens": text, "audio_tokens": audio }
    })
}

pub(super) fn rate_limits() -> Value {
    json!({
        "type": "rate_limits.updated",
        "rate_limits": [{ "name": "requests", "limit": 1000, "remaining": 999, "reset_seconds": 0.06 }]
    })
}
