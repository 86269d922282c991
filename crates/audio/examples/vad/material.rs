//! Real speech from recordings, and where in it somebody speaks. The truth is taken from the clean recording, before any
//! noise and codec, so no detector has a say in it.

use audio::g711::MULAW;
use audio::{Rate, Resampler};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Samples in a block of the truth: 10 ms.
pub const BLOCK: usize = 80;
/// The nominal speech level of a telephone line (ITU-T P.56 active level), in dBFS as this crate counts it.
pub const SPEECH_DBFS: f32 = -26.0;
/// ITU-T P.56's margin: blocks less than this under the active level are active.
const MARGIN_DB: f32 = 15.9;
/// Pauses up to this long belong to the utterance, as for the turn tracker's hangover.
const PAUSE_BLOCKS: usize = 30;
/// Shorter runs are lip noise.
const SHORTEST_BLOCKS: usize = 10;

/// One speaker and the sentences.
pub struct Speaker {
    pub name: &'static str,
    pub prompts: Vec<Vec<f32>>,
}

/// A line on which somebody speaks and pauses.
#[derive(Clone)]
pub struct Line {
    pub sound: Vec<f32>,
    /// In samples, in order, apart from each other.
    pub utterances: Vec<Range<usize>>,
    /// Of each block: somebody speaks.
    pub active: Vec<bool>,
}

pub fn speakers(root: &Path, most: usize) -> Vec<Speaker> {
    let sounds = root.join("usr/share/asterisk/sounds");
    let sphinx = root.join("usr/share/pocketsphinx/test/data");
    let mut all: Vec<Speaker> =
        [("English", "en_US_f_Allison"), ("Spanish", "es_MX_f_Allison"), ("French", "fr_CA_f_June")]
            .into_iter()
            .map(|(name, folder)| Speaker { name, prompts: thinned(prompts(&sounds.join(folder)), most) })
            .collect();
    let mut wide: Vec<PathBuf> = files(&sphinx.join("librivox"));
    wide.extend(files(&sphinx.join("cards")));
    wide.extend(["goforward.raw", "numbers.raw", "something.raw"].map(|name| sphinx.join(name)));
    all.push(Speaker { name: "English, readers", prompts: wide.iter().map(|path| half(&read(path))).collect() });
    for speaker in &all {
        assert!(!speaker.prompts.is_empty(), "no recordings of {} below {}", speaker.name, root.display());
    }
    all
}

/// Hold music, one piece a file.
pub fn music(root: &Path) -> Vec<(String, Vec<f32>)> {
    let pieces: Vec<_> = files(&root.join("usr/share/asterisk/moh"))
        .into_iter()
        .map(|path| (path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), read(&path)))
        .collect();
    assert!(!pieces.is_empty(), "no music below {}", root.display());
    pieces
}

/// Sentences, no single words, beeps, apes or silences.
fn prompts(folder: &Path) -> Vec<Vec<f32>> {
    let speech = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        !["beep", "tt-", "ascending", "descending", "confbridge-join", "confbridge-leave."]
            .iter()
            .any(|odd| name.starts_with(odd))
    };
    let length = |sound: &Vec<f32>| (8_000..120_000).contains(&sound.len());
    files(folder).into_iter().filter(speech).map(|path| read(&path)).filter(length).collect()
}

/// At most `most`, taken evenly.
fn thinned(mut all: Vec<Vec<f32>>, most: usize) -> Vec<Vec<f32>> {
    let count = all.len();
    if count > most {
        all = (0..most).map(|n| std::mem::take(&mut all[n * count / most])).collect();
    }
    all
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "wav"))
        .collect();
    paths.sort();
    paths
}

/// 16-bit mono, from -1 to 1. A file that is not RIFF is samples alone.
fn read(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut data = &bytes[..];
    if bytes.starts_with(b"RIFF") {
        let mut at = 12;
        loop {
            let head = bytes.get(at..at + 8).unwrap_or_else(|| panic!("{}: no data chunk", path.display()));
            let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
            if &head[..4] == b"data" {
                data = &bytes[at + 8..bytes.len().min(at + 8 + length)];
                break;
            }
            at += 8 + length + length % 2;
        }
    }
    data.chunks_exact(2).map(|pair| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32_768.0).collect()
}

