//! A real call over real sockets is recorded while it runs, and the recording replays.

use audio::Detector;
use audio::voice_activity::Aggressiveness;
use base64::Engine;
use call::recorder::{RecordingLimits, Recordings};
use call::{CallEnd, CallLimits, CallSetup, Desk, DeskFull};
use conversation::Policy;
use futures_util::{SinkExt, StreamExt};
use models::{Eagerness, Provider, SessionConfig, TurnDetection};
use phone::twilio::{Inbound, SocketConfig, TwilioSocket};
use recording::{AGENT_FILE, CALLER_FILE, Header, Tail, ToolFacts};
use serde_json::{Value, json};
use std::fs;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;
use vocab::work::{WorkCommand, WorkEvent};
use vocab::{AgentId, CallSid, SessionId, StreamSid, WallTime};

/// Takes the hum below for a voice. The default would not.
const WEBRTC: Detector = Detector::Webrtc { mode: Aggressiveness::VeryAggressive };

/// Frames that the caller sends: a second and a half in real time, since the driver's clock is the real one.
const FRAMES: u32 = 75;
/// What the model says: 40 ms less than half a second, so the last frame is padded.
const SPEECH: usize = 3_700;

struct NoDesk;

impl Desk for NoDesk {
    fn send(&mut self, _: WorkCommand) -> Result<(), DeskFull> {
        Ok(())
    }
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<WorkEvent>> {
        Poll::Pending
    }
    async fn close(self, _: bool) {}
}

/// A model that takes the session and answers each request for a response with the same sound.
async fn model(listener: TcpListener) {
    let (stream, _) = listener.accept().await.unwrap();
    let mut ws = tokio_tungstenite::accept_async(stream).await.unwrap();
    let mut asked = 0;
    while let Some(Ok(message)) = ws.next().await {
        let Message::Text(text) = message else { continue };
        let event: Value = serde_json::from_str(&text).unwrap();
        let answers = match event["type"].as_str() {
            Some("session.update") => vec![
                json!({"type": "session.created", "session": {"type": "realtime"}}),
                json!({"type": "session.updated", "session": event["session"]}),
            ],
            Some("response.create") => {
                asked += 1;
                let (id, item) = (format!("resp_{asked}"), format!("item_{asked}"));
                let sound = base64::engine::general_purpose::STANDARD.encode([0x41; SPEECH]);
                let metadata = &event["response"]["metadata"];
                vec![
                    json!({"type": "response.created", "response": {"id": id, "metadata": metadata}}),
                    json!({"type": "response.output_audio.delta", "response_id": id, "item_id": item, "delta": sound}),
                    json!({"type": "response.done", "response": {"id": id, "status": "completed"}}),
                ]
            }
            _ => vec![],
        };
        for answer in answers {
            ws.send(Message::text(answer.to_string())).await.unwrap();
        }
    }
}

/// A carrier that sends frames in real time, returns marks at once, and hangs up. Returns the μ-law that it was sent.
async fn carrier(stream: TcpStream) -> Vec<u8> {
    let (mut out, mut back) = WebSocketStream::from_raw_socket(stream, Role::Client, None).await.split();
    let start = json!({"event": "start", "sequenceNumber": "1", "streamSid": "MZ1", "start": {
        "accountSid": "AC1", "streamSid": "MZ1", "callSid": "CA1", "tracks": ["inbound"], "customParameters": {},
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}}});
    out.send(Message::text(start.to_string())).await.unwrap();
    let mut heard = Vec::new();
    let mut sequence = 1;
    // Real time on purpose: what is tested is a driver that reads the real clock.
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    for chunk in 1..=FRAMES {
        ticks.tick().await;
        // Silence, then 300 ms of a loud hum, which WebRTC takes for a voice.
        let hum = (40..55).contains(&chunk);
        let codes: Vec<u8> = (0..160).map(|n| if hum { if n % 40 < 20 { 0x1f } else { 0x9f } } else { 0xff }).collect();
        sequence += 1;
        let payload = base64::engine::general_purpose::STANDARD.encode(codes);
        let media = json!({"event": "media", "sequenceNumber": sequence.to_string(), "streamSid": "MZ1", "media": {
            "track": "inbound", "chunk": chunk.to_string(), "timestamp": (chunk * 20).to_string(), "payload": payload}});
        out.send(Message::text(media.to_string())).await.unwrap();
        while let Ok(Some(Ok(Message::Text(text)))) = tokio::time::timeout(Duration::ZERO, back.next()).await {
            let event: Value = serde_json::from_str(&text).unwrap();
            match event["event"].as_str() {
                Some("media") => {
                    let payload = event["media"]["payload"].as_str().unwrap();
                    heard.extend(base64::engine::general_purpose::STANDARD.decode(payload).unwrap());
                }
                Some("mark") => {
                    sequence += 1;
                    let mark = json!({"event": "mark", "sequenceNumber": sequence.to_string(), "streamSid": "MZ1",
                        "mark": event["mark"]});
                    out.send(Message::text(mark.to_string())).await.unwrap();
                }
                _ => {}
            }
        }
    }
    let stop = json!({"event": "stop", "sequenceNumber": (sequence + 1).to_string(), "streamSid": "MZ1",
        "stop": {"accountSid": "AC1", "callSid": "CA1"}});
    out.send(Message::text(stop.to_string())).await.unwrap();
    while let Some(Ok(_)) = back.next().await {}
    heard
}

