//! Mutates valid messages for `ANSWERBACK_FUZZ_SECONDS` (2 by default) and asks for one thing: no panic, whatever comes.
//! `ANSWERBACK_FUZZ_SEED` repeats a run; the seed is printed, and shown when the test fails.

use phone::twilio::order::MessageOrder;
use phone::twilio::{Inbound, InboundAudio, wire};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vocab::{CallTime, Samples};

const MESSAGES: [&str; 8] = [
    r#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#,
    r#"{"event":"start","sequenceNumber":"1","start":{"accountSid":"AC1","streamSid":"MZ1","callSid":"CA1","tracks":["inbound"],"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1},"customParameters":{"token":"t0k"}},"streamSid":"MZ1"}"#,
    r#"{"event":"media","sequenceNumber":"2","media":{"track":"inbound","chunk":"1","timestamp":"155","payload":"/3//fw=="},"streamSid":"MZ1"}"#,
    r#"{"event":"media","sequenceNumber":4294967295,"media":{"chunk":4294967295,"timestamp":4294967295,"payload":"\/3\/\/fw"}}"#,
    r#"{"event":"dtmf","streamSid":"MZ1","sequenceNumber":"5","dtmf":{"track":"inbound_track","digit":"1"}}"#,
    r#"{"event":"mark","sequenceNumber":"4","streamSid":"MZ1","mark":{"name":"e3:p5:9600"}}"#,
    r#"{"event":"mark","sequenceNumber":"4","streamSid":"MZ1","mark":{"name":"\u0066\ud83d\ude00"}}"#,
    r#"{"event":"stop","sequenceNumber":"5","streamSid":"MZ1","stop":{"accountSid":"AC1","callSid":"CA1"}}"#,
];

const PIECES: [&str; 20] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    ":",
    ",",
    "\\u0000",
    "\\ud800",
    "null",
    "true",
    "-1",
    "1e999",
    "99999999999999999999",
    "é",
    "\u{10ffff}",
    "\u{0}",
    "=",
    "[[[[[[[[[[[[[[[[[[[[",
];

struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

fn mutate(random: &mut Xorshift, text: &mut Vec<u8>) {
    let at = random.below(text.len() + 1);
    match random.below(6) {
        0 if at < text.len() => text[at] = random.next() as u8,
        1 if at < text.len() => {
            let end = (at + 1 + random.below(20)).min(text.len());
            text.drain(at..end);
        }
        2 => {
            let piece = PIECES[random.below(PIECES.len())];
            text.splice(at..at, piece.bytes());
        }
        3 => {
            let other = MESSAGES[random.below(MESSAGES.len())].as_bytes();
            let start = random.below(other.len());
            let end = start + random.below(other.len() - start);
            text.splice(at..at, other[start..end].iter().copied());
        }
        4 => text.truncate(at),
        _ if at < text.len() => text[at] ^= 1 << random.below(8),
        _ => {}
    }
}

#[test]
fn no_message_whatever_panics() {
    let variable = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = variable("ANSWERBACK_FUZZ_SECONDS").unwrap_or(2);
    let seed = variable("ANSWERBACK_FUZZ_SEED").unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_nanos() as u64 | 1
    });
    println!("ANSWERBACK_FUZZ_SEED={seed}");
    let mut random = Xorshift(seed.max(1));
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut rounds, mut used) = (0_u64, 0_u64);
    let mut audio = Vec::new();
    while !rounds.is_multiple_of(256) || Instant::now() < until {
        let mut order = MessageOrder::new();
        let mut line = InboundAudio::new();
        for _ in 0..8 {
            let mut text = MESSAGES[random.below(MESSAGES.len())].as_bytes().to_vec();
            for _ in 0..random.below(6) {
                mutate(&mut random, &mut text);
            }
            // The socket lets no other text through.
            let text = String::from_utf8_lossy(&text);
            let inbound = order.admit(wire::decode(&text, &mut audio));
            used += u64::from(!matches!(inbound, Inbound::Ignored(_)));
            if let Inbound::Media(frame) = inbound {
                line.place(CallTime(random.next() >> 20), &frame, Samples(audio.len() as u32));
                line.inject_silence(CallTime(random.next() >> 20), true);
            }
        }
        rounds += 1;
    }
    println!("{} messages, {used} of them of use", rounds * 8);
    assert!(used > rounds / 4, "the mutations leave nothing valid: {used} of {}", rounds * 8);
}
