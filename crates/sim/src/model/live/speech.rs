//! The model's side of the stream: real time, silence included, and words beside it.

use std::collections::VecDeque;

/// Audio in each delta.
pub(super) const CHUNK_MS: u64 = 100;
const CHUNK_BYTES: usize = CHUNK_MS as usize * 8;
const SILENCE: u8 = 0xff;
/// Silence between two things said one after the other, as a speaker pauses.
const PAUSE_MS: u64 = 1_000;

#[derive(Debug)]
struct Saying {
    mulaw: Vec<u8>,
    text: String,
    sent: usize,
    said: usize,
    /// Where it is in the record.
    place: usize,
}

/// 100 ms of output, and what went with it.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) mulaw: Vec<u8>,
    /// Words of this chunk.
    pub(super) words: String,
    /// The saying it is of, with how much of it is out and whether that is all.
    pub(super) of: Option<(usize, u64, bool)>,
}

#[derive(Debug, Default)]
pub(super) struct Speech {
    queue: VecDeque<Saying>,
    pause_ms: u64,
    /// The model falls silent when so much more has passed.
    yields_in_ms: Option<u64>,
}

impl Speech {
    pub(super) fn say(&mut self, mulaw: Vec<u8>, text: String, place: usize) {
        self.queue.push_back(Saying { mulaw, text, sent: 0, said: 0, place });
    }

    pub(super) fn is_speaking(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The caller speaks: everything that was to be said is given up shortly.
    pub(super) fn yields(&mut self, in_ms: u64) {
        if self.is_speaking() {
            self.yields_in_ms.get_or_insert(in_ms);
        }
    }

    /// The next chunk, and the sayings that are given up with it.
    pub(super) fn next(&mut self) -> (Chunk, Vec<usize>) {
        let mut given_up = Vec::new();
        match &mut self.yields_in_ms {
            Some(0) => {
                self.yields_in_ms = None;
                given_up = self.queue.drain(..).map(|saying| saying.place).collect();
            }
            Some(left_ms) => *left_ms = left_ms.saturating_sub(CHUNK_MS),
            None => {}
        }
        let mut chunk = Chunk { mulaw: vec![SILENCE; CHUNK_BYTES], words: String::new(), of: None };
        if self.pause_ms > 0 {
            self.pause_ms = self.pause_ms.saturating_sub(CHUNK_MS);
            return (chunk, given_up);
        }
        let Some(saying) = self.queue.front_mut() else { return (chunk, given_up) };
        let end = (saying.sent + CHUNK_BYTES).min(saying.mulaw.len());
        chunk.mulaw[..end - saying.sent].copy_from_slice(&saying.mulaw[saying.sent..end]);
        saying.sent = end;
        let done = end == saying.mulaw.len();
        let share = saying.text.len() * end / saying.mulaw.len().max(1);
        // Whole words, with the space before them.
        let upto =
            if done { Some(saying.text.len()) } else { saying.text[..floor_char(&saying.text, share)].rfind(' ') };
        if let Some(upto) = upto.filter(|upto| *upto > saying.said) {
            chunk.words = saying.text[saying.said..upto].to_owned();
            saying.said = upto;
        }
        chunk.of = Some((saying.place, end as u64 / 8, done));
        if done {
            self.queue.pop_front();
            self.pause_ms = PAUSE_MS;
            if self.queue.is_empty() {
                self.yields_in_ms = None;
            }
        }
        (chunk, given_up)
    }
}

fn floor_char(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&n| text.is_char_boundary(n)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saying_leaves_whole_with_its_words_and_silence_around_it() {
        let mut speech = Speech::default();
        assert!(speech.next().0.mulaw.iter().all(|byte| *byte == SILENCE));
        speech.say(vec![1; 2_000], "One moment please".into(), 0);
        let (mut words, mut done) = (String::new(), Vec::new());
        for _ in 0..3 {
            let (chunk, _) = speech.next();
            words.push_str(&chunk.words);
            done.extend(chunk.of.map(|(_, _, done)| done));
        }
        assert_eq!((words.as_str(), done), ("One moment please", vec![false, false, true]));
        assert!(!speech.is_speaking() && speech.next().0.of.is_none());
    }

    #[test]
    fn a_speaker_who_yields_gives_up_what_was_to_come() {
        let mut speech = Speech::default();
        speech.say(vec![1; 80_000], "x".into(), 0);
        speech.say(vec![1; 80_000], "y".into(), 1);
        speech.yields(200);
        let given_up: Vec<usize> = (0..4).flat_map(|_| speech.next().1).collect();
        assert_eq!(given_up, [0, 1]);
        assert!(!speech.is_speaking());
    }
}
