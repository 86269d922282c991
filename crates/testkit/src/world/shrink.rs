//! Makes a failing world small: as few kinds of fault, as few acts and as little time as still break the same rule.

use super::plan::{Fault, Faults};
use super::{Options, Outcome, World};
use std::fmt::{self, Display, Formatter};

/// Runs spent on one failure; each takes milliseconds.
const MOST_RUNS: u32 = 3_000;

pub struct Shrunk {
    pub seed: u64,
    pub options: Options,
    /// With its timeline.
    pub outcome: Outcome,
}

pub fn shrink(seed: u64) -> Option<Shrunk> {
    let first = World::run(seed, &Options::default());
    let rule = first.violations.first()?.rule;
    let mut runs = 0;
    let mut fails = |options: &Options| {
        runs += 1;
        runs < MOST_RUNS && World::run(seed, options).violations.first().is_some_and(|broken| broken.rule == rule)
    };
    let mut best = Options::default();
    loop {
        let before = (best.without, best.skip.len(), best.end_ms);
        for fault in first.faults.iter().filter(|fault| !before.0.has(*fault)) {
            let fewer = Options { without: best.without.with(fault), ..best.clone() };
            if fails(&fewer) {
                best = fewer;
            }
        }
        // From the last to the first: what came after the failure goes in one piece.
        let mut width = first.acts.next_power_of_two();
        while width > 0 {
            for start in (0..first.acts).step_by(width).rev() {
                let mut skip = best.skip.clone();
                skip.extend((start..first.acts.min(start + width)).filter(|act| !best.skip.contains(act)));
                if skip.len() > best.skip.len() {
                    let fewer = Options { skip, ..best.clone() };
                    if fails(&fewer) {
                        best = fewer;
                    }
                }
            }
            width /= 2;
        }
        let mut end_ms = best.end_ms.unwrap_or(first.calm_ms);
        let mut cut = end_ms / 2;
        while cut > 50 {
            let shorter = Options { end_ms: Some(end_ms.saturating_sub(cut)), ..best.clone() };
            if fails(&shorter) {
                best = shorter;
                end_ms = end_ms.saturating_sub(cut);
            } else {
                cut /= 2;
            }
        }
        if before == (best.without, best.skip.len(), best.end_ms) {
            break;
        }
    }
    best.skip.sort_unstable();
    let outcome = World::run(seed, &Options { trace: true, ..best.clone() });
    Some(Shrunk { seed, options: best, outcome })
}

impl Display for Shrunk {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for line in &self.outcome.timeline {
            writeln!(f, "{line}")?;
        }
        for broken in &self.outcome.violations {
            writeln!(f, "seed {} breaks {}: {}", self.seed, broken.rule, broken.what)?;
        }
        let left: Vec<String> = self.outcome.faults.without(self.options.without).iter().map(Fault::name).collect();
        writeln!(f, "faults left: {}", if left.is_empty() { "none".into() } else { left.join(", ") })?;
        write!(f, "again: cargo xtask sim --seed {}{}", self.seed, self.options)
    }
}

impl Display for Options {
    /// As the command line takes it.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.without != Faults::default() {
            let names: Vec<String> = self.without.iter().map(Fault::name).collect();
            write!(f, " --without {}", names.join(","))?;
        }
        if !self.skip.is_empty() {
            let numbers: Vec<String> = self.skip.iter().map(usize::to_string).collect();
            write!(f, " --skip {}", numbers.join(","))?;
        }
        if let Some(end_ms) = self.end_ms {
            write!(f, " --end-ms {end_ms}")?;
        }
        Ok(())
    }
}
