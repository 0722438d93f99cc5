//! Statistics of a job thread: latencies, batch sizes, queue depth, samples of bandwidth and IOPS.
//! They can be merged for `group_reporting`, and have fio's units and histogram buckets.

use crate::job::Measure;
use smart_default::SmartDefault;
use units::{Nanos, Op};

/// One kind of latency, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    /// Minimum, maximum, mean, standard deviation.
    pub moments: Moments,
    /// The distribution, if percentiles or bins are reported.
    pub histogram: Option<Histogram>,
}

impl Latency {
    /// Adds `n` I/Os of the same latency.
    #[inline]
    pub fn add(&mut self, span: Nanos, n: u64) {
        self.moments.add(span.0, n);
        if let Some(histogram) = &mut self.histogram {
            histogram.add(span.0, n);
        }
    }

    /// Adds another thread's latencies.
    pub fn merge(&mut self, other: &Latency) {
        self.moments.merge(&other.moments);
        match (&mut self.histogram, &other.histogram) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            // The first thread of a group may have measured less than this one.
            (None, Some(theirs)) => self.histogram = Some(theirs.clone()),
            (_, None) => {}
        }
    }
}

/// Statistics of one operation: reads, writes, trims or Flushes.
#[derive(Clone, Debug, Default)]
pub struct OpStats {
    /// I/Os that completed without an error.
    pub ios: u64,
    /// Bytes of these I/Os.
    pub bytes: u64,
    /// I/Os for which the doorbell was rung.
    pub issued: u64,
    /// Submission latency: from queueing the command to the doorbell.
    pub slat: Latency,
    /// Completion latency: from the doorbell to the completion.
    pub clat: Latency,
    /// Total latency: from queueing the command to the completion.
    pub lat: Latency,
    /// With a rate: from the intended start to the completion. Unlike `lat` it includes the delay
    /// of a late start.
    pub intended: Latency,
    /// Bandwidth in KiB/s, sampled.
    pub bw: Moments,
    /// I/Os per second, sampled.
    pub iops: Moments,
    /// Sum of the measured phases in which I/Os of this operation completed (fio's `runtime`).
    pub runtime: Nanos,
    /// `ios` when `runtime` was last updated.
    pub(crate) ios_at_last_update: u64,
}

impl OpStats {
    /// The latency with the earliest start that was measured: `intended`, else `lat`, else `clat`.
    pub fn latency(&self) -> &Latency {
        let measured = |latency: &Latency| latency.moments.n > 0;
        [&self.intended, &self.lat]
            .into_iter()
            .find(|latency| measured(latency))
            .unwrap_or(&self.clat)
    }

    pub(crate) fn merge(&mut self, other: &OpStats) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.issued += other.issued;
        self.slat.merge(&other.slat);
        self.clat.merge(&other.clat);
        self.lat.merge(&other.lat);
        self.intended.merge(&other.intended);
        self.bw.merge_parallel(&other.bw);
        self.iops.merge_parallel(&other.iops);
        self.runtime = self.runtime.max(other.runtime);
    }
}

/// Counts in fio's seven bands of depths or batch sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bands(pub [u64; 7]);

impl Bands {
    /// Counts `n` I/Os at a depth: 1, 2–3, 4–7, 8–15, 16–31, 32–63, 64 and more.
    #[inline]
    pub fn add_depth(&mut self, depth: u32, n: u32) {
        let band = (31 - (depth | 1).leading_zeros()).min(6);
        self.0[band as usize] += u64::from(n);
    }

    /// Counts a batch: 0, 1–4, 5–8, 9–16, 17–32, 33–64, more than 64.
    #[inline]
    pub fn add_batch(&mut self, entries: u32) {
        let band = match entries {
            0 => 0,
            1..=4 => 1,
            n => (31 - (n - 1).leading_zeros()).min(6),
        };
        self.0[band as usize] += 1;
    }

    /// The sum of all bands.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Each band's share of `total` in per cent; as in fio a band with a count has at least 0.1 %.
    pub(crate) fn shares(&self, total: u64) -> [f64; 7] {
        self.0.map(|n| {
            if n == 0 || total == 0 { 0.0 } else { (n as f64 * 100.0 / total as f64).max(0.1) }
        })
    }

