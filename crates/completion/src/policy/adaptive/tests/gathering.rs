//! What gathering has learnt: of messages, of timers, of a device at its limit.

use super::*;
use crate::policy::adaptive::timers::Timers;
use crate::policy::adaptive::waits::{Spans, Yields};

/// On a virtual machine a short nap is over before its CPU has gone idle. That says nothing of the others, nor of a sleep.
#[test]
fn short_naps_do_not_shorten_the_lateness_of_long_ones() {
    let (cost, long, short) = (Nanos(16_000), Nanos(36_000), Nanos(11_000));
    let mut timers = Timers::new(cost, long);
    (0..1_000).for_each(|_| timers.was(Nanos(5_400), short));
    assert_eq!(timers.late(), long);
    assert_eq!(timers.late_after(Nanos(20_000)), long);
    assert!(timers.late_after(Nanos(5_400)) < short + Nanos(200));
    (0..1_000).for_each(|_| timers.was(Nanos(20_000), Nanos(30_000)));
    assert!(timers.late() < Nanos(30_200));
}

#[test]
fn a_nap_that_would_be_late_is_a_short_one_or_none() {
    let mut timers = Timers::new(Nanos(16_000), Nanos(36_000));
    (0..1_000).for_each(|_| timers.was(Nanos(5_400), Nanos(11_000)));
    let now = Nanos::from_secs(1);
    for after in (0..100_000).step_by(500).map(Nanos) {
        if let Some(until) = timers.until(now, now + after) {
            assert!(until > now && timers.back(now, until) <= now + after, "{after}");
        }
    }
    let until = |after: u64| timers.until(now, now + Nanos(after)).map(|until| (until - now).0);
    assert_eq!((until(60_000), until(40_000), until(10_000)), (Some(24_000), Some(16_000 / 3), None));
}

#[test]
fn what_the_messages_of_sleeps_cost_is_counted_for_each_depth() {
    let mut yields = Yields::new();
    assert_eq!(yields.further(32, Nanos(500)), None);
    (0..100).for_each(|_| yields.told(32, 7));
    (0..100).for_each(|_| yields.told(1, 1));
    assert_eq!(yields.further(32, Nanos(500)), Some(Nanos(3_000)));
    assert_eq!(yields.further(1, Nanos(500)), Some(Nanos::ZERO));
    assert_eq!(yields.further(4, Nanos(500)), None);
}

/// How long a nap for 32 lasts when it has learnt that the first comes after `first`, one every 1.6 us, and the last is thought to be
/// due after `due`.
fn learns(spans: &mut Spans, first: u64, due: u64) -> u64 {
    let (asked, last) = (Nanos::from_secs(1), Nanos::from_secs(1) + Nanos(due));
    for _ in 0..2_000 {
        // A nap never ends before the first is due.
        let over = spans.of(32, last).max(asked + Nanos(first));
        let found = (0..32).filter(|n| asked + Nanos(first + 1_600 * n) <= over).count() as u32;
        spans.found(32, found, last, over, over - asked);
    }
    (spans.of(32, last) - asked).0
}

/// A nap that waits for all of a device at its limit is as long as that takes, and no longer than a sixth more: whether that is later
/// than the last was thought to be due, or sooner.
#[test]
fn naps_become_as_long_as_a_device_at_its_limit_needs() {
    let (mut spans, last) = (Spans::default(), Nanos::from_secs(1));
    for (first, due) in [(10_000, 30_000), (70_000, 150_000), (10_000, 30_000)] {
        let (takes, length) = (|n: u64| first + 1_600 * n, learns(&mut spans, first, due));
        assert!((takes(27) * 63 / 64..takes(31) * 7 / 6).contains(&length), "{first} {length}");
    }
    // In a slow phase nothing comes: that is no reason to nap for longer when it is over.
    let learnt = spans.of(32, last);
    (0..100).for_each(|_| spans.found(32, 3, last, last + Nanos(470_000), Nanos(500_000)));
    assert_eq!(spans.of(32, last), learnt);
    // Nor is any left when the device is not at its limit any more.
    (0..200).for_each(|_| spans.found(32, 32, last, spans.of(32, last), Nanos(30_000)));
    assert!(spans.of(32, last) <= last);
}

