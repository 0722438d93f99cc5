//! When to look: one policy per queue, dispatched by an enum, asked once per batch.

mod adaptive;
mod hybrid;

use units::Nanos;

use crate::{Batch, CustomPolicy, Cycle, Decisions, Done, Facts, Mode, Plan, Preset, Route, Seen, WEIGHT};
use adaptive::Adaptive;
use hybrid::{Estimate, Hybrid};

/// How long `poll` and the hybrid modes spin before the executor asks again, so that leaving and a wanted CPU are noticed.
const SLICE: Nanos = Nanos::from_micros(100);

/// How long they nap when another thread wants the CPU.
const YIELD: Nanos = Nanos::from_micros(50);

/// `suspend`: from an empty poll to the next one, and the empty polls, one after the other, after which the notification is armed. The
/// values of the patch that introduced it.
const SUSPEND_TIMEOUT: Nanos = Nanos::from_micros(20);
const SUSPEND_DEFER: u32 = 10;

/// When to look at one queue.
#[derive(Debug)]
pub struct Policy {
    mode: Mode,
    /// The same as a word: compared for each plan.
    word: u64,
    /// The mode's `+submit-check`.
    check: bool,
    rule: Rule,
    facts: Facts,
    /// Whether the rule does anything with a batch's class and with records: `adaptive` decides the latter for each look.
    records: bool,
    /// What `adaptive` has learnt of device and machine, while another mode is in force.
    learnt: Option<Box<Adaptive>>,
}

/// What a preset's queue does. Presets that differ in placement, delivery or moderation only share a rule.
#[derive(Debug)]
enum Rule {
    Interrupt,
    IrqPoll { weight: u32 },
    Hybrid(Box<Hybrid>),
    Suspend { in_vain: u32 },
    Poll,
    Adaptive(Box<Adaptive>),
    Custom(Box<dyn CustomPolicy>),
}

impl Policy {
    /// The policy of a mode on the default machine. It knows of nothing in flight.
    pub fn new(mode: Mode) -> Policy {
        Policy::with(mode, &Cycle::default())
    }

    /// The policy of a mode on this machine. It knows of nothing in flight.
    pub fn with(mode: Mode, machine: &Cycle) -> Policy {
        let rule = match mode.preset() {
            Preset::IrqPoll(limits) => Rule::IrqPoll { weight: limits.weight.min(limits.budget) },
            Preset::HybridMean => Rule::Hybrid(Box::new(Hybrid::new(Estimate::Mean))),
            Preset::HybridMin => Rule::Hybrid(Box::new(Hybrid::new(Estimate::Min))),
            Preset::Suspend => Rule::Suspend { in_vain: 0 },
            Preset::Poll => Rule::Poll,
            Preset::Adaptive(price) => Rule::Adaptive(Box::new(Adaptive::new(price, machine))),
            Preset::Custom(id) => Rule::Custom((id.entry().make)(machine)),
            // The others differ in who polls, in how messages are delivered and in what the device coalesces.
            _ => Rule::Interrupt,
        };
        // `+submit-check` was proposed for queue pairs that serve several software queues (linux-nvme, November 2019, "poll IO after batch
        // submission"): the thread that has just submitted is awake anyway, a look at the phase costs one load, and what it finds needs no
        // interrupt. A constant of the mode, so that asking costs no branch.
        let check = mode.submit_check();
        let records = matches!(rule, Rule::Hybrid(_) | Rule::Adaptive(_) | Rule::Custom(_));
        Policy { mode, word: mode.into(), check, rule, facts: mode.facts(), records, learnt: None }
    }

    /// Takes over what `adaptive` has learnt of device and machine under an earlier policy of the same queue, whatever their modes are: it is
    /// kept until it is of use again.
    pub fn inherit(&mut self, earlier: Policy) {
        let learnt = match earlier.rule {
            Rule::Adaptive(rule) => Some(rule),
            _ => earlier.learnt,
        };
        match (&mut self.rule, learnt) {
            (Rule::Adaptive(rule), Some(learnt)) => rule.inherit(*learnt),
            (_, learnt) => self.learnt = learnt,
        }
    }

    /// The mode that it carries out.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// [`Policy::mode`] as a word: what a cell that is switched at run time compares.
    #[inline]
    pub fn word(&self) -> u64 {
        self.word
    }

