//! Another detector over the recorded sound.

mod common;

use audio::Detector;
use audio::g711::MULAW;
use audio::voice_activity::Aggressiveness;
use common::{Place, Tape, booking, record};
use conversation::{Conversation, Input, Policy};
use replay::{MomentKind, Voice, rehear, scrub};
use std::path::Path;
use vocab::model::ModelEvent;
use vocab::{CallTime, Samples, VoiceEvidence};

const WEBRTC: Detector = Detector::Webrtc { mode: Aggressiveness::VeryAggressive };

/// Pulses through two resonances: what a detector of voices may not miss.
fn voice(samples: usize) -> Vec<i16> {
    let mut states = [[0.0_f32; 2]; 2];
    let mut phase = 0.0_f32;
    let sounds = (0..samples).map(|n| {
        phase += (120.0 + 15.0 * (n as f32 / 8_000.0 * 9.0).sin()) / 8_000.0;
        let mut sound = 0.0;
        if phase >= 1.0 {
            phase -= 1.0;
            sound = 1.0;
        }
        for ((hz, width), state) in [(700.0_f32, 90.0_f32), (1_200.0, 110.0)].iter().zip(&mut states) {
            let radius = (-std::f32::consts::PI * width / 8_000.0).exp();
            let turn = 2.0 * radius * (hz * std::f32::consts::TAU / 8_000.0).cos();
            let out = sound + turn * state[0] - radius * radius * state[1];
            *state = [out, state[0]];
            sound = out * 0.5;
        }
        (sound * 9_000.0).clamp(-32_000.0, 32_000.0) as i16
    });
    sounds.collect()
}

/// A second of silence, a second and a half of voice, two seconds of silence, heard by `ear`.
fn heard(dir: &Path, mut ear: impl FnMut(&[i16]) -> VoiceEvidence) {
    let mut sound = vec![0_i16; 8_000];
    sound.extend(voice(12_000));
    sound.extend(vec![0; 16_000]);
    let policy = Policy::default();
    let mut conversation = Conversation::new(policy.clone());
    let mut tape = Tape::new(&policy);
    let mut take = |at: CallTime, input: Input, audio: Option<&[u8]>| {
        let mut out = Vec::new();
        conversation.step(at, input.clone(), &mut out);
        tape.take(at, &input, &out, audio);
    };
    take(CallTime(0), Input::CallStarted { greeting: None }, None);
    take(CallTime(0), Input::Model(ModelEvent::SessionReady), None);
    for (place, frame) in sound.chunks(160).enumerate() {
        let (mut codes, mut samples) = (Vec::new(), Vec::new());
        MULAW.encode(frame, &mut codes);
        MULAW.decode(&codes, &mut samples);
        let input = Input::CallerAudio { samples: Samples(160), evidence: ear(&samples) };
        take(CallTime::from_ms(20 * (place as u64 + 1)), input, Some(&codes));
    }
    tape.write(dir);
}

#[test]
fn the_detector_that_listened_hears_the_same_again() {
    let place = Place::new();
    let dir = place.join("call");
    let mut ear = WEBRTC.open();
    heard(&dir, |samples| ear.hear(samples));
    let report = rehear(&dir, WEBRTC).unwrap();
    assert_eq!((report.frames, report.frames_judged_otherwise), (225, 0));
    assert_eq!(report.moves, []);
    let kinds: Vec<_> = report.before.iter().map(|moment| moment.kind).collect();
    use MomentKind as K;
    assert_eq!(kinds, [K::SpeechTentative, K::SpeechConfirmed, K::TurnOpened, K::SpeechEnded]);
}

#[test]
fn a_slower_ear_moves_the_start_and_a_deaf_one_loses_the_turn() {
    let place = Place::new();
    let (late, deaf) = (place.join("late"), place.join("deaf"));
    let mut ear = WEBRTC.open();
    let mut waits = 5;
    heard(&late, |samples| {
        let heard = ear.hear(samples);
        waits -= u32::from(heard.speech && waits > 0);
        VoiceEvidence { speech: heard.speech && waits == 0, ..heard }
    });
    let report = rehear(&late, WEBRTC).unwrap();
    let began = report.moves.iter().find(|moved| moved.kind == MomentKind::SpeechConfirmed).unwrap();
    let (before, after) = (began.before.unwrap(), began.after.unwrap());
    assert_eq!(before.ms_since(after), 80, "the four frames that the slow ear missed: {began:?}");
    assert!(report.to_string().contains("-80 ms"), "{report}");

    heard(&deaf, |_| VoiceEvidence { speech: false, level_dbfs: -60 });
    let report = rehear(&deaf, WEBRTC).unwrap();
    assert!(report.before.is_empty());
    assert!(report.moves.iter().all(|moved| moved.before.is_none()) && report.moves.len() == 4, "{report}");
    assert!(report.to_string().contains("new"), "{report}");
}

#[test]
fn a_recording_without_its_sound_is_refused() {
    let place = Place::new();
    let (dir, clean) = (place.join("call"), place.join("clean"));
    record(&dir, &Policy::default(), |stage| booking(stage, 0));
    scrub(&dir, &clean, Voice::Tone).unwrap();
    assert!(rehear(&clean, WEBRTC).unwrap_err().to_string().contains("scrubbed"));
    std::fs::write(dir.join(recording::CALLER_FILE), [0xff; 1_000]).unwrap();
    assert!(rehear(&dir, WEBRTC).unwrap_err().to_string().contains("ends before step"));
}
