//! A log-linear histogram of nanoseconds with fio's geometry.
//!
//! Own code because it lies on the data path: one shift and one add per sample, against several dozen instructions of
//! the general crates. Groups of 64 buckets; within a group the buckets are equally wide, and each group's are twice as
//! wide as those of the one before. So a value is known to 1/64 of itself, and percentiles land where fio's do.

/// log2 of the buckets per group.
const BITS: u32 = 6;
/// Buckets per group.
const PER_GROUP: usize = 1 << BITS;
/// Groups: up to 2^41 ns, 36 minutes; what is longer counts in the last bucket.
const GROUPS: usize = 36;
/// Buckets in all.
const BUCKETS: usize = GROUPS * PER_GROUP;

/// Counts of latencies by log-linear buckets.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: Box::new([0; BUCKETS]) }
    }
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
    /// Counts one value.
    #[inline]
    pub fn add(&mut self, nanos: u64) {
        self.counts[bucket(nanos)] += 1;
    }

    /// Counts `n` equal values.
    #[inline]
    pub fn add_n(&mut self, nanos: u64, n: u64) {
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

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.counts.fill(0);
    }

    /// Values counted.
    pub fn len(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|n| *n == 0)
    }

    /// The value of each percentile of the ascending list `percents`: the middle of the bucket that reaches it.
    /// Empty if nothing was counted.
    pub fn percentiles(&self, percents: &[f64]) -> Vec<u64> {
        let total = self.len();
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

    /// The value of a percentile, if those of a bucket lie evenly in it: finer than [`Histogram::percentiles`], which know it to
    /// 1/64, as fio does. `None` if nothing was counted.
    pub fn percentile_within(&self, percent: f64) -> Option<f64> {
        let mut left = percent / 100.0 * self.len() as f64;
        for (index, &n) in self.counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            if left <= n as f64 {
                let (low, width) = extent(index);
                return Some(low as f64 + width as f64 * left / n as f64);
            }
            left -= n as f64;
        }
        None
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
pub(super) fn bucket_extent(nanos: u64) -> (u64, u64) {
    extent(bucket(nanos))
}
