//! How a thread waits: it spins, naps, sleeps, and comes back.

use completion::{Cause, Plan, Step, Woke, fall_asleep};
use units::Nanos;

use super::super::lane::Lane;
use super::super::{Context, Ground, Progress};
use super::{At, Thread};
use crate::Host;

impl Thread {
    /// Spins until the goal's instant at the latest.
    pub(super) fn spin_until(&mut self, until: Nanos) {
        let until = until.min(self.deadline());
        for lane in &mut self.lanes {
            lane.waiter.plan = Plan::Spin { until };
        }
    }

    #[inline(never)]
    pub(super) fn spin(&mut self, g: &Ground, cost: Nanos) -> Progress {
        let until = self.lanes.iter().find_map(|lane| match lane.waiter.plan {
            Plan::Spin { until } => Some(until),
            _ => None,
        });
        if self.sees_an_entry(g.queues) {
            Progress::Busy(cost + g.costs.library.look)
        } else {
            Progress::Spin(until.unwrap_or(g.now).max(g.now + cost))
        }
    }

    #[inline(never)]
    pub(super) fn spun(&mut self, g: &Ground) -> Progress {
        for lane in &mut self.lanes {
            if g.queues[lane.queue].pending() {
                lane.waiter.found_something();
            }
            // It looked all the while; what it finds now was posted just now.
            lane.slept = false;
        }
        self.at = At::Decide;
        Progress::Private(g.costs.library.look)
    }

    #[inline(never)]
    pub(super) fn sleep(&mut self, g: &mut Ground, step: usize, until: Nanos) -> Progress {
        self.at = At::Sleep { step: step + 1, until };
        let library = &g.costs.library;
        let queues = &*g.queues;
        let arm = |lane: &mut Lane| {
            let (waiter, mut bound) = lane.bind(&queues[lane.queue]);
            waiter.arm(&mut bound)
        };
        let look = |lane: &mut Lane| {
            let (waiter, mut bound) = lane.bind(&queues[lane.queue]);
            waiter.look_once_more(&mut bound)
        };
        match fall_asleep(g.habits, step, self.lanes.iter_mut(), arm, look) {
            Step::Armed(armed) => Progress::Busy(Nanos(library.arm.0 * armed)),
            Step::Empty(looked) => Progress::Busy(Nanos(library.look.0 * looked)),
            Step::Found(looked) => {
                self.at = At::Decide;
                Progress::Busy(Nanos(library.look.0 * looked) + self.mask_all(g))
            }
            Step::Block if self.leaving => {
                self.leave_all(g);
                self.at = At::Away { since: g.now };
                self.counts.away += self.app.think;
                Progress::Busy(self.app.think)
            }
            Step::Block if self.was_posted_to(g) => {
                // Another round, while the notification stays outstanding.
                self.at = At::Decide;
                Progress::Busy(g.costs.library.look)
            }
            Step::Block => {
                self.at = At::Blocking { until };
                if g.context == Context::Waiter {
                    let armed = self.lanes.iter().any(|lane| matches!(lane.waiter.plan, Plan::Sleep { .. }));
                    self.counts.naps += u64::from(!armed && self.lanes.iter().any(|lane| matches!(lane.waiter.plan, Plan::Nap { .. })));
                    self.counts.sleeps += u64::from(armed);
                }
                let timer = if until < Nanos::MAX { g.costs.thread.timer } else { Nanos::ZERO };
                // In the kernel it is in the system call already.
                let call = if g.host == Host::User { g.costs.thread.syscall } else { Nanos::ZERO };
                Progress::Busy(if self.is_called(g) { call } else { call + g.costs.thread.block + timer })
            }
        }
    }

    /// Whether a controller in process has posted to any of its queues since it looked.
    fn was_posted_to(&mut self, g: &Ground) -> bool {
        let mut posted = false;
        if g.context == Context::Waiter {
            for lane in self.lanes.iter_mut().filter(|lane| lane.waiter.owner && g.queues[lane.queue].take_posted()) {
                lane.waiter.found_something();
                posted = true;
            }
        }
        posted
    }

    /// The system call: it returns at once if a signal waits, because signals are sticky.
    pub(super) fn block(&mut self, g: &Ground, until: Nanos) -> Progress {
        if self.is_called(g) || until <= g.now {
            self.counts.returned_at_once += 1;
            let cause = if until <= g.now { Cause::Timer } else { Cause::Other };
            self.at = At::Woken { cause, due: until };
            return Progress::Private(Nanos::ZERO);
        }
        self.lanes.iter().for_each(|lane| g.queues[lane.queue].allow());
        self.at = At::Blocked { until };
        Progress::Block(until)
    }

    #[inline(never)]
    pub(super) fn woken(&mut self, g: &mut Ground, cause: Cause, due: Nanos) -> Progress {
        let late = if cause == Cause::Timer { g.now - due } else { Nanos::ZERO };
        // Two lanes may have the same queue: signals are read once all know who was called.
        for lane in &mut self.lanes {
            lane.called = lane.is_signalled(&g.queues[lane.queue]);
        }
        for lane in &mut self.lanes {
            lane.slept = true;
            let queue = &g.queues[lane.queue];
            let own = if lane.called { Woke::NOTIFIED } else { Woke { cause, late } };
            if lane.called {
                queue.take_signals();
            }
            let in_flight = lane.in_flight(queue);
            let (waiter, bound) = lane.bind(queue);
            waiter.wakes(&bound);
            if in_flight > 0 {
                waiter.woken(own);
            }
        }
        let cost = self.mask_all(g);
        self.poked = false;
        self.app.stuck = false;
        self.at = At::Decide;
        Progress::Busy(cost)
    }

    /// The application is back in the library.
    pub(super) fn back(&mut self, g: &mut Ground, since: Nanos) -> Progress {
        self.leaving = false;
        let woken = self.woken(g, Cause::Other, Nanos::MAX);
        for lane in &mut self.lanes {
            lane.waiter.seen.cycle = Some(g.now - since);
        }
        woken
    }

    /// Masks what it is to look at by itself, unless it may stay armed. Where others look, their notifications are none of its
    /// business.
    pub(super) fn mask_all(&mut self, g: &Ground) -> Nanos {
        if g.context != Context::Waiter {
            return Nanos::ZERO;
        }
        let mut masked = 0;
        for lane in &mut self.lanes {
            let queue = &g.queues[lane.queue];
            let in_flight = lane.in_flight(queue);
            let (waiter, mut bound) = lane.bind(queue);
            waiter.mask_or_keep(in_flight, &mut bound);
            masked += bound.masked;
        }
        Nanos(g.costs.library.mask.0 * masked)
    }
}
