//! A software queue: one thread's way to a device.

mod foreign;

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;

use completion::{Batch, Cause, Coalesce, Decisions, LatencySlack, Mode, Placement, Plan, Policy, Tuning, Woke};
use hw::DmaPool;
use units::Nanos;

use crate::book::Claim;
use crate::cycle;
use crate::device::{HardwareCounters, Shared};
use crate::drain;
use crate::engine::{self, KEY_VECTOR, KEY_WAKE, Place, report};
use crate::error::{QueueError, Refused, WouldDeadlock};
use crate::executor::{self, Signal};
use crate::future::Pending;
use crate::hw_queue::{HwQueue, Soft};
use crate::looker::{Counters, Looker};
use crate::namespace::Namespace;
use crate::posting::Posting;
use crate::request::{Completion, Request};
use crate::wakeups::Wakeups;
pub use foreign::Turned;

/// A software queue of one controller: what [`crate::Queue`] is, or has one of for each path.
pub struct Queue {
    shared: Arc<Shared>,
    queue: Arc<HwQueue>,
    soft: Arc<Soft>,
    me: u8,
    place: Place,
    looker: RefCell<Looker>,
    posting: Posting,
    /// Something was posted and not yet committed.
    uncommitted: Cell<bool>,
    /// The clock read of the last batch.
    clock: Cell<Nanos>,
    slack: Cell<LatencySlack>,
    signal: Arc<Signal>,
}

impl Queue {
    pub(crate) fn new(shared: Arc<Shared>, queue: Arc<HwQueue>, me: u8) -> Result<Queue, QueueError> {
        let system = |what| move |source| QueueError::System { what, source };
        let place = Place::new().map_err(system("epoll instance"))?;
        let soft = &queue.softs[usize::from(me)];
        place.poller().add(&soft.wake, KEY_WAKE).map_err(system("wake-up descriptor"))?;
        let policy = Policy::with(shared.mode(), &shared.tuning());
        soft.mode.begin(policy.mode());
        // Another may have been asked for since it was read.
        soft.mode.ask(shared.mode());
        let mut looker = Looker::new(me, policy);
        if soft.open() > 0 {
            // The last thread's entries may have come while the vector was masked: begin with a look.
            looker.woken(Woke { cause: Cause::Other, late: Nanos::ZERO });
        }
        if !queue.is_shared() {
            looker.owner = true;
            watch(&queue, &place, &mut looker).map_err(system("vector"))?;
        }
        let signal = Arc::new(Signal::new(queue.clone(), me));
        let queue = Queue {
            soft: queue.softs[usize::from(me)].clone(),
            slack: Cell::new(shared.tuning().slack),
            shared,
            queue,
            me,
            place,
            looker: RefCell::new(looker),
            posting: Posting::default(),
            uncommitted: Cell::new(false),
            clock: Cell::new(hw::now()),
            signal,
        };
        queue.settle();
        Ok(queue)
    }

    #[inline]
    fn soft(&self) -> &Soft {
        &self.soft
    }

    /// The device's namespaces.
    pub fn namespaces(&self) -> &[Namespace] {
        self.shared.namespaces()
    }

    /// The device's buffers.
    pub(crate) fn pool(&self) -> &DmaPool {
        self.shared.pool()
    }

    /// Submits requests: posts as many as there are tags, the others wait in line, and rings the doorbell once. `now`
    /// is the clock read of the batch ([`crate::now`]): time-outs count from it.
    ///
    /// # Errors
    /// The first request that cannot be carried out, and why; those before it are submitted, those after it stay in
    /// the iterator. The iterator runs while the queue is locked and must not use it. If it panics, the requests that it has
    /// yielded are submitted.
    pub fn submit(&self, now: Nanos, requests: impl IntoIterator<Item = Request>) -> Result<(), (Refused, Request)> {
        self.clock.set(now);
        let mut book = self.soft().requests();
        let submitted = self.queue.submit(self.me, &mut book, now, (true, Claim::Batch), requests, self.shared.checker());
        drop(book);
        self.uncommitted.set(false);
        self.queue.serve_own(now);
        if submitted.batch.commands > 0 {
            self.committed(now, &submitted.batch);
        }
        submitted.refused.map_or(Ok(()), |refused| Err(*refused))
    }

    /// A batch was committed: its policy is told, and may want to look. Apart from the loop over the requests, which needs
    /// every register.
    #[inline(never)]
    fn committed(&self, now: Nanos, batch: &Batch) {
        let checked = self.looker.borrow_mut().submitted(&self.queue, self.soft(), now, batch);
        if checked {
            self.wake_all();
            self.tell_owner();
        }
    }

