//! How a thread waits: it spins, naps, or sleeps. Going to sleep takes the steps of
//! `completion::SLEEP`, each at its own instant: arm, poll once more, block. An entry that is
//! posted between two of these steps is found by the poll, or sends a message.

use completion::{Cause, Plan, StepResult, Woke, sleep_step};
use units::Nanos;

use super::super::sw_queue::SwQueue;
use super::super::{Context, Progress, StepContext};
use super::{Thread, ThreadStep};
use crate::HostStack;

impl Thread {
    /// Plans to spin until `until`, or until the thread's deadline if that is earlier.
    pub(super) fn spin_until(&mut self, until: Nanos) {
        let until = until.min(self.deadline());
        for sw_queue in &mut self.sw_queues {
            sw_queue.waiter.plan = Plan::Spin { until };
        }
    }

    #[inline(never)]
    pub(super) fn spin(&mut self, cx: &StepContext, cost: Nanos) -> Progress {
        let until = self.sw_queues.iter().find_map(|sw_queue| match sw_queue.waiter.plan {
            Plan::Spin { until } => Some(until),
            _ => None,
        });
        if self.sees_an_entry(cx.queues) {
            Progress::Busy(cost + cx.costs.library.look)
        } else {
            Progress::Spin(until.unwrap_or(cx.now).max(cx.now + cost))
        }
    }

    #[inline(never)]
    pub(super) fn spin_ended(&mut self, cx: &StepContext) -> Progress {
        for sw_queue in &mut self.sw_queues {
            if cx.queues[sw_queue.queue].pending() {
                sw_queue.waiter.found_something();
            }
            // The thread has polled without a pause, so an entry that it finds now was posted just
            // now.
            sw_queue.slept = false;
        }
        self.next_step = ThreadStep::Decide;
        Progress::Private(cx.costs.library.look)
    }

    #[inline(never)]
    pub(super) fn sleep(&mut self, cx: &mut StepContext, step: usize, until: Nanos) -> Progress {
        self.next_step = ThreadStep::Sleep { step: step + 1, until };
        let library = &cx.costs.library;
        let queues = &*cx.queues;
        let arm = |sw_queue: &mut SwQueue| {
            let (waiter, mut bound) = sw_queue.bind(&queues[sw_queue.queue]);
            waiter.arm(&mut bound)
        };
        let look = |sw_queue: &mut SwQueue| {
            let (waiter, mut bound) = sw_queue.bind(&queues[sw_queue.queue]);
            waiter.recheck(&mut bound)
        };
        match sleep_step(cx.ablation, step, self.sw_queues.iter_mut(), arm, look) {
            StepResult::Armed(armed) => Progress::Busy(Nanos(library.arm.0 * armed)),
            StepResult::Empty(looked) => Progress::Busy(Nanos(library.look.0 * looked)),
            // The thread stays awake, so the queues are masked again.
            StepResult::Found(looked) => {
                self.next_step = ThreadStep::Decide;
                Progress::Busy(Nanos(library.look.0 * looked) + self.mask_all(cx))
            }
            StepResult::Block if self.leaving => {
                // While the application computes, other threads own the shared queues'
                // notifications.
                self.release_notifications(cx);
                self.next_step = ThreadStep::Away { since: cx.now };
                self.counts.away += self.app.think;
                Progress::Busy(self.app.think)
            }
            StepResult::Block if self.was_posted_to(cx) => {
                // The thread polls another round. The notification stays outstanding, so that
                // posted messages signal nothing.
                self.next_step = ThreadStep::Decide;
                Progress::Busy(cx.costs.library.look)
            }
            StepResult::Block => {
                self.next_step = ThreadStep::Blocking { until };
                if cx.context == Context::Waiter {
                    let armed = self
                        .sw_queues
                        .iter()
                        .any(|sw_queue| matches!(sw_queue.waiter.plan, Plan::Sleep { .. }));
                    self.counts.naps += u64::from(
                        !armed
                            && self
                                .sw_queues
                                .iter()
                                .any(|sw_queue| matches!(sw_queue.waiter.plan, Plan::Nap { .. })),
                    );
                    self.counts.sleeps += u64::from(armed);
                }
                // A sleep without a time-out sets no timer.
                let timer = if until < Nanos::MAX { cx.costs.thread.timer } else { Nanos::ZERO };
                // In the kernel host the thread is already in the system call.
                let call =
                    if cx.host == HostStack::User { cx.costs.thread.syscall } else { Nanos::ZERO };
                Progress::Busy(if self.would_not_block(cx) {
                    call
                } else {
                    call + cx.costs.thread.block + timer
                })
            }
        }
    }

