//! What runs on a CPU: threads of jobs, and the interrupt handlers, softirqs and interrupt threads
//! that reap completions for those threads (a queue's *drain*). In this crate *party* means a
//! thread of a job or a drain.
//!
//! A step takes effect at once and returns how long the CPU is busy with it. What happens in that
//! time (entries posted, interrupts, a mode switch) is visible to the next step only. So what must
//! be able to interleave with other parties is a step of its own: arming, the poll after it, and
//! blocking are three steps.

pub(crate) mod application;
pub(crate) mod drain;
pub(crate) mod multipath;
pub(crate) mod paths;
pub(crate) mod sw_queue;
pub(crate) mod thread;

use completion::{Mode, Preset};
use driver::{Completed, ProtocolViolation};
use units::Nanos;

use crate::ablation::Ablation;
use crate::hw_queue::HwQueue;
use crate::sched::TaskId;
use crate::{Costs, Engine, HostStack, Lines};
use drain::Drain;

/// Which party reaps a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// The thread that waits for the completions.
    Waiter,
    /// The hard interrupt.
    Hard,
    /// The softirq that the interrupt raises.
    Soft,
    /// The interrupt thread of the vector.
    Thread,
}

impl Context {
    /// The party that reaps in a mode: the interrupt thread if the mode has drain threads. Else, in
    /// the user host, the thread that waits. In the kernel host the softirq for `irq-poll`, the
    /// thread that waits for other modes that mask, and the hard interrupt for modes that never
    /// mask.
    pub(crate) fn of(mode: Mode, host: HostStack) -> Context {
        match host {
            _ if mode.facts().drain_thread => Context::Thread,
            HostStack::User => Context::Waiter,
            HostStack::Kernel if matches!(mode.preset(), Preset::IrqPoll(_)) => Context::Soft,
            HostStack::Kernel if mode.facts().masks => Context::Waiter,
            HostStack::Kernel => Context::Hard,
        }
    }
}

/// The CPU and the I/O interface of a thread of a job. Kept by [`TaskId`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) cpu: usize,
    pub(crate) engine: Engine,
}

/// What a step may read and change: the clock, the price list, the queues.
pub(crate) struct StepContext<'a> {
    pub(crate) now: Nanos,
    /// The CPU that the step runs on.
    pub(crate) cpu: usize,
    pub(crate) host: HostStack,
    pub(crate) context: Context,
    pub(crate) ablation: &'a Ablation,
    pub(crate) costs: &'a Costs,
    pub(crate) lines: &'a mut Lines,
    pub(crate) queues: &'a mut [HwQueue],
    /// By queue: what reaps it for the threads of jobs.
    pub(crate) drains: &'a mut [Drain],
    pub(crate) owners: &'a [Owner],
    /// Another thread of this CPU is ready.
    pub(crate) cpu_wanted: bool,
    /// What the step does to other parties.
    pub(crate) out: &'a mut Vec<Effect>,
}

/// What a step does to other parties.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    /// A completion for another thread.
    Deliver(TaskId, Completed),
    /// A completion to be finished on the CPU that submitted its command.
    Remote(TaskId, Completed),
    /// A thread has to check its state again, and is woken for that.
    Poke(TaskId),
    /// Tags of a queue are free again.
    TagsFree(usize),
    /// A queue has to be polled: a party that would have polled it found its lock held.
    Kick(usize),
    /// The controller violated the protocol.
    Violation(usize, ProtocolViolation),
    /// A controller's ANA log page has to be read.
    ReadAna(usize),
    /// A controller has to be reset.
    Reset(usize),
    /// A thread is past its start delay and its ramp: measuring begins.
    Measured,
}

/// How a step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The step takes this CPU time.
    Busy(Nanos),
    /// The step takes this CPU time, and no other party can tell when it took effect, so the next
    /// step may follow at the same instant.
    Private(Nanos),
    /// The thread polls until an entry is there or until this instant.
    Spin(Nanos),
    /// The thread leaves the CPU until it is woken, at this instant at the latest.
    Block(Nanos),
    /// The thread has ended.
    Finished,
}
