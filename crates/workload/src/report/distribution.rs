//! Shares in per cent: of depths, of batches, of latencies.

use crate::stats::{Bands, Histogram, Stats};

/// Bands of latency: how many I/Os took less than so many units, and not less than the band before.
pub(super) const BOUNDS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];

/// The shares of latencies in nanoseconds, microseconds and milliseconds; these up to 2 s, and more.
#[derive(Default)]
pub(super) struct Latencies {
    pub ns: [f64; 10],
    pub us: [f64; 10],
    pub ms: [f64; 12],
}

/// Per cent of each band. What is there at all is at least 0.1 %.
pub(super) fn bands(bands: &Bands, total: u64) -> [f64; 7] {
    bands.0.map(|n| share(n, total, 0.1))
}

/// How the completion latencies of reads and writes are distributed.
pub(super) fn latencies(stats: &Stats) -> Latencies {
    let mut counts = [0u64; 32];
    let histograms: Vec<&Histogram> = [&stats.read, &stats.write].iter().filter_map(|s| s.clat.histogram.as_ref()).collect();
    for (nanos, n) in histograms.iter().flat_map(|h| h.buckets()) {
        counts[band(nanos)] += n;
    }
    let total = stats.read.ios + stats.write.ios;
    let shares = counts.map(|n| share(n, total, 0.01));
    let mut latencies = Latencies::default();
    latencies.ns.copy_from_slice(&shares[..10]);
    latencies.us.copy_from_slice(&shares[10..20]);
    latencies.ms.copy_from_slice(&shares[20..]);
    latencies
}

/// The band of a latency: ten for each unit, and two for whole seconds.
fn band(nanos: u64) -> usize {
    let (units, first) = match nanos {
        n if n < 1_000 => (n, 0),
        n if n < 1_000_000 => (n / 1_000, 10),
        n => (n / 1_000_000, 20),
    };
    match BOUNDS.iter().position(|bound| units < *bound) {
        Some(index) => first + index,
        None if units < 2_000 => 30,
        None => 31,
    }
}

fn share(n: u64, total: u64, least: f64) -> f64 {
    match (n, total) {
        (0, _) | (_, 0) => 0.0,
        _ => (n as f64 * 100.0 / total as f64).max(least),
    }
}
