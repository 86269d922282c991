//! Outcomes for people and for machines.

use crate::file::Runner;
use crate::run::{Outcome, Verdict};
use serde_json::{Value, json};
use std::fmt::Write;

fn runner(outcome: &Outcome) -> &'static str {
    match outcome.runner {
        Runner::Virtual => "virtual",
        Runner::Live => "live",
    }
}

/// One line an outcome: scenario, runner, milliseconds, and `ok` or the first expectation that broke.
pub fn table(outcomes: &[Outcome]) -> String {
    let width = outcomes.iter().map(|outcome| outcome.scenario.len()).max().unwrap_or(0);
    let mut text = String::new();
    for outcome in outcomes {
        let told = match &outcome.verdict {
            Verdict::Passed => "ok".to_owned(),
            Verdict::Unplayable { reason } => format!("cannot be played: {reason}"),
            Verdict::Failed { broken, .. } => {
                let more = if broken.len() > 1 { format!(" (and {} more)", broken.len() - 1) } else { String::new() };
                let first = broken.first();
                format!(
                    "BROKEN {} — seen: {}{more}",
                    first.map_or("", |broken| &broken.expected),
                    first.map_or("", |broken| &broken.seen)
                )
            }
        };
        let (name, ms) = (&outcome.scenario, outcome.took.as_millis());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:width$}  {:7}  {ms:>6} ms  {told}", runner(outcome));
    }
    text
}

/// All that broke, with what was seen and every event, for whoever looks for the reason.
pub fn details(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        if let Verdict::Failed { broken, record } = &outcome.verdict {
            let _ = writeln!(text, "\n{} ({})", outcome.scenario, runner(outcome));
            for broken in broken {
                let _ = writeln!(text, "  expected {}\n      seen {}", broken.expected, broken.seen);
            }
            for event in &record.events {
                let _ = writeln!(text, "  {event}");
            }
            for hearing in &record.heard {
                let _ = writeln!(
                    text,
                    "  {:>7} ms  the caller hears {} of {} ms: {}",
                    hearing.from_us / 1_000,
                    hearing.heard_ms,
                    hearing.total_ms,
                    hearing.text
                );
            }
        }
    }
    text
}

/// JUnit XML, one suite a runner, as CI systems read it.
pub fn junit(outcomes: &[Outcome]) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for which in [Runner::Virtual, Runner::Live] {
        let suite: Vec<_> = outcomes.iter().filter(|outcome| outcome.runner == which).collect();
        let Some(first) = suite.first() else { continue };
        let failures = suite.iter().filter(|outcome| matches!(outcome.verdict, Verdict::Failed { .. })).count();
        let errors = suite.iter().filter(|outcome| matches!(outcome.verdict, Verdict::Unplayable { .. })).count();
        let time: f64 = suite.iter().map(|outcome| outcome.took.as_secs_f64()).sum();
        let _ = writeln!(
            text,
            "  <testsuite name=\"scenarios.{}\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{time:.3}\">",
            runner(first),
            suite.len()
        );
        for outcome in suite {
            let name = xml(&outcome.scenario);
            let time = outcome.took.as_secs_f64();
            let _ = write!(text, "    <testcase name=\"{name}\" classname=\"{}\" time=\"{time:.3}\"", runner(outcome));
            match &outcome.verdict {
                Verdict::Passed => text.push_str("/>\n"),
                Verdict::Unplayable { reason } => {
                    let _ = writeln!(text, "><error message=\"{}\"/></testcase>", xml(reason));
                }
                Verdict::Failed { broken, .. } => {
                    text.push('>');
                    for broken in broken {
                        let (expected, seen) = (xml(&broken.expected), xml(&broken.seen));
                        let _ = write!(text, "<failure message=\"{expected}\">seen: {seen}</failure>");
                    }
                    text.push_str("</testcase>\n");
                }
            }
        }
        text.push_str("  </testsuite>\n");
    }
    text.push_str("</testsuites>\n");
    text
}

fn xml(text: &str) -> String {
    // Control characters are not allowed in XML 1.0, escaped or not.
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    clean.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// One document for machines.
pub fn json(outcomes: &[Outcome]) -> Value {
    let one = |outcome: &Outcome| {
        let (verdict, broken) = match &outcome.verdict {
            Verdict::Passed => ("passed", Vec::new()),
            Verdict::Unplayable { reason } => {
                ("unplayable", vec![json!({ "expected": "to be played", "seen": reason })])
            }
            Verdict::Failed { broken, .. } => {
                ("failed", broken.iter().map(|b| json!({ "expected": b.expected, "seen": b.seen })).collect())
            }
        };
        json!({
            "scenario": outcome.scenario, "runner": runner(outcome), "ms": outcome.took.as_millis() as u64,
            "verdict": verdict, "broken": broken,
        })
    };
    Value::Array(outcomes.iter().map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Broken;
    use std::time::Duration;

    fn outcomes() -> Vec<Outcome> {
        let broken = vec![Broken { expected: "effects = 1".into(), seen: "2 <\"&\u{1}>".into() }];
        let verdicts = [
            Verdict::Passed,
            Verdict::Failed { broken, record: Box::default() },
            Verdict::Unplayable { reason: "no".into() },
        ];
        let outcome = |verdict| Outcome {
            scenario: "s01".into(),
            runner: Runner::Virtual,
            took: Duration::from_millis(12),
            verdict,
        };
        verdicts.into_iter().map(outcome).collect()
    }

    #[test]
    fn a_table_says_what_broke_and_what_was_seen() {
        let table = table(&outcomes());
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].ends_with("12 ms  ok"), "{}", lines[0]);
        assert!(lines[1].contains("BROKEN effects = 1 — seen: 2"), "{}", lines[1]);
        assert!(lines[2].contains("cannot be played: no"), "{}", lines[2]);
    }

    #[test]
    fn junit_counts_and_escapes() {
        let xml = junit(&outcomes());
        assert!(xml.contains("tests=\"3\" failures=\"1\" errors=\"1\""), "{xml}");
        assert!(xml.contains("seen: 2 &lt;&quot;&amp; &gt;"), "{xml}");
    }

    #[test]
    fn json_names_the_verdict() {
        assert_eq!(json(&outcomes())[1]["verdict"], "failed");
        assert_eq!(json(&outcomes())[1]["broken"][0]["expected"], "effects = 1");
    }
}
