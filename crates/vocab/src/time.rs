//! Two clocks that are never mixed: `CallTime` drives the core, `WallTime` survives a restart.

use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// Microseconds since the call's stream started. Monotonic; the only time that the core sees. Arithmetic stops at the ends
/// of what can be counted, since times also come out of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallTime(pub u64);

impl CallTime {
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000))
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
        Self(self.0.saturating_add(ms.saturating_mul(1_000)))
    }
    #[must_use]
    pub const fn minus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(ms.saturating_mul(1_000)))
    }
}

impl Add<Duration> for CallTime {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(micros(by)))
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
        Self(self.0.saturating_sub(micros(by)))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Unix milliseconds. Stored with everything durable; read only by drivers and doors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(pub i64);

impl WallTime {
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add_unsigned(ms))
    }
    /// Milliseconds since `earlier`; zero if `earlier` is later.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        let gone = self.0.saturating_sub(earlier.0);
        if gone > 0 { gone as u64 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stop_at_the_ends_of_what_can_be_counted() {
        let last = CallTime(u64::MAX);
        assert_eq!(CallTime::from_ms(u64::MAX), last);
        assert_eq!(last.plus_ms(1), last);
        assert_eq!(CallTime(5).plus_ms(u64::MAX), last);
        assert_eq!(CallTime(5).minus_ms(u64::MAX), CallTime(0));
        assert_eq!(CallTime(5) + Duration::MAX, last);
        assert_eq!(CallTime(5) - Duration::MAX, CallTime(0));
        assert_eq!(WallTime(5).plus_ms(u64::MAX), WallTime(i64::MAX));
        assert_eq!(WallTime(i64::MAX).ms_since(WallTime(i64::MIN)), i64::MAX as u64);
    }
}
