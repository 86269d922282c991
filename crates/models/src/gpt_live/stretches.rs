//! The stretches of the model's voice: which response each is, what of it the caller was given, and which words were said when.
//! Everything has a bound; reaching it forgets the oldest first.

use super::encode::floor_char;
use super::wire::Words;
use std::collections::VecDeque;
use vocab::audio::SAMPLES_PER_MS;
use vocab::{AudioMs, ModelItemId, ModelResponseId, ResponseId, Samples};

/// Stretches remembered: far more than are ever in play at once.
pub const STRETCHES_KEPT: usize = 32;
/// Pieces of transcript kept of one stretch; a piece is a word or two.
pub const PIECES_KEPT: usize = 512;
/// Longest piece of transcript that is kept to say later what was heard.
const PIECE_BYTES: usize = 512;
/// Jumps of a stretch's sound against the session's timeline: one for each long pause.
const JUMPS_KEPT: usize = 128;
/// How far the times of a transcript may lie outside the voice that they are about.
pub const TOLERANCE_MS: u64 = 500;
/// Longest quotation of what was heard.
const QUOTE_BYTES: usize = 240;

#[derive(Debug)]
pub struct Stretch {
    pub response: ModelResponseId,
    pub item: ModelItemId,
    pub request: Option<ResponseId>,
    /// On the session's timeline.
    begin_ms: u64,
    end_ms: u64,
    /// Sound that the caller was given.
    pub given: Samples,
    jumps: VecDeque<(Samples, u64)>,
    pieces: VecDeque<Words>,
    pub is_over: bool,
    /// Where the caller's interruption cut it: words after it were never given.
    cut_ms: Option<u64>,
    /// What the model was told that the caller heard of it.
    told_heard: Option<AudioMs>,
}

/// What the model is to be told of a stretch that was not heard whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotHeard {
    /// There is no such stretch any more.
    Unknown,
    /// All that was given was heard, or as much was said to be heard already.
    NothingNew,
    Say(String),
}

#[derive(Debug, Default)]
pub struct Stretches {
    kept: VecDeque<Stretch>,
}

impl Stretches {
    pub fn begin(&mut self, stretch: Stretch) {
        if self.kept.len() >= STRETCHES_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(stretch);
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// The one that is being said.
    pub fn open(&mut self) -> Option<&mut Stretch> {
        self.kept.back_mut().filter(|stretch| !stretch.is_over)
    }

    /// The model says on what was cut; nobody is given it.
    pub fn went_on_until(&mut self, end_ms: u64) {
        if let Some(stretch) = self.kept.back_mut().filter(|stretch| stretch.cut_ms.is_some()) {
            stretch.end_ms = stretch.end_ms.max(end_ms);
        }
    }

    /// Gives the words to the stretch that they are about, by their times; `None` if there is none. Whoever is told of them
    /// gets the text back, unless the caller was never given that part.
    pub fn place(&mut self, words: &Words) -> Option<Option<(ModelResponseId, ModelItemId)>> {
        let middle_ms = words.start_ms.midpoint(words.end_ms);
        let (_, at) = (0..self.kept.len())
            .rev()
            .map(|at| (self.kept[at].distance_ms(middle_ms), at))
            .filter(|(distance_ms, _)| *distance_ms <= TOLERANCE_MS)
            .min_by_key(|(distance_ms, _)| *distance_ms)?;
        let stretch = &mut self.kept[at];
        if stretch.cut_ms.is_some_and(|cut_ms| middle_ms >= cut_ms) {
            return Some(None);
        }
        if stretch.pieces.len() >= PIECES_KEPT {
            stretch.pieces.pop_front();
        }
        let kept = words.text.get(..floor_char(&words.text, PIECE_BYTES)).unwrap_or_default().to_owned();
        stretch.pieces.push_back(Words { text: kept, ..*words });
        Some(Some((stretch.response, stretch.item)))
    }

    /// Words for the model: the caller heard no more of `item` than `heard`.
    pub fn not_heard(&mut self, item: ModelItemId, heard: AudioMs) -> NotHeard {
        let Some(stretch) = self.kept.iter_mut().rev().find(|stretch| stretch.item == item) else {
            return NotHeard::Unknown;
        };
        let given = stretch.given.ms();
        let was_cut = stretch.cut_ms.is_some() || !stretch.is_over;
        if (heard >= given && !was_cut) || stretch.told_heard.is_some_and(|told| told <= heard) {
            return NotHeard::NothingNew;
        }
        stretch.told_heard = Some(heard);
        NotHeard::Say(stretch.in_words(heard.min(given)))
    }
}

impl Stretch {
    pub const fn new(
        response: ModelResponseId,
        item: ModelItemId,
        request: Option<ResponseId>,
        begin_ms: u64,
        end_ms: u64,
    ) -> Self {
        Self {
            response,
            item,
            request,
            begin_ms,
            end_ms,
            given: Samples::ZERO,
            jumps: VecDeque::new(),
            pieces: VecDeque::new(),
            is_over: false,
            cut_ms: None,
            told_heard: None,
        }
    }

