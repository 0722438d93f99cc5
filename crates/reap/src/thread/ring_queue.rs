//! One thread's side of a hardware queue: an NVMe queue pair in shared memory. Several threads may
//! post to it and reap from it. A thread that reaps completions of other threads leaves them in
//! their inboxes.
//!
//! ```text
//!  thread A ─ posting (SQ lock) ─┐                  ┌─ try_reap (CQ lock, only tried) ─ thread A
//!  thread B ─ posting (SQ lock) ─┴─► SQ ► device ► CQ ─┘        │
//!                                doorbell per commit            ├─ A's completions ─► A's request table
//!                                                               └─ B's completions ─► B's inbox, wake B
//!
//!  reap    own inbox first; then the CQ, if its lock is free
//!  sleep   epoll: the queue's wake-up, and the vector if this thread owns the notification
//! ```
//!
//! In `threaded` a drain thread reaps, and this thread reads only its inbox. In `posted` the
//! vector's messages set a bit, and may signal another vector's eventfd ([`PostedMsi`]).

use std::sync::Arc;

use completion::{Mode, Notification, Route, Waiter};
use driver::{Completed, Reaped};
use hw::Poller;
use nvme::Vector;
use sync::WaiterId;
use units::Nanos;

use super::drain_thread;
use super::posted_msi::PostedMsi;
use crate::request::Token;
use crate::shared::hw_queue::HwQueue;
use crate::shared::queue_shared::QueueShared;
use crate::transport::{KEY_NOTIFICATION, Polled, QueueTransport, RingPair, RingPosting, SleepFor};

/// Most completions of one poll, whatever budget a policy names. The buffers of this size are
/// allocated once.
const MAX_BATCH: usize = 256;

/// One thread's side of a hardware queue.
pub(crate) struct RingQueue {
    queue: Arc<HwQueue>,
    shared: Arc<QueueShared>,
    /// Which of the hardware queue's users this is.
    index: u8,
    /// The epoll instance in which the thread sleeps.
    poller: Arc<Poller>,
    events: Vec<u64>,
    /// The vector's eventfd is in the poller.
    watched: bool,
    /// Reads and writes go to the poll queue.
    to_poll_queue: bool,
    /// Commands were posted without a doorbell.
    uncommitted: bool,
    /// Tags of the hardware queue. The inbox has as many places.
    tags: u32,
    /// A drain thread reaps, unless `reaps_itself`.
    drained: bool,
    reaps_itself: bool,
    posted_msi: PostedMsi,
    /// It is in the wait list for tags.
    waits_for_tag: bool,
    /// A poll fills it from the start.
    taken: Box<[Completed; MAX_BATCH]>,
    /// What was taken from the inbox.
    inbox_batch: Vec<Completed>,
}

impl RingQueue {
    /// User `index` of a hardware queue, for a thread that sleeps in `poller`.
    pub(crate) fn new(queue: Arc<HwQueue>, index: u8, poller: Arc<Poller>) -> RingQueue {
        let (shared, tags) = (queue.users[usize::from(index)].clone(), queue.tags());
        let mut ring = RingQueue {
            queue,
            shared,
            index,
            poller,
            events: Vec::with_capacity(8),
            watched: false,
            to_poll_queue: false,
            uncommitted: false,
            tags,
            drained: false,
            reaps_itself: false,
            posted_msi: PostedMsi::default(),
            waits_for_tag: false,
            taken: Box::new([Completed::default(); MAX_BATCH]),
            inbox_batch: Vec::with_capacity(MAX_BATCH),
        };
        // A queue that it shares is watched only while this thread owns the notification
        // (`take_role`).
        ring.watch_vector(!ring.queue.is_shared());
        ring
    }

    /// The hardware queue.
    pub(crate) fn hardware(&self) -> &Arc<HwQueue> {
        &self.queue
    }

    /// The vector that other queues of its thread may post to; `None` if other threads use the
    /// vector too.
    pub(crate) fn own_vector(&self) -> Option<Vector> {
        (!self.queue.has_several_users()).then(|| self.queue.pair.vector())
    }

