//! What the engine does with a software queue, and what follows from another mode.

use std::io;

use completion::{Mode, Plan, Woke};
use sync::{SleepSteps, WaiterId, WakeFlag, sleep};
use units::Nanos;

use super::SoftQueue;
use crate::thread::draining;
use crate::thread::engine::{self, Driven, KEY_VECTOR, Slept};
use crate::thread::executor;
use crate::thread::vector::{Vector, Watch};

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
        // What a look submits, and that it holds nothing back, is known: it need not be asked below.
        if let Some(plan) = looker.looks_first(&self.queue) {
            return plan;
        }
        let woke_at = looker.woke_at.take();
        if let Some(plan) = looker.waiter.looks_when_woken() {
            // A sleep in the ring ends with what it found, and the look follows at once: one clock read is both's.
            looker.read = woke_at.filter(|&at| at == now);
            return plan;
        }
        looker.next(&self.soft, now, goes_on_at, &mut self.vector())
    }

    fn look(&self, budget: u32) -> (u32, Option<Nanos>) {
        let mut looker = self.looker.borrow_mut();
        let read = looker.look(&self.queue, &self.soft, budget);
        let (found, wake) = (looker.waiter.seen.found, looker.has_wakers());
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
        let found = self.queue.hint() || !self.soft.inbox.is_empty() || self.has_to_fail();
        if found {
            self.looker.borrow_mut().waiter.found_something();
        }
        found
    }

    fn spun_in_vain(&self, now: Nanos) {
        self.looker.borrow_mut().sample_delay(now);
    }

    fn gives_way(&self) -> bool {
        let looker = self.looker.borrow();
        looker.spin.gives_way(looker.waiter.policy.mode())
    }

    fn arm(&self) {
        sleep::arm(&mut Bedside(self));
    }

    fn look_before_sleep(&self) -> bool {
        sleep::check(&mut Bedside(self))
    }

    fn weighs_sleeps(&self) -> bool {
        self.looker.borrow().waiter.policy.facts().weighs_sleeps
    }

    /// Takes what the poller has to report, without waiting. Whether the vector was among it.
    fn drain_events(&self) -> io::Result<bool> {
        // What is reported is another queue's notification: whether it was for this one shows without a system call.
        if self.posting.is_elsewhere() {
            return Ok(false);
        }
        self.place.drain(KEY_VECTOR)
    }

    /// Awake again: masks what was armed, counts, and notes for the policy why.
    fn woken(&self, &Slept { found, nap, notified, woke_at, until, cycle }: &Slept) {
        sleep::wake(&mut Bedside(self));
        let mut looker = self.looker.borrow_mut();
        if looker.waiter.policy.mode().moderation().is_some() && self.queue.idle.claim_wake() {
            self.queue.reporter.stirred();
        }
        looker.waiter.seen.cycle = cycle;
        looker.woke_at = Some(woke_at);
        looker.counters.sleeps += u64::from(!nap);
        looker.counters.naps += u64::from(nap);
        if nap || looker.waiter.seen.cpu_wanted {
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
            wakeups.woken(self.queue.lane.take_message_time(), woke_at);
        }
        looker.waiter.woken(engine::cause(notified, woke_at, until));
    }

    /// The thread goes back to its caller: hands on the role of looking, if others need it.
    #[inline(always)] // Two questions, once for each wait.
    fn leave(&self) {
        if self.queue.is_shared() {
            let heir = self.looker.borrow_mut().waiter.leave(&mut self.vector());
            self.tell(heir);
        }
    }
}

/// The queue, as its thread goes to sleep on it and comes back: what the steps come to whose order [`sleep`] has.
struct Bedside<'a>(&'a SoftQueue);

