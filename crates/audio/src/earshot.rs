//! The earshot detector: a small recurrent network over mel features. It hears 16 kHz in windows of 256 samples, so the
//! line is doubled on its way in, and every 20 ms frame ends one window or two.

use crate::level::level_dbfs;
use crate::voice_activity::VoiceActivity;
use vocab::VoiceEvidence;

/// Samples at 16 kHz that the network takes at once: 16 ms.
const WINDOW: usize = 256;

/// Windows of silence heard before the first word is believed. A fresh network scores silence 0.26 to 0.31, digital or with
/// line noise; after 32 windows (0.5 s of sound, about 0.3 ms of work) 0.15 to 0.17, near the 0.12 to 0.14 of its end.
const WARMING_WINDOWS: usize = 32;

/// The network, and what brings 8 kHz into it.
pub(crate) struct Network {
    network: Box<::earshot::Detector>,
    doubler: Doubler,
    window: [i16; WINDOW],
    filled: usize,
}

impl Network {
    pub(crate) fn new() -> Self {
        let mut network = Self {
            network: ::earshot::Detector::default_boxed(),
            doubler: Doubler::new(),
            window: [0; WINDOW],
            filled: 0,
        };
        network.warm();
        network
    }

    /// Takes one sample at 8 kHz. The score of the window that ends with it, from 0 to 1.
    pub(crate) fn hear(&mut self, sample: f32) -> Option<f32> {
        let (first, second) = self.doubler.double(sample);
        // The window is even and two go in at once, so it fills exactly.
        self.window[self.filled] = first;
        self.window[self.filled + 1] = second;
        self.filled += 2;
        if self.filled < WINDOW {
            return None;
        }
        self.filled = 0;
        Some(self.network.predict_i16(&self.window))
    }

    pub(crate) fn reset(&mut self) {
        self.network.reset();
        self.doubler = Doubler::new();
        self.filled = 0;
        self.warm();
    }

    fn warm(&mut self) {
        for _ in 0..WARMING_WINDOWS {
            self.network.predict_i16(&[0; WINDOW]);
        }
    }
}

pub struct Earshot {
    network: Network,
    threshold: f32,
    last: bool,
}

impl Earshot {
    /// `threshold` from 0 to 1: scores at and above it are speech.
    pub fn new(threshold: f32) -> Self {
        Self { network: Network::new(), threshold, last: false }
    }
}

impl VoiceActivity for Earshot {
    fn hear(&mut self, samples: &[i16]) -> VoiceEvidence {
        let mut heard: Option<bool> = None;
        for &sample in samples {
            if let Some(score) = self.network.hear(f32::from(sample)) {
                heard = Some(heard.unwrap_or(false) || score >= self.threshold);
            }
        }
        self.last = heard.unwrap_or(self.last);
        VoiceEvidence { speech: self.last, level_dbfs: level_dbfs(samples) }
    }

    fn reset(&mut self) {
        self.network.reset();
        self.last = false;
    }
}

/// 8 to 16 kHz by a half-band filter: each sample passes as it is, and between two neighbours goes what a windowed sinc
/// over eight of them says. Delays by four samples, half a millisecond; the 10 ms of the FFT resampler would be added
/// to every barge-in.
struct Doubler {
    /// The last eight samples, oldest first.
    recent: [f32; 8],
}

/// sin(πx)/(πx) at x = ±0.5, ±1.5, ±2.5, ±3.5 under a Hamming window of nine, scaled so that a constant stays itself.
const TAPS: [f32; 4] = [0.622_593, -0.164_358, 0.058_929, -0.017_163];

impl Doubler {
    const fn new() -> Self {
        Self { recent: [0.0; 8] }
    }

    fn double(&mut self, sample: f32) -> (i16, i16) {
        self.recent.copy_within(1.., 0);
        self.recent[7] = sample;
        let r = &self.recent;
        let between =
            TAPS[0] * (r[3] + r[4]) + TAPS[1] * (r[2] + r[5]) + TAPS[2] * (r[1] + r[6]) + TAPS[3] * (r[0] + r[7]);
        // `as` saturates.
        (r[3] as i16, between as i16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubling_keeps_a_constant_and_a_tone() {
        assert!((2.0 * TAPS.iter().sum::<f32>() - 1.0).abs() < 1e-4, "{}", 2.0 * TAPS.iter().sum::<f32>());
        let mut doubler = Doubler::new();
        let tone = |n: f32| 10_000.0 * (n * 1_000.0 * std::f32::consts::TAU / 8_000.0).sin();
        for n in 0..400 {
            let (even, odd) = doubler.double(tone(n as f32).trunc());
            if n >= 8 {
                let at = (n - 4) as f32;
                assert!((f32::from(even) - tone(at)).abs() < 2.0);
                assert!((f32::from(odd) - tone(at + 0.5)).abs() < 150.0, "{odd} for {}", tone(at + 0.5));
            }
        }
    }

    #[test]
    fn a_warmed_network_is_surer_of_silence_than_a_fresh_one() {
        let mut fresh = ::earshot::Detector::default();
        let cold = fresh.predict_i16(&[0; WINDOW]);
        let mut warmed = Network::new();
        let warm = warmed.network.predict_i16(&[0; WINDOW]);
        assert!(cold > 0.25, "{cold}: a fresh network is sure already, so warming is idle work");
        assert!(warm < 0.18, "{warm}");
    }
}
