//! What runs on a CPU: threads of jobs, and the handlers, softirqs and interrupt threads that reap
//! completions for them.
//!
//! A step takes effect at once and returns how long the CPU is busy with it. What happens in that
//! time (entries posted, interrupts, a mode switch) is visible to the next step. Steps are
//! therefore as small as the interleavings that matter: arming, the poll after it, and blocking are
//! three steps.

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
    /// The party that reaps in a mode. In the user host it is the waiting thread, unless the mode
    /// has drain threads. In a kernel it is the hard interrupt for queues that are never masked,
    /// and the softirq for `irq-poll`. Other modes poll by themselves.
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

/// The CPU and interface of the thread whose command completes, by [`TaskId`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) cpu: usize,
    pub(crate) engine: Engine,
}

/// What a step can reach: clock, prices, queues.
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
    /// By queue: the party that reaps it for others.
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
    /// A completion that is finished on the CPU that submitted it.
    Remote(TaskId, Completed),
    /// A thread checks its state again, and is woken for that.
    Poke(TaskId),
    /// Tags of a queue are free again.
    TagsFree(usize),
    /// A queue has to be polled: a party that would have polled it found its lock held.
    Kick(usize),
    /// The controller broke the protocol.
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
    /// It takes CPU time.
    Busy(Nanos),
    /// It takes CPU time, but its order with the next step is invisible to other parties.
    Private(Nanos),
    /// Polls until an entry is there or this instant has come.
    Spin(Nanos),
    /// Off the CPU until it is woken, or until this instant.
    Block(Nanos),
    /// The thread has ended.
    Finished,
}
