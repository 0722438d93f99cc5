//! `poll`: spin while anything is in flight.
//!
//! It never sleeps on the notification while the thread waits for commands. When another thread wants the CPU it naps
//! for [`YIELD`], as the kernel's polled I/O gives way when a reschedule is due: spinning on would only delay the thread that
//! is to run next, perhaps the thread that submits. When the thread leaves to compute, the queue is left armed.

use units::Nanos;

use super::work::{WEIGHT, work_is_known};
use crate::{Plan, Seen};

/// How long to spin before the executor asks again, so that leaving and a wanted CPU are noticed.
pub(super) const SLICE: Nanos = Nanos::from_micros(100);

/// How long to nap when another thread wants the CPU.
pub(super) const YIELD: Nanos = Nanos::from_micros(50);

#[inline]
pub(super) fn next(now: Nanos, seen: &Seen) -> Plan {
    if work_is_known(seen) || seen.budget_used_up && seen.in_flight > 0 {
        Plan::Look { budget: WEIGHT }
    } else if seen.in_flight == 0 {
        Plan::Rest
    } else {
        spin(now, seen)
    }
}

/// Waits awake, unless the thread leaves or its CPU is wanted.
#[inline]
pub(super) fn spin(now: Nanos, seen: &Seen) -> Plan {
    if seen.leaving {
        Plan::sleep(Nanos::MAX)
    } else if seen.cpu_wanted {
        Plan::Nap { until: now + YIELD }
    } else {
        Plan::Spin { until: now + SLICE }
    }
}
