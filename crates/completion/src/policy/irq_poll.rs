//! `irq-poll`: the contract of Linux's `lib/irq_poll.c`, after blk-iopoll of 2009.
//!
//! The notification masks the vector and schedules a poller, which takes at most its weight. A poller that used its
//! whole weight stays scheduled, at the end of the list; one that did not is complete: the executor arms the vector and
//! looks once more. Below saturation a poller finds one entry and is complete at once, so that each command pays for
//! masking and arming on top of its interrupt; that cost is the point of comparing it.

use units::Nanos;

use super::work::{WEIGHT, work_is_known};
use crate::{Plan, Seen};

#[inline]
pub(super) fn next(seen: &Seen) -> Plan {
    // Scheduled: by the notification, by an entry met after arming, or still, because the weight was used.
    if work_is_known(seen) || seen.budget_used_up {
        Plan::Look { budget: WEIGHT }
    } else if seen.in_flight == 0 {
        Plan::Rest
    } else {
        Plan::sleep(Nanos::MAX)
    }
}
