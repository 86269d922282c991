//! The simulated Live service over a real WebSocket, as a client of the service would see it. In real time, since the service is.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use sim::model::{self, LoadedScript, ModelConfig, ModelServer};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

const SCRIPT: &str = r#"
transcripts = ["book a table please"]

[[rules]]
instructions_contain = "greet"
say = { file = "builtin:agent_window", text = "Good evening, how can I help?" }

[[rules]]
after = "user"
call = { name = "book_table", arguments = { party = 2 } }
more_calls = [{ name = "note", arguments = { wish = "window" } }]

[[rules]]
after = "tool_output"
context_contains = "B-7"
say = { file = "builtin:agent_goodbye", text = "Your table is booked." }
"#;

struct Client {
    ws: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// Events that came before those that were waited for.
    seen: Vec<Value>,
}

async fn server(change: impl FnOnce(&mut ModelConfig)) -> ModelServer {
    let mut config = ModelConfig::new(LoadedScript::parse(SCRIPT, Path::new(".")).unwrap());
    // Set by hand to have every event checked against the vendor's published types.
    config.wire_log = std::env::var_os("SIM_MODEL_WIRE_LOG").map(Into::into);
    change(&mut config);
    model::start(config).await.unwrap()
}

fn responses() -> Value {
    json!({ "type": "responses", "responses": { "model": "backend-1", "tools": [] } })
}

impl Client {
    async fn connect(server: &ModelServer, token: Option<&str>) -> Result<Self, Error> {
        let mut request = format!("{}/live/sessions", server.base_url()).into_client_request().unwrap();
        if let Some(token) = token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let (ws, _) = tokio_tungstenite::connect_async_with_config(request, None, true).await?;
        Ok(Self { ws, seen: Vec::new() })
    }

    async fn start(server: &ModelServer, delegation: Value) -> Self {
        let mut client = Self::connect(server, Some("key")).await.unwrap();
        client
            .send(json!({ "type": "session.start", "event_id": "mine", "session": {
                "model": "gpt-live-1", "delegation": delegation,
                "audio": { "format": { "type": "audio/pcmu", "rate": 8000 } } } }))
            .await;
        let started = client.until("session.started").await;
        assert_eq!(started["client_event_id"], "mine");
        assert_eq!(started["session"]["audio"]["output"]["voice"], "marin");
        client
    }

    async fn send(&mut self, event: Value) {
        self.ws.send(Message::text(event.to_string())).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        let message = tokio::time::timeout(Duration::from_secs(5), self.ws.next()).await.expect("an event in time");
        serde_json::from_str(message.unwrap().unwrap().to_text().unwrap()).unwrap()
    }

    /// The next event of this type, nested or not; silence is fed meanwhile, as a line does.
    async fn until(&mut self, kind: &str) -> Value {
        let end = Instant::now() + Duration::from_secs(15);
        loop {
            assert!(Instant::now() < end, "no {kind} among {:?}", self.kinds());
            let event = self.next().await;
            if event["type"] == "session.output_audio.delta" && self.seen.iter().any(|e| e["type"] == "feed") {
                self.feed(&[0xff; 800]).await;
            }
            self.seen.push(event.clone());
            if event["type"] == kind || event["event"]["type"] == kind {
                return event;
            }
        }
    }

    async fn feed(&mut self, mulaw: &[u8]) {
        self.send(json!({ "type": "session.input_audio.append", "audio": STANDARD.encode(mulaw) })).await;
    }

    /// From now on the line is silent rather than dead.
    fn keep_the_line_open(&mut self) {
        self.seen.push(json!({ "type": "feed" }));
    }

    async fn speak(&mut self, voice: &str) {
        let mut line = sim::voices::builtin(voice).unwrap().to_vec();
        line.extend([0xff; 6_400]);
        for frame in line.chunks(160) {
            self.feed(frame).await;
        }
    }

    fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> = self
            .seen
            .iter()
            .filter_map(|event| event["event"]["type"].as_str().or(event["type"].as_str()))
            .filter(|kind| !matches!(*kind, "session.output_audio.delta" | "feed"))
            .collect();
        kinds.dedup();
        kinds
    }

    /// The code and the place of the error that answers this.
    async fn refused(&mut self, event: Value) -> (String, String) {
        let mut event = event;
        event["event_id"] = "bad".into();
        self.send(event).await;
        let error = self.until("error").await;
        assert_eq!(error["error"]["client_event_id"], "bad");
        let text = |name: &str| error["error"][name].as_str().unwrap_or_default().to_owned();
        (text("code"), if error["error"]["param"].is_null() { text("message") } else { text("param") })
    }
}

