//! Where the next I/O goes and how long it is: the stream of a job thread. It never looks at the clock or at what completes.
//!
//! In order, all of it is fio's: where each file begins and ends, jumps, mixes and lengths. A job that verifies has fio's random offsets
//! as well ([`FioRandom`]), so that each program reads what the other wrote: with a map or with `norandommap`, for each seed, generator
//! and mix; runs (`randrw:8`) included. They are Reap's own with `random_distribution=zipf`, with `random_generator=lfsr`, and in mixed
//! jobs with two rates. fio then still accepts what covers its whole region once.

mod cover;
mod fit;

use super::Io;
use super::Seat;
use super::fio_random::FioRandom;
use super::throttle::Pacing;
use crate::job::{BlockSizes, Direction, Distribution, Iolog, IologStep, Job, Pattern, PerOp};
use cover::{Bitmap, Shuffle};
pub(crate) use fit::{Extent, extents};
pub use fit::{Misfit, Target};
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution as _, Normal, Zipf};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};
use std::ops::Range;
use std::sync::Arc;
use units::{Nanos, Op};

/// The stream of one job thread's I/Os.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    rng: Xoshiro256PlusPlus,
    walks: Vec<Walk>,
    /// Index of the file that has the next I/O.
    file: usize,
    /// Files that have nothing left in this pass.
    done: usize,
    /// fio counts these files once only, if nothing is read back and nothing repeated (`reset_io_counters` in its libfio.c).
    stays_done: bool,
    pattern: Pattern,
    /// Says whether a mixed job reads or writes next, if two rates do.
    pub turns: Option<Box<Pacing>>,
    /// Else a random number below this means a read.
    read_below: u32,
    /// Where all is done, the job goes on from the start.
    endless: bool,
    /// One target, one operation (this one) of one size, at random places that do not depend on each other: nothing to choose but one of
    /// this many blocks.
    plain: Option<(Op, u64)>,
    /// Places are chosen in a way that only Reap has: a job that verifies has fio's seeds, but not fio's offsets.
    own: bool,
    /// Random with a step: I/Os until the next new offset.
    run_left: u64,
    /// Where the last I/O was looked for, or was: fio's lists show it with syncs.
    pub looked_at: u64,
    /// The I/Os are those of a list; how far it has been gone through, and its pauses so far.
    list: Option<Arc<Iolog>>,
    listed: usize,
    waited: Nanos,
    /// Of the list's last I/O, when it is due from the start.
    pub listed_at: Option<Nanos>,
    block: PerOp<BlockSizes>,
    /// Smallest I/O in bytes, and longest one.
    unit: u64,
    longest: u64,
    /// Bytes of a pass.
    pub size: u64,
    /// fio's random numbers, where they are followed: if the job verifies, or if there is more in it than fixed blocks in order.
    fio: Option<Box<FioRandom>>,
    verifies: bool,
}

impl Stream {
    /// The stream of the thread of `job` in this seat.
    pub fn new(job: &Job, seat: Seat, targets: &[Target], seed: u64, turns: Option<Box<Pacing>>) -> Result<Stream, Misfit> {
        let (ops, pattern) = (job.pattern.direction.ops(), job.pattern);
        let unit = ops.iter().map(|op| job.block.get(*op).min).min().unwrap_or(1);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (walks, size) = fit::walks(job, seat.subjob, targets, unit, &mut rng)?;
        let skewed = !matches!(job.distribution, Distribution::Uniform | Distribution::Zipf { .. });
        let aligned = ops.iter().any(|op| ![0, job.block.get(*op).min].contains(job.align.get(*op)));
        let own = pattern.random && (skewed || aligned || pattern.trims()) || job.iolog.is_some();
        let fixed = ops.iter().all(|op| job.block.get(*op).is_fixed());
        let follows = job.verify.is_some() || !pattern.random && (ops.len() > 1 || !fixed);
        let free = matches!(walks.as_slice(), [walk] if matches!(walk.choice, Choice::Shuffle(_) | Choice::Any));
        let plain = free && fixed && pattern.random && pattern.step <= 1 && !own && !follows;
        let again = job.loops > 1 || job.time_based || job.verify.as_ref().is_none_or(|verify| verify.after_write);
        Ok(Stream {
            plain: match (ops, walks.as_slice()) {
                (&[op], [walk]) if plain => Some((op, *walk.blocks.get(op))),
                _ => None,
            },
            own,
            rng,
            walks,
            file: 0,
            done: 0,
            stays_done: !again,
            pattern,
            turns,
            // A per cent of 2^32, so that 0 never reads and 100 always does.
            read_below: (u64::from(job.read_percent.min(100)) * ((1 << 32) - 1) / 100) as u32,
            endless: job.time_based && job.runtime.is_some(),
            run_left: 0,
            looked_at: 0,
            list: job.iolog.clone(),
            listed: 0,
            waited: Nanos::ZERO,
            listed_at: None,
            block: job.block.clone(),
            unit,
            longest: ops.iter().map(|op| job.block.get(*op).max).max().unwrap_or(1).max(1),
            size,
            fio: follows.then(|| Box::new(FioRandom::new(job, seat))),
            verifies: job.verify.is_some(),
        })
    }

