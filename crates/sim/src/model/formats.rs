//! μ-law, as the voices are kept, in the formats that clients ask for, and what clients send as the line would carry it.

use super::script::Voice;
use super::turn_detection::{alaw_samples, mulaw_samples};
use crate::resample::Stream;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::ops::Range;

const LINE_HZ: usize = 8_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputFormat {
    Pcmu,
    Pcma,
    Pcm24,
    Pcm16,
    /// `output_modalities: ["text"]`
    Text,
}

impl OutputFormat {
    /// Of linear samples that are not the line's.
    fn hz(self) -> Option<usize> {
        match self {
            Self::Pcm24 => Some(24_000),
            Self::Pcm16 => Some(16_000),
            Self::Pcmu | Self::Pcma | Self::Text => None,
        }
    }
}

/// A stretch of a line that is known whole, in samples at 8 kHz: it begins and ends where the line's does. Nothing of one
/// that is empty, or that is written and not spoken.
pub(super) fn encode_stretch(voice: &Voice, stretch: Range<usize>, format: OutputFormat) -> Option<String> {
    if stretch.is_empty() || format == OutputFormat::Text {
        return None;
    }
    match format.hz() {
        None => Some(encode_line(&voice.mulaw[stretch], format)),
        Some(hz) => {
            let times = hz / LINE_HZ;
            let samples = voice.wide(times).get(stretch.start * times..stretch.end * times).unwrap_or_default();
            Some(encode_linear(samples))
        }
    }
}

fn encode_line(mulaw: &[u8], format: OutputFormat) -> String {
    if format == OutputFormat::Pcma {
        let alaw: Vec<u8> = mulaw.iter().map(|&b| audio_codec_algorithms::convert_ulaw_to_alaw(b)).collect();
        return STANDARD.encode(alaw);
    }
    STANDARD.encode(mulaw)
}

fn encode_linear(samples: &[i16]) -> String {
    STANDARD.encode(samples.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<u8>>())
}

/// A continuous voice: each piece goes on where the one before it ended, so pieces are whole blocks of 20 ms.
#[derive(Default)]
pub(super) struct Encoder {
    /// With the rate that it is for.
    wide: Option<(usize, Stream)>,
}

impl Encoder {
    pub(super) fn encode(&mut self, mulaw: &[u8], format: OutputFormat) -> String {
        match format.hz() {
            None => encode_line(mulaw, format),
            Some(hz) => encode_linear(&stream(&mut self.wide, hz, LINE_HZ, hz).push(mulaw_samples(mulaw))),
        }
    }
}

/// A caller's sound as it comes in.
#[derive(Default)]
pub(super) struct Decoder {
    wide: Option<(usize, Stream)>,
}

impl Decoder {
    /// At 8 kHz.
    pub(super) fn decode(&mut self, bytes: &[u8], format: OutputFormat) -> Vec<i16> {
        match (format.hz(), format) {
            (Some(hz), _) => {
                let linear = bytes.chunks_exact(2).map(|b| i16::from_le_bytes([b[0], b[1]]));
                stream(&mut self.wide, hz, hz, LINE_HZ).push(linear)
            }
            (None, OutputFormat::Pcma) => alaw_samples(bytes).collect(),
            (None, _) => mulaw_samples(bytes).collect(),
        }
    }
}

fn stream(kept: &mut Option<(usize, Stream)>, rate: usize, from_hz: usize, to_hz: usize) -> &mut Stream {
    if kept.as_ref().is_none_or(|(of, _)| *of != rate) {
        *kept = None;
    }
    &mut kept.get_or_insert_with(|| (rate, Stream::new(from_hz, to_hz))).1
}
