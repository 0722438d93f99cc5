//! The contract of `lib/irq_poll.c`: the interrupt masks the vector and schedules a poller. A
//! poller that uses its weight stays scheduled; one that does not is complete, and its vector is
//! unmasked.

use super::*;
use crate::testing::{Event, ask};

/// How `policy` violates the contract with the inputs of `script`; `tamper` modifies its plans.
fn breach(
    mut policy: ModePolicy,
    script: &[Event],
    tamper: fn(&Seen, Plan) -> Plan,
) -> Option<String> {
    if !policy.facts().masks {
        return Some("the notification does not mask".into());
    }
    ask(&mut policy, script, |_, seen, plan| {
        let plan = tamper(seen, plan);
        let scheduled = !seen.lock_busy && seen.woke.is_some();
        let expected = match plan {
            Plan::Poll { budget } => budget == 64,
            Plan::Sleep { .. } => !seen.budget_used_up && !scheduled && seen.in_flight > 0,
            Plan::Idle => !seen.budget_used_up && !scheduled && seen.in_flight == 0,
            Plan::Spin { .. } | Plan::Nap { .. } => false,
        };
        (!expected).then(|| format!("{plan:?} after {seen:?}"))
    })
}

/// The violation in the first of many scripts that has one.
fn found(mode: Mode, tamper: fn(&Seen, Plan) -> Plan) -> Option<String> {
    scripts().find_map(|script| breach(of(mode), &script, tamper))
}

#[test]
fn only_irq_poll_keeps_the_contract() {
    for mode in Mode::ALL {
        let broken = found(mode, |_, plan| plan);
        assert_eq!(
            broken.is_none(),
            matches!(mode.preset(), Preset::IrqPoll(_)),
            "{mode}: {broken:?}"
        );
    }
}

#[test]
fn whole_weight_mutant_is_caught() {
    let hasty = |seen: &Seen, plan| match plan {
        Plan::Poll { .. } if seen.budget_used_up => Plan::sleep(Nanos::MAX),
        _ => plan,
    };
    let stubborn = |seen: &Seen, plan| match plan {
        Plan::Sleep { .. } if seen.found > 0 => Plan::Spin { until: Nanos::MAX },
        _ => plan,
    };
    let light = |_: &Seen, plan| {
        if matches!(plan, Plan::Poll { .. }) { Plan::Poll { budget: 32 } } else { plan }
    };
    for tamper in [hasty, stubborn, light] {
        assert!(found(Mode::IRQ_POLL, tamper).is_some());
    }
}

#[test]
fn a_poll_is_within_weight_and_budget() {
    for (text, budget) in [
        ("irq-poll?weight=16", 16),
        ("irq-poll?weight=16&budget=8", 8),
        ("irq-poll?budget=8", 8),
        ("irq-poll?weight=200", 200),
    ] {
        let seen = Seen { in_flight: 300, pending: true, ..Seen::default() };
        assert_eq!(
            of(text.parse().unwrap()).next(Nanos(1), &seen),
            Plan::Poll { budget },
            "{text}"
        );
    }
}
