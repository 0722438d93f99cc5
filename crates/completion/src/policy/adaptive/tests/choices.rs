//! What it chooses, and why.

use super::*;

/// A policy that knows a device which takes `age`, more or less, and comes when it is due.
pub(super) fn taught(slack: LatencySlack, age: u64) -> Adaptive {
    let mut policy = policy(slack);
    // The first waits are looked at all the way if several are in flight.
    policy.decisions.waits = EXPLORE_FIRST;
    for n in 0..500 {
        policy.service.learn(&Done { class: read(), age: Nanos(age + n % 2), found: Found::Looking }, None, Nanos::ZERO, Nanos::ZERO);
    }
    // It comes within 1 µs of when it is due.
    (0..10).for_each(|log2| policy.waits.took(1 << log2, Nanos(1_000), policy.horizon()));
    policy
}

const LATER: Nanos = Nanos::from_secs(1);

pub(super) fn submit(policy: &mut Adaptive, now: Nanos, commands: u32, in_flight: u32) {
    policy.submitted(now, &Batch { commands, in_flight, class: Some(read()), urgent: 0 });
}

pub(super) fn waiting(in_flight: u32) -> Seen {
    Seen { in_flight, ..Seen::default() }
}

fn slack(thousandths: u32) -> LatencySlack {
    LatencySlack::per_mille(thousandths)
}

#[test]
fn it_spins_for_what_is_due_sooner_than_a_sleep_is_worth_and_sleeps_for_the_rest() {
    let plan = |age: u64| {
        let mut policy = taught(LatencySlack::default(), age);
        submit(&mut policy, LATER, 1, 1);
        policy.next(LATER, &waiting(1))
    };
    assert!(matches!(plan(1_000), Plan::Spin { until } if until <= LATER + Nanos(3_500)));
    assert_eq!(plan(80_000), Plan::sleep(Nanos::MAX));
}

#[test]
fn where_the_caller_needs_several_the_last_of_them_counts() {
    let plan = |wants: u32, apart: u64| {
        let mut policy = taught(LatencySlack::default(), 1_000);
        (0..8u64).for_each(|n| submit(&mut policy, LATER + Nanos(n * apart), 1, n as u32 + 1));
        policy.next(LATER, &Seen { wants, ..waiting(8) })
    };
    // The first is due sooner than a sleep is worth, the eighth is not.
    assert!(matches!(plan(1, 2_000), Plan::Spin { .. }));
    assert!(matches!(plan(2, 100), Plan::Spin { .. }) && matches!(plan(8, 100), Plan::Spin { .. }));
    assert_eq!(plan(8, 2_000), Plan::sleep(Nanos::MAX));
}

#[test]
fn at_no_slack_it_naps_until_just_before_something_is_due_and_spins() {
    let mut policy = taught(LatencySlack::NONE, 80_000);
    submit(&mut policy, LATER, 1, 1);
    let Plan::Nap { until } = policy.next(LATER, &waiting(1)) else { panic!("no nap") };
    // Timers are 2 µs late.
    assert!((LATER + Nanos(76_000)..=LATER + Nanos(78_000)).contains(&until), "{until}");
    let woke = Some(Woke { cause: Cause::Timer, late: Nanos(2_000) });
    let awake = until + Nanos(2_000);
    assert!(matches!(policy.next(awake, &Seen { woke, ..waiting(1) }), Plan::Look { .. }));
    assert!(matches!(policy.next(awake, &waiting(1)), Plan::Spin { .. }));
    // However long it takes.
    assert!(matches!(policy.next(awake + Nanos::from_millis(50), &waiting(1)), Plan::Spin { .. }));
}

