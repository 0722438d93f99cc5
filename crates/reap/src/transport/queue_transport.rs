//! The trait between a queue and its transport: post, commit, poll, arm and sleep.
//!
//! No code above this trait asks which transport a queue has. The default methods are for
//! transports that lack what a method is about: an io_uring has no vector to arm, a ring pair
//! cannot cancel.
//!
//! ```text
//!   queue's thread                    transport
//!   post() …          ──────────►     SQEs (not visible to the device)
//!   commit()          ──────────►     doorbell / io_uring_enter
//!   reap(budget)      ◄──────────     completions
//!   arm(), pending()  ──────────►     unmask, then check once more
//!   sleep(for, time)  ◄──────────     interrupt, wake-up or time-out
//! ```

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use completion::{Mode, Notification, Route, Waiter};
use driver::Completed;
use hw::Lent;
use sync::WaiterId;
use units::Nanos;

use super::Post;

/// One thread's queue on a transport: submission, completion and sleeping.
pub(crate) trait QueueTransport: Notification<Thread = WaiterId> + Send + 'static {
    /// The submission side, while a batch is posted.
    type Posting<'a>: Post;

    /// [`QueueTransport::sleep`] also commits what was posted and cannot miss a completion that
    /// came before it, all in one system call.
    const SUBMITS_IN_SLEEP: bool;

    /// The queue's own thread cancels late requests ([`QueueTransport::cancel_overdue`]); otherwise
    /// the controller's task aborts them.
    const CANCELS_OVERDUE: bool;

    /// When a thread drops its queue with commands in flight, other threads that share the hardware
    /// queue reap them. Otherwise the queue is handed to a task that does.
    const REAPED_BY_OTHERS: bool;

    /// Whether there is a poll queue next to the interrupt queue, so that
    /// [`QueueTransport::set_route`] has an effect.
    fn has_poll_queue(&self) -> bool;

    /// Selects the queue that reads and writes are posted to from now on.
    fn set_route(&mut self, route: Route);

    /// Commands in flight on the poll queue. No interrupt will announce their completion, so the
    /// thread must not sleep without a time-out.
    fn polled_in_flight(&self) -> u32;

    /// How many more commands may be posted now, with `posted` of this queue in flight or not yet
    /// reaped.
    fn room(&self, posted: u32) -> u32;

    /// The submission side. Its `commit` announces what was posted, unless
    /// [`QueueTransport::defer_commit`] leaves that to the transport's.
    fn posting(&mut self) -> Self::Posting<'_>;

    /// The commands posted just now were not announced; a later [`QueueTransport::commit`] does
    /// that.
    fn defer_commit(&mut self) {}

    /// Announces every posted command that was not announced yet.
    fn commit(&mut self);

    /// Whether [`QueueTransport::reap`] may find a completion. No system call.
    fn pending(&self) -> bool;

    /// Polls for at most `budget` completions and passes them to `sink`, together with those that
    /// other threads reaped for this queue.
    fn reap(&mut self, budget: u32, sink: impl FnMut(&[Completed])) -> Polled;

    /// Whether one system call can sleep a nap and go on to the first completion if the nap found
    /// none ([`SleepFor::NapThenFirst`]; io_uring's `min_wait`).
    fn can_extend_nap(&self) -> bool {
        false
    }

    /// Whether [`QueueTransport::sleep`] can wait for more than one completion.
    fn counts_completions(&self) -> bool {
        false
    }

    /// Blocks for at most `timeout`, or until the queue is woken. True: completions ended the
    /// sleep.
    fn sleep(&mut self, sleep: SleepFor, timeout: Option<Nanos>) -> bool;

    /// Makes completions signal an eventfd, which [`QueueTransport::watch`] adds to the thread's
    /// poller.
    fn notify_by_eventfd(&mut self) {}

    /// Called before a sleep: adds the notification to the thread's poller if the plan is to sleep
    /// on it, or removes it.
    fn watch(&mut self, sleeps: bool);

    /// Whether arming found a completion. Reported once.
    fn found_when_armed(&mut self) -> bool {
        false
    }

    /// Wakes another thread that shares the hardware queue.
    fn notify(&self, _: WaiterId) {}

    /// Whether a notification shared by several queues was for this one (posted interrupts).
    fn was_notified(&self) -> bool {
        false
    }

    /// When the oldest message that no one has collected was sent, where the transport knows
    /// (embedded controllers). For the wake-up histogram.
    fn message_time(&self) -> Option<Nanos> {
        None
    }

    /// Whether another queue's eventfd is signalled for this one's completions.
    fn is_notified_elsewhere(&self) -> bool {
        false
    }

    /// The queue switches to `mode`. `Waiter` does the polling and sleeping; the transport does the
    /// rest (vectors, drain thread, second queue pair).
    fn adopt(&mut self, _: Mode, _: &mut Waiter) {}

    /// Where a drain thread reaps for this queue: whether the queue's own thread reaps as well.
    fn set_reaps_itself(&mut self, _: bool) {}

    /// Called when [`QueueTransport::room`] ran out with `posted` of this queue in flight: joins
    /// the wait list for a tag. True: another thread may free one and then wakes this one; the
    /// caller must try once more, because a tag may have been freed before it joined.
    fn wait_for_tag(&mut self, _posted: u32) -> bool {
        false
    }

    /// Leaves the wait list for tags.
    fn stop_waiting(&mut self) {}

    /// The queue is closed.
    fn close(&mut self) {}

    /// Registers the buffer's memory before a request names it, so that the first request does not
    /// pay for it.
    fn prepare(&mut self, _: &Lent) {}

    /// Cancels every command that was posted at least `timeout` before `now`, once each. Returns
    /// how many, and when the next one becomes late.
    fn cancel_overdue(&mut self, _now: Nanos, _timeout: Nanos) -> (u32, Nanos) {
        (0, Nanos::MAX)
    }

    /// Whether only the thread that made the queue may ever use it (`IORING_SETUP_SINGLE_ISSUER`).
    fn is_bound_to_thread(&self) -> bool {
        false
    }
}

/// Keys of a queue's poller: its wake-up eventfd, and its notification.
pub(crate) const KEY_WAKE: u64 = 0;
pub(crate) const KEY_NOTIFICATION: u64 = 1;

/// What ends a sleep, apart from the sleep's time-out and the queue's wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SleepFor {
    /// This many completions; never 0.
    Completions(u32),
    /// This many completions, not counted as notifications: a nap. 0: only the time-out ends it.
    Nap(u32),
    /// A nap of this length; if it finds nothing, sleep on until the first completion.
    NapThenFirst(Nanos, u32),
}

/// The result of one poll of the completion queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Polled {
    pub found: u32,
    /// Completions that other threads reaped for this queue.
    pub passed: u32,
    /// Another thread holds the completion queue; it polls once more before it lets go, so no
    /// completion is missed.
    pub busy: bool,
    pub budget_used_up: bool,
    /// At least one more completion is known to wait.
    pub more: bool,
}

/// Counters of a queue's transport, written by its thread alone and read by any.
#[derive(Debug, Default)]
pub(crate) struct TransportCounts {
    /// Completed commands.
    pub reaped: Count,
    /// System calls that submitted; polls that found something; sleeps that completions ended.
    pub submits: Count,
    pub takes: Count,
    pub notified: Count,
    pub system_calls: Count,
}

/// A counter with one writer at a time: a plain load and store, no locked instruction.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds without `lock xadd`: only the owning thread writes. Wraps, so that a writer can
    /// subtract by adding the two's complement.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.get().wrapping_add(n), Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
