//! Where the next I/O goes and how long it is: the stream of a job thread. It never looks at the clock or at what completes.
//!
//! A job that verifies has fio's random numbers ([`FioRandom`]), so that each program reads what the other wrote: offsets are fio's in
//! order, and at random with a map or with `norandommap`, for each seed, generator and mix; runs (`randrw:8`) included. They are
//! Reap's own with `random_distribution=zipf`, with `random_generator=lfsr`, with a step in order (`write:4k`) that meets the end of
//! the region, and in mixed jobs with two rates or whose reads and writes have different smallest lengths. fio then still accepts what
//! covers its whole region once.

mod cover;
mod fit;

use super::fio_random::FioRandom;
use super::io::{Place, Region};
use super::throttle::Pacing;
use crate::job::{BlockSizes, Direction, Distribution, Iolog, IologStep, Job, PerOp};
use cover::{Bitmap, Shuffle};
pub use fit::{Misfit, Target};
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution as _, Normal, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;
use units::{Nanos, Op};

/// The stream of one job thread's I/Os.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    rng: Xoshiro256PlusPlus,
    walks: Vec<Walk>,
    /// Index of the file that has the next I/O.
    file: usize,
    direction: Direction,
    /// Says whether a mixed job reads or writes next, if two rates do.
    pub turns: Option<Box<Pacing>>,
    /// Else a random number below this means a read.
    read_below: u32,
    random: bool,
    step: i64,
    /// One target, one operation of one size, at random places that do not depend on each other: nothing to choose but
    /// the block.
    plain: bool,
    /// Places are chosen in a way that only Reap has: a job that verifies has fio's seeds, but not fio's offsets.
    own: bool,
    /// Random with a step: I/Os until the next new offset.
    run_left: u64,
    /// What was trimmed and is to be written next (`trimwrite`).
    trimmed: Option<Place>,
    /// The I/Os are those of a list; how far it has been gone through, and its pauses so far.
    list: Option<Arc<Iolog>>,
    listed: usize,
    waited: Nanos,
    /// Of the list's last I/O, when it is due from the start.
    listed_at: Option<Nanos>,
    block: PerOp<BlockSizes>,
    /// Smallest I/O in bytes.
    unit: u64,
    /// Longest one.
    longest: u64,
    /// The job verifies: fio's random numbers instead of `rng`.
    fio: Option<Box<FioRandom>>,
}

impl Stream {
    /// The stream of thread `subjob` (0 is the first) of `job`.
    pub fn new(job: &Job, subjob: u32, targets: &[Target], seed: u64) -> Result<Stream, Misfit> {
        let block = job.block.clone();
        let ops = job.pattern.direction.ops();
        let of = |size: fn(&BlockSizes) -> u64| ops.iter().map(move |op| size(job.block.get(*op)));
        let unit = of(|sizes| sizes.min).min().unwrap_or(1);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let walks = fit::walks(job, subjob, targets, unit, &mut rng)?;
        // A per cent of 2^32, so that 0 never reads and 100 always does.
        let read_below = (u64::from(job.read_percent.min(100)) * ((1 << 32) - 1) / 100) as u32;
        let skewed = !matches!(job.distribution, Distribution::Uniform | Distribution::Zipf { .. });
        let aligned = ops.iter().any(|op| ![0, job.block.get(*op).min].contains(job.align.get(*op)));
        let random = job.pattern.random;
        let chosen = random && (skewed || aligned) || job.iolog.is_some();
        let fixed = matches!(ops, [op] if job.block.get(*op).is_fixed());
        let free = |walk: &Walk| matches!(walk.choice, Choice::Shuffle(_) | Choice::Any);
        let list = job.iolog.clone();
        let listed = list.iter().flat_map(|list| &list.steps).map(IologStep::len).max();
        Ok(Stream {
            plain: fixed && walks.len() == 1 && walks.iter().all(free) && random && job.pattern.step <= 1 && !chosen,
            own: chosen || job.pattern.trims(),
            rng,
            walks,
            file: 0,
            direction: job.pattern.direction,
            turns: None,
            read_below,
            random,
            step: job.pattern.step,
            run_left: 0,
            trimmed: None,
            longest: listed.or(of(|sizes| sizes.max).max()).unwrap_or(1).max(1),
            list,
            listed: 0,
            waited: Nanos::ZERO,
            listed_at: None,
            block,
            unit,
            fio: None,
        })
    }

