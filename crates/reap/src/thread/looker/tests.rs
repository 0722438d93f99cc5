use completion::{Mode, Spin};

use super::*;

/// What the last thread had to wait for its CPU says nothing of this one's.
#[test]
fn moved_queues_watch_the_new_cpu() {
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
fn contended_cpu_is_reported() {
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

/// The system is asked for what a thread has waited once in a while, however often the looker asks.
#[test]
fn run_delay_is_sampled() {
    let mut looker = Looker::new(0, Policy::new(Mode::POLL));
    let (first, due) = (Nanos::from_secs(1), Nanos::from_secs(1) + DELAY_EVERY);
    for (at, read_at) in [(first, first), (due - Nanos(1), first), (due, due), (due, due), (due + DELAY_EVERY, due + DELAY_EVERY)] {
        looker.sample_delay(at);
        assert_eq!(looker.delay_at, read_at);
        assert_eq!(looker.delay.is_some(), RunDelay::of_current().is_ok());
    }
}

/// More than an eighth of the time, since it was last asked.
#[test]
fn long_run_delay_means_contention() {
    let mut looker = Looker::new(0, Policy::new(Mode::POLL));
    let elapsed = Nanos::from_millis(8);
    let mut waited = Nanos::ZERO;
    for (more, wanted) in [(0, false), (1_000_000, false), (1_000_001, true), (8_000_000, true), (999_999, false), (0, false)] {
        waited += Nanos(more);
        looker.weigh_delay(waited, elapsed);
        assert_eq!(looker.waiter.seen.cpu_wanted, wanted, "{more} ns of {elapsed}");
    }
}

/// The room for wakers is allocated once: what is lent comes back, and is not exchanged for less.
#[test]
fn room_for_wakers_is_given_back() {
    let mut looker = Looker::new(0, Policy::new(Mode::POLL));
    let room = looker.take_wakers();
    let all = room.capacity();
    assert!(all >= MOST && looker.wakers.capacity() == 0);
    looker.keep_wakers(room);
    assert_eq!(looker.wakers.capacity(), all);
    looker.keep_wakers(Vec::new());
    assert_eq!(looker.wakers.capacity(), all);
}
