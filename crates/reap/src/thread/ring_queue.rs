//! One thread's side of a hardware queue: rings in memory that a controller shares, which other threads may post to and reap as well.
//!
//! ```text
//!  push    Part → SQE in the next slot, under the submission lock
//!  commit  one doorbell
//!  reap    own inbox; then, if the completion lock is free, CQE → its owner: this thread's requests, or another's inbox
//!  sleep   epoll: the vector, if this thread owns the notification, and the queue's wake-up
//! ```
//!
//! `threaded`: a thread of the hardware queue's own reaps, and this one finds everything in its inbox. `posted`: the vector's messages set a
//! bit of another vector's notification ([`Posting`]).

use std::sync::Arc;

use completion::{Mode, Notification, Route, Waiter};
use driver::{Completed, Reaped};
use hw::Poller;
use nvme::Vector;
use sync::WaiterId;
use units::Nanos;

use super::drain_thread;
use super::posting::Posting;
use crate::request::Token;
use crate::shared::hw_queue::HwQueue;
use crate::shared::queue_shared::QueueShared;
use crate::transport::{KEY_NOTIFICATION, Polled, QueueTransport, RingPair, RingPosting, SleepFor};

/// Most entries of one poll, whatever a policy asks for: the room of the buffers that are allocated once.
const MOST: usize = 256;

/// One thread's side of a hardware queue.
pub(crate) struct RingQueue {
    queue: Arc<HwQueue>,
    shared: Arc<QueueShared>,
    me: u8,
    /// Where the thread sleeps.
    poller: Arc<Poller>,
    events: Vec<u64>,
    /// The poller reports the vector.
    watched: bool,
    /// Reads and writes go to the pair that is only polled.
    polls: bool,
    /// Something was posted and is not yet announced.
    uncommitted: bool,
    /// Places of the inbox.
    most: u32,
    /// A thread of the hardware queue's own reaps, unless this one does all the same.
    drained: bool,
    reaps_itself: bool,
    posting: Posting,
    /// It waits for a tag that another queue has.
    waits: bool,
    /// [`MOST`] places; what a poll takes is in the first of them.
    taken: Box<[Completed; MOST]>,
    mail: Vec<Completed>,
}

impl RingQueue {
    /// Queue `me` of a hardware queue, for a thread that sleeps in `poller`.
    pub(crate) fn new(queue: Arc<HwQueue>, me: u8, poller: Arc<Poller>) -> RingQueue {
        let (shared, most) = (queue.users[usize::from(me)].clone(), queue.tags());
        let mut ring = RingQueue {
            queue,
            shared,
            me,
            poller,
            events: Vec::with_capacity(8),
            watched: false,
            polls: false,
            uncommitted: false,
            most,
            drained: false,
            reaps_itself: false,
            posting: Posting::default(),
            waits: false,
            taken: Box::new([Completed::default(); MOST]),
            mail: Vec::with_capacity(MOST),
        };
        ring.watch_vector(!ring.queue.is_shared());
        ring
    }

    /// What it shares with other threads.
    pub(crate) fn hardware(&self) -> &Arc<HwQueue> {
        &self.queue
    }

    /// The vector that may stand for those of other queues of its thread; `None`: other threads have it as well.
    pub(crate) fn home(&self) -> Option<Vector> {
        (!self.queue.serves_several()).then(|| self.queue.pair.vector())
    }

    /// Where messages are posted, the notification of `home` stands for this queue's from now on. Whether it can.
    pub(crate) fn share_notification(&mut self, home: Vector) -> bool {
        if self.queue.serves_several() {
            return false;
        }
        self.posting.set_home(home, &self.queue.pair, &self.poller);
        true
    }

    /// Where reads and writes go.
    #[inline]
    fn data_lane(&self) -> &RingPair {
        match &self.queue.polled {
            Some(polled) if self.polls => polled,
            _ => &self.queue.pair,
        }
    }

    /// Tags of each queue that has requests, this one among them, and all there are.
    fn share(&self) -> (u32, u32) {
        let others = self.queue.users.iter().enumerate().filter(|&(n, user)| n != usize::from(self.me) && user.open() > 0).count();
        let tags = self.data_lane().tags();
        (tags / (others as u32 + 1), tags)
    }

