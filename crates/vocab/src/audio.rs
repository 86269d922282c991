//! Audio units. The telephone line is 8 kHz μ-law mono: one byte is one sample, eight samples are a millisecond.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

/// Samples a millisecond on the telephone line.
pub const SAMPLES_PER_MS: u32 = 8;
/// Length of one carrier frame, in milliseconds (Media Streams sends 20 ms; no document promises it).
pub const FRAME_MS: u32 = 20;
/// Bytes of μ-law in one carrier frame.
pub const FRAME_BYTES: usize = (FRAME_MS * SAMPLES_PER_MS) as usize;
/// μ-law digital silence (+0).
pub const MULAW_SILENCE: u8 = 0xff;

/// A count of samples at 8 kHz: exact, unlike milliseconds, since model deltas come in any size. Counts stop at their
/// limits (0, and six days of sound) instead of wrapping or ending the process: some come out of files that anybody may have
/// changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Samples(pub u32);

impl Samples {
    pub const ZERO: Self = Self(0);

    pub const fn from_ms(ms: u32) -> Self {
        Self(ms.saturating_mul(SAMPLES_PER_MS))
    }
    /// Whole milliseconds, rounded down.
    pub const fn ms(self) -> AudioMs {
        AudioMs(self.0 / SAMPLES_PER_MS)
    }
    pub const fn duration(self) -> Duration {
        Duration::from_micros(self.0 as u64 * 1_000 / SAMPLES_PER_MS as u64)
    }
    /// How many samples play in `time`, rounded down.
    pub const fn in_duration(time: Duration) -> Self {
        let samples = time.as_micros().saturating_mul(SAMPLES_PER_MS as u128) / 1_000;
        Self(if samples > u32::MAX as u128 { u32::MAX } else { samples as u32 })
    }
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Samples {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
impl AddAssign for Samples {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}
impl Sub for Samples {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}
impl SubAssign for Samples {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

/// A media position or length in milliseconds, as vendors and people read it. Drives no timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AudioMs(pub u32);

impl fmt::Display for AudioMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// What a voice activity detector says of one stretch of caller audio. Evidence, not judgement: the turn tracker judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoiceEvidence {
    /// The detector calls this stretch speech.
    pub speech: bool,
    /// RMS level in dB below full scale, -96 for digital silence.
    pub level_dbfs: i8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stop_at_their_limits() {
        let (few, all) = (Samples(3), Samples(u32::MAX));
        assert_eq!(few - all, Samples::ZERO);
        assert_eq!(all + few, all);
        assert_eq!(Samples::from_ms(u32::MAX), all);
        assert_eq!(Samples::in_duration(Duration::MAX), all);
        assert_eq!(Samples::in_duration(Duration::from_micros(u64::MAX)), all);
        let (mut up, mut down) = (all, few);
        up += few;
        down -= all;
        assert_eq!((up, down), (all, Samples::ZERO));
    }

    #[test]
    fn milliseconds_and_samples_agree() {
        assert_eq!(Samples::in_duration(Samples::from_ms(1_234).duration()).ms(), AudioMs(1_234));
        assert_eq!(Samples::in_duration(Duration::from_micros(124)), Samples::ZERO);
    }
}
