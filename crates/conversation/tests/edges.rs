//! Races at the edges of the clocks: each of these once hung, lost or doubled something.

use conversation::gate::GateReason;
use conversation::{AgentState, Command, Decision, Input};
use testkit::{Stage, brief};
use vocab::delivery::DeliveryChange;
use vocab::effect::{OperationStatus, Priority};
use vocab::model::{ModelCommand, ModelEvent, ResponseEnd};
use vocab::work::{Refusal, WorkEvent};
use vocab::{AudioMs, PlaybackId, Samples};

const OFFERED: DeliveryChange = DeliveryChange::Offered { attached: false };

/// A tool was accepted, acknowledged aloud, and works on.
fn acknowledged() -> Stage {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    let call = stage.call_tool("book_table");
    stage.admit(call, "op_1");
    stage.run(750);
    stage.say(1_500);
    stage.run(2_000);
    stage
}

fn urgent(delivery: &str, operation: &str) -> WorkEvent {
    let mut news = brief(delivery, operation);
    news.priority = Priority::Urgent;
    WorkEvent::DeliveryReady(news)
}

#[test]
fn a_turn_committed_during_a_blip_is_answered_when_the_blip_is_over() {
    for spoken in [1_000, 0] {
        let mut stage = Stage::answered();
        stage.speak(spoken);
        stage.run(500);
        stage.speak(60);
        stage.commit_turn();
        stage.run(400);
        assert_eq!(stage.responses_asked(), 1, "after {spoken} ms of speech");
    }
}

#[test]
fn a_blip_at_the_moment_of_the_time_out_leaves_no_turn_open() {
    let mut stage = Stage::answered();
    stage.speak(400);
    stage.run(9_260);
    stage.speak(60);
    stage.run(20_000);
    assert!(stage.decisions().any(|decision| matches!(decision, Decision::TurnClosed { .. })));
}

#[test]
fn a_caller_who_goes_on_after_an_early_commit_has_the_floor_and_gets_one_answer() {
    let mut stage = Stage::answered();
    stage.speak(1_000);
    stage.run(100);
    stage.commit_turn();
    stage.speak(1_000);
    stage.run(400);
    assert_eq!(stage.responses_asked(), 0, "the second half is not committed yet");
    stage.commit_turn();
    stage.run(10);
    stage.say(800);
    stage.run(3_000);
    assert_eq!(stage.responses_asked(), 1);
}

#[test]
fn late_audio_of_a_forgotten_response_is_not_taken_for_the_next_one() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    let old = stage.start_response();
    stage.audio(old, 3_000);
    stage.run(200);
    stage.speak(400);
    stage.run(400);
    stage.commit_turn();
    stage.run(1_100);
    stage.news();
    stage.audio(old, 500);
    stage.run(200);
    assert!(
        !stage.news().iter().any(|command| matches!(command, Command::KeepAudio { .. } | Command::SendAudio { .. }))
    );
    stage.say(700);
    stage.run(2_000);
    assert_eq!(stage.carrier.heard_of(PlaybackId(2)), Samples::from_ms(700));
}

#[test]
fn a_delivery_of_which_the_model_makes_nothing_is_not_offered_for_ever() {
    let mut stage = acknowledged();
    stage.commit("op_1", "dlv_1");
    for _ in 0..20 {
        stage.run(1_500);
        if stage.responses_asked() < 12 {
            let response = stage.start_response();
            stage.end_response(response, ResponseEnd::Completed);
        }
    }
    stage.run(20_000);
    let offers = stage.story("dlv_1").iter().filter(|change| **change == OFFERED).count();
    assert_eq!(offers, 3, "{:?}", stage.story("dlv_1"));
    assert_eq!(stage.conversation.agent_state(), AgentState::Listening, "it waits for the caller's next turn");
}

#[test]
fn marks_lost_before_the_generation_ended_do_not_make_us_speak_for_ever() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    stage.carrier.drops_marks = true;
    let response = stage.start_response();
    stage.audio(response, 400);
    stage.run(3_000);
    stage.end_response(response, ResponseEnd::Completed);
    stage.run(5_000);
    assert_eq!(stage.conversation.agent_state(), AgentState::Listening);
}

#[test]
fn a_generation_that_goes_silent_is_given_up_and_the_answer_asked_of_another_session() {
    for heard_first in [0, 1_000] {
        let mut stage = Stage::answered();
        stage.take_turn(800);
        let response = stage.start_response();
        if heard_first > 0 {
            stage.audio(response, heard_first);
        }
        stage.run(20_000);
        assert_eq!(stage.conversation.agent_state(), AgentState::Thinking, "the answer is owed");
        assert!(stage.log.iter().any(|(_, command)| *command == Command::OpenModel));
        stage.model(ModelEvent::SessionReady);
        stage.run(500);
        assert_eq!(stage.responses_asked(), 2, "after {heard_first} ms of sound");
    }
}

