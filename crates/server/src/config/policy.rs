//! `[policy.*]` of an agent: the conversation's own struct, with the place of every value that the file gives.

use super::findings::{Place, did_you_mean};
use super::model::ModelProvider;
use super::reader::{Reader, join};
use conversation::Policy;
use conversation::policy::TurnEnd;
use serde_json::Value;
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::DeValue;

struct Overlay {
    defaults: Value,
    merged: Value,
    /// By JSON Pointer.
    places: BTreeMap<String, Place>,
}

pub(super) fn read(agent: &Reader<'_, '_>, provider: ModelProvider) -> Policy {
    let mut default = Policy::default();
    if provider == ModelProvider::GptLive {
        // It tells no end of a turn.
        default.turn.end = TurnEnd::Local;
    }
    let Ok(defaults) = serde_json::to_value(&default) else { return default };
    let mut overlay = Overlay { merged: defaults.clone(), defaults, places: BTreeMap::new() };
    if let Some((value, place)) = agent.raw("policy") {
        overlay.lay(agent, value, &place, "policy", "");
    }
    let Ok(policy) = serde_json::from_value::<Policy>(overlay.merged.clone()) else { return default };
    check(agent, &policy, &overlay.places, provider);
    overlay.note(agent, &overlay.merged, "policy", "");
    policy
}

impl Overlay {
    fn lay(&mut self, agent: &Reader<'_, '_>, value: &Spanned<DeValue<'_>>, place: &Place, path: &str, pointer: &str) {
        let Some(default) = self.defaults.pointer(pointer).cloned() else { return };
        match (&default, value.get_ref()) {
            (Value::Object(known), DeValue::Table(table)) => {
                for (key, value) in table {
                    let key_path = join(path, key.get_ref());
                    let at = |span| match place {
                        Place::File { file, .. } => Place::File { file: *file, span, key: key_path.clone() },
                        Place::Environment { .. } | Place::Nowhere { .. } => place.clone(),
                    };
                    if known.contains_key(key.get_ref().as_ref()) {
                        let pointer = format!("{pointer}/{}", key.get_ref());
                        let span = if value.get_ref().is_table() { key.span() } else { value.span() };
                        self.lay(agent, value, &at(span), &key_path, &pointer);
                    } else {
                        let help = did_you_mean(key.get_ref(), known.keys().map(String::as_str));
                        agent.findings.mistake(&at(key.span()), "unknown key", help);
                    }
                }
            }
            (Value::Object(_), _) => agent.findings.mistake(place, "must be a table", None),
            (_, found) => {
                let given = match found {
                    DeValue::String(text) => Some(Value::String(text.to_string())),
                    DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix()).ok().map(Value::from),
                    DeValue::Boolean(truth) => Some(Value::Bool(*truth)),
                    DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
                };
                // The struct itself judges each value alone, so that the place is known.
                let mut alone = self.defaults.clone();
                let judged = given.ok_or_else(|| "the value is of another kind".to_owned()).and_then(|given| {
                    if let Some(slot) = alone.pointer_mut(pointer) {
                        *slot = given.clone();
                    }
                    serde_json::from_value::<Policy>(alone).map_err(|e| e.to_string())?;
                    Ok(given)
                });
                match judged {
                    Ok(given) => {
                        if let Some(slot) = self.merged.pointer_mut(pointer) {
                            *slot = given;
                        }
                        self.places.insert(pointer.to_owned(), place.clone());
                    }
                    Err(why) => {
                        let wanted = match default {
                            Value::Number(_) => "must be a whole number that fits",
                            Value::String(_) => "must be one of the known words",
                            Value::Bool(_) => "must be true or false",
                            Value::Null | Value::Array(_) | Value::Object(_) => "does not fit",
                        };
                        agent.findings.mistake(place, format!("{wanted}: {why}"), None);
                    }
                }
            }
        }
    }

    fn note(&self, agent: &Reader<'_, '_>, value: &Value, path: &str, pointer: &str) {
        let Value::Object(fields) = value else { return };
        for (key, value) in fields {
            let pointer = format!("{pointer}/{key}");
            if value.is_object() {
                self.note(agent, value, &join(path, key), &pointer);
            } else {
                // A JSON number, text or boolean is a TOML one.
                let table = join(&agent.shown_as, path);
                agent.findings.note(&table, key, value.to_string(), self.places.get(&pointer));
            }
        }
    }
}

