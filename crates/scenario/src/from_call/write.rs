//! The file: TOML for people, with comments where a recording does not tell enough.

use super::facts::{Facts, Happening, Operation};
use super::script;
use super::streams::Stream;
use super::when::when;
use super::{FromCallError, Target, expect};
use crate::events::Event;
use crate::setup::{SHIPPED_BOOKING, SHIPPED_TOOLS, shipped_greeting};
use audio::Detector;
use conversation::Policy;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use vocab::effect::{OperationStatus, Priority};

/// What a tool waits for a direct answer when its file says nothing.
const USUAL_INLINE_WAIT_MS: u32 = 700;
/// "Not found" is no proof for so much longer than the outcome was unknown.
const UNSETTLED_MS: u64 = 5_000;
/// A backend that was still at work when the recording ends.
const NEVER_ANSWERS_MS: u64 = 10_000;
/// After the stream is back, the model's session opens within this.
const SURELY_LATER_MS: u64 = 100;
/// A server is back so long before the stream is.
const REOPENS_MS: u64 = 200;
/// Longer calls need their own limit; a scenario's usual one is 60 s.
const USUAL_LIMIT_MS: u64 = 60_000;

/// A TOML string.
pub fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Writes the scenario of one story, and the caller's sounds beside it.
pub fn scenario(story: &[Stream], target: &Target<'_>) -> Result<PathBuf, FromCallError> {
    let Some(first) = story.first() else { return Err(FromCallError::Nothing { place: target.folder.to_owned() }) };
    if story.iter().all(|stream| stream.steps.is_empty()) {
        return Err(FromCallError::NoStep { place: first.place.clone() });
    }
    let policy = &first.policy;
    let facts = Facts::of(story, policy);
    let earlier = first.from_earlier();
    if !earlier.is_empty() {
        return Err(FromCallError::EarlierCallMissing { place: first.place.clone() });
    }
    let name = name(first);
    let file = target.folder.join(format!("{name}.toml"));
    if file.exists() {
        return Err(FromCallError::InTheWay { place: file });
    }
    let mut text = String::new();
    let mut sounds: Vec<(String, Vec<u8>)> = Vec::new();
    // Writing to a String cannot fail.
    let _ = head(&mut text, story, &facts, target);
    let _ = settings(&mut text, first, &facts, policy, target.config.is_none());
    let _ = caller(&mut text, &name, &facts, &mut sounds);
    let _ = faults(&mut text, &facts);
    let _ = backend(&mut text, &facts);
    text.push_str(&script::rules(&facts, first.header.scrubbed));
    text.push_str(&expect::expectations(&facts));
    let mut parts: Vec<(PathBuf, &[u8])> =
        sounds.iter().map(|(sound, mulaw)| (target.folder.join(sound), mulaw.as_slice())).collect();
    parts.push((file.clone(), text.as_bytes()));
    for (n, (place, bytes)) in parts.iter().enumerate() {
        if let Err(source) = std::fs::write(place, bytes) {
            for (place, _) in &parts[..=n] {
                // Half a scenario is worse than none; what cannot be removed was not written.
                let _ = std::fs::remove_file(place);
            }
            return Err(FromCallError::Io { place: place.clone(), source });
        }
    }
    Ok(file)
}

/// By the carrier's name of the call: short, and the same each time.
fn name(first: &Stream) -> String {
    let call = first.header.call.0.as_str();
    let end: String = call.chars().skip(call.chars().count().saturating_sub(8)).collect();
    let fit = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric());
    if !first.header.scrubbed && fit(&end) {
        return format!("call_{end}");
    }
    let folder = first.place.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("call_{}", folder.chars().map(plain).collect::<String>())
}

