//! What is given away holds the time of a call and nobody's words.

mod common;

use common::{Place, booking, record};
use conversation::{Input, Policy};
use recording::{AGENT_FILE, CALLER_FILE, STEPS_FILE};
use replay::{Voice, replay_dir, scrub};
use std::fs;
use vocab::model::ModelEvent;
use vocab::{ModelItemId, ModelResponseId, ProviderCallId};

const SECRETS: [&str; 8] = ["Smith", "4921", "B-7", "greet Mrs", "MZ01", "ses_01", "CA01", "…23"];

fn talkative(stage: &mut testkit::Stage) {
    stage.input(Input::CallStarted { greeting: Some("greet Mrs Smith".into()) });
    stage.run(100);
    stage.say(500);
    stage.run(1_000);
    for digit in "4921".chars() {
        stage.input(Input::DtmfPressed { digit });
        stage.run(100);
    }
    stage.speak(1_000);
    stage.run(500);
    let item: ModelItemId = stage.commit_turn();
    stage.model(ModelEvent::CallerTranscript { item, text: "my name is Smith, code 4921".into() });
    let response: ModelResponseId = stage.start_response();
    stage.model(ModelEvent::TranscriptReceived { response, item: ModelItemId(77), text: "Hello Mrs Smith".into() });
    stage.audio(response, 1_000);
    stage.model(ModelEvent::ToolCallReceived {
        response,
        provider_call: ProviderCallId::new("call_x"),
        name: "book_table for Smith".into(),
        arguments: r#"{"name":"Smith"}"#.into(),
    });
    stage.end_response(response, vocab::model::ResponseEnd::Completed);
    stage.run(2_000);
    stage.speak(600);
    stage.run(1_000);
}

#[test]
fn a_scrubbed_recording_holds_no_word_and_replays_without_drift() {
    let place = Place::new();
    let (dir, clean) = (place.join("call"), place.join("clean"));
    record(&dir, &Policy::default(), |stage| {
        talkative(stage);
        booking(stage, 0);
    });
    let before = fs::read_to_string(dir.join(STEPS_FILE)).unwrap();
    for secret in SECRETS {
        assert!(before.contains(secret), "{secret} is not in the original, so its absence says nothing");
    }
    scrub(&dir, &clean, Voice::Silence).unwrap();
    let after = fs::read_to_string(clean.join(STEPS_FILE)).unwrap();
    for secret in SECRETS {
        assert!(!after.contains(secret), "{secret} is left");
    }
    let (old, new) = (replay_dir(&dir).unwrap(), replay_dir(&clean).unwrap());
    assert_eq!(new.drift, None);
    assert_eq!((old.steps, old.commands, old.lasted), (new.steps, new.commands, new.lasted));
    assert!(new.header.scrubbed && new.header.agent == old.header.agent && new.header.tools == old.header.tools);
    for file in [CALLER_FILE, AGENT_FILE] {
        let (old, new) = (fs::read(dir.join(file)).unwrap(), fs::read(clean.join(file)).unwrap());
        assert_eq!(old.len(), new.len(), "{file}");
        assert!(new.iter().all(|code| *code == 0xff) && old.iter().any(|code| *code != 0xff), "{file}");
    }
}

#[test]
fn a_tone_sounds_where_a_voice_was_and_nowhere_else() {
    let place = Place::new();
    let (dir, clean) = (place.join("call"), place.join("clean"));
    record(&dir, &Policy::default(), |stage| booking(stage, 0));
    scrub(&dir, &clean, Voice::Tone).unwrap();
    let (old, new) = (fs::read(dir.join(CALLER_FILE)).unwrap(), fs::read(clean.join(CALLER_FILE)).unwrap());
    for (old, new) in old.chunks(160).zip(new.chunks(160)) {
        assert_eq!(old.iter().any(|code| *code != 0xff), new.iter().any(|code| *code != 0xff));
        assert!(old != new || old.iter().all(|code| *code == 0xff), "a voice was left as it was");
    }
}

#[test]
fn an_existing_directory_is_never_written_into_and_a_drift_is_refused() {
    let place = Place::new();
    let (dir, clean) = (place.join("call"), place.join("clean"));
    record(&dir, &Policy::default(), |stage| booking(stage, 0));
    fs::create_dir(&clean).unwrap();
    assert!(scrub(&dir, &clean, Voice::Silence).is_err());
    let file = dir.join(STEPS_FILE);
    let log = fs::read_to_string(&file).unwrap().replacen("\"quiet_ms\":650", "\"quiet_ms\":900", 1);
    fs::write(&file, log).unwrap();
    let error = scrub(&dir, &place.join("other"), Voice::Silence).unwrap_err().to_string();
    assert!(error.contains("drifts at step"), "{error}");
    assert!(!place.join("other").exists(), "what fails half-way leaves nothing");
    assert!(clean.exists(), "what was there before stays");
}
