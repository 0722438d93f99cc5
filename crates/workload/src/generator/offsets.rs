//! Where the next I/O goes and how long it is: the stream of a job thread. It never looks at the clock or at what
//! completes, so a clone of it replays the same I/Os, which is how written blocks are found again for verification.

mod cover;
mod fit;
mod list;
mod mirror;
mod mirrored;
mod walk;

use super::io::{Place, Region};
use super::pacing::Pacing;
use crate::job::{BlockSizes, Direction, Distribution, Job, PerOp};
pub use fit::{Misfit, Target};
use list::List;
pub(super) use mirror::Mirror;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Nanos, Op};
pub(super) use walk::below;
use walk::{Choice, Walk};

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
    /// The I/Os are those of a list.
    list: Option<List>,
    /// Of the list's last I/O, when it is due from the start.
    listed_at: Option<Nanos>,
    block: PerOp<BlockSizes>,
    /// Smallest I/O in bytes.
    unit: u64,
    /// Longest one.
    longest: u64,
    /// The job verifies: fio's dice are thrown instead of `rng`.
    mirror: Option<Box<Mirror>>,
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
        let list = job.iolog.clone().map(List::new);
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
            longest: list.as_ref().map_or_else(|| of(|sizes| sizes.max).max().unwrap_or(1), List::longest).max(1),
            list,
            listed_at: None,
            block,
            unit,
            mirror: None,
        })
    }

    /// The part of each target that is used, in the order of the targets.
    pub fn regions(&self) -> impl Iterator<Item = Region> + '_ {
        self.walks.iter().map(|w| w.region)
    }

    /// I/Os and bytes of a list, if the job's I/Os are one's.
    pub fn listed(&self) -> Option<(u64, u64)> {
        self.list.as_ref().map(List::amount)
    }

    /// When the list has the last I/O start, from the start of all.
    pub fn listed_at(&self) -> Option<Nanos> {
        self.listed_at
    }

    /// Bytes of all regions.
    pub fn extent(&self) -> u64 {
        self.walks.iter().fold(0, |sum: u64, walk| sum.saturating_add(walk.region.len))
    }

    /// Whether fio has a map of the blocks visited.
    pub fn has_map(&self) -> bool {
        self.random && self.walks.iter().all(|walk| matches!(walk.choice, Choice::Shuffle(_) | Choice::Bitmap(_)))
    }

    /// Starts a new pass: in order from the start, or over all blocks in another order.
    pub fn start_pass(&mut self) {
        self.run_left = 0;
        if let Some(mirror) = &mut self.mirror {
            mirror.start_pass();
            self.file = 0;
        }
        self.trimmed = None;
        if let Some(list) = &mut self.list {
            list.start_pass();
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
        if self.mirror.is_some()
            && !self.own
            && let Some(place) = self.next_mirrored()
        {
            return place;
        }
        if let Some(list) = &mut self.list {
            let (place, at) = list.next(self.walks.len());
            self.listed_at = at;
            return place;
        }
        let op = match self.direction {
            Direction::Read => Op::Read,
            Direction::Write => Op::Write,
            Direction::Mixed if let Some(turns) = &self.turns => turns.turn(),
            Direction::Mixed if (self.rng.next_u64() >> 32) as u32 <= self.read_below && self.read_below > 0 => Op::Read,
            Direction::Mixed => Op::Write,
            Direction::Trim => Op::Deallocate,
            Direction::TrimWrite => match self.trimmed.take() {
                Some(place) => {
                    self.draw_seed(Op::Write);
                    return Place { op: Op::Write, ..place };
                }
                None => Op::Deallocate,
            },
        };
        self.draw_seed(op);
        let index = self.next_file();
        let (offset, len) = self.place(op, index);
        let walk = &self.walks[index];
        if let Some(turns) = &mut self.turns {
            turns.issued(op, len as u32);
        }
        let place = Place { op, target: walk.target, offset: walk.region.start + offset, len: len as u32 };
        self.trimmed = (self.direction == Direction::TrimWrite).then_some(place);
        place
    }

    /// Files take turns.
    #[inline]
    fn next_file(&mut self) -> usize {
        let next = if self.file + 1 >= self.walks.len() { 0 } else { self.file + 1 };
        std::mem::replace(&mut self.file, next)
    }

    /// A place of the walk `index`, relative to its region, and its length.
    #[inline]
    fn place(&mut self, op: Op, index: usize) -> (u64, u64) {
        let (offset, len) = self.any_place(op, index);
        (offset, self.whole(op, len))
    }

    /// Verified blocks have a header each: none is cut off where a region ends.
    #[inline]
    fn whole(&self, op: Op, len: u64) -> u64 {
        let least = self.block.get(op).min;
        if self.mirror.is_some() { (len - len % least).max(least) } else { len }
    }

    #[inline]
    fn any_place(&mut self, op: Op, index: usize) -> (u64, u64) {
        let sizes = self.block.get(op);
        let wanted = if sizes.min == sizes.max { sizes.min } else { varied(sizes, &mut self.rng) };
        let walk = &mut self.walks[index];
        if !self.random {
            return walk.sequential(op, wanted, sizes.min, self.step);
        }
        if self.step > 1 && self.run_left > 0 {
            self.run_left -= 1;
            return walk.sequential(op, wanted, sizes.min, 0);
        }
        self.run_left = self.step.max(1) as u64 - 1;
        let (offset, len) = walk.random(op, wanted, sizes.min, self.unit, &mut self.rng);
        let end = offset + self.whole(op, len);
        *self.walks[index].next.get_mut(op) = end;
        (offset, len)
    }
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