fn sound(events: &[Value]) -> Vec<u8> {
    let deltas = events.iter().filter(|e| e["type"] == "session.output_audio.delta");
    deltas.flat_map(|e| STANDARD.decode(e["delta"].as_str().unwrap()).unwrap()).collect()
}

#[tokio::test]
async fn an_upgrade_without_a_key_is_refused_and_nothing_works_before_the_start() {
    let server = server(|c| c.api_key = Some("key".into())).await;
    match Client::connect(&server, Some("wrong")).await {
        Err(Error::Http(answer)) => assert_eq!(answer.status().as_u16(), 401),
        other => panic!("{:?}", other.map(|_| "connected")),
    }
    let mut client = Client::connect(&server, Some("key")).await.unwrap();
    let (code, _) = client.refused(json!({ "type": "session.close" })).await;
    assert_eq!(code, "invalid_event");
    let start = |session: Value| json!({ "type": "session.start", "session": session });
    for (session, code, place) in [
        (json!({ "model": "m", "voice": "marin" }), "unknown_parameter", "session.voice"),
        (json!({}), "missing_required_parameter", "session.model"),
        (
            json!({ "model": "m", "audio": { "format": { "type": "audio/pcmu" } } }),
            "invalid_value",
            "session.audio.format",
        ),
        (
            json!({ "model": "m", "delegation": { "type": "responses", "responses": {} } }),
            "missing_required_parameter",
            "session.delegation.responses.model",
        ),
    ] {
        assert_eq!(client.refused(start(session)).await, (code.to_owned(), place.to_owned()));
    }
}

#[tokio::test]
async fn output_is_a_stream_in_real_time_and_an_append_is_acknowledged_only_while_input_flows() {
    let server = server(|_| {}).await;
    let mut client = Client::start(&server, Value::Null).await;
    let began = Instant::now();
    client
        .send(json!({ "type": "session.commentary.append", "event_id": "c1", "delegation_id": null,
        "content": "Greet the caller." }))
        .await;
    for _ in 0..10 {
        client.until("session.output_audio.delta").await;
    }
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(800), "a second of sound in {took:?}");
    assert!(sound(&client.seen).iter().all(|byte| *byte == 0xff));
    assert_eq!(client.kinds(), ["session.started"]);

    client.keep_the_line_open();
    client.feed(&[0xff; 160]).await;
    let ack = client.until("session.commentary.appended").await;
    assert_eq!(ack["client_event_id"], "c1");
    let words = client.until("session.output_transcript.delta").await;
    assert!(words["start_ms"].as_u64().unwrap() >= ack["start_ms"].as_u64().unwrap(), "{words}");
    let voice = sim::voices::builtin("agent_window").unwrap();
    while sound(&client.seen).iter().filter(|byte| **byte != 0xff).count()
        < voice.iter().filter(|b| **b != 0xff).count()
    {
        client.until("session.output_audio.delta").await;
    }
    let text: String = client
        .seen
        .iter()
        .filter(|e| e["type"] == "session.output_transcript.delta")
        .map(|e| e["delta"].as_str().unwrap())
        .collect();
    assert!("Good evening, how can I help?".starts_with(&text) && text.len() > 15, "{text}");
}

#[tokio::test]
async fn a_turn_becomes_a_run_with_reasoning_first_and_a_batch_is_taken_whole_and_once() {
    let server = server(|_| {}).await;
    let mut client = Client::start(&server, responses()).await;
    client.keep_the_line_open();
    client.speak("caller_request").await;
    let delegated = client.until("session.delegation.created").await;
    assert_eq!(delegated["delegation"]["target"], "responses");
    client.until("response.completed").await;
    let items: Vec<Value> = client
        .seen
        .iter()
        .filter(|e| e["event"]["type"] == "response.output_item.done")
        .map(|e| {
            assert_eq!(e["delegation_id"], delegated["delegation"]["id"]);
            e["event"]["item"].clone()
        })
        .collect();
    let kinds: Vec<&str> = items.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning", "function_call", "function_call"]);
    let heard: String = client
        .seen
        .iter()
        .filter(|e| e["type"] == "session.input_transcript.delta")
        .map(|e| e["delta"].as_str().unwrap())
        .collect();
    assert_eq!(heard, "book a table please");

    let output = |call: &Value| {
        json!({ "type": "response.item.create", "item": { "type": "function_call_output", "call_id": call["call_id"],
            "output": "{\"reference\":\"B-7\"}" } })
    };
    client.send(output(&items[1])).await;
    let (code, message) = client.refused(json!({ "type": "response.create" })).await;
    assert_eq!(code, "invalid_value");
    assert!(message.contains(items[2]["call_id"].as_str().unwrap()), "{message}");
    let (_, place) = client.refused(output(&items[1])).await;
    assert_eq!(place, "item.call_id");
    let (code, place) = client.refused(json!({ "type": "response.create", "response": {} })).await;
    assert_eq!((code.as_str(), place.as_str()), ("unknown_parameter", "response"));
    client.send(output(&items[2])).await;
    client.send(json!({ "type": "response.create" })).await;
    client.until("response.output_text.delta").await;
    client.until("response.completed").await;
    client.until("session.output_transcript.delta").await;

    let record = server.record();
    let session = &record.live_sessions[0];
    assert_eq!(record.tool_outputs().len(), 2);
    assert_eq!(session.creates.iter().map(|create| create.accepted).collect::<Vec<_>>(), [false, false, true]);
    let runs: Vec<_> = session.runs.iter().map(|run| (run.rule, run.continues, run.status.as_str())).collect();
    assert_eq!(runs, [(Some(2), false, "completed"), (Some(3), true, "completed")]);
}

