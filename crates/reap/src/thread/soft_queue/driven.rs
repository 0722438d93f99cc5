//! What the engine does with a software queue, and what follows from another mode.

use std::io;

use completion::{Cause, Mode, Placement, Plan, Woke};
use handover::SleeperId;
use units::Nanos;

use super::SoftQueue;
use crate::thread::draining;
use crate::thread::engine::{self, Driven, KEY_VECTOR, Slept};
use crate::thread::executor;

impl Driven for SoftQueue {
    #[inline]
    fn in_flight(&self) -> u32 {
        self.soft.open()
    }

    #[inline(always)]
    fn plan(&self, now: Nanos, goes_on_at: Nanos) -> Plan {
        self.commit();
        let mut looker = self.looker.borrow_mut();
        if looker.adopt(&self.soft, || self.tuning()).is_some() {
            drop(looker);
            self.settle();
            looker = self.looker.borrow_mut();
        }
        let plan = looker.next(&self.soft, now, goes_on_at);
        looker.mask_if_kept(&self.queue);
        if looker.says_what_it_holds(&self.soft, now) {
            self.controller.kick_keeper();
        }
        plan
    }

    fn look(&self, budget: u32) -> (u32, Option<Nanos>) {
        let mut looker = self.looker.borrow_mut();
        let read = looker.look(&self.queue, &self.soft, budget);
        let (found, wake) = (looker.seen.found, looker.has_wakers());
        drop(looker);
        if let Some(read) = read {
            self.clock.set(read);
        }
        if wake {
            self.wake_all();
        }
        (found, read)
    }

    fn spins(&self) {
        self.looker.borrow_mut().counters.spins += 1;
    }

    #[inline]
    fn look_while_spinning(&self) -> bool {
        let found = self.queue.lane.hint() || !self.soft.inbox.is_empty();
        if found {
            self.looker.borrow_mut().found_something();
        }
        found
    }

    fn spun_in_vain(&self, now: Nanos) {
        self.looker.borrow_mut().sample_delay(now);
    }

    /// The arming half of law 1. `sleeping`: the queue's own plan is to sleep on its notification.
    fn arm(&self, sleeping: bool) {
        self.soft.wake.arm();
        if !sleeping {
            // A nap is no look: somebody who sleeps may need the role meanwhile.
            self.leave();
            return;
        }
        let mut looker = self.looker.borrow_mut();
        if looker.drained {
            // The drain thread rings the own bell.
            return;
        }
        if self.queue.is_shared() {
            looker.owner = self.queue.role.try_take(sleeper(self.me));
            looker.registered = true;
            if let Err(error) = looker.watch(&self.queue, &self.place) {
                tracing::error!(%error, "a queue's vector cannot be watched");
            }
        }
        if looker.owner && !looker.kept_armed && !self.posting.has_another_round(&self.queue.lane) {
            self.queue.lane.arm();
            self.posting.look(&self.queue.lane);
        }
    }

    /// The look between arming and blocking. In `interrupt` mode the vector is never masked and its messages are
    /// sticky, so that nothing can be missed and looking would only be a free poll; unless another thread may have held
    /// the lock when the message was followed. A vector that was kept armed has told of everything as well.
    fn look_before_sleep(&self) -> bool {
        let looker = self.looker.borrow();
        let needed = self.queue.is_shared() || looker.policy.masks() && !looker.kept_armed;
        // Another thread may have ended requests since the plan was made, and told before the bell was armed.
        let changed = looker.seen.in_flight != self.soft.open();
        drop(looker);
        // Asked in any case: it tells once.
        let posted = self.posted_to();
        posted || self.look_once_more(needed) || changed || self.soft.mode_asked()
    }

    /// Takes what the poller has to report, without waiting. Whether the vector was among it.
    fn drain_events(&self) -> io::Result<bool> {
        self.place.drain(KEY_VECTOR)
    }

    /// Awake again: masks what was armed, counts, and notes for the policy why.
    fn woken(&self, &Slept { found, nap, notified, woke_at, until, cycle }: &Slept) {
        self.soft.wake.mask();
        let mut looker = self.looker.borrow_mut();
        looker.mask_or_keep(&self.queue, &self.soft);
        if looker.policy.mode().moderation().is_some() && self.queue.idle.ring_once() {
            self.queue.reporter.stirred();
        }
        looker.seen.cycle = cycle;
        looker.counters.sleeps += u64::from(!nap);
        looker.counters.naps += u64::from(nap);
        if nap || looker.seen.cpu_wanted {
            looker.sample_delay(woke_at);
        }
        if found {
            return;
        }
        let notified = self.posting.was_called(&self.queue.lane) || notified;
        looker.counters.wakeups += 1;
        if let Some(wakeups) = &mut looker.wakeups
            && notified
        {
            wakeups.woken(woke_at - self.queue.lane.take_message_time().unwrap_or(woke_at));
        }
        looker.woken(engine::cause(notified, woke_at, until));
    }

