//! Completions that are alike are counted at once.

use super::flight::Times;
use crate::stats::Stats;
use units::{Nanos, Op};

/// The last completions: of one kind, posted, announced and found at the same instants, so that they have the same latencies.
/// What one look finds of one batch is such a run; the figures are those of counting each.
#[derive(Debug)]
pub(super) struct Alike {
    op: Op,
    times: Times,
    found: Nanos,
    ios: u64,
}

impl Alike {
    pub fn none() -> Alike {
        Alike { op: Op::Read, times: Times::IDLE, found: Nanos::ZERO, ios: 0 }
    }

    /// One more completion.
    #[inline]
    pub fn add(&mut self, op: Op, times: Times, found: Nanos, stats: &mut Stats) {
        if times == self.times && found == self.found && op == self.op {
            self.ios += 1;
        } else {
            self.count(stats);
            *self = Alike { op, times, found, ios: 1 };
        }
    }

    /// Adds those that have not been counted yet.
    #[inline(never)] // Once for each run, and large.
    pub fn count(&mut self, stats: &mut Stats) {
        let ios = std::mem::take(&mut self.ios);
        if ios > 0 {
            let stats = stats.op_mut(self.op);
            stats.clat.add_n(self.found - self.times.committed, ios);
            stats.lat.add_n(self.found - self.times.start, ios);
        }
    }
}
