//! CPU load next to the job threads: [`Background`] threads of `--background` at normal priority,
//! which represent the application, and [`IdleLoops`] at SCHED_IDLE priority, which measure stolen
//! time.
//!
//! A thread's CPU clock stops while its CPU handles an interrupt or leaves an idle state. A
//! counting loop loses that time as well, so what it lacks against an undisturbed loop is the CPU
//! time that the job takes in all, interrupts and context switches included.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow};
use units::Nanos;

use super::plan::FEW;
use super::statistics;

/// In each period a background thread computes for its share, then sleeps.
const PERIOD: Nanos = Nanos::from_millis(5);

/// Threads that compute until [`Background::stop`].
pub struct Background {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Nanos>>,
}

impl Background {
    /// Starts a thread on each of `cpus` that uses `percent` of it, at normal priority.
    ///
    /// # Errors
    /// A thread cannot be created. Failure to pin one is only logged.
    pub fn start(cpus: &[usize], percent: u8) -> Result<Background> {
        let mut background = Background { end: Arc::default(), threads: Vec::new() };
        for &cpu in cpus {
            let end = background.end.clone();
            let body = move || {
                if let Err(error) = hw::pin(cpu) {
                    tracing::warn!(cpu, %error, "a background thread is not pinned");
                }
                while !end.load(Relaxed) {
                    let period_ends = hw::now() + PERIOD;
                    // The share is CPU time, not elapsed time: the thread is preempted by job
                    // threads.
                    let enough = hw::thread_cpu() + Nanos(PERIOD.0 * u64::from(percent) / 100);
                    while hw::thread_cpu() < enough && !end.load(Relaxed) {}
                    // At 100 % there is no time to sleep.
                    if percent < 100 {
                        hw::sleep_until(period_ends);
                    }
                }
                hw::thread_cpu()
            };
            let thread = thread::Builder::new().name("reap-background".into()).spawn(body);
            background.threads.push(thread.context("cannot start a background thread")?);
        }
        Ok(background)
    }

    /// Ends the threads. Returns their CPU time, added up.
    pub fn stop(mut self) -> Nanos {
        self.end.store(true, Relaxed);
        // The threads cannot panic, so every join succeeds.
        Nanos(self.threads.drain(..).filter_map(|thread| thread.join().ok()).map(|had| had.0).sum())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.end.store(true, Relaxed);
    }
}

/// A counting loop per CPU; they end when this is dropped.
pub struct IdleLoops {
    counts: Vec<Arc<Count>>,
    end: Arc<AtomicBool>,
}

/// Counter of a loop, aligned to two cache lines: the adjacent-line prefetcher fetches pairs.
#[derive(Default)]
#[repr(align(128))]
struct Count {
    now: AtomicU64,
    /// The loop's CPU time, and the count at which it was read.
    cpu: AtomicU64,
    at: AtomicU64,
}

/// Counts between two reads of the CPU clock, some tens of microseconds.
const CLOCK_EVERY: u64 = 1 << 15;

/// The counts of all loops at one time.
#[derive(Clone, Debug)]
pub struct Reading {
    at: Nanos,
    counts: Vec<u64>,
    /// Per loop, its CPU time in nanoseconds, and the count at which it was read.
    clocks: Vec<(u64, u64)>,
}

impl IdleLoops {
    /// Starts a loop on each of `cpus`.
    ///
    /// # Errors
    /// A thread cannot be created, pinned, or set to SCHED_IDLE.
    pub fn start(cpus: &[usize]) -> Result<IdleLoops> {
        let mut loops = IdleLoops { counts: Vec::new(), end: Arc::default() };
        for &cpu in cpus {
            let (count, end, (ready, started)) =
                (Arc::new(Count::default()), loops.end.clone(), channel());
            loops.counts.push(count.clone());
            let body = move || {
                let idle = hw::pin(cpu).and_then(|()| hw::sched_idle());
                let refused = idle.is_err();
                _ = ready.send(idle);
                let mut n = 0u64;
                while !refused && !end.load(Relaxed) {
                    n += 1;
                    // A store instead of fetch_add: only this thread writes, and a locked
                    // instruction would slow the loop.
                    count.now.store(n, Relaxed);
                    if n.is_multiple_of(CLOCK_EVERY) {
                        count.cpu.store(hw::thread_cpu().0, Relaxed);
                        count.at.store(n, Relaxed);
                    }
                }
            };
            thread::Builder::new()
                .name("reap-idle".into())
                .spawn(body)
                .context("cannot start a counting loop")?;
            // Without SCHED_IDLE the loop would compete with the job, so it must not start
            // counting.
            let idle = started.recv().map_err(|_| anyhow!("a counting loop has ended"))?;
            idle.context("the kernel refuses to pin a thread at idle priority")?;
        }
        Ok(loops)
    }

    /// Reads the counts.
    pub fn read(&self) -> Reading {
        Reading {
            at: hw::now(),
            counts: self.counts.iter().map(|count| count.now.load(Relaxed)).collect(),
            clocks: self
                .counts
                .iter()
                .map(|count| (count.cpu.load(Relaxed), count.at.load(Relaxed)))
                .collect(),
        }
    }
}

impl Drop for IdleLoops {
    fn drop(&mut self) {
        self.end.store(true, Relaxed);
    }
}

