//! A queue's *drain*: the interrupt handler, softirq or interrupt thread that reaps the queue for
//! the threads that submitted. The queue's policy plans the polls; completions go to the inboxes of
//! the threads that own them.

use completion::{
    Cause, Mode, ModePolicy, Plan, Seen, SleepCosts, StepResult, Waiter, Woke, sleep_step,
};
use driver::Completed;
use units::Nanos;
use workload::Histogram;

use super::sw_queue::NotificationOf;
use super::{Context, Effect, StepContext};
use crate::Counts;
use crate::ablation::Ablation;
use crate::requests::CommandToken;
use crate::{Engine, HostStack};

/// Capacity for the completions of one poll: no policy's budget is larger.
pub(crate) const TAKEN: usize = 1024;

/// The drain of one queue.
#[derive(Debug)]
pub(crate) struct Drain {
    pub(crate) waiter: Waiter<Ablation>,
    machine: SleepCosts,
    pub(super) next_step: DrainStep,
    /// The drain is idle until an instant at the latest, because commands are in flight on the poll
    /// queue, which sends no message.
    pub(super) naps: bool,
    pub(super) taken: Vec<Completed>,
    pub(crate) counts: Counts,
    pub(crate) cycles: Cycles,
}

/// Statistics of cycles. A cycle is the time from an interrupt until its queue is armed again.
#[derive(Debug, Default)]
pub(crate) struct Cycles {
    /// When the notification came, if no poll has followed it yet.
    pub(crate) notified: Option<Nanos>,
    /// Entries of the current cycle so far.
    pub(super) taken: u64,
    /// Times from a notification to the first poll, in nanoseconds.
    pub(crate) delays: Histogram,
    /// Numbers of entries of the cycles.
    pub(crate) entries: Histogram,
}

/// The drain's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrainStep {
    /// Call the policy.
    Decide,
    /// The poll's time is over: release the lock, and give completions to their owners.
    Release,
    /// The step of going to sleep with this index (in [`Ablation::sleep`]).
    Sleep(usize),
}

impl Drain {
    pub(crate) fn new(mode: Mode, machine: SleepCosts, ablation: Ablation) -> Drain {
        let mut waiter = Waiter::new(mode, &machine, ablation);
        // Threads that submit never wait on the vector themselves.
        waiter.owner = true;
        Drain {
            waiter,
            machine,
            next_step: DrainStep::Decide,
            naps: false,
            taken: Vec::with_capacity(TAKEN),
            counts: Counts::default(),
            cycles: Cycles::default(),
        }
    }

    /// Changes the mode, between two steps.
    pub(crate) fn switch(&mut self, mode: Mode) {
        self.waiter.policy = ModePolicy::new(mode, &self.machine, None);
    }

    /// Whether the drain is neither polling nor going to sleep.
    pub(crate) fn is_between_steps(&self) -> bool {
        self.next_step == DrainStep::Decide
    }
}

/// The result of a step of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    /// The step takes this time, and another step follows.
    Busy(Nanos),
    /// The policy plans a poll with this budget: call [`poll`] next.
    Poll(u32),
    /// The queue is armed and empty. The drain is idle until the next notification, or, with
    /// commands in flight on the poll queue, until this instant.
    Idle(Nanos),
}

/// The next step of a drain that takes no turns with other drains, so that it polls at once.
pub(crate) fn step_and_poll(cx: &mut StepContext, queue: usize) -> Drained {
    match step(cx, queue) {
        Drained::Poll(budget) => Drained::Busy(poll(cx, queue, budget).1),
        other => other,
    }
}

/// The next step of a queue's drain.
pub(crate) fn step(cx: &mut StepContext, queue: usize) -> Drained {
    match cx.drains[queue].next_step {
        DrainStep::Decide => decide(cx, queue),
        DrainStep::Release => {
            release(cx, queue);
            cx.drains[queue].next_step = DrainStep::Decide;
            Drained::Busy(Nanos::ZERO)
        }
        DrainStep::Sleep(n) => sleep(cx, queue, n),
    }
}

