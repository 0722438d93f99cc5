//! Hard interrupts: from a message to the end of its handler.

use completion::{Cause, QueueSet};

use super::*;
use crate::cpu::Running;
use crate::host::Ground;
use crate::host::drain;
use crate::host::draining::{self, Drained};
use crate::host::lane::thread_of;
use crate::irq::{Active, Irq, Stage};
use crate::posted::Handling;

impl World<'_> {
    /// A message of a device arrives at its CPU.
    pub(super) fn message(&mut self, device: usize, vector: usize) {
        let Some(route) = self.devices[device].routes.get_mut(vector) else { return };
        let cpu = route.cpu;
        if self.scenario.posts(self.mode) {
            let bit = route.bit;
            if self.cpus[cpu].descriptor.post(bit) {
                self.interrupt(cpu, Irq::Posted);
            }
            return;
        }
        // While one interrupt of a vector waits, others are merged into it; that is all the coalescing on this side.
        if !std::mem::replace(&mut route.pending, true) {
            self.interrupt(cpu, Irq::Vector { device, vector });
        }
    }

    /// What a message takes a controller that is a thread of this machine's, where nobody sleeps on the vector: the counter and
    /// the wait queue are in the reader's cache.
    pub(super) fn signal_cost(&self) -> Nanos {
        let costs = &self.scenario.machine.costs;
        costs.thread.signal + costs.memory.line_node + costs.memory.line_node
    }

    /// The same where it may be posted: then it is a bit in a line that the reader has, as long as a notification is outstanding.
    pub(super) fn telling_cost(&self, device: usize, vector: usize) -> Nanos {
        let outstanding = |route: &Route| route.queues.iter().all(|&queue| self.queues[queue].is_outstanding());
        let posted = self.scenario.posts(self.mode) && self.devices[device].routes.get(vector).is_some_and(outstanding);
        if posted { self.scenario.machine.costs.memory.line_node } else { self.signal_cost() }
    }

    /// Its effect: a thread that sleeps on the vector wakes. What that takes the controller beyond [`World::signal_cost`].
    pub(super) fn tell(&mut self, device: usize, vector: usize) -> Nanos {
        let Some(route) = self.devices[device].routes.get(vector) else { return Nanos::ZERO };
        let (cpu, thread, queues) = (route.cpu, route.thread, route.queues.len());
        let thread_costs = self.scenario.machine.costs.thread;
        let (idle, caught) = match self.cpus[cpu].running {
            Running::Idle(since) => (true, self.now < since + thread_costs.caught_within),
            _ => (false, false),
        };
        let mut woken = Nanos::ZERO;
        for n in 0..queues {
            let queue = self.devices[device].routes[vector].queues[n];
            if self.scenario.posts(self.mode) && !self.queues[queue].post() {
                continue;
            }
            if self.context == Context::Thread {
                drain::notified(&mut self.drains[queue], &self.queues[queue], self.now, self.habits, &self.scenario.machine.costs.library);
                self.tasks[thread].notified();
                woken += self.wake(None, thread, Cause::Notification);
            } else {
                woken += self.rouse(None, queue);
            }
        }
        if woken > Nanos::ZERO && idle {
            self.cpus[cpu].caught = caught;
            let all = if caught { thread_costs.catch } else { thread_costs.rouse };
            return all - self.signal_cost();
        }
        woken
    }

    /// Accepts an interrupt. Answers the time before its handler's first effect.
    pub(super) fn begin_irq(&mut self, cpu: usize, irq: Irq) -> Nanos {
        let costs = &self.scenario.machine.costs.interrupt;
        let outcome = &mut self.cpus[cpu].outcome;
        let (stage, more) = match irq {
            Irq::Vector { device, vector } => {
                outcome.interrupts += 1;
                self.cpus[cpu].vectors += 1;
                if let Some(route) = self.devices[device].routes.get_mut(vector) {
                    route.pending = false;
                }
                (Stage::Queue { device, vector, n: 0 }, costs.handler)
            }
            Irq::Posted => {
                outcome.interrupts += 1;
                self.cpus[cpu].notifications += 1;
                // Each round has its own price.
                (Stage::Next, Nanos::ZERO)
            }
            Irq::Timer(_) => {
                outcome.other_interrupts += 1;
                (Stage::Next, costs.timer)
            }
            Irq::Remote => {
                outcome.other_interrupts += 1;
                (Stage::Next, self.remote_work(cpu))
            }
            Irq::Resched => (Stage::Leave, Nanos::ZERO),
        };
        self.cpus[cpu].active = Some(Active { irq, stage, handling: Handling::Round(0), bits: QueueSet::EMPTY });
        self.scenario.machine.costs.interrupt.entry + more
    }

    /// The next step of the interrupt under way: how long it takes; `None`: it is over.
    pub(super) fn hard_step(&mut self, cpu: usize) -> Result<Option<Nanos>, SimError> {
        let mut spent = Nanos::ZERO;
        for _ in 0..STEPS_AT_ONCE {
            let Some(active) = self.cpus[cpu].active else { return Ok(None) };
            spent += match active.stage {
                Stage::Next => self.next_vector(cpu, active)?,
                Stage::Queue { device, vector, n } => self.vector_step(cpu, device, vector, n)?,
                Stage::Leave => {
                    let this = &mut self.cpus[cpu];
                    this.active = None;
                    this.pollers.interrupt_ends();
                    let costs = &self.scenario.machine.costs.interrupt;
                    return Ok(Some(spent + costs.end + costs.exit));
                }
            };
            if spent > Nanos::ZERO {
                return Ok(Some(spent));
            }
        }
        Err(self.livelock())
    }

    fn stage(&mut self, cpu: usize, stage: Stage) {
        if let Some(active) = &mut self.cpus[cpu].active {
            active.stage = stage;
        }
    }

    /// What an interrupt has to do next, other than for a vector's queues.
    fn next_vector(&mut self, cpu: usize, active: Active) -> Result<Nanos, SimError> {
        match active.irq {
            Irq::Posted => Ok(self.next_posted(cpu, active)),
            Irq::Timer(task) => {
                self.stage(cpu, Stage::Leave);
                let due = self.tasks[task].is_due(self.now);
                Ok(if due { self.wake(Some(cpu), task, Cause::Timer) } else { Nanos::ZERO })
            }
            Irq::Remote => {
                self.stage(cpu, Stage::Leave);
                Ok(self.finish_remote(cpu))
            }
            Irq::Vector { .. } | Irq::Resched => {
                self.stage(cpu, Stage::Leave);
                Ok(Nanos::ZERO)
            }
        }
    }

    /// The next vector that has been posted, or the next round.
    fn next_posted(&mut self, cpu: usize, mut active: Active) -> Nanos {
        let costs = &self.scenario.machine.costs;
        let this = &mut self.cpus[cpu];
        if let Some(bit) = active.bits.iter().next() {
            active.bits = active.bits.iter().filter(|&other| other != bit).collect();
            let (device, vector) = this.bits[bit];
            active.stage = Stage::Queue { device, vector, n: 0 };
            this.vectors += 1;
            this.active = Some(active);
            return costs.interrupt.handler;
        }
        if active.handling == Handling::Over {
            active.stage = Stage::Leave;
            this.active = Some(active);
            return Nanos::ZERO;
        }
        (active.bits, active.handling) = this.descriptor.handle(active.handling, self.habits.posted_looks_again);
        let empty = active.bits.is_empty();
        this.active = Some(active);
        // Words that nobody has written since are in the cache, and are read only.
        if empty { costs.library.look } else { costs.interrupt.demultiplex }
    }

    /// What a vector's n-th queue needs: in the hard interrupt, or handed on to the party that takes entries.
    fn vector_step(&mut self, cpu: usize, device: usize, vector: usize, n: usize) -> Result<Nanos, SimError> {
        let Some(route) = self.devices[device].routes.get(vector) else {
            self.stage(cpu, Stage::Next);
            return Ok(Nanos::ZERO);
        };
        let (thread, queue) = (route.thread, route.queues.get(n).copied());
        let Some(queue) = queue else {
            self.stage(cpu, Stage::Next);
            return Ok(Nanos::ZERO);
        };
        let next = Stage::Queue { device, vector, n: n + 1 };
        // What was begun in this interrupt ends in it, even if the mode has been switched meanwhile.
        let context = if self.cpus[cpu].draining { Context::Hard } else { self.context };
        match context {
            Context::Hard => self.drain_in_interrupt(cpu, queue, next),
            Context::Soft => {
                self.stage(cpu, next);
                let costs = &self.scenario.machine.costs;
                let cost = drain::notified(&mut self.drains[queue], &self.queues[queue], self.now, self.habits, &costs.library)
                    + costs.interrupt.softirq_raise;
                self.schedule_poller(cpu, queue);
                Ok(cost)
            }
            Context::Thread => {
                self.stage(cpu, next);
                let cost = drain::notified(
                    &mut self.drains[queue],
                    &self.queues[queue],
                    self.now,
                    self.habits,
                    &self.scenario.machine.costs.library,
                );
                self.tasks[thread].notified();
                Ok(cost + self.wake(Some(cpu), thread, Cause::Notification))
            }
            Context::Waiter => {
                self.stage(cpu, next);
                Ok(self.signal(cpu, queue))
            }
        }
    }

    /// Takes a queue's entries here and now.
    fn drain_in_interrupt(&mut self, cpu: usize, queue: usize, next: Stage) -> Result<Nanos, SimError> {
        let first = !self.cpus[cpu].draining;
        if first {
            self.cpus[cpu].draining = true;
            let cost =
                drain::notified(&mut self.drains[queue], &self.queues[queue], self.now, self.habits, &self.scenario.machine.costs.library);
            if cost > Nanos::ZERO {
                return Ok(cost);
            }
        }
        let drained = {
            let mut ground = self.ground(cpu);
            match draining::step(&mut ground, queue) {
                Drained::Look(budget) => Drained::Busy(draining::look(&mut ground, queue, budget).1),
                other => other,
            }
        };
        let cost = match drained {
            Drained::Busy(cost) => cost,
            Drained::Look(_) => Nanos::ZERO,
            Drained::Over(_) => {
                self.cpus[cpu].draining = false;
                self.stage(cpu, next);
                Nanos::ZERO
            }
        };
        Ok(cost + self.apply(Some(cpu))?)
    }

    /// Signals the thread that waits for a queue, and wakes it: the one that owns its notification, if several share it.
    fn signal(&mut self, cpu: usize, queue: usize) -> Nanos {
        let costs = &self.scenario.machine.costs.thread;
        let signal = if self.scenario.host == crate::Host::User { costs.signal } else { Nanos::ZERO };
        signal + self.rouse(Some(cpu), queue)
    }

    /// Its eventfd is signalled: the thread that waits on it wakes. What waking costs.
    fn rouse(&mut self, from: Option<usize>, queue: usize) -> Nanos {
        if !self.queues[queue].signal() {
            return Nanos::ZERO;
        }
        if self.queues[queue].shared {
            let owner = self.queues[queue].role.owner();
            return owner.map_or(Nanos::ZERO, |owner| self.wake(from, thread_of(owner), Cause::Notification));
        }
        let mut cost = Nanos::ZERO;
        for n in 0..self.queues[queue].users.len() {
            let task = self.queues[queue].users[n];
            cost += self.wake(from, task, Cause::Notification);
        }
        cost
    }

    /// What finishing the completions costs that other CPUs have sent.
    fn remote_work(&mut self, cpu: usize) -> Nanos {
        let remote = std::mem::take(&mut self.cpus[cpu].remote);
        let ground = self.ground(cpu);
        let each =
            remote.iter().filter_map(|(task, _)| ground.owners.get(*task)).map(|owner| draining::completion(&ground, owner.engine).0);
        let cost = Nanos(each.sum());
        self.cpus[cpu].remote = remote;
        self.cpus[cpu].remote_begun = self.cpus[cpu].remote.len();
        cost
    }

    fn finish_remote(&mut self, cpu: usize) -> Nanos {
        let begun = std::mem::take(&mut self.cpus[cpu].remote_begun);
        let mut remote = std::mem::take(&mut self.cpus[cpu].remote);
        let mut cost = Nanos::ZERO;
        for (task, completed) in remote.drain(..begun) {
            cost += self.deliver(Some(cpu), task, completed);
        }
        let more = !remote.is_empty();
        self.cpus[cpu].remote = remote;
        if more {
            self.cpus[cpu].irqs.push_back(Irq::Remote);
        }
        cost
    }

    /// What code on a CPU reaches.
    pub(super) fn ground(&mut self, cpu: usize) -> Ground<'_> {
        Ground {
            now: self.now,
            cpu,
            host: self.scenario.host,
            context: self.context,
            habits: self.habits,
            costs: &self.scenario.machine.costs,
            lines: &mut self.lines,
            queues: &mut self.queues,
            drains: &mut self.drains,
            owners: &self.owners,
            cpu_wanted: !self.cpus[cpu].ready.is_empty(),
            out: &mut self.effects,
        }
    }
}
