//! What is in flight: which slots are taken since when, and what is posted but not announced.

use super::Io;
use crate::stats::Stats;
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
#[derive(Debug)]
pub(super) struct Flight {
    /// I/Os in flight, posted ones included.
    pub in_flight: u32,
    times: Box<[Times]>,
    /// As many as `times`, or none: what a job with a rate or with verification keeps of each.
    pub extras: Box<[Extra]>,
    /// From index `in_flight` on, the slots that are not taken.
    free: Box<[u32]>,
    /// The I/Os that were posted and not announced yet.
    batch: Vec<(u32, Op)>,
}

impl Flight {
    /// `depth` slots.
    pub fn new(depth: u32, extras: bool) -> Flight {
        let slots = depth as usize;
        Flight {
            in_flight: 0,
            times: vec![Times { start: Nanos::MAX, committed: Nanos::MAX }; slots].into(),
            extras: vec![Extra::default(); if extras { slots } else { 0 }].into(),
            free: (0..depth).collect(),
            batch: Vec::with_capacity(slots),
        }
    }

    /// I/Os posted and not announced.
    #[inline]
    pub fn queued(&self) -> u32 {
        self.batch.len() as u32
    }

    /// Posts an I/O at `now`: the slot that it has from now on. `None` if all are taken.
    #[inline]
    pub fn post(&mut self, op: Op, now: Nanos) -> Option<u32> {
        let slot = *self.free.get(self.in_flight as usize)?;
        *self.times.get_mut(slot as usize)? = Times { start: now, committed: now };
        self.in_flight += 1;
        self.batch.push((slot, op));
        Some(slot)
    }

    /// What was posted is announced at `now`.
    #[inline]
    pub fn commit(&mut self, now: Nanos, stats: &mut Stats) {
        if self.batch.is_empty() {
            return;
        }
        stats.submit.add_batch(self.queued());
        stats.depth.add_depth(self.in_flight, self.queued());
        for &(slot, op) in &self.batch {
            stats.op_mut(op).issued += 1;
            if let Some(times) = self.times.get_mut(slot as usize) {
                times.committed = now;
            }
        }
        self.batch.clear();
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
}

/// The last completions: of one kind, posted, announced and found at the same instants, so that they have the same latencies.
/// What one look finds of one batch is such a run; the figures are those of counting each.
#[derive(Debug, SmartDefault)]
pub(super) struct Alike {
    #[default(Op::Read)]
    op: Op,
    times: Times,
    found: Nanos,
    ios: u64,
    bytes: u64,
}

impl Alike {
    /// One more completion.
    #[inline]
    pub fn add(&mut self, io: &Io, times: Times, found: Nanos, stats: &mut Stats) {
        if times != self.times || found != self.found || io.op != self.op {
            if self.ios > 0 {
                self.count(stats);
            }
            *self = Alike { op: io.op, times, found, ios: 0, bytes: 0 };
        }
        self.ios += 1;
        self.bytes += u64::from(io.len);
    }

    /// Adds those that have not been counted yet.
    #[inline(never)] // Once for each run, and large.
    pub fn count(&mut self, stats: &mut Stats) {
        let ios = std::mem::take(&mut self.ios);
        let (measure, stats) = (stats.measure, stats.op_mut(self.op));
        stats.ios += ios;
        stats.bytes += std::mem::take(&mut self.bytes);
        if measure.slat {
            stats.slat.add(self.times.committed - self.times.start, ios);
        }
        if measure.clat {
            stats.clat.add(self.found - self.times.committed, ios);
        }
        if measure.lat {
            stats.lat.add(self.found - self.times.start, ios);
        }
    }
}
