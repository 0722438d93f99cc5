//! The party that takes a queue's entries for others, and hands them to their owners: an interrupt handler, a poller in a softirq, or a
//! vector's thread. The queue's policy says when to look.

use completion::{Cause, Cycle, Mode, ModePolicy, Plan, Seen, Step, Waiter, Woke, fall_asleep};
use driver::Completed;
use units::Nanos;
use workload::Histogram;

use super::lane::Bound;
use super::{Context, Effect, Ground};
use crate::Counts;
use crate::habits::Habits;
use crate::requests::Token;
use crate::{Engine, Host};

/// Room for what one look takes: no policy's budget is larger.
pub(crate) const TAKEN: usize = 1024;

/// The drain of one queue.
#[derive(Debug)]
pub(crate) struct Drain {
    pub(crate) waiter: Waiter<Habits>,
    machine: Cycle,
    pub(super) at: At,
    /// It is over only until an instant.
    pub(super) naps: bool,
    pub(super) taken: Vec<Completed>,
    pub(crate) counts: Counts,
    pub(crate) cycles: Cycles,
}

/// What notifications brought, from each until its queue was armed again.
#[derive(Debug, Default)]
pub(crate) struct Cycles {
    /// The notification that nobody has looked for yet.
    pub(crate) notified: Option<Nanos>,
    pub(super) taken: u64,
    /// From notifications to the first looks, in nanoseconds.
    pub(crate) delays: Histogram,
    /// Entries of each cycle.
    pub(crate) entries: Histogram,
}

/// Where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Asking the policy.
    Decide,
    /// The look's time is over: the lock is released, and what was taken goes to its owners.
    Release,
    /// At this step of going to sleep.
    Sleep(usize),
}

impl Drain {
    pub(crate) fn new(mode: Mode, machine: Cycle, habits: Habits) -> Drain {
        let mut waiter = Waiter::new(mode, &machine, habits);
        // A thread that submits has nothing to do with the notification.
        waiter.owner = true;
        Drain {
            waiter,
            machine,
            at: At::Decide,
            naps: false,
            taken: Vec::with_capacity(TAKEN),
            counts: Counts::default(),
            cycles: Cycles::default(),
        }
    }

    /// Takes over another mode, between two steps.
    pub(crate) fn switch(&mut self, mode: Mode) {
        self.waiter.policy = ModePolicy::new(mode, &self.machine, None);
    }

    /// Whether it is not in the middle of a look, or of going to sleep.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.at == At::Decide
    }
}

/// What a step of a drain came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    /// Goes on after this time.
    Busy(Nanos),
    /// The policy wants a look: the next step does it, within the budget that it is given.
    Look(u32),
    /// Armed, and empty: until the next notification. With commands out of which none will tell, until this instant.
    Over(Nanos),
}

/// The next step of a queue's drain that is not in turn with others: looks follow at once.
pub(crate) fn step_alone(g: &mut Ground, queue: usize) -> Drained {
    match step(g, queue) {
        Drained::Look(budget) => Drained::Busy(look(g, queue, budget).1),
        other => other,
    }
}

/// The next step of a queue's drain.
pub(crate) fn step(g: &mut Ground, queue: usize) -> Drained {
    match g.drains[queue].at {
        At::Decide => decide(g, queue),
        At::Release => {
            release(g, queue);
            g.drains[queue].at = At::Decide;
            Drained::Busy(Nanos::ZERO)
        }
        At::Sleep(n) => sleep(g, queue, n),
    }
}

fn decide(g: &mut Ground, index: usize) -> Drained {
    let (queue, drain) = (&g.queues[index], &mut g.drains[index]);
    if std::mem::take(&mut drain.naps) {
        drain.waiter.woken(Woke { cause: Cause::Timer, late: Nanos::ZERO });
    }
    drain.waiter.seen.in_flight = queue.in_flight();
    drain.waiter.set_silent(queue.silent());
    let plan = drain.waiter.next(g.now, &mut Bound::of_drain(queue));
    // Told once: an entry that comes while it goes to sleep is news.
    drain.waiter.seen = Seen::default();
    match plan {
        Plan::Look { budget } => Drained::Look(budget),
        Plan::Nap { .. } if drain.waiter.silent() > 0 => {
            drain.at = At::Sleep(g.habits.sleep.len() - 1);
            Drained::Busy(g.costs.library.decide)
        }
        // It is armed whether commands are in flight or not, since nobody arms it when the next are posted. What looks by itself has no
        // handler; should it be asked all the same, it is armed.
        Plan::Sleep { .. } | Plan::Rest | Plan::Spin { .. } | Plan::Nap { .. } => {
            drain.waiter.plan = Plan::sleep(Nanos::MAX);
            drain.at = At::Sleep(0);
            Drained::Busy(g.costs.library.decide)
        }
    }
}

