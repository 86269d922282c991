//! A model that listens and speaks at once: the same promises, though nobody asks for its answers. (behaviour.md 6)

use conversation::{AgentState, Command, Input};
use testkit::{Stage, brief};
use vocab::delivery::{DeliveryChange, DeliveryState};
use vocab::effect::OperationStatus;
use vocab::model::{Capabilities, ModelCommand, ModelEvent, ResponseEnd, Speaks};
use vocab::work::{Refusal, WorkEvent};
use vocab::{ModelItemId, ModelResponseId, ProviderCallId, Samples, ToolCallId};

const DUPLEX: Capabilities =
    Capabilities { speaks: Speaks::ByItself, cancel: false, truncate: false, silent_output: false, turn_events: false };

/// A call of such a model, and the names that its adapter would give.
struct Duplex {
    stage: Stage,
    last: u32,
}

impl Duplex {
    fn open() -> Self {
        let mut stage = Stage::new(Stage::patient_policy());
        stage.input(Input::CallStarted { greeting: None });
        stage.model(ModelEvent::SessionOpened { capabilities: DUPLEX });
        stage.model(ModelEvent::SessionReady);
        Self { stage, last: 100 }
    }

    fn caller_speaks(&mut self, ms: u64) {
        self.stage.speak(ms);
        self.stage.run(400);
    }

    fn begins(&mut self, asked: bool) -> ModelResponseId {
        self.last += 1;
        let response = ModelResponseId(self.last);
        let request = asked.then(|| self.stage.asked()).flatten();
        self.stage.model(ModelEvent::ResponseCreated { response, request });
        response
    }

    fn sounds(&mut self, response: ModelResponseId, ms: u32) {
        let item = ModelItemId(response.0);
        for _ in 0..ms / 20 {
            self.stage.model(ModelEvent::AudioReceived { response, item, samples: Samples::from_ms(20) });
            self.stage.run(20);
        }
    }

    fn ends(&mut self, response: ModelResponseId, end: ResponseEnd) {
        self.stage.model(ModelEvent::ResponseEnded { response, request: None, end });
    }

    /// A stretch of its voice, ended by the gap that shows that it was one.
    fn speaks(&mut self, asked: bool, ms: u32) -> ModelResponseId {
        let response = self.begins(asked);
        self.sounds(response, ms);
        self.stage.run(800);
        self.ends(response, ResponseEnd::Completed);
        response
    }

    /// A run of the backend that calls these tools.
    fn calls(&mut self, tools: &[&str]) -> Vec<ToolCallId> {
        let run = self.begins(false);
        let calls = tools.iter().map(|tool| self.stage.propose(run, tool)).collect();
        self.ends(run, ResponseEnd::Completed);
        calls
    }

    fn states(&self) -> Vec<AgentState> {
        self.stage.states.iter().map(|(_, state)| *state).collect()
    }

    fn state(&self) -> AgentState {
        self.stage.conversation.agent_state()
    }

    /// The caller asks; a backend's run calls the tool, which commits at once.
    fn booked_inline(&mut self) {
        self.caller_speaks(1_000);
        let call = self.calls(&["book_table"])[0];
        self.stage.admit(call, "op_1");
        self.stage.run(200);
        self.stage.commit("op_1", "dlv_1");
        self.stage.run(20);
    }
}

use AgentState::{Listening, Speaking, Thinking};

#[test]
fn an_answer_that_comes_of_itself_pays_the_turn_and_nothing_is_asked_for() {
    let mut call = Duplex::open();
    call.caller_speaks(1_000);
    assert_eq!(call.state(), Thinking, "an answer is owed");
    call.speaks(false, 1_500);
    call.stage.run(1_000);
    assert_eq!(call.states(), [Thinking, Speaking, Listening]);
    assert_eq!(call.stage.responses_asked(), 0);
}

#[test]
fn a_turn_that_the_model_leaves_without_an_answer_is_brought_to_its_mind_a_bounded_number_of_times() {
    let mut call = Duplex::open();
    call.caller_speaks(1_000);
    call.stage.run(5_500);
    assert_eq!(call.stage.responses_asked(), 0);
    call.stage.run(500);
    assert_eq!(call.stage.responses_asked(), 1);
    assert!(call.stage.asked_directions().unwrap().contains("waits"));
    for _ in 0..20 {
        let asked = call.stage.responses_asked();
        let request = call.stage.asked();
        call.last += 1;
        let response = ModelResponseId(call.last);
        call.stage.model(ModelEvent::ResponseEnded { response, request, end: ResponseEnd::Completed });
        call.stage.run(10_000);
        if call.stage.responses_asked() == asked {
            break;
        }
    }
    assert_eq!(call.stage.responses_asked(), 3, "the budget of attempts");
    assert_eq!(call.state(), Listening, "and no waiting for ever");
}

