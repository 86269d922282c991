//! A caller who does not answer: when they are spoken to, and when they are let go.

use conversation::{CloseReason, Command, Policy};
use testkit::Stage;
use vocab::model::{ModelCommand, ResponseEnd};

fn closed(stage: &Stage) -> bool {
    stage.log.iter().any(|(_, command)| matches!(command, Command::CloseStream { reason: CloseReason::CallerAway }))
}

fn ready() -> Stage {
    let mut stage = Stage::new(Policy::default());
    stage.input(conversation::Input::CallStarted { greeting: None });
    stage.model(vocab::model::ModelEvent::SessionReady);
    stage
}

/// The agent has answered, and nothing is owed.
fn answered_once() -> Stage {
    let mut stage = ready();
    stage.take_turn(800);
    stage.run(300);
    stage.say(1_000);
    stage.run(1_500);
    stage
}

#[test]
fn a_silent_caller_is_asked_twice_told_goodbye_and_let_go_once_that_was_heard() {
    let mut stage = answered_once();
    let expected = ["still there", "still there", "goodbye"];
    for (place, words) in expected.into_iter().enumerate() {
        stage.run(18_000);
        assert_eq!(stage.responses_asked(), 1 + place, "not before 20 s");
        stage.run(2_500);
        assert_eq!(stage.responses_asked(), 2 + place);
        assert!(stage.asked_directions().unwrap().contains(words), "{words}");
        assert!(!closed(&stage));
        stage.say(1_200);
        stage.run(1_000);
        assert!(!closed(&stage), "the goodbye is still playing");
        stage.run(700);
    }
    assert!(closed(&stage));
    assert!(stage.conversation.is_closed());
}

#[test]
fn a_caller_who_comes_back_is_forgiven_everything() {
    let mut stage = answered_once();
    for _ in 0..4 {
        stage.run(21_000);
        stage.say(1_000);
        stage.run(2_000);
        stage.take_turn(600);
        stage.run(300);
        stage.say(1_000);
        stage.run(2_000);
    }
    assert!(!closed(&stage));
    let goodbyes = stage.model_commands(
        |c| matches!(c, ModelCommand::CreateResponse { directions: Some(text), .. } if text.contains("goodbye")),
    );
    assert_eq!(goodbyes.count(), 0);
}

#[test]
fn whoever_speaks_into_the_goodbye_keeps_the_line() {
    let mut stage = answered_once();
    for _ in 0..2 {
        stage.run(21_000);
        stage.say(800);
        stage.run(1_500);
    }
    stage.run(20_000);
    assert!(stage.asked_directions().unwrap().contains("goodbye"));
    stage.say(2_000);
    stage.run(600);
    stage.take_turn(800);
    stage.run(3_000);
    assert!(!closed(&stage));
    assert_eq!(stage.clears(), 1);
}

/// tools 25, models 5.2: an intermediate word or a noise arms nothing while work runs.
#[test]
fn nobody_is_asked_whether_they_are_there_while_work_runs() {
    let mut stage = ready();
    stage.take_turn(800);
    let call = stage.call_tool("book_table");
    stage.admit(call, "op_1");
    stage.run(750);
    stage.say(900);
    stage.run(30_000);
    stage.speak(80);
    stage.run(60_000);
    assert_eq!(stage.responses_asked(), 2, "the call and its acknowledgement");
    stage.commit("op_1", "dlv_1");
    stage.run(1_000);
    stage.say(1_000);
    stage.run(19_000);
    assert_eq!(stage.responses_asked(), 3, "armed in full once the news was heard");
    stage.run(3_000);
    assert_eq!(stage.responses_asked(), 4);
}

/// tools 32: from the end of the sound, not from when it was sent.
#[test]
fn the_silence_counts_from_the_last_of_our_sound_that_was_heard() {
    let mut stage = ready();
    stage.take_turn(800);
    stage.run(300);
    stage.say(25_000);
    stage.run(44_000);
    assert_eq!(stage.responses_asked(), 1);
    stage.run(2_500);
    assert_eq!(stage.responses_asked(), 2);
}

#[test]
fn a_goodbye_that_the_model_does_not_say_keeps_nobody_on_the_line() {
    let mut stage = answered_once();
    let mut asked = stage.responses_asked();
    for _ in 0..400 {
        stage.run(1_000);
        if stage.conversation.is_closed() {
            return;
        }
        if stage.responses_asked() > asked {
            asked = stage.responses_asked();
            let response = stage.start_response();
            stage.end_response(response, ResponseEnd::Completed);
        }
    }
    panic!("still on the line");
}

#[test]
fn an_operator_can_turn_it_off() {
    let mut stage = Stage::answered();
    assert_eq!(Stage::patient_policy().idle.check_in_after_ms, 0);
    stage.run(300_000);
    assert_eq!(stage.responses_asked(), 0);
}

fn to_the_goodbye() -> Stage {
    let mut stage = answered_once();
    for _ in 0..2 {
        stage.run(21_000);
        stage.say(800);
        stage.run(1_500);
    }
    stage.run(20_000);
    assert!(stage.asked_directions().unwrap().contains("goodbye"));
    stage.say(2_000);
    stage.run(500);
    stage
}

#[test]
fn a_key_or_words_that_only_the_model_heard_keep_the_line() {
    let mut stage = to_the_goodbye();
    stage.input(conversation::Input::DtmfPressed { digit: '1' });
    stage.run(4_000);
    assert!(!closed(&stage));
    let mut stage = to_the_goodbye();
    stage.commit_turn();
    stage.run(4_000);
    assert!(!closed(&stage));
}

#[test]
fn keys_are_no_silence() {
    let mut stage = answered_once();
    let asked = stage.responses_asked();
    for _ in 0..10 {
        stage.run(15_000);
        stage.input(conversation::Input::DtmfPressed { digit: '4' });
    }
    assert_eq!(stage.responses_asked(), asked);
}
