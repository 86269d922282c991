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

#[test]
fn recordings_that_cannot_be_read_are_skipped_and_named_and_the_others_are_not() {
    let scratch = Scratch::new("damaged");
    let log = std::fs::read_to_string(recordings().join("v1/booking/call.jsonl")).unwrap();
    let huge_time = log.replacen("\"n\":3,\"at\":20000", "\"n\":3,\"at\":18446744073709551615", 1);
    assert_ne!(log, huge_time);
    let no_chunk = log.replacen("\"chunk_ms\":100", "\"chunk_ms\":0", 1);
    for (name, text) in [
        ("a_cut", ""),
        ("b_newer", &log.replacen("\"format\":1", "\"format\":99", 1)),
        ("c_huge_time", &huge_time),
        ("d_no_chunk", &no_chunk),
    ] {
        scratch.write(&format!("{name}/call.jsonl"), text);
    }
    let told_of = |verb: &[&str]| {
        let output = answerback().args(verb).arg(&scratch.0).output().unwrap();
        let told = text(&output);
        assert_eq!(output.status.code(), Some(1), "{verb:?}: {told}");
        for wanted in ["a_cut/call.jsonl: no header", "format 99", "longer than any call", "chunk_ms`: must be"] {
            assert!(told.contains(wanted), "{verb:?}: no {wanted:?} in\n{told}");
        }
        told
    };
    let what_if = ["what-if", "--set", "gate.quiet_ms=400"];
    let told = told_of(&what_if);
    assert!(told.contains("nothing was compared") && !told.contains("Verdict"), "{told}");

    scratch.write("e_whole/call.jsonl", &log);
    let told = told_of(&["replay"]);
    assert!(told.contains("e_whole: no drift") && told.contains("4 recordings skipped"), "{told}");
    assert!(told_of(&what_if).contains("1 call, 4 skipped"));
    let made = scratch.0.join("made");
    let told = told_of(&["scenario", "from-call", "--to", made.to_str().unwrap()]);
    assert!(told.contains("written: ") && told.contains("4 recordings skipped"), "{told}");
}

#[test]
fn a_policy_that_no_conversation_works_with_is_not_tried() {
    let output = answerback().args(["what-if", "--set", "playback.chunk_ms=0"]).arg(recordings()).output().unwrap();
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("`playback.chunk_ms`: must be from 20 to 1000, not 0"), "{told}");
}
