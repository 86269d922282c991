//! A call in its steady state allocates nothing: the whole of `call::run`, with both real sockets, over loopback TCP.
//!
//! The call has a thread of its own and only that thread is counted; carrier and model live on another. Time is real, since
//! sockets are: the outside sends at the pace of a telephone line for the seconds that are counted.
#![allow(unsafe_code)] // A global allocator cannot be written without it; this file is a test.

use audio::Detector;
use call::{CallEnd, CallLimits, CallSetup, Desk, DeskFull, Watch};
use futures_util::{SinkExt, StreamExt};
use models::{Eagerness, SessionConfig, TurnDetection};
use phone::twilio::{Inbound, SocketConfig, TwilioSocket};
use serde_json::{Value, json};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;
use vocab::work::{WorkCommand, WorkEvent};

const FRAME: Duration = Duration::from_millis(20);
/// The greeting begins, every buffer reaches its size, the first marks come back.
const WARM_UP_FRAMES: u32 = 60;
const COUNTED_FRAMES: u32 = 100;
/// Early in the warm-up both sides deliver at once what they then need not send for a while, so that a machine that
/// stumbles later finds every buffer grown: the counted part must not depend on its load.
const STUMBLE: u32 = 5;
const CATCH_UP: u32 = 6;
thread_local! {
    /// Where the allocations of this thread are counted, if they are.
    static COUNTED: Cell<Option<&'static AtomicUsize>> = const { Cell::new(None) };
}

struct Counting;

fn note() {
    // Gone while a thread ends; nothing is counted then.
    let _ = COUNTED.try_with(|counted| {
        if let Some(count) = counted.get() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
}

// SAFETY: every call goes on to the system allocator unchanged; the count is reached through a thread-local without a
// destructor and never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe { System.dealloc(block, layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Nothing is asked of it and nothing comes of it.
struct SilentDesk;

impl Desk for SilentDesk {
    fn send(&mut self, _: WorkCommand) -> Result<(), DeskFull> {
        Err(DeskFull)
    }
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<WorkEvent>> {
        Poll::Pending
    }
    async fn close(self, _: bool) {}
}

/// How the model's sound comes.
#[derive(Clone, Copy)]
enum Pace {
    /// 60 ms every 60 ms: each piece goes on as it comes.
    AsSpoken,
    /// All of it at once, as real models do: the core's own pacing sends it.
    Burst,
}

fn model_at(addr: SocketAddr) -> SessionConfig {
    SessionConfig {
        provider: models::Provider::default(),
        base_url: format!("ws://{addr}/v1"),
        model: "m".into(),
        api_key: "k".to_owned().into(),
        instructions: String::new(),
        voice: "marin".into(),
        language: None,
        transcription: None,
        tools: vec![],
        turn_detection: TurnDetection::SemanticEvents { eagerness: Eagerness::Auto },
    }
}

/// Runs the call on this thread until its stream is over.
fn call_on_this_thread(
    listener: std::net::TcpListener,
    model: SocketAddr,
    count: &'static AtomicUsize,
    watch: Watch,
) -> CallEnd {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener).unwrap();
        let (io, _) = listener.accept().await.unwrap();
        io.set_nodelay(true).unwrap();
        let mut phone = TwilioSocket::accept(io, SocketConfig::default()).await;
        while !matches!(phone.next(&mut Vec::new()).await.unwrap(), Inbound::Started(_)) {}
        COUNTED.set(Some(count));
        let report = call::run(CallSetup {
            recorder: None,
            phone,
            desk: SilentDesk,
            model: model_at(model),
            greeting: Some("Say hello.".into()),
            policy: conversation::Policy::default(),
            detector: Detector::default(),
            limits: CallLimits { media_timeout: Duration::from_secs(10), max_call: Duration::from_secs(60) },
            watch: Some(watch),
            drain: CancellationToken::new(),
            let_go: CancellationToken::new(),
        })
        .await;
        COUNTED.set(None);
        report.end
    })
}

type Peer = WebSocketStream<TcpStream>;

