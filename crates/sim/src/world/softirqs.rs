//! The pollers: as a softirq at the end of an interrupt, or as ksoftirqd's.

use completion::Cause;

use super::*;
use crate::host::Progress;
use crate::host::draining::{self, Drained};
use crate::softirq::Poll;
use completion::Plan;

/// What a step of the softirq came to.
enum Polled {
    Busy(Nanos),
    /// Nothing is scheduled.
    Over,
    /// The rest is ksoftirqd's.
    HandOver,
}

impl World<'_> {
    /// A queue's notification has come: its policy says how much to take, and the softirq is raised. If its poller is in
    /// the middle of something, it finds out by itself.
    pub(super) fn schedule_poller(&mut self, cpu: usize, queue: usize) {
        if !self.drains[queue].is_at_rest() {
            return;
        }
        let Some(n) = self.cpus[cpu].pollers.queues.iter().position(|&other| other == queue) else { return };
        if matches!(self.cpus[cpu].pollers.plans[n], Plan::Look { .. }) {
            return;
        }
        let drained = draining::step(&mut self.ground(cpu), queue);
        let now = self.now;
        match drained {
            Drained::Look(budget) => self.cpus[cpu].pollers.schedule(n, budget, now),
            // Its policy goes to sleep again, which takes steps, too.
            Drained::Busy(_) | Drained::Over(_) => self.cpus[cpu].pollers.schedule(n, 0, now),
        }
    }

    /// A step as a softirq: how long it takes; `None`: over, or handed over.
    pub(super) fn soft_level_step(&mut self, cpu: usize) -> Result<Option<Nanos>, SimError> {
        for _ in 0..STEPS_AT_ONCE {
            match self.poll_step(cpu) {
                Polled::Busy(cost) => {
                    let cost = cost + self.apply(Some(cpu))?;
                    if cost > Nanos::ZERO {
                        return Ok(Some(cost));
                    }
                }
                Polled::Over => return Ok(None),
                Polled::HandOver => {
                    self.cpus[cpu].pollers.handed_over = true;
                    let ksoftirqd = self.ksoftirqd(cpu);
                    let cost = self.wake(Some(cpu), ksoftirqd, Cause::Other);
                    return Ok((cost > Nanos::ZERO).then_some(cost));
                }
            }
        }
        Err(self.livelock())
    }

    /// A step of ksoftirqd.
    pub(super) fn ksoftirqd_step(&mut self, cpu: usize) -> Progress {
        match self.poll_step(cpu) {
            Polled::Busy(cost) => Progress::Busy(cost),
            Polled::HandOver => Progress::Busy(Nanos::ZERO),
            Polled::Over => Progress::Block(Nanos::MAX),
        }
    }

    fn poll_step(&mut self, cpu: usize) -> Polled {
        match self.cpus[cpu].pollers.at {
            Poll::Quiet => Polled::Over,
            Poll::Begin => {
                let now = self.now;
                let this = &mut self.cpus[cpu];
                this.pollers.round.begin(now);
                this.pollers.at = Poll::Turn;
                this.outcome.softirqs += 1;
                let pollers = &self.cpus[cpu].pollers;
                self.ksoftirqd_runs += u64::from(pollers.handed_over && !pollers.beside);
                Polled::Busy(self.scenario.machine.costs.interrupt.softirq_run)
            }
            Poll::Turn => self.poll_turn(cpu),
            Poll::Queue(n) => Polled::Busy(self.poll_queue(cpu, n)),
        }
    }

    /// The next queue's turn, or the end of the run.
    fn poll_turn(&mut self, cpu: usize) -> Polled {
        let now = self.now;
        let this = &mut self.cpus[cpu];
        let Some(turn) = this.pollers.round.turn(now, &this.pollers.plans) else {
            let wanted = this.resched || this.current.is_none() && !this.ready.is_empty();
            let hand_over = this.pollers.end_run(now, wanted);
            return match this.pollers.at {
                Poll::Quiet => Polled::Over,
                _ if hand_over => Polled::HandOver,
                _ => Polled::Busy(Nanos::ZERO),
            };
        };
        this.pollers.at = Poll::Queue(turn.queue);
        let (queue, planned) = (this.pollers.queues[turn.queue], this.pollers.plans[turn.queue]);
        if planned == (Plan::Look { budget: 0 }) || !self.drains[queue].is_at_rest() {
            self.cpus[cpu].pollers.round.took(0);
            return Polled::Busy(Nanos::ZERO);
        }
        let (found, cost) = draining::look(&mut self.ground(cpu), queue, turn.budget);
        self.cpus[cpu].pollers.round.took(found);
        Polled::Busy(cost)
    }

    /// The rest of a queue's turn: what it has taken goes to its owners; then it stays scheduled, or is armed.
    fn poll_queue(&mut self, cpu: usize, n: usize) -> Nanos {
        let queue = self.cpus[cpu].pollers.queues[n];
        let drained = draining::step(&mut self.ground(cpu), queue);
        let pollers = &mut self.cpus[cpu].pollers;
        match drained {
            Drained::Busy(cost) => return cost,
            Drained::Look(budget) => pollers.plans[n] = Plan::Look { budget },
            Drained::Over(_) => pollers.plans[n] = Plan::Rest,
        }
        pollers.at = Poll::Turn;
        Nanos::ZERO
    }
}
