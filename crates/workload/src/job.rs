//! [`Job`]: the options of one section of a job file as typed values with units. The documentation
//! of a field names the fio option, which fio's manual describes.

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
    /// The operations of jobs with this direction.
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
    /// Which operations.
    pub direction: Direction,
    /// Offsets are random; else sequential.
    pub random: bool,
    /// The number after the colon. Random: I/Os per new offset, at least 1. Sequential: bytes
    /// skipped after each I/O; may be negative.
    pub step: i64,
}

impl Pattern {
    /// Whether the job reads, apart from verification.
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

    /// Whether the job modifies the device's data.
    pub fn modifies(&self) -> bool {
        self.writes() || self.trims()
    }

    /// The pattern's name in fio's results.
    pub fn name(&self) -> &'static str {
        let named = Pattern::NAMES
            .iter()
            .find(|(_, direction, random)| (*direction, *random) == (self.direction, self.random));
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

/// The possible sizes of one operation's I/Os, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Minimum; also the alignment of random offsets. Never 0.
    pub min: u64,
    /// Maximum.
    pub max: u64,
    /// `bssplit`: sizes with percentages that add up to 100. Empty: sizes are uniform between `min`
    /// and `max`, in multiples of `min`.
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

    /// Mean length.
    pub fn mean(&self) -> f64 {
        if self.split.is_empty() {
            return self.min as f64 * (1 + self.max / self.min.max(1)) as f64 / 2.0;
        }
        self.split.iter().map(|(bytes, percent)| *bytes as f64 * f64::from(*percent)).sum::<f64>()
            / 100.0
    }
}

/// An offset or size, absolute or relative to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SmartDefault)]
pub enum Amount {
    /// Bytes.
    #[default]
    Bytes(u64),
    /// Per cent of the device.
    Percent(u64),
}

impl Amount {
    /// The amount in bytes, on a device of `device` bytes.
    pub fn on(self, device: u64) -> u64 {
        match self {
            Amount::Bytes(n) => n,
            Amount::Percent(p) => {
                (u128::from(device) * u128::from(p) / 100).min(u128::from(u64::MAX)) as u64
            }
        }
    }
}

/// `random_generator`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RandomGenerator {
    /// fio's default, of 32 bits. Unlike in fio it reaches all blocks of devices of any size.
    #[default]
    Tausworthe,
    /// Visits each block once per pass, even with `norandommap`.
    Lfsr,
    /// Offsets of 64 bits.
    Tausworthe64,
}

/// How random offsets are distributed.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Distribution {
    /// Uniform.
    #[default]
    Uniform,
    /// Zipf's law; frequent blocks are scattered over the file.
    Zipf {
        /// The exponent, above 0 and not 1.
        theta: f64,
    },
    /// fio's pareto, a self-similar distribution: the fraction `h` of the blocks has the fraction
    /// `1 - h` of the I/Os, and the same holds within that part of the blocks. Frequent blocks are
    /// scattered over the file.
    Pareto {
        /// Above 0, below 1.
        h: f64,
    },
    /// Normal around the middle of the region.
    Normal {
        /// Standard deviation in per cent of the region.
        percent: f64,
    },
}

/// `thinktime`: a pause each time that a number of I/Os has been issued and has completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Think {
    /// `thinktime`: length of a pause.
    pub time: Nanos,
    /// `thinktime_spin`: how much of the pause the thread spins; it sleeps for the rest.
    pub spin: Nanos,
    /// `thinktime_blocks`: I/Os between two pauses; never 0.
    pub blocks: u64,
}

/// `rate` or `rate_iops`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Bytes per second, never 0.
    Bytes(u64),
    /// I/Os per second, never 0.
    Iops(u64),
}

/// `rate_process`: how the intended start times of I/Os are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateProcess {
    /// At equal distances.
    #[default]
    Linear,
    /// As a Poisson process, with exponential gaps.
    Poisson,
}

/// A time span in which a job uses part of its rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatePhase {
    /// Length; [`Nanos::MAX`]: forever.
    pub span: Nanos,
    /// Fraction of the rate, 0 to 1; 0: no I/O.
    pub share: f64,
}

/// Which latencies are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SmartDefault)]
pub struct Measure {
    /// Submission latency.
    #[default(true)]
    pub slat: bool,
    /// Completion latency.
    #[default(true)]
    pub clat: bool,
    /// Total latency.
    #[default(true)]
    pub lat: bool,
    /// Percentiles of slat.
    pub slat_percentiles: bool,
    /// Percentiles of clat.
    #[default(true)]
    pub clat_percentiles: bool,
    /// Percentiles of lat.
    pub lat_percentiles: bool,
}

