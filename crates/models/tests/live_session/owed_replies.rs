//! The situations of owed replies (behaviour.md, B1 to B7, B9 to B11) as far as an adapter decides them.

use super::call::*;
use models::gpt_live::commands::Obeyed;
use models::gpt_live::requests::VOICE_WAIT_MS;
use models::gpt_live::voice::BREATH_GAP_MS;
use serde_json::{Value, json};
use vocab::model::{ModelCommand, ModelEvent, ResponseEnd};
use vocab::{AudioMs, ModelItemId, ModelResponseId, ResponseId};

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
fn b7_a_run_that_nobody_asked_for_is_the_continuation_that_is_asked_for_afterwards() {
    // Asked for while it runs and as it begins, and after its end; the create would be refused each time.
    for asked_at in 0..3 {
        let mut call = Call::started();
        call.runs_with_calls(Some("dlg_1"), &["call_1"]);
        call.submits("call_1");
        call.told();
        call.sent();
        call.runs(Some("dlg_1"), created("resp_2"));
        if asked_at == 1 {
            call.runs(Some("dlg_1"), json!({"type": "response.output_text.delta", "delta": "Done"}));
        }
        if asked_at < 2 {
            call.creates(7, Some("Also tell the caller."));
        }
        call.runs(Some("dlg_1"), completed("resp_2"));
        if asked_at == 2 {
            call.creates(7, Some("Also tell the caller."));
        }
        let sent = call.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        assert_eq!(sent[0]["type"], "session.thinking.append", "to be asked again is to tell it again");
        assert_eq!(call.speaks(), [opens(1, Some(7)), ends(1, Some(7), DONE)]);
        call.creates(8, Some("Tell it."));
        assert_eq!(call.sent_kinds(), ["session.commentary.append"]);
    }
}

#[test]
fn b7_an_unasked_run_that_begins_while_our_create_is_on_its_way_is_not_told_twice() {
    for ends_before_the_refusal in [false, true] {
        let mut call = Call::started();
        call.runs_with_calls(Some("dlg_1"), &["call_1"]);
        call.submits("call_1");
        call.creates(7, None);
        let create = call.sent().pop().expect("it was sent");
        call.told();
        call.runs(Some("dlg_1"), created("resp_2"));
        if ends_before_the_refusal {
            call.runs(Some("dlg_1"), completed("resp_2"));
        }
        let error = json!({"type": "invalid_request_error", "code": "invalid_value", "message": "One is in progress.",
            "client_event_id": create["event_id"]});
        call.says(json!({"type": "error", "error": error}));
        assert!(matches!(call.told()[..], [ModelEvent::CreateRefused { request: ResponseId(7), .. }]));
        call.creates(8, Some("Also tell the caller."));
        assert_eq!(call.sent_kinds(), ["session.thinking.append"]);
        if !ends_before_the_refusal {
            call.runs(Some("dlg_1"), completed("resp_2"));
        }
        assert_eq!(call.speaks(), [opens(1, Some(8)), ends(1, Some(8), DONE)]);
    }
}

#[test]
fn b7_an_unasked_run_whose_answer_is_being_told_is_nobodys() {
    let mut call = Call::started();
    call.runs_with_calls(None, &["call_1"]);
    call.submits("call_1");
    call.runs(None, created("resp_2"));
    call.runs(None, completed("resp_2"));
    call.told();
    call.sent();
    call.streams(LOUD, 400);
    assert_eq!(call.told(), [opens(1, None)]);
    call.creates(7, Some("Tell it."));
    assert_eq!(call.sent_kinds(), ["session.commentary.append"]);
}

#[test]
fn b4_a_continuation_that_the_service_will_not_run_again_is_left_to_the_voice() {
    let mut call = Call::started();
    call.runs_with_calls(None, &["call_1"]);
    call.submits("call_1");
    call.creates(7, None);
    call.runs(None, created("resp_2"));
    call.runs(None, failed("resp_2"));
    call.sent();
    let refuse = |call: &mut Call, request: u32| {
        call.told();
        call.creates(request, None);
        let sent = call.sent();
        assert_eq!(sent[0]["type"], "response.create");
        let error = json!({"type": "invalid_request_error", "code": "invalid_value", "message": "Nothing to continue with.",
            "client_event_id": sent[0]["event_id"]});
        call.says(json!({"type": "error", "error": error}));
        let told = call.told();
        assert!(matches!(told[..], [ModelEvent::CreateRefused { busy: false, .. }]), "{told:?}");
    };
    refuse(&mut call, 8);
    assert_eq!(call.sent_kinds(), [] as [&str; 0], "it may have met a run of which nothing was told yet");
    refuse(&mut call, 9);
    let known = call.sent();
    assert_eq!(known[0]["type"], "session.thinking.append");
    assert_eq!(known[0]["content"], "The result of book: {\"of\":\"call_1\"}");
    call.creates(10, None);
    assert_eq!(call.sent_kinds(), ["session.commentary.append"]);
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
