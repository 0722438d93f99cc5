//! Whether other threads want the CPU of a thread that spins.

use hw::RunDelay;
use units::Nanos;

/// The run delay is read at most this often.
const READ_EVERY: Nanos = Nanos::from_millis(1);

/// The CPU is wanted if the thread has waited for it for more than one part in this many. A wake-up on an idle CPU counts as a few
/// microseconds of waiting, which a thread that naps must not take for a rival.
const WANTED_PART: u64 = 8;

/// What the system says a thread has waited for its CPU.
#[derive(Default)]
pub(super) struct Contention {
    delay: Option<RunDelay>,
    seen: Nanos,
    read_at: Nanos,
}

impl Contention {
    /// Whether the CPU is wanted: since this was last asked, the thread has waited for it for a good part of the time. `None`: too little time
    /// has passed. Asked while the thread spins, when it comes back from a nap, and while it yields, so that this ends when the others are done.
    #[cold]
    pub(super) fn sample(&mut self, now: Nanos) -> Option<bool> {
        let elapsed = now - self.read_at;
        if elapsed < READ_EVERY {
            return None;
        }
        self.read_at = now;
        // A queue may have been sent to another thread, which waits for its CPU as long as it does, and not as long as the last one.
        if !self.delay.as_ref().is_some_and(RunDelay::is_of_current) {
            self.delay = RunDelay::of_current().ok();
            self.seen = self.delay.as_ref().map_or(Nanos::ZERO, RunDelay::read);
        }
        let delay = self.delay.as_ref().map_or(Nanos::ZERO, RunDelay::read);
        Some(self.weigh(delay, elapsed))
    }

    /// The thread has waited for `delay` in all by now.
    fn weigh(&mut self, delay: Nanos, elapsed: Nanos) -> bool {
        (delay - std::mem::replace(&mut self.seen, delay)).0 > elapsed.0 / WANTED_PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the last thread had to wait for its CPU says nothing of this one's.
    #[test]
    fn moved_queues_watch_the_new_cpu() {
        let sampled = |mut contention: Contention, at| {
            assert!(contention.sample(at).is_some());
            // Some kernels keep no scheduler statistics.
            assert!(contention.delay.as_ref().is_none_or(RunDelay::is_of_current));
            contention
        };
        let contention = std::thread::spawn(move || sampled(Contention::default(), Nanos::from_secs(1))).join().unwrap();
        sampled(contention, Nanos::from_secs(2));
    }

    /// The system is asked once in a while, however often a thread asks.
    #[test]
    fn run_delay_is_sampled() {
        let mut contention = Contention::default();
        let (first, due) = (Nanos::from_secs(1), Nanos::from_secs(1) + READ_EVERY);
        for (at, read_at) in [(first, first), (due - Nanos(1), first), (due, due), (due, due), (due + READ_EVERY, due + READ_EVERY)] {
            let reads = contention.read_at != read_at;
            assert_eq!(contention.sample(at).is_some(), reads);
            assert_eq!(contention.read_at, read_at);
            assert_eq!(contention.delay.is_some(), RunDelay::of_current().is_ok());
        }
    }

    /// More than an eighth of the time, since it was last asked.
    #[test]
    fn long_run_delay_means_contention() {
        let mut contention = Contention::default();
        let elapsed = Nanos::from_millis(8);
        let mut waited = Nanos::ZERO;
        for (more, wanted) in [(0, false), (1_000_000, false), (1_000_001, true), (8_000_000, true), (999_999, false), (0, false)] {
            waited += Nanos(more);
            assert_eq!(contention.weigh(waited, elapsed), wanted, "{more} ns of {elapsed}");
        }
    }
}
