//! Histograms in the format of bcc's tools: linear ones for small counts, and ones with a bucket
//! per power of two for times.
//!
//! Used for the kernel's queues (`reap trace`) and for Reap's own (`reap run --histograms`):
//!
//! ```
//! use trace::histogram::{Linear, Log2};
//!
//! let (mut per_wakeup, mut first_poll) = (Linear::default(), Log2::default());
//! per_wakeup.record(3); // completions that one wake-up brought
//! first_poll.record(17); // microseconds from the notification to the first poll
//! print!("{}\n{}", per_wakeup.draw("completions"), first_poll.draw("usecs"));
//! ```

use std::fmt;

/// Widest bar, in characters.
const BAR: usize = 40;

/// Values with a bucket of their own in [`Linear`]: 0 to 127. One more bucket takes all larger
/// values.
pub const LINEAR_VALUES: usize = 128;

/// Buckets of [`Log2`]: the last begins at 2³⁹.
pub const LOG2_BUCKETS: usize = 40;

/// Counts by bucket, and the exact sum and maximum, which the buckets do not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram<const BUCKETS: usize> {
    buckets: [u64; BUCKETS],
    sum: u64,
    max: u64,
}

/// One bucket per value up to 127, and one for all larger values.
pub type Linear = Histogram<{ LINEAR_VALUES + 1 }>;

/// One bucket per power of two: 0 → 1, 2 → 3, 4 → 7 and so on.
pub type Log2 = Histogram<LOG2_BUCKETS>;

impl<const BUCKETS: usize> Default for Histogram<BUCKETS> {
    fn default() -> Self {
        Histogram { buckets: [0; BUCKETS], sum: 0, max: 0 }
    }
}

impl<const BUCKETS: usize> Histogram<BUCKETS> {
    /// Makes a histogram of counts collected elsewhere, with the sum and maximum of the values.
    /// Counts beyond the last bucket are added to the last bucket.
    pub fn from_parts(counts: &[u64], sum: u64, max: u64) -> Self {
        let mut histogram = Histogram { buckets: [0; BUCKETS], sum, max };
        counts
            .iter()
            .enumerate()
            .for_each(|(bucket, count)| histogram.buckets[bucket.min(BUCKETS - 1)] += count);
        histogram
    }

    fn add(&mut self, bucket: usize, value: u64) {
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
        // A sum of nanoseconds fits for centuries; saturate rather than wrap on absurd input.
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, theirs)| *mine += theirs);
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Number of values recorded.
    pub fn total(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum of the values, exact.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The largest value.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The exact mean; `None` when nothing was recorded.
    pub fn mean(&self) -> Option<f64> {
        (self.total() > 0).then(|| self.sum as f64 / self.total() as f64)
    }

    /// Counts by bucket, up to the last one that is not 0.
    pub fn counts(&self) -> &[u64] {
        let used = self.buckets.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        &self.buckets[..used]
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.counts().is_empty()
    }

    /// The values recorded since `earlier`, an older copy of this histogram. The maximum is that of
    /// all values, as the maximum since `earlier` is unknown.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = self.clone();
        difference
            .buckets
            .iter_mut()
            .zip(&earlier.buckets)
            .for_each(|(mine, theirs)| *mine = mine.saturating_sub(*theirs));
        difference.sum = self.sum.saturating_sub(earlier.sum);
        difference
    }
}

impl Linear {
    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.add(usize::try_from(value).unwrap_or(usize::MAX), value);
    }

    /// The histogram as text: a header with `label`, then one line per value from 0 to the largest.
    /// Consecutive values that did not occur share a line. Empty if nothing was recorded.
    pub fn draw<'a>(&'a self, label: &'a str) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            let counts = self.counts();
            if counts.is_empty() {
                return Ok(());
            }
            writeln!(f, "     {label:<13} : count     distribution")?;
            let mut value = 0;
            // A run of buckets that are all zero becomes one line (`a + b == 0` groups them).
            for run in counts.chunk_by(|a, b| a + b == 0) {
                let last = value + run.len() - 1;
                let name = match run {
                    [_] if value == LINEAR_VALUES => format!("{value}+"),
                    [_] => value.to_string(),
                    _ => format!("{value} -> {last}"),
                };
                writeln!(f, "        {name:<10} : {:<8} |{:<BAR$}|", run[0], bar(run[0], counts))?;
                value = last + 1;
            }
            Ok(())
        })
    }
}

impl Log2 {
    /// The bucket of a value.
    pub fn bucket(value: u64) -> usize {
        // 0 and 1 share the first bucket; `ilog2` panics on 0.
        (value.max(1).ilog2() as usize).min(LOG2_BUCKETS - 1)
    }

    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.add(Self::bucket(value), value);
    }

    /// The histogram as text: a header with `label`, the unit, then one line per power of two from
    /// 0 → 1 on. Empty if nothing was recorded.
    pub fn draw<'a>(&'a self, label: &'a str) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            let counts = self.counts();
            if counts.is_empty() {
                return Ok(());
            }
            writeln!(f, "     {label:<19} : count     distribution")?;
            for (bucket, &count) in counts.iter().enumerate() {
                // The first bucket begins at 0, not at 1.
                let low = if bucket == 0 { 0 } else { 1u64 << bucket };
                let high = (1u64 << (bucket + 1)) - 1;
                writeln!(f, "{low:>10} -> {high:<10} : {count:<8} |{:<BAR$}|", bar(count, counts))?;
            }
            Ok(())
        })
    }
}

/// A bar whose length is proportional to `count`; the largest count has the full width.
fn bar(count: u64, counts: &[u64]) -> String {
    let largest = counts.iter().copied().max().unwrap_or(0).max(1);
    // 128 bits: a count times the width may not fit 64.
    "*".repeat((u128::from(count) * BAR as u128 / u128::from(largest)) as usize)
}

#[cfg(test)]
mod tests;
