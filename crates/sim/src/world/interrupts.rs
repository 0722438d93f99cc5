//! Interrupts: messages on their way from a device to a CPU, hard interrupts, and the softirq of
//! irq_poll, which runs at the end of a hard interrupt or in ksoftirqd.
//!
//! ```text
//! device raises a vector
//!   -> send_messages       delay, shared interrupt path
//!   -> messages_arrive     vector pending at its CPU (or: bit set in the posted descriptor)
//!   -> begin_irq           entry, handler
//!   -> vector_step         by context: reap here | raise the softirq | wake a thread
//! ```
//!
//! An in-process device (a thread of the simulated machine) signals an eventfd instead: no CPU is
//! interrupted.

use completion::{Cause, Plan, Woke};

use super::*;
use crate::cpu::{ActiveIrq, Irq, IrqStage, Running};
use crate::host::drain::{self, Drained};
use crate::host::sw_queue::thread_of;
use crate::host::{Progress, StepContext};
use crate::posted::{Bits, Handling};
use crate::softirq::PollStage;

/// Device number in the message list for a notification of posted interrupts. Its vector number is
/// the number of the CPU.
const NOTIFICATION: u32 = u32::MAX;

/// The result of a step of the softirq.
enum SoftirqStep {
    Busy(Nanos),
    /// No queue is scheduled.
    Over,
    /// The rest is left to ksoftirqd.
    HandOver,
}

