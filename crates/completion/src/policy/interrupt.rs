//! `interrupt`: sleep on the notification, drain within a budget, arm.
//!
//! As a driver's interrupt handler does, but for the budget: a device that completes as fast as the handler takes must
//! not keep it for ever. The notification is never masked, so the device sends a message per entry even while the
//! thread drains.

use units::Nanos;

use super::{WEIGHT, work_is_known};
use crate::{Plan, Seen};

#[inline]
pub(super) fn next(seen: &Seen) -> Plan {
    if work_is_known(seen) || seen.budget_used_up && seen.in_flight > 0 {
        Plan::Look { budget: WEIGHT }
    } else if seen.in_flight == 0 {
        Plan::Rest
    } else {
        Plan::Sleep { until: Nanos::MAX }
    }
}
