//! The live view: time runs down, a column for each clock, words at the right.

use super::moment::{Lane, Moment, Tone};
use crate::terminal::{Style, wrapped};
use std::collections::BTreeMap;

/// A row at least this often, so that lengths can be seen.
const ROW_EVERY_US: u64 = 500_000;
/// The server's events come over HTTP: a row is drawn when those before it must be here.
const SETTLE_US: u64 = 300_000;
const COLUMN: usize = 7;

#[derive(Debug)]
pub(crate) struct Lanes {
    style: Style,
    /// Nothing is drawn with `--json`; everything is kept.
    shown: bool,
    waiting: Vec<Moment>,
    drawn: Vec<Moment>,
    active: BTreeMap<Lane, bool>,
    drawn_to_us: u64,
    next_row_us: u64,
}

impl Lanes {
    pub fn new(style: Style, shown: bool) -> Self {
        Self {
            style,
            shown,
            waiting: Vec::new(),
            drawn: Vec::new(),
            active: BTreeMap::new(),
            drawn_to_us: 0,
            next_row_us: 0,
        }
    }

    /// A line about the demo itself, outside the time axis.
    pub fn aside(&self, text: &str) {
        if self.shown {
            outln!("{}", self.style.paint("2", text));
        }
    }

    pub fn head(&self) {
        if self.shown {
            let names: String = Lane::ALL
                .iter()
                .map(|lane| self.style.paint(&format!("1;{}", lane.colour()), &format!("{:<COLUMN$}", lane.name())))
                .collect();
            outln!("\n{:>8}  {names}", "seconds");
        }
    }

    pub fn add(&mut self, moments: impl IntoIterator<Item = Moment>) {
        self.waiting.extend(moments);
    }

    /// Draws what is certain by now.
    pub fn advance(&mut self, now_us: u64) {
        self.draw_to(now_us.saturating_sub(SETTLE_US));
    }

    /// Draws what is left, and gives everything back in order.
    pub fn finish(&mut self) -> Vec<Moment> {
        self.rest();
        std::mem::take(&mut self.drawn)
    }

    /// A call is over: everything is drawn, and no clock runs.
    pub fn rest(&mut self) {
        let last = self.waiting.iter().map(|moment| moment.at_us).max().unwrap_or(0);
        self.draw_to(last.max(self.drawn_to_us));
        self.active.clear();
    }

    /// Nothing is drawn of the time up to `now_us`.
    pub fn pass(&mut self, now_us: u64) {
        self.next_row_us = self.next_row_us.max(now_us);
        self.drawn_to_us = self.drawn_to_us.max(now_us);
    }

    fn draw_to(&mut self, upto_us: u64) {
        self.waiting.sort_by_key(|moment| moment.at_us);
        let due = self.waiting.partition_point(|moment| moment.at_us <= upto_us);
        let moments: Vec<Moment> = self.waiting.drain(..due).collect();
        for moment in moments {
            self.rows_before(moment.at_us);
            if let Some(active) = moment.active {
                self.active.insert(moment.lane, active);
            }
            if let Some(text) = &moment.text {
                self.row(moment.at_us, Some((moment.lane, moment.tone, text)));
                self.next_row_us = moment.at_us + ROW_EVERY_US;
            }
            self.drawn.push(moment);
        }
        self.rows_before(upto_us);
        self.drawn_to_us = self.drawn_to_us.max(upto_us);
    }

    fn rows_before(&mut self, at_us: u64) {
        while self.next_row_us < at_us {
            self.row(self.next_row_us, None);
            self.next_row_us += ROW_EVERY_US;
        }
    }

    fn row(&self, at_us: u64, said: Option<(Lane, Tone, &str)>) {
        if !self.shown {
            return;
        }
        let mut out = String::new();
        let head = 10 + COLUMN * Lane::ALL.len();
        match said {
            None => {
                let seconds = self.style.paint("2", &format!("{:>8.2}", at_us as f64 / 1e6));
                out.push_str(&format!("{seconds}  {}\n", self.columns(None)));
            }
            Some((lane, tone, text)) => {
                let sgr = match tone {
                    Tone::Plain => lane.colour(),
                    Tone::Good => "1;32",
                    Tone::Cut => "1;31",
                };
                let seconds = format!("{:>8.2}", at_us as f64 / 1e6);
                for (n, line) in wrapped(text, self.style.width.saturating_sub(head)).into_iter().enumerate() {
                    let time = if n == 0 { seconds.clone() } else { " ".repeat(8) };
                    let columns = self.columns((n == 0).then_some(lane));
                    out.push_str(&format!("{time}  {columns}{}\n", self.style.paint(sgr, &line)));
                }
            }
        }
        out!("{out}");
    }

    fn columns(&self, marked: Option<Lane>) -> String {
        let (running, idle, mark) = if self.style.drawing { ("┃", "·", "●") } else { ("|", ".", "*") };
        Lane::ALL
            .iter()
            .map(|lane| {
                let runs = self.active.get(lane).copied().unwrap_or(false);
                let sign = if marked == Some(*lane) {
                    mark
                } else if runs {
                    running
                } else {
                    idle
                };
                let colour = if runs || marked == Some(*lane) { lane.colour() } else { "2" };
                format!("{}{}", self.style.paint(colour, sign), " ".repeat(COLUMN - 1))
            })
            .collect()
    }
}