impl SleepSteps for Bedside<'_> {
    type Thread = WaiterId;

    #[inline]
    fn flag(&self) -> &WakeFlag {
        self.0.soft.wake.bell()
    }

    fn register(&mut self) -> Option<WaiterId> {
        self.0.looker.borrow_mut().waiter.register(&mut self.0.vector())
    }

    fn allow(&mut self) {
        let waiter = &mut self.0.looker.borrow_mut().waiter;
        waiter.arm(&mut self.0.vector());
        if !self.0.queue.lane.is_maskable() {
            // What cannot be masked is not read while the thread naps.
            let sleeps = matches!(waiter.plan, Plan::Sleep { .. });
            self.0.vector().watch(sleeps && waiter.owner && !waiter.others_look);
        }
    }

    fn tell(&self, thread: WaiterId) {
        self.0.queue.tell_sleeper(thread);
    }

    fn was_posted(&mut self) -> bool {
        let posted = self.0.posting.found();
        if posted {
            self.0.looker.borrow_mut().waiter.found_something();
        }
        posted
    }

    fn has_entry(&mut self) -> bool {
        self.0.looker.borrow_mut().waiter.look_once_more(&mut self.0.vector()).unwrap_or(false)
    }

    fn has_mail(&mut self) -> bool {
        let SoftQueue { soft, looker, .. } = self.0;
        let waiter = &mut looker.borrow_mut().waiter;
        let taken = !soft.inbox.is_empty() || self.0.has_to_fail();
        if taken {
            waiter.found_something();
        }
        // Another thread may have ended requests since the plan was made, and told before the bell was armed.
        taken || waiter.seen.in_flight != soft.open()
    }

    fn is_wanted(&mut self) -> bool {
        self.0.soft.mode_asked()
    }

    fn mask(&mut self) {
        let waiter = &mut self.0.looker.borrow_mut().waiter;
        let mut vector = self.0.vector();
        waiter.wakes(&vector);
        waiter.mask_or_keep(self.0.soft.open(), &mut vector);
    }
}

impl SoftQueue {
    /// Whether the controller is given up, and a look has to fail what waits for a tag.
    #[inline]
    pub(super) fn has_to_fail(&self) -> bool {
        self.queue.is_dead() && self.soft.open() > 0
    }

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
        self.posting.settle(mode, &self.queue.lane, self.place.poller());
        self.looker.borrow_mut().waiter.settle(&mut self.vector());
    }

    fn settle_placement(&self, mode: Mode) {
        let drained = mode.facts().drain_thread;
        if drained == self.looker.borrow().waiter.others_look {
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
        looker.waiter.others_look = true;
        if alone {
            // Until now nobody else could be woken by the vector.
            looker.waiter.owner = false;
            self.vector().watch(false);
        }
        drop(looker);
        self.leave();
    }

    /// The mode had a drain thread, and the one adopted has none.
    fn take_back(&self) {
        self.looker.borrow_mut().waiter.others_look = false;
        self.queue.drain.dismiss();
        if !self.queue.is_shared() {
            self.looker.borrow_mut().waiter.owner = true;
            self.vector().watch(true);
        }
    }

    /// Whether the two lead to one controller.
    pub(crate) fn is_beside(&self, other: &SoftQueue) -> bool {
        self.queue.lane.is_beside(&other.queue.lane)
    }

    /// Another queue of the same thread, beside this one, is notified for this one as well, where messages are posted.
    pub(crate) fn share_notification(&self, home: &SoftQueue) {
        if !self.queue.serves_several() && !home.queue.serves_several() {
            self.posting.set_home(home.queue.lane.vector(), &self.queue.lane, self.place.poller());
            let waiter = &mut self.looker.borrow_mut().waiter;
            waiter.settle(&mut self.vector());
            waiter.woken(Woke::OTHER);
        }
    }

    /// Wakers run here, outside every lock and borrow: they may do anything with the queue.
    #[inline(never)]
    pub(super) fn wake_all(&self) {
        let mut wakers = self.looker.borrow_mut().take_wakers();
        executor::wake_all(wakers.drain(..));
        self.looker.borrow_mut().keep_wakers(wakers);
    }

    /// Wakes the heir of the look role, or the owner of it that is to look, if there is one.
    pub(super) fn tell(&self, sleeper: Option<WaiterId>) {
        if let Some(sleeper) = sleeper {
            self.queue.tell_sleeper(sleeper);
        }
    }

    /// The vector and the look role, as this queue's thread meets them.
    #[inline]
    pub(super) fn vector(&self) -> Vector<'_> {
        let watch = Watch { place: &self.place, on: &self.watched };
        Vector { queue: &self.queue, me: WaiterId(u32::from(self.me)), seat: Some((&self.posting, watch)) }
    }
}
