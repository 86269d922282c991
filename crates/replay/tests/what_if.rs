//! Another policy on recorded calls: the model world is close to the recorded one, and a change shows where it must.

mod common;

use common::{Place, answered, booking, record};
use conversation::Policy;
use replay::what_if;
use replay::what_if::{Spread, Tally};
use testkit::Stage;

fn run(place: &Place, overrides: &[&str]) -> replay::WhatIfReport {
    let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
    what_if(place.path(), &overrides).unwrap()
}

/// Bookings that commit at different moments after the acknowledgement.
fn bookings(calls: u64) -> Place {
    let place = Place::new();
    for call in 0..calls {
        record(&place.join(&format!("call{call:02}")), &Policy::default(), |stage| booking(stage, call * 37));
    }
    place
}

/// Two lists of milliseconds, one by one no further apart than this.
fn near(one: &[u32], other: &[u32], ms: u32) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.abs_diff(*other) <= ms)
}

#[test]
fn under_its_own_policy_a_call_is_in_the_model_world_what_it_was() {
    let place = bookings(3);
    record(&place.join("interrupted"), &Policy::default(), |stage: &mut Stage| {
        booking(stage, 0);
        stage.take_turn(800);
        stage.run(300);
        stage.say(4_000);
        stage.run(1_200);
        stage.speak(700);
        stage.run(500);
        stage.commit_turn();
        stage.run(300);
        stage.say(1_000);
        stage.run(3_000);
    });
    let report = run(&place, &[]);
    assert_eq!((report.calls.len(), report.skipped.len()), (4, 0));
    for call in &report.calls {
        let (recorded, before) = (&call.recorded, &call.before);
        assert_eq!(call.before, call.after);
        assert!(near(&recorded.delivery_wait_ms, &before.delivery_wait_ms, 2), "{recorded:?}\n{before:?}");
        assert!(near(&recorded.delivery_heard_ms, &before.delivery_heard_ms, 5), "{recorded:?}\n{before:?}");
        assert!(near(&recorded.answer_wait_ms, &before.answer_wait_ms, 2), "{recorded:?}\n{before:?}");
        assert!(near(&recorded.unheard_ms, &before.unheard_ms, 5), "{recorded:?}\n{before:?}");
        let counts = |tally: &Tally| (tally.counts()[1..].to_vec(), tally.responses);
        assert_eq!(counts(recorded), counts(before));
        assert_eq!(before.invented, 0);
    }
    assert_eq!(report.recorded.interruptions, 1);
}

#[test]
fn a_shorter_quiet_window_shortens_the_wait_of_deliveries_and_a_longer_one_lengthens_it() {
    let place = bookings(6);
    let median = |report: &replay::WhatIfReport| {
        let of = |tally: &Tally| Spread::of(&tally.delivery_wait_ms);
        (of(&report.before), of(&report.after))
    };
    let (before, after) = median(&run(&place, &["gate.quiet_ms=400"]));
    assert_eq!((before.count, after.count), (6, 6));
    let shorter = before.median - after.median;
    assert!((200..=300).contains(&shorter), "{before:?} {after:?}");
    let (before, after) = median(&run(&place, &["gate.quiet_ms=1650"]));
    assert_eq!(after.median - before.median, 1_000, "{before:?} {after:?}");
}

#[test]
fn a_window_that_is_too_short_shows_as_cutting_in() {
    let place = Place::new();
    // The caller thinks for a second between two sentences; the result comes at the first one's end.
    record(
        &place.join("call"),
        &{
            let mut policy = Policy::default();
            policy.gate.quiet_ms = 2_000;
            policy
        },
        |stage| {
            booking(stage, 0);
            stage.take_turn(800);
            stage.run(300);
            let call = stage.call_tool("book_table");
            stage.run(30);
            stage.admit(call, "op_2");
            stage.run(900);
            stage.say(1_000);
            stage.run(1_500);
            stage.commit("op_2", "dlv_2");
            stage.run(1_300);
            stage.speak(600);
            stage.run(600);
            stage.commit_turn();
            stage.run(300);
            stage.say(2_000);
            stage.run(4_000);
        },
    );
    let report = run(&place, &["gate.quiet_ms=400"]);
    assert_eq!((report.before.cut_ins, report.after.cut_ins), (0, 1), "{}", report.table());
    assert!(report.after.unheard_ms.iter().sum::<u32>() > 0);
}

#[test]
fn a_stale_rule_and_a_longer_window_together_lose_news() {
    let place = Place::new();
    record(&place.join("call"), &Policy::default(), |stage| {
        stage.take_turn(1_000);
        stage.run(300);
        let call = stage.call_tool("book_table");
        stage.admit(call, "op_1");
        stage.run(900);
        stage.say(1_500);
        stage.run(2_000);
        let mut news = testkit::brief("dlv_1", "op_1");
        news.fresh_for_ms = Some(1_500);
        stage.finish("op_1", vocab::effect::OperationStatus::Committed);
        stage.work(vocab::work::WorkEvent::DeliveryReady(news));
        answered(stage, 300, 1_000);
        stage.run(4_000);
    });
    let report = run(&place, &["gate.quiet_ms=3000"]);
    let counts = |tally: &Tally| (tally.deliveries_heard, tally.deliveries_stale);
    assert_eq!((counts(&report.before), counts(&report.after)), ((1, 0), (0, 1)), "{}", report.table());
}

#[test]
fn the_table_and_the_picture_say_which_is_better() {
    let place = bookings(6);
    let report = run(&place, &["gate.quiet_ms=400"]);
    let table = report.table();
    let row = table.lines().find(|line| line.starts_with("delivery ready to first audio, median ms")).unwrap();
    let numbers: Vec<i64> = row.split_whitespace().rev().take(4).map(|word| word.parse().unwrap()).collect();
    assert!(numbers[0] < 0 && numbers[1] < numbers[2], "{table}");
    assert!(table.contains("gate.quiet_ms 650 → 400") && table.contains("Verdict: better"), "{table}");
    let svg = report.svg();
    assert!(svg.contains("gate.quiet_ms 650 → 400") && svg.contains("Verdict: better") && svg.contains("milliseconds"));
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("<path ").count(), 9, "three curves of three waits");
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

#[test]
fn a_bad_override_is_an_error_and_a_bad_recording_is_named() {
    let place = bookings(1);
    let wrong = what_if(place.path(), &["gate.quite_ms=1".into()]).unwrap_err().to_string();
    assert!(wrong.contains("quiet_ms"), "{wrong}");
    std::fs::create_dir(place.join("broken")).unwrap();
    std::fs::write(place.join("broken").join("call.jsonl"), "{}\n").unwrap();
    let report = run(&place, &["gate.quiet_ms=400"]);
    assert_eq!((report.calls.len(), report.skipped.len()), (1, 1));
    assert!(report.table().contains("skipped") && report.table().contains("broken"));
    let nothing = Place::new();
    assert!(what_if(nothing.path(), &[]).is_err());
}

#[test]
fn fifty_calls_are_compared_in_seconds() {
    let place = bookings(50);
    let began = std::time::Instant::now();
    let report = run(&place, &["gate.quiet_ms=400"]);
    let took = began.elapsed();
    println!("50 calls in {took:?}\n{}", report.table());
    assert_eq!(report.calls.len(), 50);
    assert!(took < std::time::Duration::from_secs(10), "{took:?}");
}
