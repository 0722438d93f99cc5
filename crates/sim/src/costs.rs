//! The price list of a machine: what each step of an I/O costs. Fields whose doc begins with
//! *Delay* are latency, during which the CPU may do other work; all other fields are CPU time.

mod sets;

use completion::SleepCosts;
use emu::Service;
use serde::{Deserialize, Serialize};
use units::Nanos;

/// The price list of a machine: what each step of an I/O costs, in nanoseconds of CPU time, or of
/// latency if the doc of the field begins with *Delay*. Serialized as a table of whole numbers;
/// unknown fields are errors.
///
/// [`Costs::BARE_METAL`] and [`Costs::VIRTUAL`] are built in, with the source of each figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// What interrupts cost.
    pub interrupt: InterruptCosts,
    /// What threads cost.
    pub thread: ThreadCosts,
    /// What the bus and the caches cost.
    pub memory: MemoryCosts,
    /// What the code that both kinds of host run costs.
    pub library: LibraryCosts,
    /// What a kernel's block layer costs, per command.
    pub block: BlockCosts,
    /// What `io_submit` and `io_getevents` cost.
    pub libaio: EngineCosts,
    /// What `io_uring_enter` costs.
    pub io_uring: EngineCosts,
    /// CPU time of wake-ups that the woken thread's CPU clock does not include.
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
    /// Returning to the interrupted code.
    pub exit: Nanos,
    /// Signalling end of interrupt (EOI) to the interrupt controller. Expensive if it traps into a
    /// hypervisor.
    pub end: Nanos,
    /// The handler of one vector, without the work that it finds.
    pub handler: Nanos,
    /// One round of a posted-interrupt notification's handler that finds bits: exchanging the
    /// pending bitmap for an empty one.
    pub demultiplex: Nanos,
    /// Sending another CPU an interrupt.
    pub send: Nanos,
    /// The handler of an expired timer, in addition to entry, end and exit.
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
    /// Waking a thread: enqueueing it on a run queue. Spent on the waker's CPU.
    pub wake: Nanos,
    /// Additional cost of waking a thread of another CPU: access to that CPU's run queue, and an
    /// IPI if that CPU is idle and does not monitor memory. Spent on the waker's CPU, unless
    /// `rouse` includes it.
    pub wake_remote: Nanos,
    /// Signalling an eventfd, in addition to `wake` if a thread sleeps on it.
    pub signal: Nanos,
    /// Signalling an eventfd on which a thread of another, idle CPU sleeps: the signaller's whole
    /// cost, including the IPI. A controller that is a thread of the machine does nothing else in
    /// this time.
    pub rouse: Nanos,
    /// A switch from one thread to another, cold caches included.
    pub switch: Nanos,
    /// Additional cost of a switch on a CPU that has been idle for `idle_after`: leaving the idle
    /// loop, which in a guest ends a halt. Spent by the thread that runs next.
    pub from_idle: Nanos,
    /// Maximum that a thread spends, in addition to `switch`, to reload its working set after other
    /// threads or interrupts have used the CPU's caches.
    pub refill: Nanos,
    /// Time for which other threads and interrupts must have used the CPU for `refill` to be spent
    /// in full; after a shorter time the cost is proportional. 0: `refill` is spent in full after
    /// any time.
    pub refill_after: Nanos,
    /// Entering and leaving a system call.
    pub syscall: Nanos,
    /// Going to sleep inside a system call, without the switch.
    pub block: Nanos,
    /// Delay of an interrupt at a CPU that has been idle for `idle_after`: leaving the idle state.
    pub idle_exit: Nanos,
    /// Delay, in place of `idle_exit`, of an interrupt of the CPU's own timer, which no other CPU
    /// and no hypervisor thread has to deliver.
    pub timer_exit: Nanos,
    /// Idle time from which a CPU is in an idle state.
    pub idle_after: Nanos,
    /// Idle time from which a CPU is in a deeper idle state. 0: there is no such state.
    pub deeper_after: Nanos,
    /// Delay of an interrupt in the deeper state, in place of `idle_exit` and `timer_exit`.
    pub deeper_exit: Nanos,
    /// Idle time from which a CPU is in the deepest idle state. 0: there is no such state.
    pub deepest_after: Nanos,
    /// Delay of an interrupt in the deepest state, in place of the other exits.
    pub deepest_exit: Nanos,
    /// Idle time from which a CPU has powered off its caches.
    pub cold_after: Nanos,
    /// What the next system call that submits spends, after such an idle time, to reload its
    /// working set. Kernel host only.
    pub cold: Nanos,
    /// Setting a timer.
    pub timer: Nanos,
    /// Delay of a timer: the minimum.
    pub timer_slack: Nanos,
    /// Delay of a timer in addition to the minimum: the mean of an exponential distribution.
    pub timer_jitter: Nanos,
}