async fn next_text(peer: &mut Peer) -> Option<String> {
    loop {
        match peer.next().await?.ok()? {
            Message::Text(text) => return Some(text.as_str().to_owned()),
            Message::Close(_) => return None,
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
}

/// 60 ms of the model's voice: 480 bytes are whole groups of base64.
fn delta() -> Message {
    let audio = "/38/".repeat(160);
    Message::text(format!(
        r#"{{"type":"response.output_audio.delta","event_id":"event_d","response_id":"resp_1","item_id":"item_1","output_index":0,"content_index":0,"delta":"{audio}"}}"#
    ))
}

/// A realtime model that greets and then speaks for as long as the test looks. Counts the samples that it was given.
async fn be_the_model(listener: TcpListener, pace: Pace, appended: Arc<AtomicUsize>) {
    let (io, _) = listener.accept().await.unwrap();
    io.set_nodelay(true).unwrap();
    let mut peer = tokio_tungstenite::accept_async(io).await.unwrap();
    let format = json!({ "format": { "type": "audio/pcmu" } });
    let session = json!({ "type": "realtime", "audio": { "input": format, "output": format } });
    peer.send(Message::text(json!({ "type": "session.created", "session": session }).to_string())).await.unwrap();
    let mut voice: Option<tokio::time::Interval> = None;
    let mut ticks = 0;
    loop {
        let text = tokio::select! {
            text = next_text(&mut peer) => text,
            _ = async { voice.as_mut().expect("it is only polled when it is there").tick().await }, if voice.is_some() => {
                ticks += 1;
                let pieces = match ticks {
                    STUMBLE => CATCH_UP + 1,
                    _ if ticks > STUMBLE && ticks <= STUMBLE + CATCH_UP => 0,
                    _ => 1,
                };
                for _ in 0..pieces {
                    peer.feed(delta()).await.unwrap();
                }
                peer.flush().await.unwrap();
                continue;
            }
        };
        let Some(text) = text else { return };
        if text.contains("input_audio_buffer.append") {
            // Quiet goes out in pieces of several frames: what counts is how much of the line arrived.
            let payload = text.split_once(r#""audio":""#).and_then(|(_, rest)| rest.split_once('"'));
            let samples = payload.map_or(0, |(payload, _)| payload.trim_end_matches('=').len() * 3 / 4);
            appended.fetch_add(samples, Ordering::SeqCst);
            continue;
        }
        let event: Value = serde_json::from_str(&text).unwrap();
        match event["type"].as_str().unwrap() {
            "session.update" => {
                let updated = json!({ "type": "session.updated", "session": session });
                peer.send(Message::text(updated.to_string())).await.unwrap();
            }
            "response.create" => {
                let response = json!({ "id": "resp_1", "object": "realtime.response", "status": "in_progress",
                    "output": [], "metadata": event["response"]["metadata"] });
                let created = json!({ "type": "response.created", "response": response });
                peer.send(Message::text(created.to_string())).await.unwrap();
                match pace {
                    Pace::AsSpoken => voice = Some(tokio::time::interval(FRAME * 3)),
                    Pace::Burst => {
                        for _ in 0..(WARM_UP_FRAMES + COUNTED_FRAMES) / 3 + 50 {
                            peer.send(delta()).await.unwrap();
                        }
                    }
                }
            }
            other => panic!("the call asked for {other}, and nobody had spoken"),
        }
    }
}

#[derive(Default, Debug)]
struct Heard {
    media: usize,
    marks: usize,
    allocations: usize,
}

/// A frame of a quiet line, counted from 1.
fn media(frame: u32) -> Message {
    // 160 bytes of μ-law in base64.
    let payload = "f/9/".repeat(53) + "fw==";
    let (sequence, at_ms) = (frame + 1, frame * 20);
    Message::text(format!(
        r#"{{"event":"media","sequenceNumber":"{sequence}","media":{{"track":"inbound","chunk":"{frame}","timestamp":"{at_ms}","payload":"{payload}"}},"streamSid":"MZ1"}}"#
    ))
}

/// A caller on the line, which plays what it gets and returns each mark when its sound has played.
async fn be_the_carrier(addr: SocketAddr, count: &'static AtomicUsize) -> Heard {
    let io = TcpStream::connect(addr).await.unwrap();
    io.set_nodelay(true).unwrap();
    let mut peer = WebSocketStream::from_raw_socket(io, Role::Client, None).await;
    peer.send(Message::text(
        r#"{"event":"start","sequenceNumber":"1","start":{"accountSid":"AC1","streamSid":"MZ1","callSid":"CA1","tracks":["inbound"],"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1},"customParameters":{}},"streamSid":"MZ1"}"#,
    ))
    .await
    .unwrap();
    let began = Instant::now();
    let mut heard = Heard::default();
    let mut line = tokio::time::interval(FRAME);
    let mut buffer_end = began;
    let mut marks: Vec<(Instant, String)> = Vec::new();
    let (mut frames, mut ticks) = (0, 0);
    while frames < WARM_UP_FRAMES + COUNTED_FRAMES {
        tokio::select! {
            _ = line.tick() => {
                ticks += 1;
                if ticks > STUMBLE && ticks <= STUMBLE + CATCH_UP * 3 {
                    continue;
                }
                for _ in 0..if ticks == STUMBLE { CATCH_UP * 3 } else { 0 } {
                    frames += 1;
                    peer.feed(media(frames)).await.unwrap();
                }
                frames += 1;
                if frames == WARM_UP_FRAMES {
                    heard = Heard::default();
                    count.store(0, Ordering::SeqCst);
                }
                while marks.first().is_some_and(|(due, _)| *due <= Instant::now()) {
                    let (_, name) = marks.remove(0);
                    let echo = format!(r#"{{"event":"mark","sequenceNumber":"4","streamSid":"MZ1","mark":{{"name":"{name}"}}}}"#);
                    peer.feed(Message::text(echo)).await.unwrap();
                    heard.marks += 1;
                }
                peer.send(media(frames)).await.unwrap();
            }
            text = next_text(&mut peer) => {
                let message: Value = serde_json::from_str(&text.expect("the call goes on")).unwrap();
                match message["event"].as_str().unwrap() {
                    "media" => {
                        let letters = message["media"]["payload"].as_str().unwrap().len();
                        buffer_end = buffer_end.max(Instant::now()) + Duration::from_micros(letters as u64 * 3 / 4 * 125);
                        heard.media += 1;
                    }
                    "mark" => marks.push((buffer_end, message["mark"]["name"].as_str().unwrap().to_owned())),
                    other => panic!("the call sent {other} to a caller who was quiet"),
                }
            }
        }
    }
    heard.allocations = count.load(Ordering::SeqCst);
    peer.send(Message::text(r#"{"event":"stop","sequenceNumber":"9","streamSid":"MZ1","stop":{}}"#)).await.unwrap();
    while next_text(&mut peer).await.is_some() {}
    heard
}

fn steady_call(pace: Pace, watch: Watch) -> Heard {
    let count: &'static AtomicUsize = Box::leak(Box::default());
    let carrier_side = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    carrier_side.set_nonblocking(true).unwrap();
    let addr = carrier_side.local_addr().unwrap();
    let outside = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let appended = Arc::new(AtomicUsize::new(0));
    let model_side = outside.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let model_addr = model_side.local_addr().unwrap();
    outside.spawn(be_the_model(model_side, pace, Arc::clone(&appended)));
    let call = std::thread::spawn(move || call_on_this_thread(carrier_side, model_addr, count, watch));
    let heard = outside.block_on(be_the_carrier(addr, count));
    assert_eq!(call.join().unwrap(), CallEnd::Stopped);
    let appended = appended.load(Ordering::SeqCst);
    assert!(appended as u32 / 160 >= COUNTED_FRAMES, "{appended} samples reached the model");
    heard
}

#[test]
fn two_seconds_of_sound_both_ways_allocate_nothing_when_the_model_speaks_in_real_time() {
    let heard = steady_call(Pace::AsSpoken, Box::new(|_, _| {}));
    assert!(heard.media >= 25 && heard.marks >= 8, "{heard:?}");
    assert_eq!(heard.allocations, 0, "{heard:?}");
}

#[test]
fn two_seconds_of_sound_both_ways_allocate_nothing_when_the_call_paces_a_burst() {
    let heard = steady_call(Pace::Burst, Box::new(|_, _| {}));
    assert!(heard.media >= 15 && heard.marks >= 8, "{heard:?}");
    assert_eq!(heard.allocations, 0, "{heard:?}");
}

#[test]
fn an_allocation_for_each_command_would_be_seen() {
    let heard = steady_call(Pace::AsSpoken, Box::new(|_, _| drop(std::hint::black_box(Box::new(7_u8)))));
    // Each piece of sound is kept and sent: two commands at least.
    assert!(heard.allocations >= heard.media * 2, "{heard:?}");
}
