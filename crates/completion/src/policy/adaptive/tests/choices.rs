//! What is chosen where the answer is plain.

use super::*;

const SENT: Nanos = Nanos(1_000_000);

/// A policy that has seen this device time, a quarter less, and a quarter more, many times, and has sent this many commands one by one just now.
fn sure(price: LatencyPrice, device: u64, commands: u32) -> Adaptive {
    let mut policy = policy(price);
    for n in 0..u64::from(MEMORY) * 3 {
        let age = Nanos(device + device * (n % 3) / 4 - device / 4);
        policy.completed(&[Done { class: read(), age, slept: false }]);
    }
    policy.decisions.waits = MARGIN;
    for in_flight in 1..=commands {
        policy.submitted(SENT, &Batch { commands: 1, in_flight, class: Some(read()), urgent: 0 });
    }
    policy
}

fn plan(policy: &mut Adaptive, seen: Seen) -> Plan {
    policy.next(SENT + Nanos(1), &seen)
}

#[test]
fn short_waits_are_spun() {
    let soon = plan(&mut sure(LatencyPrice::per_mille(100), 1_500, 1), Seen { in_flight: 1, ..Seen::default() });
    assert!(matches!(soon, Plan::Spin { .. }), "{soon:?}");
    let late = plan(&mut sure(LatencyPrice::per_mille(100), 80_000, 1), Seen { in_flight: 1, ..Seen::default() });
    assert!(matches!(late, Plan::Sleep { .. }), "{late:?}");
}

#[test]
fn dear_latency_delays_sleep() {
    let at = |price| plan(&mut sure(price, 4_000, 1), Seen { in_flight: 1, ..Seen::default() });
    assert!(!matches!(at(LatencyPrice::per_mille(100)), Plan::Spin { .. }));
    assert!(matches!(at(LatencyPrice::UNLIMITED), Plan::Spin { .. }));
}

/// Eight that come 4 µs apart: told of each, or of the last.
#[test]
fn batch_wait_sleeps_once() {
    let mut policy = sure(LatencyPrice::default(), 20_000, 0);
    for n in 0..8 {
        policy.submitted(SENT + Nanos(n * 4_000), &Batch { commands: 1, in_flight: n as u32 + 1, class: Some(read()), urgent: 0 });
    }
    let points = policy.forecast.look(SENT + Nanos(12_000), 0.0);
    let sleep = |wants, lambda| policy.sleeping(&points, wants, 0.0, lambda);
    assert_eq!(sleep(0, 0.3), sleep(1, 0.3));
    assert!(sleep(8, 0.0) < sleep(1, 0.0) / 2.0, "{} {}", sleep(8, 0.0), sleep(1, 0.0));
    // Each of them is found late by D.
    let (delay, more) = (policy.price.delay.0 as f32, sleep(8, 0.3) - sleep(8, 0.0));
    assert!((0.3 * delay * 0.9..=0.3 * delay * 1.1).contains(&more), "{more}");
}

#[test]
fn predictable_long_waits_nap() {
    let mut policy = sure(LatencyPrice::per_mille(2_000), 80_000, 0);
    for _ in 0..8 * MEMORY {
        policy.completed(&[Done { class: read(), age: Nanos(80_000), slept: false }]);
    }
    policy.submitted(SENT, &Batch { commands: 1, in_flight: 1, class: Some(read()), urgent: 0 });
    let plan = plan(&mut policy, Seen { in_flight: 1, ..Seen::default() });
    let Plan::Nap { until, .. } = plan else { panic!("{plan:?}") };
    let back = until + MACHINE.late - SENT;
    assert!((70_000..=82_000).contains(&back.0), "{back}");
}

#[test]
fn cheap_latency_gathers_completions() {
    let policy = |price| plan(&mut sure(price, 80_000, 32), Seen { in_flight: 32, goes_on_at: Some(Nanos::MAX), ..Seen::default() });
    let Plan::Nap { until, .. } = policy(LatencyPrice::NONE) else { panic!() };
    assert!(until + MACHINE.late >= SENT + Nanos(80_000), "{until}");
}

