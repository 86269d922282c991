//! What another policy would have changed: recorded calls are played again under it, in a world that answers as the recorded
//! one did. `docs/replay.md` says what of that is exact and what is a model; in short:
//!
//! - **Exact**: the caller (each frame's time and evidence, keys, hang-up), the model's turn detection, losses of the model
//!   session. They are what they were. A real caller would have reacted to a changed agent; this one does not.
//! - **Modelled**: everything that answers the agent. A response asked for again gets the recorded one for the same purpose
//!   and turn, with its events at the same distance from the asking; a tool call the recorded admission and outcome at the
//!   same distance from its proposal; a write its recorded acknowledgement; a mark comes back when its audio has played,
//!   plus the recording's median way there and back.
//!
//! The same model also plays the recorded policy, and that is what the changed one is compared with: an error of the model
//! is in both columns. The first column is what really happened, so that the error can be seen.

mod measures;
mod overrides;
mod plot;
mod tape;
mod verdict;
mod world;

pub use measures::{Spread, Tally};
pub use overrides::override_policy;

use crate::files::{ReplayError, find_recordings, open, recorded_policy};
use conversation::policy::PolicyFault;
use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::path::{Path, PathBuf};
use tape::Tape;

#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("`{text}` is not of the form key=value, as gate.quiet_ms=400")]
    NotAnOverride { text: String },
    #[error("the policy has no `{key}`; at that place it knows {known}")]
    UnknownKey { key: String, known: String },
    #[error("`{key}` cannot be {value}: {error}")]
    BadValue { key: String, value: String, error: serde_json::Error },
    #[error("no conversation works with that: {fault}")]
    Fault { fault: PolicyFault },
    #[error("`{key}` cannot be tried on recorded calls: {why}")]
    NotInTheRecording { key: String, why: &'static str },
    #[error("{place}: no recording is here")]
    NothingThere { place: String },
}

/// One call in its three forms.
#[derive(Clone, Debug)]
pub struct ComparedCall {
    pub place: PathBuf,
    /// What really happened.
    pub recorded: Tally,
    /// The recorded policy, in the model world.
    pub before: Tally,
    /// The changed policy, in the model world.
    pub after: Tally,
}

#[derive(Clone, Debug)]
pub struct WhatIfReport {
    pub overrides: Vec<String>,
    /// Each key with what it was in the recorded calls and what it became: `gate.quiet_ms 650 → 400`.
    pub changes: Vec<String>,
    pub calls: Vec<ComparedCall>,
    /// Recordings that could not be used, and why.
    pub skipped: Vec<(PathBuf, String)>,
    /// Of all calls.
    pub recorded: Tally,
    pub before: Tally,
    pub after: Tally,
}

/// Plays every recording at or below `place` under its own policy with `overrides` (`gate.quiet_ms=400`) put over it. A
/// recording that cannot be read is skipped and named; an override that no policy has is an error.
pub fn what_if(place: &Path, overrides: &[String]) -> Result<WhatIfReport, WhatIfError> {
    let mut report = WhatIfReport {
        overrides: overrides.to_vec(),
        changes: Vec::new(),
        calls: Vec::new(),
        skipped: Vec::new(),
        recorded: Tally::default(),
        before: Tally::default(),
        after: Tally::default(),
    };
    let mut recorded_values: Vec<BTreeSet<String>> = vec![BTreeSet::new(); overrides.len()];
    for place in find_recordings(place)? {
        match compare(&place, overrides, &mut recorded_values) {
            Ok(call) => {
                report.recorded.add(&call.recorded);
                report.before.add(&call.before);
                report.after.add(&call.after);
                report.calls.push(call);
            }
            Err(WhatIfError::Replay(error)) => report.skipped.push((place, error.to_string())),
            Err(error) => return Err(error),
        }
    }
    if report.calls.is_empty() && report.skipped.is_empty() {
        return Err(WhatIfError::NothingThere { place: place.display().to_string() });
    }
    for (text, values) in overrides.iter().zip(recorded_values) {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let was = values.into_iter().collect::<Vec<_>>().join(" or ");
        report.changes.push(format!("{} {was} → {}", key.trim(), value.trim()));
    }
    Ok(report)
}

