//! G.711 μ-law (ITU-T G.711; values of the ITU G.191 tools): one byte is one sample at 8 kHz.

use audio_codec_algorithms::{convert_ulaw_to_alaw, decode_ulaw, encode_ulaw};
use std::sync::LazyLock;

/// Decoded value of every code. 512 bytes: stays in the first cache level.
static DECODED: LazyLock<[i16; 256]> = LazyLock::new(|| std::array::from_fn(|code| decode_ulaw(code as u8)));

/// Code of every linear value, by its upper 14 bits. G.711 quantises to 14 bits at most, so the two lowest bits of a
/// 16-bit sample never choose between codes (`every_sample_encodes_as_the_reference_does` proves it for all of them).
static ENCODED: LazyLock<[u8; 1 << 14]> =
    LazyLock::new(|| std::array::from_fn(|index| encode_ulaw(((index as u16) << 2) as i16)));

/// The same sound in A-law, for every code.
static AS_ALAW: LazyLock<[u8; 256]> = LazyLock::new(|| std::array::from_fn(|code| convert_ulaw_to_alaw(code as u8)));

/// Replaces `samples` with the linear form of `codes`. Allocates only when `samples` was never this long before.
pub fn decode(codes: &[u8], samples: &mut Vec<i16>) {
    let decoded = &*DECODED;
    samples.clear();
    samples.extend(codes.iter().map(|&code| decoded[usize::from(code)]));
}

/// Replaces `codes` with the μ-law form of `samples`. Allocates only when `codes` was never this long before.
pub fn encode(samples: &[i16], codes: &mut Vec<u8>) {
    let encoded = &*ENCODED;
    codes.clear();
    codes.extend(samples.iter().map(|&sample| encoded[usize::from(sample as u16 >> 2)]));
}

/// Turns μ-law into A-law in place, without the detour (and the second rounding) over linear samples.
pub fn to_alaw(codes: &mut [u8]) {
    let table = &*AS_ALAW;
    for code in codes {
        *code = table[usize::from(*code)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_encodes_as_the_reference_does() {
        let samples: Vec<i16> = (i16::MIN..=i16::MAX).collect();
        let mut codes = Vec::new();
        encode(&samples, &mut codes);
        for (sample, code) in samples.iter().zip(&codes) {
            assert_eq!(*code, encode_ulaw(*sample), "{sample}");
        }
    }

    #[test]
    fn every_code_survives_a_decode_and_an_encode() {
        let codes: Vec<u8> = (0..=255).collect();
        let (mut samples, mut back) = (Vec::new(), Vec::new());
        decode(&codes, &mut samples);
        encode(&samples, &mut back);
        let mut again = Vec::new();
        decode(&back, &mut again);
        // μ-law has two zeroes, so codes may differ where the sound does not.
        assert_eq!(samples, again);
    }

    #[test]
    fn the_known_codes_have_their_known_values() {
        let mut samples = Vec::new();
        decode(&[0x00, 0x80, 0xff, 0x7f], &mut samples);
        assert_eq!(samples, [-32124, 32124, 0, 0]);
        let mut codes = Vec::new();
        encode(&[0, i16::MAX, i16::MIN], &mut codes);
        assert_eq!(codes, [vocab::audio::MULAW_SILENCE, 0x80, 0x00]);
    }

    #[test]
    fn a_reused_buffer_holds_only_the_newest_sound() {
        let mut samples = vec![7; 500];
        decode(&[0xff, 0xff], &mut samples);
        assert_eq!(samples.len(), 2);
        let mut codes = vec![1; 500];
        encode(&[], &mut codes);
        assert!(codes.is_empty());
    }

    #[test]
    fn the_other_law_keeps_the_sound_within_its_own_step() {
        let mut codes: Vec<u8> = (0..=255).collect();
        let mut before = Vec::new();
        decode(&codes, &mut before);
        to_alaw(&mut codes);
        let mut after = Vec::new();
        crate::alaw::decode(&codes, &mut after);
        for (before, after) in before.iter().zip(&after) {
            // A step of either law is at most 1/16 of the value plus the smallest step.
            let room = i32::from(before.unsigned_abs()) / 16 + 16;
            assert!((i32::from(*before) - i32::from(*after)).abs() <= room, "{before} became {after}");
        }
    }
}