    /// Where a batch goes that is about to be committed, `batch.in_flight` counting it as in flight already. To the lane that is
    /// only looked at if looking is what this policy does anyway.
    #[inline]
    pub fn route(&self, now: Nanos, batch: &Batch) -> Route {
        match &self.rule {
            Rule::Poll | Rule::Hybrid(_) => Route::Poll,
            Rule::Adaptive(rule) => rule.route(),
            Rule::Custom(rule) => rule.route(now, batch),
            Rule::Interrupt | Rule::IrqPoll { .. } | Rule::Suspend { .. } => Route::Notify,
        }
    }

    /// Tells of a batch whose doorbell has just been rung; answers whether to look at once: locklessly at the phase, and if an entry is
    /// pending by *trying* the lock, for at most [`WEIGHT`] entries.
    #[inline]
    pub fn submitted(&mut self, now: Nanos, batch: &Batch) -> bool {
        match &mut self.rule {
            Rule::Hybrid(rule) => rule.submitted(now, batch),
            Rule::Adaptive(rule) => rule.submitted(now, batch),
            Rule::Custom(rule) => return rule.submitted(now, batch),
            _ => {}
        }
        self.check
    }

    /// Whether [`Policy::submitted`] does anything with [`Batch::class`]; if not, it need not be found out.
    #[inline]
    pub fn wants_class(&self) -> bool {
        self.records
    }

    /// Whether the next commit may be followed by a look.
    #[inline]
    pub fn looks_on_commit(&self) -> bool {
        self.check || matches!(self.rule, Rule::Custom(_))
    }

    /// Whether a look that finds something may come before it is asked: it would plan nothing else, and is told of nothing by being asked.
    #[inline]
    pub fn looks_first(&self) -> bool {
        match &self.rule {
            Rule::Poll => true,
            Rule::Adaptive(rule) => rule.looks_first(),
            _ => false,
        }
    }

    /// Whether it looks, and does nothing else, whenever its thread is back from a sleep: then that need not be planned either.
    #[inline]
    pub fn looks_when_woken(&self) -> bool {
        matches!(self.rule, Rule::Interrupt)
    }

    /// Whether [`Policy::completed`] does anything with the records of the look that comes; if not, they need not be made.
    #[inline]
    pub fn wants_done(&self) -> bool {
        match &self.rule {
            Rule::Adaptive(rule) => rule.wants_done(),
            _ => self.records,
        }
    }

    /// Adds to `done` what [`Policy::completed`] needs of the records of one look: for `adaptive` the last says it all, and the others are not made.
    #[inline]
    pub fn record(&self, mut records: impl DoubleEndedIterator<Item = Done>, done: &mut Vec<Done>) {
        match &self.rule {
            Rule::Adaptive(_) => done.extend(records.next_back()),
            _ => done.extend(records),
        }
    }

    /// Tells of the commands that a look took.
    #[inline]
    pub fn completed(&mut self, done: &[Done]) {
        match &mut self.rule {
            Rule::Hybrid(rule) => rule.completed(done),
            Rule::Adaptive(rule) => rule.completed(done),
            Rule::Custom(rule) => rule.completed(done),
            _ => {}
        }
    }

    /// What to do next, given what the last step has seen.
    #[inline]
    pub fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        match &mut self.rule {
            Rule::Interrupt => interrupt(WEIGHT, seen),
            &mut Rule::IrqPoll { weight } => irq_poll(weight, seen),
            Rule::Hybrid(rule) => rule.next(now, seen),
            Rule::Suspend { in_vain } => suspend(in_vain, now, seen),
            Rule::Poll => poll(now, seen),
            Rule::Adaptive(rule) => rule.next(now, seen),
            Rule::Custom(rule) => rule.next(now, seen),
        }
    }

    /// Whether a nap that is over and has brought nothing would be followed by another nap, or by a sleep. Where the kernel can
    /// do so, it may then go on until the first completion.
    #[inline]
    pub fn dozes(&self) -> bool {
        match &self.rule {
            Rule::Suspend { .. } => true,
            Rule::Adaptive(rule) => rule.gathers(),
            _ => false,
        }
    }

    /// For how many entries the device may hold this queue's messages back: as many as do not make any of its commands later.
    /// 0: none. Asked for by `adaptive` and by policies of a program's own, which are told in [`Seen::held`] what came of it.
    #[inline]
    pub fn holds(&self) -> u16 {
        match &self.rule {
            Rule::Adaptive(rule) => rule.holds(),
            Rule::Custom(rule) if self.facts.holds => rule.holds(),
            _ => 0,
        }
    }

    /// How often `adaptive` decided what; `None` in every other mode.
    pub fn decisions(&self) -> Option<&Decisions> {
        match &self.rule {
            Rule::Adaptive(rule) => Some(&rule.decisions),
            _ => None,
        }
    }

    /// What is constant about its mode.
    #[inline]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Whether a notification that is armed may stay so, with this many in flight, although the thread is awake or about to carry
    /// out `plan`: it sleeps as soon as it has looked. An executor that asks after each wake-up and for each plan, and masks
    /// as soon as the answer is no, may block without arming and without the look after it: since it was armed each entry
    /// has sent its message, and signals are sticky.
    #[inline]
    pub fn stays_armed(&self, plan: Plan, in_flight: u32) -> bool {
        // With one command in flight its message is the one that ends the sleep for it, and no other can come meanwhile.
        let Rule::Adaptive(rule) = &self.rule else { return false };
        (in_flight <= 1 || rule.sleeps_under_hold()) && !matches!(plan, Plan::Spin { .. } | Plan::Nap { .. })
    }
}

