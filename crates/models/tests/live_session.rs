//! A Live session at the level of the wire: literal events in, what the call is told and what the service is sent out. The
//! situations of owed replies (behaviour.md, B1 to B7, B9 to B11) as far as an adapter decides them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use models::gpt_live::commands::Obeyed;
use models::gpt_live::requests::VOICE_WAIT_MS;
use models::gpt_live::session::{LiveSession, Received, STALL_MS};
use models::gpt_live::voice::{BREATH_GAP_MS, GAP_MS};
use models::gpt_live::wire::Ignored;
use models::{Delegation, GptLiveSettings, Provider, SessionConfig, ToolSpec, TurnDetection};
use serde_json::{Value, json};
use vocab::model::{ModelCommand, ModelEvent, ResponseEnd};
use vocab::{AudioMs, ModelItemId, ModelResponseId, ProviderCallId, ResponseId, Samples};

const LOUD: u8 = 0x10;
const SILENT: u8 = 0xff;

fn config(delegation: Delegation) -> (SessionConfig, GptLiveSettings) {
    let settings = GptLiveSettings { delegation };
    let config = SessionConfig {
        provider: Provider::GptLive(settings.clone()),
        base_url: "ws://127.0.0.1/v1".into(),
        model: "gpt-live-1".into(),
        api_key: "sk-test".to_owned().into(),
        instructions: "Be brief.".into(),
        voice: "cedar".into(),
        language: None,
        transcription: None,
        tools: vec![ToolSpec {
            name: "book".into(),
            description: "Books.".into(),
            parameters: json!({"type": "object"}),
        }],
        turn_detection: TurnDetection::Off,
    };
    (config, settings)
}

fn backend() -> Delegation {
    Delegation::Responses { model: "backend-1".into(), instructions: None }
}

/// A session, the time, and everything that came of it.
struct Call {
    session: LiveSession,
    now_ms: u64,
}

impl Call {
    fn unstarted(delegation: Delegation) -> Self {
        let (config, settings) = config(delegation);
        Self { session: LiveSession::new(&config, &settings), now_ms: 0 }
    }

    fn with(delegation: Delegation) -> Self {
        let mut call = Self::unstarted(delegation);
        assert_eq!(call.sent()[0]["type"], "session.start");
        let format = json!({"type": "audio/pcmu", "rate": 8000});
        call.says(json!({"type": "session.started", "session": {"id": "live_1", "audio": {"format": format}}}));
        assert_eq!(call.told(), [ModelEvent::SessionReady]);
        call
    }

    fn started() -> Self {
        Self::with(backend())
    }

    fn says(&mut self, event: Value) -> Received {
        self.session.receive(self.now_ms, &event.to_string())
    }

    /// So much of the stream passes, in pieces as the service sends them.
    fn streams(&mut self, byte: u8, ms: u64) {
        for piece in vec![byte; ms as usize * 8].chunks(640) {
            self.now_ms += piece.len() as u64 / 8;
            self.says(json!({"type": "session.output_audio.delta", "delta": STANDARD.encode(piece)}));
            self.session.tick(self.now_ms);
        }
    }

    /// Time passes without a word of the service.
    fn waits(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        while let Some(next_ms) = self.session.next_tick_ms().filter(|next_ms| *next_ms <= end_ms) {
            self.session.tick(next_ms.max(self.now_ms));
            self.now_ms = next_ms.max(self.now_ms);
        }
        self.now_ms = end_ms;
    }

    fn asks(&mut self, command: ModelCommand) -> Obeyed {
        self.session.command(self.now_ms, &command)
    }

    fn creates(&mut self, request: u32, directions: Option<&str>) {
        let directions = directions.map(str::to_owned);
        self.asks(ModelCommand::CreateResponse { response: ResponseId(request), directions, tools: true });
    }

    fn submits(&mut self, call: &str) -> Obeyed {
        self.asks(ModelCommand::SubmitToolOutput {
            provider_call: ProviderCallId::new(call),
            output: format!("{{\"of\":\"{call}\"}}"),
        })
    }

    fn runs(&mut self, delegation: Option<&str>, event: Value) {
        self.says(json!({"type": "response.event", "delegation_id": delegation, "event": event}));
    }

