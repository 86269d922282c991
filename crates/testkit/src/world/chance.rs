//! Chance from a seed: xoshiro256++ (Blackman, Vigna, 2018), seeded through splitmix64. Each part of the world draws from
//! its own stream of the seed, so that leaving out one kind of fault disturbs the others as little as possible.

#[derive(Clone, Debug)]
pub struct Chance([u64; 4]);

impl Chance {
    /// `part` keeps the streams of one seed apart.
    pub fn new(seed: u64, part: u64) -> Self {
        let mut state = seed ^ part.wrapping_mul(0xa076_1d64_78bd_642f);
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Self([next(), next(), next(), next()])
    }

    pub fn draw(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in `0..end`; zero for an empty range. The bias of the remainder is far below what a simulation could see.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.draw() % end }
    }

    /// Uniform in `from..=to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