#[tokio::test]
async fn a_call_over_real_sockets_is_recorded_and_replays_without_drift() {
    let place = std::env::temp_dir().join(format!("recorded-call-{}", std::process::id()));
    let (recordings, thread) = Recordings::start(RecordingLimits::new(&place)).unwrap();
    let model_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("ws://{}/v1", model_listener.local_addr().unwrap());
    tokio::spawn(model(model_listener));
    let phone_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(phone_listener.local_addr().unwrap()).await.unwrap();
    let caller = tokio::spawn(carrier(client));
    let mut phone = TwilioSocket::accept(phone_listener.accept().await.unwrap().0, SocketConfig::default()).await;
    assert!(matches!(phone.next(&mut Vec::new()).await, Ok(Inbound::Started(_))));

    let policy = Policy::default();
    let header = Header {
        format: recording::FORMAT,
        program: env!("CARGO_PKG_VERSION").into(),
        session: SessionId::new("ses_1"),
        stream: StreamSid::new("MZ1"),
        call: CallSid::new("CA1"),
        agent: AgentId::new("bistro"),
        caller: "…23".into(),
        started: WallTime(0),
        policy: serde_json::to_value(&policy).unwrap(),
        detector: serde_json::to_value(WEBRTC).unwrap(),
        tools: ToolFacts::default(),
        scrubbed: false,
    };
    let setup = CallSetup {
        phone,
        desk: NoDesk,
        model: SessionConfig {
            provider: Provider::default(),
            base_url,
            model: "gpt-realtime".into(),
            api_key: "sk-test".to_owned().into(),
            instructions: "Be brief.".into(),
            voice: "marin".into(),
            language: None,
            transcription: None,
            tools: vec![],
            turn_detection: TurnDetection::SemanticEvents { eagerness: Eagerness::Auto },
        },
        greeting: Some("Greet the caller.".into()),
        policy,
        detector: WEBRTC,
        limits: CallLimits { media_timeout: Duration::from_secs(10), max_call: Duration::from_secs(60) },
        watch: None,
        recorder: recordings.record(&header),
        drain: CancellationToken::new(),
        let_go: CancellationToken::new(),
    };
    let report = call::run(setup).await;
    assert_eq!(report.end, CallEnd::Stopped);
    let heard = caller.await.unwrap();
    drop(recordings);
    tokio::task::spawn_blocking(|| thread.join()).await.unwrap();

    let dir = place.join("ses_1-MZ1");
    let replayed = replay::replay_dir(&dir).unwrap();
    if let Some(drift) = &replayed.drift {
        panic!("{drift}");
    }
    let Some(Tail::Ended { steps, .. }) = replayed.tail else { panic!("{:?}", replayed.tail) };
    assert_eq!(steps, replayed.steps);
    assert!(steps > u64::from(FRAMES) && replayed.commands > 10, "{steps} steps, {} commands", replayed.commands);
    assert_eq!(fs::read(dir.join(CALLER_FILE)).unwrap().len(), 160 * FRAMES as usize);
    assert_eq!(fs::read(dir.join(AGENT_FILE)).unwrap(), heard, "what was recorded is what the carrier was sent");
    assert_eq!(heard.len(), SPEECH.div_ceil(160) * 160);

    let again = replay::rehear(&dir, WEBRTC).unwrap();
    assert_eq!((again.frames, again.frames_judged_otherwise), (u64::from(FRAMES), 0));
    assert!(!again.before.is_empty(), "the hum was taken for a voice");
    let other = replay::what_if(&dir, &["gate.quiet_ms=400".into()]).unwrap();
    assert_eq!((other.calls.len(), other.before.responses), (1, other.recorded.responses));
    fs::remove_dir_all(place).unwrap();
}
