use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::*;
use crate::{Cause, SLEEP, SleepStep, StepResult, sleep_step};

mod world;

use world::{Bound, Shared};

/// [`Ablation`] of a mutant: other steps of going to sleep, or one rule left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mutant {
    sleep: &'static [SleepStep],
    breaks: Option<Rule>,
}

const NO_ABLATION: Mutant = Mutant { sleep: SLEEP, breaks: None };

impl Ablation for Mutant {
    fn sleep(&self) -> &'static [SleepStep] {
        self.sleep
    }
    fn keeps(&self, rule: Rule) -> bool {
        self.breaks != Some(rule)
    }
}

/// Checks a property on random cases: new ones in each run for the correct waiter, and fixed ones
/// for mutants, which must be caught in each run.
fn holds<S: Strategy>(
    ablation: Mutant,
    cases: S,
    law: impl Fn(S::Value) -> Result<(), String>,
) -> Result<(), String> {
    let config =
        Config { failure_persistence: None, max_shrink_iters: 200, ..Config::with_cases(3_000) };
    let mut runner = match ablation {
        NO_ABLATION => TestRunner::new(config),
        _ => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
    };
    runner
        .run(&cases, |case| law(case).map_err(TestCaseError::fail))
        .map_err(|error| error.to_string())
}

/// With commands on a poll queue no plan is to sleep, and each nap ends.
fn naps_with_polled_commands(
    ablation: Mutant,
    (mode, script): (Mode, Vec<(u64, u32, Seen)>),
) -> Result<(), String> {
    let mut waiter = Waiter::new(mode, &SleepCosts::default(), ablation);
    let mut now = Nanos(1);
    for (pause, silent, seen) in script {
        now += Nanos(pause);
        waiter.set_silent(silent);
        waiter.seen = Seen { in_flight: seen.in_flight.max(silent), ..seen };
        match waiter.next(now, &mut Bound(&mut Shared::default(), 0)) {
            plan @ Plan::Sleep { .. } if silent > 0 => {
                return Err(format!("{plan:?} with {silent} out in silence"));
            }
            plan @ Plan::Nap { until, .. }
                if silent > 0 && !(now < until && until <= now + Nanos::from_secs(10)) =>
            {
                return Err(format!("{plan:?} at {now}"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn any_script() -> impl Strategy<Value = (Mode, Vec<(u64, u32, Seen)>)> {
    let seen = (any::<[bool; 5]>(), 0u32..40, 0u32..3, 0u32..30).prop_map(
        |([used, pending, busy, wanted, leaving], found, urgent, fly)| {
            let (budget_used_up, lock_busy, cpu_wanted, urgent_waiting, in_flight) =
                (used, busy, wanted, urgent, fly);
            Seen {
                found,
                budget_used_up,
                pending,
                lock_busy,
                cpu_wanted,
                leaving,
                urgent_waiting,
                in_flight,
                ..Seen::default()
            }
        },
    );
    let step = (0u64..3_000_000, prop_oneof![Just(0u32), 1u32..9], seen);
    (prop::sample::select(Mode::ALL.to_vec()), prop::collection::vec(step, 1..40))
}

#[test]
fn polled_commands_prevent_sleep() {
    holds(NO_ABLATION, any_script(), |script| naps_with_polled_commands(NO_ABLATION, script))
        .unwrap();
    let deaf = Mutant { breaks: Some(Rule::NapOnPollQueue), ..NO_ABLATION };
    let message = holds(deaf, any_script(), |script| naps_with_polled_commands(deaf, script))
        .expect_err("not caught");
    assert!(message.contains("out in silence"), "{message}");
}

#[test]
fn polled_naps_double() {
    let mut waiter = Waiter::new(Mode::INTERRUPT, &SleepCosts::default(), NoAblation);
    waiter.set_silent(3);
    let mut ask = |now, found| {
        waiter.seen = Seen { in_flight: 5, found, ..Seen::default() };
        match waiter.next(Nanos(now), &mut Bound(&mut Shared::default(), 0)) {
            Plan::Nap { until, .. } => until.0 - now,
            plan => panic!("{plan:?}"),
        }
    };
    let naps = [
        ask(1_000, 0),
        ask(21_000, 0),
        ask(41_000, 0),
        ask(100_000, 0),
        ask(9_000_000, 0),
        ask(9_000_000, 1),
    ];
    assert_eq!(naps, [20_000, 20_000, 40_000, 99_000, 1_000_000, 20_000]);
    waiter.set_silent(0);
    waiter.seen = Seen { in_flight: 2, ..Seen::default() };
    assert_eq!(
        waiter.next(Nanos(10_000_000), &mut Bound(&mut Shared::default(), 0)),
        Plan::sleep(Nanos::MAX)
    );
}

#[test]
fn sleeps_wait_for_wanted_completions() {
    let at_least = |mode, wants| {
        let mut waiter = Waiter::new(mode, &SleepCosts::default(), NoAblation);
        waiter.seen = Seen { in_flight: 20, wants, ..Seen::default() };
        match waiter.next(Nanos(1), &mut Bound(&mut Shared::default(), 0)) {
            Plan::Sleep { at_least, .. } => at_least,
            plan => panic!("{plan:?}"),
        }
    };
    for mode in [Mode::INTERRUPT, Mode::IRQ_POLL] {
        assert_eq!([0, 1, 2, 8].map(|wants| at_least(mode, wants)), [1, 1, 2, 8], "{mode}");
    }
}

#[test]
fn kept_arms_are_masked_in_time() {
    let (mut waiter, mut shared) =
        (Waiter::new(Mode::ADAPTIVE, &SleepCosts::default(), NoAblation), Shared::default());
    let mut vector = Bound(&mut shared, 0);
    waiter.owner = true;
    waiter.settle(&mut vector);
    assert!(!vector.0.armed, "awake");
    (waiter.plan, waiter.keep_armed) = (Plan::sleep(Nanos::MAX), true);
    assert!(
        waiter.arm(&mut vector) && waiter.recheck(&mut vector) == Some(false) && vector.0.armed
    );
    // One in flight: its message was the only one.
    waiter.mask_or_keep(1, &mut vector);
    assert!(vector.0.armed);
    waiter.plan = Plan::sleep(Nanos::MAX);
    assert!(
        !waiter.arm(&mut vector) && waiter.recheck(&mut vector).is_none(),
        "armed since before the last sleep"
    );
    waiter.mask_or_keep(2, &mut vector);
    assert!(!vector.0.armed, "others may come meanwhile");
    assert!(waiter.arm(&mut vector) && vector.0.armed);
}

/// [`Waiter::cached`] returns the plan that [`Waiter::next`] would, whatever the input.
#[test]
fn cached_plans_are_the_policys() {
    let law = |(mode, script): (Mode, Vec<(u64, u32, Seen)>)| {
        let (mut waiter, mut now) =
            (Waiter::new(mode, &SleepCosts::default(), NoAblation), Nanos(1));
        for (n, (pause, silent, seen)) in (0..).zip(script) {
            now += Nanos(pause);
            waiter.set_silent(silent);
            waiter.seen =
                Seen { woke: [None, Some(Woke::NOTIFIED), Some(Woke::OTHER)][n % 3], ..seen };
            let cached = waiter.cached();
            let planned = waiter.next(now, &mut Bound(&mut Shared::default(), 0));
            if cached.is_some_and(|cached| cached != planned) {
                return Err(format!("{cached:?}, and {planned:?} was to be planned"));
            }
        }
        Ok(())
    };
    holds(NO_ABLATION, any_script(), law).unwrap();
}
