//! `cargo xtask <verb>`: the habits of the house, each under one name. No verb prints the list.

mod mutate;
mod peers;

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use xtask::{Tree, check};

const VERBS: &str = "\
usage: cargo xtask <verb>

  tidy   floors, the purity line, names, lengths, migrations: what the compiler cannot see;
         of another tree with `tidy <folder>`
  fmt    format every crate
  lint   clippy on every target of every crate; a warning is an error
  sim    simulated worlds by seed, built for speed: `sim --seeds 0..100000`, or one with its timeline: `sim --seed 7`
  mutate deliberate faults, one at a time in a copy of the tree, and who notices: `mutate`, `mutate R3`
  peers  other people's clients and bridges against the simulated model and the server: docs/peers.md
  test   all of it, as CI runs it: format, tidy, lint, build, doc tests, tests
";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let verb = words.next();
    let takes_words = matches!(verb.as_deref(), Some("sim" | "mutate" | "peers"));
    let rest: Vec<String> = if takes_words { words.by_ref().collect() } else { Vec::new() };
    let more = words.next();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let done = match (verb.as_deref(), more) {
        (Some("tidy"), folder) => tidy(folder.as_ref().map_or(root.as_path(), Path::new)),
        (Some("fmt"), None) => cargo(&root, &["fmt", "--all"]),
        (Some("lint"), None) => lint(&root),
        (Some("test"), None) => test(&root),
        (Some("sim"), _) => sim(&root, &rest),
        (Some("mutate"), _) => mutate::mutate(&root, &rest),
        (Some("peers"), _) => peers::peers(&root, &rest),
        (Some("help" | "--help" | "-h"), None) => {
            print!("{VERBS}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{VERBS}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("\nxtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// One step of `test`: its name, what it does, and what to do when it fails.
type Step = (&'static str, fn(&Path) -> Result<(), String>, &'static str);

/// The quick checks come first, the test runner's closing lines last.
fn test(root: &Path) -> Result<(), String> {
    let steps: [Step; 6] = [
        ("format", |root| cargo(root, &["fmt", "--all", "--check"]), "run `cargo xtask fmt`"),
        ("tidy", tidy, "each finding above names its way out"),
        ("lint", lint, "clippy names the way out"),
        // By itself, because the doc tests below are quiet and would hide minutes of building.
        ("build", |root| cargo(root, &["test", "--workspace", "--no-run"]), "the compiler names the way out"),
        (
            "doc tests",
            |root| cargo(root, &["test", "--quiet", "--workspace", "--doc"]),
            "an example in the docs is wrong",
        ),
        ("tests", run_tests, "run one alone with `cargo test -p <crate> <name>`"),
    ];
    let begin = Instant::now();
    for (n, (name, step, way_out)) in (1..).zip(&steps) {
        let clock = begin.elapsed().as_secs();
        eprintln!("\n── {n}/{} {name} (at {}:{:02})", steps.len(), clock / 60, clock % 60);
        step(root).map_err(|why| format!("{name} failed: {why}; {way_out}"))?;
    }
    Ok(())
}

fn tidy(root: &Path) -> Result<(), String> {
    let tree = Tree::read(root).map_err(|error| format!("cannot read the tree: {error}"))?;
    let findings = check(&tree);
    for finding in &findings {
        println!("{finding}\n");
    }
    match findings.len() {
        0 => {
            println!("tidy: {} files, no findings", tree.files.len());
            Ok(())
        }
        count => Err(format!("{count} findings in {} files", tree.files.len())),
    }
}

fn sim(root: &Path, rest: &[String]) -> Result<(), String> {
    let mut args = vec!["run", "--quiet", "--profile", "bench-fast", "--package", "testkit", "--bin", "sim", "--"];
    args.extend(rest.iter().map(String::as_str));
    cargo(root, &args)
}

fn lint(root: &Path) -> Result<(), String> {
    cargo(root, &["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"])
}

/// nextest where it is installed (each test a process of its own, so a test that hangs or crashes ends alone), else
/// cargo's own runner.
fn run_tests(root: &Path) -> Result<(), String> {
    let has_nextest = Command::new(cargo_path())
        .args(["nextest", "--version"])
        .current_dir(root)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if has_nextest {
        cargo(root, &["nextest", "run", "--workspace"])
    } else {
        eprintln!("cargo-nextest is not installed: cargo's own runner takes its place");
        run_tests_of_cargo(root)
    }
}

/// Runs `cargo test` and adds up its many summaries into one closing line.
fn run_tests_of_cargo(root: &Path) -> Result<(), String> {
    let args = ["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"];
    let mut child = Command::new(cargo_path())
        .args(args)
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    let mut counts = Counts::default();
    if let Some(stdout) = child.stdout.take() {
        let mut out = io::stdout().lock();
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(|error| format!("cannot read the tests' output: {error}"))?;
            counts.add(&line);
            // Nobody may be reading any more; the exit code still tells.
            let _ = writeln!(out, "{line}");
        }
    }
    let status = child.wait().map_err(|error| format!("cannot wait for cargo: {error}"))?;
    println!("\n{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.ignored);
    if status.success() { Ok(()) } else { Err(format!("`cargo {}` ended with {status}", args.join(" "))) }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u32,
    failed: u32,
    ignored: u32,
}

impl Counts {
    /// Takes in `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn add(&mut self, line: &str) {
        let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else {
            return;
        };
        for count in counts.split("; ") {
            let Some((number, what)) = count.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u32>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

fn cargo(root: &Path, args: &[&str]) -> Result<(), String> {
    let status = Command::new(cargo_path())
        .args(args)
        .current_dir(root)
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`cargo {}` ended with {status}", args.join(" "))) }
}

/// The cargo that started us, so that a step never changes the toolchain.
fn cargo_path() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_many_test_binaries_add_up() {
        let mut counts = Counts::default();
        counts.add("running 4 tests");
        counts.add("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        counts.add("test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        assert_eq!(counts, Counts { passed: 5, failed: 1, ignored: 1 });
    }
}
