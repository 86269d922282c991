//! When something happened, told by what it followed, so that a file still makes sense when the agent changes.

use crate::events::{Event, matches};

/// Nearer to the line before, an event may fall on either side of it.
const APART_US: u64 = 120_000;
/// Words of a pattern: enough to tell lines apart.
const PATTERN_CHARS: usize = 48;

/// A pattern for this event alone, by the first words of it.
pub fn pattern(event: &Event) -> String {
    let text = event.text.split_once(": ").map_or(event.text.as_str(), |(_, words)| words);
    let words: String = text.chars().take(PATTERN_CHARS).collect();
    if words.is_empty() { event.name.to_owned() } else { format!("{}: {}", event.name, words.trim_end()) }
}

/// What a caller reacts to. A voice that ends with its stream ends because of the caller.
fn is_heard(event: &Event) -> bool {
    matches!(event.name, "agent_starts" | "agent_stops") && !event.text.starts_with("stream_ended")
}

/// The `when` of something at `at_us`. It sees events since `armed_us`, which is when the line before it began; for the
/// first line and for faults it is when the call was answered.
pub fn when(events: &[Event], at_us: u64, armed_us: u64, first: bool) -> String {
    let since: Vec<&Event> = events
        .iter()
        .filter(|event| event.at_us + APART_US > armed_us && event.at_us <= at_us && is_heard(event))
        .collect();
    let anchor = since.last().filter(|event| event.at_us >= armed_us + APART_US);
    let certain = anchor.filter(|anchor| {
        let pattern = pattern(anchor);
        first || !since.iter().any(|event| event.at_us < armed_us + APART_US && matches(&pattern, event))
    });
    match certain {
        Some(anchor) => {
            let pattern = pattern(anchor);
            let nth = since.iter().filter(|event| matches(&pattern, event)).count();
            let nth = if nth > 1 { format!(", nth = {nth}") } else { String::new() };
            let plus_ms = (at_us - anchor.at_us) / 1_000;
            format!("{{ after = {}{nth}, plus_ms = {plus_ms} }}", toml::Value::from(pattern))
        }
        None if first => format!("{{ at_ms = {} }}", at_us.saturating_sub(armed_us) / 1_000),
        None => format!("{{ plus_ms = {} }}", at_us.saturating_sub(armed_us) / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_told_by_what_was_heard_last_and_else_by_the_line_before() {
        let event = |at_ms: u64, name, text: &str| Event { at_us: at_ms * 1_000, name, text: text.into() };
        let events = [
            event(0, "call_started", ""),
            event(500, "agent_starts", "Good evening"),
            event(1_400, "agent_stops", "played: Good evening"),
            event(5_000, "agent_starts", "Good evening"),
        ];
        let at = |ms: u64, armed_ms: u64, first| when(&events, ms * 1_000, armed_ms * 1_000, first);
        assert_eq!(at(200, 0, true), "{ at_ms = 200 }");
        assert_eq!(at(1_700, 0, true), r#"{ after = "agent_stops: Good evening", plus_ms = 300 }"#);
        assert_eq!(at(5_600, 0, true), r#"{ after = "agent_starts: Good evening", nth = 2, plus_ms = 600 }"#);
        assert_eq!(at(2_000, 1_500, false), "{ plus_ms = 500 }");
        // The same words just before the line began could be counted or not.
        assert_eq!(at(5_300, 450, false), "{ plus_ms = 4850 }");
    }
}
