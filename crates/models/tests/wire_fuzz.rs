//! Mutated server events, for `ANSWERBACK_FUZZ_SECONDS` (default 2). A failure prints its seed; `ANSWERBACK_FUZZ_SEED` repeats it.

use models::gpt_live::requests::REQUESTS_KEPT as LIVE_REQUESTS_KEPT;
use models::gpt_live::runs::RUNS_KEPT;
use models::gpt_live::session::{DELEGATIONS_KEPT, EARLY_WORDS_KEPT, HELD_KEPT, LiveSession};
use models::gpt_live::stretches::STRETCHES_KEPT;
use models::openai_realtime::ids::{CALLS_KEPT, ITEMS_KEPT, Ids, REQUESTS_KEPT, RESPONSES_KEPT, UNFINISHED_CALLS_KEPT};
use models::openai_realtime::wire::{Decoded, decode};
use models::{Delegation, GptLiveSettings, Provider, SessionConfig, TurnDetection};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use vocab::model::{ModelCommand, ModelEvent};
use vocab::{AudioMs, ModelItemId, ProviderCallId, ResponseId};

const SERVER_EVENTS: &str = include_str!("fixtures/openai_realtime/server_events.jsonl");
const LIVE_SERVER_EVENTS: &str = include_str!("fixtures/gpt_live/server_events.jsonl");
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

/// A Live session in which the service says mutated things, the call asks for whatever, and time passes.
fn live_session(seed: u64) {
    let lines: Vec<&str> = LIVE_SERVER_EVENTS.lines().collect();
    let mut dice = Dice(seed | 1);
    let delegation = match dice.below(3) {
        0 => Delegation::Client { tool: None },
        1 => Delegation::Client { tool: Some("ask".into()) },
        _ => Delegation::Responses { model: "backend-1".into(), instructions: None },
    };
    let settings = GptLiveSettings { delegation };
    let config = SessionConfig {
        provider: Provider::GptLive(settings.clone()),
        base_url: String::new(),
        model: "m".into(),
        api_key: String::new().into(),
        instructions: String::new(),
        voice: String::new(),
        language: None,
        transcription: None,
        tools: vec![],
        turn_detection: TurnDetection::Off,
    };
    let mut live = LiveSession::new(&config, &settings);
    let (mut now_ms, mut asked, mut audio) = (0, 0, Vec::new());
    let (mut open, mut ended, mut requests, mut calls) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for _ in 0..MESSAGES {
        let mut text = String::new();
        match dice.below(12) {
            0 | 1 => {
                now_ms += dice.below(3_000) as u64;
                // Every tick must get its deadline out of the way, or an owner that sleeps until it never sleeps.
                for _ in 0..1_000 {
                    match live.next_tick_ms() {
                        Some(due_ms) if due_ms <= now_ms => live.tick(now_ms),
                        Some(_) | None => break,
                    }
                }
                assert!(live.next_tick_ms().is_none_or(|due_ms| due_ms > now_ms), "a deadline that does not pass");
            }
            2 => {
                asked += 1;
                let directions = (dice.below(2) == 0).then(|| "Say it.".to_owned());
                let response = ResponseId(asked);
                live.command(now_ms, &ModelCommand::CreateResponse { response, directions, tools: true });
            }
            3 => {
                let response = ResponseId(dice.below(asked as usize + 3) as u32);
                live.command(now_ms, &ModelCommand::CancelResponse { response });
            }
            4 => {
                let provider_call = ProviderCallId::new(["call_1", "call_2", "dlg_2", "call_9"][dice.below(4)]);
                live.command(now_ms, &ModelCommand::SubmitToolOutput { provider_call, output: "{}".into() });
            }
            5 => {
                let item = ModelItemId(dice.below(8) as u32);
                live.command(now_ms, &ModelCommand::TruncateItem { item, audio_end: AudioMs(dice.below(900) as u32) });
            }
            _ => {
                text = if dice.below(3) == 0 {
                    mutated(&mut dice, &lines)
                } else {
                    lines[dice.below(lines.len())].to_owned()
                };
                live.receive(now_ms, &text);
            }
        }
        loop {
            let before = audio.len();
            let Some(event) = live.next_event(&mut audio) else { break };
            let mut samples = 0;
            match event {
                ModelEvent::ResponseCreated { response, .. } => {
                    assert!(open.insert(response), "{response} twice: {text}")
                }
                ModelEvent::AudioReceived { response, samples: received, .. } => {
                    assert!(open.contains(&response) && !ended.contains(&response), "sound of no stretch: {text}");
                    samples = received.0 as usize;
                }
                ModelEvent::ToolCallReceived { response, provider_call, .. } => {
                    assert!(open.contains(&response) && !ended.contains(&response), "a call of no response: {text}");
                    calls.insert(provider_call);
                }
                ModelEvent::ResponseEnded { response, request, .. } => {
                    assert!(ended.insert(response), "{response} ended twice: {text}");
                    assert!(request.is_none_or(|request| requests.insert(request)), "{request:?} ended twice: {text}");
                }
                ModelEvent::CreateRefused { request, .. } => {
                    assert!(requests.insert(request), "{request} was over: {text}");
                }
                _ => {}
            }
            assert_eq!(audio.len() - before, samples, "the buffer and the event disagree: {text}");
        }
        while live.next_client_event().is_some() {}
        let most = [STRETCHES_KEPT, RUNS_KEPT, LIVE_REQUESTS_KEPT, EARLY_WORDS_KEPT, 2 * DELEGATIONS_KEPT, HELD_KEPT];
        assert!(live.sizes().iter().zip(most).all(|(size, most)| *size <= most), "{:?}", live.sizes());
    }
    // Whatever happened, nothing that was asked for stays open for ever.
    for _ in 0..2_000 {
        let Some(due_ms) = live.next_tick_ms() else { break };
        live.tick(due_ms.max(now_ms));
    }
    while let Some(event) = live.next_event(&mut audio) {
        if let ModelEvent::ResponseEnded { request: Some(request), .. } = event {
            assert!(requests.insert(request), "{request} ended twice");
        }
    }
    assert_eq!(requests.len(), asked as usize, "a request without an end");
}

#[test]
fn no_mutated_event_panics_or_breaks_a_promise() {
    if let Some(seed) = std::env::var("ANSWERBACK_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()) {
        session(seed);
        return live_session(seed);
    }
    let seconds = std::env::var("ANSWERBACK_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut seed = 1;
    while Instant::now() < end {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            session(seed);
            live_session(seed);
        }));
        assert!(outcome.is_ok(), "failed with ANSWERBACK_FUZZ_SEED={seed}");
        seed += 2;
    }
    assert!(seed > 1, "not one session was tried");
}
