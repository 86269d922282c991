//! Our client events against a golden file. That file was checked against the vendor's own types with nothing extra.

use bytes::BytesMut;
use models::openai_realtime::ids::Ids;
use models::openai_realtime::wire::{Encoded, Standing, append, decode, encode, session_update};
use models::{Eagerness, Provider, SessionConfig, ToolSpec, TurnDetection};
use serde_json::{Value, json};
use vocab::model::ModelCommand;
use vocab::{AudioMs, ModelItemId, ProviderCallId, ResponseId};

const CLIENT_EVENTS: &str = include_str!("fixtures/openai_realtime/client_events.jsonl");

fn config() -> SessionConfig {
    SessionConfig {
        provider: Provider::default(),
        base_url: "wss://api.openai.com/v1".into(),
        model: "gpt-realtime-2.1".into(),
        api_key: "sk-test".to_owned().into(),
        instructions: "You take bookings.".into(),
        voice: "marin".into(),
        language: Some("en".into()),
        transcription: Some("gpt-transcribe".into()),
        tools: vec![ToolSpec {
            name: "book_table".into(),
            description: "Books a table.".into(),
            parameters: json!({"type": "object", "properties": {"party": {"type": "integer"}}, "required": ["party"]}),
        }],
        turn_detection: TurnDetection::SemanticEvents { eagerness: Eagerness::High },
    }
}

#[test]
fn every_client_event_has_the_vendors_shape() {
    let mut ids = Ids::default();
    let mut written: Vec<Value> = Vec::new();
    let mut out = BytesMut::new();
    let mut keep = |out: &mut BytesMut| {
        written.push(serde_json::from_slice(out).expect("we write JSON"));
        out.clear();
    };

    let config = config();
    session_update(&config, &mut ids, &mut out);
    keep(&mut out);
    let bare = SessionConfig { tools: vec![], transcription: None, turn_detection: TurnDetection::Off, ..config };
    session_update(&bare, &mut ids, &mut out);
    keep(&mut out);
    append(&[0xff, 0xfe, 0xfd, 0xfc], &mut out);
    keep(&mut out);

    let standing = Standing::of(&bare);
    let mut send = |command: ModelCommand, ids: &mut Ids| {
        assert_eq!(encode(&command, &standing, ids, &mut out), Encoded::Written, "{command:?}");
        keep(&mut out);
    };
    send(ModelCommand::CommitTurn, &mut ids);
    send(ModelCommand::CreateResponse { response: ResponseId(5), directions: None, tools: true }, &mut ids);
    let directions = Some("Say only that you are looking.".to_owned());
    send(ModelCommand::CreateResponse { response: ResponseId(6), directions, tools: false }, &mut ids);

    let created =
        json!({"type": "response.created", "response": {"id": "resp_1", "metadata": {"answerback_response": "r5"}}});
    let mut audio = Vec::new();
    decode(&created.to_string(), &mut ids, &mut audio);
    for item in ["item_m1", "item_m2"] {
        let delta = json!({"type": "response.output_audio.delta", "response_id": "resp_1", "item_id": item,
            "delta": "f39/".repeat(800)});
        decode(&delta.to_string(), &mut ids, &mut audio);
    }
    send(ModelCommand::CancelResponse { response: ResponseId(5) }, &mut ids);
    send(ModelCommand::TruncateItem { item: ModelItemId(0), audio_end: AudioMs(2_100) }, &mut ids);
    send(ModelCommand::DeleteItem { item: ModelItemId(1) }, &mut ids);
    let output = r#"{"status":"accepted"}"#.to_owned();
    send(ModelCommand::SubmitToolOutput { provider_call: ProviderCallId::new("call_1"), output }, &mut ids);
    send(ModelCommand::AddContext { text: "The booking is confirmed.".into() }, &mut ids);

    let golden: Vec<Value> =
        CLIENT_EVENTS.lines().map(|line| serde_json::from_str(line).expect("the golden file is JSON")).collect();
    assert_eq!(written.len(), golden.len());
    for (written, golden) in written.iter().zip(&golden) {
        assert_eq!(written, golden);
    }
}

#[test]
fn appended_audio_of_any_length_reads_back() {
    use base64::Engine;
    let mut out = BytesMut::new();
    for length in [1, 2, 3, 159, 160, 161, 4_000] {
        let mulaw: Vec<u8> = (0..length).map(|n| (n * 37 % 256) as u8).collect();
        out.clear();
        append(&mulaw, &mut out);
        let event: Value = serde_json::from_slice(&out).expect("we write JSON");
        let audio = event["audio"].as_str().expect("audio is text");
        let read = base64::engine::general_purpose::STANDARD.decode(audio).expect("audio is base64");
        assert_eq!(read, mulaw);
    }
}
