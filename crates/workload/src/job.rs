//! A job: what one section of a job file asks for, typed, with its units.

use smart_default::SmartDefault;
use std::sync::Arc;
use units::{Nanos, Op};

/// Which operations a job issues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Reads only.
    #[default]
    Read,
    /// Writes only.
    Write,
    /// Reads and writes, mixed by `rwmixread`.
    Mixed,
    /// Trims only.
    Trim,
    /// Each block is trimmed, then written.
    TrimWrite,
}

impl Direction {
    /// Which operations a job of this direction issues.
    pub fn ops(self) -> &'static [Op] {
        match self {
            Direction::Read => &[Op::Read],
            Direction::Write => &[Op::Write],
            Direction::Mixed => &[Op::Read, Op::Write],
            Direction::Trim => &[Op::Deallocate],
            Direction::TrimWrite => &[Op::Deallocate, Op::Write],
        }
    }
}

/// `rw`: the direction, and whether offsets are random.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    /// Reads, writes, or both.
    pub direction: Direction,
    /// Random offsets; else sequential ones.
    pub random: bool,
    /// The number after the colon. Random: I/Os from one new offset to the next (1: each I/O has its own). Sequential:
    /// bytes skipped after each I/O, which may be negative.
    pub step: i64,
}

impl Pattern {
    /// Whether the job reads (verification reads aside).
    pub fn reads(&self) -> bool {
        matches!(self.direction, Direction::Read | Direction::Mixed)
    }

    /// Whether the job writes.
    pub fn writes(&self) -> bool {
        matches!(self.direction, Direction::Write | Direction::Mixed | Direction::TrimWrite)
    }

    /// Whether the job deallocates blocks.
    pub fn trims(&self) -> bool {
        matches!(self.direction, Direction::Trim | Direction::TrimWrite)
    }

    /// Whether what the device holds is another thing afterwards.
    pub fn changes(&self) -> bool {
        self.writes() || self.trims()
    }

    /// fio's name of the pattern, as its results print it.
    pub fn name(&self) -> &'static str {
        let named = Pattern::NAMES.iter().find(|(_, direction, random)| (*direction, *random) == (self.direction, self.random));
        named.map_or("read", |(name, ..)| name)
    }

    /// fio's names of all patterns.
    pub(crate) const NAMES: [(&str, Direction, bool); 11] = [
        ("read", Direction::Read, false),
        ("write", Direction::Write, false),
        ("rw", Direction::Mixed, false),
        ("readwrite", Direction::Mixed, false),
        ("randread", Direction::Read, true),
        ("randwrite", Direction::Write, true),
        ("randrw", Direction::Mixed, true),
        ("trim", Direction::Trim, false),
        ("randtrim", Direction::Trim, true),
        ("trimwrite", Direction::TrimWrite, false),
        ("randtrimwrite", Direction::TrimWrite, true),
    ];
}

/// The sizes of one operation's I/Os, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Smallest; also the unit that random offsets are multiples of. Never 0.
    pub min: u64,
    /// Largest.
    pub max: u64,
    /// `bssplit`: size and percentage, adding up to 100. Empty: evenly between `min` and `max`, in steps of `min`.
    pub split: Vec<(u64, u32)>,
}

impl BlockSizes {
    /// Every I/O is `bytes` long.
    pub fn fixed(bytes: u64) -> BlockSizes {
        BlockSizes { min: bytes, max: bytes, split: Vec::new() }
    }

    /// Whether every I/O has the same length.
    pub fn is_fixed(&self) -> bool {
        self.min == self.max
    }

    /// What the lengths of many I/Os average to.
    pub fn mean(&self) -> f64 {
        if self.split.is_empty() {
            return self.min as f64 * (1 + self.max / self.min.max(1)) as f64 / 2.0;
        }
        self.split.iter().map(|(bytes, percent)| *bytes as f64 * f64::from(*percent)).sum::<f64>() / 100.0
    }
}

/// A place or an extent on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SmartDefault)]
pub enum Amount {
    /// This many bytes.
    #[default]
    Bytes(u64),
    /// This many per cent of the device.
    Percent(u64),
}

impl Amount {
    /// In bytes, on a device of `device` bytes.
    pub fn on(self, device: u64) -> u64 {
        match self {
            Amount::Bytes(n) => n,
            Amount::Percent(p) => (u128::from(device) * u128::from(p) / 100).min(u128::from(u64::MAX)) as u64,
        }
    }
}

