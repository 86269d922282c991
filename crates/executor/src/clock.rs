//! Where wall time comes from.

use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::Instant;
use vocab::WallTime;

#[derive(Clone, Copy, Debug)]
pub enum Clock {
    System,
    /// Follows the runtime's own clock from a fixed start, so that paused time pauses everything.
    Runtime {
        base: WallTime,
        started: Instant,
    },
}

impl Clock {
    /// Must be called inside a tokio runtime.
    pub fn runtime(base: WallTime) -> Self {
        Self::Runtime { base, started: Instant::now() }
    }

    pub fn now(&self) -> WallTime {
        match self {
            // A clock before 1970 is a broken machine; zero keeps it running.
            Self::System => {
                WallTime(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |gone| gone.as_millis() as i64))
            }
            Self::Runtime { base, started } => base.plus_ms(started.elapsed().as_millis() as u64),
        }
    }
}