/// They come together long before any timer is over, and each message would interrupt the thread that has the CPU.
#[test]
fn contended_cpu_naps_for_many() {
    let mut policy = sure(LatencyPrice::default(), 3_000, 16);
    let machine = Cycle { cpu: Nanos(14_000), nap: Nanos(16_000), delay: Nanos(37_000), late: Nanos(20_000), message: Nanos(3_800) };
    policy.price = Price::new(LatencyPrice::default(), &machine);
    let plan = plan(&mut policy, Seen { in_flight: 16, cpu_wanted: true, ..Seen::default() });
    assert!(matches!(plan, Plan::Nap { .. }), "{plan:?}");
}

/// D was measured of a CPU that had slept: one that is busy tells sooner.
#[test]
fn notified_age_excludes_time_before_sleep() {
    let mut policy = policy(LatencyPrice::default());
    policy.price.delay = Nanos(37_000);
    for n in 0..u64::from(MEMORY) {
        let sent = SENT + Nanos(n * 100_000);
        policy.submitted(sent, &Batch { commands: 1, in_flight: 1, class: Some(read()), urgent: 0 });
        (policy.step.doing, policy.step.asked) = (Doing::Sleep, sent + Nanos(1_000));
        let woke = Some(Woke { cause: Cause::Notification, late: Nanos::ZERO });
        policy.next(sent + Nanos(30_000), &Seen { in_flight: 1, woke, ..Seen::default() });
        let age = Nanos(30_000);
        policy.completed(&[Done { class: read(), age, slept: true }]);
    }
    policy.submitted(SENT, &Batch { commands: 1, in_flight: 1, class: Some(read()), urgent: 0 });
    let points = policy.forecast.look(SENT, 0.0);
    assert!(points[1].at >= 1_000.0, "{points:?}");
}

#[test]
fn somebody_who_waits_makes_latency_dear() {
    let asked =
        |urgent_waiting| plan(&mut sure(LatencyPrice::default(), 4_000, 1), Seen { in_flight: 1, urgent_waiting, ..Seen::default() });
    assert!(!matches!(asked(0), Plan::Spin { .. }));
    assert!(matches!(asked(1), Plan::Spin { .. }));
}

#[test]
fn leaving_or_contended_thread_sleeps() {
    for seen in [Seen { leaving: true, ..Seen::default() }, Seen { cpu_wanted: true, ..Seen::default() }] {
        let plan = plan(&mut sure(LatencyPrice::UNLIMITED, 1_000, 4), Seen { in_flight: 4, ..seen });
        assert!(matches!(plan, Plan::Sleep { .. }), "{plan:?}");
    }
}

#[test]
fn near_deadlines_are_spun_for() {
    let mut policy = policy(LatencyPrice::default());
    let near = Seen { goes_on_at: Some(SENT + Nanos(1_000)), ..Seen::default() };
    assert_eq!(policy.next(SENT, &near), Plan::Spin { until: SENT + Nanos(1_000) });
    let far = Seen { goes_on_at: Some(SENT + Nanos(1_000_000)), ..Seen::default() };
    assert_eq!(policy.next(SENT, &far), Plan::Rest);
}

/// After a lost message every sleep has a deadline.
#[test]
fn lost_interrupt_sets_sleep_deadlines() {
    let mut policy = sure(LatencyPrice::per_mille(100), 80_000, 1);
    let seen = Seen { in_flight: 1, ..Seen::default() };
    assert_eq!(plan(&mut policy, seen), SLEEPS);
    let late = SENT + Nanos::from_millis(500);
    let woke = Some(Woke { cause: Cause::Other, late: Nanos::ZERO });
    assert!(matches!(policy.next(late, &Seen { woke, ..seen }), Plan::Look { .. }));
    policy.completed(&[Done { class: read(), age: late - SENT, slept: true }]);
    policy.next(late, &Seen { found: 1, ..Seen::default() });
    policy.submitted(late, &Batch { commands: 1, in_flight: 1, class: Some(read()), urgent: 0 });
    assert_eq!(policy.decisions.missed_notifications, 1);
    let Plan::Sleep { until, .. } = policy.next(late, &seen) else { panic!() };
    assert!(until < Nanos::MAX);
}

