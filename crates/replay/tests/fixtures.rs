//! Recordings of every format that was ever written keep being read. Whether they also replay is a matter of the core: a
//! change of its rules drifts here first, is then blessed on purpose (`cargo test -p replay --test fixtures -- --ignored`),
//! and the changelog says so.

mod common;

use common::{booking, record};
use conversation::Policy;
use recording::Tail;
use replay::{replay_dir, what_if};
use std::path::PathBuf;
use testkit::Stage;

fn fixture(version: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/recordings").join(version).join("booking")
}

/// A booking, a false start during its announcement, and an interruption.
fn script(stage: &mut Stage) {
    booking(stage, 100);
    stage.take_turn(700);
    stage.run(300);
    stage.say(2_500);
    stage.run(600);
    stage.speak(80);
    stage.run(500);
    stage.speak(500);
    stage.run(800);
}

/// A format without a fixture is one that a later change may stop reading without a word.
#[test]
fn every_format_that_was_ever_written_has_a_fixture_that_is_read() {
    for format in 1..=recording::FORMAT {
        let place = fixture(&format!("v{format}"));
        let report = replay_dir(&place).unwrap_or_else(|error| panic!("format {format}: {error}"));
        assert_eq!(report.header.format, format, "{}", place.display());
        assert!(report.steps > 0 && place.join(recording::CALLER_FILE).is_file(), "{}", place.display());
    }
}

#[test]
fn v1_replays_without_drift() {
    let report = replay_dir(&fixture("v1")).unwrap();
    if let Some(drift) = &report.drift {
        panic!("{drift}");
    }
    assert_eq!(report.header.format, 1);
    let Some(Tail::Ended { steps, .. }) = report.tail else { panic!("{:?}", report.tail) };
    assert_eq!(steps, report.steps);
    assert!(steps > 500);
}

#[test]
fn v1_serves_a_what_if() {
    let report = what_if(&fixture("v1"), &["gate.quiet_ms=400".into()]).unwrap();
    assert_eq!(report.calls.len(), 1);
    assert_eq!(report.recorded.deliveries_heard, 1);
}

#[test]
#[ignore = "writes the fixture of the present format"]
fn bless_the_present_format() {
    let dir = fixture(&format!("v{}", recording::FORMAT));
    record(&dir, &Policy::default(), script);
}
