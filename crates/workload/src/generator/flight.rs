//! What is in flight: which slots are taken since when, and what is posted but not announced.

use crate::stats::{Stats, ddir};
use smart_default::SmartDefault;
use units::{Nanos, Op};

/// The instants of one I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// When it was posted; [`Nanos::MAX`]: the slot holds none, for no I/O starts at the end of time.
    pub start: Nanos,
    /// When it was announced.
    pub committed: Nanos,
}

/// What only jobs with a rate or with verification need of an I/O.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extra {
    /// When the rate meant it to start.
    pub intended: Nanos,
    /// Of a write, or of the write that a verification read looks for.
    pub sequence: u64,
    /// This read is to be checked.
    pub check: bool,
    /// Of the same write: the seed of its data.
    pub seed: u64,
    /// When a write was made.
    pub written: Nanos,
    /// A Flush of `fdatasync`.
    pub data_sync: bool,
}

/// The slots of a job thread.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// I/Os in flight, posted ones included.
    pub in_flight: u32,
    /// I/Os posted and not announced: the first ones of `batch`.
    pub queued: u32,
    /// Of these, reads, writes, trims and Flushes.
    queued_of: [u32; 4],
    times: Box<[Times]>,
    /// As many as `times`, or none.
    extras: Box<[Extra]>,
    /// From index `in_flight` on, the slots that are not taken.
    free: Box<[u32]>,
    /// Their slots, four times, and the operation.
    batch: Box<[u32]>,
    /// Start of the batch's first I/O, and whether another one's differs.
    batch_start: Nanos,
    uneven: bool,
}

impl Flight {
    /// `depth` slots; `extras`: see [`Flight::extra`].
    pub fn new(depth: u32, extras: bool) -> Flight {
        let slots = depth as usize;
        Flight {
            times: vec![Times { start: Nanos::MAX, committed: Nanos::MAX }; slots].into(),
            extras: vec![Extra::default(); if extras { slots } else { 0 }].into(),
            free: (0..depth).collect(),
            batch: vec![0; slots].into(),
            ..Flight::default()
        }
    }

    /// Takes a slot; `None` if all are taken.
    #[inline]
    pub fn occupy(&mut self) -> Option<u32> {
        let slot = *self.free.get(self.in_flight as usize)?;
        self.in_flight += 1;
        Some(slot)
    }

    /// The I/O in `slot` was posted at `now`.
    #[inline]
    pub fn posted(&mut self, slot: u32, op: Op, now: Nanos) {
        let (Some(times), Some(place)) = (self.times.get_mut(slot as usize), self.batch.get_mut(self.queued as usize)) else { return };
        *times = Times { start: now, committed: now };
        *place = slot << 2 | ddir(op) as u32;
        if self.queued == 0 {
            self.batch_start = now;
        }
        self.uneven |= now != self.batch_start;
        self.queued += 1;
        self.queued_of[ddir(op)] += 1;
    }

    /// What was posted is announced at `now`; `timed`: single I/Os are.
    #[inline(always)] // Once for each batch.
    pub fn commit(&mut self, now: Nanos, timed: bool, stats: &mut Stats) {
        if self.queued == 0 {
            return;
        }
        stats.submit.add_batch(self.queued);
        stats.depth.add_depth(self.in_flight, self.queued);
        let [reads, writes, trims, syncs] = self.queued_of.map(u64::from);
        stats.read.issued += reads;
        stats.write.issued += writes;
        stats.sync.issued += syncs;
        stats.trim.issued += trims;
        if timed {
            self.time(now, stats);
        }
        self.queued = 0;
        self.queued_of = [0; 4];
        self.uneven = false;
    }

    /// Single I/Os of the batch are timed.
    #[inline(never)]
    fn time(&mut self, now: Nanos, stats: &mut Stats) {
        // Else they were announced at the instant at which they were posted, as far as the clock was read.
        if self.uneven || now != self.batch_start {
            for tagged in self.batch.iter().take(self.queued as usize) {
                let Some(times) = self.times.get_mut((*tagged >> 2) as usize) else { continue };
                times.committed = now;
                if self.uneven {
                    stats.add_slat(KINDS[(*tagged & 3) as usize], now - times.start, 1);
                }
            }
        }
        // Mostly the I/Os of a batch have one start, and their submission latency is counted at once.
        for (op, n) in KINDS.into_iter().zip(self.queued_of).filter(|_| !self.uneven) {
            stats.add_slat(op, now - self.batch_start, n.into());
        }
    }

    /// The I/O in `slot` is over: its instants. `None` if the slot was not taken.
    #[inline]
    pub fn release(&mut self, slot: u32) -> Option<Times> {
        let times = self.times.get_mut(slot as usize)?;
        let ended = *times;
        if ended.start == Nanos::MAX {
            return None;
        }
        times.start = Nanos::MAX;
        self.in_flight -= 1;
        *self.free.get_mut(self.in_flight as usize)? = slot;
        Some(ended)
    }

    /// What a job with a rate or with verification keeps of the I/O in `slot`.
    pub fn extra(&self, slot: u32) -> Extra {
        self.extras.get(slot as usize).copied().unwrap_or_default()
    }

    /// Keeps that.
    pub fn set_extra(&mut self, slot: u32, extra: Extra) {
        if let Some(place) = self.extras.get_mut(slot as usize) {
            *place = extra;
        }
    }
}

/// The last completions: of one kind, posted, announced and found at the same instants, so that they have the same latencies.
/// What one look finds of one batch is such a run; the figures are those of counting each.
#[derive(Debug, SmartDefault)]
pub(super) struct BatchStats {
    #[default(Op::Read)]
    op: Op,
    times: Times,
    found: Nanos,
    ios: u64,
}

impl BatchStats {
    /// One more completion.
    #[inline]
    pub fn add(&mut self, op: Op, times: Times, found: Nanos, stats: &mut Stats) {
        if times == self.times && found == self.found && op == self.op {
            self.ios += 1;
        } else {
            self.count(stats);
            *self = BatchStats { op, times, found, ios: 1 };
        }
    }

    /// Adds those that have not been counted yet.
    #[inline(never)] // Once for each run, and large.
    pub fn count(&mut self, stats: &mut Stats) {
        let ios = std::mem::take(&mut self.ios);
        if ios > 0 {
            let stats = stats.op_mut(self.op);
            stats.clat.add(self.found - self.times.committed, ios);
            stats.lat.add(self.found - self.times.start, ios);
        }
    }
}

/// What operations are counted as, by [`ddir`].
const KINDS: [Op; 4] = [Op::Read, Op::Write, Op::Deallocate, Op::Flush];