    /// The part of each target that is used, in the order of the targets.
    pub fn regions(&self) -> impl Iterator<Item = Region> + '_ {
        self.walks.iter().map(|w| w.region)
    }

    /// When the list has the last I/O start, from the start of all.
    pub fn listed_at(&self) -> Option<Nanos> {
        self.listed_at
    }

    /// Bytes of all regions. `whole`: as whole blocks, because fio does not begin again for what is left of them.
    pub fn extent(&self, whole: bool) -> u64 {
        let unit = if whole { self.unit } else { 1 };
        self.walks.iter().fold(0, |sum: u64, walk| sum.saturating_add(walk.region.len / unit * unit))
    }

    /// Whether fio has a map of the blocks visited.
    pub fn has_map(&self) -> bool {
        self.random && self.walks.iter().all(|walk| matches!(walk.choice, Choice::Shuffle(_) | Choice::Bitmap(_)))
    }

    /// Draws as fio does from now on.
    pub fn follow(&mut self, fio: FioRandom) {
        self.plain = false;
        self.fio = Some(Box::new(fio));
    }

    /// The seed of the last I/O's data; 0 if the job does not verify.
    pub fn data_seed(&self) -> u64 {
        self.fio.as_ref().map_or(0, |fio| fio.data_seed)
    }

    /// Whether another run of the same job, of fio or of Reap, issues the same I/Os in each of `passes` passes.
    pub fn is_reproducible(&self, passes: u64) -> bool {
        let Some(fio) = &self.fio else { return false };
        let drawn = |walk: &Walk| matches!(walk.choice, Choice::Bitmap(_) | Choice::Any) && !fio.lfsr;
        let placed = if self.random { self.walks.iter().all(drawn) } else { self.step == 0 };
        let alike = self.direction != Direction::Mixed || self.turns.is_none() && self.block.read.min == self.block.write.min;
        placed && alike && !self.own && fio.repeats(passes)
    }

    /// Starts a new pass: in order from the start, or over all blocks in another order.
    pub fn start_pass(&mut self) {
        (self.run_left, self.trimmed) = (0, None);
        (self.listed, self.waited) = (0, Nanos::ZERO);
        if let Some(fio) = &mut self.fio {
            fio.start_pass();
            self.file = 0;
        }
        self.walks.iter_mut().for_each(Walk::start_pass);
    }

    /// How many I/Os at least it takes to issue `bytes` bytes, if that is less than `most`.
    #[inline]
    pub fn least_ios(&self, bytes: u64, most: u64) -> u64 {
        // Mostly there is far more to do, and no division.
        if most.saturating_mul(self.longest) <= bytes { most } else { bytes.div_ceil(self.longest).min(most) }
    }

    /// The next I/O.
    #[inline(always)] // It is what most jobs do all the time, and short.
    pub fn next(&mut self) -> Place {
        if self.plain
            && let [walk] = self.walks.as_mut_slice()
        {
            let op = match self.direction {
                Direction::Read => Op::Read,
                Direction::Trim => Op::Deallocate,
                _ => Op::Write,
            };
            let block = match &mut walk.choice {
                Choice::Shuffle(shuffle) => shuffle.next(),
                _ => below(&mut self.rng, *walk.blocks.get(op)),
            };
            return Place { op, target: 0, offset: walk.region.start + block * self.unit, len: self.unit as u32 };
        }
        self.next_of_many()
    }

    #[inline(never)]
    fn next_of_many(&mut self) -> Place {
        if self.list.is_some() {
            return self.next_listed();
        }
        let follows = self.fio.is_some() && !self.own;
        let op = match self.direction {
            Direction::Read => Op::Read,
            Direction::Write => Op::Write,
            Direction::Mixed => match (&self.turns, &mut self.fio) {
                (Some(turns), _) => turns.turn(),
                (None, Some(fio)) if follows => fio.mixed(),
                _ if (self.rng.next_u64() >> 32) as u32 <= self.read_below && self.read_below > 0 => Op::Read,
                _ => Op::Write,
            },
            Direction::TrimWrite if self.trimmed.is_some() => Op::Write,
            Direction::Trim | Direction::TrimWrite => Op::Deallocate,
        };
        // Reads of a mixed job are not checked, and trims have no data.
        if let Some(fio) = self.fio.as_mut().filter(|_| op == Op::Write || self.direction == Direction::Read) {
            fio.draw_seed();
        }
        if let Some(place) = self.trimmed.take() {
            return Place { op, ..place };
        }
        // Files take turns.
        let next = if self.file + 1 >= self.walks.len() { 0 } else { self.file + 1 };
        let walk = &mut self.walks[std::mem::replace(&mut self.file, next)];
        let (sizes, rng, unit) = (self.block.get(op), &mut self.rng, self.unit);
        let mut fio = self.fio.as_deref_mut().filter(|_| follows);
        let wanted = match (&fio, sizes.is_fixed()) {
            (None, false) => varied(sizes, rng),
            _ => sizes.min,
        };
        // A length of at most `room` bytes, where fio draws it; else as was wanted.
        let len_in = |fio: Option<&mut FioRandom>, room: u64| fio.map_or(wanted, |fio| fio.size(op, sizes, room));
        let (offset, mut len) = if !self.random || self.run_left > 0 {
            let room = walk.region.len - walk.begin_in_order(op, sizes.min);
            let wanted = len_in(fio, room);
            walk.sequential(op, wanted, sizes.min, if self.random { 0 } else { self.step })
        } else {
            let (align, blocks, whole) = (*walk.align.get(op), *walk.blocks.get(op), walk.region.len);
            match &mut walk.choice {
                Choice::Shuffle(shuffle) => (shuffle.next() * unit, unit),
                Choice::Any => {
                    let block = fio.as_mut().map_or_else(|| below(rng, blocks), |fio| fio.block(blocks));
                    (block * align, len_in(fio, whole - block * align).min(whole - block * align))
                }
                Choice::Skewed(skew) => {
                    let offset = skew.block(whole / unit, rng) * unit;
                    let offset = (offset - offset % sizes.min).min((blocks - 1) * align);
                    (offset, len_in(fio, whole).min(whole - offset))
                }
                Choice::Bitmap(map) => match fio {
                    Some(fio) => {
                        let block = map.free_below(fio.block(blocks), blocks);
                        let wanted = fio.size(op, sizes, whole - block * sizes.min);
                        (block * sizes.min, map.visit(block, wanted / sizes.min) * sizes.min)
                    }
                    None => {
                        let block = map.free_below(below(rng, map.len()), map.len());
                        (block * unit, wanted.min(map.visit(block, wanted / unit) * unit).min(whole - block * unit))
                    }
                },
            }
        };
        if self.fio.is_some() {
            // Verified blocks have a header each: none is cut off where a region ends.
            len = (len - len % sizes.min).max(sizes.min);
        }
        if self.random {
            self.run_left = if self.run_left > 0 { self.run_left - 1 } else { self.step.max(1) as u64 - 1 };
            *walk.next.get_mut(op) = offset + len;
        }
        if let Some(turns) = &mut self.turns {
            turns.issued(op, len as u32);
        }
        let place = Place { op, target: walk.target, offset: walk.region.start + offset, len: len as u32 };
        self.trimmed = (self.direction == Direction::TrimWrite).then_some(place);
        place
    }

    /// The next I/O of the list; after the last one the first.
    fn next_listed(&mut self) -> Place {
        let steps = self.list.as_ref().map_or(&[][..], |list| &list.steps);
        for _ in 0..=steps.len() {
            let step = steps.get(self.listed);
            self.listed += 1;
            match step {
                Some(&IologStep::Io { op, file, offset, len, at }) => {
                    self.listed_at = at.or(Some(self.waited).filter(|waited| *waited > Nanos::ZERO));
                    let target = (usize::from(file) % self.walks.len().max(1)) as u16;
                    return Place { op, target, offset, len: len.min(u64::from(u32::MAX)) as u32 };
                }
                Some(IologStep::Wait(span)) => self.waited += *span,
                None => (self.listed, self.waited) = (0, Nanos::ZERO),
            }
        }
        Place { op: Op::Read, target: 0, offset: 0, len: 0 }
    }
}

