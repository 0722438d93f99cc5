//! `adaptive`: ski rental in CPU time.

use units::Nanos;

use super::{WEIGHT, work_is_known};
use crate::{Batch, Done, Plan, Seen, Tuning};

#[derive(Clone, Debug)]
pub(super) struct Adaptive {
    tuning: Tuning,
    /// When the wait under way began.
    since: Option<Nanos>,
}

impl Adaptive {
    pub(super) fn new(tuning: &Tuning) -> Adaptive {
        Adaptive { tuning: *tuning, since: None }
    }

    pub(super) fn submitted(&mut self, _: Nanos, _: &Batch) {}

    pub(super) fn completed(&mut self, _: &[Done]) {}

    pub(super) fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        if work_is_known(seen) || seen.budget_used_up && seen.in_flight > 0 {
            self.since = None;
            return Plan::Look { budget: WEIGHT };
        }
        if seen.in_flight == 0 {
            return Plan::Rest;
        }
        let until = *self.since.get_or_insert(now) + self.tuning.machine.cpu;
        if seen.leaving || seen.cpu_wanted || now >= until { Plan::Sleep { until: Nanos::MAX } } else { Plan::Spin { until } }
    }
}
