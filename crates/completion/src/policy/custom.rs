//! A queue's policy of the program's own, with its answers bounded.

use units::Nanos;

use super::{interrupt, work_is_known};
use crate::custom::{CustomPolicy, Facts};
use crate::{Batch, Check, Plan, Seen, WEIGHT};

/// Longest wait with the notification masked: an entry that is posted during it is found after it.
const LONGEST: Nanos = Nanos::from_secs(1);

/// The wait in place of one that is over before it begins, so that such a policy is not asked in a loop. The timer of `suspend`.
const SHORTEST: Nanos = Nanos::from_micros(20);

/// A queue's policy of the program's own. Answers outside its contract become the nearest inside, so that none loses a completion.
#[derive(Debug)]
pub(crate) struct Custom {
    pub(crate) facts: Facts,
    pub(crate) rule: Box<dyn CustomPolicy>,
}

impl Custom {
    pub(crate) fn submitted(&mut self, now: Nanos, batch: &Batch) -> Check {
        match self.rule.submitted(now, batch) {
            Check::TryLook { budget } if self.facts.checks => Check::TryLook { budget: budget.clamp(1, WEIGHT) },
            _ => Check::No,
        }
    }

    pub(crate) fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        let later = |until: Nanos| if until <= now { now + SHORTEST } else { until };
        let wait = |until: Nanos| later(until).min(now + LONGEST);
        match self.rule.next(now, seen) {
            // A poll without a reason is harmless, except where it keeps a thread from leaving.
            Plan::Look { .. } if !work_is_known(seen) && !seen.budget_used_up && (seen.in_flight == 0 || seen.leaving) => interrupt(seen),
            Plan::Look { budget } => Plan::Look { budget: budget.clamp(1, WEIGHT) },
            // A sleep would be one through a message that has come.
            _ if work_is_known(seen) => Plan::Look { budget: WEIGHT },
            // Nothing could end a wait.
            _ if seen.in_flight == 0 => Plan::Rest,
            Plan::Rest => interrupt(seen),
            Plan::Spin { .. } if seen.leaving => Plan::sleep(Nanos::MAX),
            Plan::Spin { until } => Plan::Spin { until: wait(until) },
            Plan::Nap { until } => Plan::Nap { until: wait(until) },
            Plan::Sleep { until, at_least } => Plan::Sleep { until: later(until), at_least: at_least.clamp(1, seen.in_flight) },
        }
    }
}
