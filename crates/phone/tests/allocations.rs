//! No heap allocation a frame through the whole socket once its buffers have grown: counted, not believed.
#![allow(unsafe_code)] // A global allocator cannot be written without it; this file is a test.

use phone::twilio::{Inbound, SocketConfig, TwilioSocket};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use vocab::{Epoch, MarkName, PlaybackId, Samples};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes on to the system allocator unchanged; the count is a thread-local integer without a
// destructor and never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe { System.dealloc(block, layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations() -> usize {
    ALLOCATIONS.with(Cell::get)
}

/// A client's frame (RFC 6455, 5.2) under an arbitrary mask.
fn masked(text: &str) -> Vec<u8> {
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    let mut frame = vec![0x81];
    match text.len() {
        short @ 0..=125 => frame.push(0x80 | short as u8),
        long => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(long as u16).to_be_bytes());
        }
    }
    frame.extend_from_slice(&mask);
    frame.extend(text.bytes().enumerate().map(|(n, byte)| byte ^ mask[n % 4]));
    frame
}

const START: &str = r#"{"event":"start","sequenceNumber":"1","start":{"accountSid":"AC1","streamSid":"MZ00000000000000000000000000000001","callSid":"CA1","tracks":["inbound"],"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1},"customParameters":{}},"streamSid":"MZ00000000000000000000000000000001"}"#;

async fn steady_state(burst: usize) -> (usize, usize) {
    let (mut carrier, server) = tokio::io::duplex(64 * 1024);
    let mut socket = TwilioSocket::accept(server, SocketConfig::default()).await;
    let payload = "/38/".repeat(53) + "/w==";
    let media = masked(&format!(
        r#"{{"event":"media","sequenceNumber":"1042","media":{{"track":"inbound","chunk":"1041","timestamp":"20835","payload":"{payload}"}},"streamSid":"MZ00000000000000000000000000000001"}}"#
    ));
    let mark = masked(
        r#"{"event":"mark","sequenceNumber":"1043","streamSid":"MZ00000000000000000000000000000001","mark":{"name":"e3:p5:9600"}}"#,
    );
    let mut audio = Vec::new();
    carrier.write_all(&masked(START)).await.unwrap();
    assert!(matches!(socket.next(&mut audio).await, Ok(Inbound::Started(_))));

    let mut received = vec![0; 64 * 1024];
    let name = MarkName::Played { epoch: Epoch(3), playback: PlaybackId(5), offset: Samples(9_600) };
    let (mut before, mut sent) = (0, 0);
    let (warm_up, frames) = (200, 2_000);
    for n in 0..warm_up + frames {
        if n == warm_up {
            before = allocations();
        }
        for _ in 0..burst {
            carrier.write_all(&media).await.unwrap();
            carrier.write_all(&mark).await.unwrap();
        }
        for _ in 0..burst {
            assert!(matches!(socket.next(&mut audio).await, Ok(Inbound::Media(_))));
            assert_eq!(audio.len(), 160);
            assert_eq!(socket.next(&mut audio).await, Ok(Inbound::MarkReturned(name)));
            socket.send_media(&[0x42; 160]).unwrap();
            socket.send_mark(name).unwrap();
        }
        socket.flush().await.unwrap();
        assert_eq!(socket.queued_bytes(), 0);
        sent += carrier.read(&mut received).await.unwrap();
    }
    assert!(sent > (warm_up + frames) * 300, "{sent} bytes came out");
    (allocations() - before, frames)
}

#[tokio::test(flavor = "current_thread")]
async fn a_frame_and_a_mark_each_way_allocate_nothing() {
    let before = allocations();
    drop(std::hint::black_box(vec![1_u8; 64]));
    assert_eq!(allocations() - before, 1, "the counter counts");
    for burst in [1, 3, 12] {
        let (allocated, frames) = steady_state(burst).await;
        assert_eq!(allocated, 0, "in {frames} rounds of {burst} frames");
    }
}
