//! Numbers that no call can have made, wherever they stand in a log: an error or a drift, never the end of the program.

mod common;

use common::Place;
use recording::{CALLER_FILE, STEPS_FILE};
use replay::{Voice, rehear, replay_dir, scrub, what_if};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const EXTREMES: [u64; 4] = [0, u32::MAX as u64, 1 << 63, u64::MAX];
/// Of all numbers and extremes, every so many: some hundred damaged logs in a few seconds.
const STRIDE: usize = 41;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/recordings/v1/booking")
}

/// Where the numbers of a value are, as JSON Pointers.
fn numbers(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Number(_) => found.push(at),
        Value::Array(list) => list.iter().enumerate().for_each(|(n, v)| numbers(v, format!("{at}/{n}"), found)),
        Value::Object(fields) => fields.iter().for_each(|(key, v)| numbers(v, format!("{at}/{key}"), found)),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[test]
fn no_number_in_a_log_ends_the_program() {
    let place = Place::new();
    let dir = place.join("call");
    fs::create_dir_all(&dir).unwrap();
    fs::copy(fixture().join(CALLER_FILE), dir.join(CALLER_FILE)).unwrap();
    let log = fs::read_to_string(fixture().join(STEPS_FILE)).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut places = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let mut found = Vec::new();
        numbers(line, String::new(), &mut found);
        places.extend(found.into_iter().map(|pointer| (n, pointer)));
    }
    let cases = places.iter().flat_map(|place| EXTREMES.map(|extreme| (place, extreme)));
    let (mut tried, mut refused) = (0, 0);
    for ((n, pointer), extreme) in cases.step_by(STRIDE) {
        let mut lines = lines.clone();
        *lines[*n].pointer_mut(pointer).unwrap() = extreme.into();
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(dir.join(STEPS_FILE), text).unwrap();
        let detector = audio::Detector::Webrtc { mode: audio::voice_activity::Aggressiveness::default() };
        tried += 1;
        refused += u32::from(replay_dir(&dir).is_err());
        let _ = rehear(&dir, detector);
        let _ = what_if(&dir, &["gate.quiet_ms=400".to_owned()]);
        let clean = place.join("clean");
        let _ = scrub(&dir, &clean, Voice::Silence);
        let _ = fs::remove_dir_all(&clean);
    }
    assert!(tried > 100 && refused > 30, "{tried} tried, {refused} refused");
}

#[test]
fn what_no_call_can_have_done_is_named_with_its_step() {
    let place = Place::new();
    let log = fs::read_to_string(fixture().join(STEPS_FILE)).unwrap();
    let step = r#""n":3,"at":20000"#;
    let samples = r#""caller_audio":{"samples":160"#;
    let sent = log.split(r#"{"send_audio":"#).nth(1).unwrap().split('}').next().unwrap();
    let start = r#""started":1790000000000"#;
    for (old, new, told) in [
        (step, r#""n":3,"at":18446744073709551615"#.to_owned(), "step 3 is at 18446744073709551615 µs"),
        (samples, r#""caller_audio":{"samples":4294967295"#.to_owned(), "more than 10 minutes"),
        (
            sent,
            sent.replacen(r#""to":"#, r#""to":0,"was":"#, 1).replacen(r#""from":0"#, r#""from":9"#, 1),
            "from sample 9 back to 0",
        ),
        (start, r#""started":9223372036854775807"#.to_owned(), "which is no time"),
    ] {
        let bent = log.replacen(old, &new, 1);
        assert_ne!(log, bent, "{old}");
        let dir = place.join("call");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(STEPS_FILE), bent).unwrap();
        let error = replay_dir(&dir).unwrap_err().to_string();
        assert!(error.contains(told) && error.contains("call.jsonl"), "{error}");
        let report = what_if(&dir, &[]).unwrap();
        assert!(report.calls.is_empty() && report.skipped[0].1.contains(told), "{:?}", report.skipped);
    }
}
