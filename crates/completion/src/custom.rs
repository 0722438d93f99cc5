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
/// | the policy | the queue does otherwise |
/// | --- | --- |
/// | answers `Look` where [`Seen::pending`] or [`Seen::woke`] is set and [`Seen::lock_busy`] is not | polls all the same |
/// | answers `Rest` if nothing is in flight, and else anything but that | rests; sleeps until the next notification |
/// | answers `Look` where something is known to be there, or the last poll used its budget up | polls without a result, unless nothing is in flight |
/// | asks for 1 to [`crate::WEIGHT`] entries | takes the nearest of these |
/// | names an instant after `now`, and for `Spin` and `Nap` at most a second after | waits for 20 µs, or for a second |
/// | answers anything but `Spin` where [`Seen::leaving`] is set; after `Nap` the loop is back at its instant | sleeps |
/// | asks `Sleep` for 1 to [`Seen::in_flight`] completions | waits for the nearest of these |
/// | answers the same to the same calls | nothing: comparisons and replays mean nothing |
///
/// So no answer loses a completion. A panic is the calling thread's, and a method that does not return holds that thread. Methods run
/// where data pass, so they should allocate nothing and call nothing that blocks.
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
