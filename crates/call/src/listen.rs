//! The ears: μ-law of the caller becomes evidence for the turn tracker. Buffers are reused; nothing is judged here.

use audio::g711::MULAW;
use audio::{Detector, VoiceActivity};
use vocab::VoiceEvidence;
use vocab::audio::FRAME_BYTES;

pub(crate) struct Listener {
    detector: Box<dyn VoiceActivity>,
    samples: Vec<i16>,
}

impl Listener {
    pub fn new(detector: Detector) -> Self {
        Self { detector: detector.open(), samples: Vec::with_capacity(FRAME_BYTES) }
    }

    pub fn hear(&mut self, codes: &[u8]) -> VoiceEvidence {
        self.samples.clear();
        MULAW.decode(codes, &mut self.samples);
        self.detector.hear(&self.samples)
    }
}
