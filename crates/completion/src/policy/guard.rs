//! The seam where a policy of the program's own is asked: whatever it answers, its queue goes on, and no other queue is touched.
//!
//! Answers that harm nobody but their queue's own figures are bounded. A policy that would lose completions is dismissed, and the
//! queue goes on by the rule of `interrupt`, which is lawful under every mode's facts. [`CustomPolicy`] has the table.

use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use units::Nanos;

use super::interrupt;
use super::work::{WEIGHT, work_is_known};
use crate::registry::CustomId;
use crate::{Batch, Breach, Check, CustomPolicy, Done, Facts, Plan, Route, Seen, Tuning};

/// Longest wait with the notification masked: an entry that comes meanwhile is found after it.
const LONGEST: Nanos = Nanos::from_secs(1);

/// The wait in place of one that is over before it begins, so that such a policy is not asked in a loop. The timer of `suspend`.
const GONE_BY: Nanos = Nanos::from_micros(20);

/// So often in a row a policy may be overruled that leaves what is known to be there.
const PATIENCE: u32 = 16;

/// So many naps in a row may be cut short that were to last longer than [`LONGEST`]. Each holds the queue up for as long as that.
const ENDLESS: u32 = 8;

/// A policy of the program's own, and what it is kept to.
#[derive(Debug)]
pub(super) struct Guard {
    id: CustomId,
    facts: Facts,
    /// `None`: it could not be made.
    rule: Option<Box<dyn CustomPolicy>>,
    breach: OnceCell<Breach>,
    /// It has left what is known to be there so often in a row.
    declined: u32,
    /// So many of its waits in a row were naps without end.
    endless: u32,
}

impl Guard {
    pub(super) fn new(id: CustomId, tuning: &Tuning) -> Guard {
        let mut guard = Guard { id, facts: id.facts(), rule: None, breach: OnceCell::new(), declined: 0, endless: 0 };
        guard.rule = guard.caught(|| id.make(tuning)).flatten();
        guard
    }

    pub(super) fn id(&self) -> CustomId {
        self.id
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Why it is not asked any more.
    pub(super) fn breach(&self) -> Option<&Breach> {
        self.breach.get()
    }

    pub(super) fn inherit(&mut self, earlier: &Guard) {
        // What a breach has left of it is not to be trusted.
        let Some(earlier) = earlier.rule.as_ref().filter(|_| earlier.breach.get().is_none()) else { return };
        self.ask_mut(|rule| rule.inherit((**earlier).as_any()));
    }

    #[cold] // The built-in rules pass by it.
    #[inline(never)]
    pub(super) fn submitted(&mut self, now: Nanos, batch: &Batch) -> Check {
        match self.ask_mut(|rule| rule.submitted(now, batch)) {
            Some(Check::TryLook { budget }) if self.facts.checks => Check::TryLook { budget: budget.clamp(1, WEIGHT) },
            _ => Check::No,
        }
    }

    #[cold] // The built-in rules pass by it.
    #[inline(never)]
    pub(super) fn completed(&mut self, done: &[Done]) {
        self.ask_mut(|rule| rule.completed(done));
    }

    #[cold] // The built-in rules pass by it.
    #[inline(never)]
    pub(super) fn route(&self, now: Nanos, batch: &Batch) -> Route {
        self.ask(|rule| rule.route(now, batch)).unwrap_or(Route::Notify)
    }

    #[cold] // The built-in rules pass by it.
    #[inline(never)]
    pub(super) fn holds(&self) -> u16 {
        if self.facts.holds { self.ask(|rule| rule.holds()).unwrap_or(0) } else { 0 }
    }

    pub(super) fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        let plan = self.ask_mut(|rule| rule.next(now, seen));
        plan.and_then(|plan| self.lawful(now, seen, plan)).unwrap_or_else(|| interrupt::next(seen))
    }

