//! A thread as the scheduler sees it: of a job, of a vector, ksoftirqd, a hog.

use units::Nanos;

use crate::Host;
use crate::host::thread::Thread;
use crate::sched::Share;

/// A thread as the scheduler sees it.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) cpu: usize,
    pub(super) share: Share,
    /// CPU time that it has had.
    pub(super) runtime: Nanos,
    /// Preempted: what is left of its step.
    pub(super) left: Option<Nanos>,
    pub(super) state: State,
    pub(super) body: Body,
    /// It looks at its queues until then; and its CPU time when it began.
    pub(super) spin: Option<(Nanos, Nanos)>,
    /// How long its CPU had been busy when it left it last.
    pub(super) left_at: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its stage has not begun.
    Unborn,
    /// Runs, or is ready to.
    Ready,
    /// Off the CPU, until this instant at the latest.
    Blocked(Nanos),
    Finished,
}

/// What a thread does.
#[derive(Debug)]
pub(super) enum Body {
    /// A job's.
    Job(Box<Thread>),
    /// A vector's: takes the entries of its queues, in order.
    Vector {
        queues: Vec<usize>,
        n: usize,
        /// It looks again at this instant, at the latest.
        until: Nanos,
        /// Notified since it began.
        again: bool,
    },
    /// Does what the softirq has left over.
    Ksoftirqd,
    /// Computes for ever.
    Hog,
}

impl Task {
    pub(super) fn new(cpu: usize, body: Body, state: State, host: Host) -> Task {
        // A kernel's interrupt threads are `SCHED_FIFO`; the one that Reap starts for a vector is a thread as any other.
        let first = host == Host::Kernel && matches!(body, Body::Vector { .. });
        let share = Share { vruntime: Nanos::ZERO, first };
        Task { cpu, share, runtime: Nanos::ZERO, left: None, state, body, spin: None, left_at: Nanos::ZERO }
    }

    pub(super) fn thread(&self) -> Option<&Thread> {
        match &self.body {
            Body::Job(thread) => Some(thread),
            _ => None,
        }
    }

    pub(super) fn thread_mut(&mut self) -> Option<&mut Thread> {
        match &mut self.body {
            Body::Job(thread) => Some(thread),
            _ => None,
        }
    }

    /// A sleeping thread is to wake: until when it meant to sleep. `None`: it does not sleep.
    pub(super) fn wakes(&mut self) -> Option<Nanos> {
        let State::Blocked(until) = self.state else { return None };
        self.state = State::Ready;
        Some(until)
    }

    /// Whether it sleeps, and its timer has a reason to wake it.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        matches!(self.state, State::Blocked(until) if until <= now)
    }

    /// Its vector has been notified.
    pub(super) fn notified(&mut self) {
        if let Body::Vector { again, .. } = &mut self.body {
            *again = true;
        }
    }

    /// Whether its next step is nobody else's business, so that it may be taken before the time of the last one has
    /// passed.
    pub(super) fn goes_on_privately(&self) -> bool {
        self.thread().is_some_and(Thread::is_private)
    }
}
