//! Lets a detector and the turn tracker behind it hear a line, and counts what they got right.

use super::material::{BLOCK, Line};
use audio::Detector;
use conversation::{Command, Conversation, Decision, Input, Policy};
use vocab::audio::FRAME_BYTES;
use vocab::model::ModelEvent;
use vocab::{CallTime, Samples};

const FRAME_MS: f32 = 20.0;

/// One frame as the detector and the tracker left it.
#[derive(Clone, Copy)]
struct Heard {
    /// The detector says speech, and it is above the tracker's floor.
    speech: bool,
    /// The tracker lets the caller speak: confirmed, and not quiet yet.
    turn: bool,
    confirmed: bool,
}

fn hear(detector: Detector, samples: &[i16]) -> Vec<Heard> {
    let policy = Policy::default();
    let floor = policy.turn.floor_dbfs;
    let (mut ear, mut conversation) = (detector.open(), Conversation::new(policy));
    let mut out = Vec::new();
    let mut at = CallTime(0);
    conversation.step(at, Input::CallStarted { greeting: None }, &mut out);
    conversation.step(at, Input::Model(ModelEvent::SessionReady), &mut out);
    let mut turn = false;
    samples
        .chunks_exact(FRAME_BYTES)
        .map(|frame| {
            at = at.plus_ms(20);
            let evidence = ear.hear(frame);
            out.clear();
            conversation.step(at, Input::CallerAudio { samples: Samples(FRAME_BYTES as u32), evidence }, &mut out);
            let mut confirmed = false;
            for command in &out {
                match command {
                    Command::Explain(Decision::SpeechConfirmed) => (confirmed, turn) = (true, true),
                    Command::Explain(Decision::SpeechEnded) => turn = false,
                    _ => {}
                }
            }
            Heard { speech: evidence.speech && evidence.level_dbfs >= floor, turn, confirmed }
        })
        .collect()
}

/// What came of lines on which somebody speaks. Delays in ms.
#[derive(Default)]
pub struct SpeechScore {
    pub utterances: usize,
    /// First frame of speech after the beginning, at its end.
    pub onsets: Vec<f32>,
    /// Nothing was heard of these at all.
    pub missed: usize,
    /// The detector said speech already.
    pub already: usize,
    /// Utterances of 400 ms and more, whose turn was confirmed …
    pub confirmations: Vec<f32>,
    /// … and those whose was not.
    pub unconfirmed: usize,
    /// The last frame of speech after the end; below 0 when the last words were lost.
    pub ends: Vec<f32>,
    /// No end before the next began.
    pub endless: usize,
    pub speech_frames: usize,
    pub missed_frames: usize,
    pub gap_frames: usize,
    pub gap_onsets: usize,
    pub gap_turns: usize,
}

impl SpeechScore {
    pub fn hear(&mut self, detector: Detector, line: &Line, samples: &[i16]) {
        let heard = hear(detector, samples);
        let end_of = |frame: usize| (frame + 1) as f32 * FRAME_MS;
        let ms = |sample: usize| sample as f32 / 8.0;
        for (n, spoken) in line.utterances.iter().enumerate() {
            let next = line.utterances.get(n + 1).map_or(line.sound.len(), |next| next.start);
            let first = spoken.start / FRAME_BYTES;
            let last = (spoken.end / FRAME_BYTES).min(heard.len());
            let before = first.checked_sub(1).map(|frame| heard[frame]);
            self.utterances += 1;
            let found = (first..last).find(|frame| heard[*frame].speech);
            match found {
                _ if before.is_some_and(|before| before.speech) => self.already += 1,
                Some(frame) => self.onsets.push(end_of(frame) - ms(spoken.start)),
                None => self.missed += 1,
            }
            if spoken.len() >= 400 * 8 && !before.is_some_and(|before| before.turn) {
                let patience = (last + 10).min(heard.len());
                match (first..patience).find(|frame| heard[*frame].confirmed) {
                    Some(frame) => self.confirmations.push(end_of(frame) - ms(spoken.start)),
                    None => self.unconfirmed += 1,
                }
            }
            if found.is_some() {
                let mut speech_until = None;
                let mut ended = false;
                for (frame, now) in heard.iter().enumerate().take(next / FRAME_BYTES).skip(first) {
                    if now.speech {
                        speech_until = Some(end_of(frame));
                    }
                    let quiet_ms = end_of(frame) - speech_until.unwrap_or(ms(spoken.start));
                    if frame >= last && quiet_ms >= 300.0 {
                        ended = true;
                        break;
                    }
                }
                match speech_until {
                    Some(until) if ended => self.ends.push(until - ms(spoken.end)),
                    _ => self.endless += 1,
                }
            }
            // Half a second after one utterance up to just before the next nobody speaks.
            for frame in spoken.end / FRAME_BYTES + 25..(next / FRAME_BYTES).saturating_sub(3).min(heard.len()) {
                self.gap_frames += 1;
                self.gap_onsets += usize::from(heard[frame].speech && !heard[frame - 1].speech);
                self.gap_turns += usize::from(heard[frame].confirmed);
            }
        }
        for (frame, heard) in heard.iter().enumerate() {
            let blocks = frame * FRAME_BYTES / BLOCK..(frame + 1) * FRAME_BYTES / BLOCK;
            if line.active[blocks].iter().all(|active| *active) {
                self.speech_frames += 1;
                self.missed_frames += usize::from(!heard.speech);
            }
        }
    }
}

/// What came of sound without a caller.
pub struct NoiseScore {
    pub onsets_a_minute: f32,
    pub turns_a_minute: f32,
    /// Percent of the time that the detector says speech.
    pub share: f32,
}

pub fn noise(detector: Detector, samples: &[i16]) -> NoiseScore {
    let heard = hear(detector, samples);
    let minutes = heard.len() as f32 / 3_000.0;
    let onsets = (0..heard.len()).filter(|n| heard[*n].speech && (*n == 0 || !heard[n - 1].speech)).count();
    NoiseScore {
        onsets_a_minute: onsets as f32 / minutes,
        turns_a_minute: heard.iter().filter(|heard| heard.confirmed).count() as f32 / minutes,
        share: 100.0 * heard.iter().filter(|heard| heard.speech).count() as f32 / heard.len() as f32,
    }
}

/// The value that `share` of them do not exceed.
pub fn quantile(values: &[f32], share: f32) -> Option<f32> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f32::total_cmp);
    sorted.get(((sorted.len() as f32 * share) as usize).min(sorted.len().saturating_sub(1))).copied()
}