    /// A run that calls and has completed.
    fn runs_with_calls(&mut self, delegation: Option<&str>, calls: &[&str]) {
        self.runs(delegation, created("resp_1"));
        for call in calls {
            self.runs(delegation, called(call, "completed"));
        }
        self.runs(delegation, completed("resp_1"));
    }

    fn acknowledges(&mut self, sent: &Value) {
        let kind = sent["type"].as_str().expect("a type").replace(".append", ".appended");
        self.says(json!({"type": kind, "client_event_id": sent["event_id"], "start_ms": 1, "end_ms": 1}));
    }

    /// Audio is left out: it is looked at where it matters.
    fn told(&mut self) -> Vec<ModelEvent> {
        let mut audio = Vec::new();
        let mut told = Vec::new();
        while let Some(event) = self.session.next_event(&mut audio) {
            if !matches!(event, ModelEvent::AudioReceived { .. }) {
                told.push(event);
            }
        }
        told
    }

    fn sent(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.session.next_client_event()).collect()
    }

    fn sent_kinds(&mut self) -> Vec<String> {
        self.sent().iter().map(|event| event["type"].as_str().expect("a type").to_owned()).collect()
    }

    /// A stretch of 400 ms, and the gap that ends it: what is told of it.
    fn speaks(&mut self) -> Vec<ModelEvent> {
        self.streams(LOUD, 400);
        self.streams(SILENT, u64::from(GAP_MS) + 80);
        self.told()
    }
}

fn created(name: &str) -> Value {
    json!({"type": "response.created", "sequence_number": 0, "response": {"id": name, "status": "in_progress", "output": []}})
}

fn completed(name: &str) -> Value {
    json!({"type": "response.completed", "response": {"id": name, "status": "completed", "output": []}})
}

fn failed(name: &str) -> Value {
    json!({"type": "response.failed", "response": {"id": name, "status": "failed", "error": {"code": "server_error",
        "message": "It broke."}}})
}

fn called(call: &str, status: &str) -> Value {
    json!({"type": "response.output_item.done", "output_index": 1, "item": {"type": "function_call", "id": "fc_1",
        "call_id": call, "name": "book", "arguments": "{\"party\":2}", "status": status}})
}

fn opens(response: u32, request: Option<u32>) -> ModelEvent {
    ModelEvent::ResponseCreated { response: ModelResponseId(response), request: request.map(ResponseId) }
}

fn ends(response: u32, request: Option<u32>, end: ResponseEnd) -> ModelEvent {
    ModelEvent::ResponseEnded { response: ModelResponseId(response), request: request.map(ResponseId), end }
}

fn tool_call(response: u32, call: &str) -> ModelEvent {
    ModelEvent::ToolCallReceived {
        response: ModelResponseId(response),
        provider_call: ProviderCallId::new(call),
        name: "book".into(),
        arguments: "{\"party\":2}".into(),
    }
}

const DONE: ResponseEnd = ResponseEnd::Completed;

#[test]
fn a_session_starts_with_mulaw_and_the_tools_at_the_backend() {
    let mut call = Call::unstarted(backend());
    let start = call.sent().remove(0);
    let session = json!({
        "model": "gpt-live-1",
        "instructions": "Be brief.",
        "audio": {"format": {"type": "audio/pcmu", "rate": 8000}, "output": {"voice": "cedar"}},
        "delegation": {"type": "responses", "responses": {
            "model": "backend-1",
            "instructions": "Be brief.",
            "tools": [{"type": "function", "name": "book", "description": "Books.", "parameters": {"type": "object"},
                "strict": false}],
            "tool_choice": "auto",
            "parallel_tool_calls": true,
        }},
    });
    assert_eq!(start, json!({"type": "session.start", "event_id": "ab1-session", "session": session}));

    // Nothing else goes out before the service has answered, and then in the order in which it was asked.
    call.creates(1, Some("Greet the caller."));
    call.asks(ModelCommand::AddContext { text: "It rains.".into() });
    assert_eq!(call.sent(), [] as [Value; 0]);
    let format = json!({"type": "audio/pcmu", "rate": 8000});
    call.says(json!({"type": "session.started", "session": {"audio": {"format": format}}}));
    assert_eq!(call.sent_kinds(), ["session.commentary.append", "session.thinking.append"]);

    let wrong =
        json!({"type": "session.started", "session": {"audio": {"format": {"type": "audio/pcm", "rate": 24000}}}});
    assert_eq!(call.says(wrong), Received::WrongFormat(Some("audio/pcm at 24000 Hz".into())));
    let unnamed = json!({"type": "session.started", "session": {}});
    assert_eq!(call.says(unnamed), Received::WrongFormat(None));
}

