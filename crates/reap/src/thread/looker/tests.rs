use completion::{Mode, Spin};

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

/// A poller that never gives way is not told; a rule that weighs a wanted CPU is told whatever spinning means.
#[test]
fn who_is_told_that_others_want_the_cpu() {
    for (mode, spin, told, gives_way) in [
        (Mode::POLL, Spin::Naps, true, false),
        (Mode::POLL, Spin::Spins, false, false),
        (Mode::POLL, Spin::Yields, false, true),
        (Mode::HYBRID_MEAN, Spin::Spins, false, false),
        (Mode::ADAPTIVE, Spin::Spins, true, false),
        (Mode::ADAPTIVE, Spin::Yields, true, false),
    ] {
        let mut looker = Looker::new(0, Policy::new(mode));
        looker.spin = spin;
        looker.tell_wanted(true);
        assert_eq!(looker.waiter.seen.cpu_wanted, told, "{mode} {spin}");
        assert_eq!(looker.spin.gives_way(mode), gives_way, "{mode} {spin}");
        looker.tell_wanted(false);
        assert!(!looker.waiter.seen.cpu_wanted);
    }
}
