//! Speech over our own voice: hold, then clear or resume; and every echo that may cross a clear.

use conversation::{Command, Decision, Input, MarkVerdict, PlaybackEndedBy};
use testkit::Stage;
use vocab::model::{ModelCommand, ResponseEnd};
use vocab::{AudioMs, Epoch, MarkName, PlaybackId, Samples};

fn ends(stage: &Stage) -> Vec<(PlaybackEndedBy, u32, u32)> {
    stage
        .decisions()
        .filter_map(|decision| match decision {
            Decision::PlaybackEnded(end) => Some((end.how, end.proven.ms().0, end.possible.ms().0)),
            _ => None,
        })
        .collect()
}

/// The agent has been asked something and speaks 4 s.
fn agent_speaks() -> Stage {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    stage.say(4_000);
    stage
}

#[test]
fn audio_is_paced_with_the_lead_and_never_more() {
    let mut stage = agent_speaks();
    let mut sent = 0;
    for _ in 0..100 {
        let started = stage.now;
        for command in stage.news() {
            if let Command::SendAudio { from, to, .. } = command {
                sent += (to - from).ms().0;
            }
        }
        let played = stage.carrier.heard_of(PlaybackId(1)).ms().0;
        assert!(sent <= played + 400 + 120, "at {started:?}: {sent} ms sent, {played} ms played");
        stage.run(50);
    }
    assert_eq!(stage.carrier.heard_of(PlaybackId(1)), Samples::from_ms(4_000));
    assert!(stage.carrier.heard_in_order(PlaybackId(1)) && stage.carrier.holes.is_empty());
    assert_eq!(ends(&stage), [(PlaybackEndedBy::Played, 4_000, 4_000)]);
}

#[test]
fn marks_come_at_least_every_200_ms_and_at_the_end() {
    let mut stage = agent_speaks();
    stage.run(5_000);
    let offsets: Vec<_> = stage
        .log
        .iter()
        .filter_map(|(_, command)| match command {
            Command::SendMark { mark: MarkName::Played { offset, .. } } => Some(offset.ms().0),
            _ => None,
        })
        .collect();
    assert!(offsets.windows(2).all(|pair| pair[1] - pair[0] <= 200), "{offsets:?}");
    assert_eq!(offsets.last(), Some(&4_000));
}

#[test]
fn s12_a_false_start_costs_no_audio() {
    let mut stage = agent_speaks();
    stage.run(1_000);
    stage.news();
    stage.speak(100);
    stage.run(100);
    assert!(stage.decisions().any(|decision| *decision == Decision::SpeechTentative { held: true }));
    assert!(stage.decisions().any(|decision| *decision == Decision::SpeechRetracted { resumed: true }));
    stage.run(5_000);
    assert_eq!(stage.clears(), 0);
    assert_eq!(stage.carrier.heard_of(PlaybackId(1)), Samples::from_ms(4_000));
    assert!(stage.carrier.heard_in_order(PlaybackId(1)), "nothing lost or repeated");
    assert!(stage.carrier.holes.is_empty(), "the lead is longer than the false start");
}

#[test]
fn tentative_speech_stops_the_feeding_within_the_same_step() {
    let mut stage = agent_speaks();
    stage.run(1_000);
    stage.news();
    stage.speak(160);
    let fed = stage.news().into_iter().filter(|command| matches!(command, Command::SendAudio { .. })).count();
    assert!(fed <= 1, "at most the chunk that was due before the first frame of speech came: {fed}");
}

#[test]
fn confirmed_speech_clears_cancels_and_truncates_to_what_was_heard() {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    let response = stage.start_response();
    let item = stage.audio(response, 4_000);
    stage.run(1_000);
    stage.speak(400);
    assert_eq!(stage.clears(), 1);
    assert_eq!(stage.model_commands(|c| matches!(c, ModelCommand::CancelResponse { .. })).count(), 1);
    let Some(ModelCommand::TruncateItem { item: cut, audio_end: AudioMs(ms) }) =
        stage.model_commands(|c| matches!(c, ModelCommand::TruncateItem { .. })).next().cloned()
    else {
        panic!("no truncation: {:?}", stage.news());
    };
    assert_eq!(cut, item);
    let heard = stage.carrier.heard_of(PlaybackId(1)).ms().0;
    assert!(ms <= heard + 40, "told the model {ms} ms, the caller heard {heard} ms");
    assert!(ms + 250 >= heard, "not less than a mark below the truth: {ms} of {heard}");
    stage.run(2_000);
    assert!(stage.carrier.heard_of(PlaybackId(1)).ms().0 <= heard, "silence after the clear");
}

