//! Every built-in policy keeps every rule, and each rule catches a policy that violates it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;
use crate::policy::of;
use crate::{Mode, ModePolicy, SleepCosts};

/// A correct policy: polls, spins for a while, sleeps. A mutant changes one of its plans.
#[derive(Clone, Debug)]
struct Mutant {
    tamper: fn(Nanos, &Seen, Plan) -> Plan,
    budget: u32,
    /// Commands submitted as it has counted them; `None`: it does not count. It rests with more in
    /// flight.
    heard: Option<u32>,
}

const GOOD: Mutant = Mutant { tamper: |_, _, plan| plan, budget: WEIGHT, heard: None };

impl Policy for Mutant {
    fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        let plan = match (seen.pending || seen.woke.is_some()) && !seen.lock_busy {
            true => Plan::Poll { budget: self.budget },
            false
                if seen.in_flight == 0
                    || self.heard.is_some_and(|heard| seen.in_flight > heard && !seen.leaving) =>
            {
                Plan::Idle
            }
            false if seen.in_flight < 4 && !seen.leaving => {
                Plan::Spin { until: now + Nanos::from_micros(20) }
            }
            false => Plan::sleep(Nanos::MAX),
        };
        (self.tamper)(now, seen, plan)
    }

    fn submitted(&mut self, _now: Nanos, batch: &Batch) {
        self.heard = self.heard.map(|heard| heard + batch.commands);
    }
}

fn tampered(tamper: fn(Nanos, &Seen, Plan) -> Plan) -> Mutant {
    Mutant { tamper, ..GOOD }
}

static ASKED: AtomicU64 = AtomicU64::new(0);

/// A rule, what its mutant does wrong, and the expected message.
fn mutants() -> Vec<(Invariant, Mutant, &'static str)> {
    vec![
        (
            Invariant::DoesNotPanic,
            tampered(
                |_, seen, plan| if seen.urgent_waiting > 1 { panic!("on purpose") } else { plan },
            ),
            "on purpose",
        ),
        (
            Invariant::RepeatsItself,
            tampered(|now, seen, plan| match plan {
                Plan::Sleep { .. } if !seen.leaving => {
                    Plan::nap(now + Nanos(20_000 + ASKED.fetch_add(1, Relaxed) % 1_000))
                }
                plan => plan,
            }),
            "the second",
        ),
        (
            Invariant::Looks,
            tampered(|_, seen, plan| {
                if seen.pending && seen.in_flight > 0 { Plan::sleep(Nanos::MAX) } else { plan }
            }),
            "known",
        ),
        (
            Invariant::LooksForAReason,
            tampered(
                |_, seen, plan| if seen.in_flight > 0 { Plan::Poll { budget: 1 } } else { plan },
            ),
            "nothing is known",
        ),
        (Invariant::BoundedLooks, Mutant { budget: 0, ..GOOD }, "budget 0"),
        (Invariant::BoundedLooks, Mutant { budget: u32::MAX, ..GOOD }, "budget 4294967295"),
        (
            Invariant::GoesOn,
            tampered(|_, seen, plan| if seen.found < 100 { Plan::Idle } else { plan }),
            "rests",
        ),
        (
            Invariant::GoesOn,
            tampered(|_, _, plan| match plan {
                Plan::Sleep { until, .. } => {
                    Plan::Sleep { until, at_least: u32::MAX, keep_armed: false }
                }
                plan => plan,
            }),
            "sleeps for 4294967295",
        ),
        (
            Invariant::WaitsEnd,
            tampered(
                |now, _, plan| {
                    if let Plan::Spin { .. } = plan { Plan::Spin { until: now } } else { plan }
                },
            ),
            "has come",
        ),
        (
            Invariant::WaitsEnd,
            tampered(
                |_, _, plan| {
                    if let Plan::Spin { .. } = plan { Plan::nap(Nanos::MAX) } else { plan }
                },
            ),
            "unarmed",
        ),
        (
            Invariant::LeavesArmed,
            tampered(|now, seen, plan| match plan {
                Plan::Sleep { .. } if seen.leaving => Plan::Spin { until: now + Nanos(1) },
                plan => plan,
            }),
            "leaves with",
        ),
        (
            Invariant::FindsEverything,
            tampered(|_, seen, plan| if seen.pending { Plan::sleep(Nanos::MAX) } else { plan }),
            "round and round",
        ),
        (Invariant::SurvivesSwitches, Mutant { heard: Some(0), ..GOOD }, "rests"),
        (
            Invariant::BoundedLateness,
            tampered(|now, _, plan| match plan {
                Plan::Spin { .. } => Plan::nap(now + Nanos::from_secs(3)),
                plan => plan,
            }),
            "late",
        ),
    ]
}

#[test]
fn built_in_policies_keep_every_law() {
    for mode in Mode::ALL {
        for law in Invariant::ALL {
            tried(law, &|| of(mode)).unwrap_or_else(|broken| panic!("{mode}: {broken}"));
        }
    }
}

/// A built-in policy with modified plans.
#[derive(Debug)]
struct Tampered {
    good: ModePolicy,
    tamper: fn(Nanos, &Seen, Plan) -> Plan,
}

