//! A fixed set of worlds in every test run, the seeds that have broken something before, and the simulator's own promises.

use testkit::world::{Fault, Options, World, shrink};

/// A little over one and a half calls in a world, on average: two thousand calls.
const WORLDS: u64 = 1_300;

/// Runs the world and shows a failure made small.
fn holds(seed: u64) {
    if !World::run(seed, &Options::default()).violations.is_empty()
        && let Some(shrunk) = shrink(seed)
    {
        panic!("{shrunk}");
    }
}

#[test]
fn two_thousand_calls_break_no_promise() {
    let calls: u32 = (0..WORLDS)
        .map(|seed| {
            holds(seed);
            World::run(seed, &Options::default()).calls
        })
        .sum();
    assert!(calls >= 2_000, "{calls} calls");
}

#[test]
fn seeds_that_broke_a_promise_before_hold_now() {
    for (seed, found) in [
        (178, "late audio of a cancelled and forgotten response was spoken as the next one (R4)"),
        (350, "a response that the provider made by itself was taken for the one that it refused (R4)"),
        (14, "an answer to tool outputs that the caller cut was forgotten while they spoke (B3)"),
        (228, "a generation that never ended kept the agent thinking for ever (B10)"),
        (3_297, "a repeated request whose first one stays unknown kept the agent thinking for ever"),
        (383, "after a reconnect the new model session did not know of an outcome (R11)"),
        (952, "a delivery overtook the outcome that it tells (R11)"),
        (1_731, "an offer that a slow disk delayed was spoken after it had grown stale (R9)"),
        (4_844, "two urgent deliveries cut each other off without end (R14)"),
        (8_586, "a turn committed during a false start stayed open for ever"),
        (13_667, "the same, with a delivery waiting for the answer"),
        (45_900, "a completion that was heard whole while a slow clear was on its way was told again as news (R3)"),
        (60_943, "the same"),
        (85_926, "the simulator did not count an outcome that a joining call was answered with (R11)"),
        (86_071, "an answer given up after three creates without a word counted as cut by the caller (B3)"),
        (118_537, "\"not confirmed yet\" counted as a completion (R3)"),
        (442_337, "a desk that a slower opening of an older stream shut out was not woken"),
        (23_418, "a completion heard to its end was told again as news after the stream broke (R3)"),
    ] {
        let outcome = World::run(seed, &Options::default());
        assert_eq!(outcome.violations, [], "seed {seed}: {found}");
    }
}

#[test]
fn r13_the_same_seed_gives_the_same_commands() {
    for seed in [3, 1_001, 77_777] {
        let [first, second] = [(); 2].map(|()| World::run(seed, &Options::default()));
        assert_eq!(first.hash_of_all_commands, second.hash_of_all_commands, "seed {seed}");
        assert_eq!(first.steps, second.steps);
    }
    let different = World::run(4, &Options::default()).hash_of_all_commands;
    assert_ne!(World::run(3, &Options::default()).hash_of_all_commands, different);
}

/// A simulator in which nothing happens finds nothing: each kind of trouble and of success must really occur.
#[test]
fn the_worlds_are_rich() {
    let mut timeline = String::new();
    let mut faults = Vec::new();
    for seed in 0..150 {
        let outcome = World::run(seed, &Options { trace: true, ..Options::default() });
        timeline.push_str(&outcome.timeline.join("\n"));
        faults.extend(outcome.faults.iter());
    }
    for fault in Fault::ALL {
        assert!(faults.contains(&fault), "{} never happens", fault.name());
    }
    for needle in [
        "Heard {",
        "Interrupted {",
        "Unproven {",
        "Withdrawn {",
        "Suppressed {",
        "is unknown",
        "is failed_final",
        "is failed_retryable",
        "attached to",
        "Stale",
        "opened again",
        "Recovered",
        "BargedIn",
        "SpeechRetracted",
        "AnswerAbandoned",
        "InterruptAndDeliver",
        "CreateRefused",
        "ToolCallDropped",
        "verdict: Cleared",
        "SessionRestored",
        "CallerAway",
    ] {
        assert!(timeline.contains(needle), "{needle}");
    }
}
