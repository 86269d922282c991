//! From tool call to heard completion: what the model is told, when the gate lets it be said, and what evidence changes.

use conversation::gate::{GateDecision, GateReason};
use conversation::{AgentState, Command, Decision, Input};
use testkit::{Stage, brief};
use vocab::delivery::{DeliveryChange, DeliveryState};
use vocab::effect::{OperationStatus, Priority};
use vocab::model::{ModelCommand, ResponseEnd};
use vocab::work::{Refusal, WorkCommand, WorkEvent};
use vocab::{AudioMs, OperationId, ToolCallId};

fn outputs(stage: &Stage) -> Vec<String> {
    stage
        .log
        .iter()
        .filter_map(|(_, command)| match command {
            Command::Model(ModelCommand::SubmitToolOutput { output, .. }) => Some(output.clone()),
            _ => None,
        })
        .collect()
}

fn context(stage: &Stage) -> Vec<String> {
    stage
        .log
        .iter()
        .filter_map(|(_, command)| match command {
            Command::Model(ModelCommand::AddContext { text }) => Some(text.clone()),
            _ => None,
        })
        .collect()
}

fn gate_reasons(stage: &Stage) -> Vec<(GateDecision, GateReason)> {
    stage
        .decisions()
        .filter_map(|decision| match decision {
            Decision::GateJudged { decision, reason, .. } => Some((*decision, *reason)),
            _ => None,
        })
        .collect()
}

const OFFERED: DeliveryChange = DeliveryChange::Offered { attached: false };
const ATTACHED: DeliveryChange = DeliveryChange::Offered { attached: true };

/// The caller asked; the tool was accepted, acknowledged aloud, and works on.
fn acknowledged() -> Stage {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    let call = stage.call_tool("book_table");
    stage.admit(call, "op_1");
    stage.run(750);
    stage.say(1_500);
    stage.run(2_000);
    assert_eq!(stage.conversation.agent_state(), AgentState::Thinking, "the completion is owed");
    stage
}

