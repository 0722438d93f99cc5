//! One CPU: interrupts come first, then softirqs, then a thread; and who had its time. Hard interrupts: what may interrupt it, and how far
//! the handler of one has come.

use std::collections::VecDeque;

use driver::Completed;
use units::Nanos;

use crate::CpuOutcome;
use crate::posted::{Bits, Descriptor, Handling};
use crate::sched::{RtQuota, RunQueue, TaskId};
use crate::softirq::Pollers;

/// What may run on a CPU, the most urgent first. Each takes the CPU from those after it, in the middle of a step, which
/// goes on later for as long as it had left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// A hard interrupt; one at a time.
    Hard = 0,
    /// A softirq.
    Soft = 1,
    /// A thread.
    Thread = 2,
}

/// What a CPU is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Running {
    /// Nothing, since then.
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
    /// By level, what is left of the step under way.
    pub(crate) left: [Option<Nanos>; 3],
    /// Accounted until then.
    since: Nanos,
    /// Since when interrupts and softirqs have kept threads away.
    away_since: Option<Nanos>,
    pub(crate) outcome: CpuOutcome,
    /// Interrupts that wait for the one under way to end.
    pub(crate) irqs: VecDeque<Irq>,
    pub(crate) active: Option<ActiveIrq>,
    pub(crate) descriptor: Descriptor,
    /// Device and vector of each bit of the descriptor.
    pub(crate) bits: Vec<(usize, usize)>,
    /// Completions that other CPUs have sent here, and whether their interrupt is on its way.
    pub(crate) remote: Vec<(TaskId, Completed)>,
    /// Of these, the ones that the interrupt under way finishes.
    pub(crate) remote_begun: usize,
    /// The handler under way has begun with the queue that it is at.
    pub(crate) draining: bool,
    pub(crate) pollers: Pollers,
    pub(crate) run_queue: RunQueue,
    pub(crate) current: Option<TaskId>,
    /// CPU time of the current thread since it was switched to.
    pub(crate) ran: Nanos,
    /// When the current thread's turn ends, if others are ready.
    pub(crate) slice_ends: Nanos,
    /// A thread that is ready is to have the CPU instead of the current one.
    pub(crate) resched: bool,
    /// The current one asks for that itself: another one is next in any case.
    pub(crate) yields: bool,
    /// What interrupt threads have had of the period.
    pub(crate) quota: RtQuota,
    /// It has been idle since a thread last had it, and was no longer awake.
    pub(crate) has_idled: bool,
    /// Something has changed on it during this event.
    pub(crate) changed: bool,
}

impl Cpu {
    pub(crate) fn new(now: Nanos, pollers: Pollers) -> Cpu {
        Cpu { since: now, pollers, slice_ends: Nanos::MAX, has_idled: true, ..Cpu::default() }
    }

    /// Accounts for the time until `now`. The part of it that a thread had.
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

    /// From now on it is at this.
    #[inline]
    pub(crate) fn set_running(&mut self, now: Nanos, running: Running) {
        self.running = running;
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

    /// Whether it runs a thread, or nothing.
    pub(crate) fn is_at_a_thread(&self) -> bool {
        self.running == Running::At(Level::Thread)
    }

    /// What it has done by now, until when it is accounted for.
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
    /// The one notification that stands for whatever has been posted.
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
    /// Posted interrupts: how far their handler is, and the vectors of the round that are still to be handled.
    pub(crate) handling: Handling,
    pub(crate) bits: Bits,
}

/// What its next step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IrqStage {
    /// The first vector, or the next one.
    Next,
    /// Whatever the vector's n-th queue needs.
    Queue {
        /// The device.
        device: usize,
        /// The vector.
        vector: usize,
        /// Which of its queues.
        n: usize,
    },
    /// Back to what was interrupted.
    Leave,
}

/// Where a vector's messages go, and what they stand for.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) cpu: usize,
    /// Its bit in that CPU's descriptor.
    pub(crate) bit: usize,
    /// The queues that it announces entries of.
    pub(crate) queues: Vec<usize>,
    /// The thread that drains them, where one does.
    pub(crate) thread: TaskId,
    /// Pending at the CPU: further messages are merged into it.
    pub(crate) pending: bool,
}
