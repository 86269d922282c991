//! What is on a line and is no caller. Made here from fixed seeds, so that everybody measures the same; music is recorded.

use super::material::{at_level, gain};
use std::f32::consts::TAU;

const HZ: f32 = 8_000.0;

/// splitmix64: the same numbers everywhere.
pub struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Evenly from -1 to 1.
    fn even(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }

    /// Near enough to Gaussian, of variance 1.
    fn bell(&mut self) -> f32 {
        (0..4).map(|_| self.even()).sum::<f32>() * 0.866
    }
}

pub fn white(seconds: usize, dbfs: f32, draw: &mut Draw) -> Vec<f32> {
    let sound: Vec<f32> = (0..seconds * 8_000).map(|_| draw.bell()).collect();
    at_level(&sound, dbfs)
}

/// 3 dB an octave, by Kellet's filter.
pub fn pink(seconds: usize, dbfs: f32, draw: &mut Draw) -> Vec<f32> {
    let mut b = [0.0_f32; 3];
    let sound: Vec<f32> = (0..seconds * 8_000)
        .map(|_| {
            let white = draw.bell();
            b[0] = 0.997_65 * b[0] + white * 0.099_046;
            b[1] = 0.963 * b[1] + white * 0.296_516_4;
            b[2] = 0.57 * b[2] + white * 1.052_691_3;
            b.iter().sum::<f32>() + white * 0.184_8
        })
        .collect();
    at_level(&sound, dbfs)
}

/// 6 dB an octave: wind, a car.
pub fn brown(seconds: usize, dbfs: f32, draw: &mut Draw) -> Vec<f32> {
    let mut sum = 0.0_f32;
    let sound: Vec<f32> = (0..seconds * 8_000)
        .map(|_| {
            sum = sum * 0.99 + draw.bell();
            sum
        })
        .collect();
    at_level(&sound, dbfs)
}

/// Mains and its harmonics.
pub fn hum(seconds: usize, hz: f32, dbfs: f32) -> Vec<f32> {
    let parts = [(1.0, 1.0), (2.0, 0.5), (3.0, 0.35), (5.0, 0.2), (7.0, 0.1)];
    let sound: Vec<f32> = (0..seconds * 8_000)
        .map(|n| parts.iter().map(|(times, part)| part * (n as f32 % 8_000.0 * hz * times * TAU / HZ).sin()).sum())
        .collect();
    at_level(&sound, dbfs)
}

/// Tones of these frequencies together, by the `(on, off)` of `cadence` in ms, `dbfs` while on.
pub fn tones(seconds: usize, hz: &[f32], cadence: &[(usize, usize)], dbfs: f32) -> Vec<f32> {
    let mut sound = Vec::with_capacity(seconds * 8_000);
    let part = gain(dbfs) * (2.0 / hz.len() as f32).sqrt();
    for &(on, off) in cadence.iter().cycle() {
        if sound.len() >= seconds * 8_000 {
            break;
        }
        let began = sound.len();
        sound.extend((0..on * 8).map(|n| {
            let at = (began + n) as f64 / f64::from(HZ);
            part * hz.iter().map(|hz| (at * f64::from(*hz) * std::f64::consts::TAU).sin() as f32).sum::<f32>()
        }));
        sound.resize(sound.len() + off * 8, 0.0);
    }
    sound.truncate(seconds * 8_000);
    sound
}

/// Keys as a person dials: numbers of 4 to 10 keys, pauses of 1 to 3 s between them.
pub fn dtmf(seconds: usize, on_ms: usize, off_ms: usize, dbfs: f32, draw: &mut Draw) -> Vec<f32> {
    let (low, high) = ([697.0, 770.0, 852.0, 941.0], [1_209.0, 1_336.0, 1_477.0]);
    let mut sound = Vec::new();
    while sound.len() < seconds * 8_000 {
        for _ in 0..4 + draw.below(7) {
            let pair = [low[draw.below(4) as usize], high[draw.below(3) as usize]];
            // Any start in a frame.
            sound.resize(sound.len() + draw.below(160) as usize, 0.0);
            let key = tones(10, &pair, &[(on_ms, 10_000)], dbfs);
            sound.extend_from_slice(&key[..(on_ms + off_ms) * 8]);
        }
        sound.resize(sound.len() + 8 * (1_000 + draw.below(2_000) as usize), 0.0);
    }
    sound.truncate(seconds * 8_000);
    sound
}

