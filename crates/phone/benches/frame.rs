//! What one 20 ms frame costs between socket and core, without the socket: `cargo bench -p phone --bench frame`.
//! Prints the median of 21 runs of 50,000 frames; performance.md's budget for the whole path is 3 µs.

use bytes::BytesMut;
use phone::twilio::wire::{self, Encoder};
use phone::twilio::{Inbound, InboundAudio};
use std::hint::black_box;
use std::time::Instant;
use vocab::{CallTime, Epoch, MarkName, PlaybackId, Samples, StreamSid};

const FRAMES: u32 = 50_000;
const RUNS: usize = 21;

fn measure(what: &str, mut frame: impl FnMut()) {
    let mut ns: Vec<f64> = (0..RUNS)
        .map(|_| {
            let began = Instant::now();
            (0..FRAMES).for_each(|_| frame());
            began.elapsed().as_nanos() as f64 / f64::from(FRAMES)
        })
        .collect();
    ns.sort_by(f64::total_cmp);
    println!("{what:<44} {:>7.0} ns a frame", ns[RUNS / 2]);
}

fn main() {
    let payload = "/38/".repeat(53) + "/w==";
    let media = |payload: &str| {
        format!(
            r#"{{"event":"media","sequenceNumber":"1042","media":{{"track":"inbound","chunk":"1041","timestamp":"20835","payload":"{payload}"}},"streamSid":"MZ00000000000000000000000000000001"}}"#
        )
    };
    let (plain, escaped) = (media(&payload), media(&payload.replace('/', "\\/")));
    let mark_echo = r#"{"event":"mark","sequenceNumber":"4","streamSid":"MZ1","mark":{"name":"e3:p5:9600"}}"#;
    let mut audio = Vec::new();
    measure("decode media", || {
        assert!(matches!(wire::decode(black_box(&plain), &mut audio).inbound, Inbound::Media(_)));
    });
    measure("decode media, escaped (the parser's path)", || {
        assert!(matches!(wire::decode(black_box(&escaped), &mut audio).inbound, Inbound::Media(_)));
    });
    measure("decode mark", || {
        assert!(matches!(wire::decode(black_box(mark_echo), &mut audio).inbound, Inbound::MarkReturned(_)));
    });
    let mut line = InboundAudio::new();
    let Inbound::Media(label) = wire::decode(&plain, &mut audio).inbound else { unreachable!("a plain media message") };
    measure("place", || {
        black_box(line.place(CallTime(0), black_box(&label), Samples(160)));
    });
    let encoder = Encoder::new(&StreamSid::new("MZ00000000000000000000000000000001"));
    let mut message = BytesMut::with_capacity(1024);
    measure("encode media", || {
        message.clear();
        encoder.media(black_box(&[0x42; 160]), &mut message);
    });
    let name = MarkName::Played { epoch: Epoch(3), playback: PlaybackId(5), offset: Samples(9_600) };
    measure("encode mark", || {
        message.clear();
        encoder.mark(black_box(name), &mut message);
    });
}
