//! Success that was claimed though nothing was done: said by a model that never called the tool, or before the outcome was known (R1).
//! It has been heard, so it cannot be taken back; the model is told, and corrects it in its next answer.

use crate::command::Command;
use crate::conversation::Conversation;
use crate::decision::Decision;
use vocab::ResponseId;

impl Conversation {
    /// The caller has heard these words of a response.
    pub(crate) fn judge_claim(&mut self, response: ResponseId, heard: &str, out: &mut Vec<Command>) {
        let Some(claim) = claim(heard, &self.policy.claims.words) else { return };
        if self.work.any_committed() || self.pending.knows_commit() {
            return;
        }
        out.push(Command::Explain(Decision::ClaimUnfounded { response, claim: claim.to_owned() }));
        self.add_context(
            format!(
                "You told the caller \"{heard}\", but nothing that was asked for in this call is confirmed. Correct that in your next \
                 sentence to them, and do what they asked for with the tools."
            ),
            out,
        );
    }
}

/// What turns a claim into something else: a denial, a condition, a promise.
const UNSAYING: [&str; 12] =
    ["not", "nothing", "no", "never", "if", "once", "when", "until", "unless", "before", "will", "would"];

/// The first of the words that claim success, if any sentence does.
fn claim<'a>(heard: &str, words: &'a [String]) -> Option<&'a str> {
    let heard = heard.to_lowercase().replace('\u{2019}', "'");
    let claims = |sentence: &&str| {
        let unsays = sentence.contains("n't") || UNSAYING.iter().any(|word| contains_words(sentence, word));
        !sentence.ends_with('?') && !unsays
    };
    let sentences: Vec<_> = heard.split_inclusive(['.', '!', '?', ';']).map(str::trim).filter(claims).collect();
    words.iter().map(String::as_str).find(|words| sentences.iter().any(|sentence| contains_words(sentence, words)))
}

/// As whole words, so that "unbooked" is not "booked".
fn contains_words(text: &str, words: &str) -> bool {
    let ends = |part: Option<char>| part.is_none_or(|c| !c.is_alphanumeric());
    text.match_indices(words)
        .any(|(at, _)| ends(text[..at].chars().next_back()) && ends(text[at + words.len()..].chars().next()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::ClaimPolicy;

    #[test]
    fn what_claims_success_is_found_and_what_only_sounds_like_it_is_not() {
        let words = ClaimPolicy::default().words;
        for claims in
            ["I\u{2019}ve booked it for nine.", "Your table is booked.", "You're all set!", "It has been confirmed"]
        {
            assert!(claim(claims, &words).is_some(), "{claims}");
        }
        for claims_nothing in [
            "I am booking it now.",
            "It is not booked yet.",
            "Shall I have it booked?",
            "It isn't confirmed.",
            "The reception is bookedout.",
            "Sorry, nothing is booked yet.",
            "Once it is confirmed I will tell you.",
            "I'll say so when the table is booked.",
            "Is it possible that your table is booked?",
        ] {
            assert_eq!(claim(claims_nothing, &words), None, "{claims_nothing}");
        }
    }
}