/// What a nap has found is seen by what is left, whatever a look after a commit finds before the next question.
#[test]
fn a_look_after_a_commit_does_not_hide_what_a_nap_has_found() {
    let mut policy = choices::taught(LatencySlack::per_mille(1_000), 80_000);
    let now = Nanos::from_secs(2);
    choices::submit(&mut policy, now, 32, 32);
    let Plan::Nap { until } = policy.next(now, &choices::waiting(32)) else { panic!("does not gather") };
    let (woke, last) = (Some(Woke { cause: Cause::Timer, late: MACHINE.late }), policy.last(now));
    assert!(matches!(policy.next(until + MACHINE.late, &Seen { woke, ..choices::waiting(32) }), Plan::Look { .. }));
    choices::submit(&mut policy, until + MACHINE.late, 16, 32);
    policy.next(until + MACHINE.late, &Seen { found: 1, ..choices::waiting(31) });
    let over = until + MACHINE.late;
    assert_eq!(policy.spans.of(32, last), over + Nanos((over - now).0 / 8));
}

/// With few in flight a caller who has no room waits for half of them, or for all: the later a completion may be found the more often.
#[test]
fn of_a_few_all_are_waited_for_the_more_often_the_more_slack_there_is() {
    let part = |per_mille| {
        let mut policy = choices::taught(LatencySlack::per_mille(per_mille), 10_000);
        (0..1_000).filter(|_| (policy.draw(), policy.all).1).count()
    };
    assert_eq!([0, 100, 2_500, 3_000, 5_000, 10_000].map(part), [0, 0, 0, 166, 500, 750]);
    assert_eq!(part(u32::MAX), 999);
}

/// How often it naps, of 400 times that 32 are in flight, if a nap costs more than a sleep that takes so many messages.
fn naps(messages: u32) -> u32 {
    let mut policy = choices::taught(LatencySlack::default(), 4_000);
    let mut naps = 0;
    for n in 0..400 {
        let now = Nanos::from_secs(2) + Nanos(n * 100_000);
        choices::submit(&mut policy, now, 32, 32);
        policy.timers.cost = policy.cpu + Nanos(200);
        // What comes takes longer than a sleep is worth.
        (0..10).for_each(|log2| policy.waits.took(1 << log2, Nanos(1_000_000), policy.cpu));
        let plan = policy.next(now, &choices::waiting(32));
        naps += u32::from(matches!(plan, Plan::Nap { .. }));
        let cause = if matches!(plan, Plan::Sleep { .. }) { Cause::Notification } else { Cause::Timer };
        let woke = Some(Woke { cause, late: MACHINE.late });
        let later = now + Nanos(9_000);
        policy.next(later, &Seen { woke, messages, ..choices::waiting(32) });
        policy.next(later, &Seen { found: 32, ..choices::waiting(0) });
    }
    naps
}

/// Each further message costs a fifth of a sleep.
#[test]
fn it_naps_where_sleeps_have_taken_many_messages() {
    assert!(naps(8) > 300 && naps(1) < 40, "{} {}", naps(8), naps(1));
}

/// A device at its limit brings one entry after the other, whenever each is due.
#[test]
fn spinning_is_given_up_where_it_finds_one_after_the_other() {
    let nap = Nanos(16_000);
    let pays = |apart: u64| {
        let mut yields = Yields::new();
        (0..200).for_each(|_| yields.spun(32, Nanos(apart), 1));
        yields.spin_pays(32, nap)
    };
    assert!(!pays(1_600));
    // The twin's entries come faster than a nap finds them, by one that came late as well.
    assert!(pays(100));
    let mut yields = Yields::new();
    assert!(yields.spin_pays(32, nap), "nothing is known");
    (0..200).for_each(|n| yields.spun(32, Nanos(if n % 8 == 0 { 3_000 } else { 0 }), 16));
    assert!(yields.spin_pays(32, nap));
}

#[test]
fn and_tried_again() {
    let mut yields = Yields::new();
    (0..200).for_each(|_| yields.spun(32, Nanos(1_600), 1));
    let refused = (0..10_000).take_while(|_| !yields.spin_pays(32, Nanos(16_000))).count();
    assert!((100..1_000).contains(&refused), "{refused}");
}