#[test]
fn below_the_default_a_sleep_is_dearer_only_where_it_is_later_than_the_slack_allows() {
    let horizon = |thousandths: u32, device_time: u64| {
        let mut policy = taught(LatencySlack::per_mille(thousandths), device_time);
        submit(&mut policy, LATER, 1, 1);
        policy.horizon()
    };
    // 5 % of 80 us is more than the delay, 2 % less; of 10 us less at any slack, and the smaller it is the dearer is a sleep.
    assert_eq!(horizon(50, 80_000), MACHINE.cpu);
    assert!(horizon(20, 80_000) > MACHINE.cpu);
    assert!(horizon(20, 10_000) > horizon(50, 10_000) && horizon(50, 10_000) > MACHINE.cpu);
}

#[test]
fn several_slow_ones_are_looked_for_when_such_come_unless_others_have_overtaken_them() {
    let plan = |age: Nanos| {
        let mut policy = taught(LatencySlack::NONE, 80_000);
        for _ in 0..100 {
            let slow = Done { class: read(), age: Nanos::from_millis(1), found: Found::Looking };
            policy.service.learn(&slow, None, Nanos::ZERO, Nanos::ZERO);
        }
        submit(&mut policy, LATER, 1, 1);
        let sent = LATER + Nanos::from_micros(200);
        (2..4).for_each(|in_flight| submit(&mut policy, sent, 1, in_flight));
        let now = LATER + Nanos::from_millis(1);
        policy.next(now, &waiting(3));
        policy.completed(&[Done { class: read(), age, found: Found::Looking }]);
        policy.next(now, &waiting(2))
    };
    let slow = LATER + Nanos::from_micros(1_200);
    // The first was the first to come: two are left that are as old as they look.
    assert!(matches!(plan(Nanos::from_millis(1)), Plan::Nap { until } if until < slow && until > slow - Nanos(30_000)));
    // One of the others: who knows how old those are that are left?
    assert!(matches!(plan(Nanos::from_micros(800)), Plan::Spin { .. }));
}

#[test]
fn it_gathers_within_the_slack_and_never_alone_nor_for_urgent_commands() {
    let plan = |thousandths: u32, seen: Seen| {
        let mut policy = taught(slack(thousandths), 80_000);
        for n in 0..u64::from(seen.in_flight) {
            submit(&mut policy, LATER + Nanos(n * 4_000), 1, n as u32 + 1);
        }
        (policy.next(LATER + Nanos(70_000), &seen), policy.decisions.gathered)
    };
    let (Plan::Nap { until }, 1) = plan(500, waiting(8)) else { panic!("does not gather") };
    assert!(until <= LATER + Nanos(120_000) && until > LATER + Nanos(90_000), "{until}");
    assert!(matches!(plan(500, Seen { urgent_waiting: 1, ..waiting(8) }), (Plan::Sleep { .. } | Plan::Spin { .. }, 0)));
    assert!(matches!(plan(500, waiting(1)), (Plan::Sleep { .. } | Plan::Spin { .. }, 0)));
}

#[test]
fn it_waits_for_whoever_goes_on_by_himself_rather_than_be_woken_twice() {
    let mut policy = taught(slack(1_000), 80_000);
    submit(&mut policy, LATER, 1, 1);
    let goes_on_at = Some(LATER + Nanos(100_000));
    assert_eq!(policy.next(LATER, &Seen { goes_on_at, ..waiting(1) }), Plan::Nap { until: LATER + Nanos(100_000) });
}

#[test]
fn it_is_told_of_nothing_where_it_wakes_for_the_caller_no_later_than_a_sleeper() {
    // Due after 10 µs, which is more than a sleep is worth; a sleeper is awake 2.5 µs later, and timers are 2 µs late.
    let plan = |goes_on: u64, urgent_waiting: u32| {
        let mut policy = taught(LatencySlack::default(), 10_000);
        submit(&mut policy, LATER, 1, 1);
        policy.next(LATER, &Seen { goes_on_at: Some(LATER + Nanos(goes_on)), urgent_waiting, ..waiting(1) })
    };
    assert_eq!(plan(10_300, 0), Plan::Nap { until: LATER + Nanos(10_300) });
    assert_eq!([plan(10_900, 0), plan(10_300, 1)], [Plan::sleep(Nanos::MAX); 2]);
}

