//! `interrupt`: sleep on the notification, drain within a budget, arm.
//!
//! As a driver's interrupt handler does, until the queue is empty, but for the budget: a device that completes as fast as
//! the handler takes must not keep it for ever. The notification is never masked, so the device sends a message per
//! entry even while the thread drains.
//!
//! A look that used its budget up is followed by another only if it left an entry behind, which the look after its lock's
//! release says. Looking once more for nothing would be a free look that no interrupt handler has: on a device that
//! holds its messages back it finds what the next message was to tell.

use units::Nanos;

use super::work::{WEIGHT, work_is_known};
use crate::{Plan, Seen};

#[inline]
pub(super) fn next(seen: &Seen) -> Plan {
    if work_is_known(seen) {
        Plan::Look { budget: WEIGHT }
    } else if seen.in_flight == 0 {
        Plan::Rest
    } else {
        Plan::sleep(Nanos::MAX)
    }
}
