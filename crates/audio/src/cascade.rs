//! Two detectors and an ear for tones. WebRTC's, which costs a microsecond and misses nothing, says where something may
//! begin; what it fires at must be no tone and no rumble, and the network, heard only there, must call it a voice. What was
//! once vouched for goes on as long as WebRTC's hears it. (docs/vad.md has the numbers)

use crate::earshot::Network;
use crate::level::level_dbfs;
use crate::sendable_vad::SendableVad;
use crate::tonality::{self, tonality_db};
use crate::voice_activity::VoiceActivity;
use crate::windows::{WINDOW, Windows};
use vocab::VoiceEvidence;
use webrtc_vad::VadMode;

/// Windows that are kept, so that the network knows the line before the sound that it is asked about: 320 ms. With half
/// of it busy tones on a hissing line and music pass more often.
const KEPT: usize = 16;

/// A quieter window is no voice, and nothing is asked about it. Below any floor that a turn would be judged by.
const FAINT_DBFS: i8 = -60;

/// After so many windows of digital silence WebRTC's detector has come to rest, and more of them change nothing in it: a
/// muted line costs nothing.
const SETTLED: u32 = 50;

/// The network's word depends on loudness: it calls loud noise a voice. 15 dB less, and it does not; a voice stays one.
const NETWORK_GAIN: f32 = 0.178;

/// Windows in a row that vouch for a voice …
const VOUCHES: u32 = 2;
/// … and after a tone, whose end is no tone and leaves the network believing.
const VOUCHES_AFTER_TONE: u32 = 5;
const AFTER_TONE: u32 = 10;

/// Windows in a row of tone or rumble that end a voice. A sung vowel is shorter.
const LET_GO: u32 = 5;

/// A voice that was heard for 10 windows and paused for fewer than 15 needs no vouching: the same utterance goes on.
const KNOWN: u32 = 10;
const PAUSE: u32 = 15;

pub struct Cascade {
    windows: Windows,
    first: SendableVad,
    second: Second,
    /// Windows of digital silence in a row.
    silent: u32,
    last: bool,
}

impl Cascade {
    /// `threshold` from 0 to 1: scores of the network at and above it vouch for a voice.
    pub fn new(threshold: f32) -> Self {
        Self {
            windows: Windows::new(),
            first: SendableVad::new(VadMode::VeryAggressive),
            second: Second {
                threshold,
                network: Network::new(),
                score: 0.0,
                heard: Heard::new(),
                unscored: 0,
                state: State::default(),
            },
            silent: 0,
            last: false,
        }
    }
}

impl VoiceActivity for Cascade {
    fn hear(&mut self, samples: &[i16]) -> VoiceEvidence {
        let (first, second, silent) = (&mut self.first, &mut self.second, &mut self.silent);
        let heard = self.windows.hear(samples, |window| {
            *silent = if window.iter().any(|sample| *sample != 0) { 0 } else { silent.saturating_add(1) };
            let asked = *silent <= SETTLED;
            let maybe = asked && first.judge(window) == Some(true) && level_dbfs(window) >= FAINT_DBFS;
            second.judge(window, maybe)
        });
        self.last = heard.unwrap_or(self.last);
        VoiceEvidence { speech: self.last, level_dbfs: level_dbfs(samples) }
    }

    fn reset(&mut self) {
        self.windows.clear();
        self.first.reset(VadMode::VeryAggressive);
        self.second.reset();
        self.silent = 0;
        self.last = false;
    }
}

/// What is asked where the first detector fires.
struct Second {
    threshold: f32,
    network: Network,
    score: f32,
    heard: Heard,
    /// How many of the newest windows the network has not heard.
    unscored: usize,
    state: State,
}

/// In windows.
#[derive(Default)]
struct State {
    speaking: bool,
    /// Vouched for in a row.
    vouched: u32,
    /// Tone or rumble in a row inside a voice.
    odd: u32,
    /// How long the last voice was, and how long ago.
    spoken: u32,
    paused: u32,
    /// Left of the time after a tone.
    after_tone: u32,
}

impl Second {
    /// Takes the next window; `maybe` is the first detector's word.
    fn judge(&mut self, window: &[i16], maybe: bool) -> bool {
        self.heard.keep(window);
        self.unscored = (self.unscored + 1).min(KEPT);
        self.state.after_tone = self.state.after_tone.saturating_sub(1);
        if !maybe {
            self.state.vouched = 0;
            self.state.pause();
            return false;
        }
        if self.state.speaking {
            self.go_on()
        } else {
            self.begin()
        }
        self.state.speaking
    }

    fn go_on(&mut self) {
        self.state.spoken = self.state.spoken.saturating_add(1);
        let odd = self.is_tone(false) || self.is_rumble();
        self.state.odd = if odd { self.state.odd + 1 } else { 0 };
        if self.state.odd >= LET_GO {
            self.state.vouched = 0;
            self.state.pause();
        }
    }

