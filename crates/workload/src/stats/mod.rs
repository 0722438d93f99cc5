//! What a job's I/Os came to: latencies, sizes of batches, depth, samples over time; mergeable for `group_reporting`.

mod histogram;
mod moments;

pub use histogram::Histogram;
pub use moments::Moments;

use crate::job::{Measure, PerOp};
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
    /// Counts one I/O.
    #[inline]
    pub fn add(&mut self, span: Nanos) {
        self.moments.add(span.0);
        if let Some(histogram) = &mut self.histogram {
            histogram.add(span.0);
        }
    }

    /// Counts `n` I/Os of the same latency.
    #[inline]
    pub fn add_n(&mut self, span: Nanos, n: u64) {
        self.moments.add_n(span.0, n);
        if let Some(histogram) = &mut self.histogram {
            histogram.add_n(span.0, n);
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

    fn clear(&mut self) {
        self.moments = Moments::default();
        if let Some(histogram) = &mut self.histogram {
            histogram.clear();
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
    /// I/Os per second.
    pub fn iops_mean(&self) -> f64 {
        per_second(self.ios, self.runtime)
    }

    /// Bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        per_second(self.bytes, self.runtime)
    }

    /// From the start that the rate intended, if there is one; else from the decision to issue, as far as that was measured. Of
    /// one thread: of several each has its own.
    pub fn latency(&self) -> &Latency {
        let measured = |latency: &Latency| latency.moments.n > 0;
        [&self.intended, &self.lat].into_iter().find(|latency| measured(latency)).unwrap_or(&self.clat)
    }

    fn merge(&mut self, other: &OpStats) {
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

    fn clear(&mut self) {
        self.ios = 0;
        self.bytes = 0;
        self.issued = 0;
        self.slat.clear();
        self.clat.clear();
        self.lat.clear();
        self.intended.clear();
        self.bw = Moments::default();
        self.iops = Moments::default();
        self.runtime = Nanos::ZERO;
        self.accounted = 0;
    }
}

/// `n` in `span`, per second; 0 for an empty span.
fn per_second(n: u64, span: Nanos) -> f64 {
    if span == Nanos::ZERO { 0.0 } else { n as f64 / span.as_secs_f64() }
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

    fn merge(&mut self, other: &Bands) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
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

    /// Counts `n` submissions of `op` that took `span` each.
    #[inline]
    pub(crate) fn add_slat(&mut self, op: Op, span: Nanos, n: u64) {
        if n > 0 && self.measure.slat {
            self.op_mut(op).slat.add_n(span, n);
        }
    }

    /// The reads', the writes' and the trims' figures.
    pub fn ops(&self) -> PerOp<&OpStats> {
        PerOp { read: &self.read, write: &self.write, trim: &self.trim }
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

    /// Forgets everything: the end of `ramp_time`.
    pub fn clear(&mut self) {
        self.read.clear();
        self.write.clear();
        self.trim.clear();
        self.sync.clear();
        self.depth = Bands::default();
        self.submit = Bands::default();
        self.complete = Bands::default();
    }
}

#[cfg(test)]
mod tests;