    /// The part of each target that is used, in the order of the targets.
    pub fn regions(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.walks.iter().map(|walk| {
            let Extent { first, len, end, .. } = walk.extent;
            let start = walk.base + first;
            start..start + len.min(end.saturating_sub(first))
        })
    }

    /// The target of each file.
    pub fn targets(&self) -> impl ExactSizeIterator<Item = u16> + '_ {
        self.walks.iter().map(|walk| walk.target)
    }

    /// Whether fio has a map of the blocks visited.
    pub fn has_map(&self) -> bool {
        self.pattern.random && self.walks.iter().all(|walk| matches!(walk.choice, Choice::Shuffle(_) | Choice::Bitmap(_)))
    }

    /// The seed of the last I/O's data; 0 if the job does not verify.
    pub fn data_seed(&self) -> u64 {
        self.fio.as_ref().map_or(0, |fio| fio.data_seed)
    }

    /// Whether another run of the same job, of fio or of Reap, issues the same I/Os in each of `passes` passes.
    pub fn is_reproducible(&self, passes: u64) -> bool {
        let Some(fio) = &self.fio else { return false };
        let drawn = |walk: &Walk| matches!(walk.choice, Choice::Bitmap(_) | Choice::Any) && !fio.lfsr;
        let placed = !self.pattern.random || self.walks.iter().all(drawn);
        let alike = self.pattern.direction != Direction::Mixed || self.turns.is_none();
        placed && alike && !self.own && fio.repeats(passes)
    }

    /// Starts a new pass: in order from the start, or over all blocks in another order.
    pub fn start_pass(&mut self) {
        (self.listed, self.waited) = (0, Nanos::ZERO);
        if let Some(fio) = &mut self.fio {
            fio.start_pass();
        }
        if !self.stays_done {
            self.done = 0;
        }
        for walk in &mut self.walks {
            (walk.done, walk.start) = (false, walk.extent.start);
            walk.open();
        }
    }

    /// Whether no file has anything left.
    pub fn all_done(&self) -> bool {
        self.walks.iter().all(|walk| walk.done)
    }

    /// What is done has been closed, and is to be read back.
    pub fn close(&mut self) {
        self.walks.iter_mut().for_each(|walk| walk.done = false);
    }

    /// How many I/Os at least it takes to issue `bytes` bytes, if that is less than `most`.
    pub fn least_ios(&self, bytes: u64, most: u64) -> u64 {
        // Mostly there is far more to do, and no division.
        if most.saturating_mul(self.longest) <= bytes { most } else { bytes.div_ceil(self.longest).min(most) }
    }

    /// The next I/O; `None`: the pass has none.
    #[inline(always)] // It is what most jobs do all the time, and short.
    pub fn next(&mut self) -> Option<Io> {
        if let (Some((op, blocks)), [walk]) = (self.plain, self.walks.as_mut_slice())
            && walk.left > 0
        {
            walk.left -= 1;
            let block = match &mut walk.choice {
                Choice::Shuffle(shuffle) => shuffle.next(),
                _ => below(&mut self.rng, blocks),
            };
            let offset = walk.base + walk.start + block * self.unit;
            return Some(Io { slot: 0, op, target: 0, offset, len: self.unit as u32 });
        }
        self.next_of_many()
    }

    #[inline(never)]
    fn next_of_many(&mut self) -> Option<Io> {
        if self.list.is_some() {
            return Some(self.next_listed());
        }
        loop {
            let file = self.turn()?;
            if let Some(io) = self.next_in(file) {
                return Some(io);
            }
            self.walks[file].done = true;
            self.done += 1;
        }
    }

    /// The file whose turn it is, of those that have something left.
    fn turn(&mut self) -> Option<usize> {
        let files = self.walks.len();
        let mut in_turn = (self.file..files).chain(0..self.file);
        let file = in_turn.find(|file| self.done < files && !self.walks[*file].done)?;
        self.file = (file + 1) % files;
        Some(file)
    }

    /// The target that is to be flushed: of the file whose turn it is, as in fio.
    pub fn flush(&mut self) -> Option<u16> {
        self.turn().map(|file| self.walks[file].target)
    }

    /// The next I/O in this file, if there is one in this pass.
    fn next_in(&mut self, file: usize) -> Option<Io> {
        let Pattern { direction, random, step } = self.pattern;
        let alone = self.endless && self.walks.len() == 1;
        let walk = &mut self.walks[file];
        let mut fio = self.fio.as_deref_mut().filter(|_| !self.own);
        let op = match direction {
            Direction::Read => Op::Read,
            Direction::Write => Op::Write,
            Direction::Trim => Op::Deallocate,
            Direction::Mixed => match (&self.turns, &mut fio) {
                (Some(turns), _) => turns.turn(),
                (None, Some(fio)) => fio.mixed(),
                _ if (self.rng.next_u64() >> 32) as u32 <= self.read_below && self.read_below > 0 => Op::Read,
                _ => Op::Write,
            },
            // A file has its trim and then its write.
            Direction::TrimWrite if walk.last.write == walk.last.trim => Op::Deallocate,
            Direction::TrimWrite => Op::Write,
        };
        let (sizes, rng, unit) = (self.block.get(op), &mut self.rng, self.unit);
        let new = !random || self.run_left == 0;
        if random {
            self.run_left = if new { step.max(1) as u64 - 1 } else { self.run_left - 1 };
        }
        // What was trimmed is written there.
        let rewrites = random && op == Op::Write && direction == Direction::TrimWrite;
        let step = if random { 0 } else { step };
        let in_order = if random && new { None } else { walk.in_order(op, step, alone) };
        // The block of a map that it is.
        let mut block = None;
        let offset = match in_order {
            _ if rewrites => walk.last.trim? - walk.start,
            Some(offset) => offset,
            None if !random => return None,
            None => {
                let (align, blocks) = (*walk.align.get(op), *walk.blocks.get(op));
                if blocks == 0 {
                    return None;
                }
                let drawn = match &walk.choice {
                    Choice::Shuffle(_) | Choice::Skewed(_) => 0,
                    _ => fio.as_mut().map_or_else(|| below(rng, blocks), |fio| fio.block(blocks)),
                };
                if self.endless && walk.left == 0 {
                    walk.forget();
                }
                match &mut walk.choice {
                    _ if walk.left == 0 => return None,
                    Choice::Shuffle(shuffle) => shuffle.next() * unit,
                    Choice::Any => drawn * align,
                    Choice::Skewed(skew) => {
                        let offset = skew.block(blocks * align / unit, rng) * unit;
                        (offset - offset % sizes.min).min((blocks - 1) * align)
                    }
                    Choice::Bitmap(map) => {
                        let free = map.free(drawn)?;
                        block = Some(free);
                        free * if fio.is_some() { sizes.min } else { unit }
                    }
                }
            }
        };
        self.looked_at = offset;
        if offset >= walk.extent.len {
            return None;
        }
        let offset = offset + walk.start;
        self.looked_at = offset;
        if offset >= walk.extent.end {
            return None;
        }
        let mut len = match &mut fio {
            _ if sizes.is_fixed() => sizes.min,
            Some(fio) => fio.size(op, sizes, walk.extent.len.saturating_add(walk.extent.start).saturating_sub(offset))?,
            None => {
                let room = (walk.start + walk.extent.len).min(walk.extent.end) - offset;
                let wanted = varied(sizes, rng).min(room);
                (wanted - wanted % sizes.min).max(sizes.min)
            }
        };
        if rewrites {
            len = walk.next.trim - offset;
        }
        if offset + len > walk.extent.end {
            return None;
        }
        // I/Os of a run are not in the map.
        if random && new && !rewrites {
            let mut visited = 1;
            if let (Choice::Bitmap(map), Some(block)) = (&mut walk.choice, block) {
                let unit = if fio.is_some() { sizes.min } else { unit };
                visited = map.visit(block, len.div_ceil(unit));
                len = len.min(visited * unit);
            }
            walk.left -= visited;
        }
        // What is trimmed at the place of the last write is to be written all the same.
        if op == Op::Deallocate && random {
            walk.last.write = None;
        }
        (*walk.last.get_mut(op), *walk.next.get_mut(op)) = (Some(offset), offset + len);
        if let Some(fio) = &mut self.fio {
            fio.issued(op);
            // Reads of a mixed job are not checked, and trims have no data.
            if self.verifies && (op == Op::Write || direction == Direction::Read) {
                fio.draw_seed();
            }
        }
        if let Some(turns) = &mut self.turns {
            turns.issued(op, len as u32);
        }
        Some(Io { slot: 0, op, target: walk.target, offset: walk.base + offset, len: len as u32 })
    }

    /// The next I/O of the list; after the last one the first.
    fn next_listed(&mut self) -> Io {
        let steps = self.list.as_ref().map_or(&[][..], |list| &list.steps);
        for _ in 0..=steps.len() {
            let step = steps.get(self.listed);
            self.listed += 1;
            match step {
                Some(&IologStep::Io { op, file, offset, len, at }) => {
                    self.listed_at = at.or(Some(self.waited).filter(|waited| *waited > Nanos::ZERO));
                    let target = (usize::from(file) % self.walks.len().max(1)) as u16;
                    return Io { slot: 0, op, target, offset, len: len.min(u64::from(u32::MAX)) as u32 };
                }
                Some(IologStep::Wait(span)) => self.waited += *span,
                None => (self.listed, self.waited) = (0, Nanos::ZERO),
            }
        }
        Io { slot: 0, op: Op::Read, target: 0, offset: 0, len: 0 }
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
    /// By rank.
    Zipf(Zipf<f64>),
    /// Self-similar: a number from 0 to 1 to this power is the rank, from 0 to 1.
    Pareto(f64),
    /// Around the middle.
    Normal(Normal<f64>),
}

