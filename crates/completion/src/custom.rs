//! A policy that a program brings: the trait, and its contract.

use std::any::Any;
use std::fmt;

use units::Nanos;

use crate::{Batch, Check, Done, Plan, Route, Seen};

/// When to look at one queue: a rule of the program's own. [`crate::Mode::register`] gives it a name; from then on it is a mode like any other.
///
/// Each queue has a policy of its own, and asks it from one thread at a time. `docs/policy.md` has a worked example, and
/// [`crate::testing`] the laws as functions.
///
/// # Contract
///
/// | law | the policy | what the queue does otherwise |
/// | --- | --- | --- |
/// | it looks | answers `Look` where [`Seen::pending`] or [`Seen::woke`] is set and [`Seen::lock_busy`] is not | looks all the same, and takes the policy away after 16 such refusals in a row |
/// | it goes on | answers `Rest` if nothing is in flight, and else anything but that | rests; takes the policy away |
/// | it does not panic | in any method | takes the policy away |
/// | it looks for a reason | answers `Look` where something is known to be there, or the last look used its budget up | looks in vain, unless nothing is in flight |
/// | its budget is bounded | asks for 1 to [`crate::WEIGHT`] entries | looks for the nearest of these |
/// | its waits end | names an instant after `now`, and for `Spin` and `Nap` at most a second after | waits for 20 µs, or for a second; takes the policy away after 8 naps in a row that are cut so |
/// | it leaves armed | answers anything but `Spin` where [`Seen::leaving`] is set; after `Nap` the loop is back at its instant | sleeps |
/// | it counts | asks `Sleep` for 1 to [`Seen::in_flight`] completions | waits for the nearest of these |
/// | it repeats itself | answers the same to the same calls | nothing: comparisons and replays mean nothing |
///
/// A queue whose policy is taken away goes on in `interrupt`; [`crate::Policy::dismissed`] says why. Nothing is lost, and no other queue
/// is touched. One thing cannot be mended: a method that does not return holds its thread for ever. Methods run where data pass, so they
/// should allocate nothing and call nothing that blocks.
///
/// Instants are of the executor's clock, which the simulator's is as well: a policy reads no clock of its own.
#[allow(unused_variables)] // The names that the defaults do without are for those who read them.
pub trait CustomPolicy: Cloned + fmt::Debug + Send {
    /// What to do next, given what the last step has seen. With commands in flight each answer finds them in finite time, or sleeps.
    fn next(&mut self, now: Nanos, seen: &Seen) -> Plan;

    /// A batch has been committed. The answer is heeded where [`crate::Facts::checks`] says so.
    fn submitted(&mut self, now: Nanos, batch: &Batch) -> Check {
        Check::No
    }

    /// These commands were found by one look. Called where [`crate::Facts::records`] says so.
    fn completed(&mut self, done: &[Done]) {}

    /// Where a batch goes that is about to be committed, on a hardware queue with a lane that sends no messages.
    fn route(&self, now: Nanos, batch: &Batch) -> Route {
        Route::Notify
    }

    /// For how many entries the device may hold messages back; 0 and 1: none. Asked where [`crate::Facts::holds`] says so, and
    /// [`Seen::held`] tells what came of it.
    fn holds(&self) -> u16 {
        0
    }

    /// Called before anything else where the queue was in this mode before: `earlier` is the policy that it had then, as it was left.
    /// What that one has learnt still holds; of what is in flight it knows nothing any more.
    fn inherit(&mut self, earlier: &dyn Any) {}
}

/// How a policy broke its contract, so that its queue goes on without it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Breach {
    /// A method of it panicked.
    #[error("it panicked: {0}")]
    Panicked(String),
    /// It was told again and again that there is something to take, and did not look.
    #[error("it did not look, though it was told that there is something to take")]
    NeverLooks,
    /// It napped without end, again and again: nothing would have told it of an entry.
    #[error("it napped without end, with its notification masked")]
    NapsForEver,
    /// It rested while commands were in flight.
    #[error("it rested with commands in flight")]
    Rests,
}

/// What any policy that is `Clone` has: nobody implements it by hand.
pub trait Cloned {
    /// A copy of it.
    fn cloned(&self) -> Box<dyn CustomPolicy>;

    /// What [`CustomPolicy::inherit`] is given.
    fn as_any(&self) -> &dyn Any;
}

impl<P: CustomPolicy + Clone + 'static> Cloned for P {
    fn cloned(&self) -> Box<dyn CustomPolicy> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
