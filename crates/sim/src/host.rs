//! What runs on a CPU: the threads of jobs, and the parties that take completions for them. Each has its effect at once and says
//! how long the CPU is busy with it; whatever happens in that time (entries posted, interrupts, a switch of mode) meets
//! it before its next step. So a step is as small as what another party may come between: arming, the look after it,
//! and blocking are three.

pub(crate) mod application;
pub(crate) mod drain;
pub(crate) mod multipath;
pub(crate) mod paths;
pub(crate) mod sw_queue;
pub(crate) mod thread;

use completion::{Mode, Preset};
use driver::{Completed, ProtocolViolation};
use units::Nanos;

use crate::habits::Habits;
use crate::hw_queue::HwQueue;
use crate::sched::TaskId;
use crate::{Costs, Engine, Host, Lines};
use drain::Drain;

/// Where the entries of a queue are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// By the thread that waits for them.
    Waiter,
    /// In the hard interrupt.
    Hard,
    /// In the softirq that the interrupt schedules.
    Soft,
    /// In a thread of the vector's own.
    Thread,
}

impl Context {
    /// Where a mode takes entries. In the user host the waiting thread does, if none of the vector's own; a kernel's
    /// handler does for a queue that is never masked, and its softirq for one that has a poller scheduled. The other modes look by
    /// themselves.
    pub(crate) fn of(mode: Mode, host: Host) -> Context {
        match host {
            _ if mode.facts().drain_thread => Context::Thread,
            Host::User => Context::Waiter,
            Host::Kernel if matches!(mode.preset(), Preset::IrqPoll(_)) => Context::Soft,
            Host::Kernel if mode.facts().masks => Context::Waiter,
            Host::Kernel => Context::Hard,
        }
    }
}

/// Whose commands complete: the thread's CPU and interface, by [`TaskId`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) cpu: usize,
    pub(crate) engine: Engine,
}

/// What a step reaches: the clock, the prices, the queues.
pub(crate) struct StepContext<'a> {
    pub(crate) now: Nanos,
    /// The CPU that it runs on.
    pub(crate) cpu: usize,
    pub(crate) host: Host,
    pub(crate) context: Context,
    pub(crate) habits: &'a Habits,
    pub(crate) costs: &'a Costs,
    pub(crate) lines: &'a mut Lines,
    pub(crate) queues: &'a mut [HwQueue],
    /// Of each queue, who takes its entries where no waiting thread does.
    pub(crate) drains: &'a mut [Drain],
    pub(crate) owners: &'a [Owner],
    /// Another thread of this CPU is ready.
    pub(crate) cpu_wanted: bool,
    /// Effects of the step on other parties.
    pub(crate) out: &'a mut Vec<Effect>,
}

/// What a step does to others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    /// A completion for another thread.
    Deliver(TaskId, Completed),
    /// The same, to be finished on the CPU that submitted it.
    Remote(TaskId, Completed),
    /// A thread looks up from whatever it waits for.
    Poke(TaskId),
    /// Tags of a queue are free again.
    TagsFree(usize),
    /// Somebody has to look at a queue: who would have found its lock held.
    Kick(usize),
    /// The controller of a queue broke the protocol.
    Violation(usize, ProtocolViolation),
    /// A controller's ANA log page is to be read.
    ReadAna(usize),
    /// A controller is to be reset.
    Reset(usize),
    /// A job's thread is past its start delay and its ramp: from now on it is measured.
    Measured,
}

/// How long a thread is at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// CPU time.
    Busy(Nanos),
    /// The same, and nobody can tell whether what follows came at once or after it.
    Private(Nanos),
    /// Looks at its queues again and again, until an entry is there or this instant has come.
    Spin(Nanos),
    /// Off the CPU until it is woken, and until this instant at the latest.
    Block(Nanos),
    /// Done for good.
    Finished,
}
