//! The laws that every policy keeps, to be called on any: the built-in ones are tried by the same
//! functions.
//!
//! ```
//! use completion::testing::keeps_all;
//! use completion::{Plan, Policy, Seen, WEIGHT};
//! use units::Nanos;
//!
//! /// `interrupt`, written as a policy of one's own.
//! #[derive(Debug)]
//! struct Sleeps;
//!
//! impl Policy for Sleeps {
//!     fn next(&mut self, _now: Nanos, seen: &Seen) -> Plan {
//!         match (seen.pending || seen.woke.is_some()) && !seen.lock_busy {
//!             true => Plan::Poll { budget: WEIGHT },
//!             false if seen.in_flight == 0 => Plan::Rest,
//!             false => Plan::sleep(Nanos::MAX),
//!         }
//!     }
//! }
//!
//! keeps_all(|| Box::new(Sleeps)).unwrap();
//! ```
//!
//! Cases are random, the same in every run, and a law's breach is told with the smallest case that
//! shows it.

mod script;
mod world;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use units::Nanos;

use crate::{Batch, Done, Plan, Policy, Route, Seen, WEIGHT};
pub(crate) use script::{Event, events};
use script::{Told, smallest};

/// Longest wait with the notification masked: what [`Policy`]'s contract says.
const LONGEST: Nanos = Nanos::from_secs(1);

/// Random cases of each law.
const CASES: u64 = 400;

/// A law of [`Policy`]'s contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Law {
    /// No method panics.
    DoesNotPanic,
    /// The same calls have the same answers.
    RepeatsItself,
    /// What is known to be there is looked at, unless another thread holds the lock.
    Looks,
    /// Without a reason there is no look.
    LooksForAReason,
    /// A look is for 1 to [`WEIGHT`] entries.
    BoundedLooks,
    /// With commands in flight it does not rest, and a sleep is for no more than are out.
    GoesOn,
    /// Each wait ends after now, and one without notification within a second.
    WaitsEnd,
    /// A thread that leaves with commands in flight leaves an armed queue, or is back at the end of
    /// a nap.
    LeavesArmed,
    /// On a queue, a device and a thread: everything is found, in a bounded number of steps. No
    /// wake-up is lost.
    FindsEverything,
    /// The same, where policies are replaced with commands in flight.
    SurvivesSwitches,
    /// On the same queue, what was posted while the thread waits is found within a second.
    BoundedLateness,
}

/// A law that a policy does not keep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{law}: {what}; the smallest case: {case}")]
pub struct Broken {
    /// The law.
    pub law: Law,
    /// What the policy did.
    pub what: String,
    /// What it was told until then.
    pub case: String,
}

impl Law {
    /// Every law.
    pub const ALL: [Law; 11] = [
        Law::DoesNotPanic,
        Law::RepeatsItself,
        Law::Looks,
        Law::LooksForAReason,
        Law::BoundedLooks,
        Law::GoesOn,
        Law::WaitsEnd,
        Law::LeavesArmed,
        Law::FindsEverything,
        Law::SurvivesSwitches,
        Law::BoundedLateness,
    ];
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Law::DoesNotPanic => "it does not panic",
            Law::RepeatsItself => "it repeats itself",
            Law::Looks => "it looks at what is known to be there",
            Law::LooksForAReason => "it looks for a reason",
            Law::BoundedLooks => "its looks are bounded",
            Law::GoesOn => "it goes on",
            Law::WaitsEnd => "its waits end",
            Law::LeavesArmed => "it leaves a queue armed, or says when it is back",
            Law::FindsEverything => "everything is found",
            Law::SurvivesSwitches => "everything is found when policies are switched",
            Law::BoundedLateness => "nothing waits for more than a second",
        })
    }
}

/// Tries a policy by every law. `make` makes it as the factory does that is registered.
///
/// # Errors
/// The first law that it breaks, with the smallest case that shows it.
pub fn keeps_all(make: impl Fn() -> Box<dyn Policy>) -> Result<(), Broken> {
    Law::ALL.into_iter().try_for_each(|law| keeps(law, &make))
}