#[test]
fn no_timer_is_set_for_an_instant_of_the_callers_that_passes_while_it_is_set() {
    // A nap costs 2.4 µs, a third of it before the thread blocks.
    let (near, far) = (Some(LATER + Nanos(700)), Some(LATER + Nanos(900)));
    for thousandths in [0, 100] {
        let plan = |in_flight: u32, goes_on_at: Option<Nanos>, leaving: bool| {
            let mut policy = taught(slack(thousandths), 80_000);
            if in_flight > 0 {
                submit(&mut policy, LATER, in_flight, in_flight);
            }
            policy.next(LATER, &Seen { goes_on_at, leaving, ..waiting(in_flight) })
        };
        for in_flight in [0, 1, 4] {
            assert!(matches!(plan(in_flight, near, false), Plan::Spin { until } if until >= LATER + Nanos(700)));
            assert!(matches!(plan(in_flight, near, true), Plan::Sleep { .. } | Plan::Rest), "it may not leave unarmed");
        }
        assert_eq!(plan(0, far, false), Plan::Rest);
        // At no slack it stays awake for him.
        assert_eq!(matches!(plan(1, far, false), Plan::Nap { .. } | Plan::Sleep { .. }), thousandths > 0);
    }
}

#[test]
fn awake_until_the_callers_instant_it_spends_nothing_that_another_choice_would_not() {
    let mut policy = taught(LatencySlack::default(), 80_000);
    let instants = |n: u64| LATER + Nanos(n * 700);
    submit(&mut policy, LATER, 1, 1);
    // However often he goes on: the ledger has what it grants left when he does not any more.
    for n in 0..100 {
        let plan = policy.next(instants(n), &Seen { goes_on_at: Some(instants(n + 1)), ..waiting(1) });
        assert_eq!(plan, Plan::Spin { until: instants(n + 1) });
    }
    policy.next(instants(100), &waiting(1));
    assert!(policy.ledger.may_predict(MACHINE.cpu, 32));
}

#[test]
fn it_gives_way_when_the_cpu_is_wanted() {
    for thousandths in [0, 100, u32::MAX] {
        let mut policy = taught(slack(thousandths), 1_000);
        submit(&mut policy, LATER, 1, 1);
        assert!(matches!(policy.next(LATER, &Seen { cpu_wanted: true, ..waiting(1) }), Plan::Sleep { .. }));
        assert_eq!(policy.decisions.gave_way, 1);
    }
}

#[test]
fn a_message_that_was_lost_once_puts_a_deadline_on_every_sleep() {
    let mut policy = taught(LatencySlack::default(), 80_000);
    submit(&mut policy, LATER, 1, 1);
    assert_eq!(policy.next(LATER, &waiting(1)), Plan::sleep(Nanos::MAX));
    // Somebody else has it look, a second later, and there it is.
    let found = LATER + Nanos::from_secs(1);
    let woke = Some(Woke { cause: Cause::Other, late: Nanos::ZERO });
    policy.next(found, &Seen { woke, ..waiting(1) });
    let age = Nanos::from_secs(1);
    policy.completed(&[Done { class: read(), age, found: Found::AfterSleep { at_most: age } }]);
    policy.next(found, &Seen { found: 1, ..waiting(0) });
    assert_eq!(policy.decisions.missed_notifications, 1);
    submit(&mut policy, found, 1, 1);
    let Plan::Sleep { until, .. } = policy.next(found, &waiting(1)) else { panic!("does not sleep") };
    assert!(until < found + Nanos::from_millis(10), "{until}");
}

