//! The I/Os in flight of a job thread: the slot of each, the times for its latencies, and which of
//! them are posted but not committed (no doorbell rung for them).
//!
//! One array of slot numbers has both the free slots and the posted ones, in order:
//!
//! ```text
//! free:  [ unused …    | posted …                          | free …      ]
//!          (committed) ↑ in_flight - (posted - refused)    ↑ in_flight
//! ```
//!
//! Numbers of committed slots are not kept: each I/O brings its own when it completes.

use super::Io;
use crate::stats::Stats;
use smart_default::SmartDefault;
use units::{Nanos, Op};

/// One I/O in flight, or a free slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub io: Io,
    /// When it was posted; [`Nanos::MAX`]: the slot is free.
    pub start: Nanos,
    /// When the doorbell was rung for it.
    pub committed: Nanos,
}

/// Further state of an I/O, which only `tracked` jobs need (`Generator::tracked`): those with a
/// rate, verification, flushes, pauses, logs and the like.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extra {
    /// The start that the rate intended; [`Nanos::MAX`]: not measured.
    pub intended: Nanos,
    /// Number of the write, or of the write that a verification read expects.
    pub sequence: u64,
    /// The data of this read are checked.
    pub check: bool,
    /// Seed of the data of write `sequence`.
    pub seed: u64,
    /// When a write was issued.
    pub written: Nanos,
    /// The Flush comes from `fdatasync`.
    pub data_sync: bool,
}

/// The slots of a job thread.
#[derive(Debug)]
pub(super) struct InFlight {
    /// I/Os in flight, posted ones included.
    pub in_flight: u32,
    /// I/Os posted since the last commit, refused ones included.
    pub posted: u32,
    /// Those of them that have completed already, because the device refused them.
    refused: u32,
    slots: Box<[Slot]>,
    /// One per slot for `tracked` jobs, else empty.
    pub extras: Box<[Extra]>,
    /// Free and posted slots; see the module's documentation.
    free: Box<[u32]>,
}

impl InFlight {
    /// `depth` slots.
    pub fn new(depth: u32, extras: bool) -> InFlight {
        let slots = depth as usize;
        let io = Io { slot: 0, op: Op::Read, target: 0, offset: 0, len: 0 };
        InFlight {
            in_flight: 0,
            posted: 0,
            refused: 0,
            slots: vec![Slot { io, start: Nanos::MAX, committed: Nanos::MAX }; slots].into(),
            extras: vec![Extra::default(); if extras { slots } else { 0 }].into(),
            free: (0..depth).collect(),
        }
    }

    /// Posts an I/O at `now`. Returns it with its slot; `None`: no slot is free.
    #[inline]
    pub fn post(&mut self, io: Io, now: Nanos) -> Option<Io> {
        let slot = *self.free.get(self.in_flight as usize)?;
        let io = Io { slot, ..io };
        *self.slots.get_mut(slot as usize)? = Slot { io, start: now, committed: now };
        self.in_flight += 1;
        self.posted += 1;
        Some(io)
    }

    /// The I/O in `slot`, unless it is free.
    #[inline]
    pub fn get(&self, slot: u32) -> Option<&Slot> {
        self.slots.get(slot as usize).filter(|slot| slot.start != Nanos::MAX)
    }

    /// The I/Os that are posted and not committed.
    #[inline]
    pub fn posted(&self) -> impl Iterator<Item = &Io> {
        let first = self.in_flight - (self.posted - self.refused);
        let posted = self.free.get(first as usize..self.in_flight as usize).unwrap_or_default();
        posted.iter().filter_map(|slot| Some(&self.slots.get(*slot as usize)?.io))
    }

    /// The doorbell was rung at `now` for all posted I/Os.
    #[inline]
    pub fn commit(&mut self, now: Nanos, stats: &mut Stats) {
        let posted = std::mem::take(&mut self.posted);
        // A batch of 0 would be counted as a doorbell.
        if posted == 0 {
            return;
        }
        stats.submit.add_batch(posted);
        // As in fio, the depth is that at the doorbell, for all I/Os of the batch.
        stats.depth.add_depth(self.in_flight, posted);
        let first = self.in_flight - (posted - std::mem::take(&mut self.refused));
        for slot in self.free.get(first as usize..self.in_flight as usize).unwrap_or_default() {
            if let Some(Slot { io, committed, .. }) = self.slots.get_mut(*slot as usize) {
                stats.op_mut(io.op).issued += 1;
                *committed = now;
            }
        }
    }