impl ThreadCosts {
    /// Delay of an interrupt at a CPU that has been idle for this long. `timer`: it is the
    /// interrupt of the CPU's own timer.
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

    /// What a thread spends to reload its working set after other threads and interrupts had its
    /// CPU for this long.
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
    /// Delay until a write to a register reaches the device.
    pub mmio_delay: Nanos,
    /// Accessing a cache line that this CPU wrote last, or has read since it was written.
    pub line_own: Nanos,
    /// Accessing a cache line that another CPU of the same NUMA node wrote last.
    pub line_node: Nanos,
    /// Accessing a cache line that a CPU of another NUMA node wrote last.
    pub line_remote: Nanos,
    /// Accessing a cache line that is in no cache.
    pub line_memory: Nanos,
    /// Delay from a device's store of an entry until the load of a spinning CPU returns it.
    pub device_line: Nanos,
    /// Contention for a lock that another CPU holds, in addition to the wait for the lock or to the
    /// failed attempt.
    pub contended_lock: Nanos,
}

/// The code that is the same in both hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LibraryCosts {
    /// A check of a completion queue's phase bit, without a lock, with the line in the cache.
    pub look: Nanos,
    /// A poll: taking the lock, freeing tags, and the check after unlocking. Without the doorbell.
    pub reap: Nanos,
    /// Each entry of a poll.
    pub entry: Nanos,
    /// Each completion handed to the thread that waits for it. User host only.
    pub deliver: Nanos,
    /// Each command built and stored. User host only.
    pub submit: Nanos,
    /// Each command that an in-process controller executes: fetching it, copying its data, posting
    /// its entry. Spent on the CPU of the controller's thread.
    pub serve: Nanos,
    /// Each call of a policy.
    pub decide: Nanos,
    /// Masking a notification.
    pub mask: Nanos,
    /// Unmasking a notification: a store and a full fence.
    pub arm: Nanos,
}

/// A kernel's block layer and NVMe driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockCosts {
    /// Each command on its way down: bio, request, tag, DMA mapping, entry stored.
    pub submit: Nanos,
    /// Each page after the first of a command's data: pinning it, and adding it to the bio. If the
    /// core has lost its caches, `line_memory` is added for the page's structure.
    pub page: Nanos,
    /// Each completion on its way up, without its reap: unmapping, tag, bio.
    pub complete: Nanos,
    /// Handing a completion to another CPU, the one that submitted the command: list and remote
    /// softirq.
    pub remote: Nanos,
}

/// One of the kernel's interfaces for asynchronous I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineCosts {
    /// A call that submits, in addition to the system call.
    pub submit_call: Nanos,
    /// Each I/O of a call that submits, without the block layer's cost.
    pub submit: Nanos,
    /// Each I/O that completes: its event in the ring.
    pub complete: Nanos,
    /// A call that waits for events, in addition to the system call.
    pub wait_call: Nanos,
    /// Each event that the application takes from the ring.
    pub take: Nanos,
}

/// CPU time of a wake-up that the woken thread's CPU clock does not include: interrupt handling and
/// context switches. Only policies use these figures: the simulated CPUs spend the costs that they
/// consist of, one by one.
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

/// Multiplies each price by `$percent` / 100.
macro_rules! scale {
    ($percent:expr, $($price:expr),* $(,)?) => { $( $price = Nanos($price.0 * $percent / 100); )* };
}

impl Costs {
    /// The distribution of the delay of timers: its minimum and its random part.
    pub(crate) fn lateness(&self) -> Service {
        let thread = &self.thread;
        Service { base: thread.timer_slack, jitter: thread.timer_jitter, ..Service::default() }
    }

    /// The prices of the same machine with slower or faster cores: CPU times become this many
    /// percent of themselves. Delays, and the cost of the bus, caches and memory, are unchanged.
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

    /// What a host on this machine would measure of its own sleeps: the CPU time of threads, and
    /// the delay of wake-ups by notification and by timer.
    pub(crate) fn cycle(&self) -> SleepCosts {
        let (interrupt, thread, library) = (&self.interrupt, &self.thread, &self.library);
        let around = interrupt.entry + interrupt.end + interrupt.exit;
        let back = thread.wake + thread.switch + thread.from_idle;
        let sleep = library.arm + library.look + thread.syscall + thread.block + library.mask;
        let taken = around + interrupt.handler + thread.signal;
        SleepCosts {
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

/// The built-in price lists by name.
pub const COSTS: [(&str, Costs); 2] = [("bare-metal", Costs::BARE_METAL), ("vm", Costs::VIRTUAL)];

/// The price list of this name: `bare-metal` or `vm`.
pub fn costs_of(name: &str) -> Option<Costs> {
    COSTS.iter().find(|(known, _)| *known == name).map(|(_, costs)| *costs)
}

#[cfg(test)]
mod tests;