/// What follows without a rule being asked: to poll where that is worth it, or because the last poll used its budget up; and nothing, where nothing
/// is in flight.
#[inline]
fn at_once(seen: &Seen) -> Option<Plan> {
    if work_is_known(seen) || seen.budget_used_up && seen.in_flight > 0 {
        Some(Plan::Look { budget: WEIGHT })
    } else {
        (seen.in_flight == 0).then_some(Plan::Rest)
    }
}

/// Whether a look is worth it without waiting: an entry is known to be there, or the thread was woken. Not while
/// another thread holds the lock: that one looks, and once more after it has released.
#[inline]
pub(crate) fn work_is_known(seen: &Seen) -> bool {
    (seen.pending | seen.woke.is_some()) & !seen.lock_busy
}

/// `interrupt`: sleep on the notification, drain within a budget, arm.
///
/// As a driver's interrupt handler does, until the queue is empty, but for the budget: a device that completes as fast as
/// the handler takes must not keep it for ever. The notification is never masked, so the device sends a message per
/// entry even while the thread drains.
///
/// A look that used its budget up is followed by another only if it left an entry behind, which the look after its lock's
/// release says. Looking once more for nothing would be a free look that no interrupt handler has: on a device that
/// holds its messages back it finds what the next message was to tell.
#[inline]
pub(crate) fn interrupt(weight: u32, seen: &Seen) -> Plan {
    if work_is_known(seen) {
        Plan::Look { budget: weight }
    } else if seen.in_flight == 0 {
        Plan::Rest
    } else {
        Plan::sleep(Nanos::MAX)
    }
}

/// `irq-poll`: the contract of Linux's `lib/irq_poll.c`, after blk-iopoll of 2009.
///
/// The notification masks the vector and schedules a poller, which takes at most its weight. A poller that used its
/// whole weight stays scheduled, at the end of the list; one that did not is complete: the executor arms the vector and
/// looks once more. Below saturation a poller finds one entry and is complete at once, so that each command pays for
/// masking and arming on top of its interrupt; that cost is the point of comparing it.
#[inline]
fn irq_poll(weight: u32, seen: &Seen) -> Plan {
    if seen.budget_used_up { Plan::Look { budget: weight } } else { interrupt(weight, seen) }
}

/// `suspend`: stay masked while the consumer keeps finding entries.
///
/// NAPI's `napi_defer_hard_irqs` and `gro_flush_timeout` (Linux 5.8), and the suspension of interrupts by a busy consumer
/// that was built on them (Linux 6.13): a look that finds something keeps the notification masked, and so does one in
/// vain, for a timer's length, until several in a row have been in vain. Then it is armed.
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
        // Stays so until a look finds something: a queue that has gone quiet is not looked at in vain again.
        return Plan::sleep(Nanos::MAX);
    }
    Plan::Nap { until: now + SUSPEND_TIMEOUT }
}

/// `poll`: spin while anything is in flight.
///
/// It never sleeps on the notification while the thread waits for commands. When another thread wants the CPU it naps
/// for [`YIELD`], as the kernel's polled I/O gives way when a reschedule is due: spinning on would only delay the thread that
/// is to run next, perhaps the thread that submits. When the thread leaves to compute, the queue is left armed.
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
        Plan::Nap { until: now + YIELD }
    } else {
        Plan::Spin { until: now + SLICE }
    }
}

#[cfg(test)]
mod tests;