#[test]
fn a_greeting_is_commentary_and_the_next_stretch_after_its_acknowledgement_is_it() {
    let mut call = Call::started();
    call.creates(1, Some("Greet the caller."));
    let sent = call.sent();
    let content = "Do this now, without waiting for the caller to speak: Greet the caller.";
    assert_eq!(
        sent,
        [
            json!({"type": "session.commentary.append", "event_id": "ab2-create-r1", "delegation_id": null, "content": content})
        ]
    );
    call.streams(SILENT, 400);
    call.acknowledges(&sent[0]);
    assert_eq!(call.told(), [], "appended is not spoken");
    assert_eq!(call.speaks(), [opens(0, Some(1)), ends(0, Some(1), DONE)]);
    assert_eq!(call.speaks(), [opens(1, None), ends(1, None, DONE)]);
    call.waits(60_000);
    assert_eq!(call.told(), []);
}

#[test]
fn the_sound_of_a_stretch_is_whole_and_the_silence_around_it_is_dropped() {
    let mut call = Call::started();
    call.streams(SILENT, 3_000);
    call.streams(LOUD, 1_000);
    call.streams(SILENT, 2_000);
    let (mut audio, mut counted) = (Vec::new(), Samples::ZERO);
    while let Some(event) = call.session.next_event(&mut audio) {
        if let ModelEvent::AudioReceived { response, item, samples } = event {
            assert_eq!((response, item), (ModelResponseId(0), ModelItemId(0)));
            counted += samples;
            assert_eq!(audio.len(), counted.0 as usize, "an event brings its own sound");
        }
    }
    assert_eq!(audio.iter().filter(|byte| **byte == LOUD).count(), 8_000);
    assert_eq!(counted.ms(), AudioMs(60 + 1_000 + 200));
}

#[test]
fn what_a_run_calls_is_a_response_of_its_own_and_what_it_reasons_is_nothing() {
    let mut call = Call::started();
    let reasoning = json!({"type": "response.output_item.done", "output_index": 0, "item": {"type": "reasoning", "id": "rs_1",
        "summary": []}});
    call.says(json!({"type": "session.delegation.created", "offset_ms": 10, "delegation":
        {"id": "dlg_1", "type": "delegation", "target": "responses", "response_id": "resp_1"}}));
    call.runs(Some("dlg_1"), created("resp_1"));
    call.runs(Some("dlg_1"), json!({"type": "response.in_progress", "response": {"id": "resp_1"}}));
    call.runs(Some("dlg_1"), reasoning);
    call.runs(Some("dlg_1"), called("call_cut", "incomplete"));
    assert_eq!(call.told(), []);
    call.runs(Some("dlg_1"), called("call_1", "completed"));
    call.runs(Some("dlg_1"), called("call_1", "completed"));
    call.runs(Some("dlg_1"), called("call_2", "completed"));
    assert_eq!(call.told(), [opens(0, None), tool_call(0, "call_1"), tool_call(0, "call_2")]);
    call.runs(Some("dlg_1"), completed("resp_1"));
    assert_eq!(call.told(), [ends(0, None, DONE)]);
}

#[test]
fn runs_interleave_and_are_kept_apart_by_their_delegation_also_by_none() {
    let mut call = Call::started();
    call.runs(Some("dlg_1"), created("resp_1"));
    call.runs(None, created("resp_2"));
    call.runs(Some("dlg_1"), called("call_1", "completed"));
    call.runs(None, called("call_2", "completed"));
    call.runs(Some("dlg_1"), failed("resp_1"));
    call.runs(None, completed("resp_2"));
    let end = ResponseEnd::Failed { code: "server_error".into() };
    assert_eq!(
        call.told(),
        [
            opens(0, None),
            tool_call(0, "call_1"),
            opens(1, None),
            tool_call(1, "call_2"),
            ends(0, None, end),
            ends(1, None, DONE)
        ]
    );
}

