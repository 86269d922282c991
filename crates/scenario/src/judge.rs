//! Compares what came with what was expected. Every expectation that does not hold is told with what was seen instead.

use crate::events::{Event, matches};
use crate::file::{Expect, Heard, Scenario};
use crate::record::Record;
use std::collections::BTreeMap;

/// An expectation that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub expected: String,
    pub seen: String,
}

/// A last echo of sound that is none of the agent's lines: rounding at a cut.
const UNKNOWN_MS: u64 = 40;

pub fn judge(scenario: &Scenario, record: &Record, unknown_ms: u64) -> Vec<Broken> {
    let expect = &scenario.expect;
    let mut broken = Vec::new();
    let mut check = |holds: bool, expected: String, seen: &dyn Fn() -> String| {
        if !holds {
            broken.push(Broken { expected, seen: seen() });
        }
    };
    check(record.violations.is_empty(), "no promise is broken on the way".into(), &|| record.violations.join("; "));
    check(unknown_ms <= UNKNOWN_MS, "only the agent's lines are heard".into(), &|| {
        format!("{unknown_ms} ms of some other sound")
    });
    let mut by_key: BTreeMap<&str, u32> = BTreeMap::new();
    for key in record.bookings.iter().flatten() {
        *by_key.entry(key).or_default() += 1;
    }
    check(by_key.values().all(|count| *count == 1), "each intent has one effect at most".into(), &|| {
        format!("{by_key:?}")
    });
    if let Some(wanted) = &expect.operations {
        let seen: Vec<_> = record.operations.iter().map(|(_, status)| *status).collect();
        check(seen == *wanted, format!("operations = {wanted:?}"), &|| format!("{:?}", record.operations));
    }
    if let Some(wanted) = &expect.deliveries {
        check(record.deliveries == *wanted, format!("deliveries = {wanted:?}"), &|| format!("{:?}", record.deliveries));
    }
    if let Some(wanted) = expect.effects {
        let seen = record.bookings.len();
        check(seen == wanted as usize, format!("effects = {wanted}"), &|| seen.to_string());
    }
    if let Some(wanted) = expect.requests {
        let seen = count(record, "backend_request");
        check(seen == wanted, format!("requests = {wanted}"), &|| seen.to_string());
    }
    if let Some(wanted) = expect.clears {
        let seen = count(record, "clear");
        check(seen == wanted, format!("clears = {wanted}"), &|| seen.to_string());
    }
    for (pattern, wanted) in &expect.times {
        let seen = count(record, pattern);
        check(seen == *wanted, format!("times: `{pattern}` = {wanted}"), &|| {
            format!("{seen}{}", all_of(record, pattern))
        });
    }
    for pattern in &expect.never {
        let first = record.events.iter().find(|event| matches(pattern, event));
        check(first.is_none(), format!("never: `{pattern}`"), &|| first.map(ToString::to_string).unwrap_or_default());
    }
    if let Some((missing, seen)) = out_of_order(&expect.order, &record.events) {
        check(false, missing, &|| seen.clone());
    }
    if let Some(wanted) = &expect.states {
        let wanted: Vec<_> = wanted.iter().map(|state| crate::events::state_name(*state)).collect();
        let seen: Vec<_> = record.events.iter().filter(|e| e.name == "state").map(|e| e.text.as_str()).collect();
        check(seen == wanted, format!("states = {wanted:?}"), &|| format!("{seen:?}"));
    }
    listening(expect, record, &mut check);
    for wanted in &expect.heard {
        let times = record.heard.iter().filter(|hearing| meant(wanted, &hearing.text, hearing.is_whole())).count();
        let how = match wanted.whole {
            Some(true) => " to its end",
            Some(false) => " in part",
            None => "",
        };
        check(times == wanted.times as usize, format!("heard{how} {} times: `{}`", wanted.times, wanted.text), &|| {
            heard(record)
        });
    }
    for silent in &expect.silent {
        let Some(event) = record.events.iter().find(|event| matches(&silent.after, event)) else {
            check(false, format!("silent after `{}`", silent.after), &|| "it never came".into());
            continue;
        };
        let until = event.at_us + silent.within_ms * 1_000;
        let loud = record.heard.iter().find(|hearing| hearing.from_us < event.at_us && hearing.to_us > until);
        check(loud.is_none(), format!("silent within {} ms of `{}`", silent.within_ms, silent.after), &|| {
            let late = loud.map_or(0, |hearing| (hearing.to_us - event.at_us) / 1_000);
            format!("`{}` sounded {late} ms on", loud.map(|h| h.text.as_str()).unwrap_or_default())
        });
    }
    broken
}

type Check<'a> = dyn FnMut(bool, String, &dyn Fn() -> String) + 'a;

