//! What things cost: the price list of a machine.

mod sets;

use completion::Cycle;
use emu::Service;
use serde::{Deserialize, Serialize};
use units::Nanos;

/// The price list of a machine. All in nanoseconds of CPU time, but for the fields that say
/// *delay*: those cost latency only. Written and read as a table of whole numbers; unknown fields
/// are errors.
///
/// Two sets ship: [`Costs::BARE_METAL`] and [`Costs::VIRTUAL`], with the source of each figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// What interrupts cost.
    pub interrupt: InterruptCosts,
    /// What threads cost.
    pub thread: ThreadCosts,
    /// What the bus and the caches cost.
    pub memory: MemoryCosts,
    /// What the library costs in whichever context it runs, and the driver's code that it shares
    /// with a kernel.
    pub library: LibraryCosts,
    /// What a kernel's block layer costs, per command.
    pub block: BlockCosts,
    /// What `io_submit` and `io_getevents` cost.
    pub libaio: EngineCosts,
    /// What `io_uring_enter` costs.
    pub io_uring: EngineCosts,
    /// What wake-ups take from other work.
    pub wake_up: WakeUpCosts,
}

/// Hard interrupts and softirqs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterruptCosts {
    /// Delay from the device's message to its being pending at the CPU.
    pub message_delay: Nanos,
    /// From accepting an interrupt to the first instruction of its handler: registers saved,
    /// mitigations, accounting.
    pub entry: Nanos,
    /// Back to what was interrupted.
    pub exit: Nanos,
    /// Telling the interrupt controller that this one is done: dear where it traps into a
    /// hypervisor.
    pub end: Nanos,
    /// The handler of one vector, without whatever it finds.
    pub handler: Nanos,
    /// One round of a posted-interrupt notification's handler that finds bits: exchanging the
    /// pending bitmap for an empty one.
    pub demultiplex: Nanos,
    /// Sending another CPU an interrupt.
    pub send: Nanos,
    /// The handler of an expired timer, on top of entry, end and exit.
    pub timer: Nanos,
    /// Marking a softirq as pending, and the poller as scheduled.
    pub softirq_raise: Nanos,
    /// Going through the pending softirqs once: before and after the pollers.
    pub softirq_run: Nanos,
}

/// Threads, their sleeps, and their timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadCosts {
    /// Waking a thread: its waker's part, into the run queue. It is spent where the waker runs.
    pub wake: Nanos,
    /// What waking a thread of another CPU costs on top: that CPU's run queue, and, where an idle
    /// CPU does not watch memory, an interrupt to it. Spent where the waker runs. Not where `rouse`
    /// is all that the giver pays.
    pub wake_remote: Nanos,
    /// Signalling an eventfd, on top of `wake` if anybody sleeps on it.
    pub signal: Nanos,
    /// Signalling an eventfd on which a thread of another, idle CPU sleeps: all that its giver
    /// pays, the interrupt to that CPU included. Where a controller is a thread of the machine's,
    /// it does nothing else meanwhile.
    pub rouse: Nanos,
    /// From one thread to another, cold caches included.
    pub switch: Nanos,
    /// What it costs on top where the CPU had nothing to do for `idle_after` before: its way out of
    /// the idle loop, which in a guest is the end of a halt. Spent by the thread that runs next.
    pub from_idle: Nanos,
    /// What a thread that is back on its CPU pays at most, on top of `switch`, because others had
    /// the caches in between: its working set, fetched again.
    pub refill: Nanos,
    /// It pays that much when others, interrupts among them, had the CPU for so long, and
    /// proportionally less when it was less. 0: for any time at all.
    pub refill_after: Nanos,
    /// Into a system call and out of it.
    pub syscall: Nanos,
    /// Going to sleep inside a system call, without the switch.
    pub block: Nanos,
    /// Delay of an interrupt at a CPU that has been idle for `idle_after`: leaving the idle state.
    pub idle_exit: Nanos,
    /// The same where the interrupt is the CPU's own timer, which no other CPU, and no hypervisor's
    /// thread, has to bring.
    pub timer_exit: Nanos,
    /// A CPU that has been idle for less is still awake.
    pub idle_after: Nanos,
    /// A CPU that has been idle for so long is in a deeper state. 0: there is none.
    pub deeper_after: Nanos,
    /// Delay of an interrupt there, in place of `idle_exit`.
    pub deeper_exit: Nanos,
    /// A CPU that has been idle for so long is in the deepest state. 0: there is none.
    pub deepest_after: Nanos,
    /// Delay of an interrupt there, in place of both.
    pub deepest_exit: Nanos,
    /// A CPU that has been idle for so long has switched its caches off.
    pub cold_after: Nanos,
    /// What its next system call that submits pays for that: its own working set, fetched again.
    /// Kernel host only.
    pub cold: Nanos,
    /// Setting a timer.
    pub timer: Nanos,
    /// Delay of a timer: how late it fires, at least.
    pub timer_slack: Nanos,
    /// Mean of an exponentially distributed delay on top.
    pub timer_jitter: Nanos,
}