/// The caller's time-out is no instant at which it goes on: nobody naps until then, however dear a sleep seems.
#[test]
fn far_deadlines_cause_no_nap() {
    for price in [LatencyPrice::NONE, LatencyPrice::default()] {
        let dear = Cycle { delay: Nanos::from_millis(4), cpu: Nanos(200_000), ..MACHINE };
        let mut policy = Adaptive::new(price, &dear);
        let far = Nanos::from_secs(20);
        for n in 1..200 {
            let sent = Nanos(n * 1_000_000);
            policy.submitted(sent, &Batch { commands: 1, in_flight: 1, class: Some(read()), urgent: 0 });
            let seen = Seen { in_flight: 1, goes_on_at: Some(sent + far), ..Seen::default() };
            let (plan, age) = (policy.next(sent, &seen), Nanos(20_000));
            if let Plan::Nap { until, .. } = plan {
                assert!(until < sent + Nanos::from_millis(100), "{price}: until {until}, from {sent}");
            }
            let woke = matches!(plan, Plan::Nap { .. } | Plan::Sleep { .. }).then_some(Woke { cause: Cause::Timer, late: MACHINE.late });
            policy.next(sent + age, &Seen { in_flight: 1, woke, pending: true, ..Seen::default() });
            policy.completed(&[Done { class: read(), age, slept: false }]);
            policy.next(sent + age, &Seen { found: 1, ..Seen::default() });
        }
    }
}

/// A poll before anybody waits teaches nothing; one that ends a wait does.
#[test]
fn only_polls_that_end_waits_teach() {
    let mut policy = sure(LatencyPrice::default(), 20_000, 0);
    policy.submitted(SENT, &Batch { commands: 1, in_flight: 1, class: Some(read()), urgent: 0 });
    policy.next(SENT, &Seen { in_flight: 1, pending: true, ..Seen::default() });
    assert!(!policy.learns());
    policy.next(SENT, &Seen { in_flight: 1, ..Seen::default() });
    let over = SENT + Nanos(20_000);
    policy.next(over, &Seen { in_flight: 1, woke: Some(Woke::NOTIFIED), ..Seen::default() });
    assert!(policy.learns());
    policy.next(over, &Seen { found: 1, ..Seen::default() });
    assert!(!policy.learns());
}

const SLEEPS: Plan = Plan::Sleep { until: Nanos::MAX, at_least: 1, hold: 0, keep_armed: KeepArmed::Alone };

/// A thread that computes until it looks again would be told in vain; one that waits elsewhere has to be told.
#[test]
fn computing_thread_leaves_queue_masked() {
    const AWAY: Nanos = Nanos(20_000);
    let leaves = |computes: Nanos, found: u32| {
        let (mut policy, mut now, mut plan) = (sure(LatencyPrice::default(), 80_000, 8), SENT, Plan::Rest);
        let seen = Seen { in_flight: 8, ..Seen::default() };
        for _ in 0..4 * MEMORY {
            let left = now;
            plan = policy.next(now, &Seen { leaving: true, found, ..seen });
            now += AWAY;
            let back = Seen { woke: Some(Woke::OTHER), cycle: Some(computes), ..seen };
            assert!(matches!(policy.next(now, &back), Plan::Look { .. }));
            plan = if let Plan::Nap { until, .. } = plan { Plan::nap(Nanos(until.0 - left.0)) } else { plan };
        }
        assert_eq!((policy.ledger.spent, policy.decisions.missed_notifications), (0, 0), "it did not wait");
        plan
    };
    let Plan::Nap { until, .. } = leaves(AWAY, 2) else { panic!("it is armed") };
    assert!(until.0 > AWAY.0 * 9 / 10 && until <= AWAY, "{until}");
    assert_eq!(leaves(AWAY, 0), SLEEPS, "nothing to compute with: it waits elsewhere");
    assert_eq!(leaves(Nanos::ZERO, 2), SLEEPS, "it slept while it was away");
    assert_eq!(leaves(Nanos(AWAY.0 / 2), 2), SLEEPS, "half of the time it did");
}