fn head(out: &mut String, story: &[Stream], facts: &Facts, target: &Target<'_>) -> std::fmt::Result {
    let seconds = facts.lasted_us.div_ceil(1_000_000);
    let calls = 1 + facts.happenings.iter().filter(|(_, what)| *what == Happening::CallAgain).count();
    writeln!(out, "# Made from {} recorded by version {}:", count(story.len(), "stream"), story[0].header.program)?;
    for stream in story {
        let folder = stream.place.file_name().unwrap_or_default().to_string_lossy();
        writeln!(out, "#   {folder}, {}", count(stream.steps.len(), "step"))?;
    }
    if !story[0].header.scrubbed {
        writeln!(
            out,
            "# It holds what the caller said, in words and sound. `answerback calls export` takes them out first."
        )?;
    }
    writeln!(out, "#")?;
    writeln!(out, "# To fill in, since a recording does not tell:")?;
    writeln!(out, "# - name, story and covers: what this call shows, and which rule it guards")?;
    writeln!(out, "# - what is wrong about it: the expectations say what happened, not what should have")?;
    writeln!(out, "# - how often the booking system was asked (`requests`), and how it failed where it did")?;
    if target.config.is_none() {
        writeln!(
            out,
            "# - `config`: the shipped one is played; the recorded agent `{}` had its own",
            story[0].header.agent
        )?;
    }
    for untold in &facts.untold {
        writeln!(out, "# - {untold}: no scenario plays that yet")?;
    }
    writeln!(out, "name = {}", quoted(&format!("{} of {seconds} s", count(calls, "recorded call"))))?;
    writeln!(out, "story = {}", quoted("What happened in a recorded call."))?;
    writeln!(out, "covers = []")?;
    if let Some(config) = target.config {
        let place = relative(config, target.folder);
        writeln!(out, "config = {}", quoted(&place.to_string_lossy()))?;
    }
    let limit_ms = facts.lasted_us / 1_000 * 3 / 2 + 15_000;
    if limit_ms > USUAL_LIMIT_MS {
        writeln!(out, "limit_ms = {limit_ms}")?;
    }
    Ok(())
}

pub fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// `to` as seen from the folder `from`, where both can be found.
fn relative(to: &Path, from: &Path) -> PathBuf {
    let (Ok(to), Ok(from)) = (to.canonicalize(), from.canonicalize()) else { return to.to_owned() };
    let shared = to.components().zip(from.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(shared).map(|_| Path::new("..").as_os_str());
    up.chain(to.components().skip(shared).map(|part| part.as_os_str())).collect()
}

fn settings(out: &mut String, first: &Stream, facts: &Facts, policy: &Policy, shipped: bool) -> std::fmt::Result {
    if let Ok(detector) = serde_json::from_value::<Detector>(first.header.detector.clone())
        && detector != Detector::default()
    {
        writeln!(out, "\n[server.audio]")?;
        let table = first.header.detector.as_object();
        for (key, value) in table.into_iter().flatten() {
            writeln!(out, "{} = {}", if key == "kind" { "detector" } else { key }, plain(value))?;
        }
    }
    if let Some(gap_us) = facts.operations.iter().filter_map(|o| o.unknown_for()).map(|(_, gap_us)| gap_us).max() {
        // Asked often, so that the truth is told when it was; "not found" proves nothing before that.
        let settle_ms = gap_us / 1_000 + UNSETTLED_MS;
        writeln!(out, "\n[server.executor]\nsettle_ms = {settle_ms}\nlook_up_base_ms = 100\nlook_up_cap_ms = 100")?;
    }
    let greeting = facts.greeting.as_deref().unwrap_or_default();
    if greeting != shipped_greeting() {
        writeln!(out, "\n[agent]\ngreeting = {}", quoted(greeting))?;
    }
    let (ours, usual) = (serde_json::to_value(policy), serde_json::to_value(Policy::default()));
    if let (Ok(Value::Object(ours)), Ok(usual)) = (ours, usual) {
        for (part, keys) in ours {
            let changed: Vec<_> =
                keys.as_object().into_iter().flatten().filter(|(k, v)| usual[&part][*k] != **v).collect();
            if !changed.is_empty() {
                writeln!(out, "\n[agent.policy.{part}]")?;
            }
            for (key, value) in changed {
                writeln!(out, "{key} = {}", plain(value))?;
            }
        }
    }
    let mut tools: BTreeMap<&str, &Operation> = BTreeMap::new();
    for operation in &facts.operations {
        tools.entry(&operation.tool).or_insert(operation);
    }
    for (tool, operation) in tools {
        let brief = facts.briefs.iter().find(|brief| brief.operations.contains(&operation.id));
        let wait = operation.inline_wait_ms;
        let mut lines = String::new();
        if shipped && !SHIPPED_TOOLS.contains(&tool) {
            let like = quoted(SHIPPED_BOOKING);
            writeln!(
                lines,
                "like = {like} # the shipped config has no such tool: give its effect and parameters here"
            )?;
        }
        let of = facts.operations.iter().filter(|operation| operation.tool == tool);
        if of.flat_map(|operation| &operation.outcomes).any(|(_, status, _)| *status == OperationStatus::Unknown) {
            writeln!(lines, "effect = \"lookup\" # its outcome was unknown for a while, so a key was not enough")?;
        }
        if let Some((from_us, _)) = operation.unknown_for() {
            let ms = from_us.saturating_sub(operation.admitted_us) / 1_000;
            writeln!(lines, "attempt_timeout_ms = {ms} # then its outcome was unknown")?;
        }
        if wait != USUAL_INLINE_WAIT_MS {
            writeln!(lines, "inline_wait_ms = {wait}")?;
        }
        if brief.is_some_and(|brief| brief.priority == Priority::Urgent) {
            writeln!(lines, "delivery.priority = \"urgent\"")?;
        }
        if let Some(ms) = brief.and_then(|brief| brief.quiet_ms) {
            writeln!(lines, "delivery.quiet_ms = {ms}")?;
        }
        if let Some(ms) = brief.and_then(|brief| brief.fresh_for_ms) {
            writeln!(lines, "delivery.stale_after_ms = {ms}")?;
        }
        if !lines.is_empty() {
            write!(out, "\n[tools.{tool}]\n{lines}")?;
        }
    }
    Ok(())
}

/// A number, a flag or a word of JSON as TOML.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), quoted)
}