    /// The nearest answer that the contract allows; `None`: there is none, and the policy is dismissed.
    fn lawful(&mut self, now: Nanos, seen: &Seen, plan: Plan) -> Option<Plan> {
        let looks = matches!(plan, Plan::Look { .. });
        if work_is_known(seen) && !looks {
            // A sleep would be one through a message that has come: what is there is taken all the same.
            self.declined += 1;
            let overruled = (self.declined < PATIENCE).then_some(Plan::Look { budget: WEIGHT });
            return overruled.or_else(|| self.dismiss(Breach::NeverLooks));
        }
        if looks {
            // What it answers where nothing is known says nothing of whether it ever looks.
            self.declined = 0;
        }
        match plan {
            Plan::Nap { until } if seen.in_flight > 0 && until > now + LONGEST => {
                self.endless += 1;
                if self.endless > ENDLESS {
                    return self.dismiss(Breach::NapsForEver);
                }
            }
            Plan::Nap { .. } | Plan::Spin { .. } | Plan::Sleep { .. } => self.endless = 0,
            Plan::Look { .. } | Plan::Rest => {}
        }
        bounded(now, seen, plan).or_else(|| self.dismiss(Breach::Rests))
    }

    fn ask_mut<T>(&mut self, question: impl FnOnce(&mut dyn CustomPolicy) -> T) -> Option<T> {
        if self.breach.get().is_some() {
            return None;
        }
        let mut rule = self.rule.take()?;
        let answer = self.caught(|| question(&mut *rule));
        self.rule = Some(rule);
        answer
    }

    fn ask<T>(&self, question: impl FnOnce(&dyn CustomPolicy) -> T) -> Option<T> {
        let rule = self.rule.as_ref().filter(|_| self.breach.get().is_none())?;
        self.caught(|| question(&**rule))
    }

    /// A panic ends here. What it leaves of the policy is not asked again, so that nobody sees it half-changed.
    fn caught<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(answer) => Some(answer),
            Err(payload) => self.dismiss(Breach::Panicked(message(payload))),
        }
    }

    #[cold]
    fn dismiss<T>(&self, why: Breach) -> Option<T> {
        if self.breach.get().is_none() {
            self.id.dismissed(&why);
            _ = self.breach.set(why);
        }
        None
    }
}

/// The nearest answer that finds what is in flight; `None`: it rests although there is some.
fn bounded(now: Nanos, seen: &Seen, plan: Plan) -> Option<Plan> {
    let reason = work_is_known(seen) || seen.budget_used_up;
    let later = |until: Nanos| if until <= now { now + GONE_BY } else { until };
    let wait = |until: Nanos| later(until).min(now + LONGEST);
    Some(match plan {
        // Without a reason it is harmless, but where it keeps a thread from going.
        Plan::Look { .. } if !reason && (seen.in_flight == 0 || seen.leaving) => interrupt::next(seen),
        Plan::Look { budget } => Plan::Look { budget: budget.clamp(1, WEIGHT) },
        // There is nothing that could end a wait.
        _ if seen.in_flight == 0 => Plan::Rest,
        Plan::Rest => return None,
        Plan::Spin { .. } if seen.leaving => Plan::sleep(Nanos::MAX),
        Plan::Spin { until } => Plan::Spin { until: wait(until) },
        Plan::Nap { until } => Plan::Nap { until: wait(until) },
        Plan::Sleep { until, at_least } => Plan::Sleep { until: later(until), at_least: at_least.clamp(1, seen.in_flight) },
    })
}

/// What a panic said.
fn message(payload: Box<dyn std::any::Any + Send>) -> String {
    let said = payload.downcast_ref::<&str>().map(ToString::to_string).or_else(|| payload.downcast_ref::<String>().cloned());
    // Dropping it may panic again, and this is no place for it: leaked, once for each dismissal.
    std::mem::forget(payload);
    said.unwrap_or_else(|| "without a message".to_owned())
}

impl Clone for Guard {
    fn clone(&self) -> Guard {
        let rule = self.ask(|rule| rule.cloned());
        Guard { id: self.id, facts: self.facts, rule, breach: self.breach.clone(), declined: self.declined, endless: self.endless }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let rule = self.rule.take();
        _ = self.caught(|| drop(rule));
    }
}

#[cfg(test)]
mod tests;
