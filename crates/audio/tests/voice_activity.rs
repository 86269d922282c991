//! One suite for every detector: what the trait promises, not how well a detector hears.

use audio::voice_activity::Aggressiveness;
use audio::{Detector, VoiceActivity};
use vocab::VoiceEvidence;

const MODES: [Aggressiveness; 4] =
    [Aggressiveness::Quality, Aggressiveness::LowBitrate, Aggressiveness::Aggressive, Aggressiveness::VeryAggressive];

const CASCADE: Detector = Detector::Cascade { threshold: 0.5 };

fn detectors() -> Vec<(String, Detector)> {
    let mut all: Vec<_> = MODES.iter().map(|&mode| (format!("webrtc {mode:?}"), Detector::Webrtc { mode })).collect();
    all.push(("earshot".into(), Detector::Earshot { threshold: 0.5 }));
    all.push(("cascade".into(), CASCADE));
    all
}

/// A person who reads (crates/sim/assets/README.md), over and over.
fn voice(samples: usize) -> Vec<i16> {
    let wav = include_bytes!("../../sim/assets/human_reading_0890.wav");
    let sound = wav[44..].chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]]));
    sound.cycle().take(samples).collect()
}

fn speech_share(detector: &mut dyn VoiceActivity, sound: &[i16]) -> f32 {
    let words: Vec<VoiceEvidence> = sound.chunks(160).map(|frame| detector.hear(frame)).collect();
    words.iter().filter(|word| word.speech).count() as f32 / words.len() as f32
}

#[test]
fn silence_is_no_speech_from_the_first_frame() {
    for (name, detector) in detectors() {
        let mut ear = detector.open();
        for frame in 0..100 {
            assert_eq!(ear.hear(&[0; 160]), VoiceEvidence { speech: false, level_dbfs: -96 }, "{name}, frame {frame}");
        }
    }
}

#[test]
fn a_voice_is_speech() {
    for (name, detector) in detectors() {
        let mut ear = detector.open();
        ear.hear(&[0; 1_600]);
        let share = speech_share(&mut *ear, &voice(16_000));
        assert!(share > 0.5, "{name} heard {share} of it");
    }
}

#[test]
fn an_empty_stretch_repeats_the_last_word_and_is_silent() {
    for (name, detector) in detectors() {
        let mut ear = detector.open();
        assert_eq!(ear.hear(&[]), VoiceEvidence { speech: false, level_dbfs: -96 }, "{name}");
        let before = voice(8_000).chunks(160).map(|frame| ear.hear(frame).speech).last();
        assert_eq!(Some(ear.hear(&[]).speech), before, "{name}");
    }
}

#[test]
fn the_cutting_of_the_sound_does_not_change_what_is_heard() {
    let sound = voice(16_000);
    for (name, detector) in detectors() {
        let share = speech_share(&mut *detector.open(), &sound);
        for piece in [1, 37, 80, 159, 161, 400] {
            let mut ear = detector.open();
            // The word that stands at each 20 ms of sound heard.
            let (mut heard, mut speech, mut frames) = (0, 0, 0);
            for part in sound.chunks(piece) {
                let word = ear.hear(part).speech;
                heard += part.len();
                while (frames + 1) * 160 <= heard {
                    frames += 1;
                    speech += usize::from(word);
                }
            }
            let cut = speech as f32 / frames as f32;
            assert!((cut - share).abs() < 0.12, "{name} in pieces of {piece}: {cut} for {share}");
        }
    }
}

#[test]
fn after_a_reset_the_next_call_hears_as_a_fresh_detector_does() {
    let sound = voice(8_000);
    for (name, detector) in detectors() {
        let mut used = detector.open();
        for part in voice(9_999).chunks(130) {
            used.hear(part);
        }
        used.reset();
        let mut fresh = detector.open();
        for (n, frame) in sound.chunks(160).enumerate() {
            assert_eq!(used.hear(frame), fresh.hear(frame), "{name}, frame {n}");
        }
    }
}

