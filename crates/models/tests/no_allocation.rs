//! The media path allocates nothing once its buffers have grown: a model's audio delta in, a caller's frame out.
//!
//! Counted over an in-memory stream, so TLS is not in it: rustls allocates for each record that it writes and reads.

// A counting allocator cannot be written without `unsafe`; it only forwards to the system's.
#![allow(unsafe_code)]

use models::gpt_live::socket::LiveSocket;
use models::link::websocket_config;
use models::openai_realtime::socket::RealtimeSocket;
use models::{Delegation, Eagerness, GptLiveSettings, Provider, SessionConfig, TurnDetection};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use vocab::Samples;
use vocab::model::ModelEvent;

thread_local! {
    static COUNTED: Cell<Option<usize>> = const { Cell::new(None) };
}

struct Counting;

fn note() {
    // Gone while a thread ends; nothing is counted then.
    let _ = COUNTED.try_with(|counted| counted.set(counted.get().map(|count| count + 1)));
}

// SAFETY: every call is forwarded unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> usize {
    COUNTED.set(Some(0));
    work();
    COUNTED.take().expect("it was set above")
}

fn config() -> SessionConfig {
    SessionConfig {
        provider: Provider::default(),
        base_url: "ws://127.0.0.1/v1".into(),
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

/// An unmasked text frame, as a server writes it.
fn server_frame(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81, 126];
    frame.extend_from_slice(&u16::try_from(text.len()).expect("the text is short").to_be_bytes());
    frame.extend_from_slice(text.as_bytes());
    frame
}

fn delta_frame(bytes: usize) -> Vec<u8> {
    use base64::Engine;
    let audio = base64::engine::general_purpose::STANDARD.encode(vec![0x7fu8; bytes]);
    server_frame(&format!(
        r#"{{"type":"response.output_audio.delta","event_id":"event_BxKq1","response_id":"resp_BxKq2","item_id":"item_BxKq3","output_index":0,"content_index":0,"delta":"{audio}"}}"#
    ))
}

async fn drain(peer: &mut DuplexStream, scratch: &mut [u8]) {
    let read = peer.read(scratch).await.expect("the stream is open");
    assert!(read > 160, "a frame went out");
}

#[tokio::test]
async fn a_frame_in_and_a_frame_out_allocate_nothing() {
    let (ours, mut peer) = tokio::io::duplex(64 * 1024);
    let ws = WebSocketStream::from_raw_socket(ours, Role::Client, Some(websocket_config())).await;
    let mut socket = RealtimeSocket::over(ws, &config());
    let mut audio = Vec::with_capacity(64 * 1024);
    let mut scratch = vec![0u8; 64 * 1024];
    let mulaw = [0x7fu8; 160];
    // 20 ms as a paced server sends them, and 200 ms as a bursting one does.
    let (small, large) = (delta_frame(160), delta_frame(1_600));
    socket.flush().await;
    drain(&mut peer, &mut scratch).await;

    let mut cx = Context::from_waker(Waker::noop());
    let (mut inward, mut outward) = (0, 0);
    for round in 0..4_000 {
        // Tokio's streams pretend to be pending once a task has done much without yielding.
        tokio::task::yield_now().await;
        let (frame, samples) = if round % 10 == 0 { (&large, 1_600) } else { (&small, 160) };
        peer.write_all(frame).await.expect("the stream is open");
        audio.clear();
        let counted_in = allocations(|| {
            let polled = socket.poll_next(&mut cx, &mut audio);
            let Poll::Ready(Ok(ModelEvent::AudioReceived { samples: received, .. })) = polled else {
                panic!("round {round}: {polled:?}")
            };
            assert_eq!(received, Samples(samples));
        });
        let counted_out = allocations(|| {
            socket.append_audio(&mulaw);
            assert_eq!(socket.poll_flush(&mut cx), Poll::Ready(()));
        });
        drain(&mut peer, &mut scratch).await;
        // A thousand frames is twenty seconds of a call: every buffer has its size by then.
        if round >= 1_000 {
            inward += counted_in;
            outward += counted_out;
        }
    }
    assert_eq!((inward, outward), (0, 0), "allocations in 3,000 frames in and 3,000 frames out");
}

/// A Live session's stream is silent for most of a call, and silence is looked at all the same.
#[tokio::test]
async fn a_live_streams_silence_and_voice_allocate_nothing() {
    use base64::Engine;
    let frame = |byte: u8| {
        let audio = base64::engine::general_purpose::STANDARD.encode([byte; 640]);
        server_frame(&format!(r#"{{"type":"session.output_audio.delta","delta":"{audio}"}}"#))
    };
    let (ours, mut peer) = tokio::io::duplex(64 * 1024);
    let ws = WebSocketStream::from_raw_socket(ours, Role::Client, Some(websocket_config())).await;
    let settings = GptLiveSettings { delegation: Delegation::Client { tool: None } };
    let mut socket = LiveSocket::over(ws, &config(), &settings);
    let started = r#"{"type":"session.started","session":{"audio":{"format":{"type":"audio/pcmu","rate":8000}},"id":"live_1","x":"                              "}}"#;
    peer.write_all(&server_frame(started)).await.expect("the stream is open");
    let mut audio = Vec::with_capacity(64 * 1024);
    let mut scratch = vec![0u8; 64 * 1024];
    assert_eq!(socket.next(&mut audio).await, Ok(ModelEvent::SessionReady));
    socket.flush().await;
    drain(&mut peer, &mut scratch).await;

    let (silence, voice) = (frame(0xff), frame(0x10));
    let mut cx = Context::from_waker(Waker::noop());
    let (mut counted, mut sounds) = (0, 0);
    for round in 0..2_000 {
        tokio::task::yield_now().await;
        // Four seconds of voice, then sixteen of silence.
        peer.write_all(if round % 250 < 50 { &voice } else { &silence }).await.expect("the stream is open");
        audio.clear();
        let of_round = allocations(|| {
            while let Poll::Ready(told) = socket.poll_next(&mut cx, &mut audio) {
                sounds += usize::from(matches!(told, Ok(ModelEvent::AudioReceived { .. })));
            }
            socket.append_audio(&[0x7f; 480]);
            assert_eq!(socket.poll_flush(&mut cx), Poll::Ready(()));
        });
        drain(&mut peer, &mut scratch).await;
        // The beginning of a stretch is an entry in its book.
        if round >= 500 && round % 250 >= 5 {
            counted += of_round;
        }
    }
    assert!(sounds >= 8 * 50, "{sounds}");
    assert_eq!(counted, 0, "allocations in a minute of a call");
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(7u8)))), 1);
}