#[test]
fn generation_long_over_and_playback_not_is_still_cut() {
    let mut stage = agent_speaks();
    stage.run(2_000);
    stage.speak(400);
    assert_eq!(stage.clears(), 1);
    assert_eq!(
        stage.model_commands(|c| matches!(c, ModelCommand::CancelResponse { .. })).count(),
        0,
        "nothing to cancel"
    );
    assert_eq!(stage.model_commands(|c| matches!(c, ModelCommand::TruncateItem { .. })).count(), 1);
}

#[test]
fn of_two_items_the_heard_one_is_cut_and_the_unheard_one_removed() {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    let response = stage.start_response();
    let first = stage.audio(response, 600);
    let second = stage.audio(response, 3_000);
    let third = stage.audio(response, 3_000);
    stage.run(1_500);
    stage.speak(400);
    let told: Vec<_> = stage
        .model_commands(|c| matches!(c, ModelCommand::TruncateItem { .. } | ModelCommand::DeleteItem { .. }))
        .cloned()
        .collect();
    assert!(
        matches!(told[..], [ModelCommand::TruncateItem { item: cut, audio_end: AudioMs(ms) }, ModelCommand::DeleteItem { item: gone }]
            if cut == second && gone == third && (700..1_200).contains(&ms)),
        "{first} was heard whole, {second} in part, {third} not at all: {told:?}"
    );
}

#[test]
fn nothing_heard_yet_removes_the_item() {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    let response = stage.start_response();
    stage.speak(180);
    let item = stage.audio(response, 2_000);
    stage.speak(40);
    assert_eq!(
        stage.model_commands(|c| matches!(c, ModelCommand::DeleteItem { .. })).collect::<Vec<_>>(),
        [&ModelCommand::DeleteItem { item }]
    );
    assert_eq!(stage.carrier.heard_of(PlaybackId(1)), Samples::ZERO);
}

#[test]
fn late_audio_of_a_cut_response_never_reaches_the_caller() {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    let response = stage.start_response();
    stage.audio(response, 1_000);
    stage.run(500);
    stage.speak(400);
    stage.news();
    stage.audio(response, 3_000);
    stage.end_response(response, ResponseEnd::Cancelled);
    stage.run(1_000);
    let audible = |command: &Command| matches!(command, Command::KeepAudio { .. } | Command::SendAudio { .. });
    assert!(!stage.news().iter().any(audible));
}

#[test]
fn an_echo_that_was_in_flight_when_the_clear_left_counts_as_played() {
    let mut stage = agent_speaks();
    stage.carrier.delay_ms = 60;
    stage.run(2_000);
    stage.speak(400);
    stage.run(1_000);
    let verdicts: Vec<_> = stage
        .decisions()
        .filter_map(|decision| match decision {
            Decision::MarkJudged { verdict, .. } => Some(*verdict),
            _ => None,
        })
        .collect();
    assert!(verdicts.contains(&MarkVerdict::Cleared), "{verdicts:?}");
    assert_eq!(verdicts.last(), Some(&MarkVerdict::Fence));
    let [(PlaybackEndedBy::Cleared, proven, possible)] = ends(&stage)[..] else { panic!("{:?}", ends(&stage)) };
    let heard = stage.carrier.heard_of(PlaybackId(1)).ms().0;
    assert!(proven <= heard && heard <= possible + 200, "proven {proven}, heard {heard}, possible {possible}");
}

#[test]
fn a_carrier_that_began_late_proves_nothing_by_our_arithmetic() {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    stage.say(1_000);
    stage.run(2_000);
    stage.take_turn(1_000);
    // The second answer reaches the carrier 200 ms later than the first one did; the clear does not.
    stage.carrier.delay_ms = 240;
    stage.say(4_000);
    stage.carrier.delay_ms = 40;
    stage.run(1_530);
    stage.speak(400);
    stage.run(1_500);
    let [_, (PlaybackEndedBy::Cleared, proven, _)] = ends(&stage)[..] else { panic!("{:?}", ends(&stage)) };
    let heard = stage.carrier.heard_of(PlaybackId(2)).ms().0;
    assert!(proven <= heard, "{proven} ms proven, {heard} ms heard");
}