impl World<'_> {
    /// Sends the messages of the vectors that a controller has raised. The controller's later
    /// writes wait until the messages are accepted.
    pub(super) fn send_messages(&mut self, n: usize) {
        let signals = self.scenario.signals_eventfd(n);
        // Taken out for the loop, and put back with its capacity.
        let mut raised = std::mem::take(&mut self.raised);
        for vector in raised.drain(..).filter(|&vector| vector != ADMIN_VECTOR) {
            let now = self.now;
            let (busy, arrives) = if signals {
                (self.message_cost(n, usize::from(vector.0)), now)
            } else {
                (Nanos::ZERO, now + self.scenario.machine.costs.interrupt.message_delay)
            };
            let device = &mut self.devices[n];
            device.writes_free_at = device.writes_free_at.max(now) + busy;
            let arrives = match &mut self.irq_path {
                // The thread that sleeps on the eventfd is woken at the end of the system call.
                _ if signals => device.writes_free_at,
                None => arrives,
                Some(path) => {
                    let posted = self.scenario.posts(self.mode);
                    let sent = path.send(now, posted);
                    device.writes_free_at = device.writes_free_at.max(sent.accepted);
                    // A posted message does not go to a CPU: the remapping unit sets its bit.
                    let delay = if posted {
                        Nanos::ZERO
                    } else {
                        self.scenario.machine.costs.interrupt.message_delay
                    };
                    sent.arrives + delay
                }
            };
            self.queue_message(arrives, n as u32, vector);
        }
        self.raised = raised;
        if let Some(&(first, ..)) = self.messages.front() {
            self.calendar.set_no_later(self.sources.messages, first);
        }
    }

    /// Sets a vector's bit in its CPU's descriptor. If no notification is outstanding, sends one;
    /// the device's later writes wait until it is accepted.
    fn post_vector(&mut self, n: usize, vector: usize) {
        let Some(route) = self.devices[n].routes.get(vector) else { return };
        let cpu = route.cpu;
        // A notification is outstanding: its handler finds this bit as well.
        if !self.cpus[cpu].descriptor.post(route.bit) {
            return;
        }
        let Some(sent) = self.irq_path.as_mut().map(|path| path.notify(self.now)) else { return };
        self.devices[n].writes_free_at = self.devices[n].writes_free_at.max(sent.accepted);
        self.queue_message(
            sent.arrives + self.scenario.machine.costs.interrupt.message_delay,
            NOTIFICATION,
            Vector(cpu as u16),
        );
    }

    fn queue_message(&mut self, arrives: Nanos, device: u32, vector: Vector) {
        // Delays differ, so a later message may arrive earlier.
        let place = self.messages.partition_point(|(at, ..)| *at <= arrives);
        self.messages.insert(place, (arrives, device, vector));
    }

    /// Delivers the messages that are due.
    pub(super) fn messages_arrive(&mut self) {
        while let Some((_, device, vector)) = self.messages.pop_front_if(|(at, ..)| *at <= self.now)
        {
            let (device, vector) = (device as usize, usize::from(vector.0));
            if device == NOTIFICATION as usize {
                self.interrupt(vector, Irq::Posted);
            } else if self.scenario.signals_eventfd(device) {
                let more = self.signal_vector(device, vector);
                let free_at = self.devices[device].writes_free_at.max(self.now) + more;
                self.devices[device].writes_free_at = free_at;
            } else if self.irq_path.is_some() && self.scenario.posts(self.mode) {
                self.post_vector(device, vector);
            } else {
                self.message(device, vector);
            }
        }
        if let Some(&(first, ..)) = self.messages.front() {
            self.calendar.set(self.sources.messages, first);
        }
    }

    /// A message of a device arrives at its CPU.
    pub(super) fn message(&mut self, device: usize, vector: usize) {
        let Some(route) = self.devices[device].routes.get_mut(vector) else { return };
        let cpu = route.cpu;
        if self.scenario.posts(self.mode) {
            let bit = route.bit;
            // Without a shared interrupt path the bit and its notification take no time on the bus.
            if self.cpus[cpu].descriptor.post(bit) {
                self.interrupt(cpu, Irq::Posted);
            }
            return;
        }
        // Further messages of a pending vector are merged into it: the local APIC has one bit per
        // vector.
        if !std::mem::replace(&mut route.pending, true) {
            self.interrupt(cpu, Irq::Vector { device, vector });
        }
    }

    /// What it costs an in-process controller to signal an eventfd on which no thread sleeps. The
    /// eventfd's counter and wait queue are in the cache of the reader's CPU.
    pub(super) fn signal_cost(&self) -> Nanos {
        let costs = &self.scenario.machine.costs;
        costs.thread.signal + costs.memory.line_node + costs.memory.line_node
    }

    /// What a message costs an in-process controller. A message that is posted while a notification
    /// is outstanding only sets a bit, in a cache line that the reader's CPU has.
    pub(super) fn message_cost(&self, device: usize, vector: usize) -> Nanos {
        let outstanding =
            |route: &Route| route.queues.iter().all(|&queue| self.queues[queue].is_outstanding());
        let posted = self.scenario.posts(self.mode)
            && self.devices[device].routes.get(vector).is_some_and(outstanding);
        if posted { self.scenario.machine.costs.memory.line_node } else { self.signal_cost() }
    }

    /// Wakes the threads that sleep on a vector of an in-process controller. Returns what that
    /// costs the controller beyond [`World::signal_cost`].
    pub(super) fn signal_vector(&mut self, device: usize, vector: usize) -> Nanos {
        let Some(route) = self.devices[device].routes.get(vector) else { return Nanos::ZERO };
        let (cpu, thread, queues) = (route.cpu, route.thread, route.queues.len());
        let idle = matches!(self.cpus[cpu].running, Running::Idle(_));
        let mut woken = Nanos::ZERO;
        for n in 0..queues {
            let queue = self.devices[device].routes[vector].queues[n];
            // The bit is set and needs no signal: the reader polls once more before it sleeps.
            if self.scenario.posts(self.mode) && !self.queues[queue].post() {
                continue;
            }
            if self.context == Context::Thread {
                self.notified(queue);
                self.tasks[thread].notified();
                woken += self.wake(None, thread, Cause::Notification);
            } else {
                woken += self.signal_queue(None, queue);
            }
        }
        // `thread.rouse` is measured as a whole: the signal, the wake-up and the IPI to the idle
        // CPU.
        if woken > Nanos::ZERO && idle {
            return self.scenario.machine.costs.thread.rouse - self.signal_cost();
        }
        woken
    }

    /// A CPU accepts an interrupt. Returns the time until the first effect of its handler.
    pub(super) fn begin_irq(&mut self, cpu: usize, irq: Irq) -> Nanos {
        let costs = &self.scenario.machine.costs.interrupt;
        let outcome = &mut self.cpus[cpu].outcome;
        let (stage, more) = match irq {
            Irq::Vector { device, vector } => {
                outcome.interrupts += 1;
                outcome.vectors_handled += 1;
                if let Some(route) = self.devices[device].routes.get_mut(vector) {
                    // From here on a message of the vector raises another interrupt.
                    route.pending = false;
                }
                (IrqStage::Queue { device, vector, n: 0 }, costs.handler)
            }
            Irq::Posted => {
                outcome.interrupts += 1;
                outcome.notifications += 1;
                // Each round of the handler is charged separately.
                (IrqStage::Next, Nanos::ZERO)
            }
            Irq::Timer(_) => (IrqStage::Next, costs.timer),
            Irq::Remote => (IrqStage::Next, self.remote_work(cpu)),
            Irq::Resched => (IrqStage::Leave, Nanos::ZERO),
        };
        self.cpus[cpu].active =
            Some(ActiveIrq { irq, stage, handling: Handling::Round(0), bits: Bits::default() });
        self.scenario.machine.costs.interrupt.entry + more
    }

    /// The next step of the interrupt under way. `None`: the interrupt is over.
    pub(super) fn hard_step(&mut self, cpu: usize) -> Result<Option<Nanos>, SimError> {
        let mut spent = Nanos::ZERO;
        for _ in 0..STEPS_AT_ONCE {
            let Some(active) = self.cpus[cpu].active else { return Ok(None) };
            spent += match active.stage {
                IrqStage::Next => self.next_vector(cpu, active)?,
                IrqStage::Queue { device, vector, n } => {
                    self.vector_step(cpu, device, vector, n)?
                }
                IrqStage::Leave => {
                    let this = &mut self.cpus[cpu];
                    this.active = None;
                    let costs = &self.scenario.machine.costs.interrupt;
                    return Ok(Some(spent + costs.end + costs.exit));
                }
            };
            if spent > Nanos::ZERO {
                return Ok(Some(spent));
            }
        }
        Err(SimError::Livelock(self.moment()))
    }

    fn stage(&mut self, cpu: usize, stage: IrqStage) {
        if let Some(active) = &mut self.cpus[cpu].active {
            active.stage = stage;
        }
    }

    /// The next step of an interrupt, if it is not that of a vector's queue.
    fn next_vector(&mut self, cpu: usize, active: ActiveIrq) -> Result<Nanos, SimError> {
        match active.irq {
            Irq::Posted => Ok(self.next_posted(cpu, active)),
            Irq::Timer(task) => {
                self.stage(cpu, IrqStage::Leave);
                // The thread may have been woken before the timer, and sleep again until a later
                // time.
                let due = self.tasks[task].is_due(self.now);
                Ok(if due { self.wake(Some(cpu), task, Cause::Timer) } else { Nanos::ZERO })
            }
            Irq::Remote => {
                self.stage(cpu, IrqStage::Leave);
                Ok(self.finish_remote(cpu))
            }
            Irq::Vector { .. } | Irq::Resched => {
                self.stage(cpu, IrqStage::Leave);
                Ok(Nanos::ZERO)
            }
        }
    }

    /// The next step of the handler of posted interrupts: the next vector of the round, or the next
    /// round.
    fn next_posted(&mut self, cpu: usize, mut active: ActiveIrq) -> Nanos {
        let costs = &self.scenario.machine.costs;
        let this = &mut self.cpus[cpu];
        if let Some(bit) = active.bits.take_first() {
            let (device, vector) = this.bits[bit];
            active.stage = IrqStage::Queue { device, vector, n: 0 };
            this.outcome.vectors_handled += 1;
            this.active = Some(active);
            return costs.interrupt.handler;
        }
        if active.handling == Handling::Over {
            active.stage = IrqStage::Leave;
            this.active = Some(active);
            return Nanos::ZERO;
        }
        (active.bits, active.handling) =
            this.descriptor.handle(active.handling, self.ablation.posted_polls_again);
        let empty = active.bits.is_empty();
        this.active = Some(active);
        // Words that have not changed are in the cache, and are only read.
        if empty { costs.library.look } else { costs.interrupt.demultiplex }
    }

    /// Handles the n-th queue of a vector: reaps it in the hard interrupt, or notifies the softirq
    /// or thread that reaps it.
    fn vector_step(
        &mut self,
        cpu: usize,
        device: usize,
        vector: usize,
        n: usize,
    ) -> Result<Nanos, SimError> {
        let Some(route) = self.devices[device].routes.get(vector) else {
            self.stage(cpu, IrqStage::Next);
            return Ok(Nanos::ZERO);
        };
        let (thread, queue) = (route.thread, route.queues.get(n).copied());
        let Some(queue) = queue else {
            self.stage(cpu, IrqStage::Next);
            return Ok(Nanos::ZERO);
        };
        let next = IrqStage::Queue { device, vector, n: n + 1 };
        // A queue that this interrupt began to reap is finished here, even if the mode has changed
        // since.
        let context = if self.cpus[cpu].draining { Context::Hard } else { self.context };
        match context {
            Context::Hard => self.drain_in_interrupt(cpu, queue, next),
            Context::Soft => {
                self.stage(cpu, next);
                let cost =
                    self.notified(queue) + self.scenario.machine.costs.interrupt.softirq_raise;
                // The softirq runs at the end of this interrupt, before any thread.
                self.schedule_poller(cpu, queue);
                Ok(cost)
            }
            Context::Thread => {
                self.stage(cpu, next);
                let cost = self.notified(queue);
                self.tasks[thread].notified();
                Ok(cost + self.wake(Some(cpu), thread, Cause::Notification))
            }
            Context::Waiter => {
                self.stage(cpu, next);
                let costs = &self.scenario.machine.costs.thread;
                // In the kernel the handler calls the waiter's wake-up directly.
                let signal = if self.scenario.host == crate::HostStack::User {
                    costs.signal
                } else {
                    Nanos::ZERO
                };
                Ok(signal + self.signal_queue(Some(cpu), queue))
            }
        }
    }

    /// Reaps a queue in the hard interrupt.
    fn drain_in_interrupt(
        &mut self,
        cpu: usize,
        queue: usize,
        next: IrqStage,
    ) -> Result<Nanos, SimError> {
        let first = !self.cpus[cpu].draining;
        if first {
            self.cpus[cpu].draining = true;
            let cost = self.notified(queue);
            if cost > Nanos::ZERO {
                return Ok(cost);
            }
        }
        let cost = match drain::step_and_poll(&mut self.step_context(cpu), queue) {
            Drained::Busy(cost) => cost,
            Drained::Poll(_) => Nanos::ZERO,
            Drained::Idle(_) => {
                self.cpus[cpu].draining = false;
                self.stage(cpu, next);
                Nanos::ZERO
            }
        };
        Ok(cost + self.apply(Some(cpu))?)
    }

    /// Handles the interrupt of a queue that a drain reaps: masks the queue's vector if the policy
    /// masks. Returns the cost.
    fn notified(&mut self, queue: usize) -> Nanos {
        let drain = &mut self.drains[queue];
        drain.cycles.notified.get_or_insert(self.now);
        let busy = drain.waiter.seen.lock_busy;
        // The lock was held at the last poll, but its holder may have unlocked before this entry
        // was posted.
        drain.waiter.woken(Woke::NOTIFIED);
        drain.waiter.seen.lock_busy = busy && !self.ablation.clears_lock_busy;
        drain.counts.drain = 0;
        if !drain.waiter.policy.facts().masks {
            return Nanos::ZERO;
        }
        self.queues[queue].mask();
        self.scenario.machine.costs.library.mask
    }

    /// Signals a queue's eventfd and wakes the thread that sleeps on it: the owner of the
    /// notification, if several threads share the queue. Returns the cost.
    fn signal_queue(&mut self, from: Option<usize>, queue: usize) -> Nanos {
        // No thread reads the eventfd: it keeps its count, and the next sleep returns at once.
        if !self.queues[queue].signal() {
            return Nanos::ZERO;
        }
        if self.queues[queue].shared {
            let owner = self.queues[queue].role.owner();
            return owner.map_or(Nanos::ZERO, |owner| {
                self.wake(from, thread_of(owner), Cause::Notification)
            });
        }
        let mut cost = Nanos::ZERO;
        for n in 0..self.queues[queue].users.len() {
            let task = self.queues[queue].users[n];
            cost += self.wake(from, task, Cause::Notification);
        }
        cost
    }

    /// The cost of finishing the completions that other CPUs have sent.
    fn remote_work(&mut self, cpu: usize) -> Nanos {
        let remote = std::mem::take(&mut self.cpus[cpu].remote);
        let cx = self.step_context(cpu);
        let each = remote
            .iter()
            .filter_map(|(task, _)| cx.owners.get(*task))
            .map(|owner| drain::completion(&cx, owner.engine).0);
        let cost = Nanos(each.sum());
        self.cpus[cpu].remote = remote;
        // Completions that come after this are finished by the next IPI.
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
            // Those completions were sent without an IPI, because the list was not empty.
            self.cpus[cpu].irqs.push_back(Irq::Remote);
        }
        cost
    }

    /// What a step on a CPU can reach.
    pub(super) fn step_context(&mut self, cpu: usize) -> StepContext<'_> {
        StepContext {
            now: self.now,
            cpu,
            host: self.scenario.host,
            context: self.context,
            ablation: self.ablation,
            costs: &self.scenario.machine.costs,
            lines: &mut self.lines,
            queues: &mut self.queues,
            drains: &mut self.drains,
            owners: &self.owners,
            cpu_wanted: !self.cpus[cpu].run_queue.is_empty(),
            out: &mut self.effects,
        }
    }

    /// Handles the interrupt of a queue in softirq context: its policy gives a budget, and the
    /// softirq is raised. A poller in the middle of a poll checks for new entries anyway.
    pub(super) fn schedule_poller(&mut self, cpu: usize, queue: usize) {
        if !self.drains[queue].is_between_steps() {
            return;
        }
        let Some(n) = self.cpus[cpu].pollers.queues.iter().position(|&other| other == queue) else {
            return;
        };
        // The queue is already scheduled.
        if matches!(self.cpus[cpu].pollers.plans[n], Plan::Poll { .. }) {
            return;
        }
        let drained = drain::step(&mut self.step_context(cpu), queue);
        let now = self.now;
        match drained {
            Drained::Poll(budget) => self.cpus[cpu].pollers.schedule(n, budget, now),
            // The policy plans to sleep again. Going to sleep takes steps too, and the queue is
            // scheduled for them.
            Drained::Busy(_) | Drained::Idle(_) => self.cpus[cpu].pollers.schedule(n, 0, now),
        }
    }

    /// A step of the softirq. `None`: the softirq is over, or ksoftirqd does the rest.
    pub(super) fn soft_level_step(&mut self, cpu: usize) -> Result<Option<Nanos>, SimError> {
        for _ in 0..STEPS_AT_ONCE {
            match self.poll_step(cpu) {
                SoftirqStep::Busy(cost) => {
                    let cost = cost + self.apply(Some(cpu))?;
                    if cost > Nanos::ZERO {
                        return Ok(Some(cost));
                    }
                }
                SoftirqStep::Over => return Ok(None),
                SoftirqStep::HandOver => {
                    self.cpus[cpu].pollers.handed_over = true;
                    let ksoftirqd = self.ksoftirqd(cpu);
                    let cost = self.wake(Some(cpu), ksoftirqd, Cause::Other);
                    return Ok((cost > Nanos::ZERO).then_some(cost));
                }
            }
        }
        Err(SimError::Livelock(self.moment()))
    }

    /// A step of ksoftirqd.
    pub(super) fn ksoftirqd_step(&mut self, cpu: usize) -> Progress {
        match self.poll_step(cpu) {
            SoftirqStep::Busy(cost) => Progress::Busy(cost),
            SoftirqStep::HandOver => Progress::Busy(Nanos::ZERO),
            SoftirqStep::Over => Progress::Block(Nanos::MAX),
        }
    }

    fn poll_step(&mut self, cpu: usize) -> SoftirqStep {
        match self.cpus[cpu].pollers.stage {
            PollStage::Quiet => SoftirqStep::Over,
            PollStage::Begin => {
                let (now, limits) = (self.now, self.mode.limits());
                let this = &mut self.cpus[cpu];
                this.pollers.begin_run(now, limits);
                this.outcome.softirqs += 1;
                this.outcome.ksoftirqd_runs += u64::from(this.pollers.handed_over);
                SoftirqStep::Busy(self.scenario.machine.costs.interrupt.softirq_run)
            }
            PollStage::Turn => self.poll_turn(cpu),
            PollStage::Queue(n) => SoftirqStep::Busy(self.poll_queue(cpu, n)),
        }
    }

    /// The next queue's turn, or the end of the run.
    fn poll_turn(&mut self, cpu: usize) -> SoftirqStep {
        let now = self.now;
        let this = &mut self.cpus[cpu];
        let Some(turn) = this.pollers.round.turn(now, &this.pollers.plans) else {
            // As `__do_softirq`: the rest is left to ksoftirqd if a thread is to be scheduled.
            let resched = this.resched || this.current.is_none() && !this.run_queue.is_empty();
            let hand_over = this.pollers.end_run(now, resched);
            return match this.pollers.stage {
                PollStage::Quiet => SoftirqStep::Over,
                _ if hand_over => SoftirqStep::HandOver,
                _ => SoftirqStep::Busy(Nanos::ZERO),
            };
        };
        this.pollers.stage = PollStage::Queue(turn.queue);
        let (queue, planned) = (this.pollers.queues[turn.queue], this.pollers.plans[turn.queue]);
        // The queue is not polled in this turn, but `poll_queue` still takes its drain's next step.
        if planned == (Plan::Poll { budget: 0 }) || !self.drains[queue].is_between_steps() {
            self.cpus[cpu].pollers.round.took(0);
            return SoftirqStep::Busy(Nanos::ZERO);
        }
        let (found, cost) = drain::poll(&mut self.step_context(cpu), queue, turn.budget);
        self.cpus[cpu].pollers.round.took(found);
        SoftirqStep::Busy(cost)
    }

    /// The rest of a queue's turn: delivers the completions, then keeps the queue scheduled or arms
    /// it.
    fn poll_queue(&mut self, cpu: usize, n: usize) -> Nanos {
        let queue = self.cpus[cpu].pollers.queues[n];
        let drained = drain::step(&mut self.step_context(cpu), queue);
        let pollers = &mut self.cpus[cpu].pollers;
        match drained {
            Drained::Busy(cost) => return cost,
            Drained::Poll(budget) => pollers.plans[n] = Plan::Poll { budget },
            Drained::Idle(_) => pollers.plans[n] = Plan::Idle,
        }
        pollers.stage = PollStage::Turn;
        Nanos::ZERO
    }
}