#[test]
fn a_detector_may_move_to_another_thread() {
    for (name, detector) in detectors() {
        let mut ear = detector.open();
        ear.hear(&voice(1_600));
        // The house itself has no thread below floor 2; this is the proof that a runtime above may move a call.
        #[allow(clippy::disallowed_methods)]
        let word = std::thread::spawn(move || ear.hear(&[0; 160])).join().expect("no panic on the other thread");
        assert_eq!(word.level_dbfs, -96, "{name}");
    }
}

/// Samples evenly from -`peak` to `peak`.
fn noise(samples: usize, peak: i32) -> Vec<i16> {
    let mut noise = 0x2545_f491_u32;
    (0..samples)
        .map(|_| {
            noise ^= noise << 13;
            noise ^= noise >> 17;
            noise ^= noise << 5;
            ((noise >> 16) as i32 * 2 * peak / 65_536 - peak) as i16
        })
        .collect()
}

/// Tones together, each of this peak, by `on` and `off` in ms.
fn tones(hz: &[f32], peak: f32, (on, off): (usize, usize)) -> Vec<i16> {
    let sample = |n: usize| hz.iter().map(|hz| peak * (n as f32 * hz * std::f32::consts::TAU / 8_000.0).sin()).sum();
    (0..80_000).map(|n: usize| if n % ((on + off) * 8) < on * 8 { sample(n) } else { 0.0_f32 } as i16).collect()
}

/// The longest run of speech in ms.
fn longest(detector: Detector, sound: &[i16]) -> usize {
    let mut ear = detector.open();
    let words: Vec<bool> = sound.chunks(160).map(|frame| ear.hear(frame).speech).collect();
    words.split(|speech| !speech).map(|run| run.len() * 20).max().unwrap_or(0)
}

/// Half of what confirms a turn at the default policy.
const HARMLESS_MS: usize = 100;

#[test]
fn what_a_line_sounds_by_itself_is_no_turn_for_the_cascade() {
    let sounds = [
        ("ring-back", tones(&[440.0, 480.0], 2_500.0, (2_000, 1_000))),
        ("European ring-back", tones(&[425.0], 4_000.0, (1_000, 1_000))),
        ("busy", tones(&[480.0, 620.0], 2_500.0, (500, 500))),
        ("dial tone", tones(&[350.0, 440.0], 2_500.0, (10_000, 0))),
        ("a short key", tones(&[697.0, 1_209.0], 4_000.0, (100, 100))),
        ("a long key", tones(&[941.0, 1_477.0], 4_000.0, (1_000, 300))),
        ("fax", tones(&[1_100.0], 4_000.0, (500, 1_500))),
        ("hum", tones(&[50.0, 100.0, 150.0], 1_000.0, (10_000, 0))),
        ("hiss", noise(80_000, 1_500)),
    ];
    for (name, sound) in sounds {
        assert!(longest(CASCADE, &sound) <= HARMLESS_MS, "{name}: {} ms", longest(CASCADE, &sound));
    }
}

#[test]
fn webrtc_alone_takes_tones_for_a_turn() {
    let ring = tones(&[440.0, 480.0], 2_500.0, (2_000, 1_000));
    assert!(longest(MODES.map(|mode| Detector::Webrtc { mode })[3], &ring) > 1_000, "or the cascade does idle work");
}

#[test]
fn a_voice_behind_a_tone_and_above_a_hiss_is_a_turn_for_the_cascade() {
    let mut sound = tones(&[425.0], 4_000.0, (1_000, 1_000));
    sound.truncate(12_000);
    sound.extend(voice(16_000));
    let hiss = noise(sound.len(), 300);
    let sound: Vec<i16> = sound.iter().zip(hiss).map(|(a, b)| a.saturating_add(b)).collect();
    assert!(longest(CASCADE, &sound[..12_000]) <= HARMLESS_MS);
    assert!(longest(CASCADE, &sound) >= 200, "{}", longest(CASCADE, &sound));
}

#[test]
fn a_stricter_mode_never_hears_more() {
    let sound = noise(32_000, 4_096);
    let shares: Vec<f32> =
        MODES.iter().map(|&mode| speech_share(&mut *Detector::Webrtc { mode }.open(), &sound)).collect();
    assert!(shares.windows(2).all(|pair| pair[0] >= pair[1]), "{shares:?}");
}
