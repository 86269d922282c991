//! Every kind of server event, and the races that bridges to realtime models have died of, at the level of the wire.

use bytes::BytesMut;
use models::TurnDetection;
use models::openai_realtime::ids::{CALLS_KEPT, ITEMS_KEPT, Ids, REQUESTS_KEPT, RESPONSES_KEPT, UNFINISHED_CALLS_KEPT};
use models::openai_realtime::wire::{Decoded, Dropped, Encoded, Ignored, Standing, cancel_due, decode, encode};
use proptest::prelude::*;
use serde_json::{Value, json};
use vocab::model::{ModelCommand, ModelEvent, ResponseEnd};
use vocab::{AudioMs, ModelItemId, ModelResponseId, ProviderCallId, ResponseId, Samples};

const SERVER_EVENTS: &str = include_str!("fixtures/openai_realtime/server_events.jsonl");

/// One session with the wire on both sides of it.
#[derive(Default)]
struct Wire {
    ids: Ids,
    audio: Vec<u8>,
}

impl Wire {
    fn receives(&mut self, event: Value) -> Decoded {
        decode(&event.to_string(), &mut self.ids, &mut self.audio)
    }

    fn event(&mut self, event: Value) -> ModelEvent {
        match self.receives(event.clone()) {
            Decoded::Event(event) => event,
            other => panic!("{event} became {other:?}"),
        }
    }

    fn sends(&mut self, command: ModelCommand) -> Result<Value, Encoded> {
        let standing = Standing { instructions: "Be brief.".into(), turn_detection: semantic() };
        let mut out = BytesMut::new();
        match encode(&command, &standing, &mut self.ids, &mut out) {
            Encoded::Written => Ok(serde_json::from_slice(&out).expect("we write JSON")),
            other => {
                assert!(out.is_empty());
                Err(other)
            }
        }
    }

    fn creates(&mut self, request: u32) -> String {
        let response = ResponseId(request);
        let event = self.sends(ModelCommand::CreateResponse { response, directions: None, tools: true });
        event.expect("a create is always sent")["event_id"].as_str().expect("it has an event id").to_owned()
    }

    fn due_cancel(&mut self) -> Option<Value> {
        let mut out = BytesMut::new();
        cancel_due(&mut self.ids, &mut out).then(|| serde_json::from_slice(&out).expect("we write JSON"))
    }
}

fn semantic() -> TurnDetection {
    TurnDetection::SemanticEvents { eagerness: models::Eagerness::Auto }
}

fn created(response: &str, request: Option<&str>) -> Value {
    let metadata = request.map(|request| json!({"answerback_response": request}));
    json!({"type": "response.created", "event_id": "event_1", "response":
        {"id": response, "object": "realtime.response", "status": "in_progress", "output": [], "metadata": metadata}})
}

fn done(response: &str, status: &str) -> Value {
    json!({"type": "response.done", "response": {"id": response, "status": status, "output": []}})
}

fn error(code: Option<&str>, message: &str, event_id: Option<&str>) -> Value {
    json!({"type": "error", "event_id": "event_2", "error":
        {"type": "invalid_request_error", "code": code, "message": message, "param": null, "event_id": event_id}})
}

fn delta(response: &str, item: &str, bytes: usize) -> Value {
    use base64::Engine;
    let audio = base64::engine::general_purpose::STANDARD.encode(vec![0x7fu8; bytes]);
    json!({"type": "response.output_audio.delta", "response_id": response, "item_id": item, "output_index": 0,
        "content_index": 0, "delta": audio})
}

fn call_done(call: &str, status: Option<&str>) -> Value {
    let mut event = json!({"type": "response.output_item.done", "response_id": "resp_1", "output_index": 1, "item":
        {"id": "item_f", "type": "function_call", "call_id": call, "name": "book", "arguments": "{\"n\":2}"}});
    if let Some(status) = status {
        event["item"]["status"] = json!(status);
    }
    event
}

fn arguments_done(call: &str) -> Value {
    json!({"type": "response.function_call_arguments.done", "response_id": "resp_1", "item_id": "item_f",
        "output_index": 1, "call_id": call, "name": "book", "arguments": "{\"n\":2}"})
}