#[tokio::test]
async fn outputs_for_a_failed_run_are_refused() {
    let server = server(|c| c.faults.fail_runs = 1).await;
    let mut client = Client::start(&server, responses()).await;
    client.speak("caller_request").await;
    client.until("response.failed").await;
    let output = json!({ "type": "response.item.create", "item": { "type": "function_call_output", "call_id": "call_x",
        "output": "{}" } });
    assert_eq!(client.refused(output).await.0, "invalid_value");
    assert_eq!(server.record().live_sessions[0].runs[0].status, "failed");
}

#[tokio::test]
async fn a_client_delegation_has_no_text_and_takes_appends_by_its_id() {
    let server = server(|_| {}).await;
    let mut client = Client::start(&server, json!({ "type": "client" })).await;
    client.keep_the_line_open();
    client.speak("caller_request").await;
    let delegation = client.until("session.delegation.created").await["delegation"].clone();
    assert_eq!((&delegation["target"], delegation.get("response_id")), (&json!("client"), None));
    let append = |id: &Value| json!({ "type": "session.commentary.append", "delegation_id": id, "content": "It is booked, B-7." });
    assert_eq!(client.refused(append(&json!("dlg_other"))).await.1, "delegation_id");
    client.send(append(&delegation["id"])).await;
    client.until("session.output_transcript.delta").await;
    assert_eq!(client.refused(json!({ "type": "response.create" })).await.0, "invalid_event");
}

#[tokio::test]
async fn the_model_falls_silent_when_the_caller_speaks() {
    let server = server(|_| {}).await;
    let mut client = Client::start(&server, responses()).await;
    client.feed(&[0xff; 160]).await;
    client.send(json!({ "type": "session.commentary.append", "delegation_id": null, "content": "Greet." })).await;
    client.until("session.output_transcript.delta").await;
    client.speak("caller_talk_over").await;
    for _ in 0..10 {
        client.until("session.output_audio.delta").await;
    }
    let record = server.record();
    let said = &record.live_sessions[0].said[0];
    assert!(said.cut && said.sent_ms < said.whole_ms, "{said:?}");
}

#[tokio::test]
async fn a_session_changes_only_in_its_delegation_and_ends_with_a_reason() {
    let server = server(|c| c.faults.expire_after_ms = Some(2_500)).await;
    let mut client = Client::start(&server, responses()).await;
    let update = |session: Value| json!({ "type": "session.update", "session": session });
    for (session, code, place) in [
        (json!({ "instructions": "x" }), "immutable_field_update", "session.instructions"),
        (json!({ "delegation": { "type": "client" } }), "immutable_field_update", "session.delegation.type"),
        (json!({ "voice": "x" }), "unknown_parameter", "session.voice"),
    ] {
        assert_eq!(client.refused(update(session)).await, (code.to_owned(), place.to_owned()));
    }
    client.send(update(json!({ "delegation": { "type": "responses", "responses": { "model": "backend-2" } } }))).await;
    let updated = client.until("session.updated").await;
    assert_eq!(updated["session"]["delegation"]["responses"], json!({ "model": "backend-2", "tools": [] }));
    assert_eq!(client.until("session.closed").await["reason"], "expired");
    assert!(matches!(client.ws.next().await, Some(Ok(Message::Close(_)))));

    let mut other = Client::start(&server, responses()).await;
    other.send(json!({ "type": "session.close", "event_id": "bye" })).await;
    let closed = other.until("session.closed").await;
    assert_eq!((&closed["reason"], &closed["client_event_id"]), (&json!("close_requested"), &json!("bye")));
}
