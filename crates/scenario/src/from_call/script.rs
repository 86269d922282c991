//! What the model did, as rules of the scenario.

use super::facts::{Facts, Response};
use super::write::quoted;
use conversation::Purpose;
use std::collections::BTreeMap;
use std::fmt::Write;
use vocab::model::ResponseEnd;

/// Words of the directions by which a response is told apart, the surest first.
const SIGNS: [&str; 5] = [
    "may already have heard",
    "Say it again",
    "news from an earlier call",
    "Tell the caller now",
    "Also tell the caller",
];
/// A greeting is told apart by so much of its directions.
const GREETING_CHARS: usize = 40;
/// Thinking that is no more than the way to the model and back.
const NO_TIME_MS: u64 = 30;
/// What was cut off would have gone on.
const CUT_OFF_MS: u64 = 2_000;

/// A key of TOML, quoted where it must be.
pub fn key(name: &str) -> String {
    let bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { name.to_owned() } else { quoted(name) }
}

/// `scrubbed`: the arguments were taken out of the recording.
pub fn rules(facts: &Facts, scrubbed: bool) -> String {
    let lengths = lengths(facts);
    // A rule with a sign of its own comes first: an answer to something else would take it.
    let (signed, others): (Vec<_>, Vec<_>) =
        facts.responses.iter().filter(|response| !response.refused).partition(|response| sign(response).is_some());
    let mut out = String::new();
    for response in signed.into_iter().chain(others) {
        // Writing to a String cannot fail.
        let _ = rule(&mut out, response, &lengths, scrubbed);
    }
    out.push_str("\n[[model]] # beyond what was recorded\nsay = \"That is not in the recording.\"\nms = 800\n");
    out
}

/// The longest that each text sounded: the same words have the same sound.
fn lengths(facts: &Facts) -> BTreeMap<&str, u64> {
    let mut lengths: BTreeMap<&str, u64> = BTreeMap::new();
    for response in &facts.responses {
        if let Some(words) = &response.words {
            let cut = matches!(response.end, None | Some(ResponseEnd::Cancelled)) && response.cancelled_us.is_some();
            let ms = u64::from(response.samples / 8) + if cut { CUT_OFF_MS } else { 0 };
            let known = lengths.entry(words).or_default();
            *known = ms.max(*known);
        }
    }
    lengths
}

fn sign(response: &Response) -> Option<String> {
    let directions = response.directions.as_deref()?;
    if let Some(sign) = SIGNS.iter().find(|sign| directions.contains(**sign)) {
        return Some((*sign).to_owned());
    }
    match response.purpose {
        Purpose::Acknowledge => Some("not confirmed".into()),
        Purpose::Greet => {
            let line = directions.lines().next().unwrap_or_default();
            Some(line.chars().take(GREETING_CHARS).collect::<String>().trim().to_owned())
                .filter(|line| !line.is_empty())
        }
        Purpose::CheckIn => Some("still there".into()),
        Purpose::Farewell => Some("Say goodbye".into()),
        Purpose::Reply | Purpose::Deliver | Purpose::Prod | Purpose::Unasked | Purpose::OfItself => None,
    }
}

fn rule(out: &mut String, response: &Response, lengths: &BTreeMap<&str, u64>, scrubbed: bool) -> std::fmt::Result {
    if response.purpose == Purpose::Unasked {
        return Ok(());
    }
    writeln!(out, "\n[[model]]\nonce = true")?;
    if let Some(sign) = sign(response) {
        writeln!(out, "instructions_contain = {}", quoted(&sign))?;
    }
    let first_us = response.first_us.or(response.cancelled_us.map(|at_us| at_us + CUT_OFF_MS * 1_000));
    let delay_ms = first_us.map_or(0, |at_us| at_us.saturating_sub(response.asked_us) / 1_000);
    if delay_ms > NO_TIME_MS {
        writeln!(out, "delay_ms = {delay_ms}")?;
    }
    let mut does = false;
    if let Some(words) = response.words.as_deref().filter(|_| response.samples > 0) {
        let ms = lengths.get(words).copied().unwrap_or_default();
        let cut = ms > u64::from(response.samples / 8);
        let why = if cut { " # it was cut off: how it would have gone on is not known" } else { "" };
        writeln!(out, "say = {}{why}\nms = {ms}", quoted(words))?;
        does = true;
    }
    if let Some(((name, arguments), more)) = response.calls.split_first() {
        if scrubbed {
            writeln!(out, "# the arguments were taken out of the recording: fill in what the tool needs")?;
        }
        writeln!(out, "call = {}", call(name, arguments))?;
        let more: Vec<_> = more.iter().map(|(name, arguments)| call(name, arguments)).collect();
        if !more.is_empty() {
            writeln!(out, "more_calls = [{}]", more.join(", "))?;
        }
        does = true;
    }
    match &response.end {
        Some(ResponseEnd::Failed { code }) => {
            writeln!(out, "fail = {}", quoted(code))?;
            does = true;
        }
        Some(ResponseEnd::Incomplete { reason }) => {
            writeln!(out, "# it ended as incomplete: {}", reason.replace('\n', " "))?
        }
        Some(ResponseEnd::Completed) if !does => {
            writeln!(out, "empty = true")?;
            does = true;
        }
        Some(ResponseEnd::Completed | ResponseEnd::Cancelled) | None => {}
    }
    if !does {
        writeln!(out, "say = \"(given up before its first sound)\" # what it would have said is not known\nms = 1000")?;
    }
    Ok(())
}

/// Arguments as a table where TOML can hold them, else as the text that came.
fn call(name: &str, arguments: &str) -> String {
    let table = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(arguments).ok();
    let table = table.and_then(|table| toml::Value::try_from(table).ok());
    let arguments = table.map_or_else(|| quoted(arguments), |table| inline(&table));
    format!("{{ name = {}, arguments = {arguments} }}", quoted(name))
}

fn inline(value: &toml::Value) -> String {
    match value {
        toml::Value::Table(table) if table.is_empty() => "{}".into(),
        toml::Value::Table(table) => {
            let pairs: Vec<_> =
                table.iter().map(|(name, value)| format!("{} = {}", key(name), inline(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        toml::Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        toml::Value::String(_)
        | toml::Value::Integer(_)
        | toml::Value::Float(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_) => value.to_string(),
    }
}