/// How random offsets are chosen within a target.
#[derive(Clone, Debug)]
enum Choice {
    /// Each block once per pass; all I/Os are one block.
    Shuffle(Shuffle),
    /// Each block once per pass; I/Os of several blocks.
    Bitmap(Bitmap),
    /// Any block at any time.
    Any,
    /// Popular blocks and others.
    Skewed(Skew),
}

/// Which blocks are popular.
#[derive(Clone, Debug)]
enum Skew {
    /// By rank; the shuffle says which block has it.
    Zipf(Zipf<f64>, Shuffle),
    /// Self-similar: a number from 0 to 1 to this power is the rank, from 0 to 1.
    Pareto(f64, Shuffle),
    /// Around the middle.
    Normal(Normal<f64>),
}

impl Skew {
    /// A block below `blocks`.
    pub fn block(&self, blocks: u64, rng: &mut Xoshiro256PlusPlus) -> u64 {
        match self {
            Skew::Zipf(zipf, scatter) => scatter.at((zipf.sample(rng) as u64).clamp(1, scatter.len()) - 1),
            Skew::Pareto(power, scatter) => {
                let rank = rng.random::<f64>().powf(*power) * scatter.len() as f64;
                scatter.at((rank as u64).min(scatter.len() - 1))
            }
            // The ends of the bell come in again at the other end.
            Skew::Normal(normal) => (normal.sample(rng) as i64).rem_euclid(blocks.clamp(1, i64::MAX as u64) as i64) as u64,
        }
    }
}

