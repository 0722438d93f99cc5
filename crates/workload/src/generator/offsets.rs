//! The operation, offset and length of each I/O of a job thread. They depend on neither time nor
//! completions.
//!
//! Sequential I/O is the same as fio's: ends of files, steps, mixes and lengths. A job that
//! verifies has fio's random offsets as well ([`FioRandom`]), so that fio and Reap can check what
//! the other wrote: with a random map or `norandommap`, for each seed, generator and mix, and for
//! sequential runs (`randrw:8`). Random offsets differ from fio's with `random_distribution=`, with
//! `random_generator=lfsr`, and in mixed jobs with two rates; fio can then still verify a region
//! that was written once as a whole.

mod extents;
mod random_map;

use super::Io;
use super::ThreadId;
use super::fio_random::FioRandom;
use super::throttle::Pacing;
use crate::job::{BlockSizes, Direction, Distribution, Iolog, IologStep, Job, Pattern, PerOp};
pub(crate) use extents::{Extent, extents};
pub use extents::{JobError, TargetSize};
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution as _, Normal, Zipf};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};
use random_map::{Bitmap, Shuffle};
use std::ops::Range;
use std::sync::Arc;
use units::{Nanos, Op};

/// The I/Os of one job thread, in order.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    rng: Xoshiro256PlusPlus,
    cursors: Vec<FileCursor>,
    /// Index of the file that has the next I/O.
    file: usize,
    /// Number of files that have nothing left in this pass.
    done: usize,
    /// `done` is not reset between passes: fio resets it only if the job repeats or reads back
    /// (`reset_io_counters` in its libfio.c).
    stays_done: bool,
    pattern: Pattern,
    /// Decides whether a mixed job reads or writes next, if reads and writes have a rate each.
    pub mix_pacing: Option<Box<Pacing>>,
    /// Without `mix_pacing`: a random number below this means a read.
    read_below: u32,
    /// `time_based`: a file that is done starts again.
    endless: bool,
    /// For jobs with one target, one operation of one size, and independent random offsets, which
    /// use the fast path: the operation, and the number of blocks to choose from.
    plain: Option<(Op, u64)>,
    /// Offsets differ from fio's. A job that verifies still has fio's seeds.
    own: bool,
    /// `randread:N`: I/Os until the next random offset.
    run_left: u64,
    /// Offset of the last I/O, or of the last attempt to find an I/O. fio's iolog has it in the
    /// lines of syncs.
    pub sync_offset: u64,
    /// `read_iolog`: the list, the index of its next step, and the sum of its waits so far.
    list: Option<Arc<Iolog>>,
    listed: usize,
    waited: Nanos,
    /// When the last I/O of the list is due, from the start of the job.
    pub iolog_due: Option<Nanos>,
    block: PerOp<BlockSizes>,
    /// Minimum and maximum size of an I/O in bytes.
    unit: u64,
    longest: u64,
    /// Bytes of a pass.
    pub size: u64,
    /// fio's random numbers, for jobs that verify and for sequential ones with mixes or lengths.
    fio: Option<Box<FioRandom>>,
    verifies: bool,
}

