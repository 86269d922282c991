//! Audio files of any common kind, as the telephone line wants them: 8 kHz mono μ-law.
//!
//! Taken: `.ulaw`/`.ul`/`.mulaw` (raw bytes, as they are) and `.wav` with μ-law, A-law, PCM of 8, 16, 24 or 32 bits, or
//! 32-bit float, mono or stereo, 4 to 192 kHz. Stereo is averaged; other rates are resampled below the fold-over.
//! Everything else is refused by name, with what was found.

use crate::{g711, resample};
use std::path::{Path, PathBuf};

/// A file longer than this at 8 kHz is not a line of a script (10 minutes).
const MAX_SECONDS: u64 = 600;
const MAX_FILE_BYTES: u64 = 256 << 20;
const LINE_HZ: u32 = 8_000;

#[derive(Debug, thiserror::Error)]
pub enum AudioFileError {
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{}: {found}; wanted .ulaw (raw 8 kHz mu-law) or .wav (mu-law, A-law, PCM 8/16/24/32 bit or float, mono or stereo)", path.display())]
    Unsupported { path: PathBuf, found: String },
    #[error("{}: there is no sound in it: {found}", path.display())]
    Empty { path: PathBuf, found: &'static str },
    #[error("{}: it is longer than {MAX_SECONDS} seconds, too long for one line of a caller", path.display())]
    TooLong { path: PathBuf },
    #[error("{}: the WAV is damaged: {problem}", path.display())]
    Damaged { path: PathBuf, problem: String },
    #[error("no built-in voice is called {name:?}")]
    UnknownBuiltin { name: String },
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sound {
    /// 8 kHz mono, one byte a sample.
    pub mulaw: Vec<u8>,
    /// The WAV's header promises more sound than the file has.
    pub truncated: Option<Truncated>,
}

/// Bytes of sound, as the file has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    pub promised: usize,
    pub there: usize,
}

/// Read a file as 8 kHz mono μ-law, one byte a sample. Of a truncated one, what is there.
pub fn read(path: &Path) -> Result<Vec<u8>, AudioFileError> {
    inspect(path).map(|sound| sound.mulaw)
}

/// As [`read`], with what is wrong with the file.
pub fn inspect(path: &Path) -> Result<Sound, AudioFileError> {
    let unreadable = |source| AudioFileError::Unreadable { path: path.to_owned(), source };
    let length = std::fs::metadata(path).map_err(unreadable)?.len();
    if length > MAX_FILE_BYTES {
        let found = format!("{length} bytes, more than {MAX_FILE_BYTES}");
        return Err(AudioFileError::Unsupported { path: path.to_owned(), found });
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    match ending.as_str() {
        // The header decides for a raw file too: a WAV under the wrong name would be played as noise.
        "ulaw" | "ul" | "mulaw" if !bytes.starts_with(b"RIFF") => {
            if bytes.is_empty() {
                return Err(AudioFileError::Empty { path: path.to_owned(), found: "it is an empty file" });
            }
            Ok(Sound { mulaw: bytes, truncated: None })
        }
        _ => decode_wav(&bytes).map_err(|problem| match problem {
            WavProblem::Unsupported(found) => AudioFileError::Unsupported { path: path.to_owned(), found },
            WavProblem::Damaged(problem) => AudioFileError::Damaged { path: path.to_owned(), problem },
            WavProblem::Empty(found) => AudioFileError::Empty { path: path.to_owned(), found },
            WavProblem::TooLong => AudioFileError::TooLong { path: path.to_owned() },
        }),
    }
}

#[derive(Debug)]
enum WavProblem {
    Unsupported(String),
    Damaged(String),
    Empty(&'static str),
    TooLong,
}

#[derive(Debug, Clone, Copy)]
enum Encoding {
    Pcm { bits: u16 },
    Float32,
    ALaw,
    MuLaw,
}

#[derive(Debug, Clone, Copy)]
struct Format {
    encoding: Encoding,
    channels: u16,
    hz: u32,
}

// Format tags of RFC 2361.
const TAG_PCM: u16 = 1;
const TAG_FLOAT: u16 = 3;
const TAG_ALAW: u16 = 6;
const TAG_MULAW: u16 = 7;
const TAG_EXTENSIBLE: u16 = 0xfffe;

fn decode_wav(bytes: &[u8]) -> Result<Sound, WavProblem> {
    let (format, sound, truncated) = split_wav(bytes)?;
    let frame_bytes = format.encoding.sample_bytes() * usize::from(format.channels);
    let frames = sound.len() / frame_bytes;
    if frames == 0 {
        return Err(WavProblem::Empty("it is a WAV without a sample"));
    }
    if frames as u64 > MAX_SECONDS * u64::from(format.hz) {
        return Err(WavProblem::TooLong);
    }
    // μ-law at line rate is what we want already: every byte stays as it is.
    if let (Encoding::MuLaw, 1, LINE_HZ) = (format.encoding, format.channels, format.hz) {
        return Ok(Sound { mulaw: sound.to_vec(), truncated });
    }
    let mono: Vec<f32> =
        sound.chunks_exact(frame_bytes).map(|frame| frame_level(format.encoding, frame, format.channels)).collect();
    let line = if format.hz == LINE_HZ {
        mono
    } else {
        let failed = |problem| WavProblem::Unsupported(format!("{} Hz: {problem}", format.hz));
        resample::whole(&mono, format.hz, LINE_HZ).map_err(failed)?
    };
    let mulaw = line.into_iter().map(|s| g711::linear_to_mulaw((s.clamp(-1.0, 1.0) * 32_767.0) as i16)).collect();
    Ok(Sound { mulaw, truncated })
}

fn split_wav(bytes: &[u8]) -> Result<(Format, &[u8], Option<Truncated>), WavProblem> {
    if bytes.is_empty() {
        return Err(WavProblem::Empty("it is an empty file"));
    }
    if bytes.len() < 12 || &bytes[..4] != b"RIFF" || &bytes[8..12] != b"WAVE" {
        return Err(WavProblem::Unsupported(describe_magic(bytes)));
    }
    let mut rest = &bytes[12..];
    let mut format = None;
    while rest.len() >= 8 {
        let length = u32::from_le_bytes([rest[4], rest[5], rest[6], rest[7]]) as usize;
        let body = &rest[8..];
        match &rest[..4] {
            b"fmt " => format = Some(read_format(body.get(..length).unwrap_or(body))?),
            b"data" => {
                let format = format.ok_or_else(|| WavProblem::Damaged("its data comes before its format".into()))?;
                // Recorders that stream write 0 or 0xffffffff for a length they do not know yet.
                let unknown = length == 0 || length == u32::MAX as usize;
                let truncated =
                    (!unknown && length > body.len()).then_some(Truncated { promised: length, there: body.len() });
                return Ok((format, body.get(..length).filter(|b| !b.is_empty()).unwrap_or(body), truncated));
            }
            _ => {}
        }
        // Chunks are padded to even length.
        rest = body.get(length.saturating_add(length & 1)..).unwrap_or_default();
    }
    Err(WavProblem::Damaged("it has no data chunk".into()))
}

fn read_format(chunk: &[u8]) -> Result<Format, WavProblem> {
    let word = |at: usize| chunk.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let short = || WavProblem::Damaged("its format chunk is cut short".into());
    let (mut tag, channels) = (word(0).ok_or_else(short)?, word(2).ok_or_else(short)?);
    let hz = u32::from(word(4).ok_or_else(short)?) | u32::from(word(6).ok_or_else(short)?) << 16;
    let bits = word(14).ok_or_else(short)?;
    if tag == TAG_EXTENSIBLE {
        // The true tag is the first word of the sub-format GUID.
        tag = word(24).ok_or_else(short)?;
    }
    let encoding = match (tag, bits) {
        (TAG_PCM, 8 | 16 | 24 | 32) => Encoding::Pcm { bits },
        (TAG_FLOAT, 32) => Encoding::Float32,
        (TAG_ALAW, 8) => Encoding::ALaw,
        (TAG_MULAW, 8) => Encoding::MuLaw,
        (tag, bits) => return Err(WavProblem::Unsupported(format!("a WAV of format tag {tag:#06x} with {bits} bits"))),
    };
    if !(1..=2).contains(&channels) {
        return Err(WavProblem::Unsupported(format!("a WAV of {channels} channels")));
    }
    if !(4_000..=192_000).contains(&hz) {
        return Err(WavProblem::Unsupported(format!("a WAV of {hz} Hz")));
    }
    Ok(Format { encoding, channels, hz })
}

impl AudioFileError {
    /// Another program can make of it what is wanted here.
    pub const fn can_be_converted(&self) -> bool {
        match self {
            Self::Unsupported { .. } => true,
            Self::Unreadable { .. }
            | Self::Empty { .. }
            | Self::TooLong { .. }
            | Self::Damaged { .. }
            | Self::UnknownBuiltin { .. } => false,
        }
    }
}

impl Encoding {
    fn sample_bytes(self) -> usize {
        match self {
            Self::Pcm { bits } => usize::from(bits / 8),
            Self::Float32 => 4,
            Self::ALaw | Self::MuLaw => 1,
        }
    }
}

fn frame_level(encoding: Encoding, frame: &[u8], channels: u16) -> f32 {
    frame.chunks_exact(encoding.sample_bytes()).map(|s| sample_level(encoding, s)).sum::<f32>() / f32::from(channels)
}

/// One sample as -1.0..=1.0. `bytes` holds exactly one sample.
fn sample_level(encoding: Encoding, bytes: &[u8]) -> f32 {
    match encoding {
        Encoding::MuLaw => f32::from(g711::mulaw_to_linear(bytes[0])) / 32_768.0,
        Encoding::ALaw => f32::from(audio_codec_algorithms::decode_alaw(bytes[0])) / 32_768.0,
        Encoding::Float32 => {
            let level = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            if level.is_finite() { level } else { 0.0 }
        }
        // 8-bit WAV is unsigned around 128; wider ones are signed.
        Encoding::Pcm { bits: 8 } => (f32::from(bytes[0]) - 128.0) / 128.0,
        Encoding::Pcm { .. } => {
            let mut wide = [0u8; 4];
            wide[4 - bytes.len()..].copy_from_slice(bytes);
            i32::from_le_bytes(wide) as f32 / 2_147_483_648.0
        }
    }
}

fn describe_magic(bytes: &[u8]) -> String {
    let kind = match bytes {
        [b'I', b'D', b'3', ..] => "an MP3",
        // A frame's first eleven bits, then version (01 is none) and layer: 01 is the third, 00 stands in AAC's own frames.
        [0xff, second, ..] if second & 0xe6 == 0xe2 && second & 0x18 != 0x08 => "an MP3",
        [0xff, second, ..] if second & 0xf6 == 0xf0 => "an AAC file",
        [b'O', b'g', b'g', b'S', ..] => "an Ogg file",
        [b'f', b'L', b'a', b'C', ..] => "a FLAC file",
        [b'F', b'O', b'R', b'M', ..] => "an AIFF file",
        [b'.', b's', b'n', b'd', ..] => "a Sun AU file",
        [_, _, _, _, b'f', b't', b'y', b'p', ..] => "an MP4 or M4A file",
        _ => "not a WAV (no RIFF/WAVE header)",
    };
    kind.to_owned()
}

#[cfg(test)]
#[path = "audio_file_tests.rs"]
mod tests;