/// `random_generator`: fio's names. All are accepted; what they change here is told with each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RandomGenerator {
    /// The default of fio. Here the same as `Tausworthe64`: there is no device too large for it.
    #[default]
    Tausworthe,
    /// Each block once per pass, as with the random map, even if `norandommap` is given.
    Lfsr,
    /// 64-bit offsets.
    Tausworthe64,
}

/// How random offsets are distributed.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Distribution {
    /// Each block as likely as any other.
    #[default]
    Uniform,
    /// Zipf's law with this exponent; which blocks are the popular ones is itself scattered.
    Zipf {
        /// The exponent, above 0 and not 1.
        theta: f64,
    },
    /// A self-similar distribution: the share `h` of the blocks has the share `1 - h` of the I/Os, and so on within it. fio calls it
    /// pareto. Which blocks are the popular ones is scattered.
    Pareto {
        /// Above 0, below 1.
        h: f64,
    },
    /// A bell around the middle of the region.
    Normal {
        /// The deviation, in per cent of the region.
        percent: f64,
    },
}

/// `thinktime`: the job pauses after a number of I/Os, once they have completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Think {
    /// `thinktime`: how long a pause is.
    pub time: Nanos,
    /// `thinktime_spin`: of which the thread computes for so long, and sleeps for the rest.
    pub spin: Nanos,
    /// `thinktime_blocks`: I/Os between two pauses; never 0.
    pub blocks: u64,
}

/// A limit on how fast a job issues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Bytes per second, never 0.
    Bytes(u64),
    /// I/Os per second, never 0.
    Iops(u64),
}

/// How the issue times of a rate-limited job are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateProcess {
    /// Evenly.
    #[default]
    Linear,
    /// As a Poisson process: exponential gaps, independent of what completes when.
    Poisson,
}

/// A stretch of time in which a rate is only partly used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// How long; [`Nanos::MAX`]: for ever.
    pub span: Nanos,
    /// Of the rate, 0 to 1; 0: silence.
    pub share: f64,
}

/// Which latencies are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SmartDefault)]
pub struct Measure {
    /// From the decision to issue to the doorbell.
    #[default(true)]
    pub slat: bool,
    /// From the doorbell to the completion.
    #[default(true)]
    pub clat: bool,
    /// Both together.
    #[default(true)]
    pub lat: bool,
    /// A table of percentiles of slat.
    pub slat_percentiles: bool,
    /// A table of percentiles of clat.
    #[default(true)]
    pub clat_percentiles: bool,
    /// A table of percentiles of lat.
    pub lat_percentiles: bool,
}

/// Whether the results show reads, writes and trims together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unified {
    /// Each for itself.
    #[default]
    No,
    /// All of them as `mixed`.
    Mixed,
    /// As `mixed`, and each for itself.
    Both,
}

/// The I/O engine that a job asks for.
///
/// fio's engines are ways into the kernel. Reap's device URI chooses the way; what an engine says beside its name can
/// choose completion modes and options of a device that has them. fio's manual, section *I/O engine specific parameters*.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Engine {
    /// `ioengine`; `None`: the job names none.
    pub name: Option<String>,
    /// `hipri`: completions are polled for. Of `io_uring` and `pvsync2`.
    pub hipri: bool,
    /// `sqthread_poll`: a thread of the kernel looks for submissions. Of `io_uring`.
    pub sqthread_poll: bool,
}

/// One value for reads, one for writes, and one for trims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerOp<T> {
    /// For reads.
    pub read: T,
    /// For writes.
    pub write: T,
    /// For trims: commands that deallocate blocks.
    pub trim: T,
}

impl<T> PerOp<T> {
    /// The same for all of them.
    pub fn both(value: T) -> PerOp<T>
    where
        T: Clone,
    {
        PerOp::of(|_| value.clone())
    }

    /// What `value` says of each operation.
    pub fn of(mut value: impl FnMut(Op) -> T) -> PerOp<T> {
        PerOp { read: value(Op::Read), write: value(Op::Write), trim: value(Op::Deallocate) }
    }

    /// The value for `op`; what only looks at blocks counts as a read, and whatever else is no trim as a write.
    #[inline]
    pub fn get(&self, op: Op) -> &T {
        match op {
            Op::Read | Op::Compare | Op::Verify => &self.read,
            Op::Write | Op::Flush | Op::WriteZeroes | Op::WriteUncorrectable => &self.write,
            Op::Deallocate => &self.trim,
        }
    }