#[test]
fn b1_one_result_one_create_and_the_voice_that_follows_the_backends_answer_is_it() {
    let mut call = Call::started();
    call.runs_with_calls(Some("dlg_1"), &["call_1"]);
    call.told();
    call.submits("call_1");
    let item = json!({"type": "function_call_output", "call_id": "call_1", "output": "{\"of\":\"call_1\"}"});
    assert_eq!(call.sent(), [json!({"type": "response.item.create", "event_id": "ab2-output", "item": item})]);
    call.creates(7, None);
    assert_eq!(call.sent(), [json!({"type": "response.create", "event_id": "ab3-create-r7"})]);
    // Filler before the backend has anything to say is somebody else's.
    call.runs(Some("dlg_1"), created("resp_2"));
    assert_eq!(call.speaks(), [opens(1, None), ends(1, None, DONE)]);
    call.runs(Some("dlg_1"), completed("resp_2"));
    assert_eq!(call.told(), []);
    assert_eq!(call.speaks(), [opens(2, Some(7)), ends(2, Some(7), DONE)]);
    assert_eq!(call.sent(), [] as [Value; 0]);
}

#[test]
fn b2_of_two_results_neither_is_continued_alone_and_one_answer_serves_both() {
    let mut call = Call::started();
    call.runs_with_calls(Some("dlg_1"), &["call_1", "call_2"]);
    call.told();
    call.submits("call_2");
    call.creates(7, None);
    assert_eq!(call.sent_kinds(), ["response.item.create"], "a part of a batch is refused");
    call.submits("call_1");
    assert_eq!(call.sent_kinds(), ["response.item.create", "response.create"], "the create was only waiting");
    call.runs(Some("dlg_1"), created("resp_2"));
    call.runs(Some("dlg_1"), json!({"type": "response.output_text.delta", "delta": "Both"}));
    assert_eq!(call.speaks(), [opens(1, Some(7)), ends(1, Some(7), DONE)]);
    call.runs(Some("dlg_1"), completed("resp_2"));
    assert_eq!((call.told(), call.sent()), (vec![], vec![]));
}

#[test]
fn b2_results_of_two_delegations_are_one_batch_and_what_is_said_meanwhile_is_said_beside_it() {
    let mut call = Call::started();
    call.runs_with_calls(Some("dlg_1"), &["call_1"]);
    call.runs(Some("dlg_2"), created("resp_2"));
    call.submits("call_1");
    call.creates(7, None);
    assert_eq!(call.sent_kinds(), ["response.item.create"]);
    call.runs(Some("dlg_2"), called("call_2", "completed"));
    call.runs(Some("dlg_2"), completed("resp_2"));
    call.creates(8, Some("Say that it takes a moment."));
    assert_eq!(call.sent_kinds(), ["session.commentary.append"]);
    call.submits("call_2");
    assert_eq!(call.sent_kinds(), ["response.item.create", "response.create"]);
}

#[test]
fn directions_for_a_continuation_go_to_the_backend_before_it() {
    let mut call = Call::started();
    call.runs_with_calls(None, &["call_1"]);
    call.submits("call_1");
    call.creates(7, Some("Do not say that it is done."));
    let sent = call.sent();
    let content = json!([{"type": "input_text", "text": "Do not say that it is done."}]);
    assert_eq!(sent[1]["item"], json!({"type": "message", "role": "developer", "content": content}));
    assert_eq!(sent[2]["type"], "response.create");
}

