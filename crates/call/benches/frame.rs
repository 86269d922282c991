//! What a 20 ms frame costs on its whole way without the sockets: `cargo bench -p call --bench frame`.
//! Prints the fastest tenth of 1,001 runs of 200 frames, which are shorter than a time slice: other work on the machine does
//! not reach the figure. performance.md's budget is 3 µs a frame.

use audio::Detector;
use audio::g711::MULAW;
use audio::voice_activity::Aggressiveness;
use bytes::BytesMut;
use conversation::{Command, Conversation, Input, Policy};
use models::openai_realtime::ids::Ids;
use models::openai_realtime::wire as model_wire;
use phone::twilio::wire::{self, Encoder};
use phone::twilio::{Inbound, InboundAudio};
use std::hint::black_box;
use std::time::Instant;
use vocab::model::{ModelCommand, ModelEvent};
use vocab::{CallTime, MarkName, Samples, StreamSid};

const FRAMES: u32 = 200;
const RUNS: usize = 1_001;

fn measure(what: &str, mut frame: impl FnMut()) {
    let mut ns: Vec<f64> = (0..RUNS)
        .map(|_| {
            let began = Instant::now();
            (0..FRAMES).for_each(|_| frame());
            began.elapsed().as_nanos() as f64 / f64::from(FRAMES)
        })
        .collect();
    ns.sort_by(f64::total_cmp);
    println!("{what:<60} {:>7.0} ns a frame", ns[RUNS / 10]);
}

/// From the carrier's message to the model's: read, place, listen, judge, write.
fn caller_frames(what: &str, detector: Detector) {
    // A second of line noise at about -50 dBFS, 16 messages that differ: a detector skips nothing.
    let messages: Vec<String> = (0..16_u32)
        .map(|n| {
            let codes: Vec<u8> = (0..160_u32).map(|at| 0xf0 | ((n * 160 + at).wrapping_mul(2_654_435_761) >> 28) as u8).collect();
            use base64::Engine as _;
            let payload = base64::engine::general_purpose::STANDARD.encode(codes);
            format!(
                r#"{{"event":"media","sequenceNumber":"{}","media":{{"track":"inbound","chunk":"{}","timestamp":"{}","payload":"{payload}"}},"streamSid":"MZ00000000000000000000000000000001"}}"#,
                n + 2, n + 1, n * 20
            )
        })
        .collect();
    let mut conversation = Conversation::new(Policy::default());
    let (mut codes, mut samples, mut commands) = (Vec::new(), Vec::new(), Vec::new());
    let mut out = BytesMut::with_capacity(1_024);
    let mut ears = detector.open();
    let mut at = 0_u64;
    let mut next = messages.iter().cycle();
    let mut line = InboundAudio::new();
    measure(what, || {
        at += 20_000;
        let text = next.next().expect("it goes round");
        let Inbound::Media(label) = wire::decode(black_box(text), &mut codes).inbound else {
            unreachable!("it is media")
        };
        black_box(line.place(CallTime(at), &label, Samples(codes.len() as u32)));
        MULAW.decode(&codes, &mut samples);
        let evidence = ears.hear(&samples);
        out.clear();
        model_wire::append(&codes, &mut out);
        conversation.step(
            CallTime(at),
            Input::CallerAudio { samples: Samples(codes.len() as u32), evidence },
            &mut commands,
        );
        commands.clear();
        black_box(&out);
    });
}

/// From the model's message to the carrier's: read, count, pace, mark, write; and each mark's echo judged.
fn model_frames() {
    use base64::Engine as _;
    let delta = base64::engine::general_purpose::STANDARD.encode([0x42; 160]);
    let text = format!(
        r#"{{"type":"response.output_audio.delta","event_id":"event_BxKq1","response_id":"resp_BxKq2","item_id":"item_BxKq3","output_index":0,"content_index":0,"delta":"{delta}"}}"#
    );
    let mut conversation = Conversation::new(Policy::default());
    let mut commands = Vec::new();
    let mut ids = Ids::default();
    let encoder = Encoder::new(&StreamSid::new("MZ00000000000000000000000000000001"));
    let (mut audio, mut out) = (Vec::new(), BytesMut::with_capacity(1_024));
    conversation.step(CallTime(0), Input::CallStarted { greeting: Some("Hello.".into()) }, &mut commands);
    conversation.step(CallTime(1), Input::Model(ModelEvent::SessionReady), &mut commands);
    assert!(commands.iter().any(|command| matches!(command, Command::Model(ModelCommand::CreateResponse { .. }))));
    commands.clear();
    let mut at = 0_u64;
    let mut echo: Option<MarkName> = None;
    let mut sent = 0_u64;
    measure("model to caller: decode, step, encode, marks", || {
        at += 20_000;
        if let Some(mark) = echo.take() {
            conversation.step(CallTime(at), Input::MarkReturned { mark }, &mut commands);
        }
        audio.clear();
        let decoded = model_wire::decode(black_box(&text), &mut ids, &mut audio);
        let model_wire::Decoded::Event(event) = decoded else { unreachable!("it is audio") };
        conversation.step(CallTime(at), Input::Model(event), &mut commands);
        out.clear();
        for command in commands.drain(..) {
            match command {
                Command::SendAudio { .. } => {
                    sent += 1;
                    encoder.media(&audio, &mut out);
                }
                Command::SendMark { mark } => {
                    encoder.mark(mark, &mut out);
                    echo = Some(mark);
                }
                _ => {}
            }
        }
        black_box(&out);
    });
    assert_eq!(sent, u64::from(FRAMES) * RUNS as u64, "every frame was sent");
}

fn main() {
    let webrtc = Detector::Webrtc { mode: Aggressiveness::default() };
    caller_frames("caller to model: decode, cascade, step, encode", Detector::default());
    caller_frames("caller to model: decode, webrtc, step, encode", webrtc);
    caller_frames("caller to model: decode, earshot, step, encode", Detector::Earshot { threshold: 0.5 });
    model_frames();
}
