//! G.711 for the simulators, by way of tables: the wire is bytes, and a level must be cheap to know.

use std::sync::LazyLock;

static LINEAR: LazyLock<[i16; 256]> =
    LazyLock::new(|| std::array::from_fn(|byte| audio_codec_algorithms::decode_ulaw(byte as u8)));

pub(crate) fn mulaw_to_linear(byte: u8) -> i16 {
    LINEAR[byte as usize]
}

pub(crate) fn linear_to_mulaw(sample: i16) -> u8 {
    audio_codec_algorithms::encode_ulaw(sample)
}

/// A stretch is audible when any sample of it exceeds about -40 dBFS: above line noise, below quiet speech.
const AUDIBLE: u16 = 330;

pub(crate) fn is_audible(mulaw: &[u8]) -> bool {
    mulaw.iter().any(|&byte| mulaw_to_linear(byte).unsigned_abs() > AUDIBLE)
}
