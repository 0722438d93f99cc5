//! Least, greatest, mean and deviation, exact in integers.

/// Least, greatest, sum and sum of squares of integers. A sum of squares in 128 bits is exact and costs one
/// multiplication per sample, where a running deviation costs two divisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moments {
    /// Samples.
    pub n: u64,
    min: u64,
    max: u64,
    sum: u128,
    squares: u128,
}

impl Default for Moments {
    fn default() -> Self {
        Moments::NONE
    }
}

impl Moments {
    /// No samples.
    pub const NONE: Moments = Moments { n: 0, min: u64::MAX, max: 0, sum: 0, squares: 0 };

    /// Counts one value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.n += 1;
        if value < self.min {
            self.min = value;
        }
        if value > self.max {
            self.max = value;
        }
        self.sum += u128::from(value);
        self.squares += u128::from(value) * u128::from(value);
    }

    /// Counts `n` equal values; nothing for 0.
    #[inline]
    pub fn add_n(&mut self, value: u64, n: u64) {
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