    /// The I/O in `slot`, which was in flight, has completed.
    #[inline]
    pub fn release(&mut self, slot: u32, stats: &mut Stats) {
        if let Some(place) = self.slots.get_mut(slot as usize) {
            place.start = Nanos::MAX;
        }
        // Usually all are committed, so no number in `free` has to be kept.
        if self.posted > 0 {
            self.close_gap(slot, stats);
        }
        self.in_flight -= 1;
        if let Some(place) = self.free.get_mut(self.in_flight as usize) {
            *place = slot;
        }
    }

    /// Moves the posted slots down by one, so that `slot`, which has completed, can become free
    /// after them. It may be one of them, if the device refused it.
    #[cold]
    fn close_gap(&mut self, slot: u32, stats: &mut Stats) {
        let end = self.in_flight as usize;
        let first = end - (self.posted - self.refused) as usize;
        let Some(posted) = self.free.get(first..end) else { return };
        let at = posted.iter().position(|other| *other == slot);
        // A refused I/O counts as issued, like one that the device fails.
        if let (Some(_), Some(Slot { io, .. })) = (at, self.slots.get(slot as usize)) {
            self.refused += 1;
            stats.op_mut(io.op).issued += 1;
        }
        let from = at.map_or(first, |at| first + at + 1);
        if from > 0 {
            self.free.copy_within(from..end, from - 1);
        }
    }
}

/// A run of completions with the same operation and the same times, and so the same latencies, such
/// as those that one poll reaps of one batch. They are added to the statistics together, with the
/// same result as one by one.
#[derive(Debug, SmartDefault)]
pub(super) struct BatchStats {
    #[default(Op::Read)]
    op: Op,
    start: Nanos,
    committed: Nanos,
    reaped: Nanos,
    ios: u64,
    bytes: u64,
}

impl BatchStats {
    /// One more completion.
    #[inline]
    pub fn add(
        &mut self,
        &Slot { ref io, start, committed }: &Slot,
        reaped: Nanos,
        stats: &mut Stats,
    ) {
        // Another time or operation: a new run begins.
        if start != self.start
            || committed != self.committed
            || reaped != self.reaped
            || io.op != self.op
        {
            self.flush(stats);
            *self = BatchStats { op: io.op, start, committed, reaped, ios: 0, bytes: 0 };
        }
        self.ios += 1;
        self.bytes += u64::from(io.len);
    }

    /// Adds the collected completions to `stats`.
    #[inline]
    pub fn flush(&mut self, stats: &mut Stats) {
        if self.ios > 0 {
            self.add_run(stats);
        }
    }

    #[inline(never)] // Large, and called once per batch.
    fn add_run(&mut self, stats: &mut Stats) {
        let ios = std::mem::take(&mut self.ios);
        let (measure, stats) = (stats.measure, stats.op_mut(self.op));
        stats.ios += ios;
        stats.bytes += std::mem::take(&mut self.bytes);
        if measure.slat {
            stats.slat.add(self.committed - self.start, ios);
        }
        if measure.clat {
            stats.clat.add(self.reaped - self.committed, ios);
        }
        if measure.lat {
            stats.lat.add(self.reaped - self.start, ios);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit_at(flight: &mut InFlight, now: u64) {
        flight.commit(Nanos(now), &mut Stats::default());
    }

    fn times(flight: &mut InFlight, slot: u32) -> (u64, u64) {
        let &Slot { start, committed, .. } = flight.get(slot).unwrap();
        flight.release(slot, &mut Stats::default());
        (start.0, committed.0)
    }

    #[test]
    fn only_posted_slots_are_committed() {
        let io = Io { slot: 0, op: Op::Read, target: 0, offset: 0, len: 512 };
        let mut flight = InFlight::new(4, false);
        let post = |flight: &mut InFlight, now| flight.post(io, Nanos(now)).unwrap().slot;
        let [a, b] = [post(&mut flight, 1), post(&mut flight, 1)];
        commit_at(&mut flight, 2);
        let [c, d] = [post(&mut flight, 3), post(&mut flight, 3)];
        assert_eq!(flight.post(io, Nanos(3)), None);
        // A committed I/O completes, and a posted one is refused.
        assert_eq!(times(&mut flight, a), (1, 2));
        assert_eq!(times(&mut flight, c), (3, 3));
        assert_eq!(flight.posted().map(|io| io.slot).collect::<Vec<_>>(), [d]);
        let e = post(&mut flight, 4);
        commit_at(&mut flight, 5);
        assert_eq!(
            (times(&mut flight, b), times(&mut flight, d), times(&mut flight, e)),
            ((1, 2), (3, 5), (4, 5))
        );
        assert_eq!((flight.in_flight, flight.posted, flight.refused), (0, 0, 0));
        assert!(flight.get(b).is_none());
    }
}
