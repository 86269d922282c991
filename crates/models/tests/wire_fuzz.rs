//! Mutated server events, for `ANSWERBACK_FUZZ_SECONDS` (default 2). A failure prints its seed; `ANSWERBACK_FUZZ_SEED` repeats it.

use models::openai_realtime::ids::{CALLS_KEPT, ITEMS_KEPT, Ids, REQUESTS_KEPT, RESPONSES_KEPT, UNFINISHED_CALLS_KEPT};
use models::openai_realtime::wire::{Decoded, decode};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use vocab::model::ModelEvent;

const SERVER_EVENTS: &str = include_str!("fixtures/openai_realtime/server_events.jsonl");
/// Messages of one session; each seed is one session.
const MESSAGES: usize = 200;

/// xorshift64*: small, seeded, good enough to pick places.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit.max(1)
    }
}

fn mutated(dice: &mut Dice, lines: &[&str]) -> String {
    let mut bytes = lines[dice.below(lines.len())].as_bytes().to_vec();
    for _ in 0..dice.below(5) {
        if bytes.is_empty() {
            break;
        }
        let at = dice.below(bytes.len());
        match dice.below(8) {
            0 => bytes[at] ^= 1 << dice.below(8),
            1 => bytes.truncate(at),
            2 => {
                bytes.remove(at);
            }
            3 => bytes.insert(at, b"\"\\{}[]:,0-e \x00\xff"[dice.below(14)]),
            4 => {
                let end = (at + dice.below(40)).min(bytes.len());
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            5 => {
                let other = lines[dice.below(lines.len())].as_bytes();
                let from = dice.below(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            6 => {
                // The same event under another type: members that its reader does not expect.
                let other = lines[dice.below(lines.len())];
                let text = String::from_utf8_lossy(&bytes).into_owned();
                if let (Some(ours), Some(theirs)) = (text.find(",\""), other.find(",\"")) {
                    bytes = format!("{}{}", &other[..theirs], &text[ours..]).into_bytes();
                }
            }
            _ => {
                let words: [&[u8]; 6] = [b"null", b"-1", b"[]", b"{}", b"\"\\ud800\"", b"1e999"];
                bytes.splice(at..at, words[dice.below(words.len())].iter().copied());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn session(seed: u64) {
    let lines: Vec<&str> = SERVER_EVENTS.lines().collect();
    let mut dice = Dice(seed | 1);
    let mut ids = Ids::default();
    let mut audio = Vec::new();
    let mut calls = BTreeSet::new();
    let mut ended = BTreeSet::new();
    for _ in 0..MESSAGES {
        let text = mutated(&mut dice, &lines);
        let before = audio.len();
        let events = match decode(&text, &mut ids, &mut audio) {
            Decoded::Event(event) => vec![event],
            Decoded::Events(events) => events,
            Decoded::WrongFormat { .. } | Decoded::Ignored(_) => vec![],
        };
        let mut samples = 0;
        for event in events {
            match event {
                ModelEvent::AudioReceived { samples: received, .. } => samples += received.0 as usize,
                ModelEvent::ToolCallReceived { provider_call, name, .. } => {
                    assert!(!name.is_empty(), "a call without a name: {text}");
                    assert!(calls.insert(provider_call.clone()), "{provider_call} was reported twice: {text}");
                }
                ModelEvent::ResponseEnded { response, .. } => {
                    assert!(ended.insert(response), "{response} ended twice: {text}");
                }
                _ => {}
            }
        }
        assert_eq!(audio.len() - before, samples, "the buffer and the event disagree: {text}");
        let most = [RESPONSES_KEPT, ITEMS_KEPT, CALLS_KEPT, UNFINISHED_CALLS_KEPT, REQUESTS_KEPT];
        assert!(ids.sizes().iter().zip(most).all(|(size, most)| *size <= most));
    }
}

#[test]
fn no_mutated_event_panics_or_breaks_a_promise() {
    if let Some(seed) = std::env::var("ANSWERBACK_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return session(seed);
    }
    let seconds = std::env::var("ANSWERBACK_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut seed = 1;
    while Instant::now() < end {
        let outcome = catch_unwind(AssertUnwindSafe(|| session(seed)));
        assert!(outcome.is_ok(), "failed with ANSWERBACK_FUZZ_SEED={seed}");
        seed += 2;
    }
    assert!(seed > 1, "not one session was tried");
}
