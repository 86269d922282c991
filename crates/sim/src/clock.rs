//! One zero for everything that a simulator records.

use std::time::{Duration, Instant};

/// Microseconds since a simulator started: the time of every record it keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    zero: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { zero: Instant::now() }
    }
    pub(crate) fn now_us(self) -> u64 {
        self.zero.elapsed().as_micros() as u64
    }
    pub(crate) fn at(self, us: u64) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.zero + Duration::from_micros(us))
    }
}