fn listening(expect: &Expect, record: &Record, check: &mut Check<'_>) {
    for between in &expect.never_listening {
        let expected = format!("not listening between `{}` and `{}`", between.from, between.to);
        let Some(from) = record.events.iter().position(|event| matches(&between.from, event)) else {
            check(false, expected, &|| format!("`{}` never came", between.from));
            continue;
        };
        let rest = &record.events[from + 1..];
        match rest.iter().position(|event| matches(&between.to, event)) {
            None => check(false, expected, &|| format!("`{}` never came", between.to)),
            Some(to) => {
                let pulse = rest[..to].iter().find(|event| event.name == "state" && event.text == "listening");
                check(pulse.is_none(), expected, &|| pulse.map(ToString::to_string).unwrap_or_default());
            }
        }
    }
}

fn meant(wanted: &Heard, text: &str, whole: bool) -> bool {
    text.to_lowercase().contains(&wanted.text.to_lowercase()) && wanted.whole.is_none_or(|only| only == whole)
}

fn count(record: &Record, pattern: &str) -> u32 {
    record.events.iter().filter(|event| matches(pattern, event)).count() as u32
}

fn all_of(record: &Record, pattern: &str) -> String {
    record.events.iter().filter(|event| matches(pattern, event)).map(|event| format!("; {event}")).collect()
}

fn heard(record: &Record) -> String {
    let one =
        |h: &crate::ear::Hearing| format!("`{}` {} of {} ms at {}", h.text, h.heard_ms, h.total_ms, h.from_us / 1_000);
    if record.heard.is_empty() { "nothing".into() } else { record.heard.iter().map(one).collect::<Vec<_>>().join("; ") }
}

/// The first pattern that did not come in its place.
fn out_of_order(order: &[String], events: &[Event]) -> Option<(String, String)> {
    let mut place = 0;
    for (n, pattern) in order.iter().enumerate() {
        match events[place..].iter().position(|event| matches(pattern, event)) {
            Some(found) => place += found + 1,
            None => {
                let before = n.checked_sub(1).map_or("the start", |n| order[n].as_str());
                let seen = match events.iter().find(|event| matches(pattern, event)) {
                    Some(event) => format!("only before it: {event}"),
                    None => "never".to_owned(),
                };
                return Some((format!("order: `{pattern}` after `{before}`"), seen));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ear::Hearing;
    use std::path::Path;

    fn record() -> Record {
        let event = |at_ms: u64, name, text: &str| Event { at_us: at_ms * 1_000, name, text: text.into() };
        let hearing =
            Hearing { text: "Your table is booked".into(), from_us: 0, to_us: 900_000, heard_ms: 900, total_ms: 2_000 };
        Record {
            events: vec![
                event(1, "state", "thinking"),
                event(2, "backend_committed", "B-7"),
                event(3, "state", "listening"),
                event(4, "speech_confirmed", ""),
                event(5, "heard", "1900"),
            ],
            heard: vec![hearing],
            bookings: vec![Some("k".into()), Some("k".into())],
            ..Record::default()
        }
    }

    fn broken_by(expect: &str) -> Vec<String> {
        let text = format!("name = \"t\"\nstory = \"t\"\n[[caller]]\nhang_up = true\n[expect]\n{expect}");
        let scenario = Scenario::parse(&text, Path::new("t.toml")).unwrap();
        let mut record = record();
        record.bookings.pop();
        judge(&scenario, &record, 0).into_iter().map(|broken| broken.expected).collect()
    }

    #[test]
    fn what_holds_is_not_complained_of() {
        let all = r#"
            effects = 1
            clears = 0
            order = ["state: thinking", "backend_committed", "heard"]
            never = ["interrupted"]
            times = { heard = 1 }
            heard = [{ text = "booked", whole = false }, { text = "booked", whole = true, times = 0 }]
            silent = [{ after = "speech_confirmed", within_ms = 1000 }]
            states = ["thinking", "listening"]
            never_listening = [{ from = "speech_confirmed", to = "heard" }]"#;
        assert_eq!(broken_by(all), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_expectation_can_break() {
        for expect in [
            "effects = 2",
            "clears = 1",
            "requests = 1",
            "operations = [\"committed\"]",
            "deliveries = [\"heard\"]",
            "order = [\"heard\", \"backend_committed\"]",
            "never = [\"heard\"]",
            "times = { heard = 2 }",
            "heard = [{ text = \"booked\", times = 2 }]",
            "heard = [{ text = \"booked\", whole = true }]",
            "silent = [{ after = \"speech_confirmed\", within_ms = 100 }]",
            "states = [\"thinking\"]",
            "never_listening = [{ from = \"state: thinking\", to = \"heard\" }]",
            "never_listening = [{ from = \"expired\", to = \"heard\" }]",
        ] {
            assert_eq!(broken_by(expect).len(), 1, "{expect}");
        }
    }

    #[test]
    fn one_intent_with_two_effects_is_broken_whatever_was_expected() {
        let text = "name = \"t\"\nstory = \"t\"\n[[caller]]\nhang_up = true\n[expect]\n";
        let scenario = Scenario::parse(text, Path::new("t.toml")).unwrap();
        assert_eq!(judge(&scenario, &record(), 0).len(), 1);
    }
}
