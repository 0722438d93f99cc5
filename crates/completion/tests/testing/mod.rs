//! The contract of [`Policy`] as executable checks, for custom and built-in policies alike. Each
//! [`Invariant`] is one rule; [`keeps_all`] checks all of them on random cases.
//!
//! ```
//! use completion::testing::keeps_all;
//! use completion::{Nanos, Plan, Policy, Seen, WEIGHT};
//!
//! /// `interrupt`, written as a custom policy.
//! #[derive(Debug)]
//! struct Sleeps;
//!
//! impl Policy for Sleeps {
//!     fn next(&mut self, _now: Nanos, seen: &Seen) -> Plan {
//!         match (seen.pending || seen.woke.is_some()) && !seen.lock_busy {
//!             true => Plan::Poll { budget: WEIGHT },
//!             false if seen.in_flight == 0 => Plan::Idle,
//!             false => Plan::sleep(Nanos::MAX),
//!         }
//!     }
//! }
//!
//! keeps_all(|| Box::new(Sleeps)).unwrap();
//! ```
//!
//! The cases are pseudo-random and the same in every run. A violation is reported with a minimised
//! case.

mod script;
mod world;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Batch, Done, Nanos, Plan, Policy, Route, Seen, WEIGHT};
pub(crate) use script::{Event, events};
use script::{Told, smallest};

/// Longest wait with the notification masked, by [`Policy`]'s contract.
const LONGEST: Nanos = Nanos::from_secs(1);

/// Random cases per rule.
const CASES: u64 = 400;

/// A rule of [`Policy`]'s contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Invariant {
    /// No method panics.
    DoesNotPanic,
    /// The same calls return the same plans.
    RepeatsItself,
    /// If an entry is known to be posted the plan is to poll, unless another thread holds the lock.
    Looks,
    /// The plan is to poll only if an entry may be posted.
    LooksForAReason,
    /// A poll is for 1 to [`WEIGHT`] entries.
    BoundedLooks,
    /// With commands in flight the plan is not `Idle`, and `Sleep` waits for at most their number.
    GoesOn,
    /// Each wait ends after `now`, and one with the notification masked within a second.
    WaitsEnd,
    /// A thread that leaves the library with commands in flight leaves the queue armed, or naps
    /// until it is back.
    LeavesArmed,
    /// With a simulated queue, device and thread, each completion is found in a bounded number of
    /// steps: no wake-up is lost.
    FindsEverything,
    /// The same, with the policy replaced while commands are in flight.
    SurvivesSwitches,
    /// On the same queue, an entry posted while the thread waits is found within a second.
    BoundedLateness,
}

/// A violated rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The rule.
    pub law: Invariant,
    /// What the policy did.
    pub what: String,
    /// The minimised sequence of its inputs.
    pub case: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Broken { law, what, case } = self;
        write!(f, "{law}: {what}; the smallest case: {case}")
    }
}

impl std::error::Error for Broken {}

impl Invariant {
    /// Every rule.
    pub const ALL: [Invariant; 11] = [
        Invariant::DoesNotPanic,
        Invariant::RepeatsItself,
        Invariant::Looks,
        Invariant::LooksForAReason,
        Invariant::BoundedLooks,
        Invariant::GoesOn,
        Invariant::WaitsEnd,
        Invariant::LeavesArmed,
        Invariant::FindsEverything,
        Invariant::SurvivesSwitches,
        Invariant::BoundedLateness,
    ];
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Invariant::DoesNotPanic => "it does not panic",
            Invariant::RepeatsItself => "it repeats itself",
            Invariant::Looks => "it looks at what is known to be there",
            Invariant::LooksForAReason => "it looks for a reason",
            Invariant::BoundedLooks => "its looks are bounded",
            Invariant::GoesOn => "it goes on",
            Invariant::WaitsEnd => "its waits end",
            Invariant::LeavesArmed => "it leaves a queue armed, or says when it is back",
            Invariant::FindsEverything => "everything is found",
            Invariant::SurvivesSwitches => "everything is found when policies are switched",
            Invariant::BoundedLateness => "nothing waits for more than a second",
        })
    }
}

/// Checks a policy against every rule. `make` creates it, as the closure given to
/// [`crate::Mode::register`] does.
///
/// # Errors
/// The first rule that it violates, with a minimised case.
pub fn keeps_all(make: impl Fn() -> Box<dyn Policy>) -> Result<(), Broken> {
    Invariant::ALL.into_iter().try_for_each(|law| keeps(law, &make))
}

/// Checks a policy against one rule.
///
/// # Errors
/// It violates the rule; with a minimised case.
pub fn keeps(law: Invariant, make: impl Fn() -> Box<dyn Policy>) -> Result<(), Broken> {
    tried(law, &make)
}

/// A violation; `None` if there is none.
type Wrong = Option<String>;

/// Checks the policies that `make` creates against one rule.
pub(crate) fn tried<S: Policy>(law: Invariant, make: &impl Fn() -> S) -> Result<(), Broken> {
    match law {
        Invariant::FindsEverything => {
            in_the_world(law, |case| world::run(case, make, |_, policy| *policy = make(), false))
        }
        Invariant::BoundedLateness => {
            in_the_world(law, |case| world::run(case, make, |_, _| (), true))
        }
        Invariant::SurvivesSwitches => {
            in_the_world(law, |case| world::run(case, make, |_, policy| *policy = make(), false))
        }
        _ => in_scripts(law, |case| breach(law, make, case)),
    }
}

