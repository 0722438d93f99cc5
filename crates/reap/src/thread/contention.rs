//! Whether other threads want the CPU of a thread that spins. The scheduler's run delay says so:
//! the time that the thread was ready and waited for its CPU (`/proc/thread-self/schedstat`).

use hw::RunDelay;
use units::Nanos;

/// The run delay is read at most this often: a read is a system call.
const READ_EVERY: Nanos = Nanos::from_millis(1);

/// The CPU counts as wanted if the thread has waited for it during more than 1/8 of the time. Each
/// wake-up adds a few microseconds to the run delay even on an idle CPU. With this threshold a
/// thread that naps does not take them for another thread.
const WANTED_PART: u64 = 8;

/// Samples the run delay of the thread that uses a queue.
#[derive(Default)]
pub(super) struct Contention {
    delay: Option<RunDelay>,
    /// The run delay at the last sample.
    seen: Nanos,
    read_at: Nanos,
}

impl Contention {
    /// Whether the CPU was wanted since the last sample. `None`: the last sample is younger than
    /// [`READ_EVERY`]. Call it while the thread spins or yields, and after naps, so that it
    /// also learns when the CPU is no longer wanted.
    #[cold]
    pub(super) fn sample(&mut self, now: Nanos) -> Option<bool> {
        let elapsed = now - self.read_at;
        if elapsed < READ_EVERY {
            return None;
        }
        self.read_at = now;
        // A queue may move to another thread. The run delay is each thread's own: begin anew.
        if !self.delay.as_ref().is_some_and(RunDelay::is_of_current) {
            self.delay = RunDelay::of_current().ok();
            self.seen = self.delay.as_ref().map_or(Nanos::ZERO, RunDelay::read);
        }
        let delay = self.delay.as_ref().map_or(Nanos::ZERO, RunDelay::read);
        Some(self.is_wanted(delay, elapsed))
    }

    /// Whether the run delay, now `delay`, has grown by more than 1/[`WANTED_PART`] of `elapsed`.
    fn is_wanted(&mut self, delay: Nanos, elapsed: Nanos) -> bool {
        (delay - std::mem::replace(&mut self.seen, delay)).0 > elapsed.0 / WANTED_PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The run delay of a queue's last thread is not compared with that of its next.
    #[test]
    fn moved_queue_samples_new_thread() {
        let sampled = |mut contention: Contention, at| {
            assert!(contention.sample(at).is_some());
            // Some kernels keep no scheduler statistics.
            assert!(contention.delay.as_ref().is_none_or(RunDelay::is_of_current));
            contention
        };
        let contention =
            std::thread::spawn(move || sampled(Contention::default(), Nanos::from_secs(1)))
                .join()
                .unwrap();
        sampled(contention, Nanos::from_secs(2));
    }

    /// The run delay is read at most once in [`READ_EVERY`].
    #[test]
    fn run_delay_is_sampled() {
        let mut contention = Contention::default();
        let (first, due) = (Nanos::from_secs(1), Nanos::from_secs(1) + READ_EVERY);
        for (at, read_at) in [
            (first, first),
            (due - Nanos(1), first),
            (due, due),
            (due, due),
            (due + READ_EVERY, due + READ_EVERY),
        ] {
            let reads = contention.read_at != read_at;
            assert_eq!(contention.sample(at).is_some(), reads);
            assert_eq!(contention.read_at, read_at);
            assert_eq!(contention.delay.is_some(), RunDelay::of_current().is_ok());
        }
    }

    /// More than an eighth of the time since the last sample.
    #[test]
    fn long_run_delay_means_contention() {
        let mut contention = Contention::default();
        let elapsed = Nanos::from_millis(8);
        let mut waited = Nanos::ZERO;
        for (more, wanted) in [
            (0, false),
            (1_000_000, false),
            (1_000_001, true),
            (8_000_000, true),
            (999_999, false),
            (0, false),
        ] {
            waited += Nanos(more);
            assert_eq!(contention.is_wanted(waited, elapsed), wanted, "{more} ns of {elapsed}");
        }
    }
}
