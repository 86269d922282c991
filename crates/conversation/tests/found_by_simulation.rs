//! The shortest form of what simulated worlds have broken. The seeds themselves live on in `testkit/tests/world.rs`.

use conversation::{AgentState, Command, Input};
use testkit::{Stage, brief};
use vocab::delivery::DeliveryChange;
use vocab::effect::{OperationStatus, Priority};
use vocab::model::{ModelCommand, ModelEvent, ResponseEnd};
use vocab::work::{Refusal, WorkEvent};
use vocab::{ModelItemId, ModelResponseId, OperationId, Samples};

fn audio(response: ModelResponseId, ms: u32) -> ModelEvent {
    ModelEvent::AudioReceived { response, item: ModelItemId(900), samples: Samples::from_ms(ms) }
}

fn keeps_audio(stage: &mut Stage) -> bool {
    stage.news().iter().any(|command| matches!(command, Command::KeepAudio { .. }))
}

#[test]
fn r4_late_audio_of_a_response_that_we_closed_is_not_taken_for_the_next_one() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    let cut = stage.start_response();
    stage.speak(400);
    stage.run(1_500);
    stage.commit_turn();
    stage.run(10);
    assert_eq!(stage.responses_asked(), 2, "the cancelled one was closed after its time");
    stage.news();
    stage.model(audio(cut, 400));
    assert!(!keeps_audio(&mut stage));
}

#[test]
fn r4_a_response_of_the_providers_own_is_let_go_when_ours_is_refused() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    let request = stage.asked().unwrap_or_default();
    let own = ModelResponseId(50);
    stage.model(ModelEvent::ResponseCreated { response: own, request: None });
    stage.model(ModelEvent::CreateRefused { request, busy: true, message: String::new() });
    stage.news();
    stage.model(audio(own, 400));
    assert!(!keeps_audio(&mut stage));
    stage.end_response(own, ResponseEnd::Completed);
    assert_eq!(stage.responses_asked(), 2, "ours is asked for again once the way is free");
}

#[test]
fn b10_a_generation_that_stalls_is_given_up_and_the_answer_asked_of_another_session() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    stage.start_response();
    stage.run(14_500);
    assert_eq!(stage.responses_asked(), 1);
    stage.run(1_500);
    assert_eq!(stage.log.iter().filter(|(_, command)| *command == Command::OpenModel).count(), 1);
    stage.model(ModelEvent::SessionReady);
    stage.run(500);
    assert_eq!(stage.responses_asked(), 2);
    stage.say(500);
    stage.run(2_000);
    assert_eq!(stage.conversation.agent_state(), AgentState::Listening);
}

#[test]
fn b3_an_answer_to_tool_outputs_that_is_cut_stays_owed() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    let call = stage.call_tool("book_table");
    stage.work(WorkEvent::Refused { tool_call: call, refusal: Refusal { code: "full".into(), say: "Full.".into() } });
    stage.run(10);
    stage.say(3_000);
    stage.run(600);
    stage.speak(400);
    assert_eq!(stage.conversation.agent_state(), AgentState::Thinking, "while the caller speaks too");
    stage.run(400);
    stage.commit_turn();
    stage.run(10);
    stage.say(500);
    stage.run(2_000);
    assert_eq!(stage.conversation.agent_state(), AgentState::Listening);
}

#[test]
fn attaching_to_an_operation_that_stays_unknown_does_not_keep_the_agent_thinking() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    let call = stage.call_tool("pay");
    stage.work(WorkEvent::Admitted {
        tool_call: call,
        operation: OperationId::new("op_1"),
        inline_wait_ms: 0,
        attached_to: Some(OperationStatus::Unknown),
        result: Some("pay: not confirmed yet.".into()),
        stands: None,
    });
    stage.run(10);
    stage.say(500);
    stage.run(2_000);
    assert_eq!(stage.conversation.agent_state(), AgentState::Listening);
}

