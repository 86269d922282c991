//! The WebRTC project's detector (libfvad): spectral energies against two learned mixtures.

use crate::level::level_dbfs;
use crate::sendable_vad::SendableVad;
use crate::voice_activity::{Aggressiveness, VoiceActivity};
use crate::windows::Windows;
use vocab::VoiceEvidence;
use webrtc_vad::VadMode;

pub struct Webrtc {
    vad: SendableVad,
    mode: Aggressiveness,
    windows: Windows,
    last: bool,
}

impl Webrtc {
    pub fn new(mode: Aggressiveness) -> Self {
        Self { vad: SendableVad::new(vad_mode(mode)), mode, windows: Windows::new(), last: false }
    }
}

impl VoiceActivity for Webrtc {
    fn hear(&mut self, samples: &[i16]) -> VoiceEvidence {
        let vad = &mut self.vad;
        let heard = self.windows.hear(samples, |window| vad.judge(window) == Some(true));
        self.last = heard.unwrap_or(self.last);
        VoiceEvidence { speech: self.last, level_dbfs: level_dbfs(samples) }
    }

    fn reset(&mut self) {
        self.vad.reset(vad_mode(self.mode));
        self.windows.clear();
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