impl ThreadCosts {
    /// Delay of an interrupt, its own timer's or another, at a CPU that has been idle for so long.
    pub(crate) fn exit_after(&self, idle: Nanos, timer: bool) -> Nanos {
        let reached = |after: Nanos| after > Nanos::ZERO && idle >= after;
        match self {
            _ if reached(self.deepest_after) => self.deepest_exit,
            _ if reached(self.deeper_after) => self.deeper_exit,
            _ if idle < self.idle_after => Nanos::ZERO,
            _ if timer => self.timer_exit,
            _ => self.idle_exit,
        }
    }

    /// What a thread pays for the caches when others had its CPU for so long.
    pub(crate) fn refill_after(&self, others: Nanos) -> Nanos {
        if self.refill == Nanos::ZERO {
            return Nanos::ZERO;
        }
        let full = self.refill_after.0.max(1);
        Nanos(self.refill.0.saturating_mul(others.0.min(full)) / full)
    }
}

/// The bus and the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryCosts {
    /// A write to a device's register.
    pub mmio: Nanos,
    /// Delay until the device sees it.
    pub mmio_delay: Nanos,
    /// A cache line that this CPU wrote last, or has read since.
    pub line_own: Nanos,
    /// One that another CPU of the node wrote last.
    pub line_node: Nanos,
    /// One that a CPU of another node wrote last.
    pub line_remote: Nanos,
    /// One that no cache has.
    pub line_memory: Nanos,
    /// Delay from a device's store of an entry until a CPU that spins on it sees it.
    pub device_line: Nanos,
    /// A lock that another CPU holds: on top of waiting for it, or of the failed attempt to take
    /// it.
    pub contended_lock: Nanos,
}

/// The code that is the same in both hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LibraryCosts {
    /// A look at a completion queue's phase, without a lock, the line being in the cache.
    pub look: Nanos,
    /// A reap: the lock, the tags' return, the look after it. Without the doorbell.
    pub reap: Nanos,
    /// Each entry of a reap.
    pub entry: Nanos,
    /// Each completion handed to the thread that waits for it. User host only.
    pub deliver: Nanos,
    /// Each command built and stored. User host only.
    pub submit: Nanos,
    /// Each command that a controller in process serves: fetched, its data copied, posted. On the
    /// CPU that its thread has to itself.
    pub serve: Nanos,
    /// Each question to a policy.
    pub decide: Nanos,
    /// Masking a notification.
    pub mask: Nanos,
    /// Arming it: a store and a full fence.
    pub arm: Nanos,
}

/// A kernel's block layer and NVMe driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockCosts {
    /// Each command on its way down: bio, request, tag, DMA mapping, entry stored.
    pub submit: Nanos,
    /// Each further page of a command's data: pinned, and put into the bio. Its page structure
    /// comes from memory if the core has lost its caches.
    pub page: Nanos,
    /// Each completion on its way up, without its reap: unmapping, tag, bio.
    pub complete: Nanos,
    /// Handing a completion to the CPU that submitted it, where that is another one: list and
    /// remote softirq.
    pub remote: Nanos,
}

