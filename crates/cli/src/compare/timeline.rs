//! From snapshots to a time line: what a mode did, tick by tick, all blocks laid over each other. Pure.

use reap::Nanos;
use workload::Histogram;

use super::blocks::Sample;
use super::design::{TICK, TIMELINE};
use super::scenes::Setting;
use crate::bench::Snapshot;
use crate::rows::{Tick, Timeline};

/// What is counted up to an instant.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    at: f64,
    figures: [f64; FIGURES],
}

const FIGURES: usize = 7;

/// The time line of `mode` in the scene of `setting`; `None` without a block of any length.
pub fn timeline(mode: String, setting: &Setting, capacity: f64, blocks: &[Sample]) -> Option<Timeline> {
    let threads: Vec<&[Snapshot]> = blocks.iter().flat_map(|block| &block.snapshots).map(Vec::as_slice).collect();
    let count = (TIMELINE.0 / TICK.0) as usize;
    if blocks.is_empty() || threads.iter().all(|thread| thread.len() < 2) {
        return None;
    }
    let mut figures = vec![[0.0; FIGURES]; count];
    let mut latencies = vec![Histogram::default(); count];
    for thread in threads {
        add(thread, &mut figures);
        for snapshot in thread {
            // Its latencies are those since the one before: in the tick that ended about then, or a little before.
            let tick = (snapshot.at.0.saturating_sub(TICK.0 / 2) / TICK.0) as usize;
            if let Some(latency) = latencies.get_mut(tick) {
                latency.merge(&snapshot.latency);
            }
        }
    }
    // Per second, of one block.
    let unit = 1.0 / (TICK.as_secs_f64() * blocks.len() as f64);
    let tick = |(at, (sums, latency)): (usize, (&[f64; FIGURES], &Histogram))| {
        let [ios, cpu, looks, empty_looks, spins, naps, sleeps] = sums.map(|sum| sum * unit);
        let percentile = latency.percentiles(&[50.0, 99.0]);
        let middle = Nanos(at as u64 * TICK.0 + TICK.0 / 2);
        Tick {
            offered: setting.arrivals.offered(middle, capacity),
            iops: ios,
            cpu: cpu / 1e9,
            p50: percentile.first().map_or(0.0, |&ns| ns as f64),
            p99: percentile.last().map_or(0.0, |&ns| ns as f64),
            looks,
            empty_looks,
            spins,
            naps,
            sleeps,
            ..Tick::default()
        }
    };
    let ticks = figures.iter().zip(&latencies).enumerate().map(tick).collect();
    Some(Timeline { mode, scene: setting.scene.clone(), tick_ns: TICK.0, ticks })
}

/// Adds what a thread did to the ticks in which it did it. A thread that sleeps takes no snapshots: what it did between
/// two of them counts as evenly spread.
fn add(thread: &[Snapshot], ticks: &mut [[f64; FIGURES]]) {
    let mut from = Sum::default();
    for snapshot in thread {
        let to = Sum::of(snapshot);
        let span = to.at - from.at;
        let (first, last) = ((from.at / TICK.0 as f64) as usize, (to.at / TICK.0 as f64) as usize);
        for (at, tick) in ticks.iter_mut().enumerate().skip(first).take(last + 1 - first.min(last)) {
            let (start, end) = (at as f64 * TICK.0 as f64, (at + 1) as f64 * TICK.0 as f64);
            let part = (to.at.min(end) - from.at.max(start)).max(0.0) / span.max(1.0);
            for (sum, (to, from)) in tick.iter_mut().zip(to.figures.iter().zip(&from.figures)) {
                *sum += (to - from) * part;
            }
        }
        from = to;
    }
}

impl Sum {
    fn of(snapshot: &Snapshot) -> Sum {
        let host = &snapshot.host;
        let counts = [snapshot.ios, snapshot.cpu.0, host.looks, host.empty_looks, host.spins, host.naps, host.sleeps];
        Sum { at: snapshot.at.0 as f64, figures: counts.map(|count| count as f64) }
    }
}

#[cfg(test)]
mod tests;
