//! What a queue's thread needs of a transport. Nothing above it asks which transport it is.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use completion::{Mode, Notification, Route, Waiter};
use driver::Completed;
use hw::Lent;
use sync::WaiterId;
use units::Nanos;

use super::Post;

/// The submission and the completion side of one thread's queue on a transport, and a way to sleep on it.
pub(crate) trait QueueTransport: Notification<Thread = WaiterId> + Send + 'static {
    /// The submission side, while a batch is posted.
    type Posting<'a>: Post;

    /// Whether [`QueueTransport::sleep`] announces what was posted, and misses nothing that came before it, in one system call.
    const SUBMITS_IN_SLEEP: bool;

    /// Whether the queue's thread cancels its late requests ([`QueueTransport::cancel_late`]); else the controller's task does.
    const CANCELS_LATE: bool;

    /// Whether other threads reap what is in flight on a queue whose thread is gone, each for itself; else the queue goes to one that does.
    const REAPED_BY_OTHERS: bool;

    /// Whether there is a poll queue besides the one that notifies, so that [`QueueTransport::set_route`] means something.
    fn has_poll_queue(&self) -> bool;

    /// Which of the two reads and writes go to from now on.
    fn set_route(&mut self, route: Route);

    /// Commands on the poll queue that are not reaped yet: no notification will tell of them.
    fn polled_in_flight(&self) -> u32;

    /// How many more parts may be posted now, with `posted` of this queue in flight or not yet reaped.
    fn room(&self, posted: u32) -> u32;

    /// The submission side. Its commit announces what is posted, or, after [`QueueTransport::defer_commit`], that of the transport does.
    fn posting(&mut self) -> Self::Posting<'_>;

    /// What was posted just now was not announced.
    fn defer_commit(&mut self) {}

    /// Announces what was posted and is not announced yet.
    fn commit(&mut self);

    /// Whether reaping may find something, without a system call.
    fn pending(&self) -> bool;

    /// Takes at most `budget` completions, and gives them to `sink`; and those that other threads have taken for this queue.
    fn reap(&mut self, budget: u32, sink: impl FnMut(&[Completed])) -> Polled;

    /// Whether the system can extend a nap that has found nothing until the first completion ([`SleepFor::NapThenFirst`]).
    fn can_extend_nap(&self) -> bool {
        false
    }

    /// Whether a sleep can be for several completions.
    fn counts_completions(&self) -> bool {
        false
    }

    /// Blocks, for `timeout` at most, or until the queue's wake-up comes. Whether completions ended it.
    fn sleep(&mut self, sleep: SleepFor, timeout: Option<Nanos>) -> bool;

    /// From now on completions signal an eventfd, which [`QueueTransport::watch`] has the thread's poller report.
    fn notify_by_eventfd(&mut self) {}

    /// Before a sleep: whether the thread's poller is to report the notification, because the plan is to sleep on it.
    fn watch(&mut self, sleeps: bool);

    /// Whether arming has found something. Reported once.
    fn found_when_armed(&mut self) -> bool {
        false
    }

    /// Wakes another thread of the same hardware queue.
    fn tell(&self, _: WaiterId) {}

    /// Whether a notification that stands for several queues was for this one.
    fn was_notified(&self) -> bool {
        false
    }

    /// When the first message was sent that nothing has asked after yet, where that is known.
    fn message_time(&self) -> Option<Nanos> {
        None
    }

    /// Whether another queue's notification stands for this one's.
    fn is_notified_elsewhere(&self) -> bool {
        false
    }

    /// A mode is adopted, whose polling and sleeping `waiter` does: the rest of it is carried out.
    fn adopt(&mut self, _: Mode, _: &mut Waiter) {}

    /// Where another thread reaps for this one: whether this one does so all the same.
    fn set_reaps_itself(&mut self, _: bool) {}

    /// There was no room for a part, with `posted` of this queue in flight. Whether another thread may make some, and then wakes this one; the
    /// caller tries once more.
    fn wait_for_tag(&mut self, _posted: u32) -> bool {
        false
    }

    /// Nothing waits for room any more.
    fn stop_waiting(&mut self) {}

    /// The queue's thread needs it no more.
    fn close(&mut self) {}

    /// Has it register the memory of a buffer before a request names it.
    fn prepare(&mut self, _: &Lent) {}

    /// Cancels what was posted `timeout` or longer before `now`, once each, where that can be. How many commands those are, and when the next
    /// may be late.
    fn cancel_late(&mut self, _now: Nanos, _timeout: Nanos) -> (u32, Nanos) {
        (0, Nanos::MAX)
    }

    /// Whether the thread that made it is the only one that may ever use it.
    fn is_bound_to_thread(&self) -> bool {
        false
    }
}

/// Keys of a queue's poller: its wake-up, and its notification.
pub(crate) const KEY_WAKE: u64 = 0;
pub(crate) const KEY_NOTIFICATION: u64 = 1;

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Polled {
    pub found: u32,
    /// Completions that other threads had found.
    pub passed: u32,
    /// Another thread polls, and polls once more when it is done.
    pub busy: bool,
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