impl Stream {
    /// The I/Os of this thread of `job`; `seed` is for offsets that differ from fio's.
    pub fn new(
        job: &Job,
        id: ThreadId,
        targets: &[TargetSize],
        seed: u64,
        mix_pacing: Option<Box<Pacing>>,
    ) -> Result<Stream, JobError> {
        let (ops, pattern) = (job.pattern.direction.ops(), job.pattern);
        let unit = ops.iter().map(|op| job.block.get(*op).min).min().unwrap_or(1);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (cursors, size) = extents::cursors(job, id.subjob, targets, unit, &mut rng)?;
        let skewed = !matches!(job.distribution, Distribution::Uniform | Distribution::Zipf { .. });
        let aligned =
            ops.iter().any(|op| ![0, job.block.get(*op).min].contains(job.align.get(*op)));
        let own = pattern.random && (skewed || aligned || pattern.trims()) || job.iolog.is_some();
        let fixed = ops.iter().all(|op| job.block.get(*op).is_fixed());
        // Whether the order is fio's: verification depends on it, and sequential mixes are expected
        // to be the same as in fio.
        let follows = job.verify.is_some() || !pattern.random && (ops.len() > 1 || !fixed);
        let free = matches!(cursors.as_slice(), [cursor] if matches!(cursor.random, RandomOffsets::Shuffle(_) | RandomOffsets::Any));
        let plain = free && fixed && pattern.random && pattern.step <= 1 && !own && !follows;
        let again = job.loops > 1
            || job.time_based
            || job.verify.as_ref().is_none_or(|verify| verify.after_write);
        Ok(Stream {
            plain: match (ops, cursors.as_slice()) {
                (&[op], [cursor]) if plain => Some((op, *cursor.blocks.get(op))),
                _ => None,
            },
            own,
            rng,
            cursors,
            file: 0,
            done: 0,
            stays_done: !again,
            pattern,
            mix_pacing,
            // A per cent of 2^32, so that 0 never reads and 100 always does.
            read_below: (u64::from(job.read_percent.min(100)) * ((1 << 32) - 1) / 100) as u32,
            endless: job.time_based && job.runtime.is_some(),
            run_left: 0,
            sync_offset: 0,
            list: job.iolog.clone(),
            listed: 0,
            waited: Nanos::ZERO,
            iolog_due: None,
            block: job.block.clone(),
            unit,
            longest: ops.iter().map(|op| job.block.get(*op).max).max().unwrap_or(1).max(1),
            size,
            fio: follows.then(|| Box::new(FioRandom::new(job, id))),
            verifies: job.verify.is_some(),
        })
    }

    /// The part of each target that is used, in the order of the targets.
    pub fn regions(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.cursors.iter().map(|cursor| {
            let Extent { first, len, end, .. } = cursor.extent;
            let start = cursor.base + first;
            start..start + len.min(end.saturating_sub(first))
        })
    }