#[test]
fn b3_an_interruption_ends_the_stretch_and_throws_the_rest_of_the_breath_away() {
    let mut call = Call::started();
    call.creates(7, Some("Tell it."));
    let sent = call.sent();
    call.acknowledges(&sent[0]);
    call.streams(LOUD, 1_000);
    call.asks(ModelCommand::CancelResponse { response: ResponseId(7) });
    assert_eq!(call.told(), [opens(0, Some(7)), ends(0, Some(7), ResponseEnd::Cancelled)]);
    assert_eq!(call.sent(), [] as [Value; 0], "there is no cancel");
    call.streams(LOUD, 1_000);
    assert_eq!(call.told(), []);
    // Late words of what was thrown away are told to nobody; those of before are.
    call.says(words("and this", 1_200, 1_600));
    call.says(words("Your table", 200, 600));
    let told = ModelEvent::TranscriptReceived {
        response: ModelResponseId(0),
        item: ModelItemId(0),
        text: "Your table".into(),
    };
    assert_eq!(call.told(), [told]);
    call.asks(ModelCommand::TruncateItem { item: ModelItemId(0), audio_end: AudioMs(800) });
    let heard = "You were interrupted. The caller heard only this of what you said: \"Your table\"";
    assert_eq!(call.sent()[0]["content"], heard);
    // After a short pause the model is heard again: it answers the caller.
    call.streams(SILENT, u64::from(BREATH_GAP_MS));
    assert_eq!(call.speaks(), [opens(1, None), ends(1, None, DONE)]);
}

fn words(text: &str, start_ms: u64, end_ms: u64) -> Value {
    json!({"type": "session.output_transcript.delta", "delta": text, "start_ms": start_ms, "end_ms": end_ms})
}

#[test]
fn a_cancel_means_what_it_names_or_the_voice_that_nobody_asked_for() {
    let mut call = Call::started();
    call.streams(LOUD, 400);
    call.creates(7, Some("Tell it."));
    let sent = call.sent();
    call.acknowledges(&sent[0]);
    // Our request has no voice yet: it is over, and the voice goes on.
    call.asks(ModelCommand::CancelResponse { response: ResponseId(7) });
    assert_eq!(call.told(), [opens(0, None), ends(1, Some(7), ResponseEnd::Cancelled)]);
    assert_eq!(call.asks(ModelCommand::CancelResponse { response: ResponseId(7) }), Obeyed::NothingToDo);
    // A name that we never heard is the call's own for it.
    assert_eq!(call.asks(ModelCommand::CancelResponse { response: ResponseId(8) }), Obeyed::Yes);
    assert_eq!(call.told(), [ends(0, None, ResponseEnd::Cancelled)]);
    assert_eq!(call.asks(ModelCommand::CancelResponse { response: ResponseId(8) }), Obeyed::NothingToDo);
}

#[test]
fn b4_a_failed_continuation_is_a_failed_response_and_can_be_run_again() {
    let mut call = Call::started();
    call.runs_with_calls(None, &["call_1"]);
    call.submits("call_1");
    call.creates(7, None);
    call.told();
    call.sent();
    call.runs(None, created("resp_2"));
    call.runs(None, failed("resp_2"));
    assert_eq!(call.told(), [ends(1, Some(7), ResponseEnd::Failed { code: "server_error".into() })]);
    call.creates(8, None);
    assert_eq!(call.sent_kinds(), ["response.create"], "the result is in the backend's conversation still");
}

#[test]
fn a_continuation_that_calls_again_answers_its_request_with_the_calls() {
    let mut call = Call::started();
    call.runs_with_calls(None, &["call_1"]);
    call.submits("call_1");
    call.creates(7, None);
    call.told();
    call.runs(None, created("resp_2"));
    call.runs(None, called("call_2", "completed"));
    call.runs(None, completed("resp_2"));
    assert_eq!(call.told(), [opens(1, Some(7)), tool_call(1, "call_2"), ends(1, Some(7), DONE)]);
    call.waits(60_000);
    assert_eq!(call.told(), [], "it ends once");
}

#[test]
fn b5_late_words_go_to_their_stretch_and_words_alone_make_none() {
    let mut call = Call::started();
    call.streams(SILENT, 1_000);
    call.speaks();
    call.says(words("Good evening.", 1_000, 1_400));
    let text = "Good evening.".to_owned();
    let late = ModelEvent::TranscriptReceived { response: ModelResponseId(0), item: ModelItemId(0), text };
    assert_eq!(call.told(), [late]);
    call.says(words("Nobody says this.", 60_000, 60_400));
    call.streams(SILENT, 3_000);
    assert_eq!(call.told(), []);
}

