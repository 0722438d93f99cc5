use completion::Mode;

use super::*;

/// What the last thread had to wait for its CPU says nothing of this one's.
#[test]
fn a_queue_that_is_sent_to_another_thread_asks_after_that_threads_cpu() {
    let mut looker = Looker::new(0, Policy::new(Mode::POLL));
    let sampled = |mut looker: Looker, at| {
        looker.sample_delay(at);
        // Some kernels keep no scheduler statistics.
        assert!(looker.delay.as_ref().is_none_or(RunDelay::is_of_current));
        looker
    };
    looker = std::thread::spawn(move || sampled(looker, Nanos::from_secs(1))).join().unwrap();
    sampled(looker, Nanos::from_secs(2));
}