    /// The value for `op`, to change it.
    #[inline]
    pub fn get_mut(&mut self, op: Op) -> &mut T {
        match op {
            Op::Read | Op::Compare | Op::Verify => &mut self.read,
            Op::Write | Op::Flush | Op::WriteZeroes | Op::WriteUncorrectable => &mut self.write,
            Op::Deallocate => &mut self.trim,
        }
    }
}

/// What proves a block: fio's `verify`.
///
/// As a number it is the one in fio's headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u16)]
pub enum VerifyKind {
    /// A header and an MD5 digest of the rest.
    Md5 = 2,
    /// A header and a CRC-32C (Castagnoli) of the rest.
    #[default]
    Crc32c = 5,
    /// A header and a SHA-256 digest of the rest.
    Sha256 = 9,
    /// A header and an XXH32 hash of the rest.
    XxHash = 15,
    /// `pattern_hdr`, or `verify_pattern` alone: a header, and a pattern in the rest.
    PatternHeader = 17,
    /// `pattern`: a pattern, and no header.
    Pattern = 18,
    /// `null`: nothing. What was written is read back, and not looked at.
    Null = 19,
}

impl VerifyKind {
    /// fio's name.
    pub fn name(self) -> &'static str {
        VerifyKind::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// All of them, by fio's names.
    pub(crate) const ALL: [(&str, VerifyKind); 8] = [
        ("crc32c", VerifyKind::Crc32c),
        ("crc32c-intel", VerifyKind::Crc32c),
        ("md5", VerifyKind::Md5),
        ("sha256", VerifyKind::Sha256),
        ("xxhash", VerifyKind::XxHash),
        ("pattern_hdr", VerifyKind::PatternHeader),
        ("pattern", VerifyKind::Pattern),
        ("null", VerifyKind::Null),
    ];
}

/// `verify_pattern`: bytes that are repeated from the start of each I/O to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FillPattern {
    /// The bytes, at least 1. Those of a `%o` are 0 here.
    pub bytes: Vec<u8>,
    /// Where each `%o` begins: eight bytes that hold the I/O's offset, little-endian.
    pub offsets: Vec<usize>,
}

impl FillPattern {
    /// The bytes of an I/O at `offset`.
    pub fn at(&self, offset: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for &place in &self.offsets {
            if let Some(hole) = bytes.get_mut(place..place + 8) {
                hole.copy_from_slice(&offset.to_le_bytes());
            }
        }
        bytes
    }
}

/// Headers and checksums in what is written, checked in what is read.
#[derive(Clone, Debug, PartialEq, Eq, SmartDefault)]
pub struct Verify {
    /// `verify`.
    pub kind: VerifyKind,
    /// `verify_pattern`: what stands in the data, whatever the kind; `None`: data of a seed.
    pub pattern: Option<FillPattern>,
    /// `verify_interval`: bytes that each header covers, itself included; `None`: what all write sizes are multiples of.
    pub interval: Option<u64>,
    /// `verify_offset`: where in its block the header stands, in bytes.
    pub offset: u32,
    /// `verify_fatal`: stop at the first block that is wrong; else check on and count them.
    pub fatal: bool,
    /// `do_verify`: read back what was written once the writing is done.
    #[default(true)]
    pub after_write: bool,
    /// `verify_backlog`: what was written is read back after this many writes already; 0: not before the end.
    pub backlog: u64,
    /// `verify_backlog_batch`: this many are read back then; 0: as many as `backlog`.
    pub backlog_batch: u64,
    /// `verify_only`: write nothing, and check what the same job wrote earlier.
    pub only: bool,
    /// `verify_header_seed`: compare the seed in the header. `None`: where the job's seeds are known to be the writer's.
    pub header_seed: Option<bool>,
}

/// `write_bw_log`, `write_lat_log`, `write_iops_log` and `log_…`: fio's lists of samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logs {
    /// `write_bw_log`: the beginning of the file's name, if there is one.
    pub bandwidth: Option<String>,
    /// `write_lat_log`.
    pub latency: Option<String>,
    /// `write_iops_log`.
    pub iops: Option<String>,
    /// `log_avg_msec`: samples are averages over so long; 0: each I/O is one.
    pub average: Nanos,
}

impl Logs {
    /// Whether any is written.
    pub fn any(&self) -> bool {
        self.bandwidth.is_some() || self.latency.is_some() || self.iops.is_some()
    }
}

/// `read_iolog` and its kin: the I/Os of a list, instead of `rw`.
#[derive(Clone, Debug, PartialEq)]
pub struct Iolog {
    /// The file's name, for messages.
    pub name: String,
    /// The I/Os in order.
    pub steps: Vec<IologStep>,
    /// The names of the list's files, in the order in which they are added.
    pub files: Vec<String>,
}

