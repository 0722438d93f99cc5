//! The built-in policies. A [`Mode`] names a [`Preset`] and its parameters; the preset says which
//! rule plans the polls (here), which thread polls, and how the device sends messages (elsewhere).
//! [`ModePolicy`] dispatches to the rules by an enum rather than a trait object, because
//! [`Policy::next`] runs once per batch on the I/O path.

mod adaptive;
mod hybrid;

use crate::{
    AdaptiveState, Batch, Done, Facts, Mode, Nanos, Plan, Policy, Preset, Route, Seen, SleepCosts,
    WEIGHT,
};
use adaptive::Adaptive;
use hybrid::{Estimate, Hybrid};

/// Longest spin before [`Policy::next`] is called again, so that a thread that wants to leave the
/// wait, or another one that is runnable on this CPU, is noticed.
const SLICE: Nanos = Nanos::from_micros(100);

/// How long `poll` and the hybrid modes nap when another thread is runnable on the CPU.
const YIELD: Nanos = Nanos::from_micros(50);

/// `suspend`: time from an empty poll to the next one (NAPI's `gro_flush_timeout`), and the number
/// of consecutive empty polls after which the notification is armed (`napi_defer_hard_irqs`). The
/// values are those of the cover letter of Linux 6.13's IRQ suspension.
const SUSPEND_TIMEOUT: Nanos = Nanos::from_micros(20);
const SUSPEND_DEFER: u32 = 10;

/// The policy of a mode, for one queue.
#[derive(Debug)]
pub struct ModePolicy {
    mode: Mode,
    rule: Rule,
    facts: Facts,
    /// `Some(budget)`: while work is known, the rule's plan is [`Plan::Poll`] with this budget, so
    /// [`crate::Waiter::cached`] does not call the rule. `adaptive` clears it during a wait.
    pub(crate) poll: Option<u32>,
    /// What `adaptive` has measured, kept while another mode is in force.
    learnt: Option<Box<Adaptive>>,
}

/// How a queue is polled. Presets that differ only in which thread polls, in the delivery of
/// messages or in coalescing share a rule.
#[derive(Debug)]
enum Rule {
    Interrupt,
    IrqPoll { weight: u32 },
    Hybrid(Box<Hybrid>),
    Suspend { empty_polls: u32 },
    Poll,
    Adaptive(Box<Adaptive>),
    Custom(Box<dyn Policy>),
}

impl ModePolicy {
    /// A new policy of a mode, which knows of no command in flight yet. What `adaptive` has
    /// measured under an `earlier` policy of the same queue is kept, through modes that do not use
    /// it.
    pub fn new(mode: Mode, machine: &SleepCosts, earlier: Option<ModePolicy>) -> ModePolicy {
        let mut rule = match mode.preset() {
            Preset::IrqPoll(limits) => Rule::IrqPoll { weight: limits.weight.min(limits.budget) },
            Preset::HybridMean => Rule::Hybrid(Box::new(Hybrid::new(Estimate::Mean))),
            Preset::HybridMin => Rule::Hybrid(Box::new(Hybrid::new(Estimate::Min))),
            Preset::Suspend => Rule::Suspend { empty_polls: 0 },
            Preset::Poll => Rule::Poll,
            Preset::Adaptive(n) => Rule::Adaptive(Box::new(Adaptive::new(n, machine))),
            Preset::Custom(id) => Rule::Custom((id.entry().make)(machine)),
            // The others differ in the thread that polls, interrupt delivery and coalescing.
            _ => Rule::Interrupt,
        };
        let mut learnt = earlier.and_then(|earlier| match earlier.rule {
            Rule::Adaptive(rule) => Some(rule),
            _ => earlier.learnt,
        });
        if let Rule::Adaptive(rule) = &mut rule
            && let Some(learnt) = learnt.take()
        {
            rule.inherit(&learnt);
        }
        let poll = match rule {
            Rule::Interrupt | Rule::Poll | Rule::Adaptive(_) => Some(WEIGHT),
            Rule::IrqPoll { weight } => Some(weight),
            Rule::Hybrid(_) | Rule::Suspend { .. } | Rule::Custom(_) => None,
        };
        ModePolicy { mode, rule, facts: mode.facts(), poll, learnt }
    }

    /// The mode in force.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The constant properties of the mode.
    #[inline]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Call after each commit, with the batch. Returns whether `adaptive` has changed its action, for
    /// the executor's log.
    #[inline]
    pub fn submitted(&mut self, now: Nanos, batch: &Batch) -> bool {
        match &mut self.rule {
            Rule::Hybrid(rule) => rule.submitted(now, batch),
            Rule::Adaptive(rule) => return rule.submitted(now, batch),
            Rule::Custom(rule) => rule.submitted(now, batch),
            _ => {}
        }
        false
    }

    /// The action of `adaptive`, its reason, the CPU time and latency measured for each action, and the counts of
    /// its decisions; `None` in other modes.
    pub fn state(&self) -> Option<&AdaptiveState> {
        match &self.rule {
            Rule::Adaptive(rule) => Some(&rule.state),
            _ => None,
        }
    }
}

