//! The end of a demo, for people and for machines.

use super::promises::{Promise, judge};
use super::story::Story;
use crate::call::end_in_words;
use crate::terminal::{Style, wrapped};
use crate::words::{attempt_in_words, move_in_words};
use serde_json::{Value, json};
use std::path::Path;
use vocab::WallTime;

pub(crate) struct Verdict {
    promises: Vec<Promise>,
}

impl Verdict {
    pub fn of(story: &Story) -> Self {
        Self { promises: judge(story) }
    }

    pub fn all_kept(&self) -> bool {
        self.promises.iter().all(|promise| promise.kept)
    }

    /// One document. Times in milliseconds since the first call was dialled, where nothing else is said.
    pub fn json(&self, story: &Story, kept: Option<&Path>) -> Value {
        let calls: Vec<Value> = story
            .calls
            .iter()
            .map(|call| {
                let at = |us: u64| (call.dialled_us + us) / 1_000;
                let heard = call.hearing.heard.iter().map(|heard| {
                    let (words, unheard) = heard.words();
                    json!({
                        "at_ms": at(heard.from_us), "heard_ms": heard.heard_ms, "total_ms": heard.total_ms,
                        "words": words, "unheard_words": unheard,
                    })
                });
                let said = call.result.said.iter().map(|said| json!({ "at_ms": at(said.at_us), "voice": said.file }));
                json!({
                    "call_sid": call.result.call_sid,
                    "dialled_ms": call.dialled_us / 1_000,
                    "ended_ms": at(call.result.ended_us),
                    "end": call.result.end,
                    "server_killed": call.killed,
                    "said": said.collect::<Vec<_>>(),
                    "heard": heard.collect::<Vec<_>>(),
                    "heard_ms": call.result.heard_ms(),
                    "clears": call.result.clears,
                    "marks": call.result.marks.len(),
                    "violations": call.result.violations,
                    "underruns": call.result.underruns,
                })
            })
            .collect();
        json!({
            "kept_all_promises": self.all_kept(),
            "promises": self.promises,
            "bookings": story.report,
            "booked_ms": story.committed_us.map(|us| us / 1_000),
            "killed_ms": story.killed_us.map(|us| us / 1_000),
            "calls": calls,
            "history": story.sessions,
            "timeline": story.moments,
            "faults": {
                "kill": story.faults.kill, "drop_marks": story.faults.drop_marks,
                "backend_timeout": story.faults.lose_answer, "answer_twice": story.faults.answer_twice,
            },
            "seed": story.seed,
            "took_ms": story.took_ms,
            "folder": kept,
        })
    }

    pub fn print(&self, story: &Story, style: Style) {
        let title = |text: &str| outln!("\n{}", style.paint("1", text));
        title("VERDICT");
        title("At the booking system");
        for booking in &story.report.bookings {
            outln!("  {}  {}", booking.reference, booking.details);
        }
        if story.report.bookings.is_empty() {
            outln!("  nothing");
        }
        for call in &story.calls {
            let end =
                if call.killed { "cut off: the server was killed".to_owned() } else { end_in_words(&call.result.end) };
            title(&format!("What the caller heard ({}, {end})", call.result.call_sid));
            for heard in &call.hearing.heard {
                let (words, unheard) = heard.words();
                let at = (call.dialled_us + heard.from_us) as f64 / 1e6;
                let length = format!("{} of {} ms", heard.heard_ms, heard.total_ms);
                let rest = if unheard.is_empty() {
                    String::new()
                } else if style.colours {
                    style.paint("9;31", unheard)
                } else {
                    format!(" [cut:{unheard}]")
                };
                outln!("  {at:>6.2} s  {length:>15}  “{words}{rest}”");
            }
        }
        title("Operations");
        for known in story.operations() {
            let operation = &known.operation;
            outln!("  {} {} {}", operation.id, operation.tool, operation.arguments);
            outln!("    key          {}", operation.key);
            let zero = operation.tool_requested_at;
            outln!("    requested    {}", clock(zero));
            outln!("    admitted     {}", later(zero, Some(operation.action_admitted_at)));
            outln!("    committed    {}", later(zero, operation.effect_committed_at));
            outln!("    observed     {}", later(zero, operation.result_observed_at));
            for attempt in &known.attempts {
                let sent = attempt.sent_at.map_or_else(|| "not sent".to_owned(), |at| later(zero, Some(at)));
                outln!("    attempt {}    {sent:<11}  {}", attempt.fence, attempt_in_words(attempt));
            }
            outln!("    status       {}", operation.status.as_str());
        }
        title("Deliveries");
        for delivery in story.deliveries() {
            outln!("  {} {}", delivery.id, delivery.text);
            let moves = story.sessions.iter().flat_map(|session| &session.audit);
            for row in moves.filter(|row| row.delivery.as_ref() == Some(&delivery.id)) {
                outln!("    {:<12} {}", later(delivery.became_ready_at, Some(row.at)), move_in_words(row));
            }
        }
        title("Promises");
        for promise in &self.promises {
            let (sign, colour) = if promise.kept { ("ok    ", "32") } else { ("BROKEN", "1;31") };
            outln!("  {}  {}", style.paint(colour, sign), promise.name);
            for line in wrapped(&promise.detail, style.width.saturating_sub(10)) {
                outln!("          {}", style.paint("2", &line));
            }
        }
        let broken = self.promises.iter().filter(|promise| !promise.kept).count();
        let seconds = story.took_ms as f64 / 1e3;
        outln!();
        if broken == 0 {
            outln!(
                "{} ({seconds:.0} s)",
                style.paint("1;32", &format!("All {} promises were kept.", self.promises.len()))
            );
        } else {
            let text = format!("{broken} of {} promises were broken.", self.promises.len());
            outln!("{} ({seconds:.0} s)", style.paint("1;31", &text));
        }
    }
}

/// Time of day in UTC.
fn clock(at: WallTime) -> String {
    let ms = at.0.rem_euclid(86_400_000);
    format!("{:02}:{:02}:{:02}.{:03} UTC", ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60, ms % 1_000)
}

fn later(zero: WallTime, at: Option<WallTime>) -> String {
    at.map_or_else(|| "never".to_owned(), |at| format!("+{} ms", at.0 - zero.0))
}
