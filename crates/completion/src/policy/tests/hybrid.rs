//! `hybrid-mean` and `hybrid-min`: what they learn and how long they nap.

use super::*;

/// A policy that has found 4 KiB reads of these `ages` while polling.
fn taught(ages: &[u64]) -> ModePolicy {
    taught_in(Mode::HYBRID_MEAN, ages)
}

fn taught_in(mode: Mode, ages: &[u64]) -> ModePolicy {
    let mut policy = of(mode);
    for &age in ages {
        submit(&mut policy, 0, 4096);
        complete(&mut policy, 4096, false, age);
    }
    policy
}

fn submit(policy: &mut ModePolicy, now: u64, bytes: u32) {
    let batch = Batch { commands: 1, in_flight: 1, class: Some(read(bytes)), urgent: 1 };
    policy.submitted(Nanos(now), &batch);
}

fn complete(policy: &mut ModePolicy, bytes: u32, slept: bool, age: u64) {
    policy.completed(&[Done { class: read(bytes), age: Nanos(age), slept }]);
}

fn waiting(in_flight: u32) -> Seen {
    Seen { in_flight, ..Seen::default() }
}

#[test]
fn hybrid_naps_half_the_mean() {
    let mut fresh = taught(&[]);
    submit(&mut fresh, 1_000, 4096);
    assert!(matches!(fresh.next(Nanos(1_000), &waiting(1)), Plan::Spin { .. }));

    let mut policy = taught(&[80_000; 3]);
    submit(&mut policy, 1_000, 4096);
    assert_eq!(policy.next(Nanos(15_000), &waiting(1)), Plan::nap(Nanos(41_000)));
    assert!(matches!(policy.next(Nanos(41_000), &waiting(1)), Plan::Spin { .. }));
    // Each size has its own times.
    let mut policy = taught(&[80_000]);
    submit(&mut policy, 1_000, 65_536);
    assert!(matches!(policy.next(Nanos(1_000), &waiting(1)), Plan::Spin { .. }));
}

#[test]
fn hybrid_wakes_for_the_earliest() {
    let mut policy = taught(&[100_000]);
    submit(&mut policy, 0, 65_536);
    complete(&mut policy, 65_536, false, 20_000);
    submit(&mut policy, 1_000, 4096);
    submit(&mut policy, 5_000, 65_536);
    assert_eq!(policy.next(Nanos(6_000), &waiting(2)), Plan::nap(Nanos(15_000)));
    complete(&mut policy, 65_536, false, 20_000);
    assert_eq!(policy.next(Nanos(26_000), &waiting(1)), Plan::nap(Nanos(51_000)));
}

#[test]
fn ages_after_sleep_only_lower() {
    let nap = |policy: &mut ModePolicy| {
        submit(policy, 0, 4096);
        let plan = policy.next(Nanos(1), &waiting(1));
        complete(policy, 4096, true, u64::MAX);
        plan
    };
    let mut policy = taught(&[80_000]);
    submit(&mut policy, 0, 4096);
    complete(&mut policy, 4096, true, 10_000_000);
    assert_eq!(nap(&mut policy), Plan::nap(Nanos(40_000)));
    submit(&mut policy, 0, 4096);
    complete(&mut policy, 4096, true, 48_000);
    assert_eq!(nap(&mut policy), Plan::nap(Nanos(39_000)));
}

#[test]
fn the_mean_follows_the_device() {
    let mut policy = taught(&[10_000; 4]);
    for _ in 0..200 {
        submit(&mut policy, 0, 4096);
        complete(&mut policy, 4096, false, 500_000);
    }
    submit(&mut policy, 0, 4096);
    let Plan::Nap { until, .. } = policy.next(Nanos(1), &waiting(1)) else { panic!("spins") };
    assert!((245_000..=250_000).contains(&until.0), "{until}");
}

#[test]
fn unknown_commands_prevent_naps() {
    let mut policy = taught(&[80_000]);
    submit(&mut policy, 0, 4096);
    assert!(matches!(policy.next(Nanos(1), &waiting(2)), Plan::Spin { .. }));
    assert!(matches!(policy.next(Nanos(1), &waiting(1)), Plan::Nap { .. }));
}

#[test]
fn reset_forgets_the_oldest() {
    let mut policy = taught(&[80_000]);
    for i in 0..100 {
        submit(&mut policy, i * 1_000, 4096);
    }
    assert_eq!(policy.next(Nanos(100_000), &waiting(0)), Plan::Idle);
    submit(&mut policy, 200_000, 4096);
    assert_eq!(policy.next(Nanos(200_001), &waiting(1)), Plan::nap(Nanos(240_000)));
}

#[test]
fn hybrid_min_naps_half_the_shortest() {
    let nap = |ages: &[u64]| {
        let mut policy = taught_in(Mode::HYBRID_MIN, ages);
        submit(&mut policy, 0, 4096);
        policy.next(Nanos(1), &waiting(1))
    };
    assert_eq!(nap(&[80_000, 30_000, 90_000]), Plan::nap(Nanos(15_000)));
    // Two windows later the minimum is replaced.
    let mut slower = vec![30_000];
    slower.extend([80_000; 256]);
    assert_eq!(nap(&slower), Plan::nap(Nanos(40_000)));
    // In the first window the minimum so far is used, and a shorter time takes effect at once.
    slower.push(20_000);
    assert_eq!(nap(&slower), Plan::nap(Nanos(10_000)));
}