    fn merge(&mut self, other: &Bands) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

/// fio's data direction of an operation (`enum fio_ddir`): read, write, trim, sync.
#[inline]
pub(crate) fn ddir(op: Op) -> usize {
    match op {
        Op::Read | Op::Compare | Op::Verify => 0,
        Op::Write | Op::WriteZeroes | Op::WriteUncorrectable => 1,
        Op::Deallocate => 2,
        Op::Flush => 3,
    }
}

/// Statistics of one job thread, for the measured time.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Reads, verification reads included.
    pub read: OpStats,
    /// Writes.
    pub write: OpStats,
    /// Trims: commands that deallocate blocks.
    pub trim: OpStats,
    /// Flushes. They also count in `depth`, `submit`, `complete` and [`Stats::issued`].
    pub sync: OpStats,
    /// For each I/O: how many were in flight when the doorbell was rung for it.
    pub depth: Bands,
    /// I/Os per doorbell.
    pub submit: Bands,
    /// Completions per poll.
    pub complete: Bands,
    /// I/Os that failed without ending the job (`continue_on_error`).
    pub errors: u64,
    /// The errno of the first of these `errors`.
    pub first_error: i32,
    /// Which latencies were measured.
    pub measure: Measure,
}

impl Stats {
    /// Empty statistics. `paced`: the job has a rate.
    pub(crate) fn new(measure: Measure, paced: bool) -> Stats {
        let histogram = |wanted: bool| Latency {
            histogram: wanted.then(Histogram::default),
            ..Latency::default()
        };
        let op = OpStats {
            slat: histogram(measure.slat && measure.slat_percentiles),
            // Also without clat_percentiles: JSON has the distribution of clat.
            clat: histogram(measure.clat),
            lat: histogram(measure.lat && measure.lat_percentiles),
            intended: histogram(paced && (measure.slat || measure.clat || measure.lat)),
            ..OpStats::default()
        };
        Stats {
            read: op.clone(),
            write: op.clone(),
            trim: op.clone(),
            sync: op,
            measure,
            ..Stats::default()
        }
    }

    /// The statistics of `op`. Write Zeroes and Write Uncorrectable count as writes, Compare and
    /// Verify as reads.
    #[inline]
    pub fn op_mut(&mut self, op: Op) -> &mut OpStats {
        match op {
            Op::Read | Op::Compare | Op::Verify => &mut self.read,
            Op::Write | Op::WriteZeroes | Op::WriteUncorrectable => &mut self.write,
            Op::Deallocate => &mut self.trim,
            Op::Flush => &mut self.sync,
        }
    }

    /// I/Os for which the doorbell was rung, Flushes included.
    pub fn issued(&self) -> u64 {
        self.read.issued + self.write.issued + self.trim.issued + self.sync.issued
    }

    /// Counts a failed I/O of a job with `continue_on_error`.
    #[cold]
    pub(crate) fn add_error(&mut self, code: i32) {
        if self.errors == 0 {
            self.first_error = code;
        }
        self.errors += 1;
    }

    /// Adds another thread's statistics of the same time.
    pub fn merge(&mut self, other: &Stats) {
        if self.errors == 0 {
            self.first_error = other.first_error;
        }
        self.errors += other.errors;
        self.read.merge(&other.read);
        self.write.merge(&other.write);
        self.trim.merge(&other.trim);
        self.sync.merge(&other.sync);
        self.depth.merge(&other.depth);
        self.submit.merge(&other.submit);
        self.complete.merge(&other.complete);
    }
}

/// Minimum, maximum, sum and sum of squares of integers. A sum of squares in 128 bits is exact and
/// takes one multiplication per sample; a running variance would take two divisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SmartDefault)]
pub struct Moments {
    /// Samples.
    pub n: u64,
    #[default(u64::MAX)]
    min: u64,
    max: u64,
    sum: u128,
    squares: u128,
}

impl Moments {
    /// Adds `n` equal values.
    #[inline]
    pub fn add(&mut self, value: u64, n: u64) {
        if n == 0 {
            return;
        }
        self.n += n;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += u128::from(value) * u128::from(n);
        self.squares += u128::from(value) * u128::from(value) * u128::from(n);
    }

    /// Adds another's samples.
    pub fn merge(&mut self, other: &Moments) {
        self.n += other.n;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// Adds the samples of a thread that ran at the same time and whose rates add up: minima,
    /// maxima and means are added, and the variances as those of independent variables. fio does so
    /// for a group's `bw` and `iops`.
    pub fn merge_parallel(&mut self, other: &Moments) {
        // A thread without samples has no rate to add.
        if self.n == 0 || other.n == 0 {
            return self.merge(other);
        }
        let (mean, variance) = (self.mean() + other.mean(), self.variance() + other.variance());
        self.min += other.min;
        self.max += other.max;
        self.n += other.n;
        // Sum and squares that have this mean and variance, so that merging again is possible.
        let n = self.n as f64;
        self.sum = (mean * n).round() as u128;
        self.squares = (variance * (n - 1.0) + mean * mean * n).round() as u128;
    }

    /// The minimum; 0 without samples.
    pub fn min(&self) -> u64 {
        if self.n == 0 { 0 } else { self.min }
    }

    /// The maximum; 0 without samples.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean; 0 without samples.
    pub fn mean(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.sum as f64 / self.n as f64 }
    }

