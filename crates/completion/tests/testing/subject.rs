//! What the laws are about: a policy of a program's own as its type has it, and one as its queue has it.

use units::Nanos;

use crate::{Batch, CustomPolicy, Done, Plan, Policy, Seen};

/// Longest wait with the notification masked: what [`CustomPolicy`]'s contract says.
pub(super) const LONGEST: Nanos = Nanos::from_secs(1);

/// What the laws are about.
pub(crate) trait Subject {
    fn submitted(&mut self, now: Nanos, batch: &Batch) -> bool;
    fn completed(&mut self, done: &[Done]);
    fn next(&mut self, now: Nanos, seen: &Seen) -> Plan;
    /// Takes over what an earlier one has learnt.
    fn inherit(&mut self, earlier: Self);
}

impl Subject for Box<dyn CustomPolicy> {
    fn submitted(&mut self, now: Nanos, batch: &Batch) -> bool {
        self.route(now, batch);
        self.holds();
        (**self).submitted(now, batch)
    }
    fn completed(&mut self, done: &[Done]) {
        (**self).completed(done);
    }
    fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        (**self).next(now, seen)
    }
    fn inherit(&mut self, _: Self) {}
}

impl Subject for Policy {
    fn submitted(&mut self, now: Nanos, batch: &Batch) -> bool {
        self.route(now, batch);
        self.holds();
        Policy::submitted(self, now, batch)
    }
    fn completed(&mut self, done: &[Done]) {
        Policy::completed(self, done);
    }
    fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        Policy::next(self, now, seen)
    }
    fn inherit(&mut self, earlier: Self) {
        Policy::inherit(self, earlier);
    }
}
