//! The counters: their values at one moment, and the differences between two moments. The module
//! `ebpf` collects them.

use crate::histogram::{Linear, Log2};
use std::time::Duration;

/// The contexts in which a completion can run, in the order of `enum context` in `bpf/shared.h`.
pub(crate) const CONTEXTS: [&str; 5] =
    ["in_interrupt", "in_softirq", "other_cpu", "polled", "elsewhere"];

/// Completions by context.
pub(crate) type ContextCounts = [u64; CONTEXTS.len()];

/// All counters at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// Time since tracing began, or since the earlier moment.
    pub time: Duration,
    pub lines: Vec<LineCounts>,
    pub queues: Vec<QueueCounts>,
    pub latencies: Vec<Latency>,
    /// Lost events, in the order of [`LOST`].
    pub lost: [u64; LOST.len()],
}

/// Counts of an interrupt line of a block device.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LineCounts {
    pub irq: u32,
    pub name: String,
    pub interrupts: u64,
    /// Completions per sampled cycle. A cycle lasts from one interrupt of the line to the next.
    pub per_interrupt: Linear,
    /// Time from the interrupt to the softirq or poller that handles it.
    pub to_softirq: Log2,
    /// Time from the interrupt to each completion.
    pub to_completion: Log2,
    pub per_cpu: Vec<LineCpuCounts>,
}

/// Interrupts of one line on one CPU, and their CPU time in hard interrupt and in softirq.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LineCpuCounts {
    pub interrupts: u64,
    pub hard_ns: u64,
    pub soft_ns: u64,
}

/// Counts of a hardware queue of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct QueueCounts {
    pub disk: String,
    pub number: u32,
    pub polled: bool,
    /// The queue's interrupt line, if known.
    pub irq: Option<u32>,
    pub contexts: ContextCounts,
    /// Completions by CPU.
    pub per_cpu: Vec<u64>,
    /// With `-Q`: completions of this queue per cycle, without cycles that completed none of them.
    pub per_interrupt: Linear,
    /// With `-Q`: time from the interrupt to each completion.
    pub to_completion: Log2,
}

/// Time from issue to completion of one class of requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Latency {
    /// The device, or with `-Q` the queue.
    pub name: String,
    /// Operation of the request (`enum req_op` in linux/blk_types.h).
    pub op: u16,
    /// Size class: log2 of the size in units of 512 bytes, rounded up; 0 is 512 bytes and less.
    pub size: u16,
    pub time: Log2,
}

impl Latency {
    pub(crate) fn op_name(&self) -> &'static str {
        match self.op {
            0 => "read",
            1 => "write",
            2 => "flush",
            3 => "discard",
            5 => "secure erase",
            7 => "zone append",
            9 => "write zeroes",
            // REQ_OP_DRV_IN and REQ_OP_DRV_OUT.
            34 | 35 => "passthrough",
            _ => "other",
        }
    }

    pub(crate) fn size_name(&self) -> String {
        match self.size {
            0 => "512 B".to_owned(),
            class @ 1..=10 => format!("{} KiB", (1u64 << class) / 2),
            // Bounded: the value comes from the kernel, and the shift must not overflow.
            class => format!("{} MiB", (1u64 << class.min(42)) / 2048),
        }
    }
}

/// Kinds of events that were not counted: the name in `--json`, and a description.
pub(crate) const LOST: [(&str, &str); 6] = [
    ("interrupts", "interrupts without a trace event, and their completions"),
    // The kernel skips a program that an interrupt would start recursively.
    ("program_runs", "program runs skipped by the kernel"),
    ("lines", "interrupts beyond the limit of lines"),
    ("queues", "completions beyond the limit of queues"),
    ("requests", "requests beyond the limit of requests in flight"),
    ("classes", "completions beyond the limit of size classes"),
];

impl Counts {
    /// The counts since `earlier`, which were read earlier in the same run.
    pub(crate) fn since(&self, earlier: &Counts) -> Counts {
        fn subtract(mine: &mut u64, theirs: u64) {
            // Counters of several CPUs are read one after another, so a sum may seem to decrease.
            *mine = mine.saturating_sub(theirs);
        }
        let mut now = self.clone();
        now.time = self.time.saturating_sub(earlier.time);
        now.lost.iter_mut().zip(earlier.lost).for_each(|(mine, theirs)| subtract(mine, theirs));
        for line in &mut now.lines {
            // A line that has appeared since `earlier` counts in full.
            let Some(before) = earlier.lines.iter().find(|before| before.irq == line.irq) else {
                continue;
            };
            subtract(&mut line.interrupts, before.interrupts);
            line.per_interrupt = line.per_interrupt.since(&before.per_interrupt);
            line.to_softirq = line.to_softirq.since(&before.to_softirq);
            line.to_completion = line.to_completion.since(&before.to_completion);
            for (mine, theirs) in line.per_cpu.iter_mut().zip(&before.per_cpu) {
                subtract(&mut mine.interrupts, theirs.interrupts);
                subtract(&mut mine.hard_ns, theirs.hard_ns);
                subtract(&mut mine.soft_ns, theirs.soft_ns);
            }
        }
        for queue in &mut now.queues {
            // Found by name, not by index: queues may appear in any order.
            let same =
                |before: &&QueueCounts| before.disk == queue.disk && before.number == queue.number;
            let Some(before) = earlier.queues.iter().find(same) else { continue };
            queue
                .contexts
                .iter_mut()
                .zip(before.contexts)
                .for_each(|(mine, theirs)| subtract(mine, theirs));
            queue
                .per_cpu
                .iter_mut()
                .zip(&before.per_cpu)
                .for_each(|(mine, theirs)| subtract(mine, *theirs));
            queue.per_interrupt = queue.per_interrupt.since(&before.per_interrupt);
            queue.to_completion = queue.to_completion.since(&before.to_completion);
        }
        for class in &mut now.latencies {
            let same = |before: &&Latency| {
                (&before.name, before.op, before.size) == (&class.name, class.op, class.size)
            };
            if let Some(before) = earlier.latencies.iter().find(same) {
                class.time = class.time.since(&before.time);
            }
        }
        now
    }

    /// Completions of the queues of the line `irq`; `None`: of the queues without a known line.
    pub(crate) fn contexts_of(&self, irq: Option<u32>) -> ContextCounts {
        sum(self.queues.iter().filter(|queue| queue.irq == irq).map(|queue| queue.contexts))
    }

    /// All completions.
    pub(crate) fn contexts(&self) -> ContextCounts {
        sum(self.queues.iter().map(|queue| queue.contexts))
    }

    /// Interrupts of all lines.
    pub(crate) fn interrupts(&self) -> u64 {
        self.lines.iter().map(|line| line.interrupts).sum()
    }
}

/// Adds up counts by context.
pub(crate) fn sum(all: impl Iterator<Item = ContextCounts>) -> ContextCounts {
    all.fold(ContextCounts::default(), |mut sum, contexts| {
        sum.iter_mut().zip(contexts).for_each(|(mine, theirs)| *mine += theirs);
        sum
    })
}

impl QueueCounts {
    /// The printed name: `nvme0n1 queue 3`, `nvme0n1 poll queue 5`.
    pub(crate) fn name(&self) -> String {
        format!("{} {}queue {}", self.disk, if self.polled { "poll " } else { "" }, self.number)
    }
}