#[test]
fn b1_one_tool_and_one_audible_answer() {
    let mut call = Duplex::open();
    call.booked_inline();
    assert_eq!(call.stage.responses_asked(), 1, "one create for the output");
    assert_eq!(call.state(), Thinking);
    call.speaks(true, 1_500);
    call.stage.run(2_000);
    assert_eq!(call.states(), [Thinking, Speaking, Listening]);
    assert!(matches!(call.stage.story("dlv_1").last(), Some(DeliveryChange::Heard { .. })));
}

#[test]
fn b2_two_results_make_one_create_once_both_are_there() {
    let mut call = Duplex::open();
    call.caller_speaks(1_000);
    let calls = call.calls(&["book_table", "order_wine"]);
    call.stage.admit(calls[0], "op_1");
    call.stage.admit(calls[1], "op_2");
    call.stage.run(100);
    call.stage.finish("op_2", OperationStatus::Committed);
    call.stage.run(100);
    assert_eq!(call.stage.responses_asked(), 0, "a part of a batch is never submitted");
    call.stage.finish("op_1", OperationStatus::Committed);
    let mut both = brief("dlv_1", "op_1");
    both.operations.push(vocab::OperationId::new("op_2"));
    call.stage.work(WorkEvent::DeliveryReady(both));
    call.stage.run(20);
    assert_eq!(call.stage.responses_asked(), 1);
    call.speaks(true, 2_000);
    call.stage.run(1_000);
    assert_eq!(call.states(), [Thinking, Speaking, Listening]);
}

#[test]
fn b3_an_interruption_cuts_the_voice_and_the_answer_still_comes_and_still_counts() {
    let mut call = Duplex::open();
    call.booked_inline();
    let answer = call.begins(true);
    call.sounds(answer, 600);
    call.stage.speak(400);
    assert_eq!(call.stage.clears(), 1);
    let told = call.stage.model_commands(|command| matches!(command, ModelCommand::CancelResponse { .. })).count();
    assert_eq!(told, 1, "the adapter throws the rest of the breath away");
    call.ends(answer, ResponseEnd::Cancelled);
    call.stage.run(400);
    assert_ne!(call.state(), Listening);
    assert_eq!(call.stage.responses_asked(), 1, "the outputs cannot be submitted twice");
    // The model answers of itself, and what it was interrupted in is said again in a quiet moment.
    call.speaks(false, 1_000);
    call.stage.run(2_000);
    assert_eq!(call.stage.responses_asked(), 2);
    assert!(call.stage.asked_directions().unwrap().contains("interrupted"));
    call.speaks(true, 1_000);
    call.stage.run(1_000);
    assert!(matches!(call.stage.story("dlv_1").last(), Some(DeliveryChange::Heard { .. })));
    assert_eq!(call.state(), Listening);
    let first_listening = call.states().iter().position(|state| *state == Listening);
    assert_eq!(first_listening, Some(call.states().len() - 1), "{:?}", call.states());
}

#[test]
fn a_voice_of_itself_that_is_talked_over_is_ended_at_the_adapter_and_the_next_one_is_heard() {
    let mut call = Duplex::open();
    call.caller_speaks(1_000);
    let first = call.begins(false);
    call.sounds(first, 600);
    call.stage.speak(400);
    let told = call.stage.model_commands(|command| matches!(command, ModelCommand::CancelResponse { .. })).count();
    assert_eq!((call.stage.clears(), told), (1, 1));
    call.ends(first, ResponseEnd::Cancelled);
    call.stage.run(400);
    assert_eq!(call.state(), Thinking);
    call.speaks(false, 1_000);
    call.stage.run(500);
    assert_eq!(call.state(), Listening);
}

#[test]
fn b3_an_answer_without_news_that_is_cut_stays_owed() {
    let mut call = Duplex::open();
    call.caller_speaks(1_000);
    let tool_call = call.calls(&["book_table"])[0];
    call.stage
        .work(WorkEvent::Refused { tool_call, refusal: Refusal { code: "x".into(), say: "Not possible.".into() } });
    call.stage.run(20);
    let answer = call.begins(true);
    call.sounds(answer, 400);
    let before = call.states().len();
    call.stage.speak(3_000);
    call.ends(answer, ResponseEnd::Cancelled);
    call.stage.speak(500);
    assert!(!call.states()[before..].contains(&Listening), "{:?}", call.states());
}

