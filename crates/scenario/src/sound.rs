//! What is heard on the line. The caller's sounds are real speech, since real detectors judge them; each of the agent's
//! texts has a noise of its own, so that what reached the caller's ear can be told apart byte by byte.

use audio::g711::MULAW;
use audio::level_dbfs;
use sim::audio_file::AudioFileError;
use sim::voices;
use std::path::Path;
use vocab::audio::{FRAME_BYTES, MULAW_SILENCE};

/// Blocks louder than this are the voice itself and no pause in it.
const VOICED_DBFS: i8 = -26;

/// What the recorded lines say.
const TEXTS: &[(&str, &str)] = &[
    ("builtin:caller_request", "Hello, I'd like to book a table for two at nine tonight, please."),
    (
        "builtin:caller_talk_over",
        "Oh, and could we sit by the window if there is one? That would be lovely, thank you.",
    ),
    ("builtin:caller_thanks", "That's wonderful, thank you very much. Goodbye."),
    ("builtin:caller_hello_again", "Hello again."),
];

pub fn text_of(voice: &str) -> Option<&'static str> {
    TEXTS.iter().find(|(name, _)| *name == voice).map(|(_, text)| *text)
}

/// A recording, as 8 kHz μ-law.
pub fn recording(named: &str, base: &Path) -> Result<Vec<u8>, AudioFileError> {
    voices::load(named, base)
}

/// Speech without a pause, `ms` long: the longest voiced stretch of a recorded line, over and over.
pub fn speech(ms: u32) -> Vec<u8> {
    let voiced = longest_voiced();
    voiced.iter().copied().cycle().take(ms as usize * 8).collect()
}

fn longest_voiced() -> &'static [u8] {
    let line = voices::builtin("caller_request").unwrap_or_default();
    let mut samples = Vec::new();
    let (mut best, mut start) = (0..0, None);
    let blocks = line.chunks_exact(FRAME_BYTES).chain(std::iter::once(&[MULAW_SILENCE; FRAME_BYTES][..]));
    for (n, block) in blocks.enumerate() {
        MULAW.decode(block, &mut samples);
        if level_dbfs(&samples) >= VOICED_DBFS {
            start.get_or_insert(n);
        } else if let Some(from) = start.take()
            && n - from > best.len()
        {
            best = from..n;
        }
    }
    &line[best.start * FRAME_BYTES..best.end * FRAME_BYTES]
}

/// Speech in pieces of two frames: our detector hears it, and the model's, which wants three in a row, does not.
pub fn blip(ms: u32) -> Vec<u8> {
    let mut codes = speech(ms);
    for frame in codes.chunks_mut(FRAME_BYTES).skip(2).step_by(3) {
        frame.fill(MULAW_SILENCE);
    }
    codes
}

/// Hiss of about -60 dBFS.
pub fn noise(ms: u32) -> Vec<u8> {
    let mut state = 1u64;
    let samples: Vec<i16> = (0..ms * 8).map(|_| (draw(&mut state) % 64) as i16 - 32).collect();
    let mut codes = Vec::new();
    MULAW.encode(&samples, &mut codes);
    codes
}

/// The sound of one of the agent's texts: the same text has the same sound, another one another.
pub fn agent(text: &str, ms: u32) -> Vec<u8> {
    // FNV-1a.
    let mut state = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (0..ms * 8).map(|_| (draw(&mut state) >> 56) as u8).collect()
}

/// splitmix64.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use audio::Detector;

    /// Frames that the detector calls speech and that are above the floor.
    fn heard(codes: &[u8]) -> usize {
        let mut detector = Detector::default().open();
        let mut samples = Vec::new();
        let mut count = 0;
        for frame in codes.chunks(FRAME_BYTES) {
            MULAW.decode(frame, &mut samples);
            let evidence = detector.hear(&samples);
            count += usize::from(evidence.speech && evidence.level_dbfs >= -50);
        }
        count
    }

    #[test]
    fn the_detector_hears_speech_and_blips_and_no_noise() {
        assert!(longest_voiced().len() >= 8 * 200, "{} ms", longest_voiced().len() / 8);
        assert!(heard(&speech(1_000)) >= 45, "{}", heard(&speech(1_000)));
        assert!((2..10).contains(&heard(&blip(100))), "{}", heard(&blip(100)));
        assert_eq!(heard(&noise(1_000)), 0);
    }

    #[test]
    fn no_three_frames_of_a_blip_are_loud_in_a_row() {
        let mut samples = Vec::new();
        let loud: Vec<bool> = blip(400)
            .chunks(FRAME_BYTES)
            .map(|frame| {
                MULAW.decode(frame, &mut samples);
                level_dbfs(&samples) > -39
            })
            .collect();
        assert!(loud.windows(3).all(|three| three.contains(&false)), "{loud:?}");
        assert!(loud.windows(2).any(|two| two == [true, true]), "{loud:?}");
    }
}
