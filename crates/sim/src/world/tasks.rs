//! Threads: those of jobs, interrupt threads, ksoftirqd, hogs (threads that compute for ever); and
//! the effects of their steps on other parties.
//!
//! A step of a thread returns a [`Progress`] and adds [`Effect`]s to a list. The effects are
//! applied at once, and their cost (waking a thread, for example) is added to the time of the step.

use completion::{Cause, Spin};
use driver::{Completed, Reading};
use nvme::log::lid;

use super::*;
use crate::HostStack;
use crate::cpu::{Irq, Level};
use crate::host::drain::{self, Drained};
use crate::host::sw_queue::thread_of;
use crate::host::thread::Thread;
use crate::host::{Progress, StepContext};
use crate::sched::SchedEntity;

/// CPU time of one step of a hog.
const HOG: Nanos = Nanos::from_secs(1);

/// A thread, with the scheduler's data.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) cpu: usize,
    pub(super) share: SchedEntity,
    /// CPU time that the thread has used.
    pub(super) runtime: Nanos,
    /// If the thread was preempted within a step, the rest of the step.
    pub(super) left: Option<Nanos>,
    pub(super) state: TaskState,
    pub(super) kind: TaskKind,
    /// While the thread spins: until when, and its `runtime` when it began to spin.
    pub(super) spin: Option<(Nanos, Nanos)>,
    /// How long its CPU had been busy, in total, when the thread last left the CPU.
    pub(super) left_at: Nanos,
}

/// Where a thread is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskState {
    /// Its stage has not begun.
    NotStarted,
    /// Running, or on the run queue.
    Ready,
    /// Off the CPU, until this instant at the latest.
    Blocked(Nanos),
    Finished,
}

/// What a thread does.
#[derive(Debug)]
pub(super) enum TaskKind {
    /// Runs a job.
    Job(Box<Thread>),
    /// The interrupt thread of a vector: reaps the vector's queues, in order.
    Vector {
        queues: Vec<usize>,
        n: usize,
        /// The thread polls again at this instant at the latest.
        until: Nanos,
        /// A notification has come since the thread began its round over `queues`.
        notified: bool,
    },
    /// Runs the softirqs that a CPU's interrupts have left to it.
    Ksoftirqd,
    /// Computes for ever.
    Hog,
}

impl Task {
    pub(super) fn new(cpu: usize, kind: TaskKind, state: TaskState, host: HostStack) -> Task {
        // A kernel's interrupt threads are `SCHED_FIFO`; the thread that Reap starts for a vector
        // has normal priority.
        let fifo = host == HostStack::Kernel && matches!(kind, TaskKind::Vector { .. });
        let share = SchedEntity { vruntime: Nanos::ZERO, fifo };
        Task {
            cpu,
            share,
            runtime: Nanos::ZERO,
            left: None,
            state,
            kind,
            spin: None,
            left_at: Nanos::ZERO,
        }
    }

    pub(super) fn thread(&self) -> Option<&Thread> {
        match &self.kind {
            TaskKind::Job(thread) => Some(thread),
            _ => None,
        }
    }

    pub(super) fn thread_mut(&mut self) -> Option<&mut Thread> {
        match &mut self.kind {
            TaskKind::Job(thread) => Some(thread),
            _ => None,
        }
    }

    /// Makes a sleeping thread ready. Returns until when it would have slept. `None`: the thread
    /// does not sleep, and nothing has changed.
    pub(super) fn wakes(&mut self) -> Option<Nanos> {
        let TaskState::Blocked(until) = self.state else { return None };
        self.state = TaskState::Ready;
        Some(until)
    }

    /// Whether the thread sleeps, and the time-out of its sleep has passed.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        matches!(self.state, TaskState::Blocked(until) if until <= now)
    }

    /// The vector's interrupt has come.
    pub(super) fn notified(&mut self) {
        if let TaskKind::Vector { notified, .. } = &mut self.kind {
            *notified = true;
        }
    }
}