impl Skew {
    /// A block below `blocks`.
    pub fn block(&self, blocks: u64, rng: &mut Xoshiro256PlusPlus) -> u64 {
        let rank = match self {
            Skew::Zipf(zipf) => zipf.sample(rng) as u64,
            Skew::Pareto(power) => (rng.random::<f64>().powf(*power) * blocks as f64) as u64,
            // The ends of the bell come in again at the other end.
            Skew::Normal(normal) => return (normal.sample(rng) as i64).rem_euclid(blocks.clamp(1, i64::MAX as u64) as i64) as u64,
        };
        // As in fio a hash says which block has the rank.
        below(&mut SplitMix64::seed_from_u64(rank), blocks)
    }
}

/// The way through one file.
#[derive(Clone, Debug)]
struct Walk {
    /// Where on its target the file begins.
    pub base: u64,
    pub extent: Extent,
    /// Index of the target it is on.
    pub target: u16,
    /// What random offsets are multiples of, and how many there are of them.
    pub align: PerOp<u64>,
    pub blocks: PerOp<u64>,
    pub choice: Choice,
    /// Blocks that were not visited in this pass, if each is visited once; else there is no end of them.
    pub left: u64,
    /// Where this pass begins.
    pub start: u64,
    /// Nothing is left in this pass.
    pub done: bool,
    /// Where the last I/O of each operation ended, and began.
    pub next: PerOp<u64>,
    pub last: PerOp<Option<u64>>,
}