/// One line of such a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IologStep {
    /// An I/O.
    Io {
        /// What it does.
        op: Op,
        /// Which of the list's files it goes to.
        file: u16,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// When it was issued, from the start of the list; `None`: the list does not say.
        at: Option<Nanos>,
    },
    /// A pause.
    Wait(Nanos),
}

/// What one section of a job file asks for. `numjobs` is not expanded yet: see [`crate::plan`].
/// The default is what fio does without any option: 4 KiB sequential reads, one at a time.
#[derive(Clone, Debug, PartialEq, SmartDefault)]
pub struct Job {
    /// The section's name, or `name=`.
    pub name: String,
    /// `description`.
    pub description: Option<String>,
    /// The section's own options as written, in order: names, and values where there is an equals sign.
    pub options: Vec<(String, Option<String>)>,
    /// `ioengine` and its options. Only for the results, where the device decides.
    pub engine: Engine,

    /// `rw`.
    pub pattern: Pattern,
    /// `rwmixread`: per cent of reads in a mixed pattern.
    #[default(50)]
    pub read_percent: u32,
    /// `bs`, `bsrange`, `bssplit`.
    #[default(_code = "PerOp::both(BlockSizes::fixed(4096))")]
    pub block: PerOp<BlockSizes>,

    /// `filename`, split at colons. Empty: the one device that the command line names.
    pub filenames: Vec<String>,
    /// `directory`, which stands in all names already; it has to be there, while other directories of new files are made.
    pub directory: Option<String>,
    /// `size`: extent of the device that is used, over all files; `None`: all from `offset` on.
    pub size: Option<Amount>,
    /// `filesize`: the size of each file, where `size` is how much of them is used in a pass.
    pub file_size: Option<u64>,
    /// `offset`: where that extent starts.
    pub offset: Amount,
    /// `offset_increment`: added to `offset` once for each earlier thread of the job.
    pub offset_increment: Amount,
    /// `io_size`: bytes to issue; `None`: `size`.
    pub io_size: Option<Amount>,
    /// Files that share the device, each with its part of `size`, one after the other: `nrfiles` of a job without `filename`. Never 0.
    #[default(1)]
    pub files: u32,
    /// Names of files that each thread has for its own: `directory` and `filename_format` of a job without `filename`, with
    /// `$jobname`, `$jobnum` and `$filenum` in them.
    pub file_format: Option<String>,
    /// `number_ios`: I/Os to issue at most.
    pub number_ios: Option<u64>,
    /// `loops`: times to do all of it.
    #[default(1)]
    pub loops: u64,

    /// `iodepth`: I/Os in flight at most.
    #[default(1)]
    pub iodepth: u32,
    /// `iodepth_low`: once the depth is reached, completions are taken until this many are left. 0: `iodepth`.
    pub iodepth_low: u32,
    /// `iodepth_batch`: I/Os per doorbell. 0, or more than `iodepth`: `iodepth`.
    #[default(1)]
    pub batch_submit: u32,
    /// No option of fio's: a doorbell comes as soon as the batch is as large as what is out already. So the device has work while a
    /// large batch is made, and that takes few doorbells.
    pub batch_grows: bool,
    /// `iodepth_batch_complete_min`: completions to wait for at once. 0: for one after each I/O, as fio does.
    #[default(1)]
    pub complete_min: u32,
    /// `iodepth_batch_complete_max`: completions to take at once. Less than `complete_min`: that.
    pub complete_max: u32,

    /// `numjobs`: identical threads.
    #[default(1)]
    pub numjobs: u32,
    /// `runtime`: when to stop, from the end of `ramp_time`; `None`: when all is issued.
    pub runtime: Option<Nanos>,
    /// `time_based`: run for all of `runtime`, over and over.
    pub time_based: bool,
    /// `ramp_time`: run so long before anything is measured.
    pub ramp_time: Nanos,
    /// `startdelay`: shortest and longest wait before the start.
    pub start_delay: (Nanos, Nanos),

    /// `serialize_overlap`: an I/O waits for those in flight that have a byte in common with it. A job that verifies does in any case.
    pub serialize_overlap: bool,
    /// Random offsets visit each block once per pass; not so with `norandommap`.
    #[default(true)]
    pub random_map: bool,
    /// `blockalign`: random offsets are multiples of it, in bytes; 0: of the smallest block.
    pub align: PerOp<u64>,
    /// `random_generator`.
    pub random_generator: RandomGenerator,
    /// `random_distribution`.
    pub distribution: Distribution,
    /// `randrepeat`: the same offsets in each run.
    #[default(true)]
    pub repeatable: bool,
    /// `randseed`; overrides `randrepeat`.
    pub seed: Option<u64>,

