//! Where ids and jitter come from: the system, or a seed, so that a simulation can be repeated to the byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Debug, Default)]
pub enum Entropy {
    #[default]
    System,
    /// Counts from the seed; ids rise as UUIDv7 do. Never for a store that outlives the process: ids would come again.
    Seeded(Arc<AtomicU64>),
}

impl Entropy {
    pub fn seeded(seed: u64) -> Self {
        Self::Seeded(Arc::new(AtomicU64::new(seed)))
    }

    /// Uniform over all of `u32`.
    pub fn random(&self) -> u32 {
        match self {
            // Without entropy the backoff is only less spread out.
            Self::System => getrandom::u32().unwrap_or(u32::MAX / 2),
            Self::Seeded(count) => (split_mix(count.fetch_add(1, Ordering::Relaxed)) >> 32) as u32,
        }
    }

    /// `prefix_` and 32 hex digits, later ones sorting after earlier ones.
    pub fn id(&self, prefix: &str) -> String {
        match self {
            Self::System => format!("{prefix}_{}", uuid::Uuid::now_v7().simple()),
            Self::Seeded(count) => format!("{prefix}_{:032x}", count.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): neighbouring numbers in, unrelated ones out.
fn split_mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_ids_and_numbers() {
        let (one, two) = (Entropy::seeded(7), Entropy::seeded(7));
        for _ in 0..10 {
            assert_eq!((one.id("op"), one.random()), (two.id("op"), two.random()));
        }
    }

    #[test]
    fn later_ids_sort_after_earlier_ones() {
        for entropy in [Entropy::System, Entropy::seeded(u64::from(u32::MAX) - 5)] {
            let ids: Vec<String> = (0..20).map(|_| entropy.id("op")).collect();
            assert!(ids.is_sorted(), "{ids:?}");
        }
    }
}
