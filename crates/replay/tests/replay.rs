//! The same inputs give the same commands; where they do not, the first difference is found and told.

mod common;

use common::{Place, Tape, booking, header, record};
use conversation::{Command, Conversation, Decision, Input, Policy};
use recording::{STEPS_FILE, Tail};
use replay::{ReplayStep, open, replay_dir, replay_steps};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use vocab::CallTime;

/// Puts another policy into the header: the recording then claims to have been made under it.
fn change_policy(dir: &Path, policy: &Policy) {
    let file = dir.join(STEPS_FILE);
    let log = fs::read_to_string(&file).unwrap();
    let (_, steps) = log.split_once('\n').unwrap();
    let head = serde_json::json!({"recording": header(policy)});
    fs::write(file, format!("{head}\n{steps}")).unwrap();
}

#[test]
fn r13_a_recorded_call_replays_with_identical_commands() {
    let place = Place::new();
    let dir = place.join("call");
    record(&dir, &Policy::default(), |stage| booking(stage, 200));
    let report = replay_dir(&dir).unwrap();
    assert_eq!(report.drift, None);
    assert!(report.steps > 400 && report.commands > 100, "{} steps, {} commands", report.steps, report.commands);
    assert!(matches!(report.tail, Some(Tail::Ended { .. })));
    assert!(report.lasted > CallTime::from_ms(8_000));
}

#[test]
fn a_changed_policy_drifts_at_the_step_that_it_decides() {
    let place = Place::new();
    let dir = place.join("call");
    record(&dir, &Policy::default(), |stage| booking(stage, 0));
    let mut policy = Policy::default();
    policy.turn.confirm_ms = 240;
    change_policy(&dir, &policy);
    let drift = replay_dir(&dir).unwrap().drift.expect("240 ms of speech are not yet confirmed after 200");
    // Ten frames of speech end at 200 ms; the first step is the start, the second the model's readiness.
    assert_eq!((drift.n, drift.at), (12, CallTime::from_ms(200)));
    assert!(drift.expected.contains(&Command::Explain(Decision::SpeechConfirmed)));
    assert_eq!(drift.got, []);
    let text = drift.to_string();
    assert!(text.starts_with("drift at step 12, 00:00.200\n"), "{text}");
    assert!(text.contains(r#"input     {"caller_audio":"#), "{text}");
    assert!(text.contains(r#"decision  "speech_confirmed""#), "{text}");
    assert!(text.contains(r#"  - {"explain":"speech_confirmed"}"#), "{text}");
}

#[test]
fn a_later_quiet_window_drifts_where_the_gate_would_have_waited() {
    let place = Place::new();
    let dir = place.join("call");
    record(&dir, &Policy::default(), |stage| booking(stage, 0));
    let mut policy = Policy::default();
    policy.gate.quiet_ms = 900;
    change_policy(&dir, &policy);
    let drift = replay_dir(&dir).unwrap().drift.unwrap();
    let text = drift.to_string();
    assert!(text.contains("deliver_now") || text.contains("quiet_too_short"), "{text}");
}

#[test]
fn a_diff_keeps_what_both_have_and_signs_the_rest() {
    let place = Place::new();
    let dir = place.join("call");
    let mut tape = Tape::new(&Policy::default());
    let input = Input::DtmfPressed { digit: '5' };
    let mut real = Vec::new();
    Conversation::new(Policy::default()).step(CallTime(5), input.clone(), &mut real);
    let mut recorded = vec![Command::ClearPlayback];
    recorded.extend(real);
    tape.take(CallTime(5), &input, &recorded, None);
    tape.write(&dir);
    let text = replay_dir(&dir).unwrap().drift.unwrap().to_string();
    assert!(text.contains("\n  - \"clear_playback\"\n    {\"model\":{\"add_context\""), "{text}");
}

#[test]
fn a_killed_call_replays_to_its_last_step_wherever_it_was_cut() {
    let place = Place::new();
    let dir = place.join("call");
    record(&dir, &Policy::default(), |stage| booking(stage, 0));
    let file = dir.join(STEPS_FILE);
    let whole = fs::read(&file).unwrap();
    let lines: Vec<usize> = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
    // The end of the header, a line in the middle, the last step.
    for line in [1, lines.len() / 2, lines.len() - 2] {
        let (from, to) = (lines[line - 1] + 1, lines[line]);
        for end in (from..=to).step_by(7) {
            fs::write(&file, &whole[..end]).unwrap();
            let report = replay_dir(&dir).unwrap();
            assert_eq!(report.drift, None, "cut at {end}");
            assert!(matches!(report.tail, Some(Tail::Open | Tail::Torn { .. })), "{:?}", report.tail);
        }
    }
}

#[test]
fn a_damaged_recording_is_an_error_with_file_and_line() {
    let place = Place::new();
    let dir = place.join("call");
    record(&dir, &Policy::default(), |stage| booking(stage, 0));
    let file = dir.join(STEPS_FILE);
    let log = fs::read_to_string(&file).unwrap().replacen("\"quiet\":", "\"quiet\"", 1);
    let line = log.lines().position(|line| line.contains("\"quiet\"{")).unwrap() + 1;
    fs::write(&file, log).unwrap();
    let error = replay_dir(&dir).unwrap_err().to_string();
    assert!(error.contains(&format!("call.jsonl:{line}: ")), "{error}");
}

#[test]
fn a_long_call_replays_thousands_of_times_faster_than_it_lasted() {
    let place = Place::new();
    let dir = place.join("call");
    record(&dir, &Policy::default(), |stage| {
        booking(stage, 0);
        for _ in 0..10 {
            stage.take_turn(1_500);
            stage.say(2_500);
            stage.run(5_000);
        }
    });
    let began = Instant::now();
    let report = replay_dir(&dir).unwrap();
    let read = began.elapsed();
    let steps: Vec<ReplayStep> = open(&dir).unwrap().map(|step| step.unwrap()).collect();
    let rounds = 100;
    let began = Instant::now();
    for _ in 0..rounds {
        assert_eq!(replay_steps(&mut Conversation::new(Policy::default()), &steps), None);
    }
    let stepped = began.elapsed() / rounds;
    let lasted = Duration::from_micros(report.lasted.0);
    println!("{lasted:?} of call: {read:?} from the disk, {stepped:?} from memory");
    // Unoptimised code on a busy machine; release is a good ten times faster.
    assert!(read < lasted / 100, "{read:?} for {lasted:?}");
    assert!(stepped < lasted / 1_000, "{stepped:?} for {lasted:?}");
}