#[test]
fn urgent_news_does_not_interrupt_urgent_news() {
    let mut stage = Stage::answered();
    stage.work(urgent("dlv_1", "op_1"));
    stage.run(10);
    stage.say(3_000);
    stage.run(500);
    stage.work(urgent("dlv_2", "op_2"));
    stage.run(4_000);
    assert_eq!(stage.clears(), 0);
    stage.say(1_000);
    stage.run(3_000);
    for delivery in ["dlv_1", "dlv_2"] {
        assert!(matches!(stage.story(delivery)[..], [OFFERED, DeliveryChange::Heard { .. }]), "{delivery}");
    }
}

#[test]
fn an_answer_that_urgent_news_cut_off_is_given_again() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    stage.say(5_000);
    stage.run(300);
    stage.work(urgent("dlv_1", "op_1"));
    stage.run(20);
    stage.say(800);
    stage.run(3_000);
    let answers = stage.decisions().filter(|d| matches!(d, Decision::ResponsePlanned { turn: Some(_), .. })).count();
    assert_eq!(answers, 2);
}

#[test]
fn a_hang_up_before_the_first_sound_leaves_news_that_is_still_news() {
    let mut stage = acknowledged();
    stage.commit("op_1", "dlv_1");
    stage.run(700);
    stage.input(Input::StreamEnded);
    assert_eq!(stage.story("dlv_1"), [OFFERED, DeliveryChange::Withdrawn { counts: false }]);
}

#[test]
fn a_hang_up_after_everything_played_but_nothing_was_proven_is_uncertain() {
    let mut stage = acknowledged();
    stage.commit("op_1", "dlv_1");
    stage.run(700);
    stage.carrier.drops_marks = true;
    stage.say(2_000);
    stage.run(2_100);
    stage.input(Input::StreamEnded);
    assert_eq!(stage.story("dlv_1"), [OFFERED, DeliveryChange::Unproven { possible: AudioMs(2_000) }]);
}

#[test]
fn a_cough_during_a_retry_does_not_erase_the_debt_before_it() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    let response = stage.start_response();
    stage.end_response(response, ResponseEnd::Failed { code: "server_error".into() });
    stage.speak(250);
    stage.run(12_000);
    assert_eq!(stage.responses_asked(), 2);
}

#[test]
fn an_item_that_was_never_heard_is_taken_out_of_the_models_memory() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    let response = stage.start_response();
    stage.speak(300);
    let item = stage.audio(response, 500);
    stage.model(vocab::model::ModelEvent::AudioReceived { response, item, samples: Samples::from_ms(500) });
    let deleted: Vec<_> = stage.model_commands(|c| matches!(c, ModelCommand::DeleteItem { .. })).collect();
    assert_eq!(deleted, [&ModelCommand::DeleteItem { item }], "once");
}

#[test]
fn b3_a_cut_answer_to_a_tool_call_stays_owed() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    let call = stage.call_tool("book_table");
    let refusal = Refusal { code: "refused".into(), say: "No table is free.".into() };
    stage.work(WorkEvent::Refused { tool_call: call, refusal });
    stage.run(10);
    stage.say(3_000);
    stage.run(1_000);
    stage.speak(1_000);
    assert_eq!(stage.conversation.agent_state(), AgentState::Thinking);
    stage.run(500);
    stage.commit_turn();
    stage.run(10);
    stage.say(800);
    stage.run(2_000);
    assert_eq!(stage.responses_asked(), 3, "one answer pays both");
    assert_eq!(stage.conversation.agent_state(), AgentState::Listening);
}

#[test]
fn a_disk_that_hangs_does_not_keep_the_caller_from_an_answer() {
    let mut stage = acknowledged();
    stage.speak(200);
    stage.disk_ms = None;
    stage.commit("op_1", "dlv_1");
    stage.speak(600);
    stage.run(500);
    stage.commit_turn();
    stage.run(900);
    assert_eq!(stage.responses_asked(), 2, "it has a moment");
    stage.run(300);
    assert_eq!(stage.responses_asked(), 3);
}

#[test]
fn urgent_news_ticks_off_no_turn() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    let response = stage.start_response();
    stage.end_response(response, ResponseEnd::Failed { code: "server_error".into() });
    stage.speak(300);
    stage.work(urgent("dlv_1", "op_1"));
    stage.run(50);
    let planned: Vec<_> = stage
        .decisions()
        .filter_map(|decision| match decision {
            Decision::ResponsePlanned { turn, deliveries, .. } => Some((turn.is_some(), deliveries.len())),
            _ => None,
        })
        .collect();
    assert_eq!(planned, [(true, 0), (false, 1)]);
}

#[test]
fn a_batch_whose_delivery_never_comes_does_not_keep_the_call_thinking() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    let call = stage.call_tool("book_table");
    stage.admit(call, "op_1");
    stage.finish("op_1", OperationStatus::Committed);
    stage.run(2_100);
    stage.say(800);
    stage.run(5_000);
    assert_eq!(stage.conversation.agent_state(), AgentState::Listening);
}

#[test]
fn a_withdrawn_offer_says_why() {
    let mut stage = acknowledged();
    stage.commit("op_1", "dlv_1");
    stage.run(700);
    stage.input(Input::StreamEnded);
    let why = GateReason::NobodyThere;
    assert!(stage.decisions().any(|d| matches!(d, Decision::OfferWithdrawn { reason, .. } if *reason == why)));
}
