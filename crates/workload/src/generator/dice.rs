//! fio's random numbers, so that a job that verifies visits fio's offsets and writes fio's seeds.
//!
//! The generators are L'Ecuyer's combined Tausworthe ones: *taus88* (Mathematics of Computation 65, 213, 1996) and *lfsr258*
//! (68, 225, 1999). How each thread of a job is seeded was found in fio 3.33, and holds for what `fio --verify_only` expects.

use rand::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

/// A combined Tausworthe generator, of 32 or of 64 bits.
#[derive(Clone, Debug)]
pub(super) enum Tausworthe {
    /// taus88.
    Narrow([u32; 3]),
    /// lfsr258.
    Wide([u64; 5]),
}

/// Numbers that are dropped after seeding.
const WARM_UP: u32 = 6;
/// fio's header of the generator reads `2^31 + 2^17 + 2^7`, where `^` is C's exclusive or.
const FIRST: u64 = 29 + 19 + 5;
/// The state of each component has to be at least this.
const LEAST: [u64; 5] = [1, 7, 15, 33, 49];

impl Tausworthe {
    /// The generator that `seed` gives; a narrow one takes its lower half.
    pub fn new(seed: u64, wide: bool) -> Tausworthe {
        let mut x = FIRST;
        let mut state = LEAST.map(|least| {
            x = if wide { x.wrapping_mul(6_906_969_069) ^ seed } else { u64::from((x as u32).wrapping_mul(69_069) ^ seed as u32) };
            x = if x < least { x + least } else { x };
            x
        });
        if !wide {
            state[3..].fill(0);
        }
        let mut dice = if wide { Tausworthe::Wide(state) } else { Tausworthe::Narrow([0, 1, 2].map(|i: usize| state[i] as u32)) };
        for _ in 0..WARM_UP {
            dice.next();
        }
        dice
    }

    /// The next number: of 32 bits, or of 64.
    #[inline]
    pub fn next(&mut self) -> u64 {
        match self {
            Tausworthe::Narrow([a, b, c]) => {
                *a = ((*a & !1) << 12) ^ (((*a << 13) ^ *a) >> 19);
                *b = ((*b & !7) << 4) ^ (((*b << 2) ^ *b) >> 25);
                *c = ((*c & !15) << 17) ^ (((*c << 3) ^ *c) >> 11);
                u64::from(*a ^ *b ^ *c)
            }
            Tausworthe::Wide([a, b, c, d, e]) => {
                *a = ((*a & !1) << 10) ^ (((*a << 1) ^ *a) >> 53);
                *b = ((*b & !0x1ff) << 5) ^ (((*b << 24) ^ *b) >> 50);
                *c = ((*c & !0xfff) << 29) ^ (((*c << 3) ^ *c) >> 23);
                *d = ((*d & !0x1_ffff) << 23) ^ (((*d << 5) ^ *d) >> 24);
                *e = ((*e & !0x7f_ffff) << 8) ^ (((*e << 3) ^ *e) >> 33);
                *a ^ *b ^ *c ^ *d ^ *e
            }
        }
    }

    /// The next number, from 0 to below 1.
    #[inline]
    pub fn fraction(&mut self) -> f64 {
        let whole = if matches!(self, Tausworthe::Narrow(_)) { 4_294_967_296.0 } else { 18_446_744_073_709_551_616.0 };
        self.next() as f64 / whole
    }

    /// Two numbers make one seed of data.
    pub fn seed(&mut self) -> u64 {
        let first = self.next();
        first.wrapping_mul(self.next())
    }
}

/// What fio seeds a generator for; the values are their places in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The lengths of I/Os; of reads and writes alike where a job verifies.
    Sizes = 0,
    /// The data of verified writes.
    Data = 3,
    /// Whether a mixed job reads or writes.
    Mix = 4,
    /// Random offsets.
    Offsets = 6,
}

/// Seeds a thread's generators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seeding {
    /// `randrepeat`, fio's default.
    Repeatable,
    /// `randseed`.
    Given(u64),
    /// Neither: from outside.
    Entropy(u64),
}

/// fio's seed if none is given.
const DEFAULT_SEED: u64 = 0x89;
/// fio spreads seeds by this factor.
const SPREAD: u64 = 0x9e37_0001;
/// What is repeatable is seeded with this, times the thread's number.
const REPEATABLE: u64 = 0xb189_9bed;

impl Seeding {
    /// The seed for `purpose` of thread `number`, counted from 1 over all jobs.
    pub fn seed(self, purpose: Purpose, number: u32) -> u64 {
        let (place, number) = (purpose as u64, u64::from(number));
        let spread = |seed: u64| {
            let base = (0..4 + place).fold(seed, |seed, _| seed.wrapping_mul(SPREAD));
            base.wrapping_mul(number).wrapping_add(place)
        };
        match self {
            Seeding::Repeatable => spread(DEFAULT_SEED),
            Seeding::Given(seed) => spread(seed),
            Seeding::Entropy(entropy) => SplitMix64::seed_from_u64(entropy ^ number.rotate_left(32) ^ place).next_u64(),
        }
    }
}

/// The seed of offsets where `randrepeat` is on, whatever else is given: of thread `number`.
pub(super) fn repeatable_offsets(number: u32) -> u64 {
    REPEATABLE.wrapping_mul(number.into())
}

#[cfg(test)]
mod tests;
