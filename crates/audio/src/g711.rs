//! G.711, both laws (ITU-T G.711; values of the ITU G.191 tools): one byte is one sample at 8 kHz.

use audio_codec_algorithms::{
    convert_alaw_to_ulaw, convert_ulaw_to_alaw, decode_alaw, decode_ulaw, encode_alaw, encode_ulaw,
};
use std::sync::LazyLock;

/// One of the two laws, as tables.
pub struct Law {
    /// Decoded value of every code. 512 bytes: stays in the first cache level.
    decoded: [i16; 256],
    /// Code of every linear value, by its upper 14 bits. G.711 quantises to 14 bits at most, so the two lowest bits of a
    /// 16-bit sample never choose between codes (`every_sample_encodes_as_the_reference_does` proves it for all of them).
    encoded: [u8; 1 << 14],
    /// The same sound in the other law, for every code.
    converted: [u8; 256],
}

/// The law of North America and Japan, and of Media Streams.
pub static MULAW: LazyLock<Law> = LazyLock::new(|| Law::of(decode_ulaw, encode_ulaw, convert_ulaw_to_alaw));
/// The law of the rest of the world.
pub static ALAW: LazyLock<Law> = LazyLock::new(|| Law::of(decode_alaw, encode_alaw, convert_alaw_to_ulaw));

impl Law {
    fn of(decode: fn(u8) -> i16, encode: fn(i16) -> u8, convert: fn(u8) -> u8) -> Self {
        Self {
            decoded: std::array::from_fn(|code| decode(code as u8)),
            encoded: std::array::from_fn(|index| encode(((index as u16) << 2) as i16)),
            converted: std::array::from_fn(|code| convert(code as u8)),
        }
    }

    /// Replaces `samples` with the linear form of `codes`. Allocates only when `samples` was never this long before.
    pub fn decode(&self, codes: &[u8], samples: &mut Vec<i16>) {
        samples.clear();
        samples.extend(codes.iter().map(|&code| self.decoded[usize::from(code)]));
    }

    /// Replaces `codes` with the coded form of `samples`. Allocates only when `codes` was never this long before.
    pub fn encode(&self, samples: &[i16], codes: &mut Vec<u8>) {
        codes.clear();
        codes.extend(samples.iter().map(|&sample| self.encoded[usize::from(sample as u16 >> 2)]));
    }

    /// Turns this law into the other in place, without the detour (and the second rounding) over linear samples.
    pub fn convert(&self, codes: &mut [u8]) {
        for code in codes {
            *code = self.converted[usize::from(*code)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, law, reference encoder.
    type Case = (&'static str, &'static Law, fn(i16) -> u8);

    fn laws() -> [Case; 2] {
        [("mulaw", &*MULAW, encode_ulaw), ("alaw", &*ALAW, encode_alaw)]
    }

    #[test]
    fn every_sample_encodes_as_the_reference_does() {
        let samples: Vec<i16> = (i16::MIN..=i16::MAX).collect();
        for (name, law, reference) in laws() {
            let mut codes = Vec::new();
            law.encode(&samples, &mut codes);
            for (sample, code) in samples.iter().zip(&codes) {
                assert_eq!(*code, reference(*sample), "{name} {sample}");
            }
        }
    }

    #[test]
    fn every_code_survives_a_decode_and_an_encode() {
        for (name, law, _) in laws() {
            let codes: Vec<u8> = (0..=255).collect();
            let (mut samples, mut back, mut again) = (Vec::new(), Vec::new(), Vec::new());
            law.decode(&codes, &mut samples);
            law.encode(&samples, &mut back);
            law.decode(&back, &mut again);
            // μ-law has two zeroes, so codes may differ where the sound does not.
            assert_eq!(samples, again, "{name}");
        }
    }

    #[test]
    fn the_known_codes_have_their_known_values() {
        let mut samples = Vec::new();
        MULAW.decode(&[0x00, 0x80, 0xff, 0x7f], &mut samples);
        assert_eq!(samples, [-32124, 32124, 0, 0]);
        ALAW.decode(&[0x2a, 0xaa, 0xd5, 0x55], &mut samples);
        assert_eq!(samples, [-32256, 32256, 8, -8]);
        let mut codes = Vec::new();
        MULAW.encode(&[0, i16::MAX, i16::MIN], &mut codes);
        assert_eq!(codes, [vocab::audio::MULAW_SILENCE, 0x80, 0x00]);
    }

    #[test]
    fn a_reused_buffer_holds_only_the_newest_sound() {
        let mut samples = vec![7; 500];
        MULAW.decode(&[0xff, 0xff], &mut samples);
        assert_eq!(samples.len(), 2);
        let mut codes = vec![1; 500];
        MULAW.encode(&[], &mut codes);
        assert!(codes.is_empty());
    }

    #[test]
    fn the_other_law_keeps_the_sound_within_its_own_step() {
        for (name, law, other) in [("mulaw", &*MULAW, &*ALAW), ("alaw", &*ALAW, &*MULAW)] {
            let mut codes: Vec<u8> = (0..=255).collect();
            let (mut before, mut after) = (Vec::new(), Vec::new());
            law.decode(&codes, &mut before);
            law.convert(&mut codes);
            other.decode(&codes, &mut after);
            for (before, after) in before.iter().zip(&after) {
                // A step of either law is at most 1/16 of the value plus the smallest step.
                let room = i32::from(before.unsigned_abs()) / 16 + 16;
                assert!((i32::from(*before) - i32::from(*after)).abs() <= room, "{name}: {before} became {after}");
            }
        }
    }
}