/// Waits of a device that takes 20 to 23 µs, but from `faster` on 4 µs less. How many were looked at all the way.
fn explored(policy: &mut Adaptive, in_flight: u32, waits: std::ops::Range<u64>, faster: u64) -> u64 {
    let before = policy.decisions.explored;
    for n in waits {
        let at = LATER + Nanos(n * 1_000_000);
        submit(policy, at, in_flight, in_flight);
        let mut plan = policy.next(at, &waiting(in_flight));
        let mut now = at;
        while let Plan::Nap { until } = plan {
            now = until + Nanos(2_000);
            policy.next(now, &Seen { woke: Some(Woke { cause: Cause::Timer, late: Nanos(2_000) }), ..waiting(in_flight) });
            plan = policy.next(now, &waiting(in_flight));
        }
        let takes = Nanos(20_000 + n * 7_919 % 3_000) - Nanos(if n < faster { 0 } else { 4_000 });
        now = now.max(at + takes);
        let seen = match plan {
            Plan::Sleep { .. } => Seen { woke: Some(Woke { cause: Cause::Notification, late: Nanos::ZERO }), ..waiting(in_flight) },
            _ => Seen { pending: true, ..waiting(in_flight) },
        };
        let slept = seen.woke.is_some();
        now += if slept { Nanos(2_500) } else { Nanos::ZERO };
        policy.next(now, &seen);
        let age = now - at;
        let found = if slept { Found::AfterSleep { at_most: age } } else { Found::Looking };
        policy.completed(&[Done { class: read(), age, found }]);
        policy.next(now, &Seen { found: in_flight, ..waiting(0) });
    }
    policy.decisions.explored - before
}

#[test]
fn one_wait_in_sixty_four_is_looked_at_all_the_way_if_several_are_in_flight() {
    let mut policy = taught(LatencySlack::default(), 20_000);
    let explored = explored(&mut policy, 2, 0..6_400, u64::MAX);
    assert!((50..=100).contains(&explored), "{explored}");
}

/// Of a command that is alone a sleep tells enough, as long as it tells what was expected.
#[test]
fn a_wait_for_one_command_is_looked_at_all_the_way_only_after_a_surprise() {
    let mut policy = taught(LatencySlack::default(), 20_000);
    let usual = explored(&mut policy, 1, 0..6_400, 6_400);
    let changed = explored(&mut policy, 1, 6_400..12_800, 6_400);
    assert!(usual < 20 && changed > usual, "{usual} {changed}");
    let due = policy.service.due(read(), Nanos::ZERO);
    assert!(due.is_some_and(|due| due < Nanos(19_000)), "{due:?}");
}

#[test]
fn a_thread_that_stays_awake_in_its_waits_leaves_the_looks_after_its_commits_out() {
    let mut policy = taught(LatencySlack::default(), 1_000);
    let mut at = LATER;
    // Whether it looked after the commit.
    let mut turn = |cpu_wanted: bool| {
        let done = Done { class: read(), age: Nanos(1_000), found: Found::Looking };
        let looks = policy.submitted(at, &Batch { commands: 1, in_flight: 16, class: Some(read()), urgent: 0 }) != Check::No;
        if looks {
            policy.completed(&[done]);
        }
        let plan = policy.next(at, &Seen { cpu_wanted, ..waiting(16) });
        at += Nanos(1_000);
        let woke = cpu_wanted.then_some(Woke { cause: Cause::Notification, late: Nanos::ZERO });
        assert_eq!(matches!(plan, Plan::Sleep { .. }), cpu_wanted, "{plan:?}");
        policy.next(at, &Seen { pending: !cpu_wanted, woke, ..waiting(16) });
        policy.completed(&[done]);
        policy.next(at, &Seen { found: 1, pending: true, ..waiting(16) });
        looks
    };
    assert!((0..AWAKE).all(|_| turn(false)));
    (0..AWAKE).for_each(|_| _ = turn(false));
    assert!((0..AWAKE).all(|_| !turn(false)));
    // One sleep is soon made up for.
    turn(true);
    assert!((0..AWAKE).all(|_| !turn(false)));
    // After several the next wait is as good as the first.
    (0..AWAKE_MEMORY / AWAKE).for_each(|_| _ = turn(true));
    turn(false);
    assert!((1..AWAKE).all(|_| turn(false)));
}