fn compare(
    place: &Path,
    overrides: &[String],
    recorded_values: &mut [BTreeSet<String>],
) -> Result<ComparedCall, WhatIfError> {
    let mut log = open(place)?;
    let old = recorded_policy(place, log.header())?;
    let new = override_policy(&old, overrides)?;
    for (text, values) in overrides.iter().zip(recorded_values) {
        values.extend(overrides::value_at(&old, text.split_once('=').map_or("", |(key, _)| key.trim())));
    }
    let mut recorded = Tally::default();
    let mut tape = Tape::new(old.turn.end);
    for step in log.by_ref() {
        let step = step?;
        for command in &step.commands {
            recorded.see(step.at, command);
        }
        tape.take(step);
    }
    let tape = tape.wound_up();
    Ok(ComparedCall {
        place: place.to_owned(),
        recorded,
        before: world::play(&tape, old),
        after: world::play(&tape, new),
    })
}

impl WhatIfReport {
    /// Both policies side by side, for a terminal.
    pub fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_table(&mut text);
        text
    }

    fn write_table(&self, out: &mut String) -> fmt::Result {
        let tallies = [&self.recorded, &self.before, &self.after];
        writeln!(
            out,
            "{} {}, {} skipped; changed: {}",
            self.calls.len(),
            if self.calls.len() == 1 { "call" } else { "calls" },
            self.skipped.len(),
            self.changes.join(", ")
        )?;
        writeln!(out)?;
        writeln!(out, "{:<44}{:>12}{:>12}{:>12}{:>10}", "", "recorded", "before", "after", "change")?;
        for (place, (name, _)) in self.before.spreads().into_iter().enumerate() {
            let spreads = tallies.map(|tally| Spread::of(tally.spreads()[place].1));
            let mut row = |what: &str, value: fn(&Spread) -> u64| {
                let [recorded, before, after] = spreads.map(|spread| value(&spread));
                let change = i128::from(after) - i128::from(before);
                writeln!(out, "{:<44}{recorded:>12}{before:>12}{after:>12}{change:>+10}", format!("{name}, {what}"))
            };
            row("times", |spread| spread.count)?;
            row("median ms", |spread| u64::from(spread.median))?;
            row("95 % ms", |spread| u64::from(spread.p95))?;
        }
        for (place, (name, _)) in self.before.counts().into_iter().enumerate() {
            let [recorded, before, after] = tallies.map(|tally| tally.counts()[place].1);
            let change = i128::from(after) - i128::from(before);
            writeln!(out, "{name:<44}{recorded:>12}{before:>12}{after:>12}{change:>+10}")?;
        }
        writeln!(out)?;
        writeln!(out, "Verdict: {}", self.verdict())?;
        writeln!(out)?;
        writeln!(
            out,
            "recorded: what happened. before, after: both policies in the model world; their difference is the answer."
        )?;
        if self.before.invented + self.after.invented > 0 {
            writeln!(
                out,
                "{} and {} responses had no recorded counterpart and were made up from others of the call.",
                self.before.invented, self.after.invented
            )?;
        }
        if self.before.cut_short + self.after.cut_short > 0 {
            writeln!(
                out,
                "{} model worlds ran in circles and were stopped.",
                self.before.cut_short + self.after.cut_short
            )?;
        }
        for (place, why) in &self.skipped {
            // Most reasons begin with the place.
            let place = place.display().to_string();
            let place = if why.starts_with(&place) { String::new() } else { format!(" {place}:") };
            writeln!(out, "skipped:{place} {why}")?;
        }
        Ok(())
    }

    /// The comparison in one sentence: better, worse, a trade of what against what, or no difference.
    pub fn verdict(&self) -> String {
        verdict::verdict(self)
    }

    /// The waits as cumulative curves, the counts as bars: a picture of its own (SVG), without script or font of ours.
    pub fn svg(&self) -> String {
        plot::svg(self)
    }
}
