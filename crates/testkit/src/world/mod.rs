//! A whole world from one seed.

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