/// Takes at most `budget` entries: how many there were, and the look's time.
pub(crate) fn look(g: &mut Ground, index: usize, budget: u32) -> (u32, Nanos) {
    let (queue, drain) = (&mut g.queues[index], &mut g.drains[index]);
    let mut taken = std::mem::take(&mut drain.taken);
    let looked = queue.try_look(g.cpu, budget, g.costs, g.lines, &mut taken);
    let (mut cost, mut found) = (g.costs.library.decide, 0);
    match looked {
        None => {
            drain.counts.busy_looks += 1;
            drain.waiter.seen.lock_busy = true;
            cost += g.costs.library.look + g.costs.memory.contended_lock;
        }
        Some(looked) => {
            let reaped = looked.reaped;
            found = reaped.found;
            drain.counts.looked(reaped.found);
            let cycles = &mut drain.cycles;
            if let Some(notified) = cycles.notified.take() {
                cycles.delays.add((g.now - notified).0, 1);
            }
            cycles.taken += u64::from(reaped.found);
            drain.waiter.seen = Seen { found: reaped.found, budget_used_up: reaped.budget_used_up, ..Seen::default() };
            drain.at = At::Release;
            if let Some(violation) = reaped.violation {
                g.out.push(Effect::Violation(queue.device, *violation));
            }
            cost += looked.cost + delivery(g, index, &taken);
        }
    }
    g.drains[index].taken = taken;
    (found, cost)
}

/// What it costs to hand these on, each to its owner.
pub(crate) fn delivery(g: &mut Ground, queue: usize, taken: &[Completed]) -> Nanos {
    let mut cost = Nanos::ZERO;
    let mut told = None;
    for completed in taken {
        let Some(owner) = g.owners.get(Token::from_word(completed.token).task()) else { continue };
        let way = if owner.cpu == g.cpu { Nanos::ZERO } else { g.lines.between(g.cpu, owner.cpu) };
        cost += match g.host {
            Host::User => way,
            Host::Kernel if is_remote(g, queue, owner.cpu) => {
                // One interrupt for all that follow each other.
                let sending = if told.replace(owner.cpu) == Some(owner.cpu) { Nanos::ZERO } else { g.costs.interrupt.send };
                g.costs.block.remote + sending
            }
            Host::Kernel => completion(g, owner.engine) + way + way,
        };
    }
    cost
}

/// What the kernel does for each completion on the CPU that finishes it.
pub(crate) fn completion(g: &Ground, engine: Engine) -> Nanos {
    g.costs.block.complete + engine_costs(g, engine)
}

fn engine_costs(g: &Ground, engine: Engine) -> Nanos {
    match engine {
        Engine::Libaio => g.costs.libaio.complete,
        Engine::IoUring => g.costs.io_uring.complete,
    }
}

/// Whether a completion is finished on its submitter's CPU instead: as the block layer does where several CPUs share the
/// queue, and the submitter's is so far away that no cache is shared.
fn is_remote(g: &Ground, queue: usize, cpu: usize) -> bool {
    g.context != Context::Waiter && g.queues[queue].shared && g.lines.are_apart(g.cpu, cpu)
}

fn release(g: &mut Ground, index: usize) {
    let (pending, _) = g.queues[index].release();
    g.drains[index].waiter.seen.pending |= pending;
    let mut taken = std::mem::take(&mut g.drains[index].taken);
    hand_on(g, index, &mut taken);
    g.drains[index].taken = taken;
}

/// Hands completions to their owners, and says that there are tags again.
pub(crate) fn hand_on(g: &mut Ground, queue: usize, taken: &mut Vec<Completed>) {
    if !taken.is_empty() {
        g.out.push(Effect::TagsFree(queue));
    }
    for completed in taken.drain(..) {
        let task = Token::from_word(completed.token).task();
        let remote = g.host == Host::Kernel && g.owners.get(task).is_some_and(|owner| is_remote(g, queue, owner.cpu));
        g.out.push(if remote { Effect::Remote(task, completed) } else { Effect::Deliver(task, completed) });
    }
}

fn sleep(g: &mut Ground, index: usize, n: usize) -> Drained {
    let (queue, drain) = (&g.queues[index], &mut g.drains[index]);
    drain.at = At::Sleep(n + 1);
    let library = &g.costs.library;
    match fall_asleep(
        g.habits,
        n,
        std::iter::once(&mut drain.waiter),
        |waiter| waiter.arm(&mut Bound::of_drain(queue)),
        |waiter| waiter.look_once_more(&mut Bound::of_drain(queue)),
    ) {
        Step::Armed(armed) => Drained::Busy(Nanos(library.arm.0 * armed)),
        Step::Empty(looked) => Drained::Busy(Nanos(library.look.0 * looked)),
        Step::Found(looked) => {
            queue.mask();
            drain.at = At::Decide;
            Drained::Busy(Nanos(library.look.0 * looked) + library.mask)
        }
        Step::Block => {
            drain.at = At::Decide;
            // Notified meanwhile: then it is masked again, and not to be left so.
            if drain.waiter.seen.woke.is_some() {
                return Drained::Busy(Nanos::ZERO);
            }
            let taken = std::mem::take(&mut drain.cycles.taken);
            drain.cycles.entries.add(taken, 1);
            drain.naps = matches!(drain.waiter.plan, Plan::Nap { .. });
            Drained::Over(if let Plan::Nap { until, .. } = drain.waiter.plan { until } else { Nanos::MAX })
        }
    }
}
