//! What a queue's thread needs of a transport. Nothing above it asks which transport it is.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use completion::Route;
use driver::Completed;
use hw::{EventFd, Lent};
use units::Nanos;

use super::Post;

/// The submission and the completion side of one thread's queue on a transport, and a way to sleep on it.
pub(crate) trait QueueTransport: Post + Send + 'static {
    /// Whether [`QueueTransport::sleep`] announces what was posted, in the system call that it makes anyway.
    const SUBMITS_IN_SLEEP: bool;

    /// Whether there is a poll queue besides the one that notifies, so that [`QueueTransport::set_route`] means something.
    fn has_poll_queue(&self) -> bool;

    /// Which of the two reads and writes go to from now on.
    fn set_route(&mut self, route: Route);

    /// Commands on the poll queue that are not reaped yet: no notification will tell of them.
    fn polled_in_flight(&self) -> u32;

    /// Whether reaping may find something, without a system call.
    fn pending(&self) -> bool;

    /// Takes at most `budget` completions, and gives each to `sink`.
    fn reap(&mut self, budget: u32, sink: impl FnMut(&Completed)) -> Polled;

    /// Whether the system can extend a nap that has found nothing until the first completion ([`SleepFor::NapThenFirst`]).
    fn can_extend_nap(&self) -> bool;

    /// Whether a sleep can be for several completions.
    fn counts_completions(&self) -> bool;

    /// Blocks, for `timeout` at most, or until the queue's wake-up comes. Whether completions ended it.
    fn sleep(&mut self, sleep: SleepFor, timeout: Option<Nanos>) -> bool;

    /// From now on completions signal [`QueueTransport::notification`].
    fn notify_by_eventfd(&mut self);

    /// Has it register the memory of a buffer before a request names it.
    fn prepare(&mut self, lent: &Lent);

    /// Cancels what was posted `timeout` or longer before `now`, once each, where that can be. How many commands those are, and when the next
    /// may be late.
    fn cancel_late(&mut self, now: Nanos, timeout: Nanos) -> (u32, Nanos);

    /// Whether the thread that made it is the only one that may ever use it.
    fn is_bound_to_thread(&self) -> bool;

    /// What is signalled for completions, for a thread that sleeps on several queues, or in a loop of its own.
    fn notification(&self) -> Option<&EventFd>;
}

/// What ends a sleep besides its time-out and the queue's wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SleepFor {
    /// This many completions; never 0.
    Completions(u32),
    /// This many, without their notification having a part in it: a nap (0: only the time-out ends it).
    Nap(u32),
    /// A nap of this length, which goes on until the first completion if it has brought nothing.
    NapThenFirst(Nanos, u32),
}

/// What one poll of the completion queue came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Polled {
    pub found: u32,
    pub budget_used_up: bool,
    /// An entry is known to be left.
    pub more: bool,
}

/// What the transport of a queue has counted: written by its thread alone, read by any.
#[derive(Debug, Default)]
pub(crate) struct TransportCounts {
    /// Commands that have ended.
    pub reaped: Count,
    /// Calls that submitted, polls that found something, and sleeps that completions ended.
    pub submits: Count,
    pub takes: Count,
    pub notified: Count,
    pub system_calls: Count,
}

/// A count with one writer.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Plain addition: there is one writer.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.get() + n, Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
