//! What a load run found: numbers, a table for people, JSON for machines.

use super::{LoadPlan, ProcessUse};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Counts in steps of 50 µs up to a second, the rest together.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u32>,
    total: u64,
    max_us: u64,
}

const STEP_US: u64 = 50;
const STEPS: usize = 20_000;

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; STEPS + 1], total: 0, max_us: 0 }
    }
}

/// A distribution in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    pub count: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

impl Histogram {
    pub fn add(&mut self, us: u64) {
        self.counts[(us / STEP_US).min(STEPS as u64) as usize] += 1;
        self.total += 1;
        self.max_us = self.max_us.max(us);
    }

    pub fn spread(&self) -> Spread {
        Spread {
            count: self.total,
            p50_ms: self.quantile_ms(0.50),
            p99_ms: self.quantile_ms(0.99),
            max_ms: self.max_us as f64 / 1_000.0,
        }
    }

    /// The upper edge of the step that holds it, never above the greatest value.
    fn quantile_ms(&self, quantile: f64) -> f64 {
        let wanted = (self.total as f64 * quantile).ceil() as u64;
        let mut below = 0;
        for (n, &count) in self.counts.iter().enumerate() {
            below += u64::from(count);
            if below >= wanted && count > 0 {
                return ((n as u64 + 1) * STEP_US).min(self.max_us) as f64 / 1_000.0;
            }
        }
        0.0
    }
}

/// One burst of speech over the agent's voice that was answered.
#[derive(Clone, Debug)]
pub(super) struct BargeIn {
    /// When each speech frame went out before the `clear`, µs.
    pub(super) sent_us: Vec<u64>,
    /// When the one that confirmed it went out, by the caller's ear.
    pub(super) confirmed_us: Option<u64>,
    pub(super) cleared_us: u64,
}

#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Nothing counts before the warm-up is over.
    pub(super) measuring: bool,
    pub(super) barge_ins: Vec<BargeIn>,
    pub(super) unanswered_barge_ins: u64,
    pub(super) lateness: Histogram,
    pub(super) generator_late: Histogram,
    pub(super) received_frames: u64,
    pub(super) sent_frames: u64,
    pub(super) marks: u64,
    pub(super) failed_connects: u64,
    /// Streams that ended before we hung up.
    pub(super) lost_streams: u64,
    /// Messages that are none of the three.
    pub(super) odd_messages: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    pub calls: usize,
    pub connected: usize,
    pub seconds: f64,
    /// The server's CPU time for a second of one call.
    pub cpu_ms_per_call_second: Option<f64>,
    /// Of one core.
    pub server_cpu_percent: Option<f64>,
    /// Before the first call, and while all of them run.
    pub resident_kb_idle: Option<u64>,
    pub resident_kb_busy: Option<u64>,
    pub resident_kb_per_call: Option<f64>,
    /// From the confirming speech frame to the arrival of `clear`.
    pub barge_in: Spread,
    /// From the first speech frame to the arrival of `clear`.
    pub barge_in_from_onset: Spread,
    /// Which speech frame (from 1) confirms, where nobody listens.
    pub confirming_frame: usize,
    /// The confirming frame is the one that the server's detector and turn rules confirm, each caller's own.
    pub by_ear: bool,
    pub unanswered_barge_ins: u64,
    /// How late each frame came, against the moment its response would need it.
    pub lateness: Spread,
    pub received_frames: u64,
    pub sent_frames: u64,
    pub marks_returned: u64,
    pub failed_connects: u64,
    pub lost_streams: u64,
    pub odd_messages: u64,
    pub first_failure: Option<String>,
    /// How late our own frames were: beyond a few ms the generator is the bottleneck.
    pub generator_late: Spread,
    pub generator_cpu_percent: f64,
}