fn decide(cx: &mut StepContext, index: usize) -> Drained {
    let (queue, drain) = (&cx.queues[index], &mut cx.drains[index]);
    if std::mem::take(&mut drain.naps) {
        drain.waiter.woken(Woke { cause: Cause::Timer, late: Nanos::ZERO });
    }
    drain.waiter.seen.in_flight = queue.in_flight();
    drain.waiter.set_silent(queue.polled_in_flight());
    let plan = drain.waiter.next(cx.now, &mut NotificationOf::of_drain(queue));
    // Each observation is reported to the policy once; an entry that comes while the drain goes to
    // sleep is a new one.
    drain.waiter.seen = Seen::default();
    match plan {
        Plan::Poll { budget } => Drained::Poll(budget),
        // Completions of the poll queue send no message, so there is nothing to arm.
        Plan::Nap { .. } if drain.waiter.silent() > 0 => {
            drain.next_step = DrainStep::Sleep(cx.ablation.sleep.len() - 1);
            Drained::Busy(cx.costs.library.decide)
        }
        // The queue is armed even without commands in flight, since nothing arms it when the next
        // commands are posted. Plans to spin or nap are carried out as sleeps.
        Plan::Sleep { .. } | Plan::Idle | Plan::Spin { .. } | Plan::Nap { .. } => {
            drain.waiter.plan = Plan::sleep(Nanos::MAX);
            drain.next_step = DrainStep::Sleep(0);
            Drained::Busy(cx.costs.library.decide)
        }
    }
}

/// Reaps at most `budget` entries. Returns the number reaped, and the time of the poll.
pub(crate) fn poll(cx: &mut StepContext, index: usize, budget: u32) -> (u32, Nanos) {
    let (queue, drain) = (&mut cx.queues[index], &mut cx.drains[index]);
    let mut taken = std::mem::take(&mut drain.taken);
    let looked = queue.try_poll(cx.cpu, budget, cx.costs, cx.lines, &mut taken);
    let (mut cost, mut found) = (cx.costs.library.decide, 0);
    match looked {
        None => {
            // When the holder releases the lock, it checks the queue again and has it polled.
            drain.counts.busy_looks += 1;
            drain.waiter.seen.lock_busy = true;
            cost += cx.costs.library.look + cx.costs.memory.contended_lock;
        }
        Some(looked) => {
            let reaped = looked.reaped;
            found = reaped.found;
            drain.counts.looked(reaped.found);
            let cycles = &mut drain.cycles;
            if let Some(notified) = cycles.notified.take() {
                cycles.delays.add((cx.now - notified).0, 1);
            }
            cycles.taken += u64::from(reaped.found);
            drain.waiter.seen = Seen {
                found: reaped.found,
                budget_used_up: reaped.budget_used_up,
                ..Seen::default()
            };
            drain.next_step = DrainStep::Release;
            if let Some(violation) = reaped.violation {
                cx.out.push(Effect::Violation(queue.device, *violation));
            }
            cost += looked.cost + delivery(cx, index, &taken);
        }
    }
    cx.drains[index].taken = taken;
    (found, cost)
}

/// The cost of giving completions to their owners.
pub(crate) fn delivery(cx: &mut StepContext, queue: usize, taken: &[Completed]) -> Nanos {
    let mut cost = Nanos::ZERO;
    let mut last_sent_to = None;
    for completed in taken {
        let Some(owner) = cx.owners.get(CommandToken::from_word(completed.token).task()) else {
            continue;
        };
        let transfer =
            if owner.cpu == cx.cpu { Nanos::ZERO } else { cx.lines.between(cx.cpu, owner.cpu) };
        cost += match cx.host {
            HostStack::User => transfer,
            HostStack::Kernel if is_remote(cx, queue, owner.cpu) => {
                // One interrupt for consecutive completions of the same CPU.
                let sending = if last_sent_to.replace(owner.cpu) == Some(owner.cpu) {
                    Nanos::ZERO
                } else {
                    cx.costs.interrupt.send
                };
                cx.costs.block.remote + sending
            }
            HostStack::Kernel => completion(cx, owner.engine) + transfer + transfer,
        };
    }
    cost
}

