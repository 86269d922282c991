//! What can be done with a recorded call: replay it and find the first drift, hear it again with another detector, ask what
//! another policy would have changed, and take the person out of it.
//!
//! | | exact | modelled |
//! |---|---|---|
//! | [`replay_dir`] | everything: same inputs, same commands or a drift | nothing |
//! | [`rehear`] | evidence of every frame, and what the turn tracker makes of it | nothing, but the rest of the call stays as it was |
//! | [`what_if()`] | caller, hang-up, turn detection of the model: as recorded | model, tools, store and carrier answer a changed agent as they did, at the same distance |
//! | [`scrub`] | time, evidence, decisions: the result replays without drift | nothing |

mod drift;
mod files;
mod rehear;
mod scrub;
pub mod what_if;

pub use drift::{Drift, ReplayReport, replay_dir, replay_steps};
pub use files::{Log, ReplayError, ReplayStep, caller_audio, find_recordings, open, recorded_policy};
pub use rehear::{Moment, MomentKind, Moved, RehearReport, rehear};
pub use scrub::{Voice, scrub};
pub use what_if::{WhatIfError, WhatIfReport, what_if};
