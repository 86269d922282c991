//! `cargo xtask sim --seeds A..B`: runs worlds and stops at the first that breaks a promise, made small.

use std::process::ExitCode;
use std::time::{Duration, Instant};
use testkit::world::{Fault, Faults, Options, World, shrink};

/// Every so many worlds are run twice, to see whether all comes out the same.
const AGAIN_EVERY: u64 = 16;

const USAGE: &str = "\
usage: sim --seeds A..B [--keep-going]
       sim --seed N [--without FAULT,..] [--skip ACT,..] [--end-ms MS]

  --seeds       worlds A to B-1; the first failure is made small and printed with the command that repeats it
  --keep-going  list failing seeds by rule instead of stopping at the first
  --seed        one world with its timeline
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match read(&words) {
        Some(Job::Hunt { from, to, keep_going }) => hunt(from, to, keep_going),
        Some(Job::One { seed, options }) => one(seed, &options),
        None => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

enum Job {
    Hunt { from: u64, to: u64, keep_going: bool },
    One { seed: u64, options: Options },
}

fn read(words: &[String]) -> Option<Job> {
    let mut words = words.iter().map(String::as_str);
    match words.next()? {
        "--seeds" => {
            let (from, to) = words.next()?.split_once("..")?;
            let keep_going = match words.next() {
                Some("--keep-going") => true,
                Some(_) => return None,
                None => false,
            };
            Some(Job::Hunt { from: from.parse().ok()?, to: to.parse().ok()?, keep_going })
        }
        "--seed" => {
            let seed = words.next()?.parse().ok()?;
            let mut options = Options { trace: true, ..Options::default() };
            while let Some(word) = words.next() {
                let value = words.next()?;
                match word {
                    "--without" => {
                        for name in value.split(',') {
                            options.without = Faults::with(options.without, Fault::by_name(name)?);
                        }
                    }
                    "--skip" => {
                        options.skip = value.split(',').map(|n| n.parse().ok()).collect::<Option<Vec<_>>>()?;
                    }
                    "--end-ms" => options.end_ms = Some(value.parse().ok()?),
                    _ => return None,
                }
            }
            Some(Job::One { seed, options })
        }
        _ => None,
    }
}

fn one(seed: u64, options: &Options) -> ExitCode {
    let outcome = World::run(seed, options);
    for line in &outcome.timeline {
        println!("{line}");
    }
    println!("{} steps, hash {:016x}", outcome.steps, outcome.hash_of_all_commands);
    for broken in &outcome.violations {
        println!("breaks {}: {}", broken.rule, broken.what);
    }
    if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn hunt(from: u64, to: u64, keep_going: bool) -> ExitCode {
    let begin = Instant::now();
    let mut told = begin;
    let (mut steps, mut calls, mut failed) = (0, 0, 0u64);
    for seed in from..to {
        let outcome = World::run(seed, &Options::default());
        steps += outcome.steps;
        calls += u64::from(outcome.calls);
        if seed % AGAIN_EVERY == 0
            && World::run(seed, &Options::default()).hash_of_all_commands != outcome.hash_of_all_commands
        {
            failed += 1;
            println!("{seed} R13: the same seed gave other commands");
            if !keep_going {
                return ExitCode::FAILURE;
            }
        } else if let Some(broken) = outcome.violations.first() {
            failed += 1;
            if keep_going {
                println!("{seed} {}: {}", broken.rule, broken.what);
            } else if let Some(shrunk) = shrink(seed) {
                println!("{shrunk}");
                return ExitCode::FAILURE;
            }
        }
        if told.elapsed() > Duration::from_secs(5) {
            told = Instant::now();
            eprintln!("seed {seed}: {}", pace(seed + 1 - from, calls, steps, begin.elapsed()));
        }
    }
    println!("{}, {failed} failed", pace(to - from, calls, steps, begin.elapsed()));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn pace(worlds: u64, calls: u64, steps: u64, gone: Duration) -> String {
    let a_minute = steps as f64 / gone.as_secs_f64() * 60.0 / 1e6;
    format!(
        "{worlds} worlds, {calls} calls, {steps} steps in {:.1} s: {a_minute:.1} million steps a minute",
        gone.as_secs_f64()
    )
}
