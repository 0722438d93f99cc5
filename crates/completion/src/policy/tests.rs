use super::*;
use crate::testing::{Event, ask, events};
use crate::{Cause, Class, Op, Records, Woke};

mod hybrid;
mod irq_poll;
mod suspend;

/// Random inputs of policies ([`crate::testing`] has the rules).
fn scripts() -> impl Iterator<Item = Vec<Event>> {
    (0..400).map(events)
}

fn read(bytes: u32) -> Class {
    Class::new(Op::Read, bytes)
}

#[test]
fn submit_check_polls_after_commit() {
    for mode in Mode::ALL {
        assert_eq!(of(mode).facts().submit_check, mode.submit_check(), "{mode}");
        if let Ok(checked) = mode.with_submit_check() {
            let seen = Seen { in_flight: 9, pending: true, ..Seen::default() };
            assert_eq!(of(mode).next(Nanos(1), &seen), of(checked).next(Nanos(1), &seen));
        }
    }
}

#[test]
fn polling_modes_route_to_polling() {
    let batch = Batch { commands: 1, in_flight: 1, class: Some(read(4096)), urgent: 0 };
    let polled = |mode: &Mode| of(*mode).route(Nanos(1), &batch) == Route::Poll;
    let names: Vec<_> = Mode::ALL.into_iter().filter(polled).map(|mode| mode.to_string()).collect();
    assert_eq!(names, ["hybrid-mean", "hybrid-min", "poll"]);
}

#[test]
fn awake_adaptive_routes_to_polling() {
    let mut policy = of(Mode::ADAPTIVE);
    let batch = Batch { commands: 1, in_flight: 2, class: Some(read(4096)), urgent: 0 };
    let mut now = Nanos(1);
    for _ in 0..4_000 {
        policy.submitted(now, &batch);
        policy.next(now, &Seen { in_flight: 2, ..Seen::default() });
        now += Nanos(500);
        policy.next(now, &Seen { in_flight: 2, pending: true, ..Seen::default() });
        policy.completed(&[Done { class: read(4096), age: Nanos(500), slept: false }]);
        policy.next(now, &Seen { in_flight: 1, found: 1, ..Seen::default() });
    }
    assert_eq!(policy.route(now, &batch), Route::Poll);
    // A thread that leaves sleeps, with the notification armed.
    for _ in 0..20 {
        now += Nanos::from_millis(1);
        policy.next(now, &Seen { in_flight: 1, leaving: true, ..Seen::default() });
        now += Nanos::from_millis(1);
        policy.next(now, &Seen { in_flight: 1, woke: Some(Woke::NOTIFIED), ..Seen::default() });
        policy.next(now, &Seen { in_flight: 1, found: 1, ..Seen::default() });
    }
    assert_eq!(policy.route(now, &batch), Route::Notify);
}

#[test]
fn poll_sleeps_only_on_leaving() {
    let wrong = scripts().find_map(|script| {
        ask(&mut of(Mode::POLL), &script, |_, seen, plan| {
            match (plan, seen) {
                (Plan::Sleep { .. }, seen) if !seen.leaving => Some("it sleeps"),
                (Plan::Nap { .. }, seen) if !seen.cpu_wanted => {
                    Some("it naps though nobody wants the CPU")
                }
                _ => None,
            }
            .map(str::to_owned)
        })
    });
    assert_eq!(wrong, None);
}

#[test]
fn interrupt_drains_then_sleeps() {
    let mut policy = of(Mode::INTERRUPT);
    let woke = Some(Woke { cause: Cause::Notification, late: Nanos::ZERO });
    assert_eq!(
        policy.next(Nanos(1), &Seen { in_flight: 90, woke, ..Seen::default() }),
        Plan::Poll { budget: WEIGHT }
    );
    let full = Seen { in_flight: 26, found: WEIGHT, budget_used_up: true, ..Seen::default() };
    assert_eq!(
        policy.next(Nanos(2), &Seen { pending: true, ..full }),
        Plan::Poll { budget: WEIGHT }
    );
    assert_eq!(policy.next(Nanos(3), &full), Plan::sleep(Nanos::MAX));
    assert!(!policy.facts().masks);
}

#[test]
fn unwanted_class_changes_no_plan() {
    for mode in Mode::ALL {
        let mut policies = [Some(Class::new(Op::Read, 4096)), None].map(|class| (of(mode), class));
        let wants = mode.facts().records != Records::None;
        let answers = policies.each_mut().map(|(policy, class)| {
            let batch = Batch { commands: 1, in_flight: 1, class: *class, ..Batch::default() };
            policy.submitted(Nanos(1_000), &batch);
            policy.next(Nanos(1_000), &Seen { in_flight: 1, ..Seen::default() })
        });
        assert!(wants || answers[0] == answers[1], "{mode}: {answers:?}");
    }
}
