//! The built-in policies, dispatched by an enum and asked once per batch.

mod adaptive;
mod hybrid;

use units::Nanos;

use crate::{
    Batch, Cycle, Decisions, Done, Facts, Mode, Plan, Policy, Preset, Route, Seen, State, WEIGHT,
};
use adaptive::Adaptive;
use hybrid::{Estimate, Hybrid};

/// How long `poll` and the hybrid modes spin before the executor asks again, so that leaving and a
/// wanted CPU are noticed.
const SLICE: Nanos = Nanos::from_micros(100);

/// How long they nap when another thread wants the CPU.
const YIELD: Nanos = Nanos::from_micros(50);

/// `suspend`: from an empty poll to the next one, and the empty polls, one after the other, after
/// which the notification is armed. The values of the patch that introduced it.
const SUSPEND_TIMEOUT: Nanos = Nanos::from_micros(20);
const SUSPEND_DEFER: u32 = 10;

/// The policy of a mode.
#[derive(Debug)]
pub struct ModePolicy {
    mode: Mode,
    rule: Rule,
    facts: Facts,
    /// The budget of the poll that the rule plans wherever work is known: cached until the mode
    /// changes; of `adaptive`, until it waits.
    pub(crate) poll: Option<u32>,
    /// What `adaptive` has learnt of device and machine, while another mode is in force.
    learnt: Option<Box<Adaptive>>,
}

/// What a preset's queue does. Presets that differ in placement, delivery or moderation only share
/// a rule.
#[derive(Debug)]
enum Rule {
    Interrupt,
    IrqPoll { weight: u32 },
    Hybrid(Box<Hybrid>),
    Suspend { in_vain: u32 },
    Poll,
    Adaptive(Box<Adaptive>),
    Custom(Box<dyn Policy>),
}

impl ModePolicy {
    /// The policy of a mode on this machine. It knows of nothing in flight. What `adaptive` has
    /// learnt of device and machine under an `earlier` policy of the same queue, whatever their
    /// modes are, is kept until it is of use again.
    pub fn new(mode: Mode, machine: &Cycle, earlier: Option<ModePolicy>) -> ModePolicy {
        let mut rule = match mode.preset() {
            Preset::IrqPoll(limits) => Rule::IrqPoll { weight: limits.weight.min(limits.budget) },
            Preset::HybridMean => Rule::Hybrid(Box::new(Hybrid::new(Estimate::Mean))),
            Preset::HybridMin => Rule::Hybrid(Box::new(Hybrid::new(Estimate::Min))),
            Preset::Suspend => Rule::Suspend { in_vain: 0 },
            Preset::Poll => Rule::Poll,
            Preset::Adaptive(n) => Rule::Adaptive(Box::new(Adaptive::new(n, machine))),
            Preset::Custom(id) => Rule::Custom((id.entry().make)(machine)),
            // The others differ in who polls, in how messages are delivered and in what the device
            // coalesces.
            _ => Rule::Interrupt,
        };
        let mut learnt = earlier.and_then(|earlier| match earlier.rule {
            Rule::Adaptive(rule) => Some(rule),
            _ => earlier.learnt,
        });
        if let Rule::Adaptive(rule) = &mut rule
            && let Some(learnt) = learnt.take()
        {
            rule.inherit(*learnt);
        }
        let poll = match rule {
            Rule::Interrupt | Rule::Poll | Rule::Adaptive(_) => Some(WEIGHT),
            Rule::IrqPoll { weight } => Some(weight),
            Rule::Hybrid(_) | Rule::Suspend { .. } | Rule::Custom(_) => None,
        };
        ModePolicy { mode, rule, facts: mode.facts(), poll, learnt }
    }

    /// The mode that it carries out.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What is constant about its mode.
    #[inline]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What `adaptive` does, why, and what each action has come to; `None` in every other mode.
    pub fn state(&self) -> Option<&State> {
        match &self.rule {
            Rule::Adaptive(rule) => Some(&rule.state),
            _ => None,
        }
    }

    /// How often `adaptive` did what; `None` in every other mode.
    pub fn decisions(&self) -> Option<&Decisions> {
        match &self.rule {
            Rule::Adaptive(rule) => Some(&rule.decisions),
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
            Rule::Suspend { in_vain } => suspend(in_vain, now, seen),
            Rule::Poll => poll(now, seen),
            Rule::Adaptive(rule) => {
                let plan = rule.next(now, seen);
                self.poll = rule.is_between_waits().then_some(WEIGHT);
                plan
            }
            Rule::Custom(rule) => rule.next(now, seen),
        }
    }