const BUSY: &str = "conversation_already_has_active_response";
const BUSY_TEXT: &str = "Conversation already has an active response in progress: resp_1. Wait until it is finished.";

#[test]
fn every_event_of_a_real_shaped_session_has_its_meaning() {
    use Decoded::{Event, Events};
    use ModelEvent::*;
    let mut wire = Wire::default();
    wire.creates(5);
    let quiet = || Decoded::Ignored(Ignored::Uninteresting);
    let (mr, mi) = (ModelResponseId, ModelItemId);
    let ended = |response, request, end| Event(ResponseEnded { response, request, end });
    let reported =
        |code: &str, message: &str, fatal| Event(ErrorReported { code: code.into(), message: message.into(), fatal });
    let meanings = [
        quiet(),
        Event(SessionReady),
        Event(SpeechStarted),
        Event(SpeechStopped),
        Event(TurnCommitted { item: mi(0) }),
        quiet(),
        quiet(),
        Event(ResponseCreated { response: mr(0), request: Some(ResponseId(5)) }),
        quiet(),
        quiet(),
        quiet(),
        Event(TranscriptReceived { response: mr(0), item: mi(1), text: "One \"moment\" — café".into() }),
        Event(AudioReceived { response: mr(0), item: mi(1), samples: Samples(16) }),
        quiet(),
        Decoded::Ignored(Ignored::Repeated),
        quiet(),
        quiet(),
        quiet(),
        quiet(),
        Event(ToolCallReceived {
            response: mr(0),
            provider_call: ProviderCallId::new("call_1"),
            name: "book_table".into(),
            arguments: r#"{"party":2,"at":"21:00"}"#.into(),
        }),
        ended(mr(0), Some(ResponseId(5)), ResponseEnd::Completed),
        quiet(),
        Event(CallerTranscript { item: mi(0), text: "A table for two at nine.".into() }),
        reported("transcription_failed", "The audio could not be transcribed.", false),
        quiet(),
        quiet(),
        ended(mr(1), None, ResponseEnd::Cancelled),
        ended(mr(2), Some(ResponseId(7)), ResponseEnd::Incomplete { reason: "max_output_tokens".into() }),
        ended(mr(3), Some(ResponseId(8)), ResponseEnd::Failed { code: "inference_rate_limit_exceeded".into() }),
        reported("response_cancel_not_active", "Cancellation failed: no active response found", false),
        reported("invalid_value", "Audio content of 300ms is already shorter than 2100ms", false),
        reported("input_audio_buffer_commit_empty", "Error committing input audio buffer: buffer too small.", false),
        reported("insufficient_quota", "You exceeded your current quota.", true),
        Event(SessionLost { reason: "session_expired: Your session hit the maximum duration of 60 minutes.".into() }),
    ];
    assert_eq!(SERVER_EVENTS.lines().count(), meanings.len());
    for (line, meaning) in SERVER_EVENTS.lines().zip(meanings) {
        let decoded = decode(line, &mut wire.ids, &mut wire.audio);
        assert!(!matches!(decoded, Events(_)), "{line}");
        assert_eq!(decoded, meaning, "{line}");
    }
    let heard: Vec<u8> = (0xf0..=0xff).rev().collect();
    assert_eq!(wire.audio, heard);
}

#[test]
fn beta_names_mean_the_same() {
    let mut wire = Wire::default();
    let beta = |kind: &str| json!({"type": kind, "response_id": "resp_1", "item_id": "item_1", "delta": "/w=="});
    let (response, item) = (ModelResponseId(0), ModelItemId(0));
    assert_eq!(
        wire.event(beta("response.audio.delta")),
        ModelEvent::AudioReceived { response, item, samples: Samples(1) }
    );
    assert_eq!(
        wire.event(beta("response.audio_transcript.delta")),
        ModelEvent::TranscriptReceived { response, item, text: "/w==".into() }
    );
    let updated = json!({"type": "session.updated", "session":
        {"input_audio_format": "g711_ulaw", "output_audio_format": "g711_ulaw", "voice": "alloy"}});
    assert_eq!(wire.event(updated), ModelEvent::SessionReady);
}