/// The kernel's cost of each completion, on the CPU that finishes it.
pub(crate) fn completion(cx: &StepContext, engine: Engine) -> Nanos {
    cx.costs.block.complete + engine_costs(cx, engine)
}

fn engine_costs(cx: &StepContext, engine: Engine) -> Nanos {
    match engine {
        Engine::Libaio => cx.costs.libaio.complete,
        Engine::IoUring => cx.costs.io_uring.complete,
    }
}

/// Whether a completion is sent to its submitter's CPU to be finished there. As in blk-mq it is, if
/// several CPUs share the queue and the submitter's CPU shares no cache with this CPU.
fn is_remote(cx: &StepContext, queue: usize, cpu: usize) -> bool {
    cx.context != Context::Waiter && cx.queues[queue].shared && cx.lines.are_apart(cx.cpu, cpu)
}

fn release(cx: &mut StepContext, index: usize) {
    let (pending, _) = cx.queues[index].release();
    cx.drains[index].waiter.seen.pending |= pending;
    let mut taken = std::mem::take(&mut cx.drains[index].taken);
    hand_on(cx, index, &mut taken);
    cx.drains[index].taken = taken;
}

/// Gives completions to their owners, and reports that tags are free.
pub(crate) fn hand_on(cx: &mut StepContext, queue: usize, taken: &mut Vec<Completed>) {
    if !taken.is_empty() {
        cx.out.push(Effect::TagsFree(queue));
    }
    for completed in taken.drain(..) {
        let task = CommandToken::from_word(completed.token).task();
        let remote = cx.host == HostStack::Kernel
            && cx.owners.get(task).is_some_and(|owner| is_remote(cx, queue, owner.cpu));
        cx.out.push(if remote {
            Effect::Remote(task, completed)
        } else {
            Effect::Deliver(task, completed)
        });
    }
}

fn sleep(cx: &mut StepContext, index: usize, n: usize) -> Drained {
    let (queue, drain) = (&cx.queues[index], &mut cx.drains[index]);
    drain.next_step = DrainStep::Sleep(n + 1);
    let library = &cx.costs.library;
    match sleep_step(
        cx.ablation,
        n,
        std::iter::once(&mut drain.waiter),
        |waiter| waiter.arm(&mut NotificationOf::of_drain(queue)),
        |waiter| waiter.recheck(&mut NotificationOf::of_drain(queue)),
    ) {
        StepResult::Armed(armed) => Drained::Busy(Nanos(library.arm.0 * armed)),
        StepResult::Empty(looked) => Drained::Busy(Nanos(library.look.0 * looked)),
        StepResult::Found(looked) => {
            queue.mask();
            drain.next_step = DrainStep::Decide;
            Drained::Busy(Nanos(library.look.0 * looked) + library.mask)
        }
        StepResult::Block => {
            drain.next_step = DrainStep::Decide;
            // A notification came while the drain went to sleep, and its handler masked the queue:
            // the drain must poll and arm again.
            if drain.waiter.seen.woke.is_some() {
                return Drained::Busy(Nanos::ZERO);
            }
            let taken = std::mem::take(&mut drain.cycles.taken);
            drain.cycles.entries.add(taken, 1);
            drain.naps = matches!(drain.waiter.plan, Plan::Nap { .. });
            Drained::Idle(if let Plan::Nap { until, .. } = drain.waiter.plan {
                until
            } else {
                Nanos::MAX
            })
        }
    }
}
