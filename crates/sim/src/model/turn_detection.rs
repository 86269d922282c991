//! Turn detection by energy: enough to start and end a turn where a recorded voice does, and nothing cleverer.

use crate::g711;

/// 20 ms of 8 kHz audio.
const BLOCK_SAMPLES: usize = 160;
const BLOCK_MS: u64 = 20;
/// A block is loud above this RMS (about -38 dBFS): the recorded voices lie 15 dB above, line noise 12 dB below.
const LOUD_RMS: f32 = 400.0;
/// Loud blocks in a row that make speech; a click is shorter.
const ONSET_BLOCKS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnSignal {
    /// Position in the session's input audio, the padding before the onset included.
    Started {
        audio_start_ms: u64,
    },
    Stopped {
        audio_end_ms: u64,
    },
}

/// Fed with every appended byte; counts time in audio, not on the clock.
#[derive(Debug, Default)]
pub(super) struct TurnDetector {
    block: Vec<i16>,
    position_ms: u64,
    loud_blocks: u32,
    quiet_ms: u64,
    speaking: bool,
}

impl TurnDetector {
    pub(super) fn position_ms(&self) -> u64 {
        self.position_ms
    }

    /// Returns at most one signal a block, in order.
    pub(super) fn hear(
        &mut self,
        samples: impl Iterator<Item = i16>,
        prefix_ms: u64,
        silence_ms: u64,
    ) -> Vec<TurnSignal> {
        let mut signals = Vec::new();
        for sample in samples {
            self.block.push(sample);
            if self.block.len() == BLOCK_SAMPLES {
                signals.extend(self.judge(prefix_ms, silence_ms));
                self.block.clear();
            }
        }
        signals
    }

    fn judge(&mut self, prefix_ms: u64, silence_ms: u64) -> Option<TurnSignal> {
        let energy: f32 = self.block.iter().map(|&s| f32::from(s) * f32::from(s)).sum();
        let loud = (energy / BLOCK_SAMPLES as f32).sqrt() > LOUD_RMS;
        self.position_ms += BLOCK_MS;
        if loud {
            self.loud_blocks += 1;
            self.quiet_ms = 0;
        } else {
            self.loud_blocks = 0;
            self.quiet_ms += BLOCK_MS;
        }
        if !self.speaking && self.loud_blocks >= ONSET_BLOCKS {
            self.speaking = true;
            let onset = self.position_ms - u64::from(ONSET_BLOCKS) * BLOCK_MS;
            return Some(TurnSignal::Started { audio_start_ms: onset.saturating_sub(prefix_ms) });
        }
        if self.speaking && self.quiet_ms >= silence_ms {
            self.speaking = false;
            return Some(TurnSignal::Stopped { audio_end_ms: self.position_ms });
        }
        None
    }
}

pub(super) fn mulaw_samples(bytes: &[u8]) -> impl Iterator<Item = i16> {
    bytes.iter().map(|&b| g711::mulaw_to_linear(b))
}

pub(super) fn alaw_samples(bytes: &[u8]) -> impl Iterator<Item = i16> {
    bytes.iter().map(|&b| audio_codec_algorithms::decode_alaw(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voices;

    #[test]
    fn each_recorded_caller_line_is_one_turn() {
        for name in ["caller_request", "caller_thanks", "caller_hello_again"] {
            let mut detector = TurnDetector::default();
            let mut line = vec![0xffu8; 4_000];
            line.extend(voices::builtin(name).unwrap());
            line.extend(vec![0xffu8; 8_000]);
            let signals = detector.hear(mulaw_samples(&line), 300, 500);
            assert!(
                matches!(signals[..], [TurnSignal::Started { .. }, TurnSignal::Stopped { .. }]),
                "{name}: {signals:?}"
            );
        }
    }

    #[test]
    fn a_person_reading_a_sentence_is_one_turn() {
        for name in ["0880", "0890", "0930"] {
            let path = format!("{}/assets/human_reading_{name}.wav", env!("CARGO_MANIFEST_DIR"));
            let mut line = crate::audio_file::read(std::path::Path::new(&path)).unwrap();
            line.extend(vec![0xffu8; 8_000]);
            let signals = TurnDetector::default().hear(mulaw_samples(&line), 300, 500);
            assert!(
                matches!(signals[..], [TurnSignal::Started { .. }, TurnSignal::Stopped { .. }]),
                "{name}: {signals:?}"
            );
        }
    }

    #[test]
    fn silence_and_a_click_start_nothing() {
        let mut detector = TurnDetector::default();
        let mut line = vec![0xffu8; 1_600];
        line.extend([0x00u8; 240]);
        line.extend(vec![0x7fu8; 8_000]);
        assert_eq!(detector.hear(mulaw_samples(&line), 300, 500), []);
        assert_eq!(detector.position_ms(), 1_230 / 20 * 20);
    }
}
