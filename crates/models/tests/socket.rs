//! The socket against a real WebSocket server on loopback, and against peers that misbehave.

use base64::Engine;
use futures_util::{SinkExt, StreamExt};
use models::link::{AUDIO_BACKLOG_BYTES, CLOSE_TIMEOUT, websocket_config};
use models::openai_realtime::socket::RealtimeSocket;
use models::{Eagerness, ModelError, ModelSocket, Provider, SessionConfig, TurnDetection};
use serde_json::{Value, json};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use vocab::model::{ModelCommand, ModelEvent, ResponseEnd};
use vocab::{ModelItemId, ModelResponseId, ResponseId, Samples};

fn config(base_url: String) -> SessionConfig {
    SessionConfig {
        provider: Provider::default(),
        base_url,
        model: "gpt realtime/2".into(),
        api_key: "sk-test".to_owned().into(),
        instructions: "Be brief.".into(),
        voice: "marin".into(),
        language: None,
        transcription: None,
        tools: vec![],
        turn_detection: TurnDetection::SemanticEvents { eagerness: Eagerness::Auto },
    }
}

/// A provider for one session: checks the upgrade, then lets `script` speak.
async fn provider<F>(script: impl FnOnce(Peer) -> F + Send + 'static) -> (SessionConfig, JoinHandle<()>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    let task = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("our client");
        #[expect(clippy::result_large_err, reason = "the signature is tungstenite's")]
        let check = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
            assert_eq!(request.uri().to_string(), "/v1/realtime?model=gpt+realtime%2F2");
            assert_eq!(request.headers()["authorization"], "Bearer sk-test");
            assert!(request.headers().get("openai-beta").is_none());
            Ok(response)
        };
        let ws = tokio_tungstenite::accept_hdr_async(stream, check).await.expect("an upgrade");
        script(Peer { ws }).await;
    });
    (config(format!("ws://{address}/v1")), task)
}

/// A provider that answers the upgrade with `answer` instead.
async fn refusing(answer: &'static str) -> ModelError {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("our client");
        let mut request = [0u8; 2_048];
        let _ = stream.read(&mut request).await;
        let _ = stream.write_all(answer.as_bytes()).await;
    });
    let error = ModelSocket::connect(&config(format!("ws://{address}/v1"))).await.expect_err("it refuses");
    task.await.expect("the provider did not panic");
    error
}

struct Peer {
    ws: WebSocketStream<TcpStream>,
}

