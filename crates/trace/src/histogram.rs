//! Histograms as bcc's tools print them: linear ones for small counts, and ones with a bucket per power of two for times.
//!
//! Both for the kernel's queues (`reap trace`) and for Reap's own (`reap run --histograms`):
//!
//! ```
//! use trace::histogram::{Linear, Log2};
//!
//! let (mut per_wakeup, mut first_look) = (Linear::default(), Log2::default());
//! per_wakeup.record(3); // completions that one wake-up brought
//! first_look.record(17); // microseconds from the notification to the first look
//! print!("{}\n{}", per_wakeup.draw("completions"), first_look.draw("usecs"));
//! ```

use std::fmt;

/// Widest bar, in characters.
const BAR: usize = 40;

/// Values that [`Linear`] keeps apart: 0 to 127. One more bucket takes all larger ones.
pub const LINEAR_VALUES: usize = 128;

/// Buckets of [`Log2`]: the last begins at 2³⁹.
pub const LOG2_BUCKETS: usize = 40;

/// Counts by bucket, with what the buckets lose: the sum and the largest value.
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
    /// Takes counts that were gathered elsewhere, with the sum and the largest of the values. Counts beyond the last bucket are
    /// added to it.
    pub fn from_parts(counts: &[u64], sum: u64, max: u64) -> Self {
        let mut histogram = Histogram { buckets: [0; BUCKETS], sum, max };
        counts.iter().enumerate().for_each(|(bucket, count)| histogram.buckets[bucket.min(BUCKETS - 1)] += count);
        histogram
    }

    fn add(&mut self, bucket: usize, value: u64) {
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
    }

    /// Adds all that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, theirs)| *mine += theirs);
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// How many values were recorded.
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

    /// What was recorded here and not yet in `earlier`, an older state of this histogram. The largest value is that of the whole
    /// time: which interval it fell into is not known.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = self.clone();
        difference.buckets.iter_mut().zip(&earlier.buckets).for_each(|(mine, theirs)| *mine = mine.saturating_sub(*theirs));
        difference.sum = self.sum.saturating_sub(earlier.sum);
        difference
    }
}

impl Linear {
    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.add(usize::try_from(value).unwrap_or(usize::MAX), value);
    }

    /// The histogram as text, `label` naming the values: a header, then one line per value from 0 to the largest, where those in a row
    /// that did not occur share one; nothing when it is empty.
    pub fn draw<'a>(&'a self, label: &'a str) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            let counts = self.counts();
            if counts.is_empty() {
                return Ok(());
            }
            writeln!(f, "     {label:<13} : count     distribution")?;
            let mut value = 0;
            // Values that did not occur are one line, however many lie between two that did.
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
    /// The bucket that a value falls into.
    pub fn bucket(value: u64) -> usize {
        (value.max(1).ilog2() as usize).min(LOG2_BUCKETS - 1)
    }

    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.add(Self::bucket(value), value);
    }

    /// The histogram as text, `label` naming the unit: a header, then one line per power of two from 0 → 1 on; nothing when it is empty.
    pub fn draw<'a>(&'a self, label: &'a str) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            let counts = self.counts();
            if counts.is_empty() {
                return Ok(());
            }
            writeln!(f, "     {label:<19} : count     distribution")?;
            for (bucket, &count) in counts.iter().enumerate() {
                let low = if bucket == 0 { 0 } else { 1u64 << bucket };
                let high = (1u64 << (bucket + 1)) - 1;
                writeln!(f, "{low:>10} -> {high:<10} : {count:<8} |{:<BAR$}|", bar(count, counts))?;
            }
            Ok(())
        })
    }
}

/// A bar as long as a count's share of the largest.
fn bar(count: u64, counts: &[u64]) -> String {
    let largest = counts.iter().copied().max().unwrap_or(0).max(1);
    "*".repeat((u128::from(count) * BAR as u128 / u128::from(largest)) as usize)
}

#[cfg(test)]
mod tests;
