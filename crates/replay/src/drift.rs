//! Replay: the recorded inputs go to the core of today, and its commands must be those of then.

use crate::files::{ReplayError, ReplayStep, open, recorded_policy};
use conversation::{Command, Conversation, Input};
use recording::{Header, Tail};
use serde::Serialize;
use std::fmt;
use std::path::Path;
use vocab::CallTime;

/// What came of a replay.
#[derive(Clone, Debug)]
pub struct ReplayReport {
    pub header: Header,
    /// Steps that were replayed; with a drift, the one that drifted included.
    pub steps: u64,
    pub commands: u64,
    /// Time of the last one.
    pub lasted: CallTime,
    /// How the log ends. `None` with a drift: the rest was not read.
    pub tail: Option<Tail<Input>>,
    pub drift: Option<Drift>,
}

/// The first step whose commands differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Drift {
    pub n: u64,
    pub at: CallTime,
    pub input: Input,
    pub expected: Vec<Command>,
    pub got: Vec<Command>,
}

/// Replays a recording, or its log alone, up to its first drift. A torn last line is no error; the step that it holds in
/// part is taken as well, so a call that died inside the core dies here again.
pub fn replay_dir(place: &Path) -> Result<ReplayReport, ReplayError> {
    let mut log = open(place)?;
    let header = log.header().clone();
    let mut conversation = Conversation::new(recorded_policy(place, &header)?);
    let mut report = ReplayReport { header, steps: 0, commands: 0, lasted: CallTime(0), tail: None, drift: None };
    let mut got = Vec::new();
    for recorded in log.by_ref() {
        let step = recorded?;
        report.steps = step.n;
        report.lasted = step.at;
        report.drift = take(&mut conversation, &step, &mut got);
        report.commands += got.len() as u64;
        if report.drift.is_some() {
            return Ok(report);
        }
    }
    report.tail = log.tail().cloned();
    if let Some(Tail::Torn { inside: Some(inside), .. }) = &report.tail {
        got.clear();
        conversation.step(inside.at, inside.input.clone(), &mut got);
    }
    Ok(report)
}

/// Replays steps that were read before.
pub fn replay_steps<'a>(
    conversation: &mut Conversation,
    steps: impl IntoIterator<Item = &'a ReplayStep>,
) -> Option<Drift> {
    let mut got = Vec::new();
    steps.into_iter().find_map(|step| take(conversation, step, &mut got))
}

fn take(conversation: &mut Conversation, step: &ReplayStep, got: &mut Vec<Command>) -> Option<Drift> {
    got.clear();
    conversation.step(step.at, step.input.clone(), got);
    (*got != step.commands).then(|| Drift {
        n: step.n,
        at: step.at,
        input: step.input.clone(),
        expected: step.commands.clone(),
        got: got.clone(),
    })
}

impl Drift {
    /// The first place where the commands part.
    pub fn place(&self) -> usize {
        self.expected.iter().zip(&self.got).take_while(|(expected, got)| expected == got).count()
    }

    /// The decision that made the difference: the last one at or before it that today's core explained, else the recorded.
    pub fn decision(&self) -> Option<&Command> {
        let explains = |commands: &&Command| matches!(commands, Command::Explain(_));
        let parted = self.place();
        [&self.got, &self.expected]
            .into_iter()
            .find_map(|commands| commands.get(parted).filter(explains))
            .or_else(|| self.got[..parted].iter().rev().find(explains))
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "drift at step {}, {}", self.n, clock(self.at))?;
        writeln!(f, "  input     {}", json(&self.input))?;
        match self.decision() {
            Some(Command::Explain(decision)) => writeln!(f, "  decision  {}", json(decision))?,
            Some(_) | None => writeln!(f, "  decision  none explained")?,
        }
        writeln!(f, "  commands  - recorded, + now")?;
        for (sign, command) in diff(&self.expected, &self.got) {
            writeln!(f, "  {sign} {}", json(command))?;
        }
        Ok(())
    }
}

/// Time of a call as people read it: `00:12.340`.
pub(crate) fn clock(at: CallTime) -> String {
    let ms = at.as_ms();
    format!("{:02}:{:02}.{:03}", ms / 60_000, ms / 1_000 % 60, ms % 1_000)
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| format!("(not JSON: {error})"))
}

/// Both lists as one, by their longest common subsequence. Steps have few commands; the table is of their product.
fn diff<'a>(old: &'a [Command], new: &'a [Command]) -> Vec<(char, &'a Command)> {
    let mut common = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for (row, a) in old.iter().enumerate().rev() {
        for (column, b) in new.iter().enumerate().rev() {
            common[row][column] = if a == b {
                common[row + 1][column + 1] + 1
            } else {
                common[row + 1][column].max(common[row][column + 1])
            };
        }
    }
    let (mut row, mut column) = (0, 0);
    let mut lines = Vec::with_capacity(old.len() + new.len());
    while row < old.len() || column < new.len() {
        if row < old.len() && column < new.len() && old[row] == new[column] {
            lines.push((' ', &old[row]));
            (row, column) = (row + 1, column + 1);
        } else if row < old.len() && (column == new.len() || common[row + 1][column] >= common[row][column + 1]) {
            lines.push(('-', &old[row]));
            row += 1;
        } else {
            lines.push(('+', &new[column]));
            column += 1;
        }
    }
    lines
}
