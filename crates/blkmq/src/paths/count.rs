//! Counts of what is in flight, exact for any number of writers, and without a locked instruction for their owner.
//!
//! Two locked instructions for each request, one to count it and one to take it back, are most of what a choice of path
//! costs. Most counts have one writer nearly always: the thread of the hardware queue, the thread on the CPU, the only
//! thread that submits. So each row of counts (one for each path) has at most one *owner*, which writes a part of its own
//! with plain loads and stores; every other thread adds to another part, atomically. A count is the sum of both.
//!
//! Ownership is claimed by a compare-exchange (acquire) and given up by a store (release), so that an owner sees what the
//! one before it has written. A request that is taken back by a thread that did not count it, or no longer owns the row,
//! is taken out of the others' part, which wraps below zero: the sum is exact.

use crossbeam_utils::CachePadded;
use sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sync::atomic::{AtomicBool, AtomicU32};

use super::lines::{Line, Lines};
use super::set::{PathId, PathSet};

/// One count.
struct Count {
    /// Written by the owner of its row only.
    own: AtomicU32,
    /// Written by everybody else.
    others: AtomicU32,
}

impl Count {
    fn new() -> Count {
        Count { own: AtomicU32::new(0), others: AtomicU32::new(0) }
    }

    #[inline]
    fn get(&self) -> u32 {
        self.own.load(Relaxed).wrapping_add(self.others.load(Relaxed))
    }

    /// Adds `n`, or takes it away as its negative. What there was before, as far as the caller can tell.
    #[inline]
    fn add(&self, n: u32, owned: bool) -> u32 {
        if owned {
            let own = self.own.load(Relaxed);
            self.own.store(own.wrapping_add(n), Relaxed);
            own.wrapping_add(self.others.load(Relaxed))
        } else {
            self.others.fetch_add(n, Relaxed).wrapping_add(self.own.load(Relaxed))
        }
    }
}

/// Rows of counts, one for each path in a row, each on a cache line of its own.
pub(super) struct Rows {
    counts: Box<[CachePadded<Count>]>,
    owned: Box<[AtomicBool]>,
    paths: usize,
}

/// What it takes to say which of the paths has its turn when.
const TURN_BITS: u32 = PathSet::MOST.ilog2();

/// No row: what owns nothing has this one.
pub(super) const NO_ROW: u32 = u32::MAX;

impl Rows {
    pub(super) fn new(paths: usize, rows: usize) -> Rows {
        let counts = (0..paths * rows).map(|_| CachePadded::new(Count::new())).collect();
        Rows { counts, owned: (0..rows).map(|_| AtomicBool::new(false)).collect(), paths }
    }

    /// The caller's alone from now on, if it is nobody's.
    pub(super) fn claim(&self, row: u32) -> bool {
        let owned = self.owned.get(row as usize);
        owned.is_some_and(|owned| owned.compare_exchange(false, true, Acquire, Relaxed).is_ok())
    }

    /// From now on another thread may claim it. By its owner.
    pub(super) fn give_up(&self, row: u32) {
        if let Some(owned) = self.owned.get(row as usize) {
            owned.store(false, Release);
        }
    }

    #[inline]
    fn at(&self, row: u32, path: PathId) -> usize {
        row as usize * self.paths + path.index()
    }

    /// What a path's count in a row is, for the thread that chooses.
    #[inline]
    pub(super) fn read(&self, row: u32, path: PathId, lines: &mut impl Lines) -> u32 {
        let at = self.at(row, path);
        lines.read(Line::of_count(at));
        self.counts.get(at).map_or(u32::MAX, |count| count.get())
    }

    /// The path among `usable` with the least count in a row; of several, the first from path `first` on.
    ///
    /// One pass over the row without a branch for each path: which count is the least is anybody's guess, and a wrong guess costs
    /// as much as ten paths. So count and turn are one number, of which the least is taken, and a path that is not usable is
    /// the greatest number there is.
    #[inline]
    pub(super) fn least(&self, row: u32, usable: PathSet, first: u8, lines: &mut impl Lines) -> Option<PathId> {
        let start = self.at(row, PathId(0));
        let mut left = usable.0;
        let mut turn = u64::from(first).wrapping_neg();
        let counts = self.counts.get(start..)?.iter().take(self.paths);
        let least = counts.zip(start..).fold(u64::MAX, |least, (count, at)| {
            lines.read(Line::of_count(at));
            let key = (u64::from(count.get()) << TURN_BITS) | (turn % PathSet::MOST as u64);
            let unusable = (left & 1).wrapping_sub(1);
            (left, turn) = (left >> 1, turn.wrapping_add(1));
            least.min(key | unusable)
        });
        let turn = (least % PathSet::MOST as u64) as u8;
        (least != u64::MAX).then(|| PathId(turn.wrapping_add(first) % PathSet::MOST as u8))
    }

    /// Adds `n`; what there was before.
    #[inline]
    pub(super) fn add(&self, row: u32, path: PathId, n: u32, owned: bool, lines: &mut impl Lines) -> u32 {
        let at = self.at(row, path);
        lines.write(Line::of_count(at));
        self.counts.get(at).map_or(0, |count| count.add(n, owned))
    }

    /// Takes `n` away again.
    #[inline]
    pub(super) fn take(&self, row: u32, path: PathId, n: u32, owned: bool, lines: &mut impl Lines) {
        self.add(row, path, n.wrapping_neg(), owned, lines);
    }

    /// A path's counts in these rows: a cache line for each, most of them last written by another CPU.
    pub(super) fn sum(&self, rows: std::ops::Range<u32>, path: PathId, lines: &mut impl Lines) -> u32 {
        rows.fold(0u32, |sum, row| sum.wrapping_add(self.read(row, path, lines)))
    }

    /// All of a path's counts.
    pub(super) fn of(&self, path: PathId) -> u64 {
        let counts = self.counts.iter().skip(path.index()).step_by(self.paths.max(1));
        counts.map(|count| u64::from(count.get())).sum()
    }

    /// All counts of all paths.
    pub(super) fn total(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(count.get())).sum()
    }
}

#[cfg(all(test, loom))]
impl Rows {
    /// For a twin: [`Rows::claim`] without the acquire.
    pub(super) fn claim_unseen(&self, row: u32) -> bool {
        let owned = self.owned.get(row as usize);
        owned.is_some_and(|owned| owned.compare_exchange(false, true, Relaxed, Relaxed).is_ok())
    }
}