    /// Sound that ends at `end_ms` was given to the caller.
    pub fn give(&mut self, samples: Samples, end_ms: u64) {
        let begins_ms = end_ms.saturating_sub(u64::from(samples.0 / SAMPLES_PER_MS));
        let expected_ms = self.jumps.back().map(|jump| timeline_ms(*jump, self.given));
        if expected_ms.is_none_or(|expected| expected.abs_diff(begins_ms) > 1) && self.jumps.len() < JUMPS_KEPT {
            self.jumps.push_back((self.given, begins_ms));
        }
        self.given = Samples(self.given.0.saturating_add(samples.0));
        self.end_ms = end_ms;
    }

    pub fn end(&mut self, end_ms: u64) {
        self.is_over = true;
        self.end_ms = end_ms;
    }

    /// The caller is not given what comes from here on, though the model says it.
    pub fn cut(&mut self, at_ms: u64) {
        self.end(at_ms);
        self.cut_ms = Some(at_ms);
    }

    fn distance_ms(&self, at_ms: u64) -> u64 {
        let end_ms = if self.is_over { self.end_ms } else { u64::MAX };
        self.begin_ms.saturating_sub(at_ms).max(at_ms.saturating_sub(end_ms))
    }

    fn in_words(&self, heard: AudioMs) -> String {
        if heard == AudioMs(0) {
            return match self.quote(u64::MAX) {
                Some(said) => format!("The caller did not hear this of what you said: \"{said}\""),
                None => "The caller heard nothing of what you said last.".to_owned(),
            };
        }
        let until_ms = self.at(heard);
        match self.quote(until_ms) {
            Some(said) => format!("You were interrupted. The caller heard only this of what you said: \"{said}\""),
            None => {
                let (whole, tenths) = (heard.0 / 1_000, heard.0 % 1_000 / 100);
                format!(
                    "You were interrupted. The caller heard only the first {whole}.{tenths} s of what you said last."
                )
            }
        }
    }

    /// When on the timeline so much of the sound had been said.
    fn at(&self, heard: AudioMs) -> u64 {
        let heard = Samples::from_ms(heard.0);
        let jump = self.jumps.iter().rev().find(|(given, _)| *given <= heard);
        jump.map_or(self.begin_ms, |jump| timeline_ms(*jump, heard))
    }