    /// The target of each file.
    pub fn targets(&self) -> impl ExactSizeIterator<Item = u16> + '_ {
        self.cursors.iter().map(|cursor| cursor.target)
    }

    /// Whether fio has a random map for this job.
    pub fn has_map(&self) -> bool {
        self.pattern.random
            && self.cursors.iter().all(|cursor| {
                matches!(cursor.random, RandomOffsets::Shuffle(_) | RandomOffsets::Bitmap(_))
            })
    }

    /// The seed of the last I/O's data; 0 if the job does not verify.
    pub fn data_seed(&self) -> u64 {
        self.fio.as_ref().map_or(0, |fio| fio.data_seed)
    }

    /// Whether another run of the job, by fio or Reap, issues the same I/Os in each of `passes`
    /// passes.
    pub fn is_reproducible(&self, passes: u64) -> bool {
        let Some(fio) = &self.fio else { return false };
        let drawn = |cursor: &FileCursor| {
            matches!(cursor.random, RandomOffsets::Bitmap(_) | RandomOffsets::Any) && !fio.lfsr
        };
        let placed = !self.pattern.random || self.cursors.iter().all(drawn);
        let alike = self.pattern.direction != Direction::Mixed || self.mix_pacing.is_none();
        placed && alike && !self.own && fio.repeats(passes)
    }

    /// Begins a pass: sequential from the start, or over all blocks in another order.
    pub fn start_pass(&mut self) {
        (self.listed, self.waited) = (0, Nanos::ZERO);
        if let Some(fio) = &mut self.fio {
            fio.start_pass();
        }
        if !self.stays_done {
            self.done = 0;
        }
        for cursor in &mut self.cursors {
            (cursor.done, cursor.start) = (false, cursor.extent.start);
            cursor.open();
        }
    }

    /// Whether no file has anything left.
    pub fn all_done(&self) -> bool {
        self.cursors.iter().all(|cursor| cursor.done)
    }

    /// Called when fio would close the files to read them back: no file is done any more.
    pub fn close(&mut self) {
        self.cursors.iter_mut().for_each(|cursor| cursor.done = false);
    }

    /// The minimum number of I/Os that `bytes` bytes take, or `max` if that is less.
    pub fn min_ios(&self, bytes: u64, max: u64) -> u64 {
        // Usually `bytes` is large, and the division is not needed.
        if max.saturating_mul(self.longest) <= bytes {
            max
        } else {
            bytes.div_ceil(self.longest).min(max)
        }
    }

    /// The next I/O; `None`: the pass has no more.
    #[inline(always)] // The fast path is short, and runs for each I/O.
    pub fn next(&mut self) -> Option<Io> {
        if let (Some((op, blocks)), [cursor]) = (self.plain, self.cursors.as_mut_slice())
            && cursor.left > 0
        {
            cursor.left -= 1;
            let block = match &mut cursor.random {
                RandomOffsets::Shuffle(shuffle) => shuffle.next(),
                _ => below(&mut self.rng, blocks),
            };
            // All I/Os have one size, so every block fits: no further checks.
            let offset = cursor.base + cursor.start + block * self.unit;
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
            let file = self.next_file()?;
            if let Some(io) = self.next_in(file) {
                return Some(io);
            }
            // As in fio a file without a next I/O is done for this pass, even if others continue.
            self.cursors[file].done = true;
            self.done += 1;
        }
    }

    /// The next file, round-robin, among the files that have I/Os left.
    fn next_file(&mut self) -> Option<usize> {
        let files = self.cursors.len();
        let mut in_turn = (self.file..files).chain(0..self.file);
        let file = in_turn.find(|file| self.done < files && !self.cursors[*file].done)?;
        self.file = (file + 1) % files;
        Some(file)
    }

    /// The target of the next Flush: as in fio, the target of the next file.
    pub fn flush(&mut self) -> Option<u16> {
        self.next_file().map(|file| self.cursors[file].target)
    }

    /// The next I/O in this file; `None`: the file has no more in this pass.
    fn next_in(&mut self, file: usize) -> Option<Io> {
        let Pattern { direction, random, step } = self.pattern;
        let alone = self.endless && self.cursors.len() == 1;
        let cursor = &mut self.cursors[file];
        let mut fio = self.fio.as_deref_mut().filter(|_| !self.own);
        let op = match direction {
            Direction::Read => Op::Read,
            Direction::Write => Op::Write,
            Direction::Trim => Op::Deallocate,
            Direction::Mixed => match (&self.mix_pacing, &mut fio) {
                (Some(mix_pacing), _) => mix_pacing.earlier_op(),
                (None, Some(fio)) => fio.mixed(),
                _ if (self.rng.next_u64() >> 32) as u32 <= self.read_below
                    && self.read_below > 0 =>
                {
                    Op::Read
                }
                _ => Op::Write,
            },
            // Trims and writes alternate: a block is written after it was trimmed.
            Direction::TrimWrite if cursor.last.write == cursor.last.trim => Op::Deallocate,
            Direction::TrimWrite => Op::Write,
        };
        let (sizes, rng, unit) = (self.block.get(op), &mut self.rng, self.unit);
        // `randread:8`: seven sequential I/Os follow each random one.
        let new = !random || self.run_left == 0;
        if random {
            self.run_left = if new { step.max(1) as u64 - 1 } else { self.run_left - 1 };
        }
        // The write of a trimwrite job goes to the offset of its trim.
        let rewrites = random && op == Op::Write && direction == Direction::TrimWrite;
        let step = if random { 0 } else { step };
        let in_order = if random && new { None } else { cursor.in_order(op, step, alone) };
        // The I/O's index in the random map, if it is in the map.
        let mut block = None;
        let offset = match in_order {
            _ if rewrites => cursor.last.trim? - cursor.start,
            Some(offset) => offset,
            None if !random => return None,
            None => {
                let (align, blocks) = (*cursor.align.get(op), *cursor.blocks.get(op));
                if blocks == 0 {
                    return None;
                }
                // As in fio, the number is drawn before it is known whether blocks are left: the
                // sequences of random numbers must be the same.
                let drawn = match &cursor.random {
                    RandomOffsets::Shuffle(_) | RandomOffsets::Skewed(_) => 0,
                    _ => fio.as_mut().map_or_else(|| below(rng, blocks), |fio| fio.block(blocks)),
                };
                // time_based: when all blocks were visited, start over.
                if self.endless && cursor.left == 0 {
                    cursor.forget();
                }
                match &mut cursor.random {
                    _ if cursor.left == 0 => return None,
                    RandomOffsets::Shuffle(shuffle) => shuffle.next() * unit,
                    RandomOffsets::Any => drawn * align,
                    RandomOffsets::Skewed(skew) => {
                        let offset = skew.block(blocks * align / unit, rng) * unit;
                        (offset - offset % sizes.min).min((blocks - 1) * align)
                    }
                    RandomOffsets::Bitmap(map) => {
                        let free = map.free(drawn)?;
                        block = Some(free);
                        free * if fio.is_some() { sizes.min } else { unit }
                    }
                }
            }
        };
        self.sync_offset = offset;
        if offset >= cursor.extent.len {
            return None;
        }
        let offset = offset + cursor.start;
        self.sync_offset = offset;
        if offset >= cursor.extent.end {
            return None;
        }
        let mut len = match &mut fio {
            _ if sizes.is_fixed() => sizes.min,
            Some(fio) => fio.size(
                op,
                sizes,
                cursor.extent.len.saturating_add(cursor.extent.start).saturating_sub(offset),
            )?,
            None => {
                let room = (cursor.start + cursor.extent.len).min(cursor.extent.end) - offset;
                let wanted = varied(sizes, rng).min(room);
                (wanted - wanted % sizes.min).max(sizes.min)
            }
        };
        // A trimwrite job writes exactly what it has trimmed.
        if rewrites {
            len = cursor.next.trim - offset;
        }
        if offset + len > cursor.extent.end {
            return None;
        }
        // `randread:8`: only the first I/O of a run is in the random map, as in fio.
        if random && new && !rewrites {
            let mut visited = 1;
            if let (RandomOffsets::Bitmap(map), Some(block)) = (&mut cursor.random, block) {
                let unit = if fio.is_some() { sizes.min } else { unit };
                visited = map.visit(block, len.div_ceil(unit));
                // The I/O must end before the next block that was visited already.
                len = len.min(visited * unit);
            }
            cursor.left -= visited;
        }
        // A trim may have the offset of the last write. Its own write has to follow nevertheless,
        // so that write is forgotten.
        if op == Op::Deallocate && random {
            cursor.last.write = None;
        }
        (*cursor.last.get_mut(op), *cursor.next.get_mut(op)) = (Some(offset), offset + len);
        if let Some(fio) = &mut self.fio {
            fio.issued(op);
            // Trims, and reads of a mixed job, which are not checked, draw no seed.
            if self.verifies && (op == Op::Write || direction == Direction::Read) {
                fio.draw_seed();
            }
        }
        if let Some(mix_pacing) = &mut self.mix_pacing {
            mix_pacing.issued(op, len as u32);
        }
        Some(Io {
            slot: 0,
            op,
            target: cursor.target,
            offset: cursor.base + offset,
            len: len as u32,
        })
    }

    /// The next I/O of the list; after the last I/O the list starts again.
    fn next_listed(&mut self) -> Io {
        let steps = self.list.as_ref().map_or(&[][..], |list| &list.steps);
        for _ in 0..=steps.len() {
            let step = steps.get(self.listed);
            self.listed += 1;
            match step {
                Some(&IologStep::Io { op, file, offset, len, at }) => {
                    self.iolog_due =
                        at.or(Some(self.waited).filter(|waited| *waited > Nanos::ZERO));
                    let target = (usize::from(file) % self.cursors.len().max(1)) as u16;
                    return Io {
                        slot: 0,
                        op,
                        target,
                        offset,
                        len: len.min(u64::from(u32::MAX)) as u32,
                    };
                }
                // Version 2 has no time stamps: they are the sums of the waits.
                Some(IologStep::Wait(span)) => self.waited += *span,
                None => (self.listed, self.waited) = (0, Nanos::ZERO),
            }
        }
        Io { slot: 0, op: Op::Read, target: 0, offset: 0, len: 0 }
    }
}

