//! fio's random numbers. With them a job that verifies issues fio's offsets and writes fio's seeds,
//! so that fio and Reap can check what the other wrote.
//!
//! The generators are L'Ecuyer's combined Tausworthe generators *taus88* (Mathematics of
//! Computation 65, 213, 1996) and *lfsr258* (68, 225, 1999). Threads are seeded as in fio 3.33,
//! which `fio --verify_only` depends on.

use super::ThreadId;
use crate::job::{BlockSizes, Direction, Job, PerOp, RandomGenerator};
use rand::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;
use units::Op;

/// A combined Tausworthe generator, of 32 or of 64 bits.
#[derive(Clone, Debug)]
enum Tausworthe {
    /// taus88, of 32 bits.
    Narrow([u32; 3]),
    /// lfsr258, of 64 bits.
    Wide([u64; 5]),
}

/// Numbers that fio drops after seeding.
const WARM_UP: u32 = 6;
/// The first number of the seeding: `2^31 + 2^17 + 2^7` in fio's rand.h, where `^` is C's XOR.
const FIRST: u64 = 29 + 19 + 5;
/// Minimum valid state of each component.
const MIN_STATES: [u64; 5] = [1, 7, 15, 33, 49];

impl Tausworthe {
    /// A generator with this seed; a narrow one uses its lower half.
    pub fn new(seed: u64, wide: bool) -> Tausworthe {
        let mut x = FIRST;
        let mut state = MIN_STATES.map(|min| {
            x = if wide {
                x.wrapping_mul(6_906_969_069) ^ seed
            } else {
                u64::from((x as u32).wrapping_mul(69_069) ^ seed as u32)
            };
            // fio's __seed(): a component must not start below its minimum state.
            x = if x < min { x + min } else { x };
            x
        });
        if !wide {
            state[3..].fill(0);
        }
        let mut rng = if wide {
            Tausworthe::Wide(state)
        } else {
            Tausworthe::Narrow([0, 1, 2].map(|i: usize| state[i] as u32))
        };
        for _ in 0..WARM_UP {
            rng.next();
        }
        rng
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

    /// The next number in [0, 1).
    #[inline]
    pub fn fraction(&mut self) -> f64 {
        let whole = if matches!(self, Tausworthe::Narrow(_)) {
            4_294_967_296.0
        } else {
            18_446_744_073_709_551_616.0
        };
        self.next() as f64 / whole
    }
}

/// Indices of fio's table of seeds (`rand_seeds` in its thread_options.h): lengths of reads, of
/// writes and of trims; data of verified writes; read or write in a mixed job; random offsets.
const READS: u64 = 0;
const WRITES: u64 = 1;
const TRIMS: u64 = 2;
const DATA: u64 = 3;
const MIX: u64 = 4;
const OFFSETS: u64 = 6;

/// fio spreads seeds by this factor.
const SPREAD: u64 = 0x9e37_0001;
/// With `randrepeat` offsets are seeded with this, times the thread's number.
const REPEATABLE: u64 = 0xb189_9bed;

/// The seed at index `place` of fio's table for thread `number`, which counts from 1 over all jobs.
/// Without `base` the seed is computed from `entropy`.
fn seed(base: Option<u64>, entropy: u64, place: u64, number: u32) -> u64 {
    let number = u64::from(number);
    let Some(base) = base else {
        return SplitMix64::seed_from_u64(entropy ^ number.rotate_left(32) ^ place).next_u64();
    };
    let spread = (0..4 + place).fold(base, |seed, _| seed.wrapping_mul(SPREAD));
    spread.wrapping_mul(number).wrapping_add(place)
}

/// fio's random numbers of one job thread.
#[derive(Clone, Debug)]
pub(super) struct FioRandom {
    rngs: Generators,
    /// The state at the start of each pass of a job with `randrepeat`; in other jobs the sequences
    /// continue from pass to pass.
    first: Option<Generators>,
    /// Another run of the job has the same seeds.
    known: bool,
    /// `random_generator=lfsr`, whose order of offsets is not implemented.
    pub lfsr: bool,
    /// `bssplit`, the rarest size first, which is fio's order.
    splits: PerOp<Vec<(u64, u32)>>,
    /// Seed of the data of the last I/O.
    pub data_seed: u64,
    /// For mixed jobs: percentage of reads.
    read_percent: u32,
    /// The operation that the job issues until `issued` of it reaches `quota`.
    current: Op,
    quota: u64,
    /// I/Os issued so far.
    issued: PerOp<u64>,
}

/// The generators of one thread.
#[derive(Clone, Debug)]
struct Generators {
    offsets: Tausworthe,
    sizes: PerOp<Tausworthe>,
    mix: Tausworthe,
    data: Tausworthe,
}

impl FioRandom {
    /// The generators of this thread of `job`.
    pub fn new(job: &Job, ThreadId { number, subjob, entropy }: ThreadId) -> FioRandom {
        let seed = |place| seed(job.base_seed(), entropy, place, number);
        let wide = job.random_generator == RandomGenerator::Tausworthe64;
        // In fio randseed switches randrepeat off only after the first thread of a job is seeded.
        let repeats = job.repeatable && (job.seed.is_none() || subjob == 0);
        // fio seeds offsets of randrepeat with a constant, not with the table of seeds.
        let offset_seed =
            if repeats { REPEATABLE.wrapping_mul(number.into()) } else { seed(OFFSETS) };
        let sizes = |place| Tausworthe::new(seed(place), wide);
        let (read, trim) = (sizes(READS), sizes(TRIMS));
        // With verify fio uses equal generator states for lengths of writes and reads, so that a
        // job that only reads gets the lengths that were written.
        let write = if job.verify.is_some() { read.clone() } else { sizes(WRITES) };
        let trim = if job.pattern.direction == Direction::TrimWrite { write.clone() } else { trim };
        let rngs = Generators {
            offsets: Tausworthe::new(offset_seed, wide),
            sizes: PerOp { read, write, trim },
            mix: Tausworthe::new(seed(MIX), false),
            data: Tausworthe::new(seed(DATA), wide),
        };
        FioRandom {
            first: (job.repeatable && job.seed.is_none()).then(|| rngs.clone()),
            rngs,
            known: job.base_seed().is_some(),
            lfsr: job.random_generator == RandomGenerator::Lfsr,
            splits: PerOp::of(|op| {
                let mut split = job.block.get(op).split.clone();
                split.sort_by_key(|(_, share)| *share);
                split
            }),
            data_seed: 0,
            read_percent: job.read_percent.min(100),
            current: Op::Read,
            quota: 0,
            issued: PerOp::all(0),
        }
    }

