//! Who may write the conversation: one response at a time, and a debt that outlives refusals, failures and lost events.

use conversation::{AgentState, CloseReason, Command, Decision, Input, Policy, TurnEndedBy};
use testkit::Stage;
use vocab::model::{ModelCommand, ModelEvent, ResponseEnd};
use vocab::{ModelItemId, ModelResponseId, ResponseId, Samples};

fn refuse(stage: &mut Stage, busy: bool) {
    let request = stage.asked().unwrap_or_default();
    stage.model(ModelEvent::CreateRefused { request, busy, message: String::new() });
}

#[test]
fn a_turn_gets_one_answer_and_not_before_the_model_ends_it() {
    let mut stage = Stage::answered();
    stage.speak(1_000);
    stage.run(1_000);
    assert_eq!(stage.responses_asked(), 0);
    stage.commit_turn();
    stage.run(10);
    assert_eq!(stage.responses_asked(), 1);
    stage.say(500);
    stage.run(5_000);
    assert_eq!(stage.responses_asked(), 1);
}

#[test]
fn a_sound_that_the_model_does_not_take_for_speech_needs_no_answer() {
    let mut stage = Stage::answered();
    stage.speak(1_000);
    stage.run(20_000);
    let closed = |decision: &Decision| matches!(decision, Decision::TurnClosed { by: TurnEndedBy::Timeout, .. });
    assert!(stage.decisions().any(closed));
    assert_eq!(stage.responses_asked(), 0);
    assert_eq!(stage.conversation.agent_state(), AgentState::Listening);
}

#[test]
fn a_sound_that_silenced_us_is_answered_even_if_the_model_never_ends_the_turn() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    stage.say(4_000);
    stage.run(1_000);
    stage.speak(1_000);
    stage.run(10_000);
    assert_eq!(stage.responses_asked(), 2);
}

#[test]
fn with_local_turn_ends_the_hangover_commits_and_the_echo_opens_nothing() {
    let mut policy = Policy::default();
    policy.turn.end = conversation::policy::TurnEnd::Local;
    let mut stage = Stage::new(policy);
    stage.input(Input::CallStarted { greeting: None });
    stage.model(ModelEvent::SessionReady);
    stage.speak(1_000);
    stage.run(320);
    assert_eq!(stage.model_commands(|c| *c == ModelCommand::CommitTurn).count(), 1);
    assert_eq!(stage.responses_asked(), 1);
    stage.commit_turn();
    stage.say(500);
    stage.run(5_000);
    assert_eq!(stage.responses_asked(), 1);
}

#[test]
fn speech_over_the_commit_waits_for_the_callers_quiet() {
    let mut stage = Stage::answered();
    stage.speak(1_000);
    stage.commit_turn();
    stage.speak(500);
    assert_eq!(stage.responses_asked(), 0, "still speaking");
    stage.run(320);
    assert_eq!(stage.responses_asked(), 1);
}

#[test]
fn a_busy_provider_costs_no_attempt_and_the_end_of_the_other_brings_us_back() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    // A response that nobody asked for won the race.
    stage.model(ModelEvent::ResponseCreated { response: ModelResponseId(90), request: Some(ResponseId(900)) });
    stage.model(ModelEvent::AudioReceived {
        response: ModelResponseId(90),
        item: ModelItemId(90),
        samples: Samples::from_ms(500),
    });
    refuse(&mut stage, true);
    stage.run(20);
    assert_eq!(stage.responses_asked(), 1, "it would be refused again");
    stage.end_response(ModelResponseId(90), ResponseEnd::Completed);
    assert_eq!(stage.responses_asked(), 2);
    assert!(!stage.log.iter().any(|(_, c)| matches!(c, Command::SendAudio { .. })), "nobody asked for it: never heard");
}

#[test]
fn an_error_that_comes_after_the_others_end_is_retried_by_the_clock() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    refuse(&mut stage, true);
    stage.run(250);
    assert_eq!(stage.responses_asked(), 1);
    stage.run(100);
    assert_eq!(stage.responses_asked(), 2, "no terminal event will ever come: the timer does it");
}

#[test]
fn a_failed_answer_stays_owed_within_its_attempts_and_is_then_asked_of_another_session() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    for attempt in 1..=3 {
        assert_eq!(stage.responses_asked(), attempt);
        let response = stage.start_response();
        stage.end_response(response, ResponseEnd::Failed { code: "inference_rate_limit_exceeded".into() });
        assert_eq!(stage.responses_asked(), attempt, "backing off");
        stage.run(2_000);
    }
    assert_eq!(stage.responses_asked(), 3);
    assert!(stage.decisions().any(|decision| matches!(decision, Decision::AnswerAbandoned { .. })));
    assert!(stage.log.iter().any(|(_, command)| *command == Command::OpenModel));
    stage.model(ModelEvent::SessionReady);
    stage.run(500);
    stage.say(1_000);
    stage.run(2_000);
    assert_eq!(stage.conversation.agent_state(), AgentState::Listening, "never stuck in thinking");
}

#[test]
fn a_completed_response_without_a_sound_answers_nothing() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    let response = stage.start_response();
    stage.end_response(response, ResponseEnd::Completed);
    stage.run(400);
    assert_eq!(stage.responses_asked(), 2);
}

#[test]
fn a_response_that_the_provider_never_starts_is_asked_of_another_session() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    stage.run(5_500);
    stage.model(ModelEvent::SessionReady);
    stage.run(500);
    assert_eq!(stage.responses_asked(), 2);
}

