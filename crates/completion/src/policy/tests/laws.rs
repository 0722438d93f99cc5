//! The laws that every policy keeps whatever it is told, and the contract of irq-poll.

use super::*;

/// Longest wait that counts as finite where nothing is armed: far above any service time the cases know.
const FINITE: Nanos = Nanos::from_secs(10);

/// Anything that an executor, or a confused one, may say.
pub(super) fn any_seen() -> impl Strategy<Value = Seen> {
    let woke = prop_oneof![
        3 => Just(None),
        1 => (prop_oneof![Just(Cause::Notification), Just(Cause::Timer), Just(Cause::Other)], 0u64..1_000_000)
            .prop_map(|(cause, late)| Some(Woke { cause, late: Nanos(late) })),
    ];
    let several = || prop_oneof![Just(0u32), 1u32..40];
    let counts = (0u32..200, prop_oneof![Just(0u32), 1u32..5, 0u32..2000], 0u32..3, several(), several());
    let instant = || proptest::option::of(0u64..1_000_000_000);
    let spans = (instant(), instant(), instant(), proptest::option::of(0u64..1_000_000));
    (counts, woke, any::<[bool; 5]>(), spans).prop_map(
        |((found, in_flight, urgent_waiting, wants, held), woke, b, (goes_on_at, wants_room_at, met_at, cycle))| Seen {
            found,
            budget_used_up: b[0],
            pending: b[1],
            lock_busy: b[2],
            in_flight,
            urgent_waiting,
            woke,
            cpu_wanted: b[3],
            leaving: b[4],
            goes_on_at: goes_on_at.map(Nanos),
            wants_room_at: wants_room_at.map(Nanos),
            wants,
            held,
            met_at: met_at.map(Nanos),
            cycle: cycle.map(Nanos),
        },
    )
}

/// One thing that happens to a policy, after `pause`.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pause: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Submit(u32, Class),
    Complete(Class, u64, bool),
    Ask(Seen),
}

pub(super) fn any_events() -> impl Strategy<Value = Vec<Event>> {
    let class = || (1u32..2_000_000).prop_map(read);
    let what = prop_oneof![
        2 => (0u32..100, class()).prop_map(|(n, class)| What::Submit(n, class)),
        2 => (class(), 0u64..3_000_000, any::<bool>()).prop_map(|(class, age, looking)| What::Complete(class, age, looking)),
        4 => any_seen().prop_map(What::Ask),
    ];
    proptest::collection::vec((0u64..200_000, what).prop_map(|(pause, what)| Event { pause, what }), 1..120)
}

/// Tells a policy of the events and hands each answer, with the question, to `law`.
fn ask(policy: &mut impl Decides, events: &[Event], law: impl Fn(Nanos, &Seen, Plan) -> Result<(), String>) -> Result<(), String> {
    let mut now = Nanos(1);
    for event in events {
        now += Nanos(event.pause);
        match &event.what {
            What::Submit(n, class) => {
                let batch = Batch { commands: *n, in_flight: *n, class: Some(*class), ..Batch::default() };
                if let Check::TryLook { budget } = policy.submitted(now, &batch) {
                    law(now, &Seen::default(), Plan::Look { budget })?;
                }
            }
            What::Complete(class, age, looking) => {
                let found = if *looking { Found::Looking } else { Found::AfterSleep { at_most: Nanos(*age) } };
                policy.completed(&[Done { class: *class, age: Nanos(*age), found }]);
            }
            What::Ask(seen) => law(now, seen, policy.next(now, seen))?,
        }
    }
    Ok(())
}

/// Law 2: no look without a budget, and none larger than the weight.
pub(super) fn bounded(policy: &mut impl Decides, events: &[Event]) -> Result<(), String> {
    ask(policy, events, |_, _, plan| match plan {
        Plan::Look { budget } if !(1..=WEIGHT).contains(&budget) => Err(format!("a look with budget {budget}")),
        _ => Ok(()),
    })
}

/// While commands are in flight, each answer finds them in finite time or leaves the notification armed.
pub(super) fn progress(policy: &mut impl Decides, events: &[Event]) -> Result<(), String> {
    ask(policy, events, |now, seen, plan| match plan {
        Plan::Rest if seen.in_flight > 0 => Err("rests with commands in flight".into()),
        Plan::Spin { until } | Plan::Nap { until } if until <= now => Err(format!("waits until {until}, which has passed")),
        Plan::Spin { until } | Plan::Nap { until } if until > now + FINITE => Err(format!("waits unarmed until {until}")),
        _ => Ok(()),
    })
}

/// A known entry is looked at, unless another thread is at it; and without one there is no look, or waiting would be a
/// loop of looks under the lock.
pub(super) fn looks_when_it_should(policy: &mut impl Decides, events: &[Event]) -> Result<(), String> {
    ask(policy, events, |_, seen, plan| {
        let known = seen.pending || seen.woke.is_some() || seen.budget_used_up;
        match plan {
            Plan::Look { .. } if !known && *seen != Seen::default() => Err("looks though nothing is known to be there".into()),
            Plan::Look { .. } => Ok(()),
            _ if seen.pending && !seen.lock_busy => Err("an entry is pending and it does not look".into()),
            _ => Ok(()),
        }
    })
}

/// A thread that leaves with commands in flight leaves an armed queue.
pub(super) fn leaves_armed(policy: &mut impl Decides, events: &[Event]) -> Result<(), String> {
    ask(policy, events, |_, seen, plan| match plan {
        Plan::Spin { .. } | Plan::Nap { .. } | Plan::Rest if seen.leaving && seen.in_flight > 0 => Err(format!("leaves with {plan:?}")),
        _ => Ok(()),
    })
}

/// The contract of `lib/irq_poll.c`: the notification masks and schedules a poller; one that uses its weight stays
/// scheduled, one that does not is complete, and its vector is armed again.
pub(super) fn irq_poll_contract(policy: &mut impl Decides, events: &[Event]) -> Result<(), String> {
    if !policy.masks() {
        return Err("the notification does not mask".into());
    }
    ask(policy, events, |_, seen, plan| {
        let scheduled = !seen.lock_busy && seen.woke.is_some();
        let expected = match plan {
            Plan::Look { budget } => budget == 64,
            Plan::Sleep { .. } => !seen.budget_used_up && !scheduled && seen.in_flight > 0,
            Plan::Rest => !seen.budget_used_up && !scheduled && seen.in_flight == 0,
            Plan::Spin { .. } | Plan::Nap { .. } => false,
        };
        if expected { Ok(()) } else { Err(format!("{plan:?} after {seen:?}")) }
    })
}

#[test]
fn every_policy_keeps_every_law_whatever_it_is_told() {
    for mode in Mode::ALL {
        for law in [bounded, progress, looks_when_it_should, leaves_armed] {
            holds(any_events(), |events| law(&mut Policy::new(mode), &events)).unwrap_or_else(|error| panic!("{mode}: {error}"));
        }
    }
}

#[test]
fn irq_poll_keeps_the_contract_of_lib_irq_poll() {
    for mode in Mode::ALL.into_iter().filter(|m| m.preset() == Preset::IrqPoll) {
        holds(any_events(), |events| irq_poll_contract(&mut Policy::new(mode), &events)).unwrap();
    }
    // And nobody else happens to keep it.
    for mode in Mode::ALL.into_iter().filter(|m| m.preset() != Preset::IrqPoll) {
        assert!(holds(any_events(), |events| irq_poll_contract(&mut Policy::new(mode), &events)).is_err(), "{mode}");
    }
}
