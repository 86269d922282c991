//! μ-law, as the voices are kept, in the formats that clients ask for.

use super::turn_detection::mulaw_samples;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputFormat {
    Pcmu,
    Pcma,
    Pcm24,
    Pcm16,
    /// `output_modalities: ["text"]`
    Text,
}

pub(super) fn encode_audio(mulaw: &[u8], format: OutputFormat) -> String {
    match format {
        OutputFormat::Pcmu | OutputFormat::Text => STANDARD.encode(mulaw),
        OutputFormat::Pcma => {
            let alaw: Vec<u8> = mulaw.iter().map(|&b| audio_codec_algorithms::convert_ulaw_to_alaw(b)).collect();
            STANDARD.encode(alaw)
        }
        OutputFormat::Pcm24 => STANDARD.encode(interpolated(mulaw, 3)),
        OutputFormat::Pcm16 => STANDARD.encode(interpolated(mulaw, 2)),
    }
}

/// `times` the rate, little-endian. Points on the line between neighbours: clients that insist on more are served, not pampered.
fn interpolated(mulaw: &[u8], times: i32) -> Vec<u8> {
    let mut pcm = Vec::with_capacity(mulaw.len() * 2 * times as usize);
    let mut before = None;
    for sample in mulaw_samples(mulaw) {
        let from = i32::from(before.unwrap_or(sample));
        let step = i32::from(sample) - from;
        for part in 1..=times {
            pcm.extend(((from + step * part / times) as i16).to_le_bytes());
        }
        before = Some(sample);
    }
    pcm
}