    /// Whether another run of the same job draws the same numbers in each of `passes` passes.
    pub fn repeats(&self, passes: u64) -> bool {
        self.known && (self.first.is_some() || passes == 1)
    }

    /// Begins a pass: jobs with `randrepeat` restart their sequences.
    pub fn start_pass(&mut self) {
        self.quota = 0;
        if let Some(first) = &self.first {
            self.rngs = first.clone();
        }
    }

    /// Whether a mixed job reads or writes next. As in fio, a random number is drawn only when the
    /// quota of the current operation is used up (`get_rand_ddir` in its io_u.c).
    pub fn mixed(&mut self) -> Op {
        let before = *self.issued.get(self.current);
        if before >= self.quota {
            let percent = 1 + (100.0 * self.rngs.mix.fraction()) as u32;
            let next = if percent <= self.read_percent { Op::Read } else { Op::Write };
            if next != self.current {
                let others = if self.current == Op::Read {
                    100 - self.read_percent
                } else {
                    self.read_percent
                };
                self.quota = before.saturating_mul(others.into()) / 100;
            }
            self.current = next;
        }
        self.current
    }

    /// Counts an issued I/O.
    pub fn issued(&mut self, op: Op) {
        *self.issued.get_mut(op) += 1;
    }

    /// A random block below `blocks`.
    pub fn block(&mut self, blocks: u64) -> u64 {
        (blocks as f64 * self.rngs.offsets.fraction()) as u64
    }

    /// A random length among `sizes`, at most `room` bytes; `None`: no length fits.
    pub fn size(&mut self, op: Op, sizes: &BlockSizes, room: u64) -> Option<u64> {
        let (rng, split) = (self.rngs.sizes.get_mut(op), self.splits.get(op));
        let fits = |(bytes, share): &(u64, u32)| *share > 0 && *bytes <= room;
        // If no size fits, fio loops forever.
        if room < sizes.min || !split.is_empty() && !split.iter().any(fits) {
            return None;
        }
        loop {
            // fio draws again if the length exceeds the room, which advances the generator.
            let wanted = if split.is_empty() {
                sizes.min + (sizes.max as f64 * rng.fraction()) as u64
            } else {
                share(split, rng, room)
            };
            let bytes = (wanted - wanted % sizes.min).min(sizes.max);
            if bytes <= room {
                return Some(bytes);
            }
        }
    }

    /// Draws the seed of the next I/O's data, the product of two numbers.
    pub fn draw_seed(&mut self) {
        let first = self.rngs.data.next();
        self.data_seed = first.wrapping_mul(self.rngs.data.next());
    }
}

/// A random size of `bssplit`: the first that fits and whose cumulated share the random number does
/// not exceed, else the last size.
fn share(split: &[(u64, u32)], rng: &mut Tausworthe, room: u64) -> u64 {
    let max = if matches!(rng, Tausworthe::Narrow(_)) { u64::from(u32::MAX) } else { u64::MAX };
    let (number, mut percent, mut size) = (rng.next(), 0, 0);
    for (bytes, share) in split.iter().filter(|(_, share)| *share > 0) {
        size = *bytes;
        percent += u64::from(*share);
        if number / percent <= max / 100 && size <= room {
            break;
        }
    }
    size
}

#[cfg(test)]
mod tests;