/// What single values cannot know, and what the conversation cannot work with.
fn check(agent: &Reader<'_, '_>, policy: &Policy, places: &BTreeMap<String, Place>, provider: ModelProvider) {
    let Policy { turn, playback, gate, response, session, idle, claims: _ } = policy;
    let mistake = |pointers: &[&str], message: String, help: Option<&str>| {
        // Defaults make no mistake, so one of the keys stands in the file.
        if let Some(place) = pointers.iter().find_map(|pointer| places.get(*pointer)) {
            agent.findings.mistake(place, message, help.map(str::to_owned));
        }
    };
    for (pointer, value, low, high) in [
        // behaviour.md 3: 400 by default, never under 200; above 2 s a caller waits for nothing.
        ("/playback/lead_ms", playback.lead_ms, 200, 2_000),
        // One frame at least.
        ("/playback/chunk_ms", playback.chunk_ms, 20, 1_000),
        ("/playback/mark_every_ms", playback.mark_every_ms, 20, 5_000),
        ("/playback/mark_grace_ms", playback.mark_grace_ms, 100, 60_000),
        // behaviour.md 5: 650 by default. Shorter is a breath, not a silence; longer is never reached.
        ("/gate/quiet_ms", gate.quiet_ms, 200, 10_000),
        ("/gate/heard_slack_ms", gate.heard_slack_ms, 0, 2_000),
        ("/gate/max_offers", gate.max_offers, 1, 100),
        ("/turn/confirm_ms", turn.confirm_ms, 20, 2_000),
        ("/turn/confirm_over_voice_ms", turn.confirm_over_voice_ms, 20, 5_000),
        ("/turn/retract_ms", turn.retract_ms, 20, 2_000),
        ("/turn/hangover_ms", turn.hangover_ms, 20, 5_000),
        ("/turn/model_end_timeout_ms", turn.model_end_timeout_ms, 500, 60_000),
        ("/response/create_timeout_ms", response.create_timeout_ms, 500, 60_000),
        ("/response/cancel_timeout_ms", response.cancel_timeout_ms, 100, 60_000),
        ("/response/stall_timeout_ms", response.stall_timeout_ms, 1_000, 120_000),
        ("/response/max_attempts", response.max_attempts, 1, 100),
        ("/response/retry_base_ms", response.retry_base_ms, 10, 60_000),
        ("/response/own_answer_ms", response.own_answer_ms, 1_000, 60_000),
        ("/idle/check_in_after_ms", idle.check_in_after_ms, 0, 600_000),
        ("/idle/check_ins", idle.check_ins, 0, 100),
        ("/session/max_openings", session.max_openings, 0, 100),
        // A provider's session lasts an hour at most.
        ("/session/renew_before_ms", session.renew_before_ms, 1_000, 1_800_000),
    ] {
        if !(low..=high).contains(&value) {
            mistake(&[pointer], format!("must be from {low} to {high}"), None);
        }
    }
    if provider == ModelProvider::GptLive && turn.end == TurnEnd::Model {
        let message = "must be `local`: `gpt_live` does not say where a turn ends".to_owned();
        mistake(&["/turn/end"], message, None);
    }
    if !(-96..=0).contains(&turn.floor_dbfs) {
        mistake(&["/turn/floor_dbfs"], "must be from -96 to 0".to_owned(), None);
    }
    if !(-96..=0).contains(&turn.floor_over_voice_dbfs) {
        mistake(&["/turn/floor_over_voice_dbfs"], "must be from -96 to 0".to_owned(), None);
    }
    if turn.confirm_ms >= playback.lead_ms {
        mistake(
            &["/turn/confirm_ms", "/playback/lead_ms"],
            format!("confirm_ms ({}) must stay under lead_ms ({})", turn.confirm_ms, playback.lead_ms),
            Some("or a false start is heard as a hole in the agent's speech"),
        );
    }
    if playback.chunk_ms > playback.lead_ms {
        mistake(
            &["/playback/chunk_ms", "/playback/lead_ms"],
            format!("chunk_ms ({}) must not be above lead_ms ({})", playback.chunk_ms, playback.lead_ms),
            None,
        );
    }
}