impl World<'_> {
    /// The ksoftirqd thread of a CPU.
    pub(super) fn ksoftirqd(&self, cpu: usize) -> TaskId {
        self.first_ksoftirqd + cpu
    }

    /// Starts the threads of the current stage.
    pub(super) fn start_stage(&mut self) {
        for task in 0..self.plan.threads.len() {
            let thread = &self.plan.threads[task];
            if thread.stage == self.stage && self.tasks[task].state == TaskState::NotStarted {
                self.tasks[task].state = TaskState::Ready;
                self.make_ready(None, task);
            }
        }
    }

    /// The next step of the current thread that takes time. `None`: the thread has left the CPU.
    pub(super) fn thread_level_step(&mut self, cpu: usize) -> Result<Option<Nanos>, SimError> {
        let Some(task) = self.cpus[cpu].current else { return Ok(None) };
        self.stop_spinning(task);
        // CPU time of private steps, which is added to the time of the step that follows them.
        let mut accrued = Nanos::ZERO;
        for _ in 0..STEPS_AT_ONCE {
            let progress = self.task_step(cpu, task, accrued)?;
            let effect_cost = self.apply(Some(cpu))?;
            match progress {
                Progress::Private(cost) => accrued += cost + effect_cost,
                // A step without time is followed by the next one at the same instant.
                Progress::Busy(cost) if accrued + cost + effect_cost == Nanos::ZERO => {}
                Progress::Busy(cost) => return Ok(Some(accrued + cost + effect_cost)),
                Progress::Spin(until) => {
                    return Ok(Some(self.spin(task, until, accrued + effect_cost)));
                }
                Progress::Block(until) => {
                    self.tasks[task].state = TaskState::Blocked(until);
                    self.leave_cpu(cpu, task);
                    if until < Nanos::MAX {
                        // Hardware timers and their interrupts are late, which costs latency and
                        // not CPU.
                        let late = self.lateness.sample(0, &mut self.rng);
                        self.calendar
                            .set(self.sources.thread_timers + task, until.max(self.now) + late);
                    }
                    return Ok(None);
                }
                Progress::Finished => {
                    self.finish(task);
                    self.leave_cpu(cpu, task);
                    return Ok(None);
                }
            }
            // Of the following steps only one that just calls the application may be taken before
            // its time has come: nothing outside the thread depends on when it is taken.
            if accrued > Nanos::ZERO && !self.tasks[task].thread().is_some_and(Thread::is_private) {
                return Ok(Some(accrued));
            }
        }
        Err(SimError::Livelock(self.moment()))
    }

    fn leave_cpu(&mut self, cpu: usize, task: TaskId) {
        // How busy the CPU is in the meantime decides how much of its working set the thread must
        // reload.
        self.tasks[task].left_at = self.cpus[cpu].busy();
        self.cpus[cpu].current = None;
    }

    fn task_step(
        &mut self,
        cpu: usize,
        task: TaskId,
        accrued: Nanos,
    ) -> Result<Progress, SimError> {
        let costs = &self.scenario.machine.costs;
        match &mut self.tasks[task].kind {
            TaskKind::Job(thread) => {
                let cpu_wanted = self.reports_cpu_wanted && !self.cpus[cpu].run_queue.is_empty();
                let mut cx = StepContext {
                    now: self.now + accrued,
                    cpu,
                    host: self.scenario.host,
                    context: self.context,
                    ablation: self.ablation,
                    costs,
                    lines: &mut self.lines,
                    queues: &mut self.queues,
                    drains: &mut self.drains,
                    owners: &self.owners,
                    cpu_wanted,
                    out: &mut self.effects,
                };
                let progress = thread.step(&mut cx, accrued > Nanos::ZERO)?;
                // Doorbells that the step rang are on their way to the controllers.
                if progress != Progress::Private(Nanos::ZERO) {
                    while let Some(device) = self.written.first() {
                        self.forward_writes(device);
                    }
                }
                Ok(progress)
            }
            TaskKind::Vector { .. } => Ok(self.vector_thread_step(cpu, task)),
            TaskKind::Ksoftirqd => Ok(self.ksoftirqd_step(cpu)),
            TaskKind::Hog => Ok(Progress::Busy(HOG)),
        }
    }

    /// A step of an interrupt thread.
    fn vector_thread_step(&mut self, cpu: usize, task: TaskId) -> Progress {
        let TaskKind::Vector { queues, n, until, notified } = &mut self.tasks[task].kind else {
            return Progress::Finished;
        };
        let Some(&queue) = queues.get(*n) else {
            *n = 0;
            // The round is over. A notification that came during it starts the next one at once.
            let until = std::mem::replace(until, Nanos::MAX);
            return if std::mem::take(notified) {
                Progress::Busy(Nanos::ZERO)
            } else {
                Progress::Block(until)
            };
        };
        // The round that begins now finds the entries of all notifications that have come so far.
        if *n == 0 && self.drains[queue].is_between_steps() {
            *notified = false;
        }
        match drain::step_and_poll(&mut self.step_context(cpu), queue) {
            Drained::Busy(cost) => Progress::Busy(cost),
            Drained::Poll(_) => Progress::Busy(Nanos::ZERO),
            Drained::Idle(naps_until) => {
                if let TaskKind::Vector { n, until, .. } = &mut self.tasks[task].kind {
                    (*n, *until) = (*n + 1, naps_until.min(*until));
                }
                Progress::Busy(Nanos::ZERO)
            }
        }
    }

    /// The thread starts to spin. Returns the time of the spin, which a completion may end earlier.
    fn spin(&mut self, task: TaskId, until: Nanos, accrued: Nanos) -> Nanos {
        let runtime = self.tasks[task].runtime;
        self.tasks[task].spin = Some((until, runtime));
        if let TaskKind::Job(thread) = &self.tasks[task].kind {
            // A completion finds the threads whose spin it ends in this list.
            thread
                .sw_queues
                .iter()
                .for_each(|sw_queue| self.queues[sw_queue.queue].spinners.push(task));
        }
        let cpu = self.tasks[task].cpu;
        if self.scenario.spin == Spin::Yields && !self.cpus[cpu].run_queue.is_empty() {
            // Another thread is ready: the spinning thread leaves the CPU after one poll, by
            // `sched_yield`.
            (self.cpus[cpu].resched, self.cpus[cpu].yields) = (true, true);
        }
        (until - self.now).max(accrued)
    }

    fn stop_spinning(&mut self, task: TaskId) {
        let Task { spin, runtime, kind, .. } = &mut self.tasks[task];
        let Some((_, began)) = spin.take() else { return };
        let spun = *runtime - began;
        if let TaskKind::Job(thread) = kind {
            thread.counts.spun += spun;
            thread.sw_queues.iter().for_each(|sw_queue| {
                self.queues[sw_queue.queue].spinners.retain(|&spinner| spinner != task)
            });
        }
    }

    /// For a thread that gets the CPU back: how long it continues to spin. `None`: it was not
    /// spinning.
    pub(super) fn left_of_spin(&self, task: TaskId) -> Option<Nanos> {
        let (until, _) = self.tasks[task].spin?;
        let found =
            self.tasks[task].thread().is_some_and(|thread| thread.sees_an_entry(&self.queues));
        let costs = &self.scenario.machine.costs;
        let wanted = self.scenario.spin == Spin::Yields
            && !self.cpus[self.tasks[task].cpu].run_queue.is_empty();
        Some(match (found, wanted) {
            (true, _) => costs.library.look,
            // One empty poll, and the call that gives the CPU away again.
            (false, true) => costs.library.look + costs.thread.syscall,
            (false, false) => until - self.now,
        })
    }

    /// The controller may have posted entries: ends the spins of the threads whose queues have
    /// entries.
    pub(super) fn end_spins(&mut self, device: usize) {
        for queue in self.devices[device].queues.clone() {
            if self.queues[queue].spinners.is_empty() || !self.queues[queue].pending() {
                continue;
            }
            for n in 0..self.queues[queue].spinners.len() {
                let task = self.queues[queue].spinners[n];
                self.end_spin(task);
            }
        }
    }

    /// Ends a spin early: the thread's load returns the entry once the cache line has been
    /// transferred.
    fn end_spin(&mut self, task: TaskId) {
        let cpu = self.tasks[task].cpu;
        if self.cpus[cpu].current != Some(task) {
            // A preempted thread finds the entry when it runs again: [`World::left_of_spin`].
            return;
        }
        self.account(cpu);
        let seen = self.scenario.machine.costs.memory.device_line;
        if let Some(left) = &mut self.cpus[cpu].left[Level::Thread as usize]
            && *left > seen
        {
            *left = seen;
            self.mark_changed(cpu);
        }
    }

    /// Applies the effects of steps. Returns what that costs the CPU `from`, on which the steps
    /// ran.
    #[inline]
    pub(super) fn apply(&mut self, from: Option<usize>) -> Result<Nanos, SimError> {
        if self.effects.is_empty() { Ok(Nanos::ZERO) } else { self.apply_all(from) }
    }

    #[inline(never)] // Most steps have no effects.
    fn apply_all(&mut self, from: Option<usize>) -> Result<Nanos, SimError> {
        let mut cost = Nanos::ZERO;
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Deliver(task, completed) => cost += self.deliver(from, task, completed),
                Effect::Remote(task, completed) => self.send(task, completed),
                Effect::Poke(task) => cost += self.poke_from(from, task),
                // Threads that wait for a tag of this queue may post again.
                Effect::TagsFree(queue) => std::mem::take(&mut self.queues[queue].tag_waiters)
                    .into_iter()
                    .for_each(|task| self.poke(task)),
                Effect::Kick(queue) => self.kick(queue),
                Effect::Violation(device, violation) => {
                    self.devices[device].control.violated(violation)?;
                    self.run_controller_task(device)?;
                }
                Effect::ReadAna(device) => {
                    if let Some(path) = &mut self.devices[device].control.path {
                        path.events.read(Reading::Log(lid::ANA));
                    }
                    self.run_controller_task(device)?;
                }
                Effect::Reset(device) => {
                    if let Some((recovery, _)) = &mut self.devices[device].control.recovery {
                        // Only a reset makes sure that a write that was given up is no longer
                        // executed, and only a reset ends an ANA Change that takes too long.
                        recovery.reset();
                    }
                    self.run_controller_task(device)?;
                }
                Effect::Measured => self.measure(),
            }
        }
        self.effects = effects;
        Ok(cost)
    }

    /// Gives a completion to its thread, and wakes the thread if it has all that it waits for.
    pub(super) fn deliver(
        &mut self,
        from: Option<usize>,
        task: TaskId,
        completed: Completed,
    ) -> Nanos {
        let context = self.context;
        let enough =
            self.tasks[task].thread_mut().is_some_and(|thread| thread.deliver(completed, context));
        if !enough {
            return Nanos::ZERO;
        }
        if self.tasks[task].spin.is_some() {
            self.end_spin(task);
        }
        self.wake(from, task, Cause::Other)
    }

    /// Sends a completion to the CPU that submitted it.
    fn send(&mut self, task: TaskId, completed: Completed) {
        let cpu = self.tasks[task].cpu;
        let first = self.cpus[cpu].remote.is_empty();
        self.cpus[cpu].remote.push((task, completed));
        // One IPI serves all completions that are sent until it is handled.
        if first {
            self.interrupt(cpu, Irq::Remote);
        }
    }

    /// Has a job's thread check its state again, and wakes it for that.
    pub(super) fn poke(&mut self, task: TaskId) {
        self.poke_from(None, task);
    }

    fn poke_from(&mut self, from: Option<usize>, task: TaskId) -> Nanos {
        if let Some(thread) = self.tasks[task].thread_mut() {
            thread.poke();
        }
        self.wake(from, task, Cause::Other)
    }

    /// Has a queue polled, although no notification has come.
    pub(super) fn kick(&mut self, queue: usize) {
        if self.context != Context::Waiter {
            // An interrupt without a message: the handler, softirq or interrupt thread polls the
            // queue.
            let (device, vector) =
                (self.queues[queue].device, usize::from(self.queues[queue].vector.0));
            return self.message(device, vector);
        }
        // For a shared queue it is enough to wake the notification's owner; its other users may be
        // computing.
        let owner = if self.queues[queue].shared { self.queues[queue].role.owner() } else { None };
        match owner {
            Some(owner) => self.poke(thread_of(owner)),
            None => (0..self.queues[queue].users.len())
                .for_each(|n| self.poke(self.queues[queue].users[n])),
        }
    }

    /// A thread has finished. With `exitall` the other threads of its group are stopped. If all
    /// threads of the stage have finished, the next stage begins.
    fn finish(&mut self, task: TaskId) {
        self.tasks[task].state = TaskState::Finished;
        let Some(ended) = self.plan.threads.get(task).cloned() else { return };
        self.running -= 1;
        if self.scenario.jobs[ended.job].job.exitall {
            for other in 0..self.plan.threads.len() {
                if self.plan.threads[other].group == ended.group {
                    self.stop(other);
                }
            }
        }
        // fio's `stonewall`: the next stage waits for all threads of this one.
        let open = |other: usize| {
            self.plan.threads[other].stage <= self.stage
                && self.tasks[other].state != TaskState::Finished
        };
        if self.running > 0 && !(0..self.plan.threads.len()).any(open) {
            self.stage += 1;
            self.start_stage();
        }
    }

    fn stop(&mut self, task: TaskId) {
        match self.tasks[task].state {
            TaskState::Finished => {}
            TaskState::NotStarted => {
                self.tasks[task].state = TaskState::Finished;
                self.running -= 1;
            }
            TaskState::Ready | TaskState::Blocked(_) => {
                if let Some(thread) = self.tasks[task].thread_mut() {
                    // Requests in flight still complete: the thread ends after them.
                    thread.app.generator.stop();
                }
                self.poke(task);
            }
        }
    }
}
