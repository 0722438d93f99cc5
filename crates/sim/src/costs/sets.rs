//! The two built-in price lists: for bare metal, from which the comparison with published results
//! (`xtask`) starts, and for a virtual machine, of the kind that `reap calibrate` measures.

use units::Nanos;

use super::*;

impl Costs {
    /// A server without hypervisor, around 3 GHz.
    pub const BARE_METAL: Costs = Costs {
        interrupt: InterruptCosts {
            // A posted write over PCIe and the interrupt-remapping table: PCIe round trips measure
            // 600–900 ns, one way is a third of it.
            message_delay: Nanos(300),
            // Entry, end and exit with page-table isolation: 500 ns or so together in published
            // traces of nvme_irq that finds nothing; of which the end is a single MSR write.
            entry: Nanos(250),
            exit: Nanos(150),
            end: Nanos(50),
            // nvme_irq on a queue without entries: descriptor, action, one check of the phase bit.
            handler: Nanos(80),
            // Four words exchanged for zero (one cache line that the bridge has written), and the
            // test of each.
            demultiplex: Nanos(60),
            // An ICR write, x2APIC.
            send: Nanos(150),
            // hrtimer_interrupt with one expired timer.
            timer: Nanos(250),
            // An or, and a list insertion with interrupts off.
            softirq_raise: Nanos(40),
            // __do_softirq around one action.
            softirq_run: Nanos(120),
        },
        thread: ThreadCosts {
            // try_to_wake_up; with the switch it adds up to the 1–1.5 µs of pipe and futex
            // ping-pongs on one core.
            wake: Nanos(400),
            // An idle core watches the flag (mwait), so that only a line changes hands; part of
            // `wake` as it is measured.
            wake_remote: Nanos(0),
            signal: Nanos(100),
            // Signal, wake, and an interrupt to the other CPU.
            rouse: Nanos(650),
            switch: Nanos(700),
            // Included in the measured switch.
            from_idle: Nanos(0),
            // Part of the switch as it is measured, between threads that do little. By Li, Ding and
            // Shen (ExpCS 2007) it is 0 to over 1 ms, with the size of what the threads use; so it
            // is for a scenario to say.
            refill: Nanos(0),
            refill_after: Nanos(0),
            // A null system call with the usual mitigations: 100–200 ns in micro-benchmarks.
            syscall: Nanos(120),
            block: Nanos(250),
            // C1: its advertised exit latency is 1–2 µs, measured half of that; menu and teo keep a
            // CPU that is idle for a shorter time polling.
            idle_exit: Nanos(500),
            timer_exit: Nanos(500),
            idle_after: Nanos(1_000),
            // For a scenario to say: a server that is to be fast is often kept out of them. Linux's
            // intel_idle has 4 µs after 4 µs (C1E) and 170 µs after 600 µs (C6) for Ice Lake
            // servers, 10 after 20 and 133 after 600 for Skylake's.
            deeper_after: Nanos(0),
            deeper_exit: Nanos(0),
            deepest_after: Nanos(0),
            deepest_exit: Nanos(0),
            // C6 empties a core's own caches (Intel's data sheets); intel_idle enters it from a
            // predicted 600 µs on (its table for Ice Lake servers).
            cold_after: Nanos(600_000),
            // That warming up costs besides the transition is known (Antoniou et al., Agile
            // C-states, TACO 2024), how much in the kernel's I/O path is not. An estimate: 680
            // lines of code and data on a submission's way down, some 40 KiB, from the shared
            // cache, which stays on: 20 ns each.
            cold: Nanos(13_600),
            timer: Nanos(150),
            // The kernel's own hrtimers have no slack, and Reap's threads request none.
            timer_slack: Nanos(0),
            // Chosen: what cyclictest has between the least and the mean on servers that are kept
            // out of deep states is of this order.
            timer_jitter: Nanos(500),
        },
        memory: MemoryCosts {
            // A write-combining or uncached store that leaves the core: 50–100 ns between two of
            // them.
            mmio: Nanos(60),
            mmio_delay: Nanos(250),
            line_own: Nanos(1),
            // Core to core in a socket 40–60 ns, between sockets 110–140 ns, in the usual latency
            // matrices.
            line_node: Nanos(50),
            line_remote: Nanos(120),
            // DRAM of two-socket servers: 80–100 ns.
            line_memory: Nanos(90),
            device_line: Nanos(60),
            contended_lock: Nanos(100),
        },
        // The library's own instruction counts (benches/instructions.rs) at 3 per ns.
        library: LibraryCosts {
            look: Nanos(5),
            reap: Nanos(25),
            entry: Nanos(15),
            deliver: Nanos(20),
            submit: Nanos(40),
            // Half of it for a copy of 4 KiB from memory.
            serve: Nanos(400),
            decide: Nanos(5),
            mask: Nanos(5),
            arm: Nanos(15),
        },
        // 10M IOPS on one core by io_uring with IOPOLL are 100 ns for everything, at the edge of
        // what tuning gives; an untuned kernel, with accounting, takes twice that.
        block: BlockCosts {
            submit: Nanos(110),
            page: Nanos(50),
            complete: Nanos(50),
            remote: Nanos(150),
        },
        // libaio takes a call to submit and another to wait, copies an iocb in and an event out,
        // and allocates for each I/O: two to three times io_uring's cost above the block layer.
        libaio: EngineCosts {
            submit_call: Nanos(60),
            submit: Nanos(110),
            complete: Nanos(50),
            wait_call: Nanos(60),
            take: Nanos(25),
        },
        io_uring: EngineCosts {
            submit_call: Nanos(60),
            submit: Nanos(40),
            complete: Nanos(15),
            wait_call: Nanos(0),
            take: Nanos(5),
        },
        // The sum of what such a wake-up takes above: entry, end and exit, handler and signal, or
        // the timer's, then wake and switch.
        wake_up: WakeUpCosts { eventfd: Nanos(1_730), io_uring: Nanos(1_730), timer: Nanos(1_800) },
    };

