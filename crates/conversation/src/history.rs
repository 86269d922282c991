//! What was said, and what of it was heard. The agent's words are cut at the last sample that could have been heard, since
//! the model's memory must hold no more than the caller's (R6).

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use vocab::{AudioMs, ModelItemId, ResponseId, TurnId};

use crate::playback::PlaybackEnd;

/// Entries kept; a call of an hour has a few hundred.
const MAX_ENTRIES: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    Caller {
        turn: TurnId,
        /// `None` until the transcript comes; it may be late, or never come.
        text: Option<String>,
    },
    Agent {
        response: ResponseId,
        /// Words that could have been heard.
        heard: String,
        /// Generated words that were not.
        unheard: String,
        proven: AudioMs,
        possible: AudioMs,
        interrupted: bool,
    },
}

#[derive(Clone, Debug, Default)]
pub struct History {
    entries: VecDeque<Entry>,
    /// Entries that were dropped for newer ones.
    dropped: u64,
    /// Where a transcript that is still to come belongs.
    awaiting: VecDeque<(ModelItemId, TurnId)>,
    /// Text of responses whose sound has not ended.
    speaking: Vec<(ResponseId, String)>,
}

impl History {
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Entries that there ever were.
    pub fn count(&self) -> u64 {
        self.dropped + self.entries.len() as u64
    }

    /// How many came before the first that is kept.
    pub fn first_kept(&self) -> u64 {
        self.dropped
    }

    fn push(&mut self, entry: Entry) {
        if self.entries.len() == MAX_ENTRIES {
            self.entries.pop_front();
            self.dropped += 1;
        }
        self.entries.push_back(entry);
    }

    /// The caller's words become an item: their place is kept, whenever the transcript comes.
    pub fn caller_spoke(&mut self, turn: TurnId, item: ModelItemId) {
        let known =
            self.entries.iter().any(|entry| matches!(entry, Entry::Caller { turn: known, .. } if *known == turn));
        if !known {
            self.push(Entry::Caller { turn, text: None });
        }
        if self.awaiting.len() == MAX_ENTRIES {
            self.awaiting.pop_front();
        }
        self.awaiting.push_back((item, turn));
    }

    /// Places a transcript by its item. Returns the turn it belongs to.
    pub fn caller_transcript(&mut self, item: ModelItemId, words: &str) -> Option<TurnId> {
        let place = self.awaiting.iter().position(|(waiting, _)| *waiting == item)?;
        let (_, spoken) = self.awaiting.remove(place)?;
        for entry in &mut self.entries {
            if let Entry::Caller { turn, text } = entry
                && *turn == spoken
            {
                match text {
                    // The provider split one turn into several items.
                    Some(text) => {
                        text.push(' ');
                        text.push_str(words);
                    }
                    None => *text = Some(words.to_owned()),
                }
            }
        }
        Some(spoken)
    }

    /// The session that would have transcribed it is gone.
    pub fn await_nothing(&mut self) {
        self.awaiting.clear();
    }

    /// A piece of what the model says.
    pub fn agent_text(&mut self, response: ResponseId, piece: &str) {
        match self.speaking.iter_mut().find(|(known, _)| *known == response) {
            Some((_, text)) => text.push_str(piece),
            None => self.speaking.push((response, piece.to_owned())),
        }
    }

    /// The sound of a response has ended: its words are cut at what could have been heard. Returns those.
    pub fn playback_ended(&mut self, end: &PlaybackEnd) -> String {
        let text = match self.speaking.iter().position(|(known, _)| *known == end.response) {
            Some(place) => self.speaking.remove(place).1,
            None => String::new(),
        };
        let whole = end.total == Some(end.possible);
        let cut = if whole { text.len() } else { word_cut(&text, end.possible.0, end.received.0) };
        let (heard, unheard) = text.split_at(cut);
        let heard = heard.trim();
        self.push(Entry::Agent {
            response: end.response,
            heard: heard.to_owned(),
            unheard: unheard.trim().to_owned(),
            proven: end.proven.ms(),
            possible: end.possible.ms(),
            interrupted: !whole,
        });
        heard.to_owned()
    }

    /// A response ended without a sound: its words were never on the line.
    pub fn never_sounded(&mut self, response: ResponseId) {
        self.speaking.retain(|(known, _)| *known != response);
    }
}

/// The byte where the heard words end: proportional to the audio, back to the last whole word.
fn word_cut(text: &str, heard: u32, received: u32) -> usize {
    if received == 0 {
        return 0;
    }
    let length = text.chars().count() as u64;
    let chars = (length * u64::from(heard) / u64::from(received)) as usize;
    let byte = text.char_indices().nth(chars).map_or(text.len(), |(byte, _)| byte);
    if byte == text.len() {
        return byte;
    }
    text[..byte].rfind(char::is_whitespace).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::playback::PlaybackEndedBy;
    use vocab::{PlaybackId, Samples};

    fn cut_at(possible: u32) -> PlaybackEnd {
        PlaybackEnd {
            playback: PlaybackId(1),
            response: ResponseId(1),
            proven: Samples::from_ms(possible / 2),
            possible: Samples::from_ms(possible),
            total: None,
            received: Samples::from_ms(2_000),
            how: PlaybackEndedBy::Cleared,
        }
    }

    #[test]
    fn r6_unheard_words_are_cut_back_to_the_last_whole_word() {
        let mut history = History::default();
        history.agent_text(ResponseId(1), "One moment ");
        history.agent_text(ResponseId(1), "please, Grüße");
        history.playback_ended(&cut_at(1_000));
        let entries: Vec<_> = history.entries().cloned().collect();
        assert_eq!(
            entries,
            [Entry::Agent {
                response: ResponseId(1),
                heard: "One moment".into(),
                unheard: "please, Grüße".into(),
                proven: AudioMs(500),
                possible: AudioMs(1_000),
                interrupted: true,
            }]
        );
    }

    #[test]
    fn nothing_heard_leaves_no_heard_words() {
        let mut history = History::default();
        history.agent_text(ResponseId(1), "Hello there");
        history.playback_ended(&cut_at(0));
        assert!(matches!(history.entries().next(), Some(Entry::Agent { heard, .. }) if heard.is_empty()));
    }

    #[test]
    fn a_late_transcript_finds_its_place_by_item() {
        let mut history = History::default();
        history.caller_spoke(TurnId(1), ModelItemId(7));
        history.caller_spoke(TurnId(2), ModelItemId(9));
        assert_eq!(history.caller_transcript(ModelItemId(9), "second"), Some(TurnId(2)));
        assert_eq!(history.caller_transcript(ModelItemId(7), "first"), Some(TurnId(1)));
        assert_eq!(history.caller_transcript(ModelItemId(7), "again"), None);
        let texts: Vec<_> = history.entries().map(|entry| format!("{entry:?}")).collect();
        assert!(texts[0].contains("first") && texts[1].contains("second"), "{texts:?}");
    }
}
