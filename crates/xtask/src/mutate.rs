//! `cargo xtask mutate`: puts one deliberate fault at a time into a copy of the tree and looks who notices. The copy and its
//! build stay in `target/mutants`, so that a round costs one incremental build.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use xtask::mutations::{self, Mutation, SIMULATOR};
use xtask::{File, Tree};

/// The worlds that every test run plays, and some more.
const WORLDS: &str = "0..3000";
/// A scenario takes a tenth of a second, the worlds take a few.
const SCENARIO_LIMIT: Duration = Duration::from_secs(30);
const SIMULATOR_LIMIT: Duration = Duration::from_secs(240);

/// Who noticed, and how.
struct Noticed {
    scenarios: BTreeSet<String>,
    /// In words; `None`: it noticed nothing.
    simulator: Option<String>,
}

/// `words`: parts of the sentences, or the rules, of those that are tried; none means all.
pub fn mutate(root: &Path, words: &[String]) -> Result<(), String> {
    let tree = Tree::read(root).map_err(|error| format!("cannot read the tree: {error}"))?;
    let chosen: Vec<Mutation> = mutations::read(&tree)?
        .into_iter()
        .filter(|one| words.is_empty() || words.iter().any(|word| one.rule == *word || one.breaks.contains(word)))
        .collect();
    let scratch = Scratch::copy(root, &tree)?;
    let scenarios: Vec<&File> = tree.files.iter().filter(|file| is_scenario(&file.path)).collect();

    eprintln!("the tree as it is");
    let whole = scratch.try_out(&scenarios)?;
    if !whole.scenarios.is_empty() || whole.simulator.is_some() {
        return Err(format!("the tree fails without a mutation: {}, {:?}", list(&whole.scenarios), whole.simulator));
    }
    println!("| rule | mutation | file | scenarios that break | simulated worlds that fail |\n|---|---|---|---|---|");
    let mut missed = Vec::new();
    for mutation in &chosen {
        eprintln!("{}: {}", mutation.rule, mutation.breaks);
        let original = tree.find(&mutation.file).map(File::text).unwrap_or_default();
        scratch.write(&mutation.file, &mutation.apply(original)?)?;
        let noticed = scratch.try_out(&scenarios);
        scratch.write(&mutation.file, original)?;
        let noticed = noticed.map_err(|why| format!("{}: {why}", mutation.breaks))?;
        let Mutation { rule, breaks, file, .. } = mutation;
        let simulator = noticed.simulator.as_deref().unwrap_or("—");
        println!("| {rule} | {breaks} | `{file}` | {} | {simulator} |", list(&noticed.scenarios));
        for name in &mutation.caught_by {
            let caught = match name.as_str() {
                SIMULATOR => noticed.simulator.is_some(),
                scenario => noticed.scenarios.iter().any(|broken| broken.starts_with(scenario)),
            };
            if !caught {
                missed.push(format!("{name} does not notice: {breaks}"));
            }
        }
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("\n{}", missed.join("\n"))) }
}

fn is_scenario(path: &str) -> bool {
    path.starts_with("tests/scenarios/") && path.ends_with(".toml")
}

fn list(names: &BTreeSet<String>) -> String {
    match names.len() {
        0 => "—".to_owned(),
        1..=6 => names.iter().map(String::as_str).collect::<Vec<_>>().join(" "),
        all => {
            format!("{} and {} more", names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(" "), all - 5)
        }
    }
}

struct Scratch {
    tree: PathBuf,
    target: PathBuf,
}

impl Scratch {
    /// Brings the copy to the state of the tree. What is the same already keeps its time, so that it is not built again.
    fn copy(root: &Path, tree: &Tree) -> Result<Self, String> {
        let place = root.join("target/mutants");
        let scratch = Self { tree: place.join("tree"), target: place.join("target") };
        for file in &tree.files {
            let bytes = fs::read(root.join(&file.path)).map_err(|error| format!("{}: {error}", file.path))?;
            scratch.put(&file.path, &bytes)?;
        }
        // What is gone from the tree must not stay in the copy: cargo finds tests and crates by their place.
        scratch.remove_strays(&scratch.tree, tree).map_err(|error| format!("{}: {error}", scratch.tree.display()))?;
        Ok(scratch)
    }

    fn remove_strays(&self, folder: &Path, tree: &Tree) -> std::io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                self.remove_strays(&path, tree)?;
            } else if path.strip_prefix(&self.tree).is_ok_and(|name| tree.find(&name.to_string_lossy()).is_none()) {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    fn put(&self, path: &str, bytes: &[u8]) -> Result<(), String> {
        let place = self.tree.join(path);
        if fs::read(&place).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        fs::write(&place, bytes).map_err(|error| format!("{path}: {error}"))
    }

    fn write(&self, path: &str, text: &str) -> Result<(), String> {
        self.put(path, text.as_bytes())
    }

    fn try_out(&self, scenarios: &[&File]) -> Result<Noticed, String> {
        let built = Command::new(crate::cargo_path())
            .args(["build", "--quiet", "--package", "answerback", "--package", "testkit", "--bins"])
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .stdin(Stdio::null())
            .status()
            .map_err(|error| format!("cannot start cargo: {error}"))?;
        if !built.success() {
            return Err("it does not compile".into());
        }
        let mut broken = BTreeSet::new();
        for file in scenarios {
            let (passed, _) = self.run("answerback", &["scenario", "run", &file.path], SCENARIO_LIMIT)?;
            if !passed {
                let name = file.name().split('_').next().unwrap_or_default();
                broken.insert(name.to_owned());
            }
        }
        let (passed, told) = self.run("sim", &["--seeds", WORLDS, "--keep-going"], SIMULATOR_LIMIT)?;
        Ok(Noticed { scenarios: broken, simulator: (!passed).then(|| summary(&told)) })
    }

    /// Whether it ended well within its time, and what it printed.
    fn run(&self, program: &str, words: &[&str], limit: Duration) -> Result<(bool, String), String> {
        let printed = self.target.join("printed.txt");
        let out = fs::File::create(&printed).map_err(|error| format!("{}: {error}", printed.display()))?;
        let mut child = Command::new(self.target.join("debug").join(program))
            .args(words)
            .current_dir(&self.tree)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start {program}: {error}"))?;
        let begin = Instant::now();
        let passed = loop {
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                break status.success();
            }
            if begin.elapsed() > limit {
                let _ = child.kill();
                let _ = child.wait();
                break false;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        Ok((passed, fs::read_to_string(&printed).unwrap_or_default()))
    }
}

/// Of `SEED RULE: what` lines: how many, and the first with its rule.
fn summary(told: &str) -> String {
    let failing: Vec<(&str, &str)> = told
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(seed, _)| seed.parse::<u64>().is_ok())
        .filter_map(|(seed, rest)| rest.split_once(": ").map(|(rule, _)| (seed, rule)))
        .collect();
    match failing.first() {
        Some((seed, rule)) => format!("{}, the first {seed} ({rule})", failing.len()),
        None => "it crashes or hangs".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_worlds_are_counted_and_the_first_is_named() {
        assert_eq!(summary("7 R3: told twice\n9 B1: no\n3000 worlds, 5 calls, 2 failed\n"), "2, the first 7 (R3)");
        assert_eq!(summary("thread 'main' panicked"), "it crashes or hangs");
    }
}
