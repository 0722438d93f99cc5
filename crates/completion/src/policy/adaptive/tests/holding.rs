//! What the device may hold back, and what is done meanwhile.

use super::*;

const LATER: Nanos = Nanos::from_secs(1);

/// A policy with so many in flight, on a device that takes `age`.
fn with(slack: LatencySlack, age: u64, in_flight: u32) -> Adaptive {
    let mut policy = policy(slack);
    policy.decisions.waits = EXPLORE_FIRST;
    for n in 0..500 {
        policy.service.learn(&Done { class: read(), age: Nanos(age + n % 2), found: Found::Looking }, None, Nanos::ZERO, Nanos::ZERO);
    }
    policy.submitted(LATER, &Batch { commands: in_flight, in_flight, class: Some(read()), urgent: 0 });
    policy
}

fn holds(slack: LatencySlack, age: u64, in_flight: u32) -> Option<Coalesce> {
    let mut policy = with(slack, age, in_flight);
    policy.next(LATER, &Seen { in_flight, ..Seen::default() });
    policy.holds(LATER)
}

#[test]
fn nothing_is_held_back_that_the_slack_does_not_allow() {
    assert_eq!(policy(LatencySlack::UNLIMITED).holds(LATER), None, "nothing is known");
    // A tenth of a device's time is 100 µs only for the slowest.
    assert_eq!(holds(LatencySlack::default(), 80_000, 4), Some(Coalesce::OFF));
    assert_eq!(holds(LatencySlack::default(), 900_000, 4), Some(Coalesce::OFF));
    assert_eq!(holds(LatencySlack::default(), 1_100_000, 4), Some(Coalesce::new(4, 1)));
    assert_eq!(holds(LatencySlack::per_mille(1_000), 80_000, 4), Some(Coalesce::OFF));
    assert_eq!(holds(LatencySlack::per_mille(1_500), 80_000, 4), Some(Coalesce::new(4, 1)));
    // Naps find many.
    assert_eq!(holds(LatencySlack::UNLIMITED, 2_000, 32), Some(Coalesce::OFF));
    assert_eq!(holds(LatencySlack::NONE, 80_000_000, 4), Some(Coalesce::OFF));
    // Whoever has no clock has nothing to send before he hears of the one that is there.
    assert_eq!(holds(LatencySlack::UNLIMITED, 80_000, 1), Some(Coalesce::OFF));
}

#[test]
fn an_urgent_command_ends_it_for_a_while() {
    let mut policy = with(LatencySlack::UNLIMITED, 80_000, 4);
    policy.next(LATER, &Seen { in_flight: 4, urgent_waiting: 1, ..Seen::default() });
    assert_eq!(policy.holds(LATER), Some(Coalesce::OFF));
    assert_eq!(policy.holds(LATER + Nanos::from_millis(99)), Some(Coalesce::OFF));
    assert_eq!(policy.holds(LATER + Nanos::from_millis(101)), Some(Coalesce::new(4, 1)));
}

#[test]
fn it_sleeps_for_what_is_held_back_and_naps_for_what_is_not() {
    let plan = |held| {
        let mut policy = with(LatencySlack::UNLIMITED, 80_000, 4);
        let plan = policy.next(LATER, &Seen { in_flight: 4, held, ..Seen::default() });
        (plan, policy.decisions.held, policy.decisions.gathered)
    };
    assert!(matches!(plan(Coalesce::OFF), (Plan::Nap { .. }, 0, 1)), "{:?}", plan(Coalesce::OFF));
    assert!(matches!(plan(Coalesce::new(4, 1)), (Plan::Sleep { .. }, 1, 0)), "{:?}", plan(Coalesce::new(4, 1)));
    // More than are in flight: a message only comes when its time has.
    assert!(matches!(plan(Coalesce::new(5, 1)), (Plan::Nap { .. }, 0, 1)));
}

/// Waits for one urgent command that takes `age`, asking as an executor would, with a setting in force of which the policy is
/// `told`. When it was found, or that it slept.
fn found_at(age: u64, told: Coalesce) -> Result<Nanos, String> {
    let mut policy = with(LatencySlack::UNLIMITED, 80_000, 1);
    let (mut now, mut woke, comes) = (LATER, None, LATER + Nanos(age));
    for _ in 0..1_000 {
        let seen = Seen { in_flight: 1, urgent_waiting: 1, held: told, woke, ..Seen::default() };
        (now, woke) = match policy.next(now, &seen) {
            Plan::Look { .. } if now >= comes => return Ok(now),
            Plan::Look { .. } => (now + Nanos(100), None),
            Plan::Spin { until } if until >= comes => return Ok(now.max(comes)),
            Plan::Spin { until } => (until, None),
            Plan::Nap { until } => (until + MACHINE.late, Some(Woke { cause: Cause::Timer, late: MACHINE.late })),
            Plan::Sleep { .. } => return Err(format!("sleeps at {now} for a message that is held back")),
            Plan::Rest => return Err("rests with a command in flight".into()),
        };
    }
    Err("still waiting".into())
}

proptest! {
    /// Law: an urgent command does not wait for a message that is held back; it is found when it was expected, or after a nap
    /// at most and an eighth of its time.
    #[test]
    fn an_urgent_command_is_found_without_its_message(age in 10_000u64..2_000_000, entries in 2u16..300, steps in 1u8..12) {
        let found = found_at(age, Coalesce::new(entries, steps)).map_err(TestCaseError::fail)?;
        let late = found - (LATER + Nanos(age.max(80_000)));
        prop_assert!(late <= MACHINE.nap + MACHINE.late + Nanos(age / 7), "{late} late");
    }
}

#[test]
fn a_policy_that_is_not_told_what_is_held_back_is_caught() {
    assert!((1..20).any(|n| found_at(n * 100_000, Coalesce::OFF).is_err()));
    assert!((1..20).all(|n| found_at(n * 100_000, Coalesce::new(2, 1)).is_ok()));
}
