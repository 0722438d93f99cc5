//! What the host takes from others: work lost by a loop that counts, at idle priority, on the host's CPUs.
//!
//! A thread's CPU clock does not run while its CPU handles an interrupt or leaves its idle state. The loop's count
//! misses that time too, and whatever else is lost, so it tells what is left for the application.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use anyhow::{Context, Result};
use units::Nanos;

use super::design::FEW;
use super::statistics;

/// Counting loops, one for each CPU; they end when this is dropped.
pub struct Counters {
    loops: Vec<Arc<Loop>>,
}

#[derive(Default)]
#[repr(align(128))]
struct Loop {
    count: AtomicU64,
    refused: AtomicBool,
    ready: AtomicBool,
    end: AtomicBool,
}

/// What the loops had counted at an instant.
#[derive(Clone, Debug)]
pub struct Reading {
    at: Nanos,
    counts: Vec<u64>,
}

impl Counters {
    /// Starts a loop on each of `cpus`.
    ///
    /// # Errors
    /// A thread cannot be started, pinned, or given idle priority.
    pub fn start(cpus: &[usize]) -> Result<Counters> {
        let mut counters = Counters { loops: Vec::new() };
        for &cpu in cpus {
            let shared = Arc::new(Loop::default());
            counters.loops.push(shared.clone());
            thread::Builder::new().name("reap-idle".into()).spawn(move || count(&shared, cpu)).context("cannot start a counting loop")?;
        }
        while counters.loops.iter().any(|l| !l.ready.load(Relaxed)) {
            hw::sleep_until(hw::now() + Nanos::from_micros(100));
        }
        let refused = counters.loops.iter().any(|l| l.refused.load(Relaxed));
        if refused { Err(anyhow::anyhow!("the kernel refuses to pin a thread at idle priority")) } else { Ok(counters) }
    }

    /// The counts now.
    pub fn read(&self) -> Reading {
        Reading { at: hw::now(), counts: self.loops.iter().map(|l| l.count.load(Relaxed)).collect() }
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        self.loops.iter().for_each(|l| l.end.store(true, Relaxed));
    }
}

impl Reading {
    /// Counts per nanosecond from `self` to `later`, all loops together.
    pub fn rate(&self, later: &Reading) -> f64 {
        let span = (later.at - self.at).0;
        let counts: u64 = later.counts.iter().zip(&self.counts).map(|(to, from)| to - from).sum();
        if span == 0 { 0.0 } else { counts as f64 / span as f64 }
    }

    /// CPU time lost from `self` to `later`, in nanoseconds, where `idle` is the rate of loops that nobody disturbs.
    pub fn lost(&self, later: &Reading, idle: f64) -> f64 {
        let span = (later.at - self.at).0 as f64 * self.counts.len() as f64;
        if idle > 0.0 { (span * (1.0 - self.rate(later) / idle)).max(0.0) } else { 0.0 }
    }
}

/// A block in which the loops counted.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// CPU time that the loops lost, in nanoseconds.
    pub lost: f64,
    /// CPU time of the job's threads.
    pub cpu: Nanos,
    /// Their I/Os.
    pub ios: u64,
}

/// What blocks lost per I/O: the median; of blocks with few I/Os what they lost in all, since those that had none lost as well.
///
/// `None` if that is less than half of the CPU time that the job's own threads had, which the loops lost at the least: others had the
/// CPUs, and left the loops little even where nothing was run, so that nothing is known.
pub fn per_io(blocks: &[Block]) -> Option<f64> {
    let lost: f64 = blocks.iter().map(|block| block.lost).sum();
    let cpu: u64 = blocks.iter().map(|block| block.cpu.0).sum();
    let ios: u64 = blocks.iter().map(|block| block.ios).sum();
    if lost < cpu as f64 / 2.0 {
        return None;
    }
    if blocks.iter().any(|block| block.ios < FEW) {
        return (ios > 0).then(|| lost / ios as f64);
    }
    statistics::median(&blocks.iter().map(|block| block.lost / block.ios as f64).collect::<Vec<_>>())
}

fn count(shared: &Loop, cpu: usize) {
    if hw::pin(cpu).is_err() || hw::sched_idle().is_err() {
        shared.refused.store(true, Relaxed);
    }
    shared.ready.store(true, Relaxed);
    let mut count = 0u64;
    while !shared.end.load(Relaxed) && !shared.refused.load(Relaxed) {
        count += 1;
        // A plain store: nobody else writes.
        shared.count.store(count, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: u64, counts: &[u64]) -> Reading {
        Reading { at: Nanos(at), counts: counts.to_vec() }
    }

    #[test]
    fn what_is_not_counted_is_lost() {
        let (idle_from, idle_to) = (reading(0, &[0, 0]), reading(1000, &[500, 500]));
        let idle = idle_from.rate(&idle_to);
        assert_eq!(idle, 1.0);
        let (from, to) = (reading(5000, &[1000, 1000]), reading(7000, &[1500, 2000]));
        // One of two CPUs counted half of what it could have: 1000 ns of 4000.
        assert_eq!(from.lost(&to, idle), 1000.0);
        assert_eq!(idle_from.lost(&idle_to, idle), 0.0);
    }

    fn blocks(cpu: u64, lost: [(f64, u64); 4]) -> [Block; 4] {
        lost.map(|(lost, ios)| Block { lost, cpu: Nanos(cpu), ios })
    }

    #[test]
    fn blocks_without_an_io_lose_as_well() {
        assert_eq!(per_io(&blocks(0, [(1e6, 0), (1e6, 2), (1e6, 0), (1e6, 2)])), Some(1e6));
        assert_eq!(per_io(&blocks(0, [(1e6, 100), (9e6, 100), (1e6, 100), (1e6, 100)])), Some(1e4));
        assert_eq!((per_io(&blocks(0, [(1e6, 0); 4])), per_io(&[])), (None, None));
    }

    #[test]
    fn nothing_is_known_where_less_was_lost_than_the_threads_ran_for() {
        let lost = |each| per_io(&blocks(1_000_000, [(each, 100); 4]));
        assert_eq!([lost(0.0), lost(4e5), lost(9e5)], [None, None, Some(9e3)]);
    }

    #[test]
    fn a_disturbed_baseline_gains_nobody_anything() {
        assert_eq!(reading(0, &[0]).lost(&reading(100, &[90]), 0.5), 0.0);
        assert_eq!(reading(0, &[0]).lost(&reading(100, &[90]), 0.0), 0.0);
    }
}
