//! What each CPU runs: hard interrupts before softirqs before threads, and which thread.
//!
//! Work is divided into steps. A step takes effect at once and then occupies the CPU for its time.
//! A more urgent level may preempt a step; the step continues later, for the rest of its time:
//!
//! ```text
//!   Hard     ....[==]........
//!   Soft     .......[===]....
//!   Thread   [==]........[==]    one step of four units, preempted after two
//! ```

use completion::Cause;

use super::*;
use crate::Spin;
use crate::cpu::{Irq, Level, Running};
use crate::sched::RunQueue;

impl World<'_> {
    /// A CPU's timer has fired.
    pub(super) fn cpu_due(&mut self, cpu: usize) -> Result<(), SimError> {
        self.finish_step(cpu)?;
        self.resume(cpu)
    }

    /// The CPU's timer has fired: the step, the slice, or the exit from an idle state has ended.
    fn finish_step(&mut self, cpu: usize) -> Result<(), SimError> {
        self.account(cpu);
        let this = &mut self.cpus[cpu];
        if let Running::At(level) = this.running {
            // `>=`, because a step may end at the same instant as the slice: otherwise a thread
            // whose steps divide the tick would never be preempted.
            this.resched |= level == Level::Thread && self.now >= this.slice_ends;
            let left = &mut this.left[level as usize];
            if *left == Some(Nanos::ZERO) {
                *left = None;
                self.begin_step(cpu, level)?;
            }
        }
        Ok(())
    }

    /// Takes the next step at a level.
    fn begin_step(&mut self, cpu: usize, level: Level) -> Result<(), SimError> {
        let left = match level {
            Level::Hard => self.hard_step(cpu)?,
            Level::Soft => self.soft_level_step(cpu)?,
            Level::Thread => self.thread_level_step(cpu)?,
        };
        self.cpus[cpu].left[level as usize] = left;
        Ok(())
    }

    /// Charges a CPU's time until now to its level and thread.
    #[inline]
    pub(super) fn account(&mut self, cpu: usize) {
        let this = &mut self.cpus[cpu];
        let ran = this.account(self.now);
        if ran > Nanos::ZERO
            && let Some(task) = this.current
        {
            this.ran += ran;
            let task = &mut self.tasks[task];
            task.runtime += ran;
            task.share.vruntime += ran;
            if task.share.fifo {
                this.quota.charge(self.now, ran, &self.scenario.machine.scheduler);
            }
        }
    }

    /// Runs the most urgent work on a CPU, and sets the CPU's timer. Call [`World::account`] first.
    pub(super) fn resume(&mut self, cpu: usize) -> Result<(), SimError> {
        while let Some(level) = self.next_level(cpu)? {
            if !self.run_at(cpu, level) {
                return Ok(());
            }
            self.finish_step(cpu)?;
        }
        // The next thread pays for leaving the idle loop.
        self.cpus[cpu].has_idled = true;
        self.cpus[cpu].set_running(self.now, Running::Idle(self.now));
        self.calendar.set(cpu, Nanos::MAX);
        Ok(())
    }

    /// The most urgent level that has a step that takes time. Takes the steps before it that take
    /// no time. `None`: the CPU is idle.
    fn next_level(&mut self, cpu: usize) -> Result<Option<Level>, SimError> {
        for _ in 0..STEPS_AT_ONCE {
            let this = &mut self.cpus[cpu];
            // Interrupts do not nest: the interrupt under way ends first.
            if this.left[Level::Hard as usize].is_some() {
                return Ok(Some(Level::Hard));
            }
            if !this.irqs.is_empty()
                && let Some(irq) = this.irqs.pop_front()
            {
                let left = self.begin_irq(cpu, irq);
                self.cpus[cpu].left[Level::Hard as usize] = Some(left);
                continue;
            }
            if this.left[Level::Soft as usize].is_some() {
                return Ok(Some(Level::Soft));
            }
            // Softirqs run before the interrupted thread continues, as at the end of an interrupt
            // in Linux.
            if this.pollers.is_raised() {
                self.begin_step(cpu, Level::Soft)?;
                continue;
            }
            // After interrupts and softirqs, as on the return to user mode.
            if this.resched {
                self.reschedule(cpu);
            }
            let this = &mut self.cpus[cpu];
            if this.left[Level::Thread as usize].is_some() {
                return Ok(Some(Level::Thread));
            }
            if this.current.is_some() {
                self.begin_step(cpu, Level::Thread)?;
            } else if !this.run_queue.is_empty() {
                self.switch_to_next(cpu);
            } else {
                return Ok(None);
            }
        }
        Err(SimError::Livelock(self.moment()))
    }

    /// Runs the step of a level until the step or the slice ends. Returns true if no other event
    /// comes before that: virtual time is then advanced to it. Otherwise the CPU's timer is set for
    /// it.
    fn run_at(&mut self, cpu: usize, level: Level) -> bool {
        let this = &mut self.cpus[cpu];
        this.set_running(self.now, Running::At(level));
        let left = this.left[level as usize].unwrap_or_default();
        let mut ends = self.now + left;
        this.slice_ends = Nanos::MAX;
        // Without a competitor a slice has no end.
        if level == Level::Thread && !this.run_queue.is_empty() {
            let slice_ends = self.slice_ends(cpu);
            self.cpus[cpu].slice_ends = slice_ends;
            ends = ends.min(slice_ends);
        }
        // With many CPUs another event nearly always comes first, and the check would cost more
        // than it saves.
        let alone = self.cpus.len() == 1 && self.changed_cpus.is_empty() && self.running > 0;
        if alone
            && ends <= self.started + self.scenario.limit
            && self.calendar.clear_and_check_next(cpu, ends)
        {
            self.now = ends;
            return true;
        }
        self.calendar.set(cpu, ends);
        false
    }

    /// When the current thread loses the CPU to another one that is ready.
    fn slice_ends(&mut self, cpu: usize) -> Nanos {
        let scheduler = &self.scenario.machine.scheduler;
        let this = &mut self.cpus[cpu];
        if this.current.is_some_and(|task| self.tasks[task].share.fifo) {
            // A SCHED_FIFO thread runs until it sleeps or has used up the quota of the period.
            return if this.run_queue.has_fair() {
                (self.now + this.quota.remaining(self.now, scheduler)).max(self.now + Nanos(1))
            } else {
                Nanos::MAX
            };
        }
        let mut ends = self.now + (scheduler.slice - this.ran).max(Nanos(1));
        if scheduler.tick > Nanos::ZERO {
            // Linux's scheduler checks for an overrun slice only in its tick.
            ends = Nanos(ends.0.div_ceil(scheduler.tick.0).saturating_mul(scheduler.tick.0));
        }
        // A throttled FIFO thread takes the CPU when its next period begins.
        if this.run_queue.has_fifo() {
            ends.min(this.quota.ends().max(self.now + Nanos(1)))
        } else {
            ends
        }
    }

    /// Puts the current thread back on the run queue, if another thread is ready.
    fn reschedule(&mut self, cpu: usize) {
        let scheduler = &self.scenario.machine.scheduler;
        let this = &mut self.cpus[cpu];
        this.resched = false;
        let yields = std::mem::take(&mut this.yields);
        if this.run_queue.is_empty() {
            return;
        }
        let Some(task) = this.current.take() else { return };
        self.tasks[task].left = this.left[Level::Thread as usize].take();
        self.tasks[task].left_at = this.busy();
        // Picked before the current thread is queued, so that a thread that yields is not picked
        // again at once.
        let next = if yields {
            this.run_queue.pick_next(this.quota.remaining(self.now, scheduler) == Nanos::ZERO)
        } else {
            None
        };
        this.run_queue.enqueue(task, &mut self.tasks[task].share, false, scheduler);
        if let Some(next) = next {
            self.switch_to(cpu, next);
        }
    }

    fn switch_to_next(&mut self, cpu: usize) {
        let scheduler = &self.scenario.machine.scheduler;
        let this = &mut self.cpus[cpu];
        let throttled =
            this.run_queue.has_fifo() && this.quota.remaining(self.now, scheduler) == Nanos::ZERO;
        if let Some(task) = this.run_queue.pick_next(throttled) {
            self.switch_to(cpu, task);
        }
    }

    fn switch_to(&mut self, cpu: usize, task: TaskId) {
        let left = self.tasks[task].left.take().unwrap_or_default();
        // Entries may have come while a spinning thread was preempted.
        let left = self.left_of_spin(task).unwrap_or(left);
        // Other threads and handlers that ran here since then have evicted part of the thread's
        // working set.
        let others = self.cpus[cpu].busy() - self.tasks[task].left_at;
        let this = &mut self.cpus[cpu];
        (this.current, this.ran, this.yields) = (Some(task), Nanos::ZERO, false);
        this.outcome.context_switches += 1;
        let costs = &self.scenario.machine.costs.thread;
        let from_idle =
            if std::mem::take(&mut this.has_idled) { costs.from_idle } else { Nanos::ZERO };
        this.left[Level::Thread as usize] =
            Some(costs.switch + from_idle + costs.refill_after(others) + left);
    }

    /// Raises an interrupt on a CPU.
    pub(super) fn interrupt(&mut self, cpu: usize, irq: Irq) {
        self.cpus[cpu].irqs.push_back(irq);
        self.mark_changed(cpu);
    }

    /// Marks a CPU to be rescheduled after this event.
    pub(super) fn mark_changed(&mut self, cpu: usize) {
        if !std::mem::replace(&mut self.cpus[cpu].changed, true) {
            self.changed_cpus.push(cpu);
        }
    }

    /// Reschedules every CPU that this event affected.
    #[inline]
    pub(super) fn update_changed_cpus(&mut self) -> Result<(), SimError> {
        while let Some(cpu) = self.changed_cpus.pop() {
            self.cpus[cpu].changed = false;
            self.update_cpu(cpu)?;
        }
        Ok(())
    }

    #[inline(never)] // Few events change what a CPU runs.
    fn update_cpu(&mut self, cpu: usize) -> Result<(), SimError> {
        match self.cpus[cpu].running {
            // Neither state can be interrupted; when it ends, the CPU checks for pending work.
            Running::LeavingIdle | Running::At(Level::Hard) => return Ok(()),
            Running::Idle(since) => {
                let thread = &self.scenario.machine.costs.thread;
                let idle = self.now - since;
                let this = &mut self.cpus[cpu];
                // A CPU that went idle just now still spins in the idle loop, and is not halted.
                this.has_idled = idle >= thread.idle_after;
                let exit =
                    thread.exit_after(idle, matches!(this.irqs.front(), Some(Irq::Timer(_))));
                if exit > Nanos::ZERO {
                    self.account(cpu);
                    self.cpus[cpu].set_running(self.now, Running::LeavingIdle);
                    self.calendar.set(cpu, self.now + exit);
                    return Ok(());
                }
            }
            Running::At(_) => {}
        }
        self.account(cpu);
        self.resume(cpu)
    }

    /// Makes a sleeping thread ready. Returns what this costs the CPU `from`, whose code wakes the
    /// thread.
    pub(super) fn wake(&mut self, from: Option<usize>, task: TaskId, cause: Cause) -> Nanos {
        let Some(due) = self.tasks[task].wakes() else { return Nanos::ZERO };
        self.calendar.set(self.sources.thread_timers + task, Nanos::MAX);
        if let Some(thread) = self.tasks[task].thread_mut() {
            thread.counts.wakeups += 1;
            thread.counts.timer_wakeups += u64::from(cause == Cause::Timer);
            thread.wake(cause, due);
        }
        self.make_ready(from, task)
    }

    /// Puts a thread on its CPU's run queue. Returns what that costs the CPU `from`.
    pub(super) fn make_ready(&mut self, from: Option<usize>, task: TaskId) -> Nanos {
        let scheduler = &self.scenario.machine.scheduler;
        let costs = &self.scenario.machine.costs;
        let cpu = self.tasks[task].cpu;
        if self.cpus[cpu].is_at_a_thread() {
            // Preemption compares CPU times, so the current thread's must be up to date.
            self.account(cpu);
        }
        let this = &mut self.cpus[cpu];
        this.run_queue.enqueue(task, &mut self.tasks[task].share, true, scheduler);
        let throttled =
            self.tasks[task].share.fifo && this.quota.remaining(self.now, scheduler) == Nanos::ZERO;
        let new = &self.tasks[task].share;
        let preempts = this.current.is_none_or(|current| {
            RunQueue::preempts(new, &self.tasks[current].share, throttled, scheduler)
        });
        this.resched |= preempts;
        // A thread that yields between polls gives the CPU away at its next empty poll.
        if self.scenario.spin == Spin::Yields
            && this.current.is_some_and(|current| self.tasks[current].spin.is_some())
        {
            (this.resched, this.yields) = (true, true);
        }
        let sent = from.is_some_and(|from| from != cpu) && preempts && this.is_at_a_thread();
        // An IPI is needed only for a CPU that runs a thread: an idle CPU, or one in an interrupt,
        // reschedules anyway.
        if sent {
            self.interrupt(cpu, Irq::Resched);
        } else if from != Some(cpu) {
            self.mark_changed(cpu);
        }
        let far = if from.is_some_and(|from| from != cpu) {
            costs.thread.wake_remote
        } else {
            Nanos::ZERO
        };
        costs.thread.wake + far + if sent { costs.interrupt.send } else { Nanos::ZERO }
    }
}
