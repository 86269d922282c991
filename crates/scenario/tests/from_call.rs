//! A scenario out of a recording: what the file says, and what is said when none can be made.

use scenario::file::Scenario;
use scenario::from_call::{Target, from_call};
use std::path::{Path, PathBuf};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/recordings/v1/booking")
}

/// Removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("answerback-from-call-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn made(place: &Path, folder: &Path) -> Result<Vec<PathBuf>, String> {
    let made = from_call(place, &Target { folder, config: None }).map_err(|error| error.to_string())?;
    assert!(made.skipped.is_empty(), "{:?}", made.skipped);
    Ok(made.written)
}

#[test]
fn the_file_holds_the_caller_s_sound_the_model_s_script_and_what_happened() {
    let scratch = Scratch::new("whole");
    let files = made(&fixture(), &scratch.0).unwrap();
    let text = std::fs::read_to_string(&files[0]).unwrap();
    let scenario = Scenario::read(&files[0]).unwrap();
    let sounds: Vec<&String> = scenario.caller.iter().filter_map(|line| line.say.as_ref()).collect();
    assert!(!sounds.is_empty(), "{text}");
    for sound in sounds {
        assert!(std::fs::metadata(scratch.0.join(sound)).unwrap().len() >= 160, "{sound}");
    }
    assert!(
        scenario.model.iter().any(|rule| rule.call.as_ref().is_some_and(|call| call.name == "book_table")),
        "{text}"
    );
    assert_eq!(scenario.backend.len(), 1, "{text}");
    let expect = &scenario.expect;
    assert_eq!(expect.operations.as_ref().map(Vec::len), Some(1), "{text}");
    assert_eq!((expect.effects, expect.clears), (Some(1), Some(1)), "{text}");
    assert!(expect.order.iter().any(|event| event == "barged_in"), "{text}");
    assert!(expect.states.as_ref().is_some_and(|states| states.len() > 4) && !expect.heard.is_empty(), "{text}");
    assert!(text.contains("# To fill in") && text.contains("requests"), "{text}");
}

#[test]
fn a_scrubbed_recording_makes_a_file_without_a_voice_that_says_what_is_missing() {
    let scratch = Scratch::new("scrubbed");
    let clean = scratch.0.join("clean");
    replay::scrub(&fixture(), &clean, replay::Voice::Silence).unwrap();
    let file = made(&clean, &scratch.0).unwrap().remove(0);
    let text = std::fs::read_to_string(&file).unwrap();
    let scenario = Scenario::read(&file).unwrap();
    assert!(scenario.caller.iter().all(|line| line.say.is_none()), "{text}");
    assert!(scenario.caller.iter().any(|line| line.speech_ms.is_some()), "{text}");
    assert!(text.contains("the arguments were taken out"), "{text}");
}

#[test]
fn errors_name_the_place_and_the_way_out() {
    let scratch = Scratch::new("errors");
    let told = made(&scratch.0, &scratch.0).unwrap_err();
    assert!(told.contains("no recording in") && told.contains("call.jsonl"), "{told}");
    made(&fixture(), &scratch.0).unwrap();
    let told = made(&fixture(), &scratch.0).unwrap_err();
    assert!(told.contains(".toml is there already") && told.contains("--to"), "{told}");

    let newer = scratch.0.join("newer");
    std::fs::create_dir_all(&newer).unwrap();
    let log = std::fs::read_to_string(fixture().join("call.jsonl")).unwrap();
    std::fs::write(newer.join("call.jsonl"), log.replacen("\"format\":1", "\"format\":99", 1)).unwrap();
    let told = made(&newer, &scratch.0).unwrap_err();
    assert!(told.contains("newer/call.jsonl") && told.contains("format 99"), "{told}");

    let later = scratch.0.join("later");
    std::fs::create_dir_all(&later).unwrap();
    let bent = log.replacen("\"from_earlier_call\":false", "\"from_earlier_call\":true", 1);
    assert_ne!(log, bent);
    std::fs::write(later.join("call.jsonl"), bent).unwrap();
    let told = made(&later, &scratch.0).unwrap_err();
    assert!(told.contains("earlier call") && told.contains("one folder"), "{told}");
}

#[test]
fn in_a_folder_what_cannot_be_used_is_skipped_and_named_and_the_rest_is_written() {
    let scratch = Scratch::new("folder");
    let log = std::fs::read_to_string(fixture().join("call.jsonl")).unwrap();
    let head = log.split_once('\n').unwrap().0;
    let bad_policy = head.replacen("\"chunk_ms\":100", "\"chunk_ms\":0", 1);
    assert_ne!(head, bad_policy);
    let recordings = scratch.0.join("recordings");
    let cases = [
        ("a_cut", String::new(), "no header"),
        ("b_newer", log.replacen("\"format\":1", "\"format\":99", 1), "format 99"),
        ("c_damaged", log.replacen("\"at\":", "\"att\":", 1), "neither a step"),
        ("d_begun", format!("{head}\n"), "no step"),
        ("e_policy", log.replacen(head, &bad_policy, 1), "playback.chunk_ms"),
        ("f_whole", log.clone(), ""),
    ];
    for (name, text, _) in &cases {
        std::fs::create_dir_all(recordings.join(name)).unwrap();
        // Each a call of its own.
        let text = text.replacen("\"call\":\"CA", &format!("\"call\":\"CA{}", &name[..1]), 1);
        std::fs::write(recordings.join(name).join("call.jsonl"), text).unwrap();
    }
    let folder = scratch.0.join("scenarios");
    let made = from_call(&recordings, &Target { folder: &folder, config: None }).unwrap();
    assert_eq!(made.written.len(), 1, "{:?}", made.written);
    for (name, _, why) in &cases[..5] {
        let told = made.skipped.iter().find(|(place, _)| place.ends_with(name)).map(|(_, why)| why.to_string());
        assert!(told.as_ref().is_some_and(|told| told.contains(why) && told.contains(name)), "{name}: {told:?}");
    }
    // One that is meant by name gets its own error.
    let told = from_call(&recordings.join("a_cut"), &Target { folder: &folder, config: None }).unwrap_err().to_string();
    assert!(told.contains("a_cut") && told.contains("no header"), "{told}");
}