#[test]
fn a_slow_tool_is_accepted_first_and_claims_nothing() {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    let call = stage.call_tool("book_table");
    stage.run(20);
    assert!(outputs(&stage).is_empty(), "nothing is said before it is admitted");
    stage.admit(call, "op_1");
    stage.run(690);
    assert!(outputs(&stage).is_empty(), "the model waits for a direct answer");
    stage.run(20);
    assert!(outputs(&stage)[0].contains(r#""status":"accepted""#));
    assert!(stage.asked_directions().is_some_and(|text| text.contains("not confirmed")));
    assert_eq!(stage.responses_asked(), 2);
}

#[test]
fn a_quick_tool_answers_directly_and_its_delivery_rides_on_the_answer() {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    let call = stage.call_tool("find_table");
    stage.admit(call, "op_1");
    stage.run(100);
    stage.commit("op_1", "dlv_1");
    stage.run(10);
    assert_eq!(outputs(&stage).len(), 1);
    assert!(outputs(&stage)[0].contains("B-7"));
    assert_eq!(stage.story("dlv_1"), [ATTACHED]);
    assert_eq!(stage.responses_asked(), 2, "one answer");
    stage.say(1_000);
    stage.run(2_000);
    assert_eq!(stage.story("dlv_1"), [ATTACHED, DeliveryChange::Heard { heard: AudioMs(1_000) }]);
    assert_eq!(stage.conversation.agent_state(), AgentState::Listening);
}

#[test]
fn every_output_is_json_whatever_the_words_of_the_outcome() {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    let call = stage.call_tool("find_table");
    stage.admit(call, "op_1");
    let result = "find_table: committed {\"table\":\"by the \\\"window\\\"\"}".to_owned();
    stage.work(WorkEvent::Finished { operation: OperationId::new("op_1"), status: OperationStatus::Committed, result });
    stage.run(2_500);
    stage.say(500);
    stage.run(1_500);
    stage.take_turn(800);
    let call = stage.call_tool("find_table");
    let refusal = Refusal { code: "a \"code\"".into(), say: "no \\ way".into() };
    stage.work(WorkEvent::Refused { tool_call: call, refusal });
    let all = outputs(&stage);
    assert_eq!(all.len(), 2);
    for output in all {
        assert!(serde_json::from_str::<serde_json::Value>(&output).is_ok(), "{output}");
    }
}

#[test]
fn a_completion_waits_for_quiet_and_is_heard_by_mark() {
    let mut stage = acknowledged();
    stage.commit("op_1", "dlv_1");
    stage.run(5_000);
    assert_eq!(stage.story("dlv_1"), [OFFERED]);
    stage.say(2_000);
    stage.run(1_500);
    assert_eq!(stage.story("dlv_1"), [OFFERED], "sent is not heard");
    stage.run(1_500);
    assert_eq!(stage.story("dlv_1"), [OFFERED, DeliveryChange::Heard { heard: AudioMs(2_000) }]);
    stage.run(10_000);
    assert_eq!(stage.responses_asked(), 3, "said once");
}

#[test]
fn r11_the_result_is_in_the_models_context_at_once_and_only_once() {
    let mut stage = acknowledged();
    stage.commit("op_1", "dlv_1");
    let told = context(&stage);
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("op_1") && told[0].contains("committed") && told[0].contains("B-7"));
}

#[test]
fn s1_a_tool_that_finishes_while_the_caller_speaks_waits_and_joins_the_answer() {
    let mut stage = acknowledged();
    stage.speak(600);
    stage.commit("op_1", "dlv_1");
    stage.speak(600);
    assert_eq!(stage.story("dlv_1"), []);
    assert_eq!(gate_reasons(&stage).last(), Some(&(GateDecision::QueueUntilQuiet, GateReason::CallerSpeaking)));
    stage.run(500);
    assert_eq!(gate_reasons(&stage).last(), Some(&(GateDecision::AttachToNextResponse, GateReason::ResponseDue)));
    stage.commit_turn();
    stage.run(10);
    assert_eq!(stage.story("dlv_1"), [ATTACHED]);
    assert!(stage.asked_directions().is_some_and(|text| text.contains("op_1 committed")));
    assert_eq!(stage.responses_asked(), 3, "one answer carries both");
}

#[test]
fn s2_a_tool_that_finishes_during_playback_waits_for_its_end() {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    let call = stage.call_tool("book_table");
    stage.admit(call, "op_1");
    stage.run(750);
    stage.say(3_000);
    stage.run(500);
    stage.commit("op_1", "dlv_1");
    assert_eq!(gate_reasons(&stage).last(), Some(&(GateDecision::QueueAfterPlayback, GateReason::PlaybackLive)));
    stage.run(2_000);
    assert_eq!(stage.story("dlv_1"), []);
    stage.run(1_500);
    assert_eq!(stage.story("dlv_1"), [OFFERED], "650 ms after the last mark");
}

#[test]
fn s5_an_interrupted_completion_is_said_again_shorter() {
    let mut stage = acknowledged();
    stage.commit("op_1", "dlv_1");
    stage.run(700);
    stage.say(4_000);
    stage.run(1_000);
    stage.speak(800);
    stage.run(500);
    let story = stage.story("dlv_1");
    assert!(
        matches!(story[..], [OFFERED, DeliveryChange::Interrupted { heard: AudioMs(ms) }] if (400..1_300).contains(&ms)),
        "{story:?}"
    );
    stage.commit_turn();
    stage.run(10);
    assert!(stage.asked_directions().is_some_and(|text| text.contains("interrupted")));
    stage.say(1_000);
    stage.run(2_000);
    assert_eq!(stage.story("dlv_1")[3], DeliveryChange::Heard { heard: AudioMs(1_000) });
}

#[test]
fn after_enough_offers_of_its_own_accord_it_only_joins_answers() {
    let mut stage = acknowledged();
    let mut news = brief("dlv_1", "op_1");
    news.offers = 3;
    stage.finish("op_1", OperationStatus::Committed);
    stage.work(WorkEvent::DeliveryReady(news));
    stage.run(20_000);
    assert_eq!(stage.story("dlv_1"), []);
    stage.take_turn(800);
    assert_eq!(stage.story("dlv_1"), [ATTACHED]);
}

#[test]
fn nobody_speaks_before_the_offer_is_durable_and_the_gate_is_asked_again() {
    let mut stage = acknowledged();
    stage.disk_ms = None;
    stage.commit("op_1", "dlv_1");
    stage.run(2_000);
    assert_eq!(stage.story("dlv_1"), [OFFERED]);
    assert_eq!(stage.responses_asked(), 2, "the disk hangs");
    stage.speak(100);
    stage.release_disk();
    stage.run(0);
    assert_eq!(stage.responses_asked(), 2, "somebody makes a sound");
    stage.speak(300);
    stage.run(10);
    assert_eq!(stage.story("dlv_1"), [OFFERED, DeliveryChange::Withdrawn { counts: false }], "the moment has passed");
    stage.run(500);
    stage.commit_turn();
    stage.run(10);
    assert_eq!(stage.story("dlv_1").last(), Some(&ATTACHED));
}

#[test]
fn a_clear_never_waits_for_the_disk() {
    let mut stage = acknowledged();
    stage.commit("op_1", "dlv_1");
    stage.run(700);
    stage.say(4_000);
    stage.disk_ms = None;
    stage.run(1_000);
    stage.speak(400);
    assert_eq!(stage.clears(), 1);
}

#[test]
fn s9_news_that_is_no_longer_news_is_suppressed() {
    let mut stage = acknowledged();
    let mut news = brief("dlv_1", "op_1");
    news.fresh_for_ms = Some(3_000);
    stage.speak(300);
    stage.finish("op_1", OperationStatus::Committed);
    stage.work(WorkEvent::DeliveryReady(news));
    stage.speak(4_000);
    assert_eq!(stage.story("dlv_1"), [DeliveryChange::Suppressed { reason: "stale".into() }]);
    stage.run(10_000);
    assert_eq!(stage.story("dlv_1").len(), 1);
}

#[test]
fn s10_an_urgent_result_interrupts_our_own_voice_and_a_normal_one_waits() {
    for (priority, clears) in [(Priority::Normal, 0), (Priority::Urgent, 1)] {
        let mut stage = Stage::answered();
        stage.take_turn(1_000);
        let call = stage.call_tool("book_table");
        stage.admit(call, "op_1");
        stage.run(750);
        stage.say(5_000);
        stage.run(1_000);
        let mut news = brief("dlv_1", "op_1");
        news.priority = priority;
        stage.finish("op_1", OperationStatus::Committed);
        stage.work(WorkEvent::DeliveryReady(news));
        stage.run(50);
        assert_eq!(stage.clears(), clears, "{priority:?}");
        assert_eq!(stage.responses_asked(), 2 + clears, "{priority:?}");
    }
}

#[test]
fn an_urgent_result_does_not_swallow_the_answer_that_it_cut_off() {
    let mut stage = acknowledged();
    stage.take_turn(800);
    let response = stage.start_response();
    stage.audio(response, 500);
    let mut news = brief("dlv_1", "op_1");
    news.priority = Priority::Urgent;
    stage.finish("op_1", OperationStatus::Committed);
    stage.work(WorkEvent::DeliveryReady(news));
    stage.run(20);
    stage.end_response(response, ResponseEnd::Cancelled);
    stage.run(20);
    stage.say(800);
    stage.run(3_000);
    let planned: Vec<_> = stage
        .decisions()
        .filter_map(|decision| match decision {
            Decision::ResponsePlanned { turn, deliveries, .. } => Some((turn.map(|turn| turn.0), deliveries.len())),
            _ => None,
        })
        .collect();
    assert_eq!(planned.last(), Some(&(Some(2), 1)), "the turn's answer carries the urgent news: {planned:?}");
}

#[test]
fn an_uncertain_delivery_is_never_volunteered_and_joins_the_next_answer_as_such() {
    let mut stage = Stage::answered();
    let mut news = brief("dlv_0", "op_0");
    news.state = DeliveryState::Uncertain;
    news.from_earlier_call = true;
    stage.work(WorkEvent::DeliveryReady(news));
    stage.run(20_000);
    assert_eq!(stage.story("dlv_0"), []);
    assert_eq!(stage.responses_asked(), 0);
    stage.take_turn(800);
    assert!(stage.asked_directions().is_some_and(|text| text.contains("may already have heard")));
    stage.say(1_000);
    stage.run(300);
    stage.speak(400);
    stage.run(1_500);
    assert!(
        matches!(stage.story("dlv_0")[..], [ATTACHED, DeliveryChange::Unproven { .. }]),
        "interrupted, it stays uncertain: {:?}",
        stage.story("dlv_0")
    );
}

#[test]
fn all_marks_lost_makes_it_uncertain_not_heard_and_not_news() {
    let mut stage = acknowledged();
    stage.commit("op_1", "dlv_1");
    stage.run(700);
    stage.carrier.drops_marks = true;
    stage.say(2_000);
    stage.run(20_000);
    assert_eq!(stage.story("dlv_1"), [OFFERED, DeliveryChange::Unproven { possible: AudioMs(2_000) }]);
    assert_eq!(stage.responses_asked(), 3);
}

#[test]
fn news_from_an_earlier_call_rides_on_the_greeting() {
    let mut stage = Stage::new(conversation::Policy::default());
    stage.input(Input::CallStarted { greeting: Some("Greet the caller.".into()) });
    let mut news = brief("dlv_0", "op_0");
    news.from_earlier_call = true;
    stage.work(WorkEvent::DeliveryReady(news));
    stage.run(100);
    assert_eq!(stage.responses_asked(), 0, "the model is not there yet");
    stage.model(vocab::model::ModelEvent::SessionReady);
    stage.run(10);
    assert_eq!(stage.responses_asked(), 1);
    let directions = stage.asked_directions().unwrap_or_default().to_owned();
    assert!(directions.starts_with("Greet the caller.") && directions.contains("op_0 committed"), "{directions}");
    stage.say(2_000);
    stage.run(3_000);
    assert_eq!(stage.story("dlv_0"), [ATTACHED, DeliveryChange::Heard { heard: AudioMs(2_000) }]);
}

#[test]
fn s7_a_hang_up_leaves_what_was_not_proven_pending() {
    let mut stage = acknowledged();
    stage.commit("op_1", "dlv_1");
    stage.run(700);
    stage.say(4_000);
    stage.run(1_000);
    stage.input(Input::StreamEnded);
    assert!(matches!(stage.story("dlv_1")[..], [OFFERED, DeliveryChange::Interrupted { .. }]));
    assert!(stage.conversation.is_closed());
    let before = stage.log.len();
    stage.run(5_000);
    assert_eq!(stage.log.len(), before, "nothing is commanded after the end");
}

#[test]
fn a_hang_up_after_the_proof_keeps_it_heard() {
    let mut stage = acknowledged();
    stage.commit("op_1", "dlv_1");
    stage.run(700);
    stage.say(2_000);
    stage.run(1_980);
    stage.input(Input::StreamEnded);
    assert!(matches!(stage.story("dlv_1")[..], [OFFERED, DeliveryChange::Heard { .. }]), "{:?}", stage.story("dlv_1"));
}

#[test]
fn s3_two_tools_of_one_response_make_one_answer_whatever_their_order() {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    let response = stage.start_response();
    let first = stage.propose(response, "book_table");
    let second = stage.propose(response, "order_wine");
    stage.end_response(response, ResponseEnd::Completed);
    stage.admit(first, "op_1");
    stage.admit(second, "op_2");
    stage.run(100);
    stage.finish("op_2", OperationStatus::Committed);
    stage.run(100);
    assert_eq!(stage.responses_asked(), 1, "the other is still out");
    stage.finish("op_1", OperationStatus::Committed);
    let mut news = brief("dlv_1", "op_1");
    news.operations.push(OperationId::new("op_2"));
    stage.work(WorkEvent::DeliveryReady(news));
    stage.run(20);
    assert_eq!(stage.responses_asked(), 2);
    assert_eq!(outputs(&stage).len(), 2);
    assert_eq!(stage.log.iter().filter(|(_, c)| matches!(c, Command::Work(WorkCommand::SealBatch { .. }))).count(), 1);
    stage.say(2_000);
    stage.run(5_000);
    assert_eq!(stage.responses_asked(), 2);
}

#[test]
fn a_refusal_is_an_output_with_its_reason() {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    let call = stage.call_tool("book_table");
    let refusal = Refusal { code: "invalid_arguments".into(), say: "The party size must be a number.".into() };
    stage.work(WorkEvent::Refused { tool_call: call, refusal });
    stage.run(10);
    assert!(outputs(&stage)[0].contains("party size") && outputs(&stage)[0].contains("nothing was done"));
    assert_eq!(stage.responses_asked(), 2);
}

#[test]
fn a_repeated_intent_answers_with_the_state_of_the_first() {
    let mut stage = acknowledged();
    stage.take_turn(800);
    let call = stage.call_tool("book_table");
    stage.work(WorkEvent::Admitted {
        tool_call: call,
        operation: OperationId::new("op_1"),
        inline_wait_ms: 700,
        attached_to: Some(OperationStatus::Running),
        result: None,
        stands: None,
    });
    stage.run(10);
    let last = outputs(&stage).pop().unwrap_or_default();
    assert!(last.contains("op_1") && last.contains("running") && last.contains("already made"), "{last}");
}

#[test]
fn a_detail_that_does_not_define_the_intent_joins_and_the_model_is_told_what_stands() {
    let mut stage = acknowledged();
    stage.take_turn(800);
    stage.run(300);
    let call = stage.call_tool("book_table");
    stage.work(WorkEvent::Admitted {
        tool_call: call,
        operation: OperationId::new("op_1"),
        inline_wait_ms: 0,
        attached_to: Some(OperationStatus::Running),
        result: None,
        stands: Some(r#"{"note":"window"}"#.into()),
    });
    let told: serde_json::Value = serde_json::from_str(outputs(&stage).last().unwrap()).unwrap();
    let note = told["note"].as_str().unwrap();
    assert!(note.contains(r#"{"note":"window"}"#) && note.contains("not taken"), "{note}");
}

/// The second call of a chain is about to bring an answer that tells the first one's result as well.
#[test]
fn news_waits_for_the_output_of_a_call_that_was_just_made_but_not_for_ever() {
    let mut stage = Stage::answered();
    stage.take_turn(800);
    stage.run(300);
    let first = stage.call_tool("find_table");
    stage.admit(first, "op_1");
    stage.run(100);
    stage.commit("op_1", "dlv_1");
    stage.run(50);
    // The answer to the first result is one more call, and nobody admits it.
    stage.call_tool("book_table");
    let asked = stage.responses_asked();
    stage.run(1_900);
    assert_eq!(stage.responses_asked(), asked, "an answer is on its way");
    stage.run(300);
    assert_eq!(stage.responses_asked(), asked + 1, "two seconds are enough for an admission");
    assert!(stage.asked_directions().unwrap().contains("op_1 committed"));
}

#[test]
fn r5_an_interruption_touches_no_operation() {
    let mut stage = acknowledged();
    stage.take_turn(800);
    stage.say(3_000);
    stage.news();
    stage.speak(1_000);
    let work: Vec<_> = stage.news().into_iter().filter(|command| matches!(command, Command::Work(_))).collect();
    assert_eq!(work, []);
}

#[test]
fn a_tool_call_of_a_response_that_was_cut_is_answered_but_not_run() {
    let mut stage = Stage::answered();
    stage.take_turn(1_000);
    let response = stage.start_response();
    stage.speak(400);
    let none = stage.propose(response, "end_call");
    assert_eq!(none, ToolCallId(0), "nothing was proposed");
    assert!(outputs(&stage)[0].contains("not_run"));
}

#[test]
fn an_unknown_outcome_is_told_as_such() {
    let mut stage = acknowledged();
    stage.finish("op_1", OperationStatus::Unknown);
    let mut news = brief("dlv_1", "op_1");
    news.all_committed = false;
    news.text = "op_1 is not confirmed yet".into();
    stage.work(WorkEvent::DeliveryReady(news));
    stage.run(700);
    assert!(stage.asked_directions().is_some_and(|text| text.contains("claim no success")));
}

#[test]
fn a_delivery_that_the_store_gave_to_somebody_else_is_dropped() {
    let mut stage = acknowledged();
    stage.disk_ms = None;
    stage.commit("op_1", "dlv_1");
    stage.run(700);
    stage.work(WorkEvent::SaveRefused { save: vocab::SaveId(1), reason: "claimed elsewhere".into() });
    stage.run(5_000);
    assert_eq!(stage.responses_asked(), 2);
    assert_eq!(stage.conversation.agent_state(), AgentState::Listening);
}

#[test]
fn an_offer_that_could_not_be_saved_is_asked_for_again_and_said_once_it_is() {
    let mut stage = acknowledged();
    stage.disk_ms = None;
    stage.commit("op_1", "dlv_1");
    stage.run(700);
    stage.work(WorkEvent::SaveFailed { save: vocab::SaveId(1), reason: "the store is unavailable".into() });
    stage.run(1_900);
    assert_eq!(stage.responses_asked(), 2, "nothing is said that is not on record");
    stage.disk_ms = Some(1);
    stage.run(700);
    assert_eq!(stage.responses_asked(), 3, "and nothing is lost");
}

#[test]
fn what_was_heard_is_saved_again_when_the_store_failed_and_no_later_change_overtook_it() {
    let mut stage = acknowledged();
    stage.commit("op_1", "dlv_1");
    stage.run(700);
    stage.disk_ms = None;
    stage.say(2_000);
    stage.run(3_000);
    let heard = |stage: &Stage| {
        let saves = stage.log.iter().filter_map(|(_, command)| match command {
            Command::Work(WorkCommand::SaveDelivery { save, change: DeliveryChange::Heard { .. }, .. }) => Some(*save),
            _ => None,
        });
        saves.collect::<Vec<_>>()
    };
    let first = heard(&stage);
    assert_eq!(first.len(), 1);
    stage.work(WorkEvent::SaveFailed { save: first[0], reason: "disk full".into() });
    stage.run(2_100);
    let again = heard(&stage);
    assert_eq!(again.len(), 2, "{again:?}");
    stage.work(WorkEvent::Saved { save: again[1] });
    stage.run(5_000);
    assert_eq!(heard(&stage).len(), 2);
}

#[test]
fn the_public_state_never_pulses_through_listening_while_something_is_owed() {
    let mut stage = acknowledged();
    stage.commit("op_1", "dlv_1");
    stage.run(700);
    stage.say(1_000);
    stage.run(3_000);
    let states: Vec<_> = stage.states.iter().map(|(_, state)| *state).collect();
    use AgentState::{Listening, Speaking, Thinking};
    assert_eq!(states, [Thinking, Speaking, Thinking, Speaking, Listening]);
}
