//! fio's random numbers, so that a job that verifies visits fio's offsets and writes fio's seeds.
//!
//! The generators are L'Ecuyer's combined Tausworthe ones: *taus88* (Mathematics of Computation 65, 213, 1996) and *lfsr258*
//! (68, 225, 1999). How each thread of a job is seeded was found in fio 3.33, and holds for what `fio --verify_only` expects.

use super::Seat;
use crate::job::{BlockSizes, Direction, Job, PerOp, RandomGenerator};
use rand::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;
use units::Op;

/// A combined Tausworthe generator, of 32 or of 64 bits.
#[derive(Clone, Debug)]
enum Tausworthe {
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
}

/// What fio seeds generators for, as places in its table: the lengths of reads, those of writes and of trims, the data of verified writes,
/// whether a mixed job reads or writes, random offsets.
const READS: u64 = 0;
const WRITES: u64 = 1;
const TRIMS: u64 = 2;
const DATA: u64 = 3;
const MIX: u64 = 4;
const OFFSETS: u64 = 6;

/// fio spreads seeds by this factor.
const SPREAD: u64 = 0x9e37_0001;
/// What is repeatable is seeded with this, times the thread's number.
const REPEATABLE: u64 = 0xb189_9bed;

/// The seed for `place` of thread `number`, counted from 1 over all jobs: from `base`, or else from outside.
fn seed(base: Option<u64>, entropy: u64, place: u64, number: u32) -> u64 {
    let number = u64::from(number);
    let Some(base) = base else { return SplitMix64::seed_from_u64(entropy ^ number.rotate_left(32) ^ place).next_u64() };
    let spread = (0..4 + place).fold(base, |seed, _| seed.wrapping_mul(SPREAD));
    spread.wrapping_mul(number).wrapping_add(place)
}

/// fio's random numbers of one job thread.
#[derive(Clone, Debug)]
pub(super) struct FioRandom {
    dice: Dice,
    /// What each pass begins with, of a repeatable job; others go on.
    first: Option<Dice>,
    /// Another run draws the same.
    known: bool,
    /// The job asks for fio's shift register, whose order is not known here.
    pub lfsr: bool,
    /// `bssplit`, the rarest size first, as fio goes through them.
    splits: PerOp<Vec<(u64, u32)>>,
    /// Seed of the data of the last I/O.
    pub data_seed: u64,
    /// Mixed: per cent of reads, what was chosen last, for how many issues of it that holds, and how many there were.
    read_percent: u32,
    current: Op,
    quota: u64,
    issued: PerOp<u64>,
}

/// The generators of one thread.
#[derive(Clone, Debug)]
struct Dice {
    offsets: Tausworthe,
    sizes: PerOp<Tausworthe>,
    mix: Tausworthe,
    data: Tausworthe,
}

impl FioRandom {
    /// Those of the thread of `job` in this seat.
    pub fn new(job: &Job, Seat { number, subjob, entropy }: Seat) -> FioRandom {
        let seed = |place| seed(job.base_seed(), entropy, place, number);
        let wide = job.random_generator == RandomGenerator::Tausworthe64;
        // fio lets randseed switch randrepeat off only after it has seeded the first thread of a job.
        let repeats = job.repeatable && (job.seed.is_none() || subjob == 0);
        let offset_seed = if repeats { REPEATABLE.wrapping_mul(number.into()) } else { seed(OFFSETS) };
        let sizes = |place| Tausworthe::new(seed(place), wide);
        let (read, trim) = (sizes(READS), sizes(TRIMS));
        let write = if job.verify.is_some() { read.clone() } else { sizes(WRITES) };
        let trim = if job.pattern.direction == Direction::TrimWrite { write.clone() } else { trim };
        let dice = Dice {
            offsets: Tausworthe::new(offset_seed, wide),
            sizes: PerOp { read, write, trim },
            mix: Tausworthe::new(seed(MIX), false),
            data: Tausworthe::new(seed(DATA), wide),
        };
        FioRandom {
            first: (job.repeatable && job.seed.is_none()).then(|| dice.clone()),
            dice,
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
            issued: PerOp::both(0),
        }
    }

    /// Whether another run of the same job draws the same, pass by pass.
    pub fn repeats(&self, passes: u64) -> bool {
        self.known && (self.first.is_some() || passes == 1)
    }

    /// A pass begins: repeatable jobs start over, others go on.
    pub fn start_pass(&mut self) {
        self.quota = 0;
        if let Some(first) = &self.first {
            self.dice = first.clone();
        }
    }

    /// Whether a mixed job reads or writes next. fio throws dice when it has issued enough of what it chose last.
    pub fn mixed(&mut self) -> Op {
        let before = *self.issued.get(self.current);
        if before >= self.quota {
            let percent = 1 + (100.0 * self.dice.mix.fraction()) as u32;
            let next = if percent <= self.read_percent { Op::Read } else { Op::Write };
            if next != self.current {
                let others = if self.current == Op::Read { 100 - self.read_percent } else { self.read_percent };
                self.quota = before.saturating_mul(others.into()) / 100;
            }
            self.current = next;
        }
        self.current
    }

    /// One of these is issued.
    pub fn issued(&mut self, op: Op) {
        *self.issued.get_mut(op) += 1;
    }

    /// A block below `blocks`.
    pub fn block(&mut self, blocks: u64) -> u64 {
        (blocks as f64 * self.dice.offsets.fraction()) as u64
    }

    /// A length of `op`'s `sizes`, which are several, at most `room`; `None`: there is none.
    pub fn size(&mut self, op: Op, sizes: &BlockSizes, room: u64) -> Option<u64> {
        let (dice, split) = (self.dice.sizes.get_mut(op), self.splits.get(op));
        let fits = |(bytes, share): &(u64, u32)| *share > 0 && *bytes <= room;
        // Where the dice allow no size that fits, fio hangs.
        if room < sizes.min || !split.is_empty() && !split.iter().any(fits) {
            return None;
        }
        loop {
            let wanted = if split.is_empty() { sizes.min + (sizes.max as f64 * dice.fraction()) as u64 } else { share(split, dice, room) };
            let bytes = (wanted - wanted % sizes.min).min(sizes.max);
            if bytes <= room {
                return Some(bytes);
            }
        }
    }

    /// Draws the seed of the next I/O's data: two numbers make one.
    pub fn draw_seed(&mut self) {
        let first = self.dice.data.next();
        self.data_seed = first.wrapping_mul(self.dice.data.next());
    }
}

/// A size of `bssplit`: the first that the dice allow and that fits, else the last.
fn share(split: &[(u64, u32)], dice: &mut Tausworthe, room: u64) -> u64 {
    let most = if matches!(dice, Tausworthe::Narrow(_)) { u64::from(u32::MAX) } else { u64::MAX };
    let (number, mut percent, mut size) = (dice.next(), 0, 0);
    for (bytes, share) in split.iter().filter(|(_, share)| *share > 0) {
        size = *bytes;
        percent += u64::from(*share);
        if number / percent <= most / 100 && size <= room {
            break;
        }
    }
    size
}

#[cfg(test)]
mod tests;
