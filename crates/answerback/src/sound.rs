//! Writing what was heard, for people's ears.

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
}
