//! What each event of the service means, and what each command becomes.

use super::call::*;
use models::Delegation;
use models::gpt_live::commands::Obeyed;
use models::gpt_live::session::{Received, STALL_MS};
use models::gpt_live::wire::Ignored;
use serde_json::{Value, json};
use vocab::model::{ModelCommand, ModelEvent, ResponseEnd};
use vocab::{AudioMs, ModelItemId, ModelResponseId, ProviderCallId, ResponseId, Samples};

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
