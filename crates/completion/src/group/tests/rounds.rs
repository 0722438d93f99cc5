//! Rounds are bounded and fair; mutants are not, and are caught.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::*;

trait Turns {
    fn begin(&mut self, now: Nanos, limits: PollLimits);
    fn turn(&mut self, now: Nanos, plans: &[Plan]) -> Option<Turn>;
    fn took(&mut self, found: u32);
}

impl Turns for Round {
    fn begin(&mut self, now: Nanos, limits: PollLimits) {
        Round::begin(self, now, limits);
    }
    fn turn(&mut self, now: Nanos, plans: &[Plan]) -> Option<Turn> {
        Round::turn(self, now, plans)
    }
    fn took(&mut self, found: u32) {
        Round::took(self, found);
    }
}

/// Entries on each queue at first, and the nanoseconds that one takes.
#[derive(Clone, Debug)]
struct Case {
    waiting: Vec<u32>,
    cost: u64,
    limits: PollLimits,
}

fn any_case() -> impl Strategy<Value = Case> {
    let waiting = proptest::collection::vec(prop_oneof![Just(0u32), 1u32..10, 0u32..3_000], 1..20);
    let group = (1u32..100, 1u32..400, 1_000u64..2_000_000);
    (waiting, 1u64..100_000, group).prop_map(|(waiting, cost, (weight, budget, limit))| Case {
        waiting,
        cost,
        limits: PollLimits { weight, budget, time: Nanos(limit) },
    })
}

/// Reaps all entries; checks weight, budget and time limit, and that no queue with entries is
/// passed over twice.
fn drain(case: &Case, round: &mut impl Turns) -> Result<(), String> {
    let mut waiting = case.waiting.clone();
    let mut passed = vec![0usize; waiting.len()];
    let mut now = Nanos(1);
    let mut rounds = 0;
    while waiting.iter().any(|&n| n > 0) {
        rounds += 1;
        if rounds > 100_000 {
            return Err("does not end".into());
        }
        round.begin(now, case.limits);
        let (began, mut taken) = (now, 0);
        loop {
            let look = Plan::Poll { budget: 64 };
            let plans: Vec<Plan> =
                waiting.iter().map(|&n| if n > 0 { look } else { Plan::Idle }).collect();
            let Some(turn) = round.turn(now, &plans) else { break };
            if plans.get(turn.queue) != Some(&look) {
                return Err(format!("the turn of queue {} that plans no look", turn.queue));
            }
            if now >= began + case.limits.time {
                return Err("a turn after the time limit".into());
            }
            if !(1..=case.limits.weight.min(64)).contains(&turn.budget) {
                return Err(format!("a turn of {}", turn.budget));
            }
            let found = turn.budget.min(waiting[turn.queue]);
            waiting[turn.queue] -= found;
            taken += found;
            now += Nanos(case.cost * u64::from(found));
            round.took(found);
            if taken > case.limits.budget {
                return Err("more than the budget".into());
            }
            passed[turn.queue] = 0;
            for (queue, passed) in
                passed.iter_mut().enumerate().filter(|&(q, _)| q != turn.queue && waiting[q] > 0)
            {
                *passed += 1;
                if *passed >= case.waiting.len() {
                    return Err(format!("queue {queue} is passed over"));
                }
            }
        }
    }
    Ok(())
}

fn holds<T: Turns>(round: impl Fn(Round) -> T) -> Result<(), String> {
    let mut runner =
        TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(300) });
    runner
        .run(&any_case(), |case| {
            drain(&case, &mut round(Round::default())).map_err(TestCaseError::fail)
        })
        .map_err(|e| e.to_string())
}

#[test]
fn a_round_is_bounded_and_fair() {
    holds(|round| round).unwrap();
}

/// A mutant that starts each round with the first queue.
struct FirstFirst(Round);

impl Turns for FirstFirst {
    fn begin(&mut self, now: Nanos, limits: PollLimits) {
        self.0.first = 0;
        self.0.begin(now, limits);
    }
    fn turn(&mut self, now: Nanos, plans: &[Plan]) -> Option<Turn> {
        self.0.turn(now, plans)
    }
    fn took(&mut self, found: u32) {
        self.0.took(found);
    }
}

/// A mutant that does not count entries.
struct Greedy(Round);

impl Turns for Greedy {
    fn begin(&mut self, now: Nanos, limits: PollLimits) {
        self.0.begin(now, limits);
    }
    fn turn(&mut self, now: Nanos, plans: &[Plan]) -> Option<Turn> {
        self.0.turn(now, plans)
    }
    fn took(&mut self, _: u32) {}
}

/// A mutant without a time limit.
struct Timeless(Round);

impl Turns for Timeless {
    fn begin(&mut self, now: Nanos, limits: PollLimits) {
        self.0.begin(now, limits);
        self.0.until = Nanos::MAX;
    }
    fn turn(&mut self, now: Nanos, plans: &[Plan]) -> Option<Turn> {
        self.0.turn(now, plans)
    }
    fn took(&mut self, found: u32) {
        self.0.took(found);
    }
}

#[test]
fn unfair_and_unbounded_mutants_are_caught() {
    assert!(holds(FirstFirst).unwrap_err().contains("passed over"));
    assert!(holds(Greedy).unwrap_err().contains("more than the budget"));
    assert!(holds(Timeless).unwrap_err().contains("after the time limit"));
}

#[test]
fn empty_polls_end_the_round() {
    let mut round = Round::default();
    round.begin(Nanos(1), PollLimits::DEFAULT);
    let mut turns = 0;
    while round.turn(Nanos(2), &[Plan::Poll { budget: 64 }]).is_some() {
        round.took(0);
        turns += 1;
    }
    assert_eq!(turns, 256);
}

#[test]
fn zero_budgets_still_poll() {
    let mut round = Round::default();
    for _ in 0..3 {
        round.begin(Nanos(1), PollLimits { weight: 0, budget: 0, time: Nanos::ZERO });
        assert_eq!(
            round.turn(Nanos(1), &[Plan::Poll { budget: 64 }]),
            Some(Turn { queue: 0, budget: 1 })
        );
        round.took(1);
        assert_eq!(round.turn(Nanos(1), &[Plan::Poll { budget: 64 }]), None);
    }
}
