//! What the model is told for one response, beyond the agent's instructions. Kept short: a model obeys short directions.

use crate::pending::Pending;
use crate::response::Purpose;
use std::fmt::Write;

/// Directions for a response; `None` when the agent's instructions are enough.
pub fn directions<'a>(
    purpose: Purpose,
    greeting: Option<&str>,
    deliveries: impl Iterator<Item = &'a Pending>,
) -> Option<String> {
    let mut text = String::new();
    match purpose {
        Purpose::Greet => text.push_str(greeting.unwrap_or_default()),
        Purpose::Acknowledge => text.push_str(
            "The request was accepted and is under way, not confirmed. Say so in one short sentence. \
             Do not say or suggest that it is done.",
        ),
        Purpose::Prod => text.push_str(
            "The caller has said something and waits. Answer them now. If you did not understand, say so and ask.",
        ),
        Purpose::CheckIn => text.push_str(
            "The caller has been silent for a while. Ask in one short sentence whether they are still there.",
        ),
        Purpose::Farewell => {
            text.push_str("The caller does not answer. Say goodbye in one short sentence: the call ends after it.")
        }
        Purpose::Reply | Purpose::Deliver | Purpose::Unasked | Purpose::OfItself => {}
    }
    for pending in deliveries {
        if !text.is_empty() {
            text.push('\n');
        }
        let how = match (pending.uncertain, pending.interrupted, purpose) {
            (true, _, _) => "The caller may already have heard this. Mention it as such, in a few words",
            (false, true, _) => "You were interrupted while saying this. Say it again, in one short sentence",
            (false, false, Purpose::Deliver) => "Tell the caller now, in one or two short sentences",
            (false, false, Purpose::Greet) => "Then tell the caller this news from an earlier call",
            (false, false, _) => "Also tell the caller in this answer",
        };
        let caution = if pending.brief.all_committed {
            ""
        } else {
            " Not all of it is confirmed: claim no success for that part."
        };
        // Writing to a String cannot fail.
        let _ = write!(text, "{how}: {}{caution}", pending.brief.text);
    }
    (!text.is_empty()).then_some(text)
}