    /// Sets the vector that is signalled for this queue's messages where they are posted. Returns
    /// whether it could.
    pub(crate) fn share_notification(&mut self, target: Vector) -> bool {
        if self.queue.has_several_users() {
            return false;
        }
        self.posted_msi.set_target(target, &self.queue.pair, &self.poller);
        true
    }

    /// The queue pair of reads and writes.
    #[inline]
    fn data_pair(&self) -> &RingPair {
        match &self.queue.polled {
            Some(polled) if self.to_poll_queue => polled,
            _ => &self.queue.pair,
        }
    }

    /// An equal share of the tags for each queue that has requests, this one included; and all
    /// tags.
    fn share(&self) -> (u32, u32) {
        let others = self
            .queue
            .users
            .iter()
            .enumerate()
            .filter(|&(n, user)| n != usize::from(self.index) && user.open() > 0)
            .count();
        let tags = self.data_pair().tags();
        (tags / (others as u32 + 1), tags)
    }

    /// [`QueueTransport::room`] while some queue waits for a tag. As in blk-mq (`hctx_may_queue`),
    /// each queue that has requests may use an equal share of the tags.
    #[cold]
    fn shared_room(&self, posted: u32) -> u32 {
        let (share, tags) = self.share();
        let free = tags.saturating_sub(self.data_pair().in_flight());
        match share {
            // More queues than tags: those that have waited longest get one each.
            0 if posted == 0 && self.queue.waiters.is_among_first(self.index, free) => 1,
            _ => share.saturating_sub(posted),
        }
    }

    /// Moves completions from the inbox to the start of `taken`. Returns how many.
    #[cold]
    fn take_inbox(&mut self) -> usize {
        // Half of the places: the CQ gets the others, so neither starves.
        self.shared.inbox.take(MAX_BATCH / 2, &mut self.inbox_batch);
        for (place, completed) in self.taken.iter_mut().zip(&self.inbox_batch) {
            *place = *completed;
        }
        let taken = self.inbox_batch.len();
        self.inbox_batch.clear();
        if !self.shared.inbox.is_empty() {
            // The notice that announced the rest was cleared by this poll.
            self.shared.notice();
        }
        taken
    }

    /// Delivers other threads' completions in `taken[from..to]` to their inboxes, and moves the own
    /// ones together. Returns where these end.
    #[inline(never)]
    fn deliver(&mut self, from: usize, to: usize) -> usize {
        let is_mine = |completed: &Completed| Token(completed.token).soft() == self.index;
        // The usual case, even on a shared queue.
        if self.taken[from..to].iter().all(is_mine) {
            return to;
        }
        self.queue.deliver(Some(self.index), &self.taken[from..to]);
        let mut end = from;
        for at in from..to {
            if is_mine(&self.taken[at]) {
                self.taken[end] = self.taken[at];
                end += 1;
            }
        }
        end
    }

    /// Adds the vector's eventfd to the thread's poller, or removes it.
    fn watch_vector(&mut self, wanted: bool) {
        let Some(fd) = self.queue.pair.wait_on().filter(|_| self.watched != wanted) else { return };
        let done =
            if wanted { self.poller.add(fd, KEY_NOTIFICATION) } else { self.poller.remove(fd) };
        match done {
            Ok(()) => self.watched = wanted,
            Err(error) => {
                tracing::error!(%error, wanted, "epoll: a queue's vector cannot be added or removed")
            }
        }
    }
}

impl QueueTransport for RingQueue {
    const SUBMITS_IN_SLEEP: bool = false;
    const CANCELS_OVERDUE: bool = false;
    const REAPED_BY_OTHERS: bool = true;

    type Posting<'a> = RingPosting<'a>;

    #[inline]
    fn room(&self, posted: u32) -> u32 {
        // Each command in flight needs a place in the inbox: another thread may reap it.
        let room = self.tags - posted;
        // One load. Without waiters any queue may use all tags.
        if self.queue.waiters.has_waiters() { room.min(self.shared_room(posted)) } else { room }
    }

