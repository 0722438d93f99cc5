//! The state of one CPU: what runs at each level, what is pending, and where its time went.

use std::collections::VecDeque;

use driver::Completed;
use units::Nanos;

use crate::CpuOutcome;
use crate::posted::{Bits, Handling, PostedDescriptor};
use crate::sched::{RtQuota, RunQueue, TaskId};
use crate::softirq::Pollers;

/// The levels of what runs on a CPU, the most urgent first. A level preempts a less urgent level in
/// the middle of a step; the step continues later, for the rest of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// A hard interrupt. Interrupts do not nest.
    Hard = 0,
    /// A softirq.
    Soft = 1,
    /// A thread.
    Thread = 2,
}

/// What a CPU does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Running {
    /// Idle since then.
    Idle(Nanos),
    /// Leaving its idle state.
    LeavingIdle,
    /// A step of this level.
    At(Level),
}

impl Default for Running {
    fn default() -> Running {
        Running::Idle(Nanos::ZERO)
    }
}

/// A CPU.
#[derive(Debug, Default)]
pub(crate) struct Cpu {
    pub(crate) running: Running,
    /// By level: the remaining time of the step under way.
    pub(crate) left: [Option<Nanos>; 3],
    /// The CPU's time is accounted for up to this instant.
    since: Nanos,
    /// Since when interrupts and softirqs have kept threads off the CPU.
    away_since: Option<Nanos>,
    pub(crate) outcome: CpuOutcome,
    /// Interrupts that wait until the interrupt under way ends.
    pub(crate) irqs: VecDeque<Irq>,
    pub(crate) active: Option<ActiveIrq>,
    pub(crate) descriptor: PostedDescriptor,
    /// By bit of the descriptor: device and vector.
    pub(crate) bits: Vec<(usize, usize)>,
    /// Completions that other CPUs have sent to this CPU. The first one in the list is sent with an
    /// IPI.
    pub(crate) remote: Vec<(TaskId, Completed)>,
    /// How many of `remote`, from the first on, the IPI under way finishes.
    pub(crate) remote_begun: usize,
    /// The handler under way has begun to reap its queue.
    pub(crate) draining: bool,
    pub(crate) pollers: Pollers,
    pub(crate) run_queue: RunQueue,
    pub(crate) current: Option<TaskId>,
    /// CPU time of the current thread since it was switched to.
    pub(crate) ran: Nanos,
    /// When the current thread loses the CPU, if another thread is ready.
    pub(crate) slice_ends: Nanos,
    /// Linux's `need_resched`: another thread is to run.
    pub(crate) resched: bool,
    /// The current thread has called `sched_yield`: another ready thread runs next, even if it has
    /// used more CPU time.
    pub(crate) yields: bool,
    /// The CPU time that interrupt threads have used in the current period.
    pub(crate) quota: RtQuota,
    /// Since a thread last ran, the CPU has been idle for long enough to be halted.
    pub(crate) has_idled: bool,
    /// The event that is being handled has affected this CPU.
    pub(crate) changed: bool,
}

impl Cpu {
    pub(crate) fn new(now: Nanos, pollers: Pollers) -> Cpu {
        Cpu { since: now, pollers, slice_ends: Nanos::MAX, has_idled: true, ..Cpu::default() }
    }

    /// Charges the time until `now`. Returns the part that a thread had.
    #[inline]
    pub(crate) fn account(&mut self, now: Nanos) -> Nanos {
        let span = now - self.since;
        if span == Nanos::ZERO {
            return Nanos::ZERO;
        }
        self.since = now;
        let Running::At(level) = self.running else {
            self.outcome.idle += span;
            return Nanos::ZERO;
        };
        if let Some(left) = &mut self.left[level as usize] {
            *left = *left - span;
        }
        match level {
            Level::Hard => self.outcome.hard += span,
            Level::Soft => self.outcome.soft += span,
            Level::Thread => {
                self.outcome.thread += span;
                return span;
            }
        }
        Nanos::ZERO
    }

    /// What it does from now on.
    #[inline]
    pub(crate) fn set_running(&mut self, now: Nanos, running: Running) {
        self.running = running;
        // Consecutive handlers count as one stretch away from threads.
        if matches!(running, Running::At(Level::Hard | Level::Soft)) {
            self.away_since.get_or_insert(now);
        } else if let Some(since) = self.away_since.take() {
            self.outcome.longest_away = self.outcome.longest_away.max(now - since);
        }
    }

    /// The time that it has not been idle.
    pub(crate) fn busy(&self) -> Nanos {
        self.outcome.hard + self.outcome.soft + self.outcome.thread
    }

    /// Whether it runs a thread.
    pub(crate) fn is_at_a_thread(&self) -> bool {
        self.running == Running::At(Level::Thread)
    }

    /// Its totals until `now`, to which it is accounted.
    pub(crate) fn until(&self, now: Nanos) -> CpuOutcome {
        let away = self.away_since.map_or(Nanos::ZERO, |since| now - since);
        CpuOutcome { longest_away: self.outcome.longest_away.max(away), ..self.outcome }
    }
}

/// What interrupts a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Irq {
    /// A vector of a device.
    Vector {
        /// The device.
        device: usize,
        /// The vector.
        vector: usize,
    },
    /// The shared notification of all posted vectors.
    Posted,
    /// The timer of a sleeping thread.
    Timer(TaskId),
    /// Another CPU has sent completions.
    Remote,
    /// Another CPU has woken a thread that is to run here.
    Resched,
}

/// An interrupt under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActiveIrq {
    pub(crate) irq: Irq,
    pub(crate) stage: IrqStage,
    /// Posted interrupts: the state of the handler, and the vectors of the round that are left.
    pub(crate) handling: Handling,
    pub(crate) bits: Bits,
}

/// The next step of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IrqStage {
    /// The first or the next vector.
    Next,
    /// The vector's n-th queue.
    Queue {
        /// The device.
        device: usize,
        /// The vector.
        vector: usize,
        /// Which of its queues.
        n: usize,
    },
    /// Return from the interrupt.
    Leave,
}

/// Where a vector's messages go, and which queues they announce.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) cpu: usize,
    /// Its bit in the posted descriptor of that CPU.
    pub(crate) bit: usize,
    /// The queues whose entries it announces.
    pub(crate) queues: Vec<usize>,
    /// Its interrupt thread.
    pub(crate) thread: TaskId,
    /// It is pending at the CPU: further messages are merged.
    pub(crate) pending: bool,
}