    /// While a queue waits for a tag, each that has requests has an equal share of them; where there are more queues than tags, those that
    /// have waited longest have one each, as tags come back.
    #[cold]
    fn shared_room(&self, posted: u32) -> u32 {
        let (share, tags) = self.share();
        let free = tags.saturating_sub(self.data_lane().in_flight());
        match share {
            0 if posted == 0 && self.queue.waiters.is_among_first(self.me, free) => 1,
            _ => share.saturating_sub(posted),
        }
    }

    /// Takes what other threads have left, into the first places. How many that were; there is room for more.
    #[cold]
    fn take_inbox(&mut self) -> usize {
        self.shared.inbox.take(MOST / 2, &mut self.mail);
        for (place, completed) in self.taken.iter_mut().zip(&self.mail) {
            *place = *completed;
        }
        let taken = self.mail.len();
        self.mail.clear();
        if !self.shared.inbox.is_empty() {
            self.shared.notice();
        }
        taken
    }

    /// Leaves to other threads what is theirs of the places from `from` to `to`. Where the rest ends.
    #[inline(never)]
    fn hand_out(&mut self, from: usize, to: usize) -> usize {
        let is_mine = |completed: &Completed| Token(completed.token).soft() == self.me;
        if self.taken[from..to].iter().all(is_mine) {
            return to;
        }
        self.queue.hand_out(Some(self.me), &self.taken[from..to]);
        let mut end = from;
        for at in from..to {
            if is_mine(&self.taken[at]) {
                self.taken[end] = self.taken[at];
                end += 1;
            }
        }
        end
    }

    /// Puts the vector into the thread's poller, or takes it out.
    fn watch_vector(&mut self, wanted: bool) {
        let Some(fd) = self.queue.pair.wait_on().filter(|_| self.watched != wanted) else { return };
        let done = if wanted { self.poller.add(fd, KEY_NOTIFICATION) } else { self.poller.remove(fd) };
        match done {
            Ok(()) => self.watched = wanted,
            Err(error) => tracing::error!(%error, wanted, "a queue's vector cannot be watched, or left to others"),
        }
    }
}

impl QueueTransport for RingQueue {
    const SUBMITS_IN_SLEEP: bool = false;
    const CANCELS_LATE: bool = false;
    const REAPED_BY_OTHERS: bool = true;

    type Posting<'a> = RingPosting<'a>;

    #[inline]
    fn room(&self, posted: u32) -> u32 {
        // Every part in flight has a place in the inbox.
        let room = self.most - posted;
        if self.queue.waiters.has_waiters() { room.min(self.shared_room(posted)) } else { room }
    }

