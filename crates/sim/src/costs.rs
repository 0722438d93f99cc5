//! What things cost on a CPU.

use completion::Cycle;
use units::Nanos;

/// The price list of a machine: CPU time of each thing that a host does, and the two delays that cost latency only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A device interrupt: entry, the handler that signals the sleeping thread's eventfd, end of interrupt, exit.
    pub interrupt: Nanos,
    /// A timer interrupt.
    pub timer_interrupt: Nanos,
    /// From the device's message to the interrupt on the CPU. Delay.
    pub message_delay: Nanos,
    /// From the interrupt to the first instruction of the thread it wakes, less `wake`: leaving idle. Delay.
    pub idle_exit: Nanos,
    /// Being woken: into the run queue, context switch, return from the system call.
    pub wake: Nanos,
    /// Going to sleep: system call, context switch away.
    pub block: Nanos,
    /// The same when it returns at once because a signal was waiting.
    pub no_block: Nanos,
    /// Setting a timer, on top of `block`.
    pub timer: Nanos,
    /// How late a timer is. Delay.
    pub timer_slack: Nanos,
    /// A doorbell write.
    pub mmio: Nanos,
    /// From a doorbell write to the device's seeing it. Delay.
    pub mmio_delay: Nanos,
    /// A look at a completion queue's phase, without a lock.
    pub look: Nanos,
    /// From the entry's store to a spinning thread's next look: the cache line moves. Delay.
    pub line_delay: Nanos,
    /// A reap: the lock, the tags' return, the look after it. Without the doorbell.
    pub reap: Nanos,
    /// Each entry of a reap.
    pub entry: Nanos,
    /// Each completion delivered to the one who waits for it.
    pub deliver: Nanos,
    /// What the application computes per completed I/O.
    pub host_work: Nanos,
    /// Each command built and stored.
    pub submit: Nanos,
    /// Each question to a policy.
    pub decide: Nanos,
    /// Masking a notification.
    pub mask: Nanos,
    /// Arming it: a store and a full fence.
    pub arm: Nanos,
}

impl Costs {
    /// A server without hypervisor. Interrupt, wake-up and idle exit add up to the 2 µs that interrupts cost over
    /// polling at queue depth 1 (figures published for NVMe on bare metal); system call and switch as measured by the
    /// usual micro-benchmarks on a core of 3 GHz; the library's own costs are its instruction counts at 3 per ns.
    pub const BARE_METAL: Costs = Costs {
        interrupt: Nanos(900),
        timer_interrupt: Nanos(700),
        message_delay: Nanos(300),
        idle_exit: Nanos(500),
        wake: Nanos(800),
        block: Nanos(700),
        no_block: Nanos(250),
        timer: Nanos(150),
        timer_slack: Nanos(0),
        mmio: Nanos(60),
        mmio_delay: Nanos(250),
        look: Nanos(5),
        line_delay: Nanos(60),
        reap: Nanos(25),
        entry: Nanos(15),
        deliver: Nanos(20),
        host_work: Nanos(0),
        submit: Nanos(40),
        decide: Nanos(5),
        mask: Nanos(5),
        arm: Nanos(15),
    };

    /// A virtual machine like the one Reap was written on: waking a thread on the other, idle CPU by an eventfd takes
    /// about 40 µs, of which 13 µs and more are CPU time; an eventfd write 0.25 µs; a cache line 0.3 µs.
    pub const VIRTUAL: Costs = Costs {
        interrupt: Nanos(4_000),
        timer_interrupt: Nanos(4_000),
        message_delay: Nanos(1_000),
        idle_exit: Nanos(25_000),
        wake: Nanos(6_000),
        block: Nanos(4_000),
        timer: Nanos(2_000),
        line_delay: Nanos(300),
        ..Costs::BARE_METAL
    };

    /// What an executor on this machine measures of its own sleeps: CPU time and delay, by notification and by timer.
    pub(crate) fn cycle(&self) -> Cycle {
        let sleep = self.arm + self.look + self.block + self.wake + self.mask;
        Cycle {
            cpu: sleep + self.interrupt,
            nap: sleep + self.timer + self.timer_interrupt,
            delay: self.message_delay + self.interrupt + self.idle_exit + self.wake,
            late: self.timer_slack + self.timer_interrupt + self.idle_exit + self.wake,
        }
    }
}