/// The three rising tones before "the number you have dialled".
pub fn information_tones(seconds: usize, dbfs: f32) -> Vec<f32> {
    let mut sound = Vec::new();
    while sound.len() < seconds * 8_000 {
        for hz in [950.0, 1_400.0, 1_800.0] {
            sound.extend(tones(1, &[hz], &[(330, 670)], dbfs).into_iter().take(330 * 8));
        }
        sound.resize(sound.len() + 3_000 * 8, 0.0);
    }
    sound.truncate(seconds * 8_000);
    sound
}

/// `a_minute` times something short at a moment that nobody expects: `shape(n, draw)` is its sample n, peak 1.
fn now_and_then(
    seconds: usize,
    a_minute: u64,
    ms: usize,
    peak_dbfs: f32,
    draw: &mut Draw,
    mut shape: impl FnMut(usize, &mut Draw) -> f32,
) -> Vec<f32> {
    let mut sound = vec![0.0; seconds * 8_000];
    for _ in 0..a_minute * seconds as u64 / 60 {
        let at = draw.below((sound.len() - ms * 8) as u64) as usize;
        for n in 0..ms * 8 {
            sound[at + n] = (sound[at + n] + gain(peak_dbfs) * shape(n, draw)).clamp(-1.0, 0.999);
        }
    }
    sound
}

/// A contact, a switch: 3 ms.
pub fn clicks(seconds: usize, peak_dbfs: f32, draw: &mut Draw) -> Vec<f32> {
    now_and_then(seconds, 120, 3, peak_dbfs, draw, |n, draw| draw.even() * (-(n as f32) / 6.0).exp())
}

/// Keys of a computer: 12 ms of noise that dies away.
pub fn typing(seconds: usize, peak_dbfs: f32, draw: &mut Draw) -> Vec<f32> {
    now_and_then(seconds, 300, 40, peak_dbfs, draw, |n, draw| draw.even() * (-(n as f32) / 50.0).exp())
}

/// A table, a door: a resonance of 150 Hz for 60 ms.
pub fn knocks(seconds: usize, peak_dbfs: f32, draw: &mut Draw) -> Vec<f32> {
    now_and_then(seconds, 40, 120, peak_dbfs, draw, |n, draw| {
        ((n as f32 * 150.0 * TAU / HZ).sin() + 0.2 * draw.even()) * (-(n as f32) / 200.0).exp()
    })
}

/// Chords of three voices with five harmonics each, two a second, and a tune above them.
pub fn chords(seconds: usize, dbfs: f32, draw: &mut Draw) -> Vec<f32> {
    let scale = [0.0, 2.0, 4.0, 5.0, 7.0, 9.0, 11.0, 12.0];
    let note = |semitones: f32| 220.0 * 2_f32.powf(semitones / 12.0);
    let mut sound = Vec::with_capacity(seconds * 8_000);
    while sound.len() < seconds * 8_000 {
        let root = draw.below(5) as usize;
        let voices = [note(scale[root]), note(scale[root + 2]), note(scale[(root + 4).min(7)])];
        for _ in 0..2 {
            let tune = note(scale[draw.below(8) as usize] + 12.0);
            sound.extend((0..2_000).map(|n| {
                let at = n as f32 / HZ;
                let fade = (-at * 4.0).exp() * (at * 200.0).min(1.0);
                let string = |hz: f32| (1..=5).map(|k| (at * hz * k as f32 * TAU).sin() / k as f32).sum::<f32>();
                fade * (voices.iter().map(|hz| string(*hz)).sum::<f32>() * 0.5 + string(tune))
            }));
        }
    }
    sound.truncate(seconds * 8_000);
    at_level(&sound, dbfs)
}

/// Many talk at once: the sum of `voices` lines, which start at different places.
pub fn babble(seconds: usize, lines: &[&[f32]], voices: usize, dbfs: f32) -> Vec<f32> {
    let sound: Vec<f32> = (0..seconds * 8_000)
        .map(|n| {
            (0..voices)
                .map(|voice| {
                    let line = lines[voice % lines.len()];
                    line[(n + voice * 77_777) % line.len()]
                })
                .sum()
        })
        .collect();
    at_level(&sound, dbfs)
}
