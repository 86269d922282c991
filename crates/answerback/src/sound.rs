//! Sound for people's ears, and where it can be heard.

use std::io::Write;
use std::path::Path;

/// A WAV of 8 kHz mono μ-law, which every player takes (format tag 7 of RFC 2361).
pub(crate) fn write_mulaw_wav(path: &Path, mulaw: &[u8]) -> std::io::Result<()> {
    let too_long = |_| std::io::Error::other("longer than a WAV can be");
    let length = u32::try_from(mulaw.len()).map_err(too_long)?;
    let pad = length & 1;
    let riff = length.checked_add(pad + 50).ok_or_else(|| std::io::Error::other("longer than a WAV can be"))?;
    let mut bytes = Vec::with_capacity(mulaw.len() + 60);
    bytes.extend(b"RIFF");
    bytes.extend(riff.to_le_bytes());
    bytes.extend(b"WAVEfmt ");
    // A compressed format has an (empty) extension and a fact chunk with the number of samples.
    bytes.extend(18u32.to_le_bytes());
    bytes.extend(7u16.to_le_bytes());
    bytes.extend(1u16.to_le_bytes());
    bytes.extend(8_000u32.to_le_bytes());
    bytes.extend(8_000u32.to_le_bytes());
    bytes.extend(1u16.to_le_bytes());
    bytes.extend(8u16.to_le_bytes());
    bytes.extend(0u16.to_le_bytes());
    bytes.extend(b"fact");
    bytes.extend(4u32.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend(b"data");
    bytes.extend(length.to_le_bytes());
    bytes.extend(mulaw);
    if pad == 1 {
        bytes.push(0);
    }
    std::fs::File::create(path)?.write_all(&bytes)
}

/// The first and the last byte of μ-law that is voice and not the hiss of a line.
pub(crate) fn audible_bytes(mulaw: &[u8]) -> Option<(usize, usize)> {
    /// 20 ms.
    const BLOCK: usize = 160;
    /// About -34 dB below full scale: the recorded voices peak 20 dB above, their hiss stays 15 dB below.
    const LOUD: u8 = 0x28;
    let loud = |block: &[u8]| block.iter().filter(|byte| !**byte & 0x7f >= LOUD).count() >= BLOCK / 10;
    let mut blocks = mulaw.chunks(BLOCK).enumerate().filter(|(_, block)| loud(block)).map(|(n, _)| n);
    let first = blocks.next()?;
    let last = blocks.next_back().unwrap_or(first);
    Some((first * BLOCK, ((last + 1) * BLOCK).min(mulaw.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_byte_for_byte() {
        let path = std::env::temp_dir().join(format!("answerback-sound-{}.wav", std::process::id()));
        let mulaw: Vec<u8> = (0..=254).collect();
        write_mulaw_wav(&path, &mulaw).unwrap();
        let read = sim::audio_file::read(&path).unwrap();
        let length = std::fs::metadata(&path).unwrap().len();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read, mulaw);
        assert_eq!(length, 8 + 50 + 256);
    }

    #[test]
    fn a_recorded_voice_begins_and_ends_where_it_can_be_heard() {
        let mulaw = sim::voices::builtin("caller_talk_over").unwrap();
        let (first, last) = audible_bytes(mulaw).unwrap();
        // Every line lies between 0.15 s of room.
        assert!((100 * 8..260 * 8).contains(&first), "{first}");
        assert!(mulaw.len() - last < 500 * 8 && last < mulaw.len() - 80 * 8, "{last} of {}", mulaw.len());
        assert_eq!(audible_bytes(&[0xff; 800]), None);
    }
}