impl Policy for ModePolicy {
    #[inline]
    fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        match &mut self.rule {
            Rule::Interrupt => interrupt(WEIGHT, seen),
            &mut Rule::IrqPoll { weight } => irq_poll(weight, seen),
            Rule::Hybrid(rule) => rule.next(now, seen),
            Rule::Suspend { empty_polls } => suspend(empty_polls, now, seen),
            Rule::Poll => poll(now, seen),
            Rule::Adaptive(rule) => {
                let plan = rule.next(now, seen);
                // During a wait `adaptive` measures time in `next`, which the cached budget would
                // bypass.
                self.poll = rule.is_between_waits().then_some(WEIGHT);
                plan
            }
            Rule::Custom(rule) => rule.next(now, seen),
        }
    }

    #[inline]
    fn submitted(&mut self, now: Nanos, batch: &Batch) {
        ModePolicy::submitted(self, now, batch);
    }

    #[inline]
    fn completed(&mut self, done: &[Done]) {
        match &mut self.rule {
            Rule::Hybrid(rule) => rule.completed(done),
            Rule::Adaptive(rule) => rule.completed(done),
            Rule::Custom(rule) => rule.completed(done),
            _ => {}
        }
    }

    /// The poll queue for rules that poll anyway: its completions cost no interrupt.
    #[inline]
    fn route(&self, now: Nanos, batch: &Batch) -> Route {
        match &self.rule {
            Rule::Poll | Rule::Hybrid(_) => Route::Poll,
            Rule::Adaptive(rule) => rule.route(),
            Rule::Custom(rule) => rule.route(now, batch),
            Rule::Interrupt | Rule::IrqPoll { .. } | Rule::Suspend { .. } => Route::Notify,
        }
    }
}

/// The plans that do not depend on the rule: poll if work is known or the last poll used up its
/// budget; [`Plan::Idle`] if nothing is in flight.
#[inline]
fn at_once(seen: &Seen) -> Option<Plan> {
    if work_is_known(seen) || seen.budget_used_up && seen.in_flight > 0 {
        Some(Plan::Poll { budget: WEIGHT })
    } else {
        (seen.in_flight == 0).then_some(Plan::Idle)
    }
}

/// Whether to poll without waiting: an entry is known to be posted, or the thread was woken. False
/// while another thread holds the CQ lock: that thread polls, and checks again after it has
/// unlocked.
#[inline]
pub(crate) fn work_is_known(seen: &Seen) -> bool {
    (seen.pending | seen.woke.is_some()) & !seen.lock_busy
}

/// `interrupt`: sleep until an interrupt, reap within a budget, repeat.
///
/// Like a driver's interrupt handler, it reaps until the queue is empty, but within a budget:
/// otherwise a device that completes as fast as the handler reaps could keep it running for ever.
/// The vector is never masked, so the device sends a message per entry even while the thread reaps.
///
/// A poll that used up its budget is followed by another only if the check after unlocking found
/// another entry. Polling again unconditionally would reap entries of a coalescing device before
/// the message for them, which an interrupt handler does not do.
#[inline]
pub(crate) fn interrupt(weight: u32, seen: &Seen) -> Plan {
    if work_is_known(seen) {
        Plan::Poll { budget: weight }
    } else if seen.in_flight == 0 {
        Plan::Idle
    } else {
        Plan::sleep(Nanos::MAX)
    }
}

/// `irq-poll`: the contract of Linux's `lib/irq_poll.c`, after blk-iopoll of 2009.
///
/// The interrupt handler masks the vector and schedules a poller, which reaps at most its weight. A
/// poller that used up its weight stays scheduled, at the end of the list; otherwise it is
/// complete, and the executor unmasks the vector and checks the queue once more. Below saturation a
/// poller finds one entry and is complete at once, so each command pays for masking and unmasking
/// in addition to its interrupt. That cost is the reason to compare it with `interrupt`.
#[inline]
fn irq_poll(weight: u32, seen: &Seen) -> Plan {
    if seen.budget_used_up { Plan::Poll { budget: weight } } else { interrupt(weight, seen) }
}

/// `suspend`: stay masked while polls find entries.
///
/// After NAPI's `napi_defer_hard_irqs` and `gro_flush_timeout` (Linux 5.8), and the IRQ suspension
/// built on them (Linux 6.13): a poll that finds entries keeps the notification masked. An empty
/// one keeps it masked for a timer's length; after [`SUSPEND_DEFER`] consecutive empty ones it is
/// armed.
#[inline]
fn suspend(empty_polls: &mut u32, now: Nanos, seen: &Seen) -> Plan {
    if seen.found > 0 {
        *empty_polls = 0;
    }
    if let Some(plan) = at_once(seen) {
        return plan;
    }
    *empty_polls = empty_polls.saturating_add(1);
    if seen.leaving || *empty_polls > SUSPEND_DEFER {
        // The count is not reset here: once armed, the timer is not used again until a poll finds
        // entries.
        return Plan::sleep(Nanos::MAX);
    }
    Plan::Nap { until: now + SUSPEND_TIMEOUT, extends: true }
}

/// `poll`: spin while commands are in flight.
///
/// While the thread waits for commands it never sleeps on the notification. When another thread is
/// runnable on the CPU it naps for [`YIELD`], as the kernel's polled I/O stops when a reschedule is
/// due: spinning on would only delay that thread, which may be the one that submits. When the
/// thread leaves to compute, the queue is left armed.
#[inline]
fn poll(now: Nanos, seen: &Seen) -> Plan {
    at_once(seen).unwrap_or_else(|| spin(now, seen))
}

/// Spins, unless the thread leaves or another one is runnable on its CPU.
#[inline]
fn spin(now: Nanos, seen: &Seen) -> Plan {
    if seen.leaving {
        Plan::sleep(Nanos::MAX)
    } else if seen.cpu_wanted {
        Plan::nap(now + YIELD)
    } else {
        Plan::Spin { until: now + SLICE }
    }
}

/// The policy of a mode on the default machine.
#[cfg(test)]
pub(crate) fn of(mode: Mode) -> ModePolicy {
    ModePolicy::new(mode, &SleepCosts::default(), None)
}

#[cfg(test)]
mod tests;
