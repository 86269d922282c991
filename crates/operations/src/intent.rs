//! Sameness. Two requests are the same intent when tool, caller, session and the intent-defining arguments are the
//! same; never because the model gave them the same call id, and never by the tool's name alone.

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use vocab::{CallerId, IntentKey, SessionId, ToolName};

/// What a proposal means, before it is known whether the store has met it before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Same for every occurrence of this intent.
    base: String,
    /// Hash over *all* arguments, intent-defining or not.
    pub fingerprint: String,
}

impl Intent {
    /// `intent_fields` empty: all arguments define it. The window is the session: the same words in another call are
    /// a new intent, in a resumed call they are the old one. Nothing volatile enters (no time, attempt or call id).
    pub fn new(
        tool: &ToolName,
        caller: &CallerId,
        session: &SessionId,
        arguments: &Value,
        intent_fields: &[String],
    ) -> Self {
        let defining = match arguments {
            Value::Object(all) if !intent_fields.is_empty() => Value::Object(
                all.iter()
                    .filter(|(name, _)| intent_fields.contains(name))
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
            ),
            other => other.clone(),
        };
        // A JSON array keeps the parts apart: no two different lists of parts have the same text.
        let parts = Value::Array(vec![
            Value::String(tool.0.clone()),
            Value::String(caller.0.clone()),
            Value::String(session.0.clone()),
            defining,
        ]);
        Self { base: hash(&canonical(&parts)), fingerprint: hash(&canonical(arguments)) }
    }

    /// The key of the n-th occurrence, from 0. A second one exists only where a second effect was really wanted: the
    /// first came to nothing, or an explicit "again" was admitted.
    pub fn key(&self, occurrence: u32) -> IntentKey {
        match occurrence {
            0 => IntentKey(format!("ik_{}", self.base)),
            n => IntentKey(format!("ik_{}.{n}", self.base)),
        }
    }
}

/// Details of an operation that are others than those of a proposal that joined it: whoever asked must know what stands.
/// One that only the proposal has stands as null.
pub fn standing_details(stands: &Value, asked: &Value) -> Option<Value> {
    let (Value::Object(stands), Value::Object(asked)) = (stands, asked) else { return None };
    let names = stands.keys().chain(asked.keys().filter(|name| !stands.contains_key(*name)));
    let details: serde_json::Map<_, _> = names
        .filter(|name| stands.get(*name) != asked.get(*name))
        .map(|name| (name.clone(), stands.get(name).cloned().unwrap_or_default()))
        .collect();
    (!details.is_empty()).then_some(Value::Object(details))
}

/// JSON text with sorted keys and no spaces: equal values have equal text.
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            // Writing to a String cannot fail.
            let _ = write!(text, "{value}");
        }
        Value::Array(items) => {
            text.push('[');
            for (n, item) in items.iter().enumerate() {
                if n > 0 {
                    text.push(',');
                }
                write_canonical(item, text);
            }
            text.push(']');
        }
        Value::Object(map) => {
            let mut names: Vec<&String> = map.keys().collect();
            names.sort();
            text.push('{');
            for (n, name) in names.into_iter().enumerate() {
                if n > 0 {
                    text.push(',');
                }
                let _ = write!(text, "{}:", Value::String(name.clone()));
                write_canonical(&map[name], text);
            }
            text.push('}');
        }
    }
}

/// The same meaning in the same form: outer spaces gone, inner runs of spaces single, whole floats as integers, and
/// top-level defaults of the schema filled in. What comes out is what is validated, hashed, stored and sent.
pub fn normalise(arguments: Value, schema: &Value) -> Value {
    let mut arguments = normalise_value(arguments);
    if let (Value::Object(given), Some(Value::Object(properties))) = (&mut arguments, schema.get("properties")) {
        for (name, property) in properties {
            if let (false, Some(default)) = (given.contains_key(name), property.get("default")) {
                given.insert(name.clone(), default.clone());
            }
        }
    }
    arguments
}