#[derive(Clone, Debug)]
struct Walk {
    pub region: Region,
    /// Index of the target it is on.
    pub target: u16,
    /// What random offsets are multiples of, and how many there are of them.
    pub align: PerOp<u64>,
    pub blocks: PerOp<u64>,
    pub choice: Choice,
    /// Sequential: where each operation goes next, relative to the region.
    pub next: PerOp<u64>,
}

impl Walk {
    /// The next place in order; around the end of the region if nothing of `min` bytes is left before it.
    #[inline]
    pub fn sequential(&mut self, op: Op, wanted: u64, min: u64, skip: i64) -> (u64, u64) {
        let (len, offset) = (self.region.len, self.begin_in_order(op, min));
        let left = len - offset;
        let bytes = if wanted <= left { wanted } else { left - left % min };
        let end = offset + bytes;
        // Around the region's ends.
        let skipped = || (i128::from(end) + i128::from(skip)).rem_euclid(i128::from(len.max(1))) as u64;
        *self.next.get_mut(op) = if skip == 0 { end } else { skipped() };
        (offset, bytes)
    }

    /// Where that is.
    #[inline]
    pub fn begin_in_order(&self, op: Op, min: u64) -> u64 {
        let next = *self.next.get(op);
        if self.region.len.saturating_sub(next) < min { 0 } else { next }
    }

    /// Begins anew.
    pub fn start_pass(&mut self) {
        self.next = PerOp::both(0);
        match &mut self.choice {
            Choice::Shuffle(shuffle) => shuffle.start_pass(),
            Choice::Bitmap(map) => map.start_pass(),
            Choice::Any | Choice::Skewed(_) => {}
        }
    }
}

/// A number below `n`, each as likely up to 2^-64.
#[inline]
pub(super) fn below(rng: &mut Xoshiro256PlusPlus, n: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64
}

/// A size of a job whose sizes vary.
fn varied(sizes: &BlockSizes, rng: &mut Xoshiro256PlusPlus) -> u64 {
    if sizes.split.is_empty() {
        return sizes.min * (1 + below(rng, sizes.max / sizes.min));
    }
    let mut percent = rng.random_range(0..100);
    for (bytes, share) in &sizes.split {
        if percent < *share {
            return *bytes;
        }
        percent -= share;
    }
    sizes.max
}