    /// A virtual machine like the one Reap was written on: waking a thread on the other, idle CPU
    /// by an eventfd takes about 40 µs, of which 13 µs and more are CPU time; an eventfd write 0.25
    /// µs; a cache line 0.3 µs.
    pub const VIRTUAL: Costs = Costs {
        interrupt: InterruptCosts {
            message_delay: Nanos(1_000),
            // The exit to the hypervisor and back, on the way in and at the end of the interrupt.
            entry: Nanos(1_800),
            end: Nanos(1_800),
            send: Nanos(2_000),
            timer: Nanos(400),
            ..Costs::BARE_METAL.interrupt
        },
        thread: ThreadCosts {
            wake: Nanos(1_000),
            signal: Nanos(250),
            // The interrupt to the other CPU is an exit; the hypervisor has a thread of its own to
            // wake.
            rouse: Nanos(4_000),
            switch: Nanos(6_000),
            block: Nanos(3_000),
            // The halted virtual CPU is a sleeping thread of the host's.
            idle_exit: Nanos(25_000),
            // What the measured lateness of a timer (below) leaves of it.
            timer_exit: Nanos(5_000),
            // Programming the timer is an exit.
            timer: Nanos(2_000),
            // Measured on the machine that Reap was written on: 20,000 absolute sleeps each of 20,
            // 50 and 200 µs with a slack of 1 ns end 17 to 21 µs late at the median, and 5 to 7 µs
            // more at 90 %. (One in a thousand is 0.4 to 1.5 ms late: its host has others to
            // serve.)
            timer_jitter: Nanos(4_000),
            ..Costs::BARE_METAL.thread
        },
        memory: MemoryCosts {
            line_node: Nanos(300),
            line_remote: Nanos(300),
            device_line: Nanos(300),
            ..Costs::BARE_METAL.memory
        },
        // What a loop of idle priority on the same CPU loses to a wake-up beyond the thread's own
        // time: 9 to 17 µs by mode and depth.
        wake_up: WakeUpCosts {
            eventfd: Nanos(12_000),
            io_uring: Nanos(12_000),
            timer: Nanos(12_000),
        },
        ..Costs::BARE_METAL
    };
}