    /// The thread goes back to its caller: hands on the role of looking, if others need it.
    #[inline]
    fn leave(&self) {
        if self.queue.is_shared() {
            self.leave_shared();
        }
    }
}

impl SoftQueue {
    /// Another mode, if one was asked for.
    pub(super) fn adopt(&self) {
        let adopted = self.looker.borrow_mut().adopt(&self.soft, || self.tuning());
        if adopted.is_some() {
            self.settle();
        }
    }

    /// A mode has been adopted: who drains, where messages go, and whether the vector is masked, are as it wants them. A
    /// look follows.
    #[cold]
    pub(super) fn settle(&self) {
        let mode = self.mode();
        self.settle_placement(mode);
        self.posting.settle(mode, &self.queue.lane);
        self.settle_mask();
    }

    fn settle_placement(&self, mode: Mode) {
        let drained = mode.placement() == Placement::DrainThread;
        if drained == self.looker.borrow().drained {
            return;
        }
        if !drained {
            return self.take_back();
        }
        let alone = !self.queue.is_shared();
        if let Err(error) = draining::engage(&self.queue) {
            tracing::error!(%error, "no thread to drain the queue: its own thread does, as in interrupt");
            return;
        }
        let mut looker = self.looker.borrow_mut();
        looker.drained = true;
        if alone {
            // Until now nobody else could be woken by the vector.
            looker.owner = false;
            if let Err(error) = looker.watch(&self.queue, &self.place) {
                tracing::error!(%error, "a queue's vector cannot be left to others");
            }
        }
        drop(looker);
        self.leave();
    }

    /// The mode had a drain thread, and the one adopted has none.
    fn take_back(&self) {
        self.looker.borrow_mut().drained = false;
        self.queue.drain.dismiss();
        if self.queue.is_shared() {
            return;
        }
        let mut looker = self.looker.borrow_mut();
        looker.owner = true;
        if let Err(error) = looker.watch(&self.queue, &self.place) {
            tracing::error!(%error, "a queue's vector cannot be watched");
        }
    }

    /// Whether the two lead to one controller.
    pub(crate) fn is_beside(&self, other: &SoftQueue) -> bool {
        self.queue.lane.is_beside(&other.queue.lane)
    }

    /// Another queue of the same thread, beside this one, is notified for this one as well, where messages are posted.
    pub(crate) fn share_notification(&self, home: &SoftQueue) {
        if !self.queue.serves_several() && !home.queue.serves_several() {
            self.posting.set_home(home.queue.lane.vector(), &self.queue.lane);
            self.settle_mask();
            self.looker.borrow_mut().woken(Woke { cause: Cause::Other, late: Nanos::ZERO });
        }
    }

    /// Wakers run here, outside every lock and borrow: they may do anything with the queue.
    #[inline(never)]
    pub(super) fn wake_all(&self) {
        let mut wakers = self.looker.borrow_mut().take_wakers();
        executor::wake_all(wakers.drain(..));
        self.looker.borrow_mut().keep_wakers(wakers);
    }

    /// Whether arming found a posted message that no notification stood for: the policy is told.
    fn posted_to(&self) -> bool {
        let found = self.posting.found();
        if found {
            self.looker.borrow_mut().found_something();
        }
        found
    }

    /// Whether there is anything for this thread to take: the policy is told.
    pub(super) fn look_once_more(&self, at_queue: bool) -> bool {
        let mut looker = self.looker.borrow_mut();
        let found = !self.soft.inbox.is_empty() || at_queue && looker.owner && self.queue.lane.hint();
        if found {
            looker.found_something();
        }
        found
    }

    fn leave_shared(&self) {
        let mut looker = self.looker.borrow_mut();
        if looker.registered {
            looker.registered = false;
            looker.owner = false;
            if let Some(heir) = self.queue.role.release(sleeper(self.me)) {
                self.queue.tell_sleeper(heir);
                return;
            }
        }
        drop(looker);
        self.tell_owner();
    }

    /// This thread goes away from entries that it knows of: whoever sleeps on the vector may have found the lock busy.
    pub(super) fn tell_owner(&self) {
        if self.queue.is_shared()
            && self.looker.borrow().seen.pending
            && let Some(owner) = self.queue.role.owner()
        {
            self.queue.tell_sleeper(owner);
        }
    }

    /// In a mode that never masks, the vector is armed from now on; in any other it is masked while awake.
    fn settle_mask(&self) {
        let mut looker = self.looker.borrow_mut();
        looker.kept_armed = false;
        if !looker.policy.masks() || !self.queue.lane.is_maskable() {
            self.queue.lane.arm();
        } else if looker.owner {
            self.queue.lane.mask();
        }
    }
}

/// A queue's number in its hardware queue, as the role knows it.
fn sleeper(me: u8) -> SleeperId {
    SleeperId(u32::from(me))
}
