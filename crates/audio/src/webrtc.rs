//! The WebRTC project's detector (libfvad): spectral energies against two learned mixtures.

use crate::level::level_dbfs;
use crate::sendable_vad::SendableVad;
use crate::voice_activity::{Aggressiveness, VoiceActivity};
use vocab::VoiceEvidence;
use vocab::audio::FRAME_BYTES;
use webrtc_vad::VadMode;

/// Samples that the detector judges at once: 20 ms at 8 kHz, the carrier's frame.
const WINDOW: usize = FRAME_BYTES;

pub struct Webrtc {
    vad: SendableVad,
    mode: Aggressiveness,
    /// The start of a window whose end has not come yet.
    held: [i16; WINDOW],
    held_samples: usize,
    last: bool,
}

impl Webrtc {
    pub fn new(mode: Aggressiveness) -> Self {
        Self { vad: SendableVad::new(vad_mode(mode)), mode, held: [0; WINDOW], held_samples: 0, last: false }
    }
}

impl VoiceActivity for Webrtc {
    fn hear(&mut self, samples: &[i16]) -> VoiceEvidence {
        let mut rest = samples;
        let mut heard: Option<bool> = None;
        let mut note = |word: Option<bool>| {
            if let Some(word) = word {
                heard = Some(heard.unwrap_or(false) || word);
            }
        };
        if self.held_samples > 0 {
            let (now, later) = rest.split_at(rest.len().min(WINDOW - self.held_samples));
            self.held[self.held_samples..self.held_samples + now.len()].copy_from_slice(now);
            self.held_samples += now.len();
            rest = later;
            if self.held_samples == WINDOW {
                self.held_samples = 0;
                note(self.vad.judge(&self.held));
            }
        }
        // Whole windows are judged where they lie: the carrier's frame is never copied.
        let mut windows = rest.chunks_exact(WINDOW);
        for window in &mut windows {
            note(self.vad.judge(window));
        }
        let tail = windows.remainder();
        if !tail.is_empty() {
            self.held[..tail.len()].copy_from_slice(tail);
            self.held_samples = tail.len();
        }
        self.last = heard.unwrap_or(self.last);
        VoiceEvidence { speech: self.last, level_dbfs: level_dbfs(samples) }
    }

    fn reset(&mut self) {
        self.vad.reset(vad_mode(self.mode));
        self.held_samples = 0;
        self.last = false;
    }
}

fn vad_mode(mode: Aggressiveness) -> VadMode {
    match mode {
        Aggressiveness::Quality => VadMode::Quality,
        Aggressiveness::LowBitrate => VadMode::LowBitrate,
        Aggressiveness::Aggressive => VadMode::Aggressive,
        Aggressiveness::VeryAggressive => VadMode::VeryAggressive,
    }
}
