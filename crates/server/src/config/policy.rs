//! `[policy.*]` of an agent: the conversation's own struct, with the place of every value that the file gives.

use super::findings::{Place, did_you_mean};
use super::model::ModelProvider;
use super::reader::{Reader, join};
use conversation::Policy;
use conversation::policy::{PolicyFault, TurnEnd};
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
                    DeValue::Array(items) => items
                        .iter()
                        .map(|item| item.get_ref().as_str().map(|text| Value::String(text.to_owned())))
                        .collect::<Option<Vec<_>>>()
                        .map(Value::Array),
                    DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => None,
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
                            Value::Array(_) => "must be a list of texts",
                            Value::Null | Value::Object(_) => "does not fit",
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

/// What single values cannot know: what the conversation, and the provider, cannot work with.
fn check(agent: &Reader<'_, '_>, policy: &Policy, places: &BTreeMap<String, Place>, provider: ModelProvider) {
    let mistake = |keys: &[&str], message: &str, help: Option<&str>| {
        // Defaults make no mistake, so one of the keys stands in the file.
        let place = keys.iter().find_map(|key| places.get(&format!("/{}", key.replace('.', "/"))));
        if let Some(place) = place {
            agent.findings.mistake(place, message, help.map(str::to_owned));
        }
    };
    for PolicyFault { keys, what, why } in policy.faults() {
        mistake(&keys, &what, why);
    }
    if provider == ModelProvider::GptLive && policy.turn.end == TurnEnd::Model {
        mistake(&["turn.end"], "must be `local`: `gpt_live` does not say where a turn ends", None);
    }
}
