//! A whole world from one seed: callers, carrier, model, backends, disk and process, all misbehaving in virtual time around
//! the real core (`conversation`), the real durable rules (`operations::ledger`) and the store in memory.
//!
//! [`World::run`] draws a [plan](plan) from the seed, lets it happen, and looks after every step of a core and every write
//! of the store whether all promises hold. Then the faults stop, and everything has to settle. A failing world is made small
//! by [`shrink`] and printed with the command that repeats it. `cargo xtask sim --seeds A..B` hunts.
//!
//! The process ([`process`], [`desk`]) is the executor's loop again, without a runtime: it calls the same verbs and holds no
//! rule. What is absent here on purpose: no rule of admission, delivery or speech is written a second time; the checks know
//! only what a caller, an auditor and the backend could know.
//!
//! Which check guards which rule (behaviour.md 7 and 6, durability.md 6(e)):
//!
//! | rule | is broken when | where |
//! |---|---|---|
//! | R1, 6e.10 | directions, an output or a fact claim `committed` for an operation that is not; a row is committed and the backend knows of no effect; a caution is missing | `truth`, `checks` |
//! | R2, 6e.1 | a key has two effects; two operations of one intent are in force; one told as failed has happened | `process`, `checks` |
//! | R3, 6e.8 | a batch has two final deliveries, or one before it drained; an outcome was truly heard twice as news | `checks` |
//! | R4 | sound of a response that nobody asked for, or that was cut, is kept or sent; we speak of our own accord into speech | `truth` |
//! | R5, 6e.9 | an operation's status is moved by anything but the executor's verbs | `checks` |
//! | R6 | the history, or a cut of the model's item, holds more than was truly heard | `truth` |
//! | R7 | a delivery is saved as heard and the carrier did not play it | `truth`, `checks` |
//! | R8 | a row is gone; a delivery that is news for ever is dropped; an offer is spoken without its text | `checks`, `truth` |
//! | R9 | a delivery is spoken after its time | `truth` |
//! | R11 | an outcome is not handed to the model in the step that learns of it; a response is asked for while the model does not know an open delivery; a call gets no output, two, or one that is no JSON | `truth` |
//! | R12 | anything is cancelled, or told to be: no code can do that yet | `checks`, `truth` |
//! | R13 | the same seed gives other commands | `tests/world.rs`, `bin/sim.rs` |
//! | R14 | time stands still; more creates in a second than any wait explains; more tool calls of a response, more of a tool in the queue, more sound in the carrier's buffer than allowed | `engine`, `truth`, `checks` |
//! | B1, B2, B8, B11 | `listening` is published while a call has no output or the line sounds | `truth`, the core's own invariant |
//! | B3 | `listening` is published after the caller cut an answer to tool outputs, before the next answer | `truth` |
//! | B5 | a transcript alone changes the public state | `stream` |
//! | B4, B6, B10, 6e.13 | after the faults stop something is still owed, thinking, offered, waiting or running | `engine`, `checks` |
//! | 6e.2, 6e.7 | a request leaves without its durable mark or after its deadline; more attempts or more running than allowed | `checks` |
//! | 6e.3, 6e.4 | an illegal move, a version that does not rise, an audit trail that tells another story, unknown left without proof | `checks` |
//! | 6e.5, 6e.6, 6e.12 | attached with other arguments; a refused, stale or repeated write changes a row | `checks` |
//!
//! Not judged here: R10 and B13 (no code yet), B7, B9 and B12 (only through the core's invariant and liveness), 6e.11 (no
//! compensation yet), 6e.14 (the stores' conformance suite).
//!
//! Known limits, and why: where marks were dropped or came late, a completion may be told twice, since only the caller knows;
//! with jitter, the arithmetic of a clear (behaviour.md 3) may be wrong by the jitter; a wall clock that jumps forward over the
//! settle time while a request is still under way would prove an absence that is none, so late effects and clock jumps do not
//! meet; a provider that neither echoes our metadata nor refrains from responses of its own cannot be told apart for as long
//! as one of ours is on its way.

mod backend;
mod chance;
mod checks;
mod desk;
mod engine;
mod line;
mod model;
mod plan;
mod process;
mod queue;
mod shrink;
mod stream;
mod truth;

pub use plan::{Fault, Faults};
pub use shrink::{Shrunk, shrink};

use engine::World as Engine;
use operations::admission::ToolCatalog;
use operations::retry::ReconcileRule;
use std::sync::OnceLock;

/// Quicker than in production, so that a world settles within minutes.
const RECONCILE: ReconcileRule = ReconcileRule { settle_ms: 5_000, base_ms: 400, cap_ms: 3_000, max_look_ups: 500 };

/// What of the seed's plan is left out.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub without: Faults,
    /// Acts of the plan by their index.
    pub skip: Vec<usize>,
    /// The faults stop, and nothing new begins, after this much virtual time.
    pub end_ms: Option<u64>,
    /// Keep a timeline.
    pub trace: bool,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// As behaviour.md and durability.md name it; `core` for the core's own invariants.
    pub rule: &'static str,
    pub what: String,
    pub at_ms: u64,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    /// Steps of all cores.
    pub steps: u64,
    /// Over every command of every core, in order: the same seed gives the same one (R13).
    pub hash_of_all_commands: u64,
    /// The run ends at the first.
    pub violations: Vec<Violation>,
    pub calls: u32,
    /// How many acts the plan has, left out or not.
    pub acts: usize,
    pub faults: Faults,
    pub calm_ms: u64,
    /// Filled when asked for.
    pub timeline: Vec<String>,
}

/// The door to a simulated world.
pub struct World;

impl World {
    pub fn run(seed: u64, options: &Options) -> Outcome {
        Engine::build(seed, options).run_to_end()
    }
}

/// Schemas are compiled once for all worlds.
fn catalog() -> &'static ToolCatalog {
    static CATALOG: OnceLock<ToolCatalog> = OnceLock::new();
    CATALOG.get_or_init(|| match ToolCatalog::compile(backend::contracts()) {
        Ok(catalog) => catalog,
        Err(error) => panic!("the simulator's own contracts are wrong: {error}"),
    })
}
