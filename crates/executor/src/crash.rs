//! Named points at which a test may kill the process, to prove what survives.
//!
//! `ANSWERBACK_CRASH_AT=<name>` makes the process abort (no unwinding, no destructors, nothing flushed) when it first
//! reaches the point. Unset, a point costs one atomic load. The names, in the order of an operation's life:
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

use std::sync::OnceLock;

/// The environment variable.
pub const CRASH_AT: &str = "ANSWERBACK_CRASH_AT";

pub fn crash_point(name: &str) {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var(CRASH_AT).ok());
    if chosen.as_deref() == Some(name) {
        std::process::abort();
    }
}
