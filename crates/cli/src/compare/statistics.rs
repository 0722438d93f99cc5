//! Estimates from blocks: medians, ratios paired by round, and intervals by bootstrap. This module
//! does no I/O. A block is one timed run of one mode; a round is one block of each mode, one after
//! the other.
//!
//! The load of a shared machine changes over time. Blocks of one round are close in time, so their
//! ratio varies less than a ratio of averages. The median of the ratios ignores a few disturbed
//! rounds. The bootstrap (Efron 1979) draws rounds with replacement to estimate how much the median
//! varies.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::{Histogram, Moments};

use crate::rows::{Estimate, Latencies, Pair, Scene};

/// Resamples of a bootstrap of medians.
const RESAMPLES: usize = 2_000;
/// Resamples of a bootstrap of percentiles: fewer, because each resample merges histograms.
const TAIL_RESAMPLES: usize = 200;
/// Minimum number of values for an interval. The widest interval of a bootstrap, from the lowest to
/// the highest of n values, covers the median with probability 1 − 2^(1−n): 75 % for n = 3, 94 %
/// for n = 5, 97 % for n = 6.
pub const FEWEST: usize = 6;
/// Minimum number of samples above a percentile for the percentile to be reported.
const ABOVE: f64 = 20.0;
/// The percentiles of [`Latencies::curve`], in per cent.
const CURVE: [f64; 20] = [
    0.1, 1.0, 5.0, 10.0, 25.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.75, 99.9,
    99.95, 99.99, 99.995, 99.999,
];

/// The median of `values`; `None` if there are none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    // The two middle values; they are the same one if the number is odd. Without values the index
    // wraps, and `get` returns `None`.
    let (low, high) =
        (sorted.get(sorted.len().wrapping_sub(1) / 2)?, sorted.get(sorted.len() / 2)?);
    Some((low + high) / 2.0)
}

/// The median of `values`, with a 95 % interval by percentile bootstrap if there are at least
/// [`FEWEST`].
pub fn estimate(values: &[f64], rng: &mut Xoshiro256PlusPlus) -> Option<Estimate> {
    let value = median(values)?;
    if values.len() < FEWEST {
        return Some(Estimate { value, interval: None });
    }
    let mut resample = values.to_vec();
    let mut medians = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        // Drawn with replacement, as many as there are values.
        resample.fill_with(|| values[rng.random_range(0..values.len())]);
        medians.extend(median(&resample));
    }
    Some(Estimate { value, interval: interval(&mut medians) })
}

/// The paired ratios b ÷ a for all pairs of labels. `figure`: the name of what `values` are, such
/// as IOPS. `values`: by label, then by round.
pub fn pairs(
    scene: &Scene,
    labels: &[&str],
    figure: &'static str,
    values: &[Vec<Option<f64>>],
    rng: &mut Xoshiro256PlusPlus,
) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (n, (a, first)) in labels.iter().zip(values).enumerate() {
        for (b, second) in labels.iter().zip(values).skip(n + 1) {
            // A round has no ratio if either value is missing or the divisor is 0.
            let both = first.iter().zip(second).filter_map(|(a, b)| a.filter(|a| *a > 0.0).zip(*b));
            let ratio = estimate(&both.map(|(a, b)| b / a).collect::<Vec<f64>>(), rng);
            pairs.extend(ratio.map(|ratio| Pair {
                scene: scene.clone(),
                a: a.to_string(),
                b: b.to_string(),
                figure,
                ratio,
            }));
        }
    }
    pairs
}

/// Latencies over all I/Os of all blocks, in nanoseconds.
pub fn latencies(
    moments: &Moments,
    blocks: &[&Histogram],
    rng: &mut Xoshiro256PlusPlus,
) -> Latencies {
    let mut percentile = |percent: f64| percentile(blocks, percent, rng);
    let measured = moments.n > 0;
    Latencies {
        mean: measured.then(|| moments.mean()),
        p50: percentile(50.0),
        p99: percentile(99.0),
        p999: percentile(99.9),
        p9999: percentile(99.99),
        max: measured.then(|| moments.max()),
        curve: curve(blocks),
    }
}

/// The percentile `percent` over all blocks; `None` if fewer than [`ABOVE`] samples lie above it.
/// The interval resamples blocks, not samples, because latencies within a block are correlated:
/// what delays one I/O delays those queued behind it.
fn percentile(
    blocks: &[&Histogram],
    percent: f64,
    rng: &mut Xoshiro256PlusPlus,
) -> Option<Estimate> {
    let merged_percentile = |pick: &mut dyn FnMut() -> usize| {
        let mut sum = Histogram::default();
        (0..blocks.len()).for_each(|_| sum.merge(blocks[pick()]));
        let value = sum.percentiles(&[percent]).first().copied();
        (sum.total(), value)
    };
    // The estimate merges each block once; a resample merges blocks drawn at random.
    let mut each = 0..blocks.len();
    let (samples, value) = merged_percentile(&mut || each.next().unwrap_or(0));
    if samples as f64 * (1.0 - percent / 100.0) < ABOVE {
        return None;
    }
    let value = value? as f64;
    if blocks.len() < FEWEST {
        return Some(Estimate { value, interval: None });
    }
    let mut values: Vec<f64> = (0..TAIL_RESAMPLES)
        .filter_map(|_| merged_percentile(&mut || rng.random_range(0..blocks.len())).1)
        .map(|value| value as f64)
        .collect();
    Some(Estimate { value, interval: interval(&mut values) })
}

/// The distribution over all blocks as (per cent, nanoseconds), for percentiles with at least
/// [`ABOVE`] samples on both sides.
fn curve(blocks: &[&Histogram]) -> Vec<(f64, f64)> {
    let mut sum = Histogram::default();
    blocks.iter().for_each(|block| sum.merge(block));
    let samples = sum.total() as f64;
    let enough = |percent: &f64| samples * (1.0 - percent / 100.0).min(percent / 100.0) >= ABOVE;
    let percents: Vec<f64> = CURVE.into_iter().filter(enough).collect();
    let values = sum.percentiles(&percents);
    percents.into_iter().zip(values).map(|(percent, value)| (percent, value as f64)).collect()
}

/// The 2.5th and 97.5th percentile of `values`.
fn interval(values: &mut [f64]) -> Option<[f64; 2]> {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().checked_sub(1)? as f64;
    let at = |part: f64| values.get((part * last).round() as usize).copied();
    Some([at(0.025)?, at(0.975)?])
}

#[cfg(test)]
mod tests;
