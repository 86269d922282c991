//! The demo's lines for the ear of the scenarios, which looks for them byte for byte in what came out of the simulated
//! carrier's playout.

use scenario::ear;
use serde::Serialize;
use sim::phone::CallResult;

/// Something that the agent can say.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub voice: String,
    pub text: String,
    /// 8 kHz μ-law.
    pub mulaw: Vec<u8>,
}

/// One hearing of a line, whole or in part.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Heard {
    pub voice: String,
    pub text: String,
    /// Of the call's own time axis.
    pub from_us: u64,
    pub to_us: u64,
    pub heard_ms: u64,
    pub total_ms: u64,
    whole: bool,
}

impl Heard {
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// The words that were heard and those that were not, cut in proportion at a word's border.
    pub fn words(&self) -> (&str, &str) {
        if self.is_whole() {
            return (&self.text, "");
        }
        let upto = self.text.len() as u64 * self.heard_ms / self.total_ms.max(1);
        let border =
            self.text.char_indices().filter(|(at, c)| *c == ' ' && *at as u64 <= upto).map(|(at, _)| at).next_back();
        self.text.split_at(border.unwrap_or(0))
    }
}

/// Every hearing of every line, in order. Sound that is none of them is counted in `unknown_ms`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Hearing {
    pub heard: Vec<Heard>,
    pub unknown_ms: u64,
}

pub(crate) fn listen(result: &CallResult, lines: &[Line]) -> Hearing {
    // Two voices may say the same words, so a line is known to the ear by its voice.
    let known: Vec<ear::Line> =
        lines.iter().map(|line| ear::Line { text: line.voice.clone(), mulaw: line.mulaw.clone() }).collect();
    let spans: Vec<(u64, Vec<u8>)> = result.heard.iter().map(|span| (span.at_us, span.mulaw.clone())).collect();
    let (hearings, unknown_ms) = ear::listen(&spans, &known);
    let heard = hearings.into_iter().map(|hearing| {
        let words = lines.iter().find(|line| line.voice == hearing.text).map(|line| line.text.clone());
        Heard {
            whole: hearing.is_whole(),
            voice: hearing.text,
            text: words.unwrap_or_default(),
            from_us: hearing.from_us,
            to_us: hearing.to_us,
            heard_ms: hearing.heard_ms,
            total_ms: hearing.total_ms,
        }
    });
    Hearing { heard: heard.collect(), unknown_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_cut_where_the_sound_was() {
        let heard = |heard_ms, whole| Heard {
            voice: "v".into(),
            text: "one two three four".into(),
            from_us: 0,
            to_us: 0,
            heard_ms,
            total_ms: 1_000,
            whole,
        };
        assert_eq!(heard(500, false).words(), ("one two", " three four"));
        assert_eq!(heard(0, false).words(), ("", "one two three four"));
        assert_eq!(heard(990, true).words(), ("one two three four", ""));
    }
}
