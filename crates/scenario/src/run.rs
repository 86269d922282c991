//! A folder of scenarios in one or both runners.

use crate::file::{FileError, Runner, Scenario};
use crate::judge::{Broken, judge};
use crate::live::{self, Launch};
use crate::record::Record;
use crate::virtual_run;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// What became of one scenario in one runner.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// File name without `.toml`.
    pub scenario: String,
    pub runner: Runner,
    pub took: Duration,
    pub verdict: Verdict,
}

#[derive(Clone, Debug)]
pub enum Verdict {
    Passed,
    /// What did not hold, and all that was seen, for whoever looks for the reason.
    Failed {
        broken: Vec<Broken>,
        record: Box<Record>,
    },
    /// It could not be played.
    Unplayable {
        reason: String,
    },
}

impl Outcome {
    pub fn passed(&self) -> bool {
        matches!(self.verdict, Verdict::Passed)
    }
}

/// Every scenario file of a folder, or the one file, by name.
pub fn files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let entries: Vec<PathBuf> =
        std::fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    let mut files: Vec<PathBuf> = entries.into_iter().filter(|p| p.extension().is_some_and(|e| e == "toml")).collect();
    files.sort();
    Ok(files)
}

/// Plays each file in virtual time, one after the other.
pub fn run_virtual(files: &[PathBuf]) -> Vec<Outcome> {
    files.iter().filter_map(|path| with_file(path, Runner::Virtual, one_virtual)).collect()
}

/// In a thread of its own: a paused runtime may not stand inside another, and a panic ends one scenario alone.
fn one_virtual(scenario: &Scenario, path: &Path) -> Verdict {
    let played = std::thread::scope(|scope| scope.spawn(|| virtual_run::run(scenario, base(path))).join());
    match played {
        Ok(Ok((record, unknown_ms))) => verdict(scenario, record, unknown_ms),
        Ok(Err(error)) => Verdict::Unplayable { reason: error.to_string() },
        Err(panicked) => Verdict::Unplayable { reason: panic_text(panicked.as_ref()) },
    }
}

/// Plays each file against a server of its own, at most `at_once` at a time: they mostly wait. With `keep`, the recordings of
/// each and the log of its model's wire are left in a folder of its name there.
pub async fn run_live(files: &[PathBuf], launch: &Launch, at_once: usize, keep: Option<&Path>) -> Vec<Outcome> {
    let room = Arc::new(Semaphore::new(at_once.max(1)));
    let mut running = Vec::new();
    for path in files {
        let (path, launch, room) = (path.clone(), launch.clone(), Arc::clone(&room));
        let keep = keep.map(|keep| keep.join(path.file_stem().unwrap_or_default()));
        running.push(tokio::spawn(async move {
            let _place = room.acquire().await;
            let scenario = match Scenario::read(&path) {
                Ok(scenario) if scenario.runners.contains(&Runner::Live) => scenario,
                Ok(_) => return None,
                Err(error) => return Some(outcome(&path, Runner::Live, Duration::ZERO, unreadable(&error))),
            };
            let began = std::time::Instant::now();
            let verdict = match live::run(&scenario, base(&path), &launch, keep.as_deref()).await {
                Ok((record, unknown_ms)) => verdict(&scenario, record, unknown_ms),
                Err(error) => Verdict::Unplayable { reason: error.to_string() },
            };
            Some(outcome(&path, Runner::Live, began.elapsed(), verdict))
        }));
    }
    let mut outcomes = Vec::new();
    for (task, path) in running.into_iter().zip(files) {
        match task.await {
            Ok(played) => outcomes.extend(played),
            Err(ended) => {
                let verdict = Verdict::Unplayable { reason: ended.to_string() };
                outcomes.push(outcome(path, Runner::Live, Duration::ZERO, verdict));
            }
        }
    }
    outcomes
}

fn with_file(path: &Path, runner: Runner, play: impl Fn(&Scenario, &Path) -> Verdict) -> Option<Outcome> {
    let began = std::time::Instant::now();
    match Scenario::read(path) {
        Ok(scenario) if scenario.runners.contains(&runner) => {
            let verdict = play(&scenario, path);
            Some(outcome(path, runner, began.elapsed(), verdict))
        }
        Ok(_) => None,
        Err(error) => Some(outcome(path, runner, Duration::ZERO, unreadable(&error))),
    }
}

fn unreadable(error: &FileError) -> Verdict {
    Verdict::Unplayable { reason: error.to_string() }
}

fn outcome(path: &Path, runner: Runner, took: Duration, verdict: Verdict) -> Outcome {
    let scenario = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Outcome { scenario, runner, took, verdict }
}

fn base(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

fn verdict(scenario: &Scenario, record: Record, unknown_ms: u64) -> Verdict {
    let broken = judge(scenario, &record, unknown_ms);
    if broken.is_empty() { Verdict::Passed } else { Verdict::Failed { broken, record: Box::new(record) } }
}

fn panic_text(panicked: &(dyn std::any::Any + Send)) -> String {
    let text =
        panicked.downcast_ref::<String>().map(String::as_str).or_else(|| panicked.downcast_ref::<&str>().copied());
    format!("it panicked: {}", text.unwrap_or("without a word"))
}