/// `unified_rw_reporting`: whether the results add up reads, writes and trims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unified {
    /// The results of each operation.
    #[default]
    No,
    /// Only the sum, as `mixed`.
    Mixed,
    /// The sum, and the results of each operation.
    Both,
}

/// `ioengine` and its options (fio's manual, section *I/O engine specific parameters*).
///
/// The device URI chooses how I/O is done, so the name has no effect. Options of the engine may
/// choose the completion mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Engine {
    /// `ioengine`, if given.
    pub name: Option<String>,
    /// `hipri`, of `io_uring` and `pvsync2`: completions are polled for.
    pub hipri: bool,
    /// `sqthread_poll`, of `io_uring`: a kernel thread polls for submissions.
    pub sqthread_poll: bool,
}

/// One value for reads, one for writes, and one for trims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerOp<T> {
    /// For reads.
    pub read: T,
    /// For writes.
    pub write: T,
    /// For trims (Deallocate).
    pub trim: T,
}

impl<T> PerOp<T> {
    /// The same value for all operations.
    pub fn all(value: T) -> PerOp<T>
    where
        T: Clone,
    {
        PerOp::of(|_| value.clone())
    }

    /// The values that `value` returns for each operation.
    pub fn of(mut value: impl FnMut(Op) -> T) -> PerOp<T> {
        PerOp { read: value(Op::Read), write: value(Op::Write), trim: value(Op::Deallocate) }
    }

    /// The value for `op`. Compare and Verify count as reads; Flush, Write Zeroes and Write
    /// Uncorrectable as writes.
    #[inline]
    pub fn get(&self, op: Op) -> &T {
        match op {
            Op::Read | Op::Compare | Op::Verify => &self.read,
            Op::Write | Op::Flush | Op::WriteZeroes | Op::WriteUncorrectable => &self.write,
            Op::Deallocate => &self.trim,
        }
    }

    /// The value for `op`, as in [`PerOp::get`], mutable.
    #[inline]
    pub fn get_mut(&mut self, op: Op) -> &mut T {
        match op {
            Op::Read | Op::Compare | Op::Verify => &mut self.read,
            Op::Write | Op::Flush | Op::WriteZeroes | Op::WriteUncorrectable => &mut self.write,
            Op::Deallocate => &mut self.trim,
        }
    }
}

/// `verify`: how a block is verified. The numbers are those of fio's headers (`VERIFY_…` in its
/// verify.h).
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
    /// `pattern`: a pattern without a header.
    Pattern = 18,
    /// `null`: blocks are read back, but not checked.
    Null = 19,
}

impl VerifyKind {
    /// fio's name.
    pub fn name(self) -> &'static str {
        VerifyKind::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// All kinds, with fio's names.
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

/// `verify_pattern`: bytes that are repeated over each I/O.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FillPattern {
    /// The bytes, at least one; 0 in place of a `%o`.
    pub bytes: Vec<u8>,
    /// Index of each `%o`: eight bytes for the I/O's offset, little-endian.
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

/// `verify` and its options.
#[derive(Clone, Debug, PartialEq, Eq, SmartDefault)]
pub struct Verify {
    /// `verify`.
    pub kind: VerifyKind,
    /// `verify_pattern`: the pattern of the data, with any `kind`; `None`: pseudo-random data.
    pub pattern: Option<FillPattern>,
    /// `verify_interval`: bytes that each header covers, including itself; `None`: the greatest
    /// common divisor of all write sizes.
    pub interval: Option<u64>,
    /// `verify_offset`: offset of the header in its block, in bytes.
    pub offset: u32,
    /// `verify_fatal`: stop at the first wrong block; else count wrong blocks.
    pub fatal: bool,
    /// `do_verify`: read back after writing.
    #[default(true)]
    pub after_write: bool,
    /// `verify_backlog`: read back after this many writes; 0: only at the end.
    pub backlog: u64,
    /// `verify_backlog_batch`: how many writes are then read back; 0: `backlog`.
    pub backlog_batch: u64,
    /// `verify_only`: write nothing; check the blocks that an earlier run of the job wrote.
    pub only: bool,
    /// `verify_header_seed`: check the seed in the header. `None`: check it if the writer's seed is
    /// known.
    pub header_seed: Option<bool>,
}

/// `write_bw_log`, `write_lat_log`, `write_iops_log`, `log_avg_msec`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logs {
    /// `write_bw_log`: prefix of the file's name.
    pub bandwidth: Option<String>,
    /// `write_lat_log`.
    pub latency: Option<String>,
    /// `write_iops_log`.
    pub iops: Option<String>,
    /// `log_avg_msec`: samples are averages over this time; 0: one sample per I/O.
    pub average: Nanos,
}