impl Walk {
    /// The next offset in order, from where the pass begins; `None`: the file ends there. As fio has it (`get_next_seq_offset` in its
    /// io_u.c), whose steps turn at the ends of the file and not of the part that is used. `again`: what is done begins again.
    #[inline]
    pub fn in_order(&mut self, op: Op, step: i64, again: bool) -> Option<u64> {
        let Extent { start: later, len, end, .. } = self.extent;
        let (start, next) = (self.start, self.next.get_mut(op));
        if again && *next >= len.saturating_add(later) {
            *next = start;
        }
        if *next >= end {
            return None;
        }
        if step == 0 {
            return Some(next.wrapping_sub(start));
        }
        let last = len.min(end);
        if *next == start && start > 0 && step < 0 {
            *next = last;
        }
        let offset = next.wrapping_sub(start);
        if offset == 0 {
            return Some(0);
        }
        // Below zero is beyond the end, too.
        Some(match offset.wrapping_add_signed(step) {
            offset if offset < end => offset,
            _ if step > 0 => start,
            _ => last.wrapping_add_signed(step),
        })
    }

    /// The file is opened: everything begins anew.
    pub fn open(&mut self) {
        self.next = PerOp::both(self.start);
        self.last = PerOp::both(None);
        self.forget();
    }

    /// No block was visited.
    fn forget(&mut self) {
        self.left = match &mut self.choice {
            Choice::Shuffle(shuffle) => shuffle.start_pass(),
            Choice::Bitmap(map) => map.start_pass(),
            Choice::Any | Choice::Skewed(_) => u64::MAX,
        };
    }
}

/// A number below `n`, each as likely up to 2^-64.
#[inline]
pub(super) fn below(rng: &mut impl Rng, n: u64) -> u64 {
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