#[test]
fn audio_with_escaped_slashes_or_without_padding_is_taken() {
    let mut wire = Wire::default();
    for text in [
        r#"{"delta":"\/\/79\/A","item_id":"i","response_id":"r","type":"response.output_audio.delta"}"#,
        r#"{"type":"response.output_audio.delta","response_id":"r","item_id":"i","delta":"//79/A=="}"#,
    ] {
        let decoded = decode(text, &mut wire.ids, &mut wire.audio);
        assert!(matches!(decoded, Decoded::Event(ModelEvent::AudioReceived { samples: Samples(4), .. })), "{text}");
    }
    assert_eq!(wire.audio, [0xff, 0xfe, 0xfd, 0xfc, 0xff, 0xfe, 0xfd, 0xfc]);
    assert_eq!(wire.ids.received(ModelItemId(0)), Some(Samples(8)));
}

#[test]
fn audio_that_is_no_base64_leaves_the_buffer_as_it_was() {
    let mut wire = Wire::default();
    wire.audio.extend_from_slice(b"kept");
    for delta in ["////!", "/", "é"] {
        let event = json!({"type": "response.output_audio.delta", "response_id": "r", "item_id": "i", "delta": delta});
        assert_eq!(wire.receives(event), Decoded::Ignored(Ignored::Malformed), "{delta}");
    }
    assert_eq!(wire.audio, b"kept");
}

#[test]
fn a_transcript_that_comes_only_whole_is_told_once() {
    let mut wire = Wire::default();
    let whole = json!({"type": "response.output_audio_transcript.done", "response_id": "r", "item_id": "i",
        "transcript": "Hello."});
    let (response, item) = (ModelResponseId(0), ModelItemId(0));
    assert_eq!(wire.event(whole.clone()), ModelEvent::TranscriptReceived { response, item, text: "Hello.".into() });
    assert_eq!(wire.receives(whole), Decoded::Ignored(Ignored::Repeated));
}

#[test]
fn a_session_that_is_not_mulaw_both_ways_is_not_ready() {
    let mut wire = Wire::default();
    let session = |input: &str, output: Value| {
        json!({"type": "session.updated", "session": {"type": "realtime",
            "audio": {"input": {"format": {"type": input}}, "output": {"format": output}}}})
    };
    let wrong = |input: &str, output: Option<&str>| Decoded::WrongFormat {
        input: Some(input.into()),
        output: output.map(str::to_owned),
    };
    let pcm = json!({"type": "audio/pcm", "rate": 24000});
    assert_eq!(wire.receives(session("audio/pcmu", pcm.clone())), wrong("audio/pcmu", Some("audio/pcm")));
    assert_eq!(
        wire.receives(session("audio/pcm", json!({"type": "audio/pcmu"}))),
        wrong("audio/pcm", Some("audio/pcmu"))
    );
    assert_eq!(wire.receives(session("audio/pcmu", Value::Null)), wrong("audio/pcmu", None));
    assert_eq!(wire.event(session("audio/pcmu", json!({"type": "audio/pcmu"}))), ModelEvent::SessionReady);
}