impl Peer {
    async fn hears(&mut self) -> Value {
        loop {
            match self.ws.next().await.expect("a message").expect("no error") {
                Message::Text(text) => return serde_json::from_str(&text).expect("our JSON"),
                Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    async fn says(&mut self, event: Value) {
        self.ws.send(Message::text(event.to_string())).await.expect("our client is there");
    }

    /// Echoes our session as the effective one.
    async fn accepts_session(&mut self) {
        let update = self.hears().await;
        assert_eq!(update["type"], "session.update");
        let session = &update["session"];
        self.says(json!({"type": "session.created", "session": {"type": "realtime"}})).await;
        self.says(json!({"type": "session.updated", "session": session})).await;
    }
}

async fn next(socket: &mut ModelSocket, audio: &mut Vec<u8>) -> Result<ModelEvent, ModelError> {
    timeout(Duration::from_secs(5), socket.next(audio)).await.expect("an event in time")
}

#[tokio::test]
async fn a_session_goes_from_configuration_over_a_turn_to_the_close() {
    let (config, task) = provider(async |mut peer| {
        peer.accepts_session().await;
        let audio = peer.hears().await;
        assert_eq!(audio["type"], "input_audio_buffer.append");
        let bytes = base64::engine::general_purpose::STANDARD.decode(audio["audio"].as_str().expect("text"));
        assert_eq!(bytes.expect("base64"), [0x55; 160]);
        let create = peer.hears().await;
        assert_eq!(create["response"]["metadata"]["answerback_response"], "r1");
        assert_eq!(peer.hears().await["type"], "conversation.item.create");
        peer.says(json!({"type": "response.hologram.delta"})).await;
        let metadata = create["response"]["metadata"].clone();
        peer.says(json!({"type": "response.created", "response": {"id": "resp_1", "metadata": metadata}})).await;
        // Cancelled before it was created, so the cancel comes now and names it.
        let cancel = peer.hears().await;
        assert_eq!((&cancel["type"], &cancel["response_id"]), (&json!("response.cancel"), &json!("resp_1")));
        peer.says(json!({"type": "response.output_audio.delta", "response_id": "resp_1", "item_id": "item_1",
            "delta": "//79/A=="}))
            .await;
        peer.says(json!({"type": "response.done", "response": {"id": "resp_1", "status": "cancelled"}})).await;
        assert!(matches!(peer.ws.next().await, Some(Ok(Message::Close(_)))));
        while peer.ws.next().await.is_some() {}
    })
    .await;

    let mut socket = ModelSocket::connect(&config).await.expect("it accepts us");
    let mut audio = Vec::new();
    assert_eq!(next(&mut socket, &mut audio).await, Ok(ModelEvent::SessionReady));
    socket.append_audio(&[0x55; 160]);
    let (response, request) = (ModelResponseId(0), Some(ResponseId(1)));
    socket.send(&ModelCommand::CreateResponse { response: ResponseId(1), directions: None, tools: true });
    socket.send(&ModelCommand::CancelResponse { response: ResponseId(1) });
    socket.send(&ModelCommand::AddContext { text: "A fact.".into() });
    assert_eq!(next(&mut socket, &mut audio).await, Ok(ModelEvent::ResponseCreated { response, request }));
    assert!(audio.is_empty());
    let received = ModelEvent::AudioReceived { response, item: ModelItemId(0), samples: Samples(4) };
    assert_eq!(next(&mut socket, &mut audio).await, Ok(received));
    assert_eq!(audio, [0xff, 0xfe, 0xfd, 0xfc]);
    let end = ResponseEnd::Cancelled;
    assert_eq!(next(&mut socket, &mut audio).await, Ok(ModelEvent::ResponseEnded { response, request, end }));
    let ModelSocket::OpenAiRealtime(session) = &socket else { panic!("a Realtime session") };
    assert_eq!(session.counts().unknown_events, 1);
    socket.close().await;
    assert_eq!(next(&mut socket, &mut audio).await, Err(ModelError::Ended));
    task.await.expect("the provider saw what it should");
}

#[tokio::test]
async fn a_session_in_another_format_is_an_error_that_names_it() {
    let (config, task) = provider(async |mut peer| {
        peer.hears().await;
        let format = json!({"format": {"type": "audio/pcm", "rate": 24000}});
        peer.says(json!({"type": "session.updated", "session": {"audio": {"input": format, "output": format}}})).await;
    })
    .await;
    let mut socket = ModelSocket::connect(&config).await.expect("it accepts us");
    let error = next(&mut socket, &mut Vec::new()).await.expect_err("noise to the caller");
    assert_eq!(error, ModelError::WrongFormat { input: "audio/pcm".into(), output: "audio/pcm".into() });
    assert!(!error.is_passing());
    assert_eq!(next(&mut socket, &mut Vec::new()).await, Err(ModelError::Ended));
    task.await.expect("the provider did not panic");
}

#[tokio::test]
async fn pings_are_answered_while_events_are_awaited() {
    let (config, task) = provider(async |mut peer| {
        peer.ws.send(Message::Ping("still there?".into())).await.expect("sent");
        loop {
            match peer.ws.next().await.expect("a message").expect("no error") {
                Message::Pong(text) => break assert_eq!(&text[..], b"still there?"),
                Message::Text(_) => {}
                other => panic!("{other:?}"),
            }
        }
        peer.says(json!({"type": "input_audio_buffer.speech_started"})).await;
    })
    .await;
    let mut socket = ModelSocket::connect(&config).await.expect("it accepts us");
    assert_eq!(next(&mut socket, &mut Vec::new()).await, Ok(ModelEvent::SpeechStarted));
    task.await.expect("the pong came");
}

#[tokio::test]
async fn a_lost_connection_is_told_once_with_the_providers_reason() {
    let (config, task) = provider(async |mut peer| {
        let reason = "maximum duration reached".into();
        peer.ws.close(Some(CloseFrame { code: CloseCode::Away, reason })).await.expect("closed");
    })
    .await;
    let mut socket = ModelSocket::connect(&config).await.expect("it accepts us");
    let told = next(&mut socket, &mut Vec::new()).await.expect("the loss is an event");
    let ModelEvent::SessionLost { reason } = told else { panic!("{told:?}") };
    assert_eq!(reason, "closed by the provider with code 1001: maximum duration reached");
    assert_eq!(next(&mut socket, &mut Vec::new()).await, Err(ModelError::Ended));
    // Nothing that the driver still does is harmful.
    socket.append_audio(&[0xff; 160]);
    socket.send(&ModelCommand::CommitTurn);
    task.await.expect("the provider did not panic");
}

#[tokio::test]
async fn a_connection_that_just_breaks_is_lost_too() {
    let (config, task) = provider(async |peer| drop(peer)).await;
    let mut socket = ModelSocket::connect(&config).await.expect("it accepts us");
    let told = next(&mut socket, &mut Vec::new()).await;
    assert!(matches!(told, Ok(ModelEvent::SessionLost { .. })), "{told:?}");
    task.await.expect("the provider did not panic");
}

#[tokio::test]
async fn a_provider_that_does_not_read_costs_audio_but_no_command_and_no_memory() {
    let (ours, mut theirs) = tokio::io::duplex(4 * 1024);
    let ws = WebSocketStream::from_raw_socket(ours, Role::Client, Some(websocket_config())).await;
    let mut socket = RealtimeSocket::over(ws, &config("ws://127.0.0.1/v1".into()));
    let mut audio = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..2_000 {
        socket.append_audio(&[0x55; 160]);
        let _ = socket.poll_flush(&mut cx);
    }
    assert!(socket.has_queued());
    let dropped_ms = socket.counts().dropped_audio_ms;
    let kept_bytes = (2_000 - dropped_ms as usize / 20) * 260;
    assert!(dropped_ms > 20_000, "{dropped_ms}");
    assert!((AUDIO_BACKLOG_BYTES / 2..=AUDIO_BACKLOG_BYTES + 8 * 1024).contains(&kept_bytes), "{kept_bytes}");
    let told = socket.next(&mut audio).await.expect("one event for the whole backlog");
    let ModelEvent::ErrorReported { code, fatal: false, .. } = told else { panic!("{told:?}") };
    assert_eq!(code, "audio_backlog");
    // A command is kept, and once the provider reads again everything goes on.
    socket.send(&ModelCommand::AddContext { text: "kept".into() });
    let reader = tokio::spawn(async move {
        let mut read = vec![0u8; 512 * 1024];
        let mut total = 0;
        while let Ok(more) = theirs.read(&mut read).await
            && more > 0
        {
            total += more;
        }
        total
    });
    timeout(Duration::from_secs(5), socket.flush()).await.expect("it reads again");
    assert!(!socket.has_queued());
    socket.append_audio(&[0x55; 160]);
    socket.flush().await;
    assert_eq!(socket.counts().dropped_audio_ms, dropped_ms);
    drop(socket);
    assert!(reader.await.expect("it reads to the end") > kept_bytes);
}

#[tokio::test]
async fn commands_for_a_provider_that_never_reads_lose_the_session_and_not_the_memory() {
    let (ours, _theirs) = tokio::io::duplex(1_024);
    let ws = WebSocketStream::from_raw_socket(ours, Role::Client, Some(websocket_config())).await;
    let mut socket = RealtimeSocket::over(ws, &config("ws://127.0.0.1/v1".into()));
    socket.send(&ModelCommand::AddContext { text: "x".repeat(2 * 1024 * 1024) });
    let told = socket.next(&mut Vec::new()).await.expect("an event");
    let too_large = matches!(&told, ModelEvent::ErrorReported { code, .. } if code == "command_too_large");
    assert!(too_large, "{told:?}");
    for _ in 0..10 {
        socket.send(&ModelCommand::AddContext { text: "x".repeat(900 * 1024) });
    }
    let told = socket.next(&mut Vec::new()).await.expect("an event");
    let ModelEvent::SessionLost { reason } = told else { panic!("{told:?}") };
    assert!(reason.starts_with("the provider does not read"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_close_that_nobody_answers_is_bounded() {
    let (ours, _theirs) = tokio::io::duplex(16);
    let ws = WebSocketStream::from_raw_socket(ours, Role::Client, Some(websocket_config())).await;
    let mut socket = RealtimeSocket::over(ws, &config("ws://127.0.0.1/v1".into()));
    let began = tokio::time::Instant::now();
    socket.close().await;
    assert_eq!(began.elapsed(), CLOSE_TIMEOUT);
}

#[tokio::test]
async fn an_abandoned_wait_loses_nothing() {
    let (config, task) = provider(async |mut peer| {
        peer.accepts_session().await;
        for n in 0..200u32 {
            let transcript = n.to_string();
            peer.says(json!({"type": "conversation.item.input_audio_transcription.completed", "item_id": "item_1",
                "transcript": transcript}))
                .await;
        }
        while peer.ws.next().await.is_some() {}
    })
    .await;
    let mut socket = ModelSocket::connect(&config).await.expect("it accepts us");
    let mut audio = Vec::new();
    assert_eq!(next(&mut socket, &mut audio).await, Ok(ModelEvent::SessionReady));
    let mut told = 0u32;
    let end = Instant::now() + Duration::from_secs(10);
    while told < 200 {
        assert!(Instant::now() < end, "only {told} came");
        tokio::select! {
            biased;
            event = socket.next(&mut audio) => {
                let item = ModelItemId(0);
                assert_eq!(event, Ok(ModelEvent::CallerTranscript { item, text: told.to_string() }));
                told += 1;
            }
            () = tokio::task::yield_now() => socket.append_audio(&[0xff; 160]),
        }
    }
    socket.close().await;
    task.await.expect("the provider did not panic");
}

#[tokio::test]
async fn each_refusal_of_the_upgrade_has_its_meaning() {
    let error = refusing(
        "HTTP/1.1 401 Unauthorized\r\ncontent-length: 55\r\n\r\n{\"error\":{\"message\":\"bad key\",\"code\":\"invalid_api_key\"}}",
    )
    .await;
    assert!(matches!(error, ModelError::Unauthorised { status: 401, .. }), "{error:?}");
    let error = refusing("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
    assert!(matches!(&error, ModelError::NoSuchModel { model, .. } if model == "gpt realtime/2"), "{error:?}");
    let error = refusing("HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n").await;
    assert!(matches!(error, ModelError::RateLimited { retry_after_s: Some(7), .. }) && error.is_passing(), "{error:?}");
    let error = refusing("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy").await;
    assert!(matches!(error, ModelError::Unavailable { status: 503, .. }) && error.is_passing(), "{error:?}");
    let error = refusing("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await;
    assert!(matches!(error, ModelError::Refused { status: 200, .. }), "{error:?}");
    let error = refusing("SSH-2.0-OpenSSH_9.6\r\n\r\n").await;
    assert!(matches!(error, ModelError::Protocol { .. }), "{error:?}");
}

#[tokio::test]
async fn an_address_that_cannot_work_is_told_before_or_at_connecting() {
    for address in ["", "api.openai.com/v1", "https://api.openai.com/v1", "ws://", "ws://h/v1#x"] {
        let error = ModelSocket::connect(&config(address.into())).await.expect_err("it cannot work");
        assert!(matches!(error, ModelError::BadAddress { .. }), "{address}: {error:?}");
    }
    let free = TcpListener::bind("127.0.0.1:0").await.expect("loopback").local_addr().expect("bound");
    let error = ModelSocket::connect(&config(format!("ws://{free}/v1"))).await.expect_err("nobody listens");
    assert!(matches!(error, ModelError::Unreachable { .. }) && error.is_passing(), "{error:?}");
    let mut bad_key = config(format!("ws://{free}/v1"));
    bad_key.api_key = "sk\ntest".to_owned().into();
    assert_eq!(ModelSocket::connect(&bad_key).await.expect_err("no header"), ModelError::BadKey);
}

#[tokio::test]
async fn a_peer_that_speaks_no_tls_is_not_secure_or_not_trusted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("our client");
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let _ = stream.read(&mut [0u8; 1_024]).await;
    });
    let error = ModelSocket::connect(&config(format!("wss://{address}/v1"))).await.expect_err("no TLS there");
    // A machine without certificate authorities never gets as far as connecting.
    let meaning = matches!(error, ModelError::NotSecure { .. } | ModelError::NoTrustedRoots { .. });
    assert!(meaning && !error.is_passing(), "{error:?}");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_accepts_and_then_says_nothing_runs_into_the_time_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    let error = ModelSocket::connect(&config(format!("ws://{address}/v1"))).await.expect_err("nothing is said");
    assert_eq!(error, ModelError::TimedOut { after_ms: 10_000 });
}