#[test]
fn words_that_come_before_their_voice_wait_for_it() {
    let mut call = Call::started();
    call.streams(SILENT, 1_000);
    call.says(words("Good evening.", 1_040, 1_400));
    assert_eq!(call.told(), []);
    let told = call.speaks();
    let text = "Good evening.".to_owned();
    let words = ModelEvent::TranscriptReceived { response: ModelResponseId(0), item: ModelItemId(0), text };
    assert_eq!(told, [opens(0, None), words, ends(0, None, DONE)]);
}

#[test]
fn b6_a_result_for_a_failed_run_is_something_to_know_and_can_be_asked_for() {
    let mut call = Call::started();
    call.runs(Some("dlg_1"), created("resp_1"));
    call.runs(Some("dlg_1"), called("call_1", "completed"));
    call.runs(Some("dlg_1"), called("call_2", "completed"));
    call.submits("call_1");
    assert_eq!(call.sent(), [] as [Value; 0], "its run has not ended, and may still fail");
    call.runs(
        Some("dlg_1"),
        json!({"type": "response.incomplete", "response": {"id": "resp_1", "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"}}}),
    );
    let end = ResponseEnd::Incomplete { reason: "max_output_tokens".into() };
    assert_eq!(call.told(), [opens(0, None), tool_call(0, "call_1"), tool_call(0, "call_2"), ends(0, None, end)]);
    call.submits("call_2");
    let sent = call.sent();
    let contents: Vec<&str> = sent.iter().filter_map(|event| event["content"].as_str()).collect();
    assert_eq!(contents, ["The result of book: {\"of\":\"call_1\"}", "The result of book: {\"of\":\"call_2\"}"]);
    assert!(sent.iter().all(|event| event["type"] == "session.thinking.append"));
    call.creates(7, None);
    let sent = call.sent();
    assert_eq!(sent[0]["content"], "Tell the caller the result now, without waiting for them to speak.");
    assert_eq!(call.submits("call_2"), Obeyed::NothingToDo);
}

#[test]
fn b7_an_answer_that_nobody_asked_for_is_told_as_such() {
    let mut call = Call::started();
    call.runs_with_calls(None, &["call_1"]);
    call.told();
    call.submits("call_1");
    assert_eq!(call.speaks(), [opens(1, None), ends(1, None, DONE)]);
    assert_eq!(call.sent_kinds(), ["response.item.create"], "nobody asked for it to be continued");
}

#[test]
fn b9_the_answer_to_a_second_message_does_not_settle_what_is_owed() {
    let mut call = Call::started();
    call.runs_with_calls(Some("dlg_1"), &["call_1"]);
    call.submits("call_1");
    call.creates(7, None);
    call.told();
    call.runs(Some("dlg_1"), created("resp_2"));
    // The caller asks something else, and the model answers, before and while the backend is at it.
    assert_eq!(call.speaks(), [opens(1, None), ends(1, None, DONE)]);
    call.streams(LOUD, 400);
    call.runs(Some("dlg_1"), completed("resp_2"));
    call.streams(LOUD, 400);
    call.streams(SILENT, 900);
    assert_eq!(call.told(), [opens(2, None), ends(2, None, DONE)], "it began before there was an answer");
    assert_eq!(call.speaks(), [opens(3, Some(7)), ends(3, Some(7), DONE)]);
}

#[test]
fn b10_a_request_of_which_no_voice_comes_ends_without_sound() {
    let mut call = Call::started();
    call.runs_with_calls(None, &["call_1"]);
    call.submits("call_1");
    call.creates(7, None);
    call.runs(None, created("resp_2"));
    call.told();
    call.waits(30_000);
    assert_eq!(call.told(), [], "the backend may take its time");
    call.runs(None, completed("resp_2"));
    call.waits(VOICE_WAIT_MS - 1);
    assert_eq!(call.told(), []);
    call.waits(1);
    assert_eq!(call.told(), [ends(1, Some(7), DONE)]);
    assert_eq!(call.speaks(), [opens(2, None), ends(2, None, DONE)]);
}