    #[inline]
    fn submitted(&mut self, now: Nanos, batch: &Batch) {
        match &mut self.rule {
            Rule::Hybrid(rule) => rule.submitted(now, batch),
            Rule::Adaptive(rule) => rule.submitted(now, batch),
            Rule::Custom(rule) => rule.submitted(now, batch),
            _ => {}
        }
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

    /// To the poll queue if polling is what this policy does anyway.
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

/// What follows without a rule being asked: to poll where that is worth it, or because the last
/// poll used its budget up; and nothing, where nothing is in flight.
#[inline]
fn at_once(seen: &Seen) -> Option<Plan> {
    if work_is_known(seen) || seen.budget_used_up && seen.in_flight > 0 {
        Some(Plan::Poll { budget: WEIGHT })
    } else {
        (seen.in_flight == 0).then_some(Plan::Rest)
    }
}

/// Whether a look is worth it without waiting: an entry is known to be there, or the thread was
/// woken. Not while another thread holds the lock: that one looks, and once more after it has
/// released.
#[inline]
pub(crate) fn work_is_known(seen: &Seen) -> bool {
    (seen.pending | seen.woke.is_some()) & !seen.lock_busy
}

/// `interrupt`: sleep on the notification, drain within a budget, arm.
///
/// As a driver's interrupt handler does, until the queue is empty, but for the budget: a device
/// that completes as fast as the handler takes must not keep it for ever. The notification is never
/// masked, so the device sends a message per entry even while the thread drains.
///
/// A look that used its budget up is followed by another only if it left an entry behind, which the
/// look after its lock's release says. Looking once more for nothing would be a free look that no
/// interrupt handler has: on a device that holds its messages back it finds what the next message
/// was to tell.
#[inline]
pub(crate) fn interrupt(weight: u32, seen: &Seen) -> Plan {
    if work_is_known(seen) {
        Plan::Poll { budget: weight }
    } else if seen.in_flight == 0 {
        Plan::Rest
    } else {
        Plan::sleep(Nanos::MAX)
    }
}

/// `irq-poll`: the contract of Linux's `lib/irq_poll.c`, after blk-iopoll of 2009.
///
/// The notification masks the vector and schedules a poller, which takes at most its weight. A
/// poller that used its whole weight stays scheduled, at the end of the list; one that did not is
/// complete: the executor arms the vector and looks once more. Below saturation a poller finds one
/// entry and is complete at once, so that each command pays for masking and arming on top of its
/// interrupt; that cost is the point of comparing it.
#[inline]
fn irq_poll(weight: u32, seen: &Seen) -> Plan {
    if seen.budget_used_up { Plan::Poll { budget: weight } } else { interrupt(weight, seen) }
}

/// `suspend`: stay masked while the consumer keeps finding entries.
///
/// NAPI's `napi_defer_hard_irqs` and `gro_flush_timeout` (Linux 5.8), and the suspension of
/// interrupts by a busy consumer that was built on them (Linux 6.13): a look that finds something
/// keeps the notification masked, and so does one in vain, for a timer's length, until several in a
/// row have been in vain. Then it is armed.
#[inline]
fn suspend(in_vain: &mut u32, now: Nanos, seen: &Seen) -> Plan {
    if seen.found > 0 {
        *in_vain = 0;
    }
    if let Some(plan) = at_once(seen) {
        return plan;
    }
    *in_vain = in_vain.saturating_add(1);
    if seen.leaving || *in_vain > SUSPEND_DEFER {
        // Stays so until a look finds something: a queue that has gone quiet is not looked at in
        // vain again.
        return Plan::sleep(Nanos::MAX);
    }
    Plan::Nap { until: now + SUSPEND_TIMEOUT, extends: true }
}

/// `poll`: spin while anything is in flight.
///
/// It never sleeps on the notification while the thread waits for commands. When another thread
/// wants the CPU it naps for [`YIELD`], as the kernel's polled I/O gives way when a reschedule is
/// due: spinning on would only delay the thread that is to run next, perhaps the thread that
/// submits. When the thread leaves to compute, the queue is left armed.
#[inline]
fn poll(now: Nanos, seen: &Seen) -> Plan {
    at_once(seen).unwrap_or_else(|| spin(now, seen))
}

/// Waits awake, unless the thread leaves or its CPU is wanted.
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
    ModePolicy::new(mode, &Cycle::default(), None)
}

#[cfg(test)]
mod tests;
