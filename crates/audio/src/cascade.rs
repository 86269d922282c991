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
                heard: [0; KEPT * WINDOW],
                unscored: 0,
                state: State::default(),
            },
            last: false,
        }
    }
}

impl VoiceActivity for Cascade {
    fn hear(&mut self, samples: &[i16]) -> VoiceEvidence {
        let (first, second) = (&mut self.first, &mut self.second);
        let heard = self.windows.hear(samples, |window| {
            let maybe = first.judge(window) == Some(true) && level_dbfs(window) >= FAINT_DBFS;
            second.judge(window, maybe)
        });
        self.last = heard.unwrap_or(self.last);
        VoiceEvidence { speech: self.last, level_dbfs: level_dbfs(samples) }
    }

    fn reset(&mut self) {
        self.windows.clear();
        self.first.reset(VadMode::VeryAggressive);
        self.second.reset();
        self.last = false;
    }
}

/// What is asked where the first detector fires.
struct Second {
    threshold: f32,
    network: Network,
    score: f32,
    /// The newest sound, oldest sample first.
    heard: [i16; KEPT * WINDOW],
    /// How many of the newest samples the network has not heard.
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
        self.heard.copy_within(WINDOW.., 0);
        self.heard[(KEPT - 1) * WINDOW..].copy_from_slice(window);
        self.unscored = (self.unscored + WINDOW).min(KEPT * WINDOW);
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
        let mut sound = [0.0; tonality::MEMORY];
        let newest = &self.heard[self.heard.len() - tonality::MEMORY..];
        sound.iter_mut().zip(newest).for_each(|(to, from)| *to = f32::from(*from));
        if tonality_db(&sound) > tonality::TONE_DB {
            self.state.after_tone = AFTER_TONE;
            return true;
        }
        soon && tonality::soon_db(&sound) > tonality::TONE_SOON_DB
    }

    fn is_rumble(&self) -> bool {
        tonality::rumble_db(&self.heard[self.heard.len() - tonality::RUMBLE_SAMPLES..]) > tonality::RUMBLE_DB
    }

    /// The network's best word on the newest window, after all that it has missed.
    fn score(&mut self) -> f32 {
        let mut best: Option<f32> = None;
        for at in self.heard.len() - self.unscored..self.heard.len() {
            let score = self.network.hear(f32::from(self.heard[at]) * NETWORK_GAIN);
            if at >= self.heard.len() - WINDOW {
                best = best.into_iter().chain(score).reduce(f32::max);
            }
        }
        self.unscored = 0;
        self.score = best.unwrap_or(self.score);
        self.score
    }

    fn reset(&mut self) {
        self.network.reset();
        self.score = 0.0;
        self.heard.fill(0);
        self.unscored = 0;
        self.state = State::default();
    }
}

impl State {
    fn pause(&mut self) {
        self.paused = if self.speaking { 0 } else { self.paused.saturating_add(1) };
        self.speaking = false;
    }
}