    #[inline]
    fn posting(&mut self) -> RingPosting<'_> {
        self.data_pair().posting()
    }

    fn defer_commit(&mut self) {
        self.uncommitted = true;
    }

    #[inline]
    fn commit(&mut self) {
        if std::mem::take(&mut self.uncommitted) {
            self.queue.pairs().for_each(RingPair::commit);
        }
    }

    fn has_poll_queue(&self) -> bool {
        self.queue.polled.is_some()
    }

    fn set_route(&mut self, route: Route) {
        let to_poll_queue = route == Route::Poll;
        if to_poll_queue != self.to_poll_queue {
            // The commit of the next batch rings only the doorbell of its own pair.
            self.commit();
            self.to_poll_queue = to_poll_queue;
        }
    }

    #[inline]
    fn polled_in_flight(&self) -> u32 {
        self.queue.polled.as_ref().map_or(0, RingPair::in_flight)
    }

    #[inline]
    fn pending(&self) -> bool {
        self.queue.pending()
    }

    #[inline]
    fn reap(&mut self, budget: u32, mut sink: impl FnMut(&[Completed])) -> Polled {
        let passed = if self.shared.inbox.is_empty() { 0 } else { self.take_inbox() };
        let places =
            &mut self.taken[passed..(passed + budget as usize).clamp(passed + 1, MAX_BATCH)];
        // The CQ lock is only tried. A thread that holds it delivers this thread's completions too,
        // and checks the CQ again after the release (`sync::PollLock`).
        let reaped = match (&self.queue.polled, self.drained && !self.reaps_itself) {
            (None, false) => self.queue.pair.try_reap(places),
            (Some(second), false) => reap_both(&self.queue.pair, second, places),
            // The drain thread sleeps on the vector, and the poll queue has none.
            (Some(second), true) => second.try_reap(places),
            (None, true) => Some(Reaped::default()),
        };
        let busy = reaped.is_none();
        let Reaped { found, budget_used_up, more, violation } = reaped.unwrap_or_default();
        let mut taken = passed + found as usize;
        if found > 0 && self.queue.is_shared() {
            taken = self.deliver(passed, taken);
            // Even if every completion was this queue's: its tags may be what another queue waits
            // for.
            self.queue.tags_returned();
        }
        if taken > 0 {
            sink(&self.taken[..taken]);
        }
        if let Some(violation) = violation {
            self.queue.reporter.violated(*violation);
        }
        Polled { found, passed: passed as u32, busy, budget_used_up, more }
    }

    fn sleep(&mut self, _: SleepFor, timeout: Option<Nanos>) -> bool {
        self.events.clear();
        if let Err(error) = self.poller.wait(timeout, &mut self.events) {
            tracing::error!(%error, "the thread cannot sleep");
        }
        self.events.contains(&KEY_NOTIFICATION)
    }

    fn watch(&mut self, sleeps: bool) {
        // Without a mask bit (VFIO), "masked" means that the eventfd is not in the epoll set, so
        // that it does not end a nap.
        if !self.queue.pair.is_maskable() {
            self.watch_vector(sleeps);
        }
    }

    fn found_when_armed(&mut self) -> bool {
        self.posted_msi.take_pending()
    }

    fn notify(&self, thread: WaiterId) {
        self.queue.wake_waiter(thread);
    }

    fn was_notified(&self) -> bool {
        self.posted_msi.was_posted(&self.queue.pair)
    }

    fn message_time(&self) -> Option<Nanos> {
        self.queue.pair.take_message_time()
    }

    fn is_notified_elsewhere(&self) -> bool {
        self.posted_msi.has_foreign_target()
    }

    /// Starts or stops the drain thread, and routes messages, as the mode says.
    fn adopt(&mut self, mode: Mode, waiter: &mut Waiter) {
        let drained = mode.facts().drain_thread;
        if drained && !self.drained {
            // Before `acquire`, which makes the queue a shared one.
            let alone = !self.queue.is_shared();
            match drain_thread::acquire(&self.queue) {
                Ok(()) => {
                    (self.drained, waiter.others_look) = (true, true);
                    if alone {
                        // This thread had the vector without the role, which the drain thread takes
                        // now.
                        waiter.owner = false;
                        self.watch_vector(false);
                    }
                    // It may own the role of a queue that it shares, and will not sleep on the
                    // vector again.
                    if let Some(next_owner) = waiter.leave(self) {
                        self.notify(next_owner);
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "no drain thread for the queue: its own thread reaps, as in interrupt")
                }
            }
        } else if !drained && self.drained {
            (self.drained, waiter.others_look) = (false, false);
            self.queue.drain.release();
            // `release` has joined the drain thread if this was its last user, so the vector is
            // free again.
            if !self.queue.is_shared() {
                waiter.owner = true;
                self.watch_vector(true);
            }
        }
        self.posted_msi.adopt(mode, &self.queue.pair, &self.poller);
    }

    fn set_reaps_itself(&mut self, reaps: bool) {
        self.reaps_itself = reaps;
    }

    fn wait_for_tag(&mut self, posted: u32) -> bool {
        // A queue that uses its share gets tags back by its own completions, and must not wait for
        // others'.
        let waits = posted < self.share().0.max(1);
        if waits {
            self.queue.waiters.join(self.index);
            self.waits_for_tag = true;
        } else {
            self.stop_waiting();
        }
        waits
    }

    fn stop_waiting(&mut self) {
        if std::mem::take(&mut self.waits_for_tag) {
            self.queue.waiters.leave(self.index);
            // It may have been first in the list and have taken no tag: then another is first now.
            self.queue.tags_returned();
        }
    }

    fn close(&mut self) {
        self.stop_waiting();
        if std::mem::take(&mut self.drained) {
            self.queue.drain.release();
        }
        self.posted_msi.end(&self.queue.pair);
    }
}