#[test]
fn b4_a_continuation_that_fails_leaves_the_result_as_news() {
    let mut call = Duplex::open();
    call.booked_inline();
    let request = call.stage.asked();
    let failed = ResponseEnd::Failed { code: "server_error".into() };
    for _ in 0..3 {
        call.last += 1;
        let response = ModelResponseId(call.last);
        let request = call.stage.asked().max(request);
        call.stage.model(ModelEvent::ResponseEnded { response, request, end: failed.clone() });
        call.stage.run(3_000);
    }
    let directions = call.stage.asked_directions().unwrap().to_owned();
    assert!(directions.contains("op_1 committed"), "{directions}");
    call.speaks(true, 1_000);
    call.stage.run(1_000);
    assert!(matches!(call.stage.story("dlv_1").last(), Some(DeliveryChange::Heard { .. })));
    assert_eq!(call.state(), Listening);
}

#[test]
fn b5_words_that_come_late_release_nothing() {
    let mut call = Duplex::open();
    call.caller_speaks(1_000);
    let said = call.speaks(false, 1_000);
    call.stage.run(500);
    call.caller_speaks(1_000);
    let call_id = call.calls(&["book_table"])[0];
    call.stage.admit(call_id, "op_1");
    call.stage.run(50);
    let text = "Certainly.".into();
    call.stage.model(ModelEvent::TranscriptReceived { response: said, item: ModelItemId(1), text });
    call.stage.run(100);
    assert_eq!(call.state(), Thinking);
}

#[test]
fn b6_a_tool_that_ends_after_its_run_failed_leaves_news_and_no_debt_to_the_dead() {
    let mut call = Duplex::open();
    call.caller_speaks(1_000);
    let run = call.begins(false);
    let tool_call = call.stage.propose(run, "book_table");
    call.stage.admit(tool_call, "op_1");
    call.ends(run, ResponseEnd::Failed { code: "server_error".into() });
    call.stage.run(800);
    call.speaks(true, 1_000);
    call.stage.commit("op_1", "dlv_1");
    call.stage.run(2_000);
    assert!(call.stage.asked_directions().unwrap().contains("op_1 committed"));
    call.speaks(true, 1_000);
    call.stage.run(1_000);
    assert!(matches!(call.stage.story("dlv_1").last(), Some(DeliveryChange::Heard { .. })));
    assert_eq!(call.state(), Listening);
}

#[test]
fn b8_between_a_preamble_and_the_answer_there_is_no_listening() {
    let mut call = Duplex::open();
    call.caller_speaks(1_000);
    let preamble = call.begins(false);
    call.sounds(preamble, 600);
    let tool_call = call.calls(&["book_table"])[0];
    call.stage.admit(tool_call, "op_1");
    call.stage.run(300);
    call.stage.commit("op_1", "dlv_1");
    call.stage.run(500);
    call.ends(preamble, ResponseEnd::Completed);
    call.stage.run(1_000);
    assert!(!call.states().contains(&Listening), "{:?}", call.states());
    call.speaks(true, 1_000);
    call.stage.run(1_000);
    assert_eq!(call.states().last(), Some(&Listening));
}

#[test]
fn b9_a_second_message_is_answered_of_itself_while_the_first_stays_owed() {
    let mut call = Duplex::open();
    call.caller_speaks(1_000);
    let tool_call = call.calls(&["book_table"])[0];
    call.stage.admit(tool_call, "op_1");
    call.stage.run(750);
    call.speaks(true, 600);
    call.caller_speaks(800);
    call.speaks(false, 800);
    call.stage.run(500);
    assert_eq!(call.state(), Thinking, "the booking is still owed");
    call.stage.commit("op_1", "dlv_1");
    call.stage.run(1_500);
    call.speaks(true, 900);
    call.stage.run(1_000);
    assert_eq!(call.state(), Listening);
    assert_eq!(call.states().iter().filter(|state| **state == Listening).count(), 1, "{:?}", call.states());
}

