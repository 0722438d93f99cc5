//! What holds a job's I/Os back beside rates, what it notes down of them, and what each is made of.

use super::*;
use trail::ListLine;

impl Generator {
    /// Until when the thread is meant to compute while [`Next::Wait`] has it wait (`thinktime_spin`).
    pub fn computes_until(&self) -> Option<Nanos> {
        self.pauses.as_ref()?.computes_until()
    }

    /// What the job noted down of its I/Os, if it does.
    pub fn trail(&self) -> Option<&Trail> {
        self.noted.as_deref()
    }

    /// A Flush of `target`.
    pub(super) fn issue_flush(&mut self, target: u16, now: Nanos) -> Next {
        // One slot at least is free: for what was granted, or because nothing is in flight.
        let Some(slot) = self.flight.occupy() else { return Next::Wait { until: now } };
        self.flight.set_extra(slot, Extra { intended: Nanos::MAX, ..Extra::default() });
        let flush = Place { op: Op::Flush, target, offset: 0, len: 0 };
        self.note_issued(flush, now);
        io(slot, flush)
    }

    /// What to do while I/Os are held back.
    #[cold]
    pub(super) fn held(&mut self, hold: Hold) -> Next {
        if self.flight.queued > 0 {
            return Next::Commit;
        }
        let in_flight = self.flight.in_flight;
        match hold {
            Hold::Until(until) => Next::Wait { until: until.min(self.event) },
            Hold::Reap => Next::Reap { min: 1, max: self.complete_max.max(1) },
            Hold::Drain | Hold::Go(_) => Next::Reap { min: in_flight.max(1), max: self.complete_max.max(in_flight) },
        }
    }

    /// When the I/O that the list says next is due.
    pub(super) fn listed_due(&self) -> Option<Nanos> {
        self.stream.listed_at().map(|at| self.clock.began + at)
    }

    pub(super) fn note_issued(&mut self, place: Place, now: Nanos) {
        if let Some(trail) = &mut self.noted {
            let Place { op, target, offset, len } = place;
            trail.issued(ListLine { at: now, op, target, offset, len });
        }
    }

    pub(super) fn note_completed(&mut self, io: &Io, times: Times, now: Nanos) {
        if let Some(trail) = &mut self.noted {
            trail.completed(io.op, io.len, [times.start, times.committed, now]);
        }
    }
}
