//! What was counted, apart from how: one state of all counters since the start, and the difference of two.

use crate::histogram::{Linear, Log2};
use std::time::Duration;

/// Where a completion happened, in the order of the program's `enum place`.
pub(crate) const PLACES: [&str; 5] = ["in_interrupt", "in_softirq", "other_cpu", "polled", "elsewhere"];

/// Completions by place.
pub(crate) type Places = [u64; PLACES.len()];

/// All counters at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// Since the tracing began, or since the earlier state.
    pub time: Duration,
    pub lines: Vec<Line>,
    pub queues: Vec<Queue>,
    pub latencies: Vec<Latency>,
    /// As [`LOST`] names it.
    pub lost: [u64; LOST.len()],
}

/// An interrupt line of a block device.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Line {
    pub irq: u32,
    pub name: String,
    pub interrupts: u64,
    /// Completions per cycle, of the cycles that were sampled.
    pub per_interrupt: Linear,
    /// From the interrupt to the softirq or poller that handles it.
    pub to_softirq: Log2,
    /// From the interrupt to each completion.
    pub to_completion: Log2,
    pub per_cpu: Vec<LineOnCpu>,
}

/// A line's share on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LineOnCpu {
    pub interrupts: u64,
    pub hard_ns: u64,
    pub soft_ns: u64,
}

/// A hardware queue of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Queue {
    pub disk: String,
    pub number: u32,
    pub polled: bool,
    /// Its interrupt line, if it has one that is known.
    pub irq: Option<u32>,
    pub places: Places,
    /// All completions, by CPU.
    pub per_cpu: Vec<u64>,
    /// With `-Q`: completions of this queue per cycle that brought any.
    pub per_interrupt: Linear,
    /// With `-Q`.
    pub to_completion: Log2,
}

/// Time from issue to completion of one class of requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Latency {
    /// The device, or with `-Q` the queue.
    pub name: String,
    /// The kernel's number of a request's operation (enum req_op).
    pub op: u16,
    /// Requests of up to this power of two of 512 bytes, and more than half of it: 0 is 512 bytes and less.
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
            34 | 35 => "passthrough",
            _ => "other",
        }
    }

    pub(crate) fn size_name(&self) -> String {
        match self.size {
            0 => "512 B".to_owned(),
            class @ 1..=10 => format!("{} KiB", (1u64 << class) / 2),
            class => format!("{} MiB", (1u64 << class.min(42)) / 2048),
        }
    }
}

/// What should have been counted and was not: its name in `--json`, and in words.
pub(crate) const LOST: [(&str, &str); 6] = [
    ("interrupts", "interrupts that the kernel did not show, with what they brought"),
    // An interrupt came in the middle of the same program.
    ("program_runs", "program runs left out by the kernel"),
    ("lines", "interrupts without room for their line"),
    ("queues", "completions without room for their queue"),
    ("requests", "requests without room for their start"),
    ("classes", "completions without room for their class"),
];

impl Counts {
    /// What was counted after `earlier`, an older state of the same run.
    pub(crate) fn since(&self, earlier: &Counts) -> Counts {
        fn subtract(mine: &mut u64, theirs: u64) {
            *mine = mine.saturating_sub(theirs);
        }
        let mut now = self.clone();
        now.time = self.time.saturating_sub(earlier.time);
        now.lost.iter_mut().zip(earlier.lost).for_each(|(mine, theirs)| subtract(mine, theirs));
        for line in &mut now.lines {
            let Some(before) = earlier.lines.iter().find(|before| before.irq == line.irq) else { continue };
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
            let same = |before: &&Queue| before.disk == queue.disk && before.number == queue.number;
            let Some(before) = earlier.queues.iter().find(same) else { continue };
            queue.places.iter_mut().zip(before.places).for_each(|(mine, theirs)| subtract(mine, theirs));
            queue.per_cpu.iter_mut().zip(&before.per_cpu).for_each(|(mine, theirs)| subtract(mine, *theirs));
            queue.per_interrupt = queue.per_interrupt.since(&before.per_interrupt);
            queue.to_completion = queue.to_completion.since(&before.to_completion);
        }
        for class in &mut now.latencies {
            let same = |before: &&Latency| (&before.name, before.op, before.size) == (&class.name, class.op, class.size);
            if let Some(before) = earlier.latencies.iter().find(same) {
                class.time = class.time.since(&before.time);
            }
        }
        now
    }

    /// Completions of the queues of one line, or of those without a line.
    pub(crate) fn places_of(&self, irq: Option<u32>) -> Places {
        sum(self.queues.iter().filter(|queue| queue.irq == irq).map(|queue| queue.places))
    }

    /// All completions.
    pub(crate) fn places(&self) -> Places {
        sum(self.queues.iter().map(|queue| queue.places))
    }

    /// Interrupts of all lines.
    pub(crate) fn interrupts(&self) -> u64 {
        self.lines.iter().map(|line| line.interrupts).sum()
    }
}

/// Adds up by place.
pub(crate) fn sum(all: impl Iterator<Item = Places>) -> Places {
    all.fold(Places::default(), |mut sum, places| {
        sum.iter_mut().zip(places).for_each(|(mine, theirs)| *mine += theirs);
        sum
    })
}

impl Queue {
    /// As printed: `nvme0n1 queue 3`, `nvme0n1 poll queue 5`.
    pub(crate) fn name(&self) -> String {
        format!("{} {}queue {}", self.disk, if self.polled { "poll " } else { "" }, self.number)
    }
}
