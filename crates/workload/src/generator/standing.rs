//! Which writes still stand whole. Where offsets are finer than headers are apart, a later write overwrites part of an earlier one, and
//! with it the proof of the rest. fio forgets the earlier one (`log_io_piece` in its iolog.c), and so does Reap.

use std::collections::BTreeMap;

use super::io::Place;
use crate::job::Job;
use units::Op;

/// The writes of a pass of which no byte was written again, by target and first byte: the end, and the write's number.
#[derive(Debug, Default)]
pub(super) struct Standing {
    writes: BTreeMap<(u16, u64), (u64, u64)>,
}

impl Standing {
    /// For a job with a header in each `interval` bytes; `None` where all its writes begin where headers do, so that none is overwritten
    /// in part. Then nothing has to be remembered.
    pub fn of(job: &Job, interval: u64) -> Option<Standing> {
        let (least, align) = (job.block.write.min, job.align.write);
        let aligned = if align > 0 { align } else { least };
        let steps = [aligned, if job.pattern.random { 0 } else { job.pattern.step.unsigned_abs() }];
        let whole = steps.into_iter().all(|bytes| bytes.is_multiple_of(interval.max(1)));
        (!whole).then(Standing::default)
    }

    pub fn clear(&mut self) {
        self.writes.clear();
    }

    /// An I/O that is no read goes to `place`: what it touches no longer stands. If it is a write, it is number `sequence`, and stands.
    pub fn changes(&mut self, place: &Place, sequence: u64) {
        let (target, start, end) = (place.target, place.offset, place.offset + u64::from(place.len));
        // Those that stand have no byte in common, so only the last one before can reach in here.
        let before = self.writes.range((target, 0)..(target, start)).next_back();
        let reaches = before.filter(|(_, (end, _))| *end > start).map(|(key, _)| *key);
        let within = self.writes.range((target, start)..(target, end)).map(|(key, _)| *key);
        for key in reaches.into_iter().chain(within).collect::<Vec<_>>() {
            self.writes.remove(&key);
        }
        if place.op == Op::Write {
            self.writes.insert((target, start), (end, sequence));
        }
    }

    /// Whether write number `sequence` to `place` is still there.
    pub fn has(&self, place: &Place, sequence: u64) -> bool {
        self.writes.get(&(place.target, place.offset)).is_some_and(|(_, number)| *number == sequence)
    }
}
