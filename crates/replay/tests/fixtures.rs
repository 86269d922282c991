//! Recordings of every format that was ever written keep being read. Whether they also replay is a matter of the core: a
//! change of its rules drifts here first, is then blessed on purpose (`cargo test -p replay --test fixtures -- --ignored`),
//! and the changelog says so.

mod common;

use common::{Tape, booking, record_on};
use conversation::Policy;
use recording::Tail;
use replay::{replay_dir, what_if};
use std::path::PathBuf;
use testkit::Stage;

fn fixture(version: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/recordings").join(version).join("booking")
}

/// A booking, a false start during its announcement, an interruption, and an answer at the pace of speech.
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
    stage.commit_turn();
    stage.run(300);
    stage.say_smoothly(2_000);
    stage.run(1_000);
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
fn every_format_replays_without_drift() {
    for format in 1..=recording::FORMAT {
        let report = replay_dir(&fixture(&format!("v{format}"))).unwrap();
        if let Some(drift) = &report.drift {
            panic!("format {format}: {drift}");
        }
        let Some(Tail::Ended { steps, .. }) = report.tail else { panic!("{:?}", report.tail) };
        assert_eq!(steps, report.steps);
        assert!(steps > 500);
    }
}

#[test]
fn every_format_serves_a_what_if() {
    for format in 1..=recording::FORMAT {
        let report = what_if(&fixture(&format!("v{format}")), &["gate.quiet_ms=400".into()]).unwrap();
        assert_eq!(report.calls.len(), 1);
        assert_eq!(report.recorded.deliveries_heard, 1, "format {format}");
    }
}

#[test]
#[ignore = "writes the fixture of every format"]
fn bless_every_format() {
    for format in 1..=recording::FORMAT {
        let policy = Policy::default();
        record_on(Tape::of_format(format, &policy), &fixture(&format!("v{format}")), &policy, script);
    }
}
