//! The structures shared with the eBPF program: `bpf/shared.h`, field by field. Both sides assert
//! their sizes, except where a structure has 64-bit counters only; that of [`Cycle`] as a part of
//! [`BpfLine`].
//!
//! A line is an interrupt line of a block device. A slot is the index of its counters; slot 0
//! belongs to no line. A cycle lasts from one interrupt of a line to its next.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(super) const DISK_NAME: usize = 32;
pub(super) const FILTERS: usize = 8;
pub(super) const LINEAR_SLOTS: usize = crate::histogram::LINEAR_VALUES + 1;
pub(super) const LOG2_SLOTS: usize = crate::histogram::LOG2_BUCKETS;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Config {
    pub mode: u32,
    pub freq: u32,
    pub unit: u32,
    pub per_queue: u32,
    pub max_lines: u32,
    pub max_queues: u32,
    pub filters: u32,
    pub pad: u32,
    pub filter: [[u8; DISK_NAME]; FILTERS],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Globals {
    /// Sampled cycles that are open now.
    pub sampled_cycles: u64,
    pub next_slot: u32,
    pub next_queue: u32,
    /// Interrupts that found no slot.
    pub lost_lines: u64,
    /// Completions whose queue found no entry.
    pub lost_queues: u64,
    /// Requests whose start found no entry.
    pub lost_starts: u64,
    /// Requests for whose class (device, operation, size) there was no histogram.
    pub lost_classes: u64,
}

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Cycle {
    /// In nanoseconds, in mode `delay` only.
    pub at: u64,
    /// The run of the softirq that the interrupt came in, as a number by CPU; 0: none.
    pub visit: u64,
    /// Completions so far.
    pub count: u32,
    pub cpu: u32,
    pub sampled: u32,
    pub pad: u32,
}

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct BpfLine {
    /// Interrupts so far. `cycle[seq & 1]` is open; the other still gets late completions.
    pub seq: u64,
    pub slot: u32,
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
    pub hctx: u64,
    pub disk: u64,
    pub name: [u8; DISK_NAME],
    pub number: u32,
    pub polled: u32,
    pub tracked: u32,
    /// Number + 1 of its line; 0: not known.
    pub irq: u32,
    /// Number + 1 of the line that may be its own.
    pub candidate: u32,
    /// Softirq runs in a row in which only `candidate` can have raised the softirq. At four it is
    /// the queue's line.
    pub votes: u32,
    /// With `-Q`: the cycle being counted, and its completions so far.
    pub cycle_seq: u64,
    pub cycle_count: u32,
    /// The softirq run of the last vote.
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
    pub n: u64,
    pub sum: u64,
    pub max: u64,
    pub slots: [u64; SLOTS],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct LatencyKey {
    pub id: u64,
    pub op: u16,
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