    /// The last words up to then; of a piece that lies across, the share of its time.
    fn quote(&self, until_ms: u64) -> Option<String> {
        let mut text = String::new();
        for piece in &self.pieces {
            if piece.end_ms <= until_ms {
                text.push_str(&piece.text);
            } else if piece.start_ms < until_ms {
                let share = (until_ms - piece.start_ms) as f64 / (piece.end_ms - piece.start_ms) as f64;
                let upto = floor_char(&piece.text, (piece.text.len() as f64 * share) as usize);
                // Half a word was not heard.
                let upto = piece.text[..upto].rfind(char::is_whitespace).unwrap_or(0);
                text.push_str(&piece.text[..upto]);
            }
        }
        let said = text.trim();
        let mut from = said.len().saturating_sub(QUOTE_BYTES);
        while !said.is_char_boundary(from) {
            from += 1;
        }
        let quoted = &said[from..];
        match (quoted.is_empty(), from) {
            (true, _) => None,
            (false, 0) => Some(quoted.to_owned()),
            (false, _) => Some(format!("… {}", quoted.trim_start())),
        }
    }
}

fn timeline_ms((given, at_ms): (Samples, u64), of: Samples) -> u64 {
    at_ms + u64::from(of.saturating_sub(given).ms().0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, start_ms: u64, end_ms: u64) -> Words {
        Words { text: text.to_owned(), start_ms, end_ms }
    }

    /// Said from 1 s to 2 s and, after a pause of 600 ms that was let go, to 3.6 s.
    fn two_stretches() -> Stretches {
        let mut stretches = Stretches::default();
        for (n, offset_ms) in [(0, 0), (1, 10_000)] {
            let response = ModelResponseId(n);
            let mut stretch = Stretch::new(response, ModelItemId(n), None, offset_ms + 1_000, offset_ms + 1_000);
            stretch.give(Samples::from_ms(1_000), offset_ms + 2_000);
            stretch.give(Samples::from_ms(1_000), offset_ms + 3_600);
            stretch.end(offset_ms + 3_600);
            stretches.begin(stretch);
        }
        stretches
    }

    #[test]
    fn words_belong_to_the_stretch_of_their_times_however_late_they_come() {
        let mut stretches = two_stretches();
        let placed = |stretches: &mut Stretches, start_ms, end_ms| stretches.place(&words("x", start_ms, end_ms));
        let of = |n| Some(Some((ModelResponseId(n), ModelItemId(n))));
        assert_eq!(placed(&mut stretches, 11_000, 11_400), of(1));
        assert_eq!(placed(&mut stretches, 1_000, 1_400), of(0));
        assert_eq!(placed(&mut stretches, 3_700, 4_100), of(0));
        assert_eq!(placed(&mut stretches, 6_000, 6_100), None);
        assert_eq!(placed(&mut stretches, u64::MAX, u64::MAX), None);
    }

    #[test]
    fn what_was_heard_is_quoted_by_the_timeline_and_not_by_the_share_of_the_sound() {
        let mut stretches = two_stretches();
        stretches.place(&words("Your table is", 1_000, 1_900));
        stretches.place(&words(" booked for nine tonight", 2_600, 3_600));
        let heard = NotHeard::Say(
            "You were interrupted. The caller heard only this of what you said: \"Your table is booked for nine\""
                .into(),
        );
        stretches.kept[0].cut(3_600);
        assert_eq!(stretches.not_heard(ModelItemId(0), AudioMs(1_800)), heard);
        assert_eq!(stretches.not_heard(ModelItemId(0), AudioMs(1_900)), NotHeard::NothingNew);
        let less =
            NotHeard::Say("You were interrupted. The caller heard only this of what you said: \"Your table\"".into());
        assert_eq!(stretches.not_heard(ModelItemId(0), AudioMs(800)), less);
    }

    #[test]
    fn without_a_transcript_the_model_is_told_in_seconds_and_of_nothing_heard_in_so_many_words() {
        let mut stretches = two_stretches();
        let seconds = "You were interrupted. The caller heard only the first 1.2 s of what you said last.";
        assert_eq!(stretches.not_heard(ModelItemId(1), AudioMs(1_250)), NotHeard::Say(seconds.into()));
        let nothing = "The caller heard nothing of what you said last.";
        assert_eq!(stretches.not_heard(ModelItemId(1), AudioMs(0)), NotHeard::Say(nothing.into()));
        assert_eq!(stretches.not_heard(ModelItemId(0), AudioMs(2_000)), NotHeard::NothingNew);
        assert_eq!(stretches.not_heard(ModelItemId(9), AudioMs(0)), NotHeard::Unknown);
    }

    #[test]
    fn words_after_the_cut_were_given_to_nobody() {
        let mut stretches = two_stretches();
        stretches.kept[1].cut(12_000);
        stretches.went_on_until(14_000);
        assert_eq!(stretches.place(&words("x", 13_000, 13_400)), Some(None));
        assert_eq!(stretches.place(&words("x", 11_000, 11_400)), Some(Some((ModelResponseId(1), ModelItemId(1)))));
    }
}