    /// Moves finished requests of [`Queue::submit`] to `out`, as many as fit into its capacity (at least one). Only
    /// what has been found already: [`Queue::wait`] and [`Queue::turn`] look. Returns how many.
    pub fn reap(&self, out: &mut Vec<Completion>) -> usize {
        if self.soft().done() == 0 {
            return 0;
        }
        let room = (out.capacity() - out.len()).max(1);
        self.soft().requests().take_done(room, out)
    }

    /// Gives all that [`Queue::reap`] would move to `take`, which must not use the queue: it is locked.
    #[inline]
    pub(crate) fn reap_each(&self, take: impl FnMut(Completion)) {
        self.soft().requests().take_each_done(take);
    }

    /// Finished requests that [`Queue::reap`] would move.
    pub fn finished(&self) -> usize {
        self.soft().done() as usize
    }

    /// Requests that are not finished.
    pub fn in_flight(&self) -> u32 {
        self.soft().open()
    }

    /// Drives the queue, as its completion mode plans, until at least `min` requests can be reaped, until `until`
    /// ([`Nanos::MAX`]: no limit), or until nothing is in flight. Returns how many can be reaped.
    ///
    /// # Errors
    /// [`WouldDeadlock`] inside `block_on`: the futures of this thread could not go on.
    pub fn wait(&self, min: usize, until: Nanos) -> Result<usize, WouldDeadlock> {
        let _inside = executor::enter()?;
        self.commit();
        let ended = self.place.drive(&[self], self.clock.get(), until, false, || self.finished() >= min);
        report(ended);
        Ok(self.finished())
    }

    /// Sleeps or spins until `until`, driving the queue meanwhile, even with nothing in flight.
    ///
    /// # Errors
    /// [`WouldDeadlock`] inside `block_on`.
    pub fn wait_until(&self, min: usize, until: Nanos) -> Result<usize, WouldDeadlock> {
        let _inside = executor::enter()?;
        self.commit();
        let ended = self.place.drive(&[self], self.clock.get(), until, true, || self.finished() >= min);
        report(ended);
        Ok(self.finished())
    }

    /// A request as a future. It is posted at once; the doorbell rings when the queue is next driven, or by
    /// [`Queue::commit`].
    pub fn start(&self, request: Request) -> Pending {
        let now = hw::now();
        self.clock.set(now);
        let mut book = self.soft().requests();
        let submitted = self.queue.submit(self.me, &mut book, now, (false, Claim::Future), [request], self.shared.checker());
        drop(book);
        self.queue.serve_own(now);
        self.uncommitted.set(true);
        match submitted.refused {
            None => Pending::new(self.queue.clone(), self.me, submitted.last),
            Some(refused) => Pending::refused(refused.0, refused.1),
        }
    }

    /// Drives the queue until `enough`; what the caller waits for may come from elsewhere.
    pub(crate) fn drive(&self, until: Nanos, enough: impl Fn() -> bool) {
        self.commit();
        report(self.place.drive(&[self], self.clock.get(), until, true, enough));
    }

    /// Changes the completion mode, with requests in flight or without. Nothing is lost and nothing comes twice.
    pub fn set_mode(&self, mode: Mode) {
        cycle::prepare(mode);
        self.soft().mode.ask(mode);
        self.shared.mode_asked();
    }

    /// Changes how late [`Mode::ADAPTIVE`] may be on this queue, from what its device was opened with; with requests in flight
    /// or without. What the mode has learnt it learns again.
    pub fn set_latency_slack(&self, slack: LatencySlack) {
        if self.slack.replace(slack) != slack {
            let tuning = self.tuning();
            self.looker.borrow_mut().retune(&tuning);
        }
    }

    /// See [`crate::Queue::set_wants_room_at`].
    pub fn set_wants_room_at(&self, due: Option<Nanos>) {
        self.looker.borrow_mut().seen.wants_room_at = due;
    }

    /// See [`crate::Queue::wants_room_at`].
    pub fn wants_room_at(&self) -> Option<Nanos> {
        self.looker.borrow().seen.wants_room_at
    }

    fn tuning(&self) -> Tuning {
        Tuning { slack: self.slack.get(), ..self.shared.tuning() }
    }

    /// The completion mode in force.
    pub fn mode(&self) -> Mode {
        self.looker.borrow().policy.mode()
    }

    /// See [`crate::Queue::looks_on_commit`].
    pub fn looks_on_commit(&self) -> bool {
        self.looker.borrow().policy.looks_on_commit()
    }

    /// What this queue's thread has counted.
    pub fn counters(&self) -> Counters {
        self.looker.borrow().counters
    }

    /// What this queue's thread has counted since the last call, or since the queue was taken.
    pub fn take_counters(&self) -> Counters {
        std::mem::take(&mut self.looker.borrow_mut().counters)
    }

