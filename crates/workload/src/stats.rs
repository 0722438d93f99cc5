//! What a job's I/Os came to: latencies, sizes of batches, depth, samples over time; mergeable for `group_reporting`.

use crate::job::Measure;
use smart_default::SmartDefault;
use units::{Nanos, Op};

/// One kind of latency, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    /// Least, greatest, mean, deviation.
    pub moments: Moments,
    /// Counts, where percentiles or a distribution are asked for.
    pub histogram: Option<Histogram>,
}

impl Latency {
    /// Counts `n` I/Os of the same latency.
    #[inline]
    pub fn add(&mut self, span: Nanos, n: u64) {
        self.moments.add(span.0, n);
        if let Some(histogram) = &mut self.histogram {
            histogram.add(span.0, n);
        }
    }

    /// Adds another thread's.
    pub fn merge(&mut self, other: &Latency) {
        self.moments.merge(&other.moments);
        match (&mut self.histogram, &other.histogram) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (None, Some(theirs)) => self.histogram = Some(theirs.clone()),
            (_, None) => {}
        }
    }
}

/// Everything that is kept for reads, for writes, or for Flushes.
#[derive(Clone, Debug, Default)]
pub struct OpStats {
    /// I/Os that completed without an error.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// I/Os issued.
    pub issued: u64,
    /// From the decision to issue until the doorbell was rung.
    pub slat: Latency,
    /// From the doorbell to the completion.
    pub clat: Latency,
    /// From the decision to issue to the completion.
    pub lat: Latency,
    /// With a rate: from the start that the rate intended to the completion. What a late start hides from `lat` shows here.
    pub intended: Latency,
    /// Bandwidth in KiB/s, sampled.
    pub bw: Moments,
    /// I/Os per second, sampled.
    pub iops: Moments,
    /// How long this was measured.
    pub runtime: Nanos,
    /// `ios` when `runtime` was last added to.
    pub(crate) accounted: u64,
}

impl OpStats {
    /// From the start that the rate intended, if there is one; else from the decision to issue, as far as that was measured. Of
    /// one thread: of several each has its own.
    pub fn latency(&self) -> &Latency {
        let measured = |latency: &Latency| latency.moments.n > 0;
        [&self.intended, &self.lat].into_iter().find(|latency| measured(latency)).unwrap_or(&self.clat)
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

/// How many of something fell into each of fio's bands.
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

    /// All that was counted.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Each band's share of `total` in per cent. What is there at all is at least 0.1 %.
    pub(crate) fn shares(&self, total: u64) -> [f64; 7] {
        self.0.map(|n| if n == 0 || total == 0 { 0.0 } else { (n as f64 * 100.0 / total as f64).max(0.1) })
    }

    fn merge(&mut self, other: &Bands) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

/// fio's number of what an operation counts as: a read, a write, a trim, a sync.
#[inline]
pub(crate) fn ddir(op: Op) -> usize {
    match op {
        Op::Read | Op::Compare | Op::Verify => 0,
        Op::Write | Op::WriteZeroes | Op::WriteUncorrectable => 1,
        Op::Deallocate => 2,
        Op::Flush => 3,
    }
}

/// What one job thread did while it was measured.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Reads, verification reads included.
    pub read: OpStats,
    /// Writes.
    pub write: OpStats,
    /// Trims: commands that deallocate blocks.
    pub trim: OpStats,
    /// Flushes; no other figure has them in it but depths and batches.
    pub sync: OpStats,
    /// I/Os in flight, as each one was announced.
    pub depth: Bands,
    /// I/Os per doorbell.
    pub submit: Bands,
    /// Completions taken at once.
    pub complete: Bands,
    /// I/Os that failed and with which the job went on, and the first errno (`continue_on_error`).
    pub errors: u64,
    /// The first of them.
    pub first_error: i32,
    /// Which latencies were measured.
    pub measure: Measure,
}

impl Stats {
    /// Nothing yet. `paced`: a rate intends a start for each I/O.
    pub(crate) fn new(measure: Measure, paced: bool) -> Stats {
        let histogram = |wanted: bool| Latency { histogram: wanted.then(Histogram::default), ..Latency::default() };
        let op = OpStats {
            slat: histogram(measure.slat && measure.slat_percentiles),
            // Also for how the latencies are distributed.
            clat: histogram(measure.clat),
            lat: histogram(measure.lat && measure.lat_percentiles),
            intended: histogram(paced && (measure.slat || measure.clat || measure.lat)),
            ..OpStats::default()
        };
        Stats { read: op.clone(), write: op.clone(), trim: op.clone(), sync: op, measure, ..Stats::default() }
    }

    /// The figures of `op`; Write Zeroes and Write Uncorrectable count as writes, and what only looks at blocks as a read.
    #[inline]
    pub fn op_mut(&mut self, op: Op) -> &mut OpStats {
        match op {
            Op::Read | Op::Compare | Op::Verify => &mut self.read,
            Op::Write | Op::WriteZeroes | Op::WriteUncorrectable => &mut self.write,
            Op::Deallocate => &mut self.trim,
            Op::Flush => &mut self.sync,
        }
    }

