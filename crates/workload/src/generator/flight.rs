//! What is in flight: which slots are taken by which I/Os since when, and which of these are posted but not announced.

use super::Io;
use crate::stats::Stats;
use smart_default::SmartDefault;
use units::{Nanos, Op};

/// One I/O in flight, or what was one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub io: Io,
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
    /// I/Os that were posted since the last ones were announced, and those of them that are over already: they were refused.
    pub queued: u32,
    refused: u32,
    slots: Box<[Slot]>,
    /// As many as `slots`, or none: what a job with a rate or with verification keeps of each.
    pub extras: Box<[Extra]>,
    /// From index `in_flight` on, the slots that are not taken; right before that, those of I/Os that are not announced.
    free: Box<[u32]>,
}

impl Flight {
    /// `depth` slots.
    pub fn new(depth: u32, extras: bool) -> Flight {
        let slots = depth as usize;
        let io = Io { slot: 0, op: Op::Read, target: 0, offset: 0, len: 0 };
        Flight {
            in_flight: 0,
            queued: 0,
            refused: 0,
            slots: vec![Slot { io, start: Nanos::MAX, committed: Nanos::MAX }; slots].into(),
            extras: vec![Extra::default(); if extras { slots } else { 0 }].into(),
            free: (0..depth).collect(),
        }
    }

    /// Posts an I/O at `now`: with the slot that it has from now on. `None` if all are taken.
    #[inline]
    pub fn post(&mut self, io: Io, now: Nanos) -> Option<Io> {
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

    /// The I/Os that are posted and not announced.
    #[inline]
    pub fn queued(&self) -> impl Iterator<Item = &Io> {
        let first = self.in_flight - (self.queued - self.refused);
        let queued = self.free.get(first as usize..self.in_flight as usize).unwrap_or_default();
        queued.iter().filter_map(|slot| Some(&self.slots.get(*slot as usize)?.io))
    }

    /// What was posted is announced at `now`.
    #[inline]
    pub fn commit(&mut self, now: Nanos, stats: &mut Stats) {
        let queued = std::mem::take(&mut self.queued);
        if queued == 0 {
            return;
        }
        stats.submit.add_batch(queued);
        stats.depth.add_depth(self.in_flight, queued);
        let first = self.in_flight - (queued - std::mem::take(&mut self.refused));
        for slot in self.free.get(first as usize..self.in_flight as usize).unwrap_or_default() {
            if let Some(Slot { io, committed, .. }) = self.slots.get_mut(*slot as usize) {
                stats.op_mut(io.op).issued += 1;
                *committed = now;
            }
        }
    }

    /// The I/O in `slot`, which was taken, is over.
    #[inline]
    pub fn release(&mut self, slot: u32, stats: &mut Stats) {
        if let Some(place) = self.slots.get_mut(slot as usize) {
            place.start = Nanos::MAX;
        }
        if self.queued > 0 {
            self.close_gap(slot, stats);
        }
        self.in_flight -= 1;
        if let Some(place) = self.free.get_mut(self.in_flight as usize) {
            *place = slot;
        }
    }

    /// Moves the slots that are not announced down by one, for `slot`, which is over, to follow them. It may be one of them, which was refused.
    #[cold]
    fn close_gap(&mut self, slot: u32, stats: &mut Stats) {
        let end = self.in_flight as usize;
        let first = end - (self.queued - self.refused) as usize;
        let Some(queued) = self.free.get(first..end) else { return };
        let at = queued.iter().position(|other| *other == slot);
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

/// The last completions: of one kind, posted, announced and found at the same instants, so that they have the same latencies.
/// What one look finds of one batch is such a run; the figures are those of counting each.
#[derive(Debug, SmartDefault)]
pub(super) struct Alike {
    #[default(Op::Read)]
    op: Op,
    start: Nanos,
    committed: Nanos,
    found: Nanos,
    ios: u64,
    bytes: u64,
}

impl Alike {
    /// One more completion.
    #[inline]
    pub fn add(&mut self, &Slot { ref io, start, committed }: &Slot, found: Nanos, stats: &mut Stats) {
        if start != self.start || committed != self.committed || found != self.found || io.op != self.op {
            self.count(stats);
            *self = Alike { op: io.op, start, committed, found, ios: 0, bytes: 0 };
        }
        self.ios += 1;
        self.bytes += u64::from(io.len);
    }

    /// Adds those that have not been counted yet.
    #[inline]
    pub fn count(&mut self, stats: &mut Stats) {
        if self.ios > 0 {
            self.count_run(stats);
        }
    }

    #[inline(never)] // Once for each run, and large.
    fn count_run(&mut self, stats: &mut Stats) {
        let ios = std::mem::take(&mut self.ios);
        let (measure, stats) = (stats.measure, stats.op_mut(self.op));
        stats.ios += ios;
        stats.bytes += std::mem::take(&mut self.bytes);
        if measure.slat {
            stats.slat.add(self.committed - self.start, ios);
        }
        if measure.clat {
            stats.clat.add(self.found - self.committed, ios);
        }
        if measure.lat {
            stats.lat.add(self.found - self.start, ios);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit_at(flight: &mut Flight, now: u64) {
        flight.commit(Nanos(now), &mut Stats::default());
    }

    fn times(flight: &mut Flight, slot: u32) -> (u64, u64) {
        let &Slot { start, committed, .. } = flight.get(slot).unwrap();
        flight.release(slot, &mut Stats::default());
        (start.0, committed.0)
    }

    #[test]
    fn only_queued_slots_are_committed() {
        let io = Io { slot: 0, op: Op::Read, target: 0, offset: 0, len: 512 };
        let mut flight = Flight::new(4, false);
        let post = |flight: &mut Flight, now| flight.post(io, Nanos(now)).unwrap().slot;
        let [a, b] = [post(&mut flight, 1), post(&mut flight, 1)];
        commit_at(&mut flight, 2);
        let [c, d] = [post(&mut flight, 3), post(&mut flight, 3)];
        assert_eq!(flight.post(io, Nanos(3)), None);
        // One that is announced ends, and one that is not is refused.
        assert_eq!(times(&mut flight, a), (1, 2));
        assert_eq!(times(&mut flight, c), (3, 3));
        assert_eq!(flight.queued().map(|io| io.slot).collect::<Vec<_>>(), [d]);
        let e = post(&mut flight, 4);
        commit_at(&mut flight, 5);
        assert_eq!((times(&mut flight, b), times(&mut flight, d), times(&mut flight, e)), ((1, 2), (3, 5), (4, 5)));
        assert_eq!((flight.in_flight, flight.queued, flight.refused), (0, 0, 0));
        assert!(flight.get(b).is_none());
    }
}