    /// What has been counted of the hardware queue that this one posts to, for all the software queues that share it.
    pub fn hardware_counters(&self) -> HardwareCounters {
        self.shared.hardware_counters(&self.queue)
    }

    /// How often its policy has decided what, since the mode was adopted: in [`Mode::ADAPTIVE`] alone.
    pub fn decisions(&self) -> Option<Decisions> {
        self.looker.borrow().policy.decisions().copied()
    }

    /// From now on counts what wake-ups bring ([`Queue::wakeups`]).
    pub fn count_wakeups(&self) {
        self.looker.borrow_mut().wakeups.get_or_insert_default();
    }

    /// What wake-ups have brought since [`Queue::count_wakeups`].
    pub fn wakeups(&self) -> Wakeups {
        self.looker.borrow().wakeups.as_deref().copied().unwrap_or_default()
    }

    /// The hardware queue that this one posts to, from 0.
    pub fn hardware_queue(&self) -> u16 {
        self.queue.pair.id().0 - 1
    }

    /// Rings the doorbell for what [`Queue::start`] has posted.
    pub fn commit(&self) {
        if self.uncommitted.replace(false) {
            self.queue.commit();
        }
    }

    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    // What the engine does with a queue, in the order in which it does it.

    #[inline(always)]
    pub(crate) fn plan(&self, now: Nanos, goes_on_at: Nanos) -> Plan {
        self.commit();
        let mut looker = self.looker.borrow_mut();
        if looker.adopt(self.soft(), || self.tuning()).is_some() {
            drop(looker);
            self.settle();
            looker = self.looker.borrow_mut();
        }
        let plan = looker.next(self.soft(), now, goes_on_at);
        looker.mask_if_kept(&self.queue);
        if looker.says_what_it_holds(self.soft(), now) {
            self.shared.mode_asked();
        }
        plan
    }

    /// Another mode, if one was asked for.
    fn adopt(&self) {
        let adopted = self.looker.borrow_mut().adopt(self.soft(), || self.tuning());
        if adopted.is_some() {
            self.settle();
        }
    }