impl Policy for Tampered {
    fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        let plan = self.good.next(now, seen);
        (self.tamper)(now, seen, plan)
    }
    fn submitted(&mut self, now: Nanos, batch: &Batch) {
        self.good.submitted(now, batch);
    }
    fn completed(&mut self, done: &[Done]) {
        self.good.completed(done);
    }
}

type Tampering = (Invariant, fn(Nanos, &Seen, Plan) -> Plan, &'static str);

/// Asserts that each rule catches the modified policy of `mode`.
fn caught(mode: Mode, tamperings: &[Tampering]) {
    for &(law, tamper, says) in tamperings {
        let verdict = tried(law, &|| Tampered { good: of(mode), tamper });
        let broken = verdict.expect_err(&format!("{mode}, {law:?}: not caught"));
        assert!(broken.what.contains(says), "{mode}, {law:?}: {broken}");
    }
}

fn rests(_: Nanos, seen: &Seen, plan: Plan) -> Plan {
    if seen.found == 0 { Plan::Idle } else { plan }
}

fn naps_for_ever(_: Nanos, seen: &Seen, plan: Plan) -> Plan {
    if seen.in_flight > 3 { Plan::nap(Nanos::MAX) } else { plan }
}

fn ignores_pending(_: Nanos, seen: &Seen, plan: Plan) -> Plan {
    if seen.pending { Plan::sleep(Nanos::MAX) } else { plan }
}

fn polls_always(_: Nanos, seen: &Seen, plan: Plan) -> Plan {
    if seen.in_flight > 0 { Plan::Poll { budget: 1 } } else { plan }
}

fn spins_on_leaving(now: Nanos, seen: &Seen, plan: Plan) -> Plan {
    match plan {
        Plan::Sleep { .. } if seen.leaving => Plan::Spin { until: now + Nanos(1) },
        _ => plan,
    }
}

#[test]
fn tampered_built_in_policies_are_caught() {
    for mode in Mode::ALL {
        caught(
            mode,
            &[
                (
                    Invariant::BoundedLooks,
                    |_, _, plan| {
                        if let Plan::Poll { .. } = plan { Plan::Poll { budget: 0 } } else { plan }
                    },
                    "budget 0",
                ),
                (Invariant::GoesOn, rests, "rests"),
                (Invariant::WaitsEnd, naps_for_ever, "waits unarmed"),
                (
                    Invariant::WaitsEnd,
                    |now, seen, plan| {
                        if seen.in_flight > 0 { Plan::Spin { until: now } } else { plan }
                    },
                    "has come",
                ),
                (Invariant::Looks, ignores_pending, "known to be there"),
                (Invariant::LooksForAReason, polls_always, "nothing is known"),
                (Invariant::LeavesArmed, spins_on_leaving, "leaves with"),
            ],
        );
    }
}

#[test]
fn lost_completions_are_caught() {
    let law = Invariant::FindsEverything;
    caught(Mode::INTERRUPT, &[(law, rests, "rests"), (law, polls_always, "round and round")]);
    caught(Mode::HYBRID_MEAN, &[(law, naps_for_ever, "waits for ever")]);
    caught(Mode::IRQ_POLL, &[(law, ignores_pending, "round and round")]);
    caught(Mode::POLL, &[(law, spins_on_leaving, "leaves with")]);
}

#[test]
fn switches_in_flight_lose_nothing() {
    let switch = |n: usize, policy: &mut ModePolicy| {
        let earlier = std::mem::replace(policy, of(Mode::INTERRUPT));
        *policy =
            ModePolicy::new(Mode::ALL[n % Mode::ALL.len()], &SleepCosts::default(), Some(earlier));
    };
    in_the_world(Invariant::SurvivesSwitches, |case| {
        world::run(case, || of(Mode::ALL[0]), switch, true)
    })
    .unwrap();
}

#[test]
fn each_law_catches_its_twin() {
    keeps_all(|| Box::new(GOOD)).unwrap();
    let mutants = mutants();
    assert!(Invariant::ALL.into_iter().all(|law| mutants.iter().any(|(of, ..)| *of == law)));
    for (law, mutant, says) in mutants {
        let broken =
            keeps(law, || Box::new(mutant.clone())).expect_err(&format!("{law:?}: not caught"));
        assert!(broken.law == law && broken.what.contains(says), "{law:?}: {broken}");
    }
}

#[test]
fn seeds_share_no_cases() {
    let pauses = |seed| script::events(seed).iter().map(|event| event.pause).collect::<Vec<_>>();
    let (all, mut once): (Vec<u64>, Vec<u64>) =
        ((0..CASES).flat_map(pauses).collect(), (0..CASES).flat_map(pauses).collect());
    once.sort_unstable();
    once.dedup();
    // About one in seventeen of 24,000 draws from 200,000 is a repetition.
    assert!(
        all.len() > 10_000 && once.len() > all.len() * 3 / 4,
        "{} of {} are different",
        once.len(),
        all.len()
    );
}

#[test]
fn smallest_case_is_reported() {
    let rests = || -> Box<dyn Policy> { Box::new(tampered(|_, _, _| Plan::Idle)) };
    let broken = keeps(Invariant::GoesOn, rests).unwrap_err();
    assert_eq!(broken.case.matches("Asked").count(), 1, "{broken}");
    assert_eq!(broken.case.matches("Submitted").count(), 0, "{broken}");
}
