//! Named points at which a test may kill the process, to prove what survives.
//!
//! `ANSWERBACK_CRASH_AT=<name>` makes the process abort (no unwinding, no destructors, nothing flushed) when it first
//! reaches the point. Unset, a point costs two atomic loads. The names, in the order of an operation's life:
//!
//! | name | between |
//! |---|---|
//! | `after_admit` | admission is durable, nobody was told |
//! | `before_sent` | claimed, the sent mark is not durable |
//! | `after_sent` | the sent mark is durable, no byte has left |
//! | `after_effect` | the tool has answered, the outcome is not durable |
//! | `after_outcome` | the outcome is durable, nobody was told |
//! | `after_batch_drained` | the same, with the final delivery created |
//! | `after_look_up` | the system of record has answered a question, the answer is not durable |
//! | `after_offered` | a delivery is durably on offer, the core was not told |
//! | `after_heard` | a delivery is durably heard, the core was not told |

use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The environment variable.
pub const CRASH_AT: &str = "ANSWERBACK_CRASH_AT";

/// Every name there is.
pub const CRASH_POINTS: [&str; 9] = [
    "after_admit",
    "before_sent",
    "after_sent",
    "after_effect",
    "after_outcome",
    "after_batch_drained",
    "after_look_up",
    "after_offered",
    "after_heard",
];

/// A simulated death: what a task at the point is unwound with, silently.
#[derive(Debug)]
pub struct Died;

type Witness = Box<dyn FnMut(&str) -> bool>;

static WITNESSED: AtomicBool = AtomicBool::new(false);
thread_local! {
    static WITNESS: RefCell<Option<Witness>> = const { RefCell::new(None) };
}

/// For a simulation whose whole executor runs on this one thread: `witness` is told the name of every point reached, and
/// answers whether the process dies there. The task at the point ends at once, without a word to anybody; the rest of the
/// process is the simulation's to end. `None` takes it away.
pub fn on_crash_point(witness: Option<Witness>) {
    WITNESSED.fetch_or(witness.is_some(), Ordering::Relaxed);
    WITNESS.with_borrow_mut(|known| *known = witness);
}

pub fn crash_point(name: &str) {
    debug_assert!(CRASH_POINTS.contains(&name), "the crash point {name} is not in the list");
    if WITNESSED.load(Ordering::Relaxed)
        && WITNESS.with_borrow_mut(|witness| witness.as_mut().is_some_and(|dies_at| dies_at(name)))
    {
        // Not a panic: no hook is called and nothing is printed.
        std::panic::resume_unwind(Box::new(Died));
    }
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var(CRASH_AT).ok());
    if chosen.as_deref() == Some(name) {
        std::process::abort();
    }
}