impl Logs {
    /// Whether any log is written.
    pub fn any(&self) -> bool {
        self.bandwidth.is_some() || self.latency.is_some() || self.iops.is_some()
    }
}

/// `read_iolog`: I/Os from a file, instead of `rw`.
#[derive(Clone, Debug, PartialEq)]
pub struct Iolog {
    /// The file's name, for messages.
    pub name: String,
    /// The I/Os in order.
    pub steps: Vec<IologStep>,
    /// Names of the log's files, in the order of their `add` lines.
    pub files: Vec<String>,
}

/// One line of an [`Iolog`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IologStep {
    /// An I/O.
    Io {
        /// Its operation.
        op: Op,
        /// Index into [`Iolog::files`].
        file: u16,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// When to issue it, from the start of the log; `None` in version 2.
        at: Option<Nanos>,
    },
    /// A pause.
    Wait(Nanos),
}

/// The options of one section of a job file. [`crate::plan`] expands `numjobs`. The default is
/// fio's: sequential reads of 4 KiB at queue depth 1.
#[derive(Clone, Debug, PartialEq, SmartDefault)]
pub struct Job {
    /// The section's name, or `name=`.
    pub name: String,
    /// `description`.
    pub description: Option<String>,
    /// The section's own options as written, with their values if they have one.
    pub options: Vec<(String, Option<String>)>,
    /// `ioengine` and its options.
    pub engine: Engine,

    /// `rw`.
    pub pattern: Pattern,
    /// `rwmixread`: per cent of reads in a mixed pattern.
    #[default(50)]
    pub read_percent: u32,
    /// `bs`, `bsrange`, `bssplit`.
    #[default(_code = "PerOp::all(BlockSizes::fixed(4096))")]
    pub block: PerOp<BlockSizes>,

    /// `filename`, split at colons. Empty: the device of the command line.
    pub filenames: Vec<String>,
    /// `directory`, which `filenames` and `file_format` already include. It has to exist, while
    /// other directories of new files are created.
    pub directory: Option<String>,
    /// `size`: bytes used, over all files; `None`: all from `offset` on.
    pub size: Option<Amount>,
    /// `filesize`: size of each file; `size` is then how much of them a pass uses.
    pub file_size: Option<u64>,
    /// `offset`: where the bytes of `size` start.
    pub offset: Amount,
    /// `offset_increment`: added to `offset` for each earlier thread of the job.
    pub offset_increment: Amount,
    /// `io_size`: bytes to issue; `None`: `size`.
    pub io_size: Option<Amount>,
    /// `nrfiles` of a job without `filename`: number of files, among which `size` is divided. Never
    /// 0.
    #[default(1)]
    pub files: u32,
    /// `directory` and `filename_format` of a job without `filename`: names of each thread's own
    /// files, with `$jobname`, `$jobnum` and `$filenum`.
    pub file_format: Option<String>,
    /// `number_ios`: maximum number of I/Os.
    pub number_ios: Option<u64>,
    /// `loops`: number of passes.
    #[default(1)]
    pub loops: u64,

    /// `iodepth`: maximum number of I/Os in flight.
    #[default(1)]
    pub iodepth: u32,
    /// `iodepth_low`: once the depth is reached, completions are reaped until this many are in
    /// flight. 0: `iodepth`.
    pub iodepth_low: u32,
    /// `iodepth_batch`: I/Os per doorbell. 0, or more than `iodepth`: `iodepth`.
    #[default(1)]
    pub batch_submit: u32,
    /// Not an option of fio: the doorbell is rung once a batch is as large as the number of I/Os in
    /// flight. The device has work while a batch is prepared, and batches still become large.
    pub batch_grows: bool,
    /// `iodepth_batch_complete_min`: completions to wait for at once. 0: wait for one after each
    /// I/O, as fio does.
    #[default(1)]
    pub complete_min: u32,
    /// `iodepth_batch_complete_max`: maximum number of completions to reap at once. Less than
    /// `complete_min` counts as `complete_min`.
    pub complete_max: u32,

