//! The simulated model over a real WebSocket, as a client of the service would see it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use sim::model::{self, LoadedScript, ModelConfig, ModelServer, Pace};
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

const SCRIPT: &str = r#"
transcripts = ["book a table please", "by the window"]

[[rules]]
after = "nothing"
nth = 1
say = { file = "builtin:agent_window", text = "Good evening, how can I help?" }

[[rules]]
after = "user"
context_contains = "book a table"
once = true
say = { file = "builtin:agent_window", text = "One moment please.", phase = "commentary" }
call = { name = "book_table", arguments = { party = 2 } }
more_calls = [{ name = "note", arguments = { wish = "window" } }]

[[rules]]
after = "tool_output"
say = { file = "builtin:agent_goodbye", text = "Your table is booked." }

[[rules]]
instructions_contain = "fail now"
fail = "inference_rate_limit_exceeded"

[[rules]]
empty = true
"#;

struct Client {
    ws: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

async fn server(change: impl FnOnce(&mut ModelConfig)) -> ModelServer {
    let mut config = ModelConfig::new(LoadedScript::parse(SCRIPT, Path::new(".")).unwrap());
    // Set by hand to have every event checked against the vendor's published types.
    config.wire_log = std::env::var_os("SIM_MODEL_WIRE_LOG").map(Into::into);
    config.pace = Pace { chunk_ms: 200, speed: 0.0 };
    change(&mut config);
    model::start(config).await.unwrap()
}

impl Client {
    async fn try_connect(server: &ModelServer, query: &str, token: Option<&str>) -> Result<Self, Error> {
        let mut request = format!("{}/realtime{query}", server.base_url()).into_client_request().unwrap();
        if let Some(token) = token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let (ws, _) = tokio_tungstenite::connect_async_with_config(request, None, true).await?;
        Ok(Self { ws })
    }

    /// Connected, greeted and configured for the telephone, turn detection as events only.
    async fn connect(server: &ModelServer) -> Self {
        let mut client = Self::try_connect(server, "?model=gpt-realtime-2.1", Some("key")).await.unwrap();
        let created = client.next().await;
        assert_eq!(created["type"], "session.created");
        client
            .send(json!({ "type": "session.update", "session": {
                "type": "realtime", "instructions": "Be kind.",
                "audio": {
                    "input": { "format": { "type": "audio/pcmu" }, "transcription": { "model": "gpt-transcribe" },
                        "turn_detection": { "type": "server_vad", "create_response": false, "interrupt_response": false } },
                    "output": { "format": { "type": "audio/pcmu" }, "voice": "cedar" } } } }))
            .await;
        let updated = client.next().await;
        assert_eq!(updated["type"], "session.updated");
        assert_eq!(updated["session"]["audio"]["input"]["turn_detection"]["silence_duration_ms"], 500);
        assert_eq!(updated["session"]["audio"]["output"]["voice"], "cedar");
        client
    }

    async fn send(&mut self, event: Value) {
        self.ws.send(Message::text(event.to_string())).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        let message = tokio::time::timeout(Duration::from_secs(5), self.ws.next()).await.expect("an event in time");
        serde_json::from_str(message.unwrap().unwrap().to_text().unwrap()).unwrap()
    }

    /// Events up to and including the one of this type.
    async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await;
            assert!(event["event_id"].is_string(), "{event}");
            let last = event["type"] == kind;
            events.push(event);
            if last {
                return events;
            }
        }
    }

    async fn speak(&mut self, voice: &str) {
        let mut line = sim::voices::builtin(voice).unwrap().to_vec();
        line.extend([0xff; 6_400]);
        for frame in line.chunks(160) {
            self.send(json!({ "type": "input_audio_buffer.append", "audio": STANDARD.encode(frame) })).await;
        }
    }

    async fn respond(&mut self, response: Value) -> Vec<Value> {
        self.send(json!({ "type": "response.create", "event_id": "mine", "response": response })).await;
        self.until("rate_limits.updated").await
    }
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
    kinds.dedup();
    kinds
}

