//! The JSON Schema of a scenario file, for editors. Written by hand; tests hold it against what the reader takes.

use crate::events::NAMES;
use crate::problems::{MAX_SOUND_MS, MAX_WAIT_MS};
use serde_json::{Value, json};

pub fn schema() -> Value {
    let (count, text) = (json!({"type": "integer", "minimum": 0}), json!({"type": "string"}));
    let ms = json!({"type": "integer", "minimum": 0, "maximum": MAX_WAIT_MS});
    let sound = json!({"type": "integer", "minimum": 1, "maximum": MAX_SOUND_MS});
    let flag = json!({"type": "boolean"});
    let table = json!({"type": "object"});
    let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
    let event = json!({
        "type": "string", "pattern": format!("^({})( *:.*)?$", names.join("|")),
        "description": "An event: its name, or `name: part of its text`."
    });
    let events = json!({"type": "array", "items": event});
    let call = object(json!({"name": text, "arguments": {"type": ["object", "string"]}}), &["name"]);
    let when = object(
        json!({
            "at_ms": ms, "after": event, "nth": {"type": "integer", "minimum": 1}, "plus_ms": ms,
            "heard_percent": {"type": "integer", "minimum": 0, "maximum": 100}, "of": text, "quiet_ms": ms, "idle_ms": ms,
        }),
        &[],
    );
    let caller = object(
        json!({
            "when": when, "say": text, "speech_ms": sound, "text": text, "blip_ms": sound, "noise_ms": sound,
            "silence_ms": sound, "dtmf": {"type": "string", "pattern": "^[0-9*#ABCD]{1,100}$"}, "hang_up": flag, "drop_line": flag, "call_again": flag,
        }),
        &[],
    );
    let model = object(
        json!({
            "after": {"enum": ["user", "tool_output", "nothing", "any"]}, "nth": {"type": "integer", "minimum": 1},
            "once": flag, "instructions_contain": text, "context_contains": text, "delay_ms": ms, "say": text, "ms": sound,
            "voice": text, "call": call, "more_calls": {"type": "array", "items": call}, "fail": text, "empty": flag,
        }),
        &[],
    );
    let backend = object(
        json!({
            "arguments": table, "times": count, "commit_ms": ms, "answer_ms": ms, "lose_answer": flag, "error": flag,
            "refuse": flag, "answer_twice": flag, "ignore_keys": flag,
        }),
        &[],
    );
    let fault = object(
        json!({
            "when": when, "kill_at": {"enum": executor::CRASH_POINTS}, "kill": flag, "drop_marks": flag, "delay_marks_ms": ms, "lose_model": flag,
            "refuse_creates": count, "answers_by_itself": flag,
            "late_transcripts_ms": ms, "swallow_ends": flag, "refuse_look_ups": count,
            "slow_disk_ms": ms,
            "fail_runs": count, "late_words_ms": ms, "silent_commentary": flag, "never_yields": flag, "unprompted": text,
            "expire_model": flag,
        }),
        &[],
    );
    let statuses =
        ["requested", "admitted", "running", "committed", "failed_retryable", "failed_final", "unknown", "cancelled"];
    let states = ["ready", "offered", "heard", "uncertain", "suppressed", "superseded", "expired"];
    let heard = object(json!({"text": text, "times": count, "whole": flag}), &["text"]);
    let expect = object(
        json!({
            "operations": {"type": "array", "items": {"enum": statuses}},
            "deliveries": {"type": "array", "items": {"enum": states}},
            "effects": count, "requests": count, "order": events, "never": events,
            "times": {"type": "object", "additionalProperties": count},
            "never_listening": {"type": "array", "items": object(json!({"from": event, "to": event}), &["from", "to"])},
            "states": {"type": "array", "items": {"enum": ["listening", "thinking", "speaking"]}},
            "heard": {"type": "array", "items": heard},
            "silent": {
                "type": "array",
                "items": object(json!({"after": event, "within_ms": ms}), &["after", "within_ms"])
            },
            "clears": count,
        }),
        &[],
    );
    let list = |items: Value| json!({"type": "array", "items": items});
    let mut schema = object(
        json!({
            "name": text, "story": text, "covers": {"type": "array", "items": text},
            "runners": {"type": "array", "items": {"enum": ["virtual", "live"]}}, "config": text, "server": table,
            "provider": {"enum": ["openai_realtime", "gpt_live"]}, "delegation": {"enum": ["responses", "client"]},
            "agent": table, "tools": {"type": "object", "additionalProperties": table}, "caller": list(caller),
            "model": list(model), "backend": list(backend), "fault": list(fault), "settle_ms": ms, "limit_ms": {"type": "integer", "minimum": 1, "maximum": MAX_WAIT_MS},
            "expect": expect,
        }),
        &["name", "story", "expect"],
    );
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Answerback scenario");
    schema
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Scenario;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// To write it: `SCENARIO_SCHEMA=write cargo test -p scenario schema`.
    #[test]
    fn the_published_schema_is_this_one() {
        let path = root().join("docs/scenario.schema.json");
        let wanted = format!("{:#}\n", schema());
        if std::env::var("SCENARIO_SCHEMA").is_ok_and(|what| what == "write") {
            std::fs::write(&path, &wanted).unwrap();
        }
        assert!(std::fs::read_to_string(&path).unwrap_or_default() == wanted, "{} is stale", path.display());
    }

    /// The reader names the keys it knows when it is given one that it does not.
    fn keys_of_reader(text: &str) -> BTreeSet<String> {
        let error = Scenario::parse(text, Path::new("t.toml")).unwrap_err().to_string();
        let (_, known) = error.split_once("expected").unwrap_or_else(|| panic!("{error}"));
        known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn schema_and_reader_know_the_same_keys() {
        let schema = schema();
        let root = "name = \"t\"\nstory = \"t\"\n";
        for (text, pointer) in [
            ("zz = 1\n[expect]", ""),
            ("[[caller]]\nzz = 1\n[expect]", "/properties/caller/items"),
            ("[[caller]]\nwhen = { zz = 1 }\n[expect]", "/properties/caller/items/properties/when"),
            ("[[model]]\nzz = 1\n[expect]", "/properties/model/items"),
            ("[[model]]\ncall = { zz = 1 }\n[expect]", "/properties/model/items/properties/call"),
            ("[[backend]]\nzz = 1\n[expect]", "/properties/backend/items"),
            ("[[fault]]\nzz = 1\n[expect]", "/properties/fault/items"),
            ("[expect]\nzz = 1", "/properties/expect"),
            ("[expect]\nheard = [{ zz = 1 }]", "/properties/expect/properties/heard/items"),
            ("[expect]\nsilent = [{ zz = 1 }]", "/properties/expect/properties/silent/items"),
            ("[expect]\nnever_listening = [{ zz = 1 }]", "/properties/expect/properties/never_listening/items"),
        ] {
            let part = schema.pointer(pointer).unwrap();
            let keys: BTreeSet<String> = part["properties"].as_object().unwrap().keys().cloned().collect();
            assert_eq!(keys_of_reader(&format!("{root}{text}")), keys, "{pointer}");
        }
    }

    #[test]
    fn every_scenario_of_the_house_is_valid_under_the_schema() {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        let files = crate::run::files(&root().join("tests/scenarios")).unwrap();
        assert!(files.len() >= 15, "{files:?}");
        for file in files {
            let value: toml::Table = std::fs::read_to_string(&file).unwrap().parse().unwrap();
            let value = serde_json::to_value(value).unwrap();
            let faults: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
            assert!(faults.is_empty(), "{}: {faults:?}", file.display());
            assert!(Scenario::read(&file).is_ok(), "{}", file.display());
        }
    }

    #[test]
    fn the_guide_lists_every_event() {
        let guide = std::fs::read_to_string(root().join("docs/scenarios.md")).unwrap();
        let missing: Vec<_> = NAMES.iter().filter(|(name, _)| !guide.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "docs/scenarios.md does not list {missing:?}");
    }
}
