//! Recorded calls, as a shell sees them.

use super::verbs::Scratch;
use super::{answerback, text};
use std::path::{Path, PathBuf};

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/recordings")
}

#[test]
fn a_recorded_call_is_replayed_reheard_compared_and_handed_on() {
    let scratch = Scratch::new("recordings");
    let call = recordings().join("v1/booking");

    let output = answerback().args(["replay", "--times", "3"]).arg(recordings()).output().unwrap();
    let told = text(&output);
    assert!(output.status.success() && told.contains("no drift") && told.contains("3 times"), "{told}");

    let output = answerback().arg("rehear").arg(&call).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));

    let plot = scratch.0.join("what-if.svg");
    let output = answerback()
        .args(["what-if", "--set", "gate.quiet_ms=400", "--plot"])
        .args([&plot, &recordings()])
        .output()
        .unwrap();
    let told = text(&output);
    assert!(output.status.success() && told.contains("delivery ready to first audio"), "{told}");
    assert!(std::fs::read_to_string(&plot).unwrap().starts_with("<svg"));

    let clean = scratch.0.join("clean");
    let output = answerback().args(["calls", "export", "--voice", "tone"]).args([&call, &clean]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let output = answerback().arg("replay").arg(&clean).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn a_call_that_drifts_fails_and_says_where() {
    let scratch = Scratch::new("drift");
    let log = std::fs::read_to_string(recordings().join("v1/booking/call.jsonl")).unwrap();
    let bent = log.replacen("speech_confirmed", "speech_ended", 1);
    assert_ne!(log, bent);
    std::fs::write(scratch.0.join("call.jsonl"), bent).unwrap();
    let output = answerback().arg("replay").arg(&scratch.0).output().unwrap();
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    for wanted in ["DRIFT", "drift at step", "decision", "- ", "+ "] {
        assert!(told.contains(wanted), "no {wanted:?} in\n{told}");
    }
}

#[test]
fn a_place_without_a_recording_is_named() {
    let scratch = Scratch::new("nothing");
    let output = answerback().arg("replay").arg(&scratch.0).output().unwrap();
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("no recording") && told.contains("call.jsonl"), "{told}");
}