/// The vector, and the role of the one thread of the hardware queue that sleeps on it.
impl Notification for RingQueue {
    type Thread = WaiterId;

    #[inline]
    fn is_shared(&self) -> bool {
        self.queue.is_shared()
    }

    #[inline]
    fn has_own_vector(&self) -> bool {
        self.queue.pair.is_maskable()
    }

    fn is_one_shot(&self) -> bool {
        self.posted_msi.is_on()
    }

    fn arm(&mut self) {
        if !self.posted_msi.begin_round(&self.queue.pair) {
            self.queue.pair.arm();
            self.posted_msi.check_after_arm(&self.queue.pair);
        }
    }

    fn mask(&mut self) {
        // Masking a vector that other queues share would lose their wake-ups.
        if self.queue.pair.is_maskable() {
            self.queue.pair.mask();
        }
    }

    fn pending(&mut self) -> bool {
        self.queue.pending()
    }

    fn take_role(&mut self) -> bool {
        let owner = self.queue.role.try_take(WaiterId(self.index.into()));
        // Only the owner's epoll set has the vector, so that a message wakes one thread.
        self.watch_vector(owner);
        owner
    }

    fn has_role(&self) -> bool {
        self.queue.role.owner() == Some(WaiterId(self.index.into()))
    }

    fn release_role(&mut self) -> Option<WaiterId> {
        self.queue.role.release(WaiterId(self.index.into()))
    }

    fn other_owner(&mut self) -> Option<WaiterId> {
        self.queue.role.owner().filter(|owner| *owner != WaiterId(self.index.into()))
    }
}

/// Polls both pairs: the first with half of the places, so that it cannot starve the second.
/// Returns the sum.
#[inline(never)]
fn reap_both(pair: &RingPair, polled: &RingPair, out: &mut [Completed]) -> Option<Reaped> {
    let half = out.len().div_ceil(2);
    let first = out.get_mut(..half).and_then(|places| pair.try_reap(places));
    // The second pair gets what the first has left.
    let taken = first.as_ref().map_or(0, |first| first.found as usize);
    let places = out.get_mut(taken..).filter(|places| !places.is_empty());
    let Some(second) = places.and_then(|places| polled.try_reap(places)) else { return first };
    let Some(first) = first else { return Some(second) };
    Some(Reaped {
        found: first.found + second.found,
        budget_used_up: first.budget_used_up || second.budget_used_up,
        more: first.more || second.more,
        violation: first.violation.or(second.violation),
    })
}

#[cfg(test)]
pub(super) use tests::manual_stepping;
#[cfg(test)]
mod tests;