    /// `numjobs`: identical threads.
    #[default(1)]
    pub numjobs: u32,
    /// `runtime`, from the end of `ramp_time`; `None`: until all I/Os are done.
    pub runtime: Option<Nanos>,
    /// `time_based`: repeat until `runtime` is over.
    pub time_based: bool,
    /// `ramp_time`: time before anything is measured.
    pub ramp_time: Nanos,
    /// `startdelay`: minimum and maximum.
    pub start_delay: (Nanos, Nanos),

    /// `serialize_overlap`: an I/O waits until no overlapping I/O is in flight. Jobs that verify
    /// always do so.
    pub serialize_overlap: bool,
    /// Random offsets visit each block once per pass; `norandommap` clears it.
    #[default(true)]
    pub random_map: bool,
    /// `blockalign`: alignment of random offsets in bytes; 0: the smallest block.
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
    /// Not an option of fio: phases in which the job uses part of its rate, repeated. Empty: always
    /// the whole rate. For the bursts of `reap compare` and the phases of scenarios.
    pub rate_phases: Vec<RatePhase>,

    /// `thinktime`.
    pub think: Option<Think>,

    /// `cpus_allowed`: ascending, without duplicates. `None`: any.
    pub cpus_allowed: Option<Vec<u32>>,
    /// `cpus_allowed_policy=split`: each thread has one of `cpus_allowed`, round-robin.
    pub cpus_split: bool,
    /// `group_reporting`.
    pub group_reporting: bool,
    /// `new_group`: starts a new group in the results.
    pub new_group: bool,
    /// `stonewall`: the job starts when all earlier jobs have ended.
    pub stonewall: bool,
    /// `exitall`: when the job ends, the other jobs of its group stop.
    pub exitall: bool,
    /// `continue_on_error`, by operation: I/Os that fail with EIO or EILSEQ do not end the job.
    pub continue_on_error: PerOp<bool>,

    /// `fsync`: a Flush after this many writes; 0: none.
    pub sync_every: u32,
    /// `fdatasync`: as `fsync`, but `write_iolog` has it as `datasync`.
    pub data_sync_every: u32,
    /// `end_fsync`, `fsync_on_close`: a Flush of each target after the last write.
    pub sync_at_end: bool,
    /// `sync`: writes have Force Unit Access, and are durable when they complete.
    pub sync_writes: bool,
    /// `verify` and its options.
    pub verify: Option<Verify>,

    /// `reap_urgent`, not an option of fio: no completion mode may delay a completion, because an
    /// application waits for it.
    pub urgent: bool,
    /// `write_…_log`.
    pub logs: Logs,
    /// `read_iolog`.
    pub iolog: Option<Arc<Iolog>>,
    /// `write_iolog`: name of the file for a log of the I/Os.
    pub write_iolog: Option<String>,
    /// Which latencies are measured.
    pub measure: Measure,
    /// `unified_rw_reporting`.
    pub unified: Unified,
    /// `percentile_list`: ascending, above 0 and at most 100.
    #[default(_code = "DEFAULT_PERCENTILES.to_vec()")]
    pub percentiles: Vec<f64>,
    /// Digits after the point in `percentile_list`.
    #[default(2)]
    pub percentile_precision: usize,
}

/// fio's default of `randseed`.
const DEFAULT_SEED: u64 = 0x89;

/// fio's default of `percentile_list`.
pub const DEFAULT_PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

impl IologStep {
    /// Bytes of the I/O; 0 for a pause.
    pub(crate) fn len(&self) -> u64 {
        if let IologStep::Io { len, .. } = self { *len } else { 0 }
    }
}

impl Job {
    /// The seed of all threads; `None`: each run has another seed.
    pub(crate) fn base_seed(&self) -> Option<u64> {
        self.seed.or(self.repeatable.then_some(DEFAULT_SEED))
    }

    /// Makes the job issue the I/Os of `list`.
    pub fn set_iolog(&mut self, list: Iolog) {
        let longest = |of: Op| {
            list.steps
                .iter()
                .filter(|step| matches!(step, IologStep::Io { op, .. } if *op == of))
                .map(IologStep::len)
                .max()
        };
        let [reads, writes, trims] =
            [Op::Read, Op::Write, Op::Deallocate].map(|op| longest(op).is_some());
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
        // Buffers have to be as large as the longest I/O of the log.
        for op in [Op::Read, Op::Write] {
            if let Some(bytes) = longest(op) {
                *self.block.get_mut(op) = BlockSizes::fixed(bytes.max(1));
            }
        }
        self.verify = None;
        self.iolog = Some(Arc::new(list));
    }
}