    /// Whether an in-process controller has posted to any of its queues since the last poll.
    fn was_posted_to(&mut self, cx: &StepContext) -> bool {
        let mut posted = false;
        if cx.context == Context::Waiter {
            for sw_queue in self
                .sw_queues
                .iter_mut()
                .filter(|sw_queue| sw_queue.waiter.owner && cx.queues[sw_queue.queue].take_posted())
            {
                sw_queue.waiter.found_something();
                posted = true;
            }
        }
        posted
    }

    /// The blocking system call. It returns at once if the eventfd is signalled.
    pub(super) fn block(&mut self, cx: &StepContext, until: Nanos) -> Progress {
        if self.would_not_block(cx) || until <= cx.now {
            self.counts.returned_at_once += 1;
            let cause = if until <= cx.now { Cause::Timer } else { Cause::Other };
            self.next_step = ThreadStep::Woken { cause, due: until };
            return Progress::Private(Nanos::ZERO);
        }
        // From here on the first posted message has to signal the eventfd.
        self.sw_queues.iter().for_each(|sw_queue| cx.queues[sw_queue.queue].clear_outstanding());
        self.next_step = ThreadStep::Blocked { until };
        Progress::Block(until)
    }

    #[inline(never)]
    pub(super) fn woken(&mut self, cx: &mut StepContext, cause: Cause, due: Nanos) -> Progress {
        let late = if cause == Cause::Timer { cx.now - due } else { Nanos::ZERO };
        // Two software queues may share a hardware queue: all of them record whether it has
        // signalled, before one of them reads the signal.
        for sw_queue in &mut self.sw_queues {
            sw_queue.signalled = sw_queue.is_signalled(&cx.queues[sw_queue.queue]);
        }
        for sw_queue in &mut self.sw_queues {
            sw_queue.slept = true;
            let queue = &cx.queues[sw_queue.queue];
            let woke = if sw_queue.signalled { Woke::NOTIFIED } else { Woke { cause, late } };
            if sw_queue.signalled {
                queue.take_signals();
            }
            let in_flight = sw_queue.in_flight(queue);
            let (waiter, bound) = sw_queue.bind(queue);
            waiter.wakes(&bound);
            // Policies record wake-ups only while they wait for commands.
            if in_flight > 0 {
                waiter.woken(woke);
            }
        }
        let cost = self.mask_all(cx);
        self.poked = false;
        self.app.no_tag = false;
        self.next_step = ThreadStep::Decide;
        Progress::Busy(cost)
    }

    /// The application is back in the library.
    pub(super) fn back(&mut self, cx: &mut StepContext, since: Nanos) -> Progress {
        self.leaving = false;
        let woken = self.woken(cx, Cause::Other, Nanos::MAX);
        for sw_queue in &mut self.sw_queues {
            // The policy's cycle is then the time that the application computed.
            sw_queue.waiter.seen.cycle = Some(cx.now - since);
        }
        woken
    }

    /// Masks the thread's queues, unless their policies keep them armed. Does nothing if drains
    /// reap for the thread: the notifications are theirs. Returns the cost.
    pub(super) fn mask_all(&mut self, cx: &StepContext) -> Nanos {
        if cx.context != Context::Waiter {
            return Nanos::ZERO;
        }
        let mut masked = 0;
        for sw_queue in &mut self.sw_queues {
            let queue = &cx.queues[sw_queue.queue];
            let in_flight = sw_queue.in_flight(queue);
            let (waiter, mut bound) = sw_queue.bind(queue);
            waiter.mask_or_keep(in_flight, &mut bound);
            masked += bound.masked;
        }
        Nanos(cx.costs.library.mask.0 * masked)
    }
}