#[test]
fn b10_also_when_the_service_never_takes_it_up_and_not_while_another_stretch_is_in_its_way() {
    let mut call = Call::started();
    call.creates(7, Some("Tell it."));
    call.streams(LOUD, VOICE_WAIT_MS + 2_000);
    assert_eq!(call.told(), [opens(0, None)]);
    call.streams(SILENT, 900);
    assert_eq!(call.told(), [ends(0, None, DONE), ends(1, Some(7), DONE)]);
}

#[test]
fn a_request_for_what_is_being_worked_on_takes_its_place() {
    let mut call = Call::started();
    call.runs_with_calls(None, &["call_1"]);
    call.submits("call_1");
    call.creates(7, None);
    call.runs(None, created("resp_2"));
    call.told();
    call.sent();
    call.creates(8, None);
    assert_eq!(call.sent(), [] as [Value; 0], "it is under way already");
    assert_eq!(call.told(), [ends(1, Some(7), ResponseEnd::Cancelled)]);
    call.runs(None, completed("resp_2"));
    assert_eq!(call.speaks(), [opens(2, Some(8)), ends(2, Some(8), DONE)]);
}

#[test]
fn a_stream_that_stops_ends_the_stretch() {
    let mut call = Call::started();
    call.streams(LOUD, 400);
    call.waits(STALL_MS);
    assert_eq!(call.told(), [opens(0, None), ends(0, None, DONE)]);
}

#[test]
fn the_callers_words_come_whole_with_a_place_to_put_them() {
    let mut call = Call::started();
    for (text, start_ms) in [("A table", 1_000), (" for two.", 1_500), ("Hello?", 4_000)] {
        call.says(json!({"type": "session.input_transcript.delta", "delta": text, "start_ms": start_ms, "end_ms": start_ms + 300}));
    }
    call.waits(2_000);
    let said = |n, text: &str| {
        let item = ModelItemId(n);
        [ModelEvent::TurnCommitted { item }, ModelEvent::CallerTranscript { item, text: text.into() }]
    };
    assert_eq!(call.told(), [said(0, "A table for two."), said(1, "Hello?")].concat());
}

#[test]
fn errors_have_their_meaning_and_find_what_they_are_about() {
    let error = |code: &str, kind: &str, about: Option<&str>| {
        json!({"type": "error", "event_id": "event_1", "error": {"type": kind, "code": code, "message": "No.",
            "client_event_id": about}})
    };
    let reported = |code: &str, fatal| ModelEvent::ErrorReported { code: code.into(), message: "No.".into(), fatal };
    let mut call = Call::started();
    call.says(error("unknown_parameter", "invalid_request_error", None));
    call.says(error("insufficient_quota", "billing_error", None));
    call.says(error("x", "forbidden", None));
    assert_eq!(
        call.told(),
        [reported("unknown_parameter", false), reported("insufficient_quota", true), reported("x", true)]
    );

    call.creates(7, Some("Tell it."));
    let sent = call.sent();
    call.says(error("invalid_value", "invalid_request_error", sent[0]["event_id"].as_str()));
    let refused = ModelEvent::CreateRefused { request: ResponseId(7), busy: false, message: "No.".into() };
    assert_eq!(call.told(), [refused]);

    // What a refused continuation was to take up can be taken up by the next.
    call.runs_with_calls(None, &["call_1"]);
    call.submits("call_1");
    call.creates(8, None);
    let sent = call.sent();
    call.told();
    call.says(error("invalid_state", "invalid_request_error", sent[1]["event_id"].as_str()));
    assert!(matches!(call.told()[..], [ModelEvent::CreateRefused { request: ResponseId(8), .. }]));
    call.creates(9, None);
    assert_eq!(call.sent_kinds(), ["response.create"]);

    let mut unstarted = Call::unstarted(backend());
    unstarted.says(error("unknown_parameter", "invalid_request_error", Some("ab1-session")));
    assert_eq!(unstarted.told(), [reported("unknown_parameter", true)]);
}

#[test]
fn the_end_of_a_session_says_why() {
    for (reason, told) in [
        ("expired", "session_expired: the session reached the provider's time limit"),
        ("content", "closed by the provider: content"),
        ("connection_lost", "closed by the provider: connection_lost"),
    ] {
        let mut call = Call::started();
        call.says(json!({"type": "session.closed", "reason": reason, "session": {}, "usage": {"seconds": 3}}));
        assert_eq!(call.told(), [ModelEvent::SessionLost { reason: told.into() }]);
    }
}