/// How random offsets are chosen within a file.
#[derive(Clone, Debug)]
enum RandomOffsets {
    /// Each block once per pass; each I/O is one block.
    Shuffle(Shuffle),
    /// Each block once per pass; I/Os may have several blocks.
    Bitmap(Bitmap),
    /// Each block with the same probability; blocks may repeat.
    Any,
    /// Some blocks more often than others; blocks may repeat.
    Skewed(Skew),
}

/// The distribution of [`RandomOffsets::Skewed`].
#[derive(Clone, Debug)]
enum Skew {
    /// The rank of a block follows Zipf's law.
    Zipf(Zipf<f64>),
    /// The rank, as a fraction of the number of blocks, is a uniform number to this power.
    Pareto(f64),
    /// The number of the block is normally distributed around the middle of the file.
    Normal(Normal<f64>),
}

impl Skew {
    /// A random block below `blocks`.
    pub fn block(&self, blocks: u64, rng: &mut Xoshiro256PlusPlus) -> u64 {
        let rank = match self {
            Skew::Zipf(zipf) => zipf.sample(rng) as u64,
            Skew::Pareto(power) => (rng.random::<f64>().powf(*power) * blocks as f64) as u64,
            // Values beyond one end of the file wrap to the other.
            Skew::Normal(normal) => {
                return (normal.sample(rng) as i64)
                    .rem_euclid(blocks.clamp(1, i64::MAX as u64) as i64)
                    as u64;
            }
        };
        // As in fio a hash scatters the ranks over the file.
        below(&mut SplitMix64::seed_from_u64(rank), blocks)
    }
}