    /// A mode has been adopted: who drains, where messages go, and whether the vector is masked, are as it wants them. A
    /// look follows.
    #[cold]
    fn settle(&self) {
        let mode = self.mode();
        self.settle_placement(mode);
        self.posting.settle(mode, &self.queue);
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
        if let Err(error) = drain::engage(&self.queue) {
            tracing::error!(%error, "no thread to drain the queue: its own thread does, as in interrupt");
            return;
        }
        let mut looker = self.looker.borrow_mut();
        looker.drained = true;
        if alone {
            // Until now nobody else could be woken by the vector.
            looker.owner = false;
            if let Err(error) = watch(&self.queue, &self.place, &mut looker) {
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
        if let Err(error) = watch(&self.queue, &self.place, &mut looker) {
            tracing::error!(%error, "a queue's vector cannot be watched");
        }
    }

    /// Whether the two lead to one controller.
    pub(crate) fn is_beside(&self, other: &Queue) -> bool {
        Arc::ptr_eq(&self.queue.link, &other.queue.link)
    }

    /// Another queue of the same thread, beside this one, is notified for this one as well, where messages are posted.
    pub(crate) fn share_notification(&self, home: &Queue) {
        if !self.queue.serves_several() && !home.queue.serves_several() {
            self.posting.set_home(home.queue.vector, &self.queue);
            self.settle_mask();
            self.looker.borrow_mut().woken(Woke { cause: Cause::Other, late: Nanos::ZERO });
        }
    }

    pub(crate) fn look(&self, budget: u32) -> (u32, Option<Nanos>) {
        let mut looker = self.looker.borrow_mut();
        let read = looker.look(&self.queue, self.soft(), budget);
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

    /// Wakers run here, outside every lock and borrow: they may do anything with the queue.
    #[inline(never)]
    fn wake_all(&self) {
        let mut wakers = self.looker.borrow_mut().take_wakers();
        executor::wake_all(wakers.drain(..));
        self.looker.borrow_mut().keep_wakers(wakers);
    }

    pub(crate) fn spins(&self) {
        self.looker.borrow_mut().counters.spins += 1;
    }

    #[inline]
    pub(crate) fn look_while_spinning(&self) -> bool {
        let found = self.queue.pair.pending() || !self.soft().inbox.is_empty();
        if found {
            self.looker.borrow_mut().found_something();
        }
        found
    }

    pub(crate) fn spun_in_vain(&self, now: Nanos) {
        self.looker.borrow_mut().sample_delay(now);
    }

    /// The arming half of law 1. `sleeping`: the queue's own plan is to sleep on its notification.
    pub(crate) fn arm(&self, sleeping: bool) {
        self.soft().bell.arm();
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
            looker.owner = self.queue.role.try_take(engine::sleeper(self.me));
            looker.registered = true;
            if let Err(error) = watch(&self.queue, &self.place, &mut looker) {
                tracing::error!(%error, "a queue's vector cannot be watched");
            }
        }
        if looker.owner && !looker.kept_armed && !self.posting.has_another_round(&self.queue) {
            self.queue.arm_vector();
            self.posting.look(&self.queue);
        }
    }

    /// The look between arming and blocking. In `interrupt` mode the vector is never masked and its messages are
    /// sticky, so that nothing can be missed and looking would only be a free poll; unless another thread may have held
    /// the lock when the message was followed. A vector that was kept armed has told of everything as well.
    pub(crate) fn look_before_sleep(&self) -> bool {
        let looker = self.looker.borrow();
        let needed = self.queue.is_shared() || looker.policy.masks() && !looker.kept_armed;
        // Another thread may have ended requests since the plan was made, and told before the bell was armed.
        let changed = looker.seen.in_flight != self.soft().open();
        drop(looker);
        // Asked in any case: it tells once.
        let posted = self.posted_to();
        posted || self.look_once_more(needed) || changed || self.soft().mode_asked()
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
    fn look_once_more(&self, at_queue: bool) -> bool {
        let mut looker = self.looker.borrow_mut();
        let found = !self.soft().inbox.is_empty() || at_queue && looker.owner && self.queue.pair.pending();
        if found {
            looker.found_something();
        }
        found
    }

    /// Awake again: masks what was armed, counts, and notes for the policy why.
    pub(crate) fn woken(&self, found: bool, nap: bool, notified: bool, woke_at: Nanos, until: Nanos, cycle: Option<Nanos>) {
        self.soft().bell.mask();
        let mut looker = self.looker.borrow_mut();
        looker.mask_or_keep(&self.queue, self.soft());
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
        let notified = self.posting.was_called(&self.queue) || notified;
        looker.counters.wakeups += 1;
        if let Some(wakeups) = &mut looker.wakeups
            && notified
        {
            wakeups.woken(woke_at - self.queue.link.take_message_time(self.queue.vector).unwrap_or(woke_at));
        }
        looker.woken(engine::cause(notified, woke_at, until));
    }

    /// The thread goes back to its caller: hands on the role of looking, if others need it.
    #[inline]
    pub(crate) fn leave(&self) {
        if self.queue.is_shared() {
            self.leave_shared();
        }
    }

    fn leave_shared(&self) {
        let mut looker = self.looker.borrow_mut();
        if looker.registered {
            looker.registered = false;
            looker.owner = false;
            if let Some(heir) = self.queue.role.release(engine::sleeper(self.me)) {
                self.queue.tell_sleeper(heir);
                return;
            }
        }
        drop(looker);
        self.tell_owner();
    }

    /// This thread goes away from entries that it knows of: whoever sleeps on the vector may have found the lock busy.
    fn tell_owner(&self) {
        if self.queue.is_shared()
            && self.looker.borrow().seen.pending
            && let Some(owner) = self.queue.role.owner()
        {
            self.queue.tell_sleeper(owner);
        }
    }

    /// Takes what the poller has to report, without waiting. Whether the vector was among it.
    pub(crate) fn drain_events(&self) -> io::Result<bool> {
        self.place.drain(KEY_VECTOR)
    }

    /// In a mode that never masks, the vector is armed from now on; in any other it is masked while awake.
    fn settle_mask(&self) {
        let mut looker = self.looker.borrow_mut();
        looker.kept_armed = false;
        if !looker.policy.masks() || !self.queue.maskable {
            self.queue.arm_vector();
        } else if looker.owner {
            self.queue.mask_vector();
        }
    }
}

/// Puts the vector into the poller of the thread that sleeps on it, and takes it out of any other's.
fn watch(queue: &HwQueue, place: &Place, looker: &mut Looker) -> io::Result<()> {
    let Some(eventfd) = queue.link.vectors().eventfd(queue.vector) else { return Ok(()) };
    match (looker.owner, looker.polled) {
        (true, false) => place.poller().add(eventfd, KEY_VECTOR)?,
        (false, true) => place.poller().remove(eventfd)?,
        _ => return Ok(()),
    }
    looker.polled = looker.owner;
    Ok(())
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.commit();
        self.leave();
        if self.looker.borrow().drained {
            self.queue.drain.dismiss();
        }
        self.posting.end(&self.queue);
        self.soft().holds.set(Coalesce::OFF);
        self.soft().requests().disown_all();
        self.shared.give_back(&self.queue, self.me);
    }
}

#[cfg(test)]
mod tests;
