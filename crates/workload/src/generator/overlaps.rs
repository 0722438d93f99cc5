//! I/Os that wait for others: `serialize_overlap`, and what is verified.
//!
//! Commands in flight have no order (NVM Command Set 1.1, 2.1.2; the block layer sorts and merges them too). Of two writes in flight
//! that have a byte in common either may come last, or each in part. A job that verifies, or has `serialize_overlap=1`, therefore
//! issues an I/O only when no other one in flight touches its blocks, unless both read. As in fio (`in_flight_overlap` in its io_u.c)
//! each job thread looks at its own I/Os.

use super::io::Place;
use crate::job::Job;
use units::Op;

/// The ranges that are in flight, by slot.
#[derive(Debug)]
pub(super) struct Overlaps {
    flying: Vec<Range>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    slot: u32,
    target: u16,
    start: u64,
    end: u64,
    reads: bool,
}

impl Overlaps {
    /// Those of `job`; `None`: its I/Os wait for none.
    pub fn new(job: &Job) -> Option<Overlaps> {
        let changes = job.pattern.changes() && (job.serialize_overlap || job.verify.is_some());
        changes.then(|| Overlaps { flying: Vec::with_capacity(job.iodepth.min(1_024) as usize) })
    }

    /// Whether an I/O in flight has a byte in common with `place`.
    pub fn touch(&self, place: &Place) -> bool {
        let (start, end) = (place.offset, place.offset + u64::from(place.len));
        let meets = |other: &Range| other.target == place.target && other.start < end && start < other.end;
        self.flying.iter().any(|other| meets(other) && !(other.reads && place.op == Op::Read))
    }

    /// It is in flight from now on.
    pub fn issued(&mut self, slot: u32, place: &Place) {
        let (start, end) = (place.offset, place.offset + u64::from(place.len));
        self.flying.push(Range { slot, target: place.target, start, end, reads: place.op == Op::Read });
    }

    /// What was issued in this slot has completed.
    pub fn completed(&mut self, slot: u32) {
        self.flying.retain(|range| range.slot != slot);
    }
}
