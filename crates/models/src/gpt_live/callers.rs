//! What the caller says, from fragments that define no turn: a gap on the session's timeline, or fragments that stay away, end
//! what was said.

use super::encode::floor_char;
use super::wire::Words;

/// A gap between fragments this long begins something new; the voice's own measure.
const GAP_MS: u64 = super::voice::GAP_MS as u64;
/// No further fragment for so long: what was said is whole. Fragments come with a delay that differs.
const PATIENCE_MS: u64 = 1_200;
/// Longest that one thing said is kept whole.
pub const SAID_BYTES: usize = 8 * 1024;
/// What was said since the last delegation, for the tool that it is given to; the newest is kept.
pub const ASKED_BYTES: usize = 2_000;

#[derive(Debug)]
struct Said {
    text: String,
    end_ms: u64,
    heard_ms: u64,
}

#[derive(Debug, Default)]
pub struct CallerWords {
    open: Option<Said>,
    asked: String,
}

impl CallerWords {
    /// Takes a fragment. Returns what was said before it, if that is whole now.
    pub fn hear(&mut self, words: &Words, now_ms: u64) -> Option<String> {
        self.asked.push_str(&words.text);
        let over = self.asked.len().saturating_sub(ASKED_BYTES);
        let cut = (over..=self.asked.len()).find(|at| self.asked.is_char_boundary(*at)).unwrap_or(over);
        self.asked.drain(..cut);
        let is_new = self.open.as_ref().is_none_or(|said| words.start_ms > said.end_ms + GAP_MS);
        let before = if is_new { self.take() } else { None };
        let said = self.open.get_or_insert_with(|| Said { text: String::new(), end_ms: 0, heard_ms: now_ms });
        let room = SAID_BYTES.saturating_sub(said.text.len());
        said.text.push_str(&words.text[..floor_char(&words.text, room)]);
        said.end_ms = said.end_ms.max(words.end_ms);
        said.heard_ms = now_ms;
        before
    }

    /// What is whole since nothing came after it.
    pub fn finished(&mut self, now_ms: u64) -> Option<String> {
        if self.finishes_ms()? <= now_ms { self.take() } else { None }
    }

    pub fn finishes_ms(&self) -> Option<u64> {
        self.open.as_ref().map(|said| said.heard_ms + PATIENCE_MS)
    }

    /// What was said since this was last asked.
    pub fn take_asked(&mut self) -> String {
        std::mem::take(&mut self.asked).trim().to_owned()
    }

    fn take(&mut self) -> Option<String> {
        let text = self.open.take()?.text.trim().to_owned();
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, start_ms: u64) -> Words {
        Words { text: text.to_owned(), start_ms, end_ms: start_ms + 200 }
    }

    #[test]
    fn a_gap_or_fragments_that_stay_away_end_what_was_said() {
        let mut callers = CallerWords::default();
        assert_eq!(callers.hear(&words("A table", 1_000), 1_300), None);
        assert_eq!(callers.hear(&words(" for two.", 1_800), 2_100), None);
        assert_eq!(callers.hear(&words("Hello?", 2_900), 3_200), Some("A table for two.".into()));
        assert_eq!(callers.finished(4_399), None);
        assert_eq!(callers.finished(4_400), Some("Hello?".into()));
        assert_eq!(callers.finished(9_000), None);
        assert_eq!(callers.take_asked(), "A table for two.Hello?");
        assert_eq!(callers.take_asked(), "");
    }

    #[test]
    fn words_without_end_are_bounded() {
        let mut callers = CallerWords::default();
        for n in 0..10_000 {
            callers.hear(&words("é窓 ", n), n);
        }
        assert!(callers.open.as_ref().is_some_and(|said| said.text.len() <= SAID_BYTES));
        assert!(callers.asked.len() <= ASKED_BYTES);
    }
}
