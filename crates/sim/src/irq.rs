//! Hard interrupts: what may interrupt a CPU, and how far the handler of one has come.

use completion::QueueSet;

use crate::posted::Handling;
use crate::sched::TaskId;

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
pub(crate) struct Active {
    pub(crate) irq: Irq,
    pub(crate) stage: Stage,
    /// Posted interrupts: how far their handler is, and the vectors of the round that are still to be handled.
    pub(crate) handling: Handling,
    pub(crate) bits: QueueSet,
}

/// What its next step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
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
