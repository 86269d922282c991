//! Two clocks that are never mixed: `CallTime` drives the core, `WallTime` survives a restart.

use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// Microseconds since the call's stream started. Monotonic; the only time that the core sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallTime(pub u64);

impl CallTime {
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * 1_000)
    }
    pub const fn as_ms(self) -> u64 {
        self.0 / 1_000
    }
    /// Time since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
    /// Milliseconds since `earlier`; zero if `earlier` is later.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000
    }
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0 + ms * 1_000)
    }
    #[must_use]
    pub const fn minus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(ms * 1_000))
    }
}

impl Add<Duration> for CallTime {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0 + by.as_micros() as u64)
    }
}

impl AddAssign<Duration> for CallTime {
    fn add_assign(&mut self, by: Duration) {
        *self = *self + by;
    }
}

impl Sub<Duration> for CallTime {
    type Output = Self;
    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(by.as_micros() as u64))
    }
}

/// Unix milliseconds. Stored with everything durable; read only by drivers and doors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(pub i64);

impl WallTime {
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0 + ms as i64)
    }
    /// Milliseconds since `earlier`; zero if `earlier` is later.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        let gone = self.0 - earlier.0;
        if gone > 0 { gone as u64 } else { 0 }
    }
}
