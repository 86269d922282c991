//! A comparison in one sentence. It weighs nothing: what is gained and what it costs stand beside each other, and where both
//! are there, the person decides.

use super::WhatIfReport;
use super::measures::{Spread, Tally};

/// Waits that differ by less are the same to a caller.
const NOTICED_MS: i64 = 20;
/// The same for all the sound of all the calls.
const NOTICED_SOUND_MS: i64 = 500;

pub(super) fn verdict(report: &WhatIfReport) -> String {
    let (before, after) = (&report.before, &report.after);
    let waits = [before, after].map(|tally| i64::from(Spread::of(&tally.delivery_wait_ms).median));
    let means = [before, after].map(|tally| mean(&tally.delivery_wait_ms));
    let sooner = if (means[0] - means[1]).abs() >= NOTICED_MS { means[0] - means[1] } else { 0 };
    let (costs, gains) = differences(before, after);
    let differ = report.calls.iter().filter(|call| call.before != call.after).count();
    if sooner == 0 && costs.is_empty() && gains.is_empty() {
        return format!(
            "no difference that a caller would notice; {differ} of {} calls differ at all.",
            report.calls.len()
        );
    }
    let speed = match sooner {
        0 => "deliveries begin when they did".to_owned(),
        ms => format!(
            "deliveries begin {} ms {} on average (median {} ms instead of {} ms)",
            ms.abs(),
            if ms > 0 { "sooner" } else { "later" },
            waits[1],
            waits[0]
        ),
    };
    let mut text = speed;
    if !costs.is_empty() {
        text.push_str(&format!(", at the price of {}", costs.join(", ")));
    }
    if !gains.is_empty() {
        text.push_str(&format!(", and it saves {}", gains.join(", ")));
    }
    let better = (sooner > 0 || !gains.is_empty()) && sooner >= 0 && costs.is_empty();
    let worse = (sooner < 0 || !costs.is_empty()) && sooner <= 0 && gains.is_empty();
    let word = if better {
        "better"
    } else if worse {
        "worse"
    } else {
        "a trade"
    };
    format!("{word} on these calls: {text}. {differ} of {} calls differ.", report.calls.len())
}

fn mean(values: &[u32]) -> i64 {
    let sum: i64 = values.iter().map(|ms| i64::from(*ms)).sum();
    if values.is_empty() { 0 } else { sum / values.len() as i64 }
}

/// What became more and what became less of what nobody wants.
fn differences(before: &Tally, after: &Tally) -> (Vec<String>, Vec<String>) {
    let heard = |tally: &Tally| tally.unheard_ms.iter().map(|ms| i64::from(*ms)).sum::<i64>();
    let kinds: [(&str, i64); 4] = [
        ("cut-in", change(before.cut_ins, after.cut_ins)),
        ("interrupted delivery", change(before.deliveries_interrupted, after.deliveries_interrupted)),
        ("delivery not told by the end", change(before.deliveries_left, after.deliveries_left)),
        ("stale delivery", change(before.deliveries_stale, after.deliveries_stale)),
    ];
    let (mut costs, mut gains) = (Vec::new(), Vec::new());
    for (what, change) in kinds {
        let count = change.abs();
        let text = if count == 1 { format!("1 {what}") } else { format!("{count} {}", plural(what)) };
        match change {
            1.. => costs.push(text),
            0 => {}
            ..0 => gains.push(text),
        }
    }
    let sound = heard(after) - heard(before);
    if sound.abs() >= NOTICED_SOUND_MS {
        let text = format!("{}.{} s of audio that nobody hears", sound.abs() / 1_000, sound.abs() % 1_000 / 100);
        if sound > 0 { costs.push(text) } else { gains.push(text) }
    }
    (costs, gains)
}

fn change(before: u64, after: u64) -> i64 {
    after as i64 - before as i64
}

fn plural(what: &str) -> String {
    what.replace("delivery", "deliveries").replace("cut-in", "cut-ins")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::ComparedCall;

    fn report(change: impl FnOnce(&mut Tally)) -> WhatIfReport {
        let mut before = Tally::default();
        before.delivery_wait_ms = vec![900, 1_000, 1_100];
        before.cut_ins = 2;
        let mut after = before.clone();
        change(&mut after);
        let call = ComparedCall {
            place: "call".into(),
            recorded: before.clone(),
            before: before.clone(),
            after: after.clone(),
        };
        WhatIfReport {
            overrides: vec!["gate.quiet_ms=400".into()],
            changes: Vec::new(),
            calls: vec![call],
            skipped: Vec::new(),
            recorded: before.clone(),
            before,
            after,
        }
    }

    #[test]
    fn a_verdict_says_better_worse_a_trade_or_nothing() {
        let quicker = |tally: &mut Tally| tally.delivery_wait_ms.iter_mut().for_each(|ms| *ms -= 250);
        let told = verdict(&report(quicker));
        assert!(
            told.starts_with("better") && told.contains("250 ms sooner") && told.contains("750 ms instead of 1000"),
            "{told}"
        );
        let told = verdict(&report(|tally| {
            quicker(tally);
            tally.cut_ins += 3;
            tally.deliveries_interrupted += 1;
        }));
        assert!(told.starts_with("a trade") && told.contains("price of 3 cut-ins, 1 interrupted delivery"), "{told}");
        let told = verdict(&report(|tally| tally.cut_ins -= 1));
        assert!(told.starts_with("better") && told.contains("saves 1 cut-in"), "{told}");
        let told = verdict(&report(|tally| tally.deliveries_left += 2));
        assert!(told.starts_with("worse") && told.contains("2 deliveries not told"), "{told}");
        assert!(verdict(&report(|_| {})).starts_with("no difference"));
    }
}