#[test]
fn b10_results_that_meet_silence_go_to_the_gate() {
    let mut call = Duplex::open();
    call.booked_inline();
    let request = call.stage.asked();
    call.last += 1;
    let response = ModelResponseId(call.last);
    call.stage.model(ModelEvent::ResponseEnded { response, request, end: ResponseEnd::Completed });
    call.stage.run(1_500);
    assert_eq!(call.stage.responses_asked(), 2);
    assert!(call.stage.asked_directions().unwrap().contains("Tell the caller now"));
    call.speaks(true, 1_000);
    call.stage.run(1_000);
    assert_eq!(call.state(), Listening);
}

#[test]
fn a_refusal_that_meets_silence_leaves_the_caller_with_a_word() {
    let mut call = Duplex::open();
    call.caller_speaks(1_000);
    let tool_call = call.calls(&["book_table"])[0];
    call.stage
        .work(WorkEvent::Refused { tool_call, refusal: Refusal { code: "x".into(), say: "Not possible.".into() } });
    call.stage.run(20);
    let request = call.stage.asked();
    call.stage.model(ModelEvent::ResponseEnded {
        response: ModelResponseId(900),
        request,
        end: ResponseEnd::Completed,
    });
    call.stage.run(6_100);
    assert!(call.stage.asked_directions().unwrap().contains("waits"));
}

#[test]
fn b11_speech_that_has_nothing_to_do_with_it_releases_no_result() {
    let mut call = Duplex::open();
    call.caller_speaks(1_000);
    let tool_call = call.calls(&["book_table"])[0];
    call.stage.admit(tool_call, "op_1");
    call.stage.run(300);
    call.speaks(false, 1_000);
    assert_ne!(call.state(), Listening);
    call.stage.run(500);
    assert_eq!(call.state(), Thinking, "the filler answered nothing");
}

#[test]
fn an_uncertain_delivery_joins_the_callers_next_turn_as_such() {
    let mut call = Duplex::open();
    let mut uncertain = brief("dlv_1", "op_1");
    uncertain.state = DeliveryState::Uncertain;
    uncertain.from_earlier_call = true;
    call.stage.work(WorkEvent::DeliveryReady(uncertain));
    call.stage.run(3_000);
    assert_eq!(call.stage.responses_asked(), 0, "never volunteered");
    call.caller_speaks(1_000);
    call.stage.run(50);
    assert_eq!(call.stage.responses_asked(), 1);
    assert!(call.stage.asked_directions().unwrap().contains("may already have heard"));
}

#[test]
fn news_wait_for_the_answer_that_comes_of_itself_which_would_pass_for_their_telling() {
    let mut call = Duplex::open();
    call.stage.work(WorkEvent::DeliveryReady(brief("dlv_1", "op_1")));
    call.caller_speaks(1_000);
    call.stage.run(2_000);
    assert_eq!(call.stage.responses_asked(), 0, "the model has not answered the caller yet");
    call.speaks(false, 1_000);
    call.stage.run(1_000);
    assert!(call.stage.asked_directions().unwrap().contains("op_1 committed"));
    assert!(!call.stage.story("dlv_1").iter().any(|change| matches!(change, DeliveryChange::Heard { .. })));
    call.speaks(true, 1_000);
    call.stage.run(1_000);
    assert!(matches!(call.stage.story("dlv_1").last(), Some(DeliveryChange::Heard { .. })));
}

#[test]
fn news_join_the_reminder_when_the_model_leaves_the_caller_without_an_answer() {
    let mut call = Duplex::open();
    call.stage.work(WorkEvent::DeliveryReady(brief("dlv_1", "op_1")));
    call.caller_speaks(1_000);
    call.stage.run(6_500);
    assert_eq!(call.stage.responses_asked(), 1);
    let directions = call.stage.asked_directions().unwrap();
    assert!(directions.contains("waits") && directions.contains("op_1 committed"), "{directions}");
}

#[test]
fn nothing_is_asked_while_the_caller_speaks_though_a_result_waits() {
    let mut call = Duplex::open();
    call.caller_speaks(1_000);
    let tool_call = call.calls(&["book_table"])[0];
    call.stage.admit(tool_call, "op_1");
    call.stage.speak(300);
    call.stage.commit("op_1", "dlv_1");
    call.stage.speak(500);
    assert_eq!(call.stage.responses_asked(), 0, "after the create the moment is not ours any more");
    call.stage.run(400);
    assert_eq!(call.stage.responses_asked(), 1);
    let submitted = call.stage.log.iter().any(|(_, command)| {
        matches!(command, Command::Model(ModelCommand::SubmitToolOutput { provider_call, .. })
            if *provider_call != ProviderCallId::new(""))
    });
    assert!(submitted);
}