/// Position in one file.
#[derive(Clone, Debug)]
struct FileCursor {
    /// Offset of the file on its target.
    pub base: u64,
    pub extent: Extent,
    /// Index of the file's target.
    pub target: u16,
    /// Alignment of random offsets in bytes, and how many such offsets the file has.
    pub align: PerOp<u64>,
    pub blocks: PerOp<u64>,
    pub random: RandomOffsets,
    /// Unvisited blocks of this pass; `u64::MAX` if blocks may repeat.
    pub left: u64,
    /// Where this pass begins.
    pub start: u64,
    /// The file has no I/O left in this pass.
    pub done: bool,
    /// End (`next`) and start (`last`) of the last I/O of each operation.
    pub next: PerOp<u64>,
    pub last: PerOp<Option<u64>>,
}

impl FileCursor {
    /// The next sequential offset, relative to `start`; `None`: the end of the file is reached. As
    /// in fio (`get_next_seq_offset` in its io_u.c) steps wrap at the ends of the file, not at the
    /// ends of the extent. `again`: start again at the end of the extent.
    #[inline]
    pub fn in_order(&mut self, op: Op, step: i64, again: bool) -> Option<u64> {
        let Extent { start: later, len, end, .. } = self.extent;
        let (start, next) = (self.start, self.next.get_mut(op));
        // time_based with one file: continue at the start instead of ending the pass.
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
        // With a negative step the first I/O is at the end of the extent.
        if *next == start && start > 0 && step < 0 {
            *next = last;
        }
        let offset = next.wrapping_sub(start);
        if offset == 0 {
            return Some(0);
        }
        // An offset below zero has wrapped to a large number, which is not below `end` either.
        Some(match offset.wrapping_add_signed(step) {
            offset if offset < end => offset,
            _ if step > 0 => start,
            _ => last.wrapping_add_signed(step),
        })
    }

    /// Resets the position, as opening a file does.
    pub fn open(&mut self) {
        self.next = PerOp::all(self.start);
        self.last = PerOp::all(None);
        self.forget();
    }

    /// Marks all blocks as unvisited.
    fn forget(&mut self) {
        self.left = match &mut self.random {
            RandomOffsets::Shuffle(shuffle) => shuffle.start_pass(),
            RandomOffsets::Bitmap(map) => map.start_pass(),
            RandomOffsets::Any | RandomOffsets::Skewed(_) => u64::MAX,
        };
    }
}

/// A uniform random number below `n`, with a bias below 2^-64 × `n`.
#[inline]
pub(super) fn below(rng: &mut impl Rng, n: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64
}

/// A random length of a job with `bsrange` or `bssplit`, in Reap's own order.
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