fn find<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    events.iter().find(|e| e["type"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

#[tokio::test]
async fn an_upgrade_without_key_model_or_path_is_refused() {
    let server = server(|c| c.api_key = Some("key".into())).await;
    for (query, token, status) in [
        ("?model=m", None, 401),
        ("?model=m", Some("wrong"), 401),
        ("", Some("key"), 400),
        ("x?model=m", Some("key"), 404),
    ] {
        match Client::try_connect(&server, query, token).await {
            Err(Error::Http(answer)) => assert_eq!(answer.status().as_u16(), status, "{query} {token:?}"),
            other => panic!("{query} {token:?}: {:?}", other.map(|_| "connected")),
        }
    }
    assert!(Client::try_connect(&server, "?model=m", Some("key")).await.is_ok());
}

#[tokio::test]
async fn a_spoken_response_has_every_event_in_order_and_its_metadata() {
    let server = server(|_| {}).await;
    let mut client = Client::connect(&server).await;
    let events = client.respond(json!({ "metadata": { "request": "r1" } })).await;
    let mut order = kinds(&events);
    order.retain(|k| *k != "response.output_audio.delta" && *k != "response.output_audio_transcript.delta");
    assert_eq!(
        order,
        [
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            "response.output_audio.done",
            "response.output_audio_transcript.done",
            "response.content_part.done",
            "conversation.item.done",
            "response.output_item.done",
            "response.done",
            "rate_limits.updated",
        ]
    );
    assert_eq!(find(&events, "response.created")["response"]["metadata"]["request"], "r1");
    let done = &find(&events, "response.done")["response"];
    assert_eq!((done["status"].as_str(), done["metadata"]["request"].as_str()), (Some("completed"), Some("r1")));
    let audio: Vec<u8> = events
        .iter()
        .filter(|e| e["type"] == "response.output_audio.delta")
        .flat_map(|e| STANDARD.decode(e["delta"].as_str().unwrap()).unwrap())
        .collect();
    assert_eq!(audio, sim::voices::builtin("agent_window").unwrap());
    let text: String = events
        .iter()
        .filter(|e| e["type"] == "response.output_audio_transcript.delta")
        .map(|e| e["delta"].as_str().unwrap())
        .collect();
    assert_eq!(text, "Good evening, how can I help?");
}

#[tokio::test]
async fn a_turn_is_detected_committed_and_transcribed_and_answered_only_on_request() {
    let server = server(|_| {}).await;
    let mut client = Client::connect(&server).await;
    client.speak("caller_request").await;
    let events = client.until("conversation.item.input_audio_transcription.completed").await;
    assert_eq!(
        kinds(&events),
        [
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            "conversation.item.input_audio_transcription.completed",
        ]
    );
    let item = &events[0]["item_id"].clone();
    assert!(events[1..3].iter().chain(&events[5..]).all(|e| e["item_id"] == *item), "{events:?}");
    assert_eq!(events[5]["transcript"], "book a table please");

    // Two calls in one response, each whole before the response is done.
    let events = client.respond(json!({})).await;
    let calls: Vec<&Value> = events
        .iter()
        .filter(|e| e["type"] == "response.output_item.done" && e["item"]["type"] == "function_call")
        .collect();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0]["item"]["arguments"], r#"{"party":2}"#);
    assert_eq!(events.iter().filter(|e| e["type"] == "response.function_call_arguments.done").count(), 2);
    assert_eq!(find(&events, "response.output_item.added")["item"]["phase"], "commentary");
    assert_eq!(find(&events, "conversation.item.added")["previous_item_id"], *item);
    assert_eq!(find(&events, "response.done")["response"]["output"].as_array().unwrap().len(), 3);

    // The output alone is silent; a response then speaks.
    let call_id = calls[0]["item"]["call_id"].as_str().unwrap().to_owned();
    client
        .send(json!({ "type": "conversation.item.create", "item": {
            "type": "function_call_output", "call_id": call_id, "output": "{\"reference\":\"B-7\"}" } }))
        .await;
    assert_eq!(
        kinds(&client.until("conversation.item.done").await),
        ["conversation.item.added", "conversation.item.done"]
    );
    let events = client.respond(json!({})).await;
    assert_eq!(find(&events, "response.output_audio_transcript.done")["transcript"], "Your table is booked.");
    let record = server.record();
    assert_eq!(record.tool_outputs(), [(call_id, "{\"reference\":\"B-7\"}".to_owned())]);
    assert_eq!(record.sessions[0].responses.iter().map(|r| r.rule).collect::<Vec<_>>(), [Some(2), Some(3)]);
}

#[tokio::test]
async fn a_second_create_is_refused_with_our_event_id_and_the_first_goes_on() {
    let server = server(|c| c.pace = Pace { chunk_ms: 100, speed: 20.0 }).await;
    let mut client = Client::connect(&server).await;
    client.send(json!({ "type": "response.create" })).await;
    client.send(json!({ "type": "response.create", "event_id": "second" })).await;
    let events = client.until("response.done").await;
    let error = &find(&events, "error")["error"];
    assert_eq!(error["code"], "conversation_already_has_active_response");
    assert_eq!(error["event_id"], "second");
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
}

#[tokio::test]
async fn an_out_of_band_response_runs_beside_the_conversation() {
    let server = server(|c| c.pace = Pace { chunk_ms: 100, speed: 20.0 }).await;
    let mut client = Client::connect(&server).await;
    client.send(json!({ "type": "response.create" })).await;
    client
        .send(json!({ "type": "response.create", "response": { "conversation": "none", "metadata": { "k": "oob" } } }))
        .await;
    let events = client.until("response.done").await;
    let oob = &events.last().unwrap()["response"];
    assert_eq!((oob["metadata"]["k"].as_str(), oob["conversation_id"].is_null()), (Some("oob"), true));
    assert!(!events.iter().any(|e| e["type"] == "error"));
}

#[tokio::test]
async fn cancelling_closes_the_open_item_as_incomplete_and_nothing_active_is_a_mild_error() {
    let server = server(|c| c.pace = Pace { chunk_ms: 100, speed: 2.0 }).await;
    let mut client = Client::connect(&server).await;
    client.send(json!({ "type": "response.create" })).await;
    client.until("response.output_audio.delta").await;
    client.send(json!({ "type": "response.cancel" })).await;
    let events = client.until("response.done").await;
    assert_eq!(find(&events, "response.output_item.done")["item"]["status"], "incomplete");
    let done = &find(&events, "response.done")["response"];
    assert_eq!(done["status"], "cancelled");
    assert_eq!(done["status_details"], json!({ "type": "cancelled", "reason": "client_cancelled" }));
    client.send(json!({ "type": "response.cancel", "event_id": "late" })).await;
    let events = client.until("error").await;
    assert_eq!(events.last().unwrap()["error"]["code"], "response_cancel_not_active");
    assert_eq!(events.last().unwrap()["error"]["event_id"], "late");
}

#[tokio::test]
async fn a_cancel_before_created_does_nothing_and_the_response_appears() {
    let server = server(|c| c.faults.create_delay_ms = 100).await;
    let mut client = Client::connect(&server).await;
    client.send(json!({ "type": "response.create" })).await;
    client.send(json!({ "type": "response.cancel" })).await;
    let events = client.until("response.done").await;
    assert_eq!(events[0]["error"]["code"], "response_cancel_not_active");
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
}

#[tokio::test]
async fn turn_detection_that_owns_responses_interrupts_and_answers() {
    let server = server(|c| c.pace = Pace { chunk_ms: 100, speed: 1.0 }).await;
    let mut client = Client::connect(&server).await;
    client
        .send(json!({ "type": "session.update", "session": { "type": "realtime",
            "audio": { "input": { "turn_detection": { "type": "server_vad" } } } } }))
        .await;
    client.send(json!({ "type": "response.create" })).await;
    client.until("response.output_audio.delta").await;
    client.speak("caller_request").await;
    let events = client.until("response.done").await;
    let done = &find(&events, "response.done")["response"];
    assert_eq!(done["status_details"]["reason"], "turn_detected");
    client.until("response.created").await;
    assert!(server.record().sessions[0].responses[1].by_turn_detection);
}

#[tokio::test]
async fn truncation_is_checked_against_the_audio_that_was_sent() {
    let server = server(|_| {}).await;
    let mut client = Client::connect(&server).await;
    let events = client.respond(json!({})).await;
    let item = find(&events, "response.output_item.done")["item"]["id"].as_str().unwrap().to_owned();
    let truncate = |item: &str, ms: i64| json!({ "type": "conversation.item.truncate", "event_id": "cut", "item_id": item, "content_index": 0, "audio_end_ms": ms });
    client.send(truncate(&item, 99_000)).await;
    let error = client.next().await;
    assert_eq!(error["error"]["code"], "invalid_value");
    assert!(error["error"]["message"].as_str().unwrap().contains("is already shorter than 99000ms"), "{error}");
    client.send(truncate(&item, 700)).await;
    let cut = client.next().await;
    assert_eq!((cut["type"].as_str(), cut["audio_end_ms"].as_i64()), (Some("conversation.item.truncated"), Some(700)));
    client.send(truncate(&item, 800)).await;
    assert_eq!(client.next().await["error"]["code"], "invalid_value");
    client.send(json!({ "type": "conversation.item.retrieve", "item_id": item })).await;
    let kept = client.next().await;
    assert!(kept["item"]["content"][0]["transcript"].is_null(), "{kept}");
    client.send(truncate("item_nowhere", 1)).await;
    assert_eq!(client.next().await["error"]["code"], "item_truncate_invalid_item_id");
    client
        .send(json!({ "type": "conversation.item.create", "item": { "id": "sys1", "type": "message", "role": "system",
            "content": [{ "type": "input_text", "text": "note" }] } }))
        .await;
    client.until("conversation.item.done").await;
    client.send(truncate("sys1", 1)).await;
    assert_eq!(client.next().await["error"]["code"], "unsupported_content_type");
    let record = server.record();
    let accepted: Vec<bool> = record.sessions[0].truncations.iter().map(|t| t.accepted).collect();
    assert_eq!(accepted, [false, true, false, false, false]);
}

#[tokio::test]
async fn client_mistakes_are_answered_with_their_code_and_the_session_lives() {
    let server = server(|_| {}).await;
    let mut client = Client::connect(&server).await;
    let item = |item: Value| json!({ "type": "conversation.item.create", "item": item });
    for (event, code) in [
        (json!({ "type": "nonsense" }), "invalid_value"),
        (json!({ "type": "session.update", "session": { "instructions": "x" } }), "missing_required_parameter"),
        (json!({ "type": "session.update", "session": { "type": "realtime", "voice": "cedar" } }), "unknown_parameter"),
        (
            json!({ "type": "session.update", "session": { "type": "realtime",
                "audio": { "input": { "format": { "type": "audio/pcmu", "rate": 8000 } } } } }),
            "invalid_value",
        ),
        (json!({ "type": "input_audio_buffer.append", "audio": "%%%" }), "invalid_value"),
        (json!({ "type": "input_audio_buffer.commit" }), "input_audio_buffer_commit_empty"),
        (item(json!({ "type": "function_call_output", "call_id": "none", "output": "x" })), "invalid_tool_call_id"),
        (json!({ "type": "conversation.item.delete", "item_id": "none" }), "item_delete_invalid_item_id"),
        (json!({ "type": "conversation.item.retrieve", "item_id": "none" }), "item_retrieve_invalid_item_id"),
    ] {
        let mut event = event;
        event["event_id"] = "e1".into();
        client.send(event.clone()).await;
        let answer = client.next().await;
        assert_eq!(
            (answer["error"]["code"].as_str(), answer["error"]["event_id"].as_str()),
            (Some(code), Some("e1")),
            "{event}"
        );
    }
    client.ws.send(Message::text("not json")).await.unwrap();
    assert_eq!(client.next().await["error"]["code"], "invalid_json");
    let message =
        json!({ "id": "one", "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "hi" }] });
    client.send(item(message.clone())).await;
    client.until("conversation.item.done").await;
    client.send(item(message)).await;
    assert_eq!(client.next().await["error"]["code"], "item_create_duplicate_item_id");
    client.send(json!({ "type": "conversation.item.delete", "item_id": "one" })).await;
    assert_eq!(client.next().await["type"], "conversation.item.deleted");
}

#[tokio::test]
async fn a_failed_response_says_so_and_a_refused_create_can_be_asked_again() {
    let server = server(|c| c.faults.refuse_creates = 1).await;
    let mut client = Client::connect(&server).await;
    client.send(json!({ "type": "response.create", "event_id": "first" })).await;
    assert_eq!(client.next().await["error"]["code"], "conversation_already_has_active_response");
    client.respond(json!({})).await;
    let events = client.respond(json!({ "instructions": "Please FAIL NOW." })).await;
    let done = &find(&events, "response.done")["response"];
    assert_eq!(done["status"], "failed");
    assert_eq!(done["status_details"]["error"]["code"], "inference_rate_limit_exceeded");
}

#[tokio::test]
async fn the_connection_is_dropped_where_the_fault_says() {
    let server = server(|c| c.faults.drop_after_responses = Some(1)).await;
    let mut client = Client::connect(&server).await;
    client.respond(json!({})).await;
    let end = tokio::time::timeout(Duration::from_secs(5), client.ws.next()).await.unwrap();
    assert!(!matches!(end, Some(Ok(Message::Text(_)))), "{end:?}");
    // The script goes on in the next session: the greeting was said once a session, the booking once a server.
    server.set_faults(|f| f.drop_after_responses = None);
    Client::connect(&server).await.respond(json!({})).await;
    assert_eq!(server.record().sessions.len(), 2);
}

#[tokio::test]
async fn a_response_that_may_not_call_tools_only_speaks() {
    let server = server(|_| {}).await;
    let mut client = Client::connect(&server).await;
    client.speak("caller_request").await;
    client.until("conversation.item.input_audio_transcription.completed").await;
    let events = client.respond(json!({ "tool_choice": "none" })).await;
    let output = find(&events, "response.done")["response"]["output"].clone();
    assert_eq!(output.as_array().unwrap().iter().map(|i| i["type"].as_str().unwrap()).collect::<Vec<_>>(), ["message"]);
}

#[tokio::test]
async fn a_session_that_wants_text_gets_text_and_no_sound() {
    let server = server(|_| {}).await;
    let mut client = Client::connect(&server).await;
    let events = client.respond(json!({ "output_modalities": ["text"] })).await;
    assert!(events.iter().all(|e| !e["type"].as_str().unwrap().starts_with("response.output_audio")));
    assert_eq!(find(&events, "response.output_text.done")["text"], "Good evening, how can I help?");
    assert_eq!(find(&events, "response.output_item.done")["item"]["content"][0]["type"], "output_text");
}

#[tokio::test]
async fn deltas_are_paced_when_a_pace_is_asked_for() {
    // Real time on purpose: pacing is what is tested; 2 s of voice at 8 times speed.
    let server = server(|c| c.pace = Pace { chunk_ms: 200, speed: 8.0 }).await;
    let mut client = Client::connect(&server).await;
    let started = std::time::Instant::now();
    client.respond(json!({})).await;
    let took = started.elapsed();
    assert!(took > Duration::from_millis(200) && took < Duration::from_millis(1_500), "{took:?}");
}

#[tokio::test]
async fn a_session_at_24_khz_is_heard_and_answered_at_24_khz() {
    let server = server(|_| {}).await;
    let mut client = Client::connect(&server).await;
    let pcm = json!({ "type": "audio/pcm", "rate": 24_000 });
    client
        .send(json!({ "type": "session.update", "session": {
            "type": "realtime", "audio": { "input": { "format": pcm }, "output": { "format": pcm } } } }))
        .await;
    client.until("session.updated").await;
    // The voice again, each sample three times: rough, but speech.
    let voice = sim::voices::builtin("caller_request").unwrap();
    let linear = |&byte: &u8| audio_codec_algorithms::decode_ulaw(byte).to_le_bytes();
    let mut line: Vec<u8> = voice.iter().flat_map(|byte| [linear(byte); 3].concat()).collect();
    line.extend(vec![0u8; 6_400 * 6]);
    for frame in line.chunks(960) {
        client.send(json!({ "type": "input_audio_buffer.append", "audio": STANDARD.encode(frame) })).await;
    }
    let turn = client.until("input_audio_buffer.committed").await;
    let (started, stopped) =
        (find(&turn, "input_audio_buffer.speech_started"), find(&turn, "input_audio_buffer.speech_stopped"));
    let spoken_ms = stopped["audio_end_ms"].as_u64().unwrap() - started["audio_start_ms"].as_u64().unwrap();
    assert!((voice.len() as u64 / 8 - 400..voice.len() as u64 / 8 + 800).contains(&spoken_ms), "{spoken_ms}");

    let events = client.respond(json!({})).await;
    let deltas = events.iter().filter(|e| e["type"] == "response.output_audio.delta");
    let sizes: Vec<usize> = deltas.map(|e| STANDARD.decode(e["delta"].as_str().unwrap()).unwrap().len()).collect();
    assert!(sizes[..sizes.len() - 1].iter().all(|&bytes| bytes == 200 * 48), "{sizes:?}");
    assert_eq!(sizes.iter().sum::<usize>(), sim::voices::builtin("agent_window").unwrap().len() * 6);
}

#[tokio::test]
async fn a_close_is_answered_with_a_close() {
    let server = server(|_| {}).await;
    let mut client = Client::connect(&server).await;
    client.ws.close(None).await.unwrap();
    let last = tokio::time::timeout(Duration::from_secs(5), client.ws.next()).await.unwrap();
    assert!(matches!(last, Some(Ok(Message::Close(_)))), "{last:?}");
}