    /// I/Os that were announced, Flushes included.
    pub fn issued(&self) -> u64 {
        self.read.issued + self.write.issued + self.trim.issued + self.sync.issued
    }

    /// An I/O failed, and the job goes on.
    #[cold]
    pub(crate) fn add_error(&mut self, code: i32) {
        if self.errors == 0 {
            self.first_error = code;
        }
        self.errors += 1;
    }

    /// Adds another thread's figures, of the same time.
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

/// Least, greatest, sum and sum of squares of integers. A sum of squares in 128 bits is exact and costs one
/// multiplication per sample, where a running deviation costs two divisions.
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
    /// Counts `n` equal values; nothing for 0.
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

    /// Adds the samples of something that ran at the same time, whose *rates* add up: least, greatest and mean are
    /// added, and so are the variances (as of independent variables). What fio prints for a group's `bw` and `iops`.
    pub fn merge_parallel(&mut self, other: &Moments) {
        if self.n == 0 || other.n == 0 {
            return self.merge(other);
        }
        let (mean, variance) = (self.mean() + other.mean(), self.variance() + other.variance());
        self.min += other.min;
        self.max += other.max;
        self.n += other.n;
        let n = self.n as f64;
        self.sum = (mean * n).round() as u128;
        self.squares = (variance * (n - 1.0) + mean * mean * n).round() as u128;
    }

    /// The least; 0 if there is none.
    pub fn min(&self) -> u64 {
        if self.n == 0 { 0 } else { self.min }
    }

    /// The greatest; 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean; 0 if there is none.
    pub fn mean(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.sum as f64 / self.n as f64 }
    }

    /// The standard deviation of the samples; 0 for fewer than two.
    pub fn stdev(&self) -> f64 {
        self.variance().sqrt()
    }

    fn variance(&self) -> f64 {
        if self.n < 2 {
            return 0.0;
        }
        // n·Σx² − (Σx)² is exact in integers as long as it fits; beyond, the rounding of f64 no longer matters.
        let n = u128::from(self.n);
        let scaled = match (self.squares.checked_mul(n), self.sum.checked_mul(self.sum)) {
            (Some(a), Some(b)) => a.saturating_sub(b) as f64,
            _ => (self.squares as f64 * n as f64 - (self.sum as f64).powi(2)).max(0.0),
        };
        scaled / (self.n as f64 * (self.n as f64 - 1.0))
    }
}

/// log2 of the buckets per group.
const BITS: u32 = 6;
/// Buckets per group.
const PER_GROUP: usize = 1 << BITS;
/// Groups: up to 2^41 ns, 36 minutes; what is longer counts in the last bucket.
const GROUPS: usize = 36;
/// Buckets in all.
const BUCKETS: usize = GROUPS * PER_GROUP;

/// A log-linear histogram of nanoseconds with fio's geometry.
///
/// Own code because it lies on the data path: one shift and one add per sample, against several dozen instructions of
/// the general crates. Groups of 64 buckets; within a group the buckets are equally wide, and each group's are twice as
/// wide as those of the one before. So a value is known to 1/64 of itself, and percentiles land where fio's do.
#[derive(Clone, Debug, SmartDefault)]
pub struct Histogram {
    #[default(_code = "Box::new([0; BUCKETS])")]
    counts: Box<[u64; BUCKETS]>,
}

/// The bucket of a value.
#[inline]
fn bucket(nanos: u64) -> usize {
    // The highest set bit picks the group, the six bits below it the bucket; below 128 a bucket is one nanosecond.
    let shift = 57 - (nanos | PER_GROUP as u64).leading_zeros();
    let index = ((shift as usize) << BITS) + (nanos >> shift) as usize;
    index.min(BUCKETS - 1)
}

/// The smallest value of a bucket, and how many values it holds.
fn extent(index: usize) -> (u64, u64) {
    if index < 2 * PER_GROUP {
        return (index as u64, 1);
    }
    let shift = (index >> BITS) - 1;
    let within = (index & (PER_GROUP - 1)) + PER_GROUP;
    ((within as u64) << shift, 1 << shift)
}

impl Histogram {
    /// Counts `n` equal values.
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

    /// What was counted since `earlier`, a copy made of this histogram then.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut later = self.clone();
        for (count, before) in later.counts.iter_mut().zip(earlier.counts.iter()) {
            *count = count.saturating_sub(*before);
        }
        later
    }

    /// Values counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The value of each percentile of the ascending list `percents`: the middle of the bucket that reaches it.
    /// Empty if nothing was counted.
    pub fn percentiles(&self, percents: &[f64]) -> Vec<u64> {
        let total = self.total();
        if total == 0 {
            return Vec::new();
        }
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

    /// Each bucket that counted anything: its middle and its count, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(i, n)| {
            let (low, width) = extent(i);
            (low + width / 2, *n)
        })
    }
}

#[cfg(test)]
mod tests;