    /// `rate`, `rate_iops`.
    pub rate: PerOp<Option<Rate>>,
    /// `rate_process`.
    pub rate_process: RateProcess,
    /// How the rate comes and goes: these stretches, one after the other, over and over. Empty: it does not. No option of
    /// fio's; the bursts and steps of comparisons, the phases of scenarios.
    pub rate_stretches: Vec<Stretch>,

    /// `thinktime`.
    pub think: Option<Think>,

    /// `cpus_allowed`: ascending, no doubles. `None`: any.
    pub cpus_allowed: Option<Vec<u32>>,
    /// `cpus_allowed_policy=split`: each thread gets one of them, round-robin; else each may use all.
    pub cpus_split: bool,
    /// `group_reporting`.
    pub group_reporting: bool,
    /// `new_group`: starts a group of its own in the results.
    pub new_group: bool,
    /// `stonewall`: starts when all earlier jobs are done.
    pub stonewall: bool,
    /// `exitall`: once a job is done, others of its group stop.
    pub exitall: bool,
    /// `continue_on_error`, of each operation: an I/O that fails for its medium or its data is counted, and the job goes on.
    pub goes_on: PerOp<bool>,

    /// `fsync`: a Flush after this many writes; 0: none.
    pub sync_every: u32,
    /// `fdatasync`: the same. A device does not tell them apart; lists do.
    pub data_sync_every: u32,
    /// `end_fsync`, `fsync_on_close`: a Flush of each device when all is written.
    pub sync_at_end: bool,
    /// `sync`: each write is durable when it completes (Force Unit Access).
    pub sync_writes: bool,
    /// `verify` and the options beside it.
    pub verify: Option<Verify>,

    /// `reap_urgent`: somebody waits for each I/O, so that no completion mode holds one back. Not an option of fio's.
    pub urgent: bool,
    /// `write_…_log`.
    pub logs: Logs,
    /// `read_iolog`.
    pub iolog: Option<Arc<Iolog>>,
    /// `write_iolog`: the file that gets a list of the I/Os.
    pub write_iolog: Option<String>,
    /// Which latencies are measured.
    pub measure: Measure,
    /// `unified_rw_reporting`.
    pub unified: Unified,
    /// `percentile_list`: ascending, above 0, at most 100.
    #[default(_code = "DEFAULT_PERCENTILES.to_vec()")]
    pub percentiles: Vec<f64>,
    /// Digits after the point in that list, as given.
    #[default(2)]
    pub percentile_precision: usize,
}

/// fio's seed of jobs that give none.
const DEFAULT_SEED: u64 = 0x89;

/// The percentiles that fio reports if none are asked for.
pub const DEFAULT_PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

impl IologStep {
    /// Bytes of the I/O; 0 for a pause.
    pub(crate) fn len(&self) -> u64 {
        if let IologStep::Io { len, .. } = self { *len } else { 0 }
    }
}

impl Job {
    /// What the random numbers of all threads are made of; `None`: of what is different in each run.
    pub(crate) fn base_seed(&self) -> Option<u64> {
        self.seed.or(self.repeatable.then_some(DEFAULT_SEED))
    }

    /// The job's I/Os are those of `list` from now on.
    pub fn replays(&mut self, list: Iolog) {
        let longest =
            |of: Op| list.steps.iter().filter(|step| matches!(step, IologStep::Io { op, .. } if *op == of)).map(IologStep::len).max();
        let [reads, writes, trims] = [Op::Read, Op::Write, Op::Deallocate].map(|op| longest(op).is_some());
        self.pattern = Pattern {
            direction: match (reads, writes, trims) {
                (true, true, _) | (true, _, true) => Direction::Mixed,
                (_, true, true) => Direction::TrimWrite,
                (_, true, false) => Direction::Write,
                (_, false, true) => Direction::Trim,
                _ => Direction::Read,
            },
            random: false,
            step: 0,
        };
        for op in [Op::Read, Op::Write] {
            if let Some(bytes) = longest(op) {
                *self.block.get_mut(op) = BlockSizes::fixed(bytes.max(1));
            }
        }
        self.verify = None;
        self.iolog = Some(Arc::new(list));
    }
}
