//! The I/Os in flight of a job thread: the slot of each, and the times for its latencies. An I/O is
//! *queued* when its command is in the submission queue, and *committed* when the doorbell was rung
//! for it.
//!
//! One array of slot numbers has both the queued slots, in order, and the free slots:
//!
//! ```text
//! free:  [ unused …    | queued …                          | free …      ]
//!          (committed) ↑ in_flight - (queued - refused)    ↑ in_flight
//! ```
//!
//! The numbers of committed slots are not kept: each completion has the number of its slot.

use super::Io;
use crate::stats::Stats;
use smart_default::SmartDefault;
use units::{Nanos, Op};

/// One I/O in flight, or a free slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub io: Io,
    /// When it was queued; [`Nanos::MAX`]: the slot is free.
    pub start: Nanos,
    /// When the doorbell was rung for it.
    pub committed: Nanos,
}

/// Further state of an I/O, which only `tracked` jobs need (`Generator::tracked`): those with a
/// rate, verification, flushes, pauses, logs and the like.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extra {
    /// The start that the rate intended; [`Nanos::MAX`]: the latency from it is not measured.
    pub intended: Nanos,
    /// Number of this write, or of the write whose data a verification read expects.
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
    /// I/Os in flight, including queued ones.
    pub in_flight: u32,
    /// I/Os queued since the last commit, including refused ones.
    pub queued: u32,
    /// How many of `queued` have completed already, because the device refused them.
    refused: u32,
    slots: Box<[Slot]>,
    /// One element per slot for `tracked` jobs, else empty.
    pub extras: Box<[Extra]>,
    /// Free and queued slots; see the module's documentation.
    free: Box<[u32]>,
}

impl InFlight {
    /// `depth` slots.
    pub fn new(depth: u32, extras: bool) -> InFlight {
        let slots = depth as usize;
        let io = Io { slot: 0, op: Op::Read, target: 0, offset: 0, len: 0 };
        InFlight {
            in_flight: 0,
            queued: 0,
            refused: 0,
            slots: vec![Slot { io, start: Nanos::MAX, committed: Nanos::MAX }; slots].into(),
            extras: vec![Extra::default(); if extras { slots } else { 0 }].into(),
            free: (0..depth).collect(),
        }
    }

    /// Queues an I/O at `now`. Returns it with its slot; `None`: no slot is free.
    #[inline]
    pub fn queue(&mut self, io: Io, now: Nanos) -> Option<Io> {
        let slot = *self.free.get(self.in_flight as usize)?;
        let io = Io { slot, ..io };
        *self.slots.get_mut(slot as usize)? = Slot { io, start: now, committed: now };
        self.in_flight += 1;
        self.queued += 1;
        Some(io)
    }

    /// The I/O in `slot`, unless it is free.
    #[inline]
    pub fn get(&self, slot: u32) -> Option<&Slot> {
        self.slots.get(slot as usize).filter(|slot| slot.start != Nanos::MAX)
    }

    /// The I/Os that are queued, and neither committed nor refused.
    #[inline]
    pub fn queued(&self) -> impl Iterator<Item = &Io> {
        let first = self.in_flight - (self.queued - self.refused);
        let queued = self.free.get(first as usize..self.in_flight as usize).unwrap_or_default();
        queued.iter().filter_map(|slot| Some(&self.slots.get(*slot as usize)?.io))
    }

    /// The doorbell was rung at `now` for all queued I/Os.
    #[inline]
    pub fn commit(&mut self, now: Nanos, stats: &mut Stats) {
        let queued = std::mem::take(&mut self.queued);
        // Without this check a batch of 0 would be counted as a doorbell.
        if queued == 0 {
            return;
        }
        stats.submit.add_batch(queued);
        // As in fio, all I/Os of the batch count with the depth at the doorbell.
        stats.depth.add_depth(self.in_flight, queued);
        let first = self.in_flight - (queued - std::mem::take(&mut self.refused));
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
        // Usually no I/O is queued and not committed, so that no number in `free` has to be kept.
        if self.queued > 0 {
            self.close_gap(slot, stats);
        }
        self.in_flight -= 1;
        if let Some(place) = self.free.get_mut(self.in_flight as usize) {
            *place = slot;
        }
    }

    /// Moves the queued slots down by one, so that `slot`, which has completed, can become free
    /// after them. `slot` may itself be a queued slot, if the device refused its I/O.
    #[cold]
    fn close_gap(&mut self, slot: u32, stats: &mut Stats) {
        let end = self.in_flight as usize;
        let first = end - (self.queued - self.refused) as usize;
        let Some(queued) = self.free.get(first..end) else { return };
        let at = queued.iter().position(|other| *other == slot);
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
/// as the completions of one batch that one poll reaps. They are added to the statistics together,
/// which gives the same result as adding them one by one.
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
    /// Counts one more completion.
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
        let queue = |flight: &mut InFlight, now| flight.queue(io, Nanos(now)).unwrap().slot;
        let [a, b] = [queue(&mut flight, 1), queue(&mut flight, 1)];
        commit_at(&mut flight, 2);
        let [c, d] = [queue(&mut flight, 3), queue(&mut flight, 3)];
        assert_eq!(flight.queue(io, Nanos(3)), None);
        // A committed I/O completes, and a queued one is refused.
        assert_eq!(times(&mut flight, a), (1, 2));
        assert_eq!(times(&mut flight, c), (3, 3));
        assert_eq!(flight.queued().map(|io| io.slot).collect::<Vec<_>>(), [d]);
        let e = queue(&mut flight, 4);
        commit_at(&mut flight, 5);
        assert_eq!(
            (times(&mut flight, b), times(&mut flight, d), times(&mut flight, e)),
            ((1, 2), (3, 5), (4, 5))
        );
        assert_eq!((flight.in_flight, flight.queued, flight.refused), (0, 0, 0));
        assert!(flight.get(b).is_none());
    }
}