#[test]
fn a_cancelled_response_that_the_provider_never_ends_blocks_nothing() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    let response = stage.start_response();
    stage.audio(response, 3_000);
    stage.run(200);
    stage.speak(400);
    stage.run(400);
    stage.commit_turn();
    stage.run(1_100);
    assert_eq!(stage.responses_asked(), 2, "a second after the cancel");
    stage.say(500);
    stage.end_response(response, ResponseEnd::Cancelled);
    stage.run(3_000);
    assert_eq!(stage.responses_asked(), 2, "its late end is only an acknowledgement");
}

#[test]
fn a_response_cancelled_before_it_was_created_is_never_heard() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    stage.speak(400);
    assert_eq!(stage.model_commands(|c| matches!(c, ModelCommand::CancelResponse { .. })).count(), 1);
    let response = stage.start_response();
    stage.audio(response, 1_000);
    stage.end_response(response, ResponseEnd::Cancelled);
    stage.run(500);
    assert!(!stage.log.iter().any(|(_, c)| matches!(c, Command::SendAudio { .. })));
}

#[test]
fn an_end_without_a_beginning_is_taken() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    let request = stage.asked();
    let end = ResponseEnd::Completed;
    stage.model(ModelEvent::ResponseEnded { response: ModelResponseId(5), request, end });
    stage.run(400);
    assert_eq!(stage.responses_asked(), 2, "nothing was heard, so it is owed again");
}

#[test]
fn a_provider_that_echoes_no_metadata_is_understood() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    stage.model(ModelEvent::ResponseCreated { response: ModelResponseId(1), request: None });
    stage.audio(ModelResponseId(1), 500);
    stage.end_response(ModelResponseId(1), ResponseEnd::Completed);
    stage.run(2_000);
    assert_eq!(stage.carrier.heard_of(vocab::PlaybackId(1)), Samples::from_ms(500));
}

#[test]
fn an_incomplete_response_is_a_normal_end() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    let response = stage.start_response();
    stage.audio(response, 500);
    stage.end_response(response, ResponseEnd::Incomplete { reason: "max_output_tokens".into() });
    stage.run(3_000);
    assert_eq!(stage.responses_asked(), 1);
    assert!(!stage.conversation.is_closed());
}

#[test]
fn the_greeting_waits_for_both_the_stream_and_the_model_and_is_said_once() {
    let mut stage = Stage::new(Policy::default());
    stage.model(ModelEvent::SessionReady);
    stage.run(100);
    assert_eq!(stage.responses_asked(), 0);
    stage.input(Input::CallStarted { greeting: Some("Greet.".into()) });
    assert_eq!(stage.responses_asked(), 1);
    stage.say(500);
    stage.run(5_000);
    assert_eq!(stage.responses_asked(), 1);
}

#[test]
fn a_caller_who_speaks_first_gets_an_answer_instead_of_the_greeting() {
    let mut stage = Stage::new(Policy::default());
    stage.input(Input::CallStarted { greeting: Some("Greet.".into()) });
    stage.take_turn(800);
    stage.model(ModelEvent::SessionReady);
    stage.run(10);
    assert_eq!(stage.responses_asked(), 1);
    stage.say(500);
    stage.run(5_000);
    assert_eq!(stage.responses_asked(), 1);
}

#[test]
fn a_model_in_a_loop_of_tool_calls_ends() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    let response = stage.start_response();
    for _ in 0..20 {
        stage.propose(response, "again");
    }
    let proposed = stage.decisions().filter(|d| matches!(d, Decision::ToolCallProposed { .. })).count();
    let outputs = stage.model_commands(|c| matches!(c, ModelCommand::SubmitToolOutput { .. })).count();
    assert_eq!((proposed, outputs), (8, 12), "each of the others has its output");
}

#[test]
fn a_model_that_never_comes_closes_the_stream_so_that_the_carrier_says_a_sentence() {
    let mut stage = Stage::new(Policy::default());
    stage.input(Input::CallStarted { greeting: None });
    stage.model(ModelEvent::SessionLost { reason: "refused".into() });
    let close = Command::CloseStream { reason: CloseReason::ModelLost { reason: "refused".into() } };
    assert_eq!(stage.log.last().map(|(_, command)| command), Some(&close));
    assert!(stage.conversation.is_closed());
}

#[test]
fn an_ordinary_error_changes_nothing_and_a_fatal_one_ends_the_call() {
    let mut stage = Stage::answered();
    for (fatal, closed) in [(false, false), (true, true)] {
        let code = "insufficient_quota".into();
        stage.model(ModelEvent::ErrorReported { code, message: String::new(), fatal });
        assert_eq!(stage.conversation.is_closed(), closed);
    }
}

#[test]
fn a_drain_lets_the_voice_finish_and_then_closes() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    stage.say(2_000);
    stage.run(500);
    stage.input(Input::DrainRequested);
    assert!(!stage.conversation.is_closed());
    stage.run(3_000);
    assert!(stage.conversation.is_closed());
    assert_eq!(stage.carrier.heard_of(vocab::PlaybackId(1)), Samples::from_ms(2_000));
}

#[test]
fn r13_the_same_inputs_give_the_same_commands() {
    let play = || {
        let mut stage = Stage::answered();
        stage.take_turn(900);
        let call = stage.call_tool("book_table");
        stage.admit(call, "op_1");
        stage.run(750);
        stage.say(2_500);
        stage.run(600);
        stage.speak(700);
        stage.commit("op_1", "dlv_1");
        stage.run(600);
        stage.commit_turn();
        stage.run(30);
        stage.say(1_500);
        stage.run(4_000);
        stage.log
    };
    assert_eq!(format!("{:?}", play()), format!("{:?}", play()));
}