    /// The sample standard deviation; 0 for fewer than two samples.
    pub fn stdev(&self) -> f64 {
        self.variance().sqrt()
    }

    fn variance(&self) -> f64 {
        if self.n < 2 {
            return 0.0;
        }
        // n·Σx² − (Σx)² is exact in integers. Sums that do not fit are so large that the rounding
        // of f64 does not matter.
        let n = u128::from(self.n);
        let scaled = match (self.squares.checked_mul(n), self.sum.checked_mul(self.sum)) {
            (Some(a), Some(b)) => a.saturating_sub(b) as f64,
            _ => (self.squares as f64 * n as f64 - (self.sum as f64).powi(2)).max(0.0),
        };
        scaled / (self.n as f64 * (self.n as f64 - 1.0))
    }
}

/// log2 of [`PER_GROUP`].
const BITS: u32 = 6;
/// Buckets per group.
const PER_GROUP: usize = 1 << BITS;
/// Groups: up to 2^41 ns, 36 minutes; longer values count in the last bucket.
const GROUPS: usize = 36;
/// Buckets in all.
const BUCKETS: usize = GROUPS * PER_GROUP;

/// A log-linear histogram of nanoseconds with fio's buckets (`plat_val_to_idx` in its stat.c), so
/// that percentiles are the same as fio's. The relative error is at most 1/64. Adding a sample, on
/// the data path, takes neither a loop nor a division.
///
/// ```text
/// group    0        1          2            3
/// values   0…63     64…127     128…255      256…511     each has 64 buckets
/// width    1 ns     1 ns       2 ns         4 ns
/// ```
#[derive(Clone, Debug, SmartDefault)]
pub struct Histogram {
    #[default(_code = "Box::new([0; BUCKETS])")]
    counts: Box<[u64; BUCKETS]>,
}

/// The bucket of a value.
#[inline]
fn bucket(nanos: u64) -> usize {
    // The highest set bit selects the group, and the six bits below it the bucket.
    let shift = 57 - (nanos | PER_GROUP as u64).leading_zeros();
    let index = ((shift as usize) << BITS) + (nanos >> shift) as usize;
    // Values beyond the last group are counted in the last bucket.
    index.min(BUCKETS - 1)
}

/// The smallest value of a bucket, and its width.
fn extent(index: usize) -> (u64, u64) {
    if index < 2 * PER_GROUP {
        return (index as u64, 1);
    }
    let shift = (index >> BITS) - 1;
    let within = (index & (PER_GROUP - 1)) + PER_GROUP;
    ((within as u64) << shift, 1 << shift)
}

impl Histogram {
    /// Adds `n` equal values.
    #[inline]
    pub fn add(&mut self, nanos: u64, n: u64) {
        self.counts[bucket(nanos)] += n;
    }

    /// Adds another histogram's counts.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine += theirs;
        }
    }

    /// The counts added since `earlier`, a copy of this histogram.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut later = self.clone();
        for (count, before) in later.counts.iter_mut().zip(earlier.counts.iter()) {
            *count = count.saturating_sub(*before);
        }
        later
    }

    /// Number of values.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The value of each percentile of the ascending list `percents`, in nanoseconds: the middle of
    /// the bucket that reaches it. Empty without values.
    pub fn percentiles(&self, percents: &[f64]) -> Vec<u64> {
        let total = self.total();
        if total == 0 {
            return Vec::new();
        }
        // One pass over the buckets, because the percentiles are ascending.
        let mut found = Vec::with_capacity(percents.len());
        let (mut sum, mut index) = (0, 0);
        for percent in percents {
            let wanted = (percent / 100.0 * total as f64).ceil().max(1.0) as u64;
            while index < BUCKETS && sum < wanted.min(total) {
                sum += self.counts[index];
                index += 1;
            }
            let (low, width) = extent(index.saturating_sub(1));
            found.push(low + width / 2);
        }
        found
    }

    /// The middle and the count of each bucket that is not empty, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(i, n)| {
            let (low, width) = extent(i);
            (low + width / 2, *n)
        })
    }
}

#[cfg(test)]
mod tests;