fn in_the_world(
    law: Invariant,
    fault: impl Fn(&[world::Submission]) -> Wrong,
) -> Result<(), Broken> {
    // Only this rule is about replaced policies.
    let switches = law == Invariant::SurvivesSwitches;
    (0..CASES).try_for_each(|seed| judged(law, world::submissions(seed, switches), &fault))
}

fn in_scripts(law: Invariant, fault: impl Fn(&[Event]) -> Wrong) -> Result<(), Broken> {
    (0..CASES).try_for_each(|seed| judged(law, events(seed), &fault))
}

fn judged<T: Clone + fmt::Debug>(
    law: Invariant,
    case: Vec<T>,
    fault: impl Fn(&[T]) -> Wrong,
) -> Result<(), Broken> {
    let fault = |case: &[T]| caught(|| fault(case));
    match fault(&case) {
        None => Ok(()),
        Some(what) => {
            let (case, what) = smallest(case, what, fault);
            Err(Broken { law, what, case: format!("{case:?}") })
        }
    }
}

/// A panic violates any rule.
fn caught(call: impl FnOnce() -> Wrong) -> Wrong {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| {
        let said = payload
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| payload.downcast_ref::<String>().cloned());
        Some(format!("it panics: {}", said.unwrap_or_default()))
    })
}

/// The violation of a rule by a policy with these inputs.
fn breach<S: Policy>(law: Invariant, make: &impl Fn() -> S, script: &[Event]) -> Wrong {
    match law {
        Invariant::RepeatsItself => {
            let answers = || {
                let mut all = Vec::new();
                ask(&mut make(), script, |_, _, plan| {
                    all.push(plan);
                    None
                });
                all
            };
            let differs = answers().into_iter().zip(answers()).find(|(one, other)| one != other);
            differs.map(|(one, other)| format!("{one:?} the first time, {other:?} the second"))
        }
        _ => ask(&mut make(), script, |now, seen, plan| answer(law, now, seen, plan)),
    }
}

/// Passes the events to a policy, and each plan with its input to `law`.
pub(crate) fn ask(
    policy: &mut impl Policy,
    script: &[Event],
    mut law: impl FnMut(Nanos, &Seen, Plan) -> Wrong,
) -> Wrong {
    let mut now = Nanos(1);
    script.iter().find_map(|event| {
        now += Nanos(event.pause);
        match &event.told {
            Told::Submitted(batch) => {
                policy.route(now, batch);
                policy.submitted(now, batch);
                None
            }
            Told::Completed(done) => {
                policy.completed(&[*done]);
                None
            }
            Told::Asked(seen) => {
                let plan = policy.next(now, seen);
                law(now, seen, plan)
            }
        }
    })
}

/// How one plan violates a rule.
fn answer(law: Invariant, now: Nanos, seen: &Seen, plan: Plan) -> Wrong {
    if let (Invariant::BoundedLooks, Plan::Poll { budget }) = (law, plan) {
        return (!(1..=WEIGHT).contains(&budget)).then(|| format!("a look with budget {budget}"));
    }
    let known = (seen.pending || seen.woke.is_some()) && !seen.lock_busy;
    let out = seen.in_flight > 0;
    match (law, plan) {
        (Invariant::Looks, Plan::Poll { .. }) => None,
        (Invariant::Looks, _) if known => {
            Some(format!("something is known to be there, and it answers {plan:?}"))
        }
        (Invariant::LooksForAReason, Plan::Poll { .. }) => {
            let reason = seen.pending || seen.woke.is_some() || seen.budget_used_up;
            (!reason).then(|| "it looks though nothing is known to be there".to_owned())
        }
        (Invariant::GoesOn, Plan::Idle) if out => {
            Some("it rests with commands in flight".to_owned())
        }
        (Invariant::GoesOn, Plan::Spin { .. } | Plan::Nap { .. } | Plan::Sleep { .. })
            if !out && seen.goes_on_at.is_none() =>
        {
            Some(format!("nothing is in flight, and it answers {plan:?}"))
        }
        (Invariant::GoesOn, Plan::Sleep { at_least, .. })
            if out && !(1..=seen.in_flight).contains(&at_least) =>
        {
            Some(format!("it sleeps for {at_least} completions of {}", seen.in_flight))
        }
        (
            Invariant::WaitsEnd,
            Plan::Spin { until } | Plan::Nap { until, .. } | Plan::Sleep { until, .. },
        ) if until <= now => Some(format!("it waits until {until}, and {now} has come")),
        (Invariant::WaitsEnd, Plan::Spin { until } | Plan::Nap { until, .. })
            if until > now + LONGEST =>
        {
            Some(format!("it waits unarmed from {now} until {until}"))
        }
        (Invariant::LeavesArmed, Plan::Spin { .. } | Plan::Idle) if seen.leaving && out => {
            Some(format!("it leaves with {plan:?}"))
        }
        _ => None,
    }
}

impl Policy for Box<dyn Policy> {
    fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        (**self).next(now, seen)
    }
    fn submitted(&mut self, now: Nanos, batch: &Batch) {
        (**self).submitted(now, batch);
    }
    fn completed(&mut self, done: &[Done]) {
        (**self).completed(done);
    }
    fn route(&self, now: Nanos, batch: &Batch) -> Route {
        (**self).route(now, batch)
    }
}

#[cfg(test)]
mod tests;