/// 16 to 8 kHz.
fn half(wide: &[f32]) -> Vec<f32> {
    let mut narrow = Vec::new();
    let mut down = Resampler::new(Rate::Hz16000, Rate::Hz8000);
    down.push(&samples(wide), &mut narrow);
    narrow.into_iter().map(|sample| f32::from(sample) / 32_768.0).collect()
}

fn samples(sound: &[f32]) -> Vec<i16> {
    sound.iter().map(|sample| (sample * 32_768.0) as i16).collect()
}

/// Through G.711 μ-law and back, as the carrier does it.
pub fn coded(sound: &[f32]) -> Vec<i16> {
    let (mut codes, mut back) = (Vec::new(), Vec::new());
    MULAW.encode(&samples(sound), &mut codes);
    MULAW.decode(&codes, &mut back);
    back
}

fn energy(sound: &[f32]) -> f32 {
    sound.iter().map(|sample| sample * sample).sum::<f32>() / sound.len().max(1) as f32
}

pub fn gain(db: f32) -> f32 {
    10_f32.powf(db / 20.0)
}

/// RMS level in dBFS.
pub fn level(sound: &[f32]) -> f32 {
    10.0 * (energy(sound) + 1e-12).log10()
}

pub fn at_level(sound: &[f32], dbfs: f32) -> Vec<f32> {
    let by = gain(dbfs - level(sound));
    sound.iter().map(|sample| sample * by).collect()
}

/// The mean energy of the blocks that are active, after P.56: active is what lies less than the margin under that mean.
fn active_energy(blocks: &[f32]) -> f32 {
    let margin = 10_f32.powf(-MARGIN_DB / 10.0);
    let mut mean = blocks.iter().sum::<f32>() / blocks.len().max(1) as f32;
    for _ in 0..20 {
        let active: Vec<f32> = blocks.iter().copied().filter(|energy| *energy > mean * margin).collect();
        mean = active.iter().sum::<f32>() / active.len().max(1) as f32;
    }
    mean
}

/// The sentences one after the other at the nominal level, with pauses of `pause_ms` (drawn evenly between the two).
pub fn line(speaker: &Speaker, pause_ms: Range<u64>, draw: &mut super::noise::Draw) -> Line {
    let mut line = Line { sound: Vec::new(), utterances: Vec::new(), active: Vec::new() };
    let pause = |line: &mut Line, draw: &mut super::noise::Draw| {
        // Any number of samples: the words fall anywhere in a frame.
        let samples = (pause_ms.start + draw.below(pause_ms.end - pause_ms.start)) * 8 + draw.below(160);
        line.sound.resize(line.sound.len() + samples as usize, 0.0);
    };
    for prompt in &speaker.prompts {
        pause(&mut line, draw);
        let began = line.sound.len();
        let blocks: Vec<f32> = prompt.chunks(BLOCK).map(energy).collect();
        let mean = active_energy(&blocks);
        let by = gain(SPEECH_DBFS) / mean.sqrt();
        line.sound.extend(prompt.iter().map(|sample| (sample * by).clamp(-1.0, 0.999)));
        let threshold = mean * 10_f32.powf(-MARGIN_DB / 10.0);
        let loud: Vec<usize> = (0..blocks.len()).filter(|n| blocks[*n] > threshold).collect();
        line.active.resize(began.div_ceil(BLOCK) + blocks.len(), false);
        for run in loud.chunk_by(|a, b| b - a <= PAUSE_BLOCKS) {
            let (first, last) = (run[0], run[run.len() - 1] + 1);
            if run.len() >= SHORTEST_BLOCKS {
                line.utterances.push(began + first * BLOCK..began + last * BLOCK);
                run.iter().for_each(|n| line.active[began.div_ceil(BLOCK) + n] = true);
            }
        }
    }
    pause(&mut line, draw);
    line.active.resize(line.sound.len().div_ceil(BLOCK), false);
    line
}
