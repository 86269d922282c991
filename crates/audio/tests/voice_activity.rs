//! One suite for every detector: what the trait promises, not how well a detector hears.

use audio::voice_activity::Aggressiveness;
use audio::{Detector, VoiceActivity};
use vocab::VoiceEvidence;

const MODES: [Aggressiveness; 4] =
    [Aggressiveness::Quality, Aggressiveness::LowBitrate, Aggressiveness::Aggressive, Aggressiveness::VeryAggressive];

fn detectors() -> Vec<(String, Detector)> {
    let mut all: Vec<_> = MODES.iter().map(|&mode| (format!("webrtc {mode:?}"), Detector::Webrtc { mode })).collect();
    all.push(("earshot".into(), Detector::Earshot { threshold: 0.5 }));
    all
}

/// A vowel as a voice box makes it: pulses at a wandering pitch through three resonances, in syllables of 200 ms with
/// 60 ms between. Not speech, but nothing that a detector of voices may miss.
fn voice(samples: usize) -> Vec<i16> {
    let formants = [(700.0_f32, 90.0_f32), (1_200.0, 110.0), (2_600.0, 160.0)];
    let mut states = [[0.0_f32; 2]; 3];
    let mut phase = 0.0_f32;
    (0..samples)
        .map(|n| {
            let time = n as f32 / 8_000.0;
            phase += (120.0 + 15.0 * (time * 9.0).sin()) / 8_000.0;
            let mut sound = 0.0;
            if phase >= 1.0 {
                phase -= 1.0;
                sound = 1.0;
            }
            for ((hz, width), state) in formants.iter().zip(&mut states) {
                let radius = (-std::f32::consts::PI * width / 8_000.0).exp();
                let turn = 2.0 * radius * (hz * std::f32::consts::TAU / 8_000.0).cos();
                let out = sound + turn * state[0] - radius * radius * state[1];
                *state = [out, state[0]];
                sound = out * 0.5;
            }
            let syllable = if n % 2_080 < 1_600 { 1.0 } else { 0.02 };
            (sound * syllable * 9_000.0).clamp(-32_000.0, 32_000.0) as i16
        })
        .collect()
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

#[test]
fn a_stricter_mode_never_hears_more() {
    let mut noise = 0x2545_f491_u32;
    let sound: Vec<i16> = (0..32_000)
        .map(|_| {
            noise ^= noise << 13;
            noise ^= noise >> 17;
            noise ^= noise << 5;
            (noise >> 19) as i16 - 4_096
        })
        .collect();
    let shares: Vec<f32> =
        MODES.iter().map(|&mode| speech_share(&mut *Detector::Webrtc { mode }.open(), &sound)).collect();
    assert!(shares.windows(2).all(|pair| pair[0] >= pair[1]), "{shares:?}");
}
