//! When to try again: exponential backoff with full jitter. Retries happen at this one layer only.

use crate::contract::RetryRule;
use serde::{Deserialize, Serialize};
use vocab::WallTime;

/// A wait in `0..=min(cap, base * 2^failures)` milliseconds. `random` is uniform over all of `u32` and comes from the
/// caller, since nothing here draws randomness. `failures` counts the tries that failed before, from 0.
pub fn full_jitter_ms(base_ms: u64, cap_ms: u64, failures: u32, random: u32) -> u64 {
    let ceiling = base_ms.saturating_mul(1u64.checked_shl(failures).unwrap_or(u64::MAX)).min(cap_ms);
    (u128::from(ceiling) * u128::from(random) / u128::from(u32::MAX)) as u64
}

/// When the next attempt is due, or `None` when the budget or the deadline allows no more.
pub fn next_attempt(
    rule: &RetryRule,
    attempts: u32,
    deadline: WallTime,
    now: WallTime,
    random: u32,
) -> Option<WallTime> {
    if attempts >= rule.max_attempts {
        return None;
    }
    let due = now.plus_ms(full_jitter_ms(rule.base_ms, rule.cap_ms, attempts.saturating_sub(1), random));
    (due < deadline).then_some(due)
}

/// How an unknown outcome is asked about. Separate from the tool's retry rule: asking changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconcileRule {
    /// "Not found" is no proof before this long after the outcome became unknown: the request may still be on its way
    /// inside the backend.
    pub settle_ms: u64,
    pub base_ms: u64,
    pub cap_ms: u64,
    /// Look-ups without an answer in one life of the process; then it rests until a restart or a person.
    pub max_look_ups: u32,
}

impl Default for ReconcileRule {
    fn default() -> Self {
        // A backend that is down for a night is asked through it: 500 look-ups at five minutes are more than a day.
        Self { settle_ms: 5_000, base_ms: 500, cap_ms: 300_000, max_look_ups: 500 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULE: RetryRule = RetryRule { max_attempts: 3, base_ms: 100, cap_ms: 1_000 };

    #[test]
    fn the_wait_doubles_up_to_the_cap_and_the_jitter_spans_it() {
        assert_eq!(full_jitter_ms(100, 1_000, 0, u32::MAX), 100);
        assert_eq!(full_jitter_ms(100, 1_000, 2, u32::MAX), 400);
        assert_eq!(full_jitter_ms(100, 1_000, 20, u32::MAX), 1_000);
        assert_eq!(full_jitter_ms(100, 1_000, 200, u32::MAX), 1_000);
        assert_eq!(full_jitter_ms(100, 1_000, 2, 0), 0);
    }

    #[test]
    fn no_attempt_begins_past_budget_or_deadline() {
        let now = WallTime(1_000);
        assert_eq!(next_attempt(&RULE, 3, WallTime(9_000), now, 0), None);
        assert_eq!(next_attempt(&RULE, 1, WallTime(1_100), now, u32::MAX), None);
        assert_eq!(next_attempt(&RULE, 1, WallTime(1_101), now, u32::MAX), Some(WallTime(1_100)));
    }

    proptest! {
        #[test]
        fn the_wait_never_leaves_its_bounds(base in 0u64..10_000, cap in 0u64..100_000, n in 0u32..100, r: u32) {
            prop_assert!(full_jitter_ms(base, cap, n, r) <= cap);
        }
    }
}