impl LoadReport {
    pub(super) fn new(
        plan: &LoadPlan,
        connected: usize,
        took: Duration,
        measured: Measured,
        [idle, before, after]: [Option<ProcessUse>; 3],
        [own_before, own_after]: [ProcessUse; 2],
        first_failure: Option<String>,
    ) -> Self {
        let seconds = took.as_secs_f64();
        let earliest = measured.barge_ins.iter().map(|b| b.sent_us.len()).min().unwrap_or(0);
        let confirming_frame = plan.confirming_frame.unwrap_or(earliest).max(1);
        let (mut barge_in, mut from_onset) = (Histogram::default(), Histogram::default());
        for answered in &measured.barge_ins {
            let since = |frame: usize| {
                // A clear before the confirming frame was sent is not late at all.
                answered.sent_us.get(frame).map_or(0, |sent| answered.cleared_us.saturating_sub(*sent))
            };
            barge_in.add(match answered.confirmed_us {
                Some(confirmed) => answered.cleared_us.saturating_sub(confirmed),
                None => since(confirming_frame - 1),
            });
            from_onset.add(since(0));
        }
        let cpu_ms = before.zip(after).map(|(before, after)| (after.cpu_ms - before.cpu_ms) as f64);
        let grown = idle.zip(after).map(|(idle, after)| after.resident_kb.saturating_sub(idle.resident_kb));
        Self {
            calls: plan.calls,
            connected,
            seconds,
            cpu_ms_per_call_second: cpu_ms.map(|ms| ms / seconds / connected as f64),
            server_cpu_percent: cpu_ms.map(|ms| ms / seconds / 10.0),
            resident_kb_idle: idle.map(|u| u.resident_kb),
            resident_kb_busy: after.map(|u| u.resident_kb),
            resident_kb_per_call: grown.map(|kb| kb as f64 / connected as f64),
            barge_in: barge_in.spread(),
            barge_in_from_onset: from_onset.spread(),
            confirming_frame,
            by_ear: plan.has_ears,
            unanswered_barge_ins: measured.unanswered_barge_ins,
            lateness: measured.lateness.spread(),
            received_frames: measured.received_frames,
            sent_frames: measured.sent_frames,
            marks_returned: measured.marks,
            failed_connects: measured.failed_connects,
            lost_streams: measured.lost_streams,
            odd_messages: measured.odd_messages,
            first_failure,
            generator_late: measured.generator_late.spread(),
            generator_cpu_percent: (own_after.cpu_ms - own_before.cpu_ms) as f64 / seconds / 10.0,
        }
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spread = |s: Spread| {
            format!("p50 {:8.2} ms   p99 {:8.2} ms   max {:8.2} ms   of {}", s.p50_ms, s.p99_ms, s.max_ms, s.count)
        };
        let known = |value: Option<f64>, unit: &str| {
            value.map_or_else(|| "not measured (no pid)".to_owned(), |v| format!("{v:.2} {unit}"))
        };
        let mut row = |name: &str, value: String| writeln!(f, "{name:<26} {value}");
        row("calls", format!("{} of {} for {:.1} s", self.connected, self.calls, self.seconds))?;
        row("CPU of the server", known(self.cpu_ms_per_call_second, "ms a call-second"))?;
        row("", known(self.server_cpu_percent, "% of a core"))?;
        row("memory of the server", known(self.resident_kb_per_call, "KB a call"))?;
        row("barge-in to clear", spread(self.barge_in))?;
        row(
            "",
            match self.by_ear {
                true => format!("counted from the frame that confirms; unanswered: {}", self.unanswered_barge_ins),
                false => format!(
                    "counted from speech frame {}; unanswered: {}",
                    self.confirming_frame, self.unanswered_barge_ins
                ),
            },
        )?;
        row("speech onset to clear", spread(self.barge_in_from_onset))?;
        row("playout lateness", spread(self.lateness))?;
        row(
            "frames",
            format!(
                "{} sent, {} received, {} marks returned",
                self.sent_frames, self.received_frames, self.marks_returned
            ),
        )?;
        row(
            "errors",
            format!(
                "{} not connected, {} lost, {} odd messages",
                self.failed_connects, self.lost_streams, self.odd_messages
            ),
        )?;
        row(
            "generator",
            format!("{:.1} % of a core; frames late {}", self.generator_cpu_percent, spread(self.generator_late)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.spread(), Spread::default());
        for ms in 1..=100 {
            histogram.add(ms * 1_000);
        }
        histogram.add(5_000_000);
        let spread = histogram.spread();
        assert!((spread.p50_ms - 51.0).abs() < 0.1 && (spread.p99_ms - 100.0).abs() < 0.1, "{spread:?}");
        assert_eq!((spread.count, spread.max_ms), (101, 5_000.0));
    }
}
