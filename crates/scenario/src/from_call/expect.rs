//! What happened, as expectations.

use super::facts::{Facts, Happening, Hearing, Operation};
use super::when::pattern;
use super::write::quoted;
use crate::events::Event;
use crate::setup::SHIPPED_TOOLS;
use std::collections::BTreeMap;
use std::fmt::Write;
use vocab::effect::OperationStatus;

/// Two things of different clocks that were nearer than this could have come the other way round.
const APART_US: u64 = 100_000;
/// So soon after a barge-in the agent is silent (behaviour.md 3 and the carrier's way).
const SILENT_MS: u64 = 300;

/// Who moves: events of one clock follow from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    Caller,
    Voice,
    Work,
    House,
}

/// The events that tell the story, and whose they are.
fn clock(event: &Event) -> Option<Clock> {
    match event.name {
        "barged_in" | "key" => Some(Clock::Caller),
        "agent_starts" | "agent_stops" | "heard" | "interrupted" | "unproven" | "truncated" => Some(Clock::Voice),
        "proposed" | "admitted" | "attached" | "refused" | "finished" | "delivery_ready" | "suppressed"
        | "superseded" | "expired" | "tool_dropped" => Some(Clock::Work),
        "killed" | "restarted" | "model_lost" => Some(Clock::House),
        _ => None,
    }
}

pub fn expectations(facts: &Facts) -> String {
    let mut out = String::from("\n[expect]\n");
    // Writing to a String cannot fail.
    let _ = ends(&mut out, facts);
    let _ = story(&mut out, facts);
    let _ = heard(&mut out, facts);
    out
}

/// What lasts: operations, deliveries and effects.
fn ends(out: &mut String, facts: &Facts) -> std::fmt::Result {
    let statuses: Vec<Option<OperationStatus>> = facts.operations.iter().map(|operation| operation.status()).collect();
    if let Some(open) = facts.operations.iter().position(|operation| operation.status().is_none()) {
        writeln!(
            out,
            "# operations, deliveries, effects: operation {} was still under way when the recording ended.",
            open + 1
        )?;
        return Ok(());
    }
    let known: Vec<String> = statuses.iter().flatten().map(|status| quoted(status.as_str())).collect();
    writeln!(out, "operations = [{}]", known.join(", "))?;
    let deliveries: Vec<String> = facts.deliveries.iter().map(|(_, state)| quoted(state.as_str())).collect();
    writeln!(out, "deliveries = [{}]", deliveries.join(", "))?;
    // Whether an operation of another config makes something must be filled in.
    let (reads, makes) =
        (SHIPPED_TOOLS[0], |operation: &&Operation| operation.status() == Some(OperationStatus::Committed));
    let effects = facts.operations.iter().filter(|operation| operation.tool != reads).filter(makes).count();
    let unknown = facts.operations.iter().any(|operation| !SHIPPED_TOOLS.contains(&operation.tool.as_str()));
    let caution = if unknown { " # if every one of them makes something" } else { "" };
    writeln!(out, "effects = {effects}{caution}")?;
    Ok(())
}

fn story(out: &mut String, facts: &Facts) -> std::fmt::Result {
    let killed = facts.happenings.iter().any(|(_, what)| *what == Happening::Killed);
    if !killed {
        writeln!(out, "clears = {}", facts.clears)?;
    }
    let order: Vec<String> = in_order(facts).iter().map(|pattern| format!("  {},\n", quoted(pattern))).collect();
    if order.len() > 1 {
        writeln!(out, "order = [\n{}]", order.concat())?;
    }
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, event) in &facts.events {
        if matches!(event.name, "heard" | "interrupted" | "admitted" | "attached" | "refused" | "barged_in") {
            *times.entry(event.name).or_default() += 1;
        }
    }
    let times: Vec<_> = times.iter().map(|(name, count)| format!("{name} = {count}")).collect();
    if !times.is_empty() {
        writeln!(out, "times = {{ {} }}", times.join(", "))?;
    }
    let at = |name: &str| facts.events.iter().position(|(_, event)| event.name == name);
    if let (Some(from), Some(to)) = (at("proposed"), at("heard"))
        && from < to
        && !facts.events[from..to].iter().any(|(_, event)| event.name == "state" && event.text == "listening")
    {
        writeln!(out, "never_listening = [{{ from = \"proposed\", to = \"heard\" }}]")?;
    }
    let states: Vec<_> =
        facts.events.iter().filter(|(_, event)| event.name == "state").map(|(_, event)| quoted(&event.text)).collect();
    if killed {
        writeln!(out, "# states: the last second before the server died is not in the recording")?;
    } else {
        writeln!(out, "states = [{}]", states.join(", "))?;
    }
    if at("barged_in").is_some() {
        writeln!(out, "silent = [{{ after = \"barged_in\", within_ms = {SILENT_MS} }}]")?;
    }
    Ok(())
}

/// The chain of what happened, without neighbours whose order is chance.
fn in_order(facts: &Facts) -> Vec<String> {
    let mut order: Vec<(usize, Clock, &Event)> = Vec::new();
    // Looking up an unknown outcome takes a time that is drawn: what ends meanwhile comes before or after it.
    let drawn = facts.operations.iter().any(|operation| operation.outcomes.len() > 1);
    for (step, event) in &facts.events {
        let Some(clock) = clock(event).filter(|_| !drawn || event.name != "agent_stops") else { continue };
        let chance =
            order.iter().rev().take_while(|(_, _, kept)| event.at_us - kept.at_us.min(event.at_us) < APART_US).any(
                |(kept_step, kept_clock, _)| kept_step != step && *kept_clock != clock && !follows(*kept_clock, event),
            );
        if !chance {
            order.push((*step, clock, event));
        }
    }
    order
        .into_iter()
        .map(|(_, _, event)| match event.name {
            "agent_starts" | "agent_stops" => pattern(event),
            "finished" => format!("finished: {}", event.text.split(' ').next().unwrap_or_default()),
            "attached" | "refused" => format!("{}: {}", event.name, event.text),
            other => other.to_owned(),
        })
        .collect()
}

/// A voice begins because of what was there before.
fn follows(before: Clock, event: &Event) -> bool {
    event.name == "agent_starts" && before == Clock::Work
}

fn heard(out: &mut String, facts: &Facts) -> std::fmt::Result {
    let killed = facts.happenings.iter().any(|(_, what)| *what == Happening::Killed);
    let mut lines: Vec<String> = Vec::new();
    let mut words: Vec<&str> = Vec::new();
    for hearing in &facts.heard {
        if !words.contains(&hearing.words.as_str()) {
            words.push(&hearing.words);
        }
    }
    for text in words {
        // As the judge counts: every hearing whose words contain these.
        let (small, of) = (text.to_lowercase(), |whole: Option<bool>| move |hearing: &&Hearing| hearing.whole == whole);
        let meant = || facts.heard.iter().filter(|hearing| hearing.words.to_lowercase().contains(&small));
        if meant().any(|hearing| hearing.whole.is_none()) {
            lines.push(format!("  # how much was heard of {} is not in the recording\n", quoted(text)));
            continue;
        }
        for whole in [true, false] {
            let times = meant().filter(of(Some(whole))).count();
            if times > 0 && (whole || !killed) {
                let times = if times == 1 { String::new() } else { format!(", times = {times}") };
                lines.push(format!("  {{ text = {}{times}, whole = {whole} }},\n", quoted(text)));
            }
        }
    }
    if lines.is_empty() { Ok(()) } else { writeln!(out, "heard = [\n{}]", lines.concat()) }
}