fn normalise_value(value: Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) => value,
        Value::Number(number) => {
            // Beyond 2^53 a float no longer names one integer.
            match number.as_f64().filter(|f| number.is_f64() && f.fract() == 0.0 && f.abs() <= 9_007_199_254_740_992.0)
            {
                Some(whole) => Value::from(whole as i64),
                None => Value::Number(number),
            }
        }
        Value::String(text) => Value::String(text.split_whitespace().collect::<Vec<_>>().join(" ")),
        Value::Array(items) => Value::Array(items.into_iter().map(normalise_value).collect()),
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(name, value)| (name, normalise_value(value))).collect())
        }
    }
}

fn hash(text: &str) -> String {
    let mut hex = String::with_capacity(32);
    // 128 bits: collisions by accident are out of reach, and the key still fits any backend's header.
    for byte in Sha256::digest(text.as_bytes()).iter().take(16) {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn intent(arguments: Value, fields: &[&str]) -> Intent {
        let fields: Vec<String> = fields.iter().map(|f| f.to_string()).collect();
        Intent::new(&ToolName::new("book"), &CallerId::new("+1"), &SessionId::new("ses_1"), &arguments, &fields)
    }

    #[test]
    fn the_order_of_arguments_does_not_matter() {
        let a: Value = serde_json::from_str(r#"{"a":1,"b":{"x":1,"y":2}}"#).unwrap();
        let b: Value = serde_json::from_str(r#"{"b":{"y":2,"x":1},"a":1}"#).unwrap();
        assert_eq!(intent(a, &[]), intent(b, &[]));
    }

    #[test]
    fn only_the_intent_fields_make_the_key_and_all_arguments_make_the_fingerprint() {
        let a = intent(json!({"date": "2026-12-01", "note": "window"}), &["date"]);
        let b = intent(json!({"date": "2026-12-01", "note": "door"}), &["date"]);
        assert_eq!(a.key(0), b.key(0));
        assert_ne!(a.fingerprint, b.fingerprint);
    }

    #[test]
    fn what_stands_is_told_where_it_differs_and_only_there() {
        let stands = json!({"date": "d", "note": "window", "chairs": 1});
        assert_eq!(standing_details(&stands, &stands), None);
        let asked = json!({"date": "d", "note": "door", "dog": true});
        assert_eq!(standing_details(&stands, &asked), Some(json!({"note": "window", "chairs": 1, "dog": null})));
    }

    #[test]
    fn another_caller_session_or_tool_is_another_intent() {
        let make = |tool: &str, caller: &str, session: &str| {
            Intent::new(&ToolName::new(tool), &CallerId::new(caller), &SessionId::new(session), &json!({}), &[]).key(0)
        };
        let keys =
            [make("a", "b", "c"), make("x", "b", "c"), make("a", "x", "c"), make("a", "b", "x"), make("ab", "", "c")];
        for (n, key) in keys.iter().enumerate() {
            assert!(!keys[n + 1..].contains(key));
        }
    }

    #[test]
    fn occurrences_have_different_keys() {
        let intent = intent(json!({}), &[]);
        assert_ne!(intent.key(0), intent.key(1));
    }

    #[test]
    fn normalising_makes_equal_meanings_equal() {
        let schema = json!({"properties": {"party": {"default": 2}}});
        assert_eq!(
            normalise(json!({"name": "  Ada  Lovelace ", "n": 2.0, "x": 2.5}), &schema),
            json!({"name": "Ada Lovelace", "n": 2, "x": 2.5, "party": 2})
        );
    }

    proptest! {
        #[test]
        fn normalising_twice_is_normalising_once(text in ".{0,20}", number: f64) {
            let once = normalise(json!({"t": text, "n": number}), &json!({}));
            prop_assert_eq!(normalise(once.clone(), &json!({})), once);
        }
    }
}