impl Reading {
    /// Counts per nanosecond from `self` to `later`, all loops added up.
    pub fn rate(&self, later: &Reading) -> f64 {
        let span = (later.at - self.at).0;
        let counts: u64 = later.counts.iter().zip(&self.counts).map(|(to, from)| to - from).sum();
        if span == 0 { 0.0 } else { counts as f64 / span as f64 }
    }

    /// CPU time of the loops from `self` to `later` in nanoseconds, and their counts in that time.
    fn clocked(&self, later: &Reading) -> (f64, f64) {
        let spans = later
            .clocks
            .iter()
            .zip(&self.clocks)
            .map(|(to, from)| ((to.0 - from.0) as f64, (to.1 - from.1) as f64));
        spans.fold((0.0, 0.0), |(cpu, counts), (more_cpu, more)| (cpu + more_cpu, counts + more))
    }

    /// CPU time from `self` to `later` that the scheduler charged to the loops without a count, in
    /// nanoseconds: interrupts and context switches. `rest`: a reading from before the disturbance,
    /// to `self`. Time in which other threads ran is not included. `None` if the loops did not run.
    pub fn charged(&self, later: &Reading, rest: &Reading) -> Option<f64> {
        let ((rest_cpu, rest_counts), (cpu, counts)) = (rest.clocked(self), self.clocked(later));
        (rest_counts > 0.0 && counts > 0.0).then(|| cpu - counts * rest_cpu / rest_counts)
    }

    /// CPU time that the loops lost from `self` to `later`, in nanoseconds. `idle`: counts per
    /// nanosecond of undisturbed loops.
    pub fn lost(&self, later: &Reading, idle: f64) -> f64 {
        let span = (later.at - self.at).0 as f64 * self.counts.len() as f64;
        if idle > 0.0 { (span * (1.0 - self.rate(later) / idle)).max(0.0) } else { 0.0 }
    }
}

/// Stolen time per I/O, in nanoseconds. `blocks`: CPU time that the loops lost in nanoseconds, CPU
/// time of the job threads, and I/Os. The result is the median over blocks; if some have fewer than
/// `plan::FEW` I/Os, the total loss ÷ total I/Os, since blocks without I/Os have losses too.
///
/// `None` if the loops lost less than half of the CPU time of the job threads. They must lose at
/// least all of it, so other work was using the CPUs and the idle rate is wrong.
pub fn per_io(blocks: &[(f64, Nanos, u64)]) -> Option<f64> {
    let lost: f64 = blocks.iter().map(|(lost, ..)| lost).sum();
    let cpu: u64 = blocks.iter().map(|(_, cpu, _)| cpu.0).sum();
    let ios: u64 = blocks.iter().map(|(.., ios)| ios).sum();
    if lost < cpu as f64 / 2.0 {
        return None;
    }
    if blocks.iter().any(|(.., ios)| *ios < FEW) {
        return (ios > 0).then(|| lost / ios as f64);
    }
    statistics::median(&blocks.iter().map(|(lost, _, ios)| lost / *ios as f64).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: u64, counts: &[u64]) -> Reading {
        // A count takes 2 ns.
        Reading {
            at: Nanos(at),
            counts: counts.to_vec(),
            clocks: counts.iter().map(|&count| (2 * count, count)).collect(),
        }
    }

    #[test]
    fn interrupts_are_charged_to_loops() {
        let (rest, from, mut to) = (reading(0, &[0]), reading(1000, &[500]), reading(2000, &[800]));
        // 300 counts in 600 ns; the other 400 ns are those of another thread.
        assert_eq!(from.charged(&to, &rest), Some(0.0));
        to.clocks[0].0 += 50;
        assert_eq!(from.charged(&to, &rest), Some(50.0));
        // Loops that did not run give no result.
        assert_eq!(from.charged(&from.clone(), &rest), None);
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

    fn blocks(cpu: u64, lost: [(f64, u64); 4]) -> [(f64, Nanos, u64); 4] {
        lost.map(|(lost, ios)| (lost, Nanos(cpu), ios))
    }

    #[test]
    fn blocks_without_io_count_losses() {
        assert_eq!(per_io(&blocks(0, [(1e6, 0), (1e6, 2), (1e6, 0), (1e6, 2)])), Some(1e6));
        assert_eq!(per_io(&blocks(0, [(1e6, 100), (9e6, 100), (1e6, 100), (1e6, 100)])), Some(1e4));
        assert_eq!((per_io(&blocks(0, [(1e6, 0); 4])), per_io(&[])), (None, None));
    }

    #[test]
    fn implausible_losses_yield_none() {
        let lost = |each| per_io(&blocks(1_000_000, [(each, 100); 4]));
        assert_eq!([lost(0.0), lost(4e5), lost(9e5)], [None, None, Some(9e3)]);
    }

    #[test]
    fn a_disturbed_baseline_gains_nobody_anything() {
        assert_eq!(reading(0, &[0]).lost(&reading(100, &[90]), 0.5), 0.0);
        assert_eq!(reading(0, &[0]).lost(&reading(100, &[90]), 0.0), 0.0);
    }

    #[test]
    fn computes_until_stopped() {
        let cpu = hw::allowed_cpus().unwrap()[0];
        for percent in [30, 100] {
            let background = Background::start(&[cpu], percent).unwrap();
            hw::sleep_until(hw::now() + Nanos::from_millis(20));
            // However busy the machine is, it has run: it has ended itself.
            assert!(background.stop() > Nanos::ZERO);
        }
    }
}