fn caller(out: &mut String, name: &str, facts: &Facts, sounds: &mut Vec<(String, Vec<u8>)>) -> std::fmt::Result {
    let events: Vec<Event> = facts.events.iter().map(|(_, event)| event.clone()).collect();
    let mut armed_us = answered_us(facts);
    let mut first = true;
    let mut killed_us = None;
    for (at_us, what) in &facts.happenings {
        let line = match what {
            Happening::Sound(sound) => {
                let length_ms = (sound.to_us - sound.from_us) / 1_000;
                match (&sound.mulaw, &sound.text) {
                    (Some(mulaw), Some(text)) => {
                        let file = format!("{name}_{}.ulaw", sounds.len() + 1);
                        let line = format!("say = {}\ntext = {}\n", quoted(&file), quoted(text));
                        sounds.push((file, mulaw.clone()));
                        line
                    }
                    (None, Some(text)) => format!("speech_ms = {length_ms}\ntext = {}\n", quoted(text)),
                    // Our detector heard it, and the model did not take it for speech.
                    (_, None) => format!("blip_ms = {length_ms}\n"),
                }
            }
            Happening::Key(digit) => format!("dtmf = \"{digit}\"\n"),
            Happening::HungUp => "hang_up = true\n".into(),
            Happening::CallAgain => "call_again = true\n".into(),
            Happening::Killed => {
                killed_us = Some(*at_us);
                continue;
            }
            Happening::ModelLost | Happening::Refused(_) | Happening::MarksDropped | Happening::MarksLate(_) => {
                continue;
            }
        };
        let when = match what {
            // The caller gave up on the dead line.
            Happening::HungUp if killed_us == Some(*at_us) => "{ after = \"killed\" }".into(),
            _ => when(&events, *at_us, armed_us, first),
        };
        write!(out, "\n[[caller]]\nwhen = {when}\n{line}")?;
        (armed_us, first) = (*at_us, false);
    }
    Ok(())
}

fn answered_us(facts: &Facts) -> u64 {
    let answered = facts.events.iter().find(|(_, event)| event.name == "call_started");
    answered.map_or(0, |(_, event)| event.at_us)
}