    #[inline]
    fn posting(&mut self) -> RingPosting<'_> {
        self.data_lane().posting()
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
        let polls = route == Route::Poll;
        if polls != self.polls {
            // A batch's commit announces nothing of the other pair.
            self.commit();
            self.polls = polls;
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
        let places = &mut self.taken[passed..(passed + budget as usize).clamp(passed + 1, MOST)];
        let reaped = match (&self.queue.polled, self.drained && !self.reaps_itself) {
            (None, false) => self.queue.pair.try_reap(places),
            (Some(second), false) => reap_both(&self.queue.pair, second, places),
            // The drain thread is notified of the other pair alone.
            (Some(second), true) => second.try_reap(places),
            (None, true) => Some(Reaped::default()),
        };
        let busy = reaped.is_none();
        let Reaped { found, budget_used_up, more, violation } = reaped.unwrap_or_default();
        let mut taken = passed + found as usize;
        if found > 0 && self.queue.is_shared() {
            taken = self.hand_out(passed, taken);
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
        // What cannot be masked is not read while the thread naps.
        if !self.queue.pair.is_maskable() {
            self.watch_vector(sleeps);
        }
    }

    fn found_when_armed(&mut self) -> bool {
        self.posting.found()
    }

    fn tell(&self, thread: WaiterId) {
        self.queue.tell_sleeper(thread);
    }

    fn was_notified(&self) -> bool {
        self.posting.was_called(&self.queue.pair)
    }

    fn message_time(&self) -> Option<Nanos> {
        self.queue.pair.take_message_time()
    }

    fn is_notified_elsewhere(&self) -> bool {
        self.posting.is_elsewhere()
    }

    /// Who reaps, and where messages go, are as the mode wants them.
    fn adopt(&mut self, mode: Mode, waiter: &mut Waiter) {
        let drained = mode.facts().drain_thread;
        if drained && !self.drained {
            let alone = !self.queue.is_shared();
            match drain_thread::engage(&self.queue) {
                Ok(()) => {
                    (self.drained, waiter.others_look) = (true, true);
                    if alone {
                        // Until now no other thread could be woken by the vector.
                        waiter.owner = false;
                        self.watch_vector(false);
                    }
                    if let Some(heir) = waiter.leave(self) {
                        self.tell(heir);
                    }
                }
                Err(error) => tracing::error!(%error, "no thread to drain the queue: its own thread does, as in interrupt"),
            }
        } else if !drained && self.drained {
            (self.drained, waiter.others_look) = (false, false);
            self.queue.drain.dismiss();
            if !self.queue.is_shared() {
                waiter.owner = true;
                self.watch_vector(true);
            }
        }
        self.posting.settle(mode, &self.queue.pair, &self.poller);
    }

    fn set_reaps_itself(&mut self, reaps: bool) {
        self.reaps_itself = reaps;
    }

    fn wait_for_tag(&mut self, posted: u32) -> bool {
        // With as many posted its own completions bring tags back.
        let waits = posted < self.share().0.max(1);
        if waits {
            self.queue.waiters.join(self.me);
            self.waits = true;
        } else {
            self.stop_waiting();
        }
        waits
    }

    fn stop_waiting(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.queue.waiters.leave(self.me);
            // It may have been the next to have a tag, and has taken none.
            self.queue.tags_returned();
        }
    }

    fn close(&mut self) {
        self.stop_waiting();
        if std::mem::take(&mut self.drained) {
            self.queue.drain.dismiss();
        }
        self.posting.end(&self.queue.pair);
    }
}

/// The vector, and which of the hardware queue's threads sleeps on it.
impl Notification for RingQueue {
    type Thread = WaiterId;

    #[inline]
    fn is_shared(&self) -> bool {
        self.queue.is_shared()
    }

    #[inline]
    fn is_alone(&self) -> bool {
        self.queue.pair.is_maskable()
    }

    fn tells_once(&self) -> bool {
        self.posting.is_on()
    }

    fn arm(&mut self) {
        if !self.posting.has_another_round(&self.queue.pair) {
            self.queue.pair.arm();
            self.posting.look(&self.queue.pair);
        }
    }

    fn mask(&mut self) {
        if self.queue.pair.is_maskable() {
            self.queue.pair.mask();
        }
    }

    fn pending(&mut self) -> bool {
        self.queue.pending()
    }

    fn take_role(&mut self) -> bool {
        let owner = self.queue.role.try_take(WaiterId(self.me.into()));
        self.watch_vector(owner);
        owner
    }

    fn has_role(&self) -> bool {
        self.queue.role.owner() == Some(WaiterId(self.me.into()))
    }

    fn release_role(&mut self) -> Option<WaiterId> {
        self.queue.role.release(WaiterId(self.me.into()))
    }

    fn other_owner(&mut self) -> Option<WaiterId> {
        self.queue.role.owner().filter(|owner| *owner != WaiterId(self.me.into()))
    }
}

/// A poll of both pairs, each with half of the places, so that neither starves the other: what they have found together.
#[inline(never)]
fn reap_both(pair: &RingPair, polled: &RingPair, out: &mut [Completed]) -> Option<Reaped> {
    let half = out.len().div_ceil(2);
    let first = out.get_mut(..half).and_then(|places| pair.try_reap(places));
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
pub(super) use tests::by_hand;
#[cfg(test)]
mod tests;