#[test]
fn s11_marks_returned_by_a_clear_prove_nothing() {
    let mut stage = agent_speaks();
    stage.run(300);
    stage.speak(220);
    stage.run(1_000);
    let [(PlaybackEndedBy::Cleared, proven, _)] = ends(&stage)[..] else { panic!("{:?}", ends(&stage)) };
    assert!(proven <= stage.carrier.heard_of(PlaybackId(1)).ms().0);
}

#[test]
fn an_echo_nobody_waits_for_changes_nothing() {
    let mut stage = agent_speaks();
    stage.run(500);
    let before = ends(&stage);
    for mark in [
        MarkName::Played { epoch: Epoch(0), playback: PlaybackId(1), offset: Samples::from_ms(4_000) },
        MarkName::Played { epoch: Epoch(9), playback: PlaybackId(1), offset: Samples::from_ms(400) },
        MarkName::Played { epoch: Epoch(0), playback: PlaybackId(7), offset: Samples::from_ms(400) },
        MarkName::Fence { epoch: Epoch(0) },
        MarkName::Fence { epoch: Epoch(5) },
    ] {
        stage.input(Input::MarkReturned { mark });
    }
    assert_eq!(ends(&stage), before, "a number never sent must not raise the high-water mark");
}

#[test]
fn a_lost_fence_does_not_hold_the_story_up_for_ever() {
    let mut stage = agent_speaks();
    stage.run(1_000);
    stage.carrier.drops_marks = true;
    stage.speak(400);
    stage.run(1_100);
    assert!(matches!(ends(&stage)[..], [(PlaybackEndedBy::Cleared, _, _)]));
}

#[test]
fn a_lost_mark_in_the_middle_is_completed_by_a_later_one() {
    let mut stage = agent_speaks();
    stage.carrier.drops_marks = true;
    stage.run(2_000);
    stage.carrier.drops_marks = false;
    stage.run(3_000);
    assert_eq!(ends(&stage), [(PlaybackEndedBy::Played, 4_000, 4_000)]);
}

#[test]
fn when_all_marks_are_lost_the_agent_does_not_speak_for_ever() {
    let mut stage = agent_speaks();
    stage.carrier.drops_marks = true;
    stage.run(7_000);
    assert_eq!(ends(&stage), [(PlaybackEndedBy::MarksLost, 0, 4_000)]);
    assert_eq!(stage.conversation.agent_state(), conversation::AgentState::Listening);
}

#[test]
fn odd_sized_deltas_leave_as_whole_frames_until_the_end() {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    let response = stage.start_response();
    stage.audio(response, 10);
    for samples in [37, 411, 160, 999, 8_001] {
        let item = vocab::ModelItemId(500);
        stage.model(vocab::model::ModelEvent::AudioReceived { response, item, samples: Samples(samples) });
        stage.run(30);
    }
    let part = |stage: &Stage| {
        stage
            .log
            .iter()
            .filter(|(_, command)| matches!(command, Command::SendAudio { from, to, .. } if (to.0 - from.0) % 160 != 0))
            .count()
    };
    assert_eq!(part(&stage), 0);
    stage.end_response(response, ResponseEnd::Completed);
    stage.run(3_000);
    assert_eq!(part(&stage), 1, "only the end may be a part frame");
    assert_eq!(stage.carrier.heard_of(PlaybackId(1)), Samples(80 + 37 + 411 + 160 + 999 + 8_001));
}

#[test]
fn a_second_barge_in_while_the_first_clear_is_on_its_way_loses_no_story() {
    let mut stage = agent_speaks();
    stage.carrier.delay_ms = 400;
    stage.run(1_000);
    stage.speak(300);
    stage.run(320);
    stage.commit_turn();
    stage.run(5);
    stage.say(2_000);
    stage.run(100);
    stage.speak(300);
    stage.run(3_000);
    assert_eq!(stage.clears(), 2);
    assert_eq!(ends(&stage).len(), 2, "{:?}", ends(&stage));
}