#[test]
fn unknown_and_malformed_messages_are_told_apart_and_change_nothing() {
    let mut wire = Wire::default();
    let unknown = json!({"type": "response.hologram.delta", "response_id": {"deep": [1]}, "delta": 7});
    assert_eq!(wire.receives(unknown), Decoded::Ignored(Ignored::Unknown));
    for text in ["", "null", "[]", "{}", "hello", "{\"type\":7}", "{\"type\":\"response.done\"}", "{\"type\":\"error\""]
    {
        let decoded = decode(text, &mut wire.ids, &mut wire.audio);
        assert_eq!(decoded, Decoded::Ignored(Ignored::Malformed), "{text}");
    }
    let deep = format!("{{\"type\":\"error\",\"error\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(decode(&deep, &mut wire.ids, &mut wire.audio), Decoded::Ignored(Ignored::Malformed));
    assert_eq!(wire.ids.sizes(), [0; 5]);
}

// Tool calls

#[test]
fn a_call_is_reported_once_whatever_is_repeated() {
    let mut wire = Wire::default();
    assert_eq!(wire.receives(arguments_done("call_1")), Decoded::Ignored(Ignored::Uninteresting));
    assert!(matches!(wire.event(call_done("call_1", Some("completed"))), ModelEvent::ToolCallReceived { .. }));
    assert_eq!(wire.receives(call_done("call_1", Some("completed"))), Decoded::Ignored(Ignored::Repeated));
    wire.receives(arguments_done("call_1"));
    let mut end = done("resp_1", "completed");
    end["response"]["output"] = json!([call_done("call_1", Some("completed"))["item"]]);
    assert!(matches!(wire.event(end), ModelEvent::ResponseEnded { end: ResponseEnd::Completed, .. }));
}

#[test]
fn a_call_cut_off_by_a_cancellation_is_never_reported() {
    let mut wire = Wire::default();
    wire.receives(arguments_done("call_1"));
    assert_eq!(wire.receives(call_done("call_1", Some("incomplete"))), Decoded::Ignored(Ignored::Uninteresting));
    // Complete arguments whose item never ended: the response's end decides.
    wire.receives(arguments_done("call_2"));
    let mut end = done("resp_1", "cancelled");
    end["response"]["output"] = json!([call_done("call_3", Some("completed"))["item"]]);
    assert!(matches!(wire.event(end), ModelEvent::ResponseEnded { end: ResponseEnd::Cancelled, .. }));
    assert_eq!(wire.ids.sizes()[3], 0);
    assert_eq!(wire.receives(call_done("call_1", None)), Decoded::Ignored(Ignored::Uninteresting));
}

#[test]
fn a_server_without_item_ends_or_statuses_still_gets_its_calls_run() {
    let mut wire = Wire::default();
    wire.receives(arguments_done("call_1"));
    assert!(matches!(wire.event(call_done("call_1", None)), ModelEvent::ToolCallReceived { .. }));
    wire.receives(arguments_done("call_2"));
    let mut end = done("resp_1", "completed");
    end["response"]["output"] = json!([call_done("call_3", Some("completed"))["item"]]);
    let Decoded::Events(events) = wire.receives(end) else { panic!("two calls and the end") };
    let told: Vec<&str> = events
        .iter()
        .map(|event| match event {
            ModelEvent::ToolCallReceived { provider_call, .. } => provider_call.as_str(),
            ModelEvent::ResponseEnded { .. } => "end",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(told, ["call_3", "call_2", "end"]);
}

// Ends

#[test]
fn a_response_ends_once_and_does_not_come_back() {
    let mut wire = Wire::default();
    wire.event(created("resp_1", Some("r1")));
    let cancelled = json!({"type": "response.cancelled", "response_id": "resp_1"});
    assert_eq!(
        wire.event(cancelled),
        ModelEvent::ResponseEnded {
            response: ModelResponseId(0),
            request: Some(ResponseId(1)),
            end: ResponseEnd::Cancelled
        }
    );
    assert_eq!(wire.receives(done("resp_1", "cancelled")), Decoded::Ignored(Ignored::Repeated));
    assert_eq!(wire.receives(created("resp_1", Some("r1"))), Decoded::Ignored(Ignored::Repeated));
}

#[test]
fn an_end_without_a_beginning_answers_its_request() {
    let mut wire = Wire::default();
    wire.creates(3);
    let mut end = done("resp_9", "failed");
    end["response"]["metadata"] = json!({"answerback_response": "r3"});
    assert_eq!(
        wire.event(end),
        ModelEvent::ResponseEnded {
            response: ModelResponseId(0),
            request: Some(ResponseId(3)),
            end: ResponseEnd::Failed { code: "unknown".into() }
        }
    );
    assert_eq!(wire.ids.sizes()[4], 0);
    // The created that comes too late must not make it look active.
    assert_eq!(wire.receives(created("resp_9", Some("r3"))), Decoded::Ignored(Ignored::Repeated));
}

#[test]
fn a_failure_that_will_not_pass_ends_the_response_first_and_then_the_call() {
    let mut wire = Wire::default();
    let mut end = done("resp_1", "failed");
    end["response"]["status_details"] =
        json!({"type": "failed", "error": {"type": "insufficient_quota", "code": null, "message": "No credit."}});
    let Decoded::Events(events) = wire.receives(end) else { panic!("an end and an error") };
    let [ModelEvent::ResponseEnded { end, .. }, ModelEvent::ErrorReported { code, message, fatal }] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(*end, ResponseEnd::Failed { code: "insufficient_quota".into() });
    assert_eq!((code.as_str(), message.as_str(), *fatal), ("insufficient_quota", "No credit.", true));
}

#[test]
fn each_fatal_code_is_fatal_as_code_and_as_type() {
    for fatal in models::codes::FATAL_CODES {
        for error in [json!({"type": fatal, "message": "m"}), json!({"type": "x", "code": fatal, "message": "m"})] {
            let told = Wire::default().event(json!({"type": "error", "error": error}));
            assert_eq!(told, ModelEvent::ErrorReported { code: fatal.into(), message: "m".into(), fatal: true });
        }
    }
}

#[test]
fn a_refused_configuration_is_fatal_before_the_session_is_ready() {
    let mut wire = Wire::default();
    let told = wire.event(error(Some("invalid_value"), "no such voice", Some("ab1-session")));
    assert!(matches!(told, ModelEvent::ErrorReported { fatal: true, .. }));
}

// Races, numbered as in the bug log of bridges: cases 1.1 to 2.5.

#[test]
fn race_1_1_a_foreign_response_wins_and_ours_is_refused_busy_not_failed() {
    let mut wire = Wire::default();
    let create = wire.creates(5);
    let foreign = wire.event(created("resp_1", None));
    assert_eq!(foreign, ModelEvent::ResponseCreated { response: ModelResponseId(0), request: None });
    let refused = wire.event(error(Some(BUSY), BUSY_TEXT, Some(&create)));
    let expected = ModelEvent::CreateRefused { request: ResponseId(5), busy: true, message: BUSY_TEXT.into() };
    assert_eq!(refused, expected);
    let end = wire.event(done("resp_1", "completed"));
    assert!(matches!(end, ModelEvent::ResponseEnded { request: None, .. }));
    // The same debt is asked for again, and is answered.
    wire.creates(5);
    let ours = wire.event(created("resp_2", Some("r5")));
    assert_eq!(ours, ModelEvent::ResponseCreated { response: ModelResponseId(1), request: Some(ResponseId(5)) });
}

#[test]
fn race_1_2_the_event_id_alone_resolves_the_request_at_once() {
    let mut wire = Wire::default();
    let (first, second) = (wire.creates(1), wire.creates(2));
    for (create, request) in [(second, 2), (first, 1)] {
        let refused = wire.event(error(Some("invalid_value"), "bad instructions", Some(&create)));
        let request = ResponseId(request);
        assert_eq!(refused, ModelEvent::CreateRefused { request, busy: false, message: "bad instructions".into() });
    }
    assert_eq!(wire.ids.sizes()[4], 0);
}

#[test]
fn race_1_2_a_refusal_is_told_once_and_not_after_the_response_was_created() {
    let mut wire = Wire::default();
    let create = wire.creates(1);
    wire.event(created("resp_1", Some("r1")));
    let late = wire.event(error(Some(BUSY), BUSY_TEXT, Some(&create)));
    assert!(matches!(late, ModelEvent::ErrorReported { fatal: false, .. }));
}

#[test]
fn race_1_6_with_the_providers_turn_detection_nothing_is_committed() {
    let mut wire = Wire::default();
    assert_eq!(wire.sends(ModelCommand::CommitTurn), Err(Encoded::Dropped(Dropped::CommitWithTurnDetection)));
    let told = wire.event(error(Some("input_audio_buffer_commit_empty"), "buffer too small", None));
    assert!(matches!(told, ModelEvent::ErrorReported { fatal: false, .. }));
}

#[test]
fn race_1_7_an_overlap_without_code_and_event_id_is_known_by_its_words() {
    let mut wire = Wire::default();
    wire.creates(4);
    let refused = wire.event(error(None, BUSY_TEXT, None));
    assert!(matches!(refused, ModelEvent::CreateRefused { request: ResponseId(4), busy: true, .. }));
    // With two outstanding it could be either: a guess would lose the other.
    wire.creates(5);
    wire.creates(6);
    let told = wire.event(error(None, BUSY_TEXT, None));
    assert!(matches!(told, ModelEvent::ErrorReported { fatal: false, .. }));
    assert_eq!(wire.ids.sizes()[4], 2);
    // An error about something else is never taken for a refusal.
    wire.event(created("resp_5", Some("r5")));
    assert!(matches!(wire.event(error(None, "Something else", None)), ModelEvent::ErrorReported { .. }));
    assert_eq!(wire.ids.sizes()[4], 1);
}

#[test]
fn race_1_8_of_two_creates_the_second_is_refused_and_the_first_goes_on() {
    let mut wire = Wire::default();
    for call in ["call_1", "call_2"] {
        let provider_call = ProviderCallId::new(call);
        let event = wire.sends(ModelCommand::SubmitToolOutput { provider_call, output: "{}".into() });
        assert_eq!(event.expect("an output is always sent")["item"]["call_id"], call);
    }
    let (_, second) = (wire.creates(1), wire.creates(2));
    wire.event(created("resp_1", Some("r1")));
    let refused = wire.event(error(Some(BUSY), BUSY_TEXT, Some(&second)));
    assert!(matches!(refused, ModelEvent::CreateRefused { request: ResponseId(2), busy: true, .. }));
    let end = wire.event(done("resp_1", "completed"));
    assert!(matches!(end, ModelEvent::ResponseEnded { request: Some(ResponseId(1)), .. }));
}

#[test]
fn race_2_1_an_item_is_cut_at_most_where_its_own_audio_ends_and_the_error_is_harmless() {
    let mut wire = Wire::default();
    wire.event(delta("resp_1", "item_preamble", 300 * 8));
    wire.event(delta("resp_1", "item_answer", 5_000 * 8));
    let cut = wire.sends(ModelCommand::TruncateItem { item: ModelItemId(0), audio_end: AudioMs(2_100) });
    let cut = cut.expect("there is something to cut");
    assert_eq!((&cut["item_id"], &cut["audio_end_ms"]), (&json!("item_preamble"), &json!(300)));
    assert_eq!(cut["content_index"], 0);
    let event_id = cut["event_id"].as_str();
    let told = wire.event(error(Some("invalid_value"), "Audio content of 300ms is already shorter", event_id));
    assert!(matches!(told, ModelEvent::ErrorReported { fatal: false, .. }));
    wire.event(delta("resp_1", "item_answer", 8));
}

#[test]
fn race_2_3_each_way_to_truncate_is_clamped_and_none_makes_an_item_longer() {
    let mut wire = Wire::default();
    wire.event(delta("resp_1", "item_1", 1_000 * 8 + 7));
    let item = ModelItemId(0);
    let mut cut = |ms| wire.sends(ModelCommand::TruncateItem { item, audio_end: AudioMs(ms) });
    assert_eq!(cut(u32::MAX).expect("cut")["audio_end_ms"], 1_000);
    assert_eq!(cut(400).expect("cut")["audio_end_ms"], 400);
    assert_eq!(cut(400), Err(Encoded::Dropped(Dropped::AlreadyShorter)));
    assert_eq!(cut(900), Err(Encoded::Dropped(Dropped::AlreadyShorter)));
    assert_eq!(cut(0).expect("delete")["type"], "conversation.item.delete");
    assert_eq!(cut(100), Err(Encoded::Dropped(Dropped::NoSuchItem)));
}

#[test]
fn race_2_5_the_audio_of_each_item_is_counted_by_itself() {
    let mut wire = Wire::default();
    for _ in 0..10 {
        wire.event(delta("resp_1", "item_1", 160));
    }
    wire.event(delta("resp_1", "item_2", 160));
    wire.event(delta("resp_1", "item_1", 160));
    assert_eq!(wire.ids.received(ModelItemId(0)), Some(Samples(11 * 160)));
    let cut = wire.sends(ModelCommand::TruncateItem { item: ModelItemId(1), audio_end: AudioMs(220) });
    assert_eq!(cut.expect("cut")["audio_end_ms"], 20);
}

#[test]
fn an_item_of_which_nothing_arrived_is_deleted_and_the_callers_is_left_alone() {
    let mut wire = Wire::default();
    let transcript = json!({"type": "response.output_audio_transcript.delta", "response_id": "resp_1",
        "item_id": "item_1", "delta": "Hel"});
    wire.event(transcript);
    let gone = wire.sends(ModelCommand::TruncateItem { item: ModelItemId(0), audio_end: AudioMs(50) });
    assert_eq!(gone.expect("delete")["type"], "conversation.item.delete");
    assert_eq!(
        wire.sends(ModelCommand::DeleteItem { item: ModelItemId(0) }),
        Err(Encoded::Dropped(Dropped::NoSuchItem))
    );
    wire.event(json!({"type": "input_audio_buffer.committed", "item_id": "item_user"}));
    let refused = wire.sends(ModelCommand::TruncateItem { item: ModelItemId(1), audio_end: AudioMs(50) });
    assert_eq!(refused, Err(Encoded::Dropped(Dropped::NotTheModels)));
}

#[test]
fn a_cancel_before_created_is_sent_when_the_response_exists() {
    let mut wire = Wire::default();
    wire.creates(1);
    let response = ResponseId(1);
    assert_eq!(wire.sends(ModelCommand::CancelResponse { response }), Err(Encoded::Deferred));
    assert_eq!(wire.due_cancel(), None);
    wire.event(created("resp_1", Some("r1")));
    let cancel = wire.due_cancel().expect("it is due now");
    assert_eq!((&cancel["type"], &cancel["response_id"]), (&json!("response.cancel"), &json!("resp_1")));
    assert_eq!(wire.due_cancel(), None);
    let again = wire.sends(ModelCommand::CancelResponse { response });
    assert_eq!(again, Err(Encoded::Dropped(Dropped::NothingToCancel)));
}

#[test]
fn a_cancel_of_what_was_refused_or_has_ended_is_not_sent() {
    let mut wire = Wire::default();
    let create = wire.creates(1);
    assert_eq!(wire.sends(ModelCommand::CancelResponse { response: ResponseId(1) }), Err(Encoded::Deferred));
    wire.event(error(Some(BUSY), BUSY_TEXT, Some(&create)));
    assert_eq!(wire.due_cancel(), None);
    wire.creates(2);
    wire.event(created("resp_2", Some("r2")));
    wire.event(done("resp_2", "completed"));
    for response in [ResponseId(1), ResponseId(2), ResponseId(99)] {
        let dropped = wire.sends(ModelCommand::CancelResponse { response });
        assert_eq!(dropped, Err(Encoded::Dropped(Dropped::NothingToCancel)));
    }
}

#[test]
fn no_table_grows_without_bound() {
    let mut wire = Wire::default();
    for n in 0..1_000 {
        wire.creates(n);
        wire.receives(arguments_done(&format!("open_{n}")));
        wire.event(call_done(&format!("call_{n}"), Some("completed")));
        wire.event(delta(&format!("resp_{n}"), &format!("item_{n}"), 8));
    }
    assert_eq!(wire.ids.sizes(), [RESPONSES_KEPT, ITEMS_KEPT, CALLS_KEPT, UNFINISHED_CALLS_KEPT, REQUESTS_KEPT]);
}

proptest! {
    #[test]
    fn decode_never_panics_on_text(text in ".{0,300}") {
        let mut wire = Wire::default();
        let _ = decode(&text, &mut wire.ids, &mut wire.audio);
    }

    #[test]
    fn decode_never_panics_on_any_members_of_any_type(
        kind in proptest::sample::select(SERVER_EVENTS.lines().collect::<Vec<_>>()),
        name in "(response|item|error|session|delta|response_id|item_id|call_id|arguments|transcript)",
        value in json_value(),
    ) {
        let mut wire = Wire::default();
        let mut event: Value = serde_json::from_str(kind).expect("fixtures are JSON");
        event[name] = value;
        let before = wire.audio.len();
        match wire.receives(event) {
            Decoded::Event(ModelEvent::AudioReceived { samples, .. }) => {
                prop_assert_eq!(wire.audio.len() - before, samples.0 as usize);
            }
            _ => prop_assert_eq!(wire.audio.len(), before),
        }
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("(id|status|type|code|call_id|name|metadata|output)", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}