fn faults(out: &mut String, facts: &Facts) -> std::fmt::Result {
    let events: Vec<Event> = facts.events.iter().map(|(_, event)| event.clone()).collect();
    let answered_us = answered_us(facts);
    for (at_us, what) in &facts.happenings {
        let line = match what {
            Happening::Killed => "kill = true".to_owned(),
            Happening::ModelLost => "lose_model = true".to_owned(),
            Happening::Refused(count) => format!("refuse_creates = {count}"),
            Happening::MarksDropped => "drop_marks = true".to_owned(),
            Happening::MarksLate(ms) => format!("delay_marks_ms = {ms}"),
            Happening::Sound(_) | Happening::Key(_) | Happening::HungUp | Happening::CallAgain => continue,
        };
        write!(out, "\n[[fault]]\nwhen = {}\n{line}\n", when(&events, *at_us, answered_us, true))?;
    }
    Ok(())
}

fn backend(out: &mut String, facts: &Facts) -> std::fmt::Result {
    for operation in &facts.operations {
        let (mut rule, mut again) = (String::new(), String::new());
        let after_ms = |at_us: u64| at_us.saturating_sub(operation.admitted_us) / 1_000;
        let outcome = operation.outcomes.first();
        match (operation.killed_us, outcome) {
            // Made in time, and nobody was left to hear of it: what happened by the last account.
            (Some(killed_us), _) => {
                let commit_ms = after_ms(killed_us).saturating_sub(50);
                writeln!(
                    rule,
                    "times = 1\ncommit_ms = {commit_ms}\nanswer_ms = {NEVER_ANSWERS_MS} # the server died first"
                )?;
                if let Some(ms) = again_ms(facts, operation, killed_us) {
                    again =
                        format!("\n[[backend]] # the same, asked again\n{}commit_ms = {ms}\n", arguments(operation));
                }
            }
            (None, None) => {
                let commit_ms = after_ms(facts.lasted_us) + 200;
                writeln!(rule, "commit_ms = {commit_ms} # the recording ends before: how it ended is not known")?;
            }
            (None, Some((at_us, status, words))) => {
                let unknown_us = operation.unknown_for().map_or(0, |(_, gap_us)| gap_us);
                let ms = after_ms(at_us + unknown_us);
                let shared = same_arguments(facts, operation) > 1;
                if shared {
                    writeln!(rule, "times = 1")?;
                }
                writeln!(rule, "commit_ms = {ms}")?;
                match status {
                    OperationStatus::Committed => {}
                    OperationStatus::Unknown if unknown_us > 0 => {}
                    OperationStatus::Unknown => writeln!(rule, "lose_answer = true # or it took too long to answer")?,
                    OperationStatus::FailedFinal
                    | OperationStatus::FailedRetryable
                    | OperationStatus::Cancelled
                    | OperationStatus::Admitted
                    | OperationStatus::Running => {
                        let why = words.split('{').next().unwrap_or_default().trim();
                        writeln!(rule, "refuse = true # {}", why.replace('\n', " "))?;
                    }
                }
            }
        }
        write!(out, "\n[[backend]] # {}\n{}{rule}{again}", operation.tool, arguments(operation))?;
    }
    Ok(())
}

/// How long the question after the restart took, when its answer came after the first words had been asked for.
fn again_ms(facts: &Facts, operation: &Operation, killed_us: u64) -> Option<u64> {
    let back = facts.events.iter().find(|(_, event)| event.name == "restarted" && event.at_us > killed_us)?;
    let (told_us, _, _) = operation.outcomes.first()?;
    let asked = facts.responses.iter().find(|response| response.asked_us >= back.1.at_us)?;
    let ms = told_us.saturating_sub(back.1.at_us) / 1_000;
    (*told_us > asked.asked_us).then_some(ms.max(SURELY_LATER_MS) + REOPENS_MS)
}

fn same_arguments(facts: &Facts, operation: &Operation) -> usize {
    facts.operations.iter().filter(|other| other.arguments == operation.arguments).count()
}

/// The plain ones: a request is told apart by them.
fn arguments(operation: &Operation) -> String {
    let Ok(Value::Object(all)) = serde_json::from_str::<Value>(&operation.arguments) else { return String::new() };
    let scalar = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
    let pairs: Vec<_> = all
        .iter()
        .filter(|(_, value)| scalar(value))
        .map(|(k, v)| format!("{} = {}", script::key(k), plain(v)))
        .collect();
    if pairs.is_empty() { String::new() } else { format!("arguments = {{ {} }}\n", pairs.join(", ")) }
}
