//! The structures shared with the eBPF program: `bpf/shared.h`, field by field. Both sides assert
//! the sizes of all but [`LineStats`] and [`QueueStats`], which have only `u64` fields and so no
//! padding. [`Cycle`] is covered by [`BpfLine`].
//!
//! A line is an interrupt line (a Linux IRQ number, such as an MSI-X vector) of a block device. A
//! line slot is the index of the line's counters; line slot 0 belongs to no line. A cycle lasts
//! from one interrupt of a line to the next. The slots of a histogram are its buckets.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(super) const DISK_NAME: usize = 32;
pub(super) const FILTERS: usize = 8;
pub(super) const LINEAR_SLOTS: usize = crate::histogram::LINEAR_VALUES + 1;
pub(super) const LOG2_SLOTS: usize = crate::histogram::LOG2_BUCKETS;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Config {
    /// Index in [`crate::settings::Mode::ALL`].
    pub mode: u32,
    /// One in `freq` cycles (in mode `latency`: requests) is sampled; 1: all.
    pub freq: u32,
    /// Nanoseconds per unit of the time histograms.
    pub unit: u32,
    /// 1: histograms by hardware queue (`-Q`).
    pub per_queue: u32,
    pub max_lines: u32,
    pub max_queues: u32,
    /// How many entries of `filter` are in use; 0: all devices are traced.
    pub filters: u32,
    pub pad: u32,
    /// Names of the devices to trace.
    pub filter: [[u8; DISK_NAME]; FILTERS],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Globals {
    /// How many sampled cycles are open now: not a running total.
    pub sampled_cycles: u64,
    /// The next free line slot, and the next free index in the map of queues.
    pub next_slot: u32,
    pub next_queue: u32,
    /// Interrupts that were not counted because all line slots were in use.
    pub lost_lines: u64,
    /// Completions that were not counted because the map of queues was full.
    pub lost_queues: u64,
    /// Requests that were not counted because the map of start times was full.
    pub lost_starts: u64,
    /// Requests that were not counted because the map of histograms by class (device, operation,
    /// size) was full.
    pub lost_classes: u64,
}

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Cycle {
    /// Time of the interrupt in nanoseconds, in mode `delay` only.
    pub at: u64,
    /// Serial number, per CPU, of the softirq run (a *visit* in the BPF program) that the interrupt
    /// interrupted; 0: none.
    pub visit: u64,
    /// Completions so far.
    pub count: u32,
    /// The CPU that took the interrupt.
    pub cpu: u32,
    /// 1: this cycle is sampled.
    pub sampled: u32,
    pub pad: u32,
}

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct BpfLine {
    /// Interrupts so far. `cycle[seq & 1]` is open; the cycle before it is in the other element and
    /// still gets late completions.
    pub seq: u64,
    /// The line slot; 0: not known to belong to a block device.
    pub slot: u32,
    /// 1: the line is not selected.
    pub ignored: u32,
    /// Cycles since the last sampled one.
    pub skipped: u32,
    pub pad: u32,
    pub cycle: [Cycle; 2],
    pub pad2: [u64; 5],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct BpfQueue {
    /// Addresses of the kernel's `blk_mq_hw_ctx` and `gendisk`. `hctx` 0: the entry is unused.
    pub hctx: u64,
    pub disk: u64,
    /// Name of the disk, and number of the hardware queue.
    pub name: [u8; DISK_NAME],
    pub number: u32,
    /// 1: a poll queue.
    pub polled: u32,
    /// 1: completions are counted, as the device is selected.
    pub tracked: u32,
    /// IRQ number + 1 of the queue's line; 0: not known.
    pub irq: u32,
    /// IRQ number + 1 of the line that may be the queue's.
    pub candidate: u32,
    /// Consecutive softirq runs that only `candidate` can have raised. From four on, `candidate` is
    /// taken for the queue's line.
    pub votes: u32,
    /// With `-Q`: the cycle being counted (a `seq` of the line), and its completions so far.
    pub cycle_seq: u64,
    pub cycle_count: u32,
    /// The softirq run in which `votes` was last increased.
    pub voted_in: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct QueueName {
    pub disk: [u8; DISK_NAME],
    pub number: u32,
    pub pad: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct LineStats {
    pub interrupts: u64,
    pub hard_ns: u64,
    pub soft_ns: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct QueueStats {
    /// Completions by context, in the order of [`crate::counts::CONTEXTS`].
    pub contexts: [u64; 5],
}

#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Hist<const SLOTS: usize> {
    /// Number of values, their sum, and the largest.
    pub n: u64,
    pub sum: u64,
    pub max: u64,
    pub slots: [u64; SLOTS],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct LatencyKey {
    /// Kernel address of the disk, or with `-Q` of the hardware queue.
    pub id: u64,
    pub op: u16,
    /// See [`crate::counts::Latency::size`].
    pub size: u16,
    pub pad: u32,
}

const _: () = {
    assert!(size_of::<Config>() == 32 + FILTERS * DISK_NAME);
    assert!(size_of::<Globals>() == 48);
    assert!(size_of::<BpfLine>() == 128);
    assert!(size_of::<BpfQueue>() == 88);
    assert!(size_of::<QueueName>() == 40);
    assert!(size_of::<Hist<LINEAR_SLOTS>>() == 24 + 8 * LINEAR_SLOTS);
    assert!(size_of::<LatencyKey>() == 16);
    assert!(size_of::<Hist<LOG2_SLOTS>>() == 24 + 8 * LOG2_SLOTS);
};

/// A disk name as the kernel stores it: NUL-padded, longer names truncated.
pub(super) fn padded_name(name: &str) -> [u8; DISK_NAME] {
    let mut field = [0; DISK_NAME];
    // The last byte stays 0.
    field.iter_mut().take(DISK_NAME - 1).zip(name.bytes()).for_each(|(place, byte)| *place = byte);
    field
}

/// The name in a NUL-padded field.
pub(super) fn name(field: &[u8; DISK_NAME]) -> String {
    let used = field.iter().position(|&byte| byte == 0).unwrap_or(DISK_NAME);
    String::from_utf8_lossy(field.get(..used).unwrap_or_default()).into_owned()
}