/// Tries a policy by one law.
///
/// # Errors
/// It breaks the law; with the smallest case that shows it.
pub fn keeps(law: Law, make: impl Fn() -> Box<dyn Policy>) -> Result<(), Broken> {
    tried(law, &make)
}

/// What a policy did that it must not; `None`: nothing.
type Wrong = Option<String>;

/// Tries what `make` makes by one law.
pub(crate) fn tried<S: Policy>(law: Law, make: &impl Fn() -> S) -> Result<(), Broken> {
    match law {
        Law::FindsEverything => {
            in_the_world(law, |case| world::run(case, make, |_, policy| *policy = make(), false))
        }
        Law::BoundedLateness => in_the_world(law, |case| world::run(case, make, |_, _| (), true)),
        Law::SurvivesSwitches => {
            in_the_world(law, |case| world::run(case, make, |_, policy| *policy = make(), false))
        }
        _ => in_scripts(law, |case| breach(law, make, case)),
    }
}

fn in_the_world(law: Law, fault: impl Fn(&[world::Submission]) -> Wrong) -> Result<(), Broken> {
    // A law about one policy is none about switches.
    let switches = law == Law::SurvivesSwitches;
    (0..CASES).try_for_each(|seed| judged(law, world::submissions(seed, switches), &fault))
}

fn in_scripts(law: Law, fault: impl Fn(&[Event]) -> Wrong) -> Result<(), Broken> {
    (0..CASES).try_for_each(|seed| judged(law, events(seed), &fault))
}

fn judged<T: Clone + fmt::Debug>(
    law: Law,
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

/// A panic is a breach of whatever law was tried.
fn caught(call: impl FnOnce() -> Wrong) -> Wrong {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| {
        let said = payload
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| payload.downcast_ref::<String>().cloned());
        Some(format!("it panics: {}", said.unwrap_or_default()))
    })
}

/// Whether a script shows that a law is broken.
fn breach<S: Policy>(law: Law, make: &impl Fn() -> S, script: &[Event]) -> Wrong {
    match law {
        Law::RepeatsItself => {
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

/// Tells a policy of the events and hands each answer, with the question, to `law`.
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

/// What of a law one answer breaks.
fn answer(law: Law, now: Nanos, seen: &Seen, plan: Plan) -> Wrong {
    if let (Law::BoundedLooks, Plan::Poll { budget }) = (law, plan) {
        return (!(1..=WEIGHT).contains(&budget)).then(|| format!("a look with budget {budget}"));
    }
    let known = (seen.pending || seen.woke.is_some()) && !seen.lock_busy;
    let out = seen.in_flight > 0;
    match (law, plan) {
        (Law::Looks, Plan::Poll { .. }) => None,
        (Law::Looks, _) if known => {
            Some(format!("something is known to be there, and it answers {plan:?}"))
        }
        (Law::LooksForAReason, Plan::Poll { .. }) => {
            let reason = seen.pending || seen.woke.is_some() || seen.budget_used_up;
            (!reason).then(|| "it looks though nothing is known to be there".to_owned())
        }
        (Law::GoesOn, Plan::Rest) if out => Some("it rests with commands in flight".to_owned()),
        (Law::GoesOn, Plan::Spin { .. } | Plan::Nap { .. } | Plan::Sleep { .. })
            if !out && seen.goes_on_at.is_none() =>
        {
            Some(format!("nothing is in flight, and it answers {plan:?}"))
        }
        (Law::GoesOn, Plan::Sleep { at_least, .. })
            if out && !(1..=seen.in_flight).contains(&at_least) =>
        {
            Some(format!("it sleeps for {at_least} completions of {}", seen.in_flight))
        }
        (
            Law::WaitsEnd,
            Plan::Spin { until } | Plan::Nap { until, .. } | Plan::Sleep { until, .. },
        ) if until <= now => Some(format!("it waits until {until}, and {now} has come")),
        (Law::WaitsEnd, Plan::Spin { until } | Plan::Nap { until, .. })
            if until > now + LONGEST =>
        {
            Some(format!("it waits unarmed from {now} until {until}"))
        }
        (Law::LeavesArmed, Plan::Spin { .. } | Plan::Rest) if seen.leaving && out => {
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