#[test]
fn r11_every_output_is_one_json_document() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    let call = stage.call_tool("book_table");
    stage.admit(call, "op_1");
    let result = r#"book_table: committed {"reference":"B-7"}"#.to_owned();
    let operation = OperationId::new("op_1");
    stage.work(WorkEvent::Finished { operation, status: OperationStatus::Committed, result });
    let outputs: Vec<_> = stage
        .model_commands(|_| true)
        .filter_map(|command| match command {
            ModelCommand::SubmitToolOutput { output, .. } => Some(output.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(outputs.len(), 1);
    let parsed: serde_json::Value = serde_json::from_str(&outputs[0]).unwrap_or_default();
    assert_eq!(parsed["result"], r#"book_table: committed {"reference":"B-7"}"#);
}

#[test]
fn r11_a_new_model_session_learns_what_an_earlier_stream_of_the_call_left() {
    let mut stage = Stage::answered();
    stage.work(WorkEvent::DeliveryReady(brief("dlv_1", "op_of_the_stream_before")));
    let told = |command: &ModelCommand| matches!(command, ModelCommand::AddContext { text } if text.contains("op_of"));
    assert_eq!(stage.model_commands(told).count(), 1);
}

#[test]
fn r9_an_offer_that_the_disk_kept_until_it_was_stale_is_not_spoken() {
    let mut stage = Stage::answered();
    stage.speak(800);
    let mut news = brief("dlv_1", "op_1");
    news.fresh_for_ms = Some(2_000);
    stage.work(WorkEvent::DeliveryReady(news));
    stage.run(400);
    stage.disk_ms = None;
    stage.commit_turn();
    stage.run(3_000);
    assert_eq!(stage.story("dlv_1"), [DeliveryChange::Offered { attached: true }]);
    stage.release_disk();
    stage.run(10);
    assert_eq!(stage.responses_asked(), 1);
    assert_eq!(stage.asked_directions(), None);
    assert!(matches!(stage.story("dlv_1").last(), Some(DeliveryChange::Suppressed { .. })));
}

#[test]
fn r14_two_urgent_deliveries_do_not_cut_each_other_off() {
    let mut stage = Stage::answered();
    for n in ["1", "2"] {
        let mut urgent = brief(&format!("dlv_{n}"), &format!("op_{n}"));
        urgent.priority = Priority::Urgent;
        stage.speak(300);
        stage.work(WorkEvent::DeliveryReady(urgent));
        stage.speak(300);
        stage.start_response();
    }
    stage.speak(2_000);
    assert!(stage.responses_asked() <= 2, "{} responses", stage.responses_asked());
}

#[test]
fn a_commit_during_a_false_start_leaves_no_turn_open() {
    let mut stage = Stage::answered();
    stage.speak(100);
    stage.commit_turn();
    stage.run(500);
    assert_eq!(stage.responses_asked(), 1);
    stage.say(500);
    stage.run(2_000);
    assert_eq!(stage.conversation.agent_state(), AgentState::Listening);
}

#[test]
fn r3_a_stream_that_ends_with_the_marks_on_their_way_leaves_no_news() {
    let mut stage = Stage::answered();
    stage.carrier.delay_ms = 150;
    stage.run(1_000);
    stage.work(WorkEvent::DeliveryReady(brief("dlv_1", "op_1")));
    stage.run(1_000);
    stage.say(400);
    stage.run(450);
    stage.input(Input::StreamEnded);
    let story = stage.story("dlv_1");
    assert!(matches!(story.last(), Some(DeliveryChange::Unproven { .. })), "{story:?}");
}

/// The same doubt after a clear whose echoes never came.
#[test]
fn r3_a_cut_at_the_very_end_without_any_echo_leaves_no_news() {
    let mut stage = Stage::answered();
    stage.run(1_000);
    stage.work(WorkEvent::DeliveryReady(brief("dlv_1", "op_1")));
    stage.run(1_000);
    stage.carrier.drops_marks = true;
    stage.say(1_000);
    stage.run(900);
    stage.speak(400);
    stage.run(2_000);
    let story = stage.story("dlv_1");
    assert!(matches!(story.last(), Some(DeliveryChange::Unproven { .. })), "{story:?}");
}

/// And after a clear that may have been slow on its way: its echoes prove nothing, either way.
#[test]
fn r3_a_cut_that_may_have_come_after_the_end_leaves_no_news() {
    let mut stage = Stage::answered();
    stage.carrier.delay_ms = 150;
    stage.run(1_000);
    stage.work(WorkEvent::DeliveryReady(brief("dlv_1", "op_1")));
    stage.run(1_000);
    stage.say(420);
    stage.run(150);
    stage.speak(400);
    stage.run(1_000);
    assert_eq!(stage.clears(), 1);
    let story = stage.story("dlv_1");
    assert!(matches!(story.last(), Some(DeliveryChange::Unproven { .. })), "{story:?}");
}

#[test]
fn r4_a_nameless_response_of_a_provider_that_names_them_is_never_taken_for_ours() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    stage.say(500);
    stage.run(1_500);
    stage.take_turn(800);
    assert_eq!(stage.responses_asked(), 2, "ours is asked for and not created yet");
    let own = ModelResponseId(50);
    stage.model(ModelEvent::ResponseCreated { response: own, request: None });
    stage.news();
    stage.model(audio(own, 400));
    assert!(!keeps_audio(&mut stage), "it sounds before the provider has refused ours");
}
