//! Figures of runs that were made in pairs.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n => (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0,
    }
}

/// 95 % of the medians of resamples.
pub fn interval(values: &[f64], rng: &mut Xoshiro256PlusPlus) -> [f64; 2] {
    let mut resample = values.to_vec();
    let mut medians: Vec<f64> = (0..2_000)
        .map(|_| {
            resample.fill_with(|| values[rng.random_range(0..values.len())]);
            median(&resample)
        })
        .collect();
    medians.sort_unstable_by(f64::total_cmp);
    [medians[49], medians[1950]]
}