    fn begin(&mut self) {
        let same = self.state.spoken >= KNOWN && self.state.paused < PAUSE;
        let voice = !self.is_tone(true) && !self.is_rumble() && (same || self.score() >= self.threshold);
        self.state.vouched = if voice { self.state.vouched + 1 } else { 0 };
        let needed = match (same, self.state.after_tone > 0) {
            (true, _) => 1,
            (false, true) => VOUCHES_AFTER_TONE,
            (false, false) => VOUCHES,
        };
        if self.state.vouched < needed {
            self.state.pause();
            return;
        }
        if !same {
            self.state.spoken = 0;
        }
        self.state.speaking = true;
        self.state.odd = 0;
    }

    /// `soon`: also by a measure that needs less of the tone, and that takes a little more speech for one.
    fn is_tone(&mut self, soon: bool) -> bool {
        let sound = self.heard.newest::<{ tonality::MEMORY }>();
        if tonality_db(&sound) > tonality::TONE_DB {
            self.state.after_tone = AFTER_TONE;
            return true;
        }
        soon && tonality::soon_db(&sound) > tonality::TONE_SOON_DB
    }

    fn is_rumble(&self) -> bool {
        tonality::rumble_db(&self.heard.newest::<{ tonality::RUMBLE_SAMPLES }>()) > tonality::RUMBLE_DB
    }

    /// The network's best word on the newest window, after all that it has missed.
    fn score(&mut self) -> f32 {
        let mut best: Option<f32> = None;
        for ago in (0..self.unscored).rev() {
            for sample in self.heard.window(ago) {
                let score = self.network.hear(f32::from(*sample) * NETWORK_GAIN);
                if ago == 0 {
                    best = best.into_iter().chain(score).reduce(f32::max);
                }
            }
        }
        self.unscored = 0;
        self.score = best.unwrap_or(self.score);
        self.score
    }

    fn reset(&mut self) {
        self.network.reset();
        self.score = 0.0;
        self.heard = Heard::new();
        self.unscored = 0;
        self.state = State::default();
    }
}

/// The last windows of the line, in a ring: most windows are only written.
struct Heard {
    samples: [[i16; WINDOW]; KEPT],
    /// Where the newest lies.
    newest: usize,
}

impl Heard {
    const fn new() -> Self {
        Self { samples: [[0; WINDOW]; KEPT], newest: 0 }
    }

    fn keep(&mut self, window: &[i16]) {
        self.newest = (self.newest + 1) % KEPT;
        self.samples[self.newest].copy_from_slice(window);
    }

    /// The window that came `ago` windows before the newest.
    fn window(&self, ago: usize) -> &[i16; WINDOW] {
        &self.samples[(self.newest + KEPT - ago) % KEPT]
    }

    /// The newest `N` samples, oldest first.
    fn newest<const N: usize>(&self) -> [f32; N] {
        let mut sound = [0.0; N];
        for (ago, piece) in sound.rchunks_mut(WINDOW).enumerate() {
            let window = &self.window(ago)[WINDOW - piece.len()..];
            piece.iter_mut().zip(window).for_each(|(to, from)| *to = f32::from(*from));
        }
        sound
    }
}

impl State {
    fn pause(&mut self) {
        self.paused = if self.speaking { 0 } else { self.paused.saturating_add(1) };
        self.speaking = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A person who reads (crates/sim/assets/README.md).
    fn voice(seconds: usize) -> Vec<i16> {
        let wav = include_bytes!("../../sim/assets/human_reading_0890.wav");
        wav[44..].chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).take(seconds * 8_000).collect()
    }

    #[test]
    fn the_first_detector_hears_the_same_whether_it_was_asked_about_long_silence_or_not() {
        let voice = voice(6);
        for silence in [SETTLED as usize + 1, 60, 500, 5_000] {
            let mut asked = SendableVad::new(VadMode::VeryAggressive);
            let mut spared = SendableVad::new(VadMode::VeryAggressive);
            for (turn, piece) in voice.chunks(16_000).enumerate() {
                for window in piece.chunks_exact(WINDOW) {
                    assert_eq!(
                        asked.judge(window),
                        spared.judge(window),
                        "turn {turn} after {silence} windows of silence"
                    );
                }
                for n in 0..silence {
                    let word = asked.judge(&[0; WINDOW]);
                    if n < SETTLED as usize {
                        assert_eq!(word, spared.judge(&[0; WINDOW]));
                    } else {
                        assert_eq!(word, Some(false));
                    }
                }
            }
        }
    }

    #[test]
    fn what_was_heard_is_kept_in_order_over_the_ends_of_the_ring() {
        let mut heard = Heard::new();
        for n in 0..3 * KEPT as i16 + 5 {
            heard.keep(&[n; WINDOW]);
            let newest = heard.newest::<{ 2 * WINDOW + 3 }>();
            let expected = |ago: i16| f32::from((n - ago).max(0));
            assert_eq!((newest[0], newest[3], newest[WINDOW + 3]), (expected(2), expected(1), f32::from(n)));
        }
    }
}
