//! I/Os that wait for others: `serialize_overlap`, and what is verified.
//!
//! Commands in flight have no order (NVM Command Set 1.1, 2.1.2; the block layer sorts and merges them too). Of two writes in flight
//! that have a byte in common either may come last, or each in part. A job that verifies, or has `serialize_overlap=1`, therefore
//! issues an I/O only when no other one in flight touches its blocks, unless both read. As in fio (`in_flight_overlap` in its io_u.c)
//! each job thread looks at its own I/Os.

use super::offsets::Place;
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

    /// Whether an I/O in flight has a byte in common with `place`, of which `ranges` are the parts, if it has several.
    pub fn touch(&self, place: &Place, ranges: &[(u64, u32)]) -> bool {
        parts(place, ranges).any(|(start, end)| {
            let meets = |other: &Range| other.target == place.target && other.start < end && start < other.end;
            self.flying.iter().any(|other| meets(other) && !(other.reads && place.op == Op::Read))
        })
    }

    /// It is in flight from now on.
    pub fn issued(&mut self, slot: u32, place: &Place, ranges: &[(u64, u32)]) {
        let (target, reads) = (place.target, place.op == Op::Read);
        self.flying.extend(parts(place, ranges).map(|(start, end)| Range { slot, target, start, end, reads }));
    }

    /// What was issued in this slot has completed.
    pub fn completed(&mut self, slot: u32) {
        self.flying.retain(|range| range.slot != slot);
    }
}

/// First byte, and one past the last, of each part.
fn parts(place: &Place, ranges: &[(u64, u32)]) -> impl Iterator<Item = (u64, u64)> {
    let whole = ranges.is_empty().then_some((place.offset, place.len));
    ranges.iter().copied().chain(whole).map(|(offset, len)| (offset, offset + u64::from(len)))
}