/// One of the kernel's interfaces for asynchronous I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineCosts {
    /// A call that submits, on top of the system call.
    pub submit_call: Nanos,
    /// Each I/O of it, above the block layer.
    pub submit: Nanos,
    /// Each I/O that completes: its event in the ring.
    pub complete: Nanos,
    /// A call that waits for events, on top of the system call.
    pub wait_call: Nanos,
    /// Each event that the application takes from the ring.
    pub take: Nanos,
}

/// CPU time that a wake-up takes from other work on top of the woken thread's own: interrupt and
/// switches, which no thread's clock counts. A policy is told of it. The simulated CPUs do not
/// spend it in addition: they spend the prices that it consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeUpCosts {
    /// A wake-up by an eventfd that a device or another thread signals.
    pub eventfd: Nanos,
    /// A wake-up in `io_uring_enter`.
    pub io_uring: Nanos,
    /// A wake-up by a timer.
    pub timer: Nanos,
}

/// Prices in percent of themselves.
macro_rules! scale {
    ($percent:expr, $($price:expr),* $(,)?) => { $( $price = Nanos($price.0 * $percent / 100); )* };
}

impl Costs {
    /// How late timers are: the least, and what is random.
    pub(crate) fn lateness(&self) -> Service {
        let thread = &self.thread;
        Service { base: thread.timer_slack, jitter: thread.timer_jitter, ..Service::default() }
    }

    /// The same machine with slower or faster cores: what a CPU executes takes this many percent of
    /// its price. Delays, the bus and the way to caches and memory are as they were.
    pub fn at_percent(mut self, percent: u32) -> Costs {
        let percent = u64::from(percent);
        let Costs { interrupt: i, thread: t, library: l, block: b, .. } = &mut self;
        scale!(
            percent,
            i.entry,
            i.exit,
            i.end,
            i.handler,
            i.demultiplex,
            i.send,
            i.timer,
            i.softirq_raise,
            i.softirq_run
        );
        scale!(
            percent,
            t.wake,
            t.wake_remote,
            t.signal,
            t.rouse,
            t.switch,
            t.from_idle,
            t.syscall,
            t.block,
            t.timer
        );
        scale!(
            percent, l.look, l.reap, l.entry, l.deliver, l.submit, l.serve, l.decide, l.mask, l.arm
        );
        scale!(percent, b.submit, b.page, b.complete, b.remote);
        for engine in [&mut self.libaio, &mut self.io_uring] {
            scale!(
                percent,
                engine.submit_call,
                engine.submit,
                engine.complete,
                engine.wait_call,
                engine.take
            );
        }
        scale!(percent, self.wake_up.eventfd, self.wake_up.io_uring, self.wake_up.timer);
        self
    }

    /// What an executor on this machine measures of its own sleeps: its threads' CPU time and the
    /// delay, by notification and by timer.
    pub(crate) fn cycle(&self) -> Cycle {
        let (interrupt, thread, library) = (&self.interrupt, &self.thread, &self.library);
        let around = interrupt.entry + interrupt.end + interrupt.exit;
        let back = thread.wake + thread.switch + thread.from_idle;
        let sleep = library.arm + library.look + thread.syscall + thread.block + library.mask;
        let taken = around + interrupt.handler + thread.signal;
        Cycle {
            cpu: sleep,
            nap: sleep + thread.timer,
            delay: interrupt.message_delay + taken + thread.idle_exit + back,
            late: thread.timer_slack
                + thread.timer_jitter
                + around
                + interrupt.timer
                + thread.timer_exit
                + back,
            message: around + interrupt.handler,
            wake: self.wake_up.eventfd,
            timer_wake: self.wake_up.timer,
        }
    }
}

/// The price lists by name.
pub const COSTS: [(&str, Costs); 2] = [("bare-metal", Costs::BARE_METAL), ("vm", Costs::VIRTUAL)];

/// The price list of this name: `bare-metal` or `vm`.
pub fn costs_of(name: &str) -> Option<Costs> {
    COSTS.iter().find(|(known, _)| *known == name).map(|(_, costs)| *costs)
}

#[cfg(test)]
mod tests;
