//! `suspend`: stay masked while the consumer keeps finding entries.
//!
//! NAPI's `napi_defer_hard_irqs` and `gro_flush_timeout` (Linux 5.8), and the suspension of interrupts by a busy consumer
//! that was built on them (Linux 6.13): a look that finds something keeps the notification masked, and so does one in
//! vain, for a timer's length, until several in a row have been in vain. Then it is armed.

use units::Nanos;

use super::work::{WEIGHT, work_is_known};
use crate::{Plan, Seen};

/// From a look in vain to the next one. The value of the patch that introduced it.
const TIMEOUT: Nanos = Nanos::from_micros(20);

/// Looks in vain, one after the other, after which the notification is armed. From the same place.
const DEFER: u32 = 10;

#[derive(Clone, Debug, Default)]
pub(super) struct Suspend {
    in_vain: u32,
}

impl Suspend {
    #[inline]
    pub(super) fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        if seen.found > 0 {
            self.in_vain = 0;
        }
        if work_is_known(seen) || seen.budget_used_up && seen.in_flight > 0 {
            return Plan::Look { budget: WEIGHT };
        }
        if seen.in_flight == 0 {
            return Plan::Rest;
        }
        self.in_vain = self.in_vain.saturating_add(1);
        if seen.leaving || self.in_vain > DEFER {
            // Stays so until a look finds something: a queue that has gone quiet is not looked at in vain again.
            return Plan::sleep(Nanos::MAX);
        }
        Plan::Nap { until: now + TIMEOUT }
    }
}