#[test]
fn a_delegation_to_us_is_a_call_of_the_configured_tool_with_the_callers_words() {
    let mut call = Call::with(Delegation::Client { tool: Some("ask_the_house".into()) });
    let delegated = json!({"type": "session.delegation.created", "offset_ms": 900, "delegation":
        {"id": "dlg_1", "type": "delegation", "target": "client"}});
    call.says(delegated);
    assert_eq!(call.told(), [], "the words may still be on their way");
    call.says(
        json!({"type": "session.input_transcript.delta", "delta": "Is nine free?", "start_ms": 0, "end_ms": 800}),
    );
    call.waits(600);
    let told = ModelEvent::ToolCallReceived {
        response: ModelResponseId(0),
        provider_call: ProviderCallId::new("dlg_1"),
        name: "ask_the_house".into(),
        arguments: "{\"request\":\"Is nine free?\"}".into(),
    };
    assert_eq!(call.told(), [opens(0, None), told, ends(0, None, DONE)]);
    call.submits("dlg_1");
    call.creates(7, None);
    let sent = call.sent();
    assert_eq!(
        (&sent[0]["type"], &sent[0]["delegation_id"], &sent[0]["content"]),
        (&json!("session.thinking.append"), &json!("dlg_1"), &json!("{\"of\":\"dlg_1\"}"))
    );
    assert_eq!((&sent[1]["type"], &sent[1]["delegation_id"]), (&json!("session.commentary.append"), &json!("dlg_1")));
    call.acknowledges(&sent[1]);
    assert!(call.speaks().contains(&opens(1, Some(7))));
}

#[test]
fn a_delegation_that_nobody_can_serve_is_answered_at_once() {
    let mut call = Call::with(Delegation::Client { tool: None });
    call.says(json!({"type": "session.delegation.created", "delegation": {"id": "dlg_1", "target": "client"}}));
    call.waits(1_000);
    assert_eq!(call.told(), []);
    let sent = call.sent();
    assert_eq!((&sent[0]["type"], &sent[0]["delegation_id"]), (&json!("session.commentary.append"), &json!("dlg_1")));
}

#[test]
fn long_texts_go_in_pieces_and_only_the_last_is_waited_for() {
    let mut call = Call::started();
    let long = "The kitchen closes at ten. ".repeat(80);
    call.creates(7, Some(&long));
    let sent = call.sent();
    assert_eq!(sent.len(), 3);
    call.acknowledges(&sent[0]);
    assert_eq!(call.speaks(), [opens(0, None), ends(0, None, DONE)]);
    call.acknowledges(&sent[2]);
    assert_eq!(call.speaks(), [opens(1, Some(7)), ends(1, Some(7), DONE)]);
    assert_eq!(call.asks(ModelCommand::AddContext { text: "x ".repeat(5_000) }), Obeyed::Shortened);
    assert_eq!(call.sent().len(), 8);
}

#[test]
fn what_is_unknown_or_makes_no_sense_has_no_consequence() {
    let mut call = Call::started();
    for (event, why) in [
        (json!({"type": "session.hologram.delta"}), Ignored::Unknown),
        (json!({"type": "session.usage.updated", "usage": {"seconds": 1}}), Ignored::Uninteresting),
        (json!({"type": "info", "code": "x", "message": "y"}), Ignored::Uninteresting),
        (json!({"type": "response.event", "event": {"type": "response.hologram"}}), Ignored::Uninteresting),
        (json!({"type": "response.event"}), Ignored::Malformed),
        (json!({"type": "session.output_transcript.delta", "delta": "x"}), Ignored::Malformed),
        (json!({"type": "session.output_audio.delta", "delta": "*"}), Ignored::Malformed),
        (json!({"type": 7}), Ignored::Malformed),
    ] {
        assert_eq!(call.says(event.clone()), Received::Ignored(why), "{event}");
    }
    assert_eq!((call.told(), call.sent()), (vec![], vec![]));
}
