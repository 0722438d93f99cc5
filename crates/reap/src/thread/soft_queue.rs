//! A software queue: one thread's way to one controller.

mod driven;
mod foreign;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use completion::{Batch, Decisions, LatencyPrice, Mode, Policy, Route, Spin, Tuning, WEIGHT, Woke};
use hw::{Birth, DmaPool};
use units::Nanos;

use super::cycle;
use super::engine::{Driven, KEY_WAKE, Place, report};
use super::executor::{self, Signal};
use super::looker::Looker;
use super::posting::Posting;
use crate::counters::{Counters, HardwareCounters};
use crate::error::{QueueError, Refused, WouldDeadlock};
use crate::namespace::Namespace;
use crate::request::{Completion, Request};
use crate::shared::book::{Claim, Requests};
use crate::shared::controller::Controller;
use crate::shared::future::Pending;
use crate::shared::hw_queue::{HwQueue, Submitted};
use crate::shared::soft::Soft;
use crate::wakeups::Wakeups;
use foreign::Outside;
pub use foreign::Turned;

/// A software queue of one controller: [`crate::Queue`] has one, or one for each path.
pub(crate) struct SoftQueue {
    controller: Controller,
    /// What it shares with others.
    pub(crate) queue: Arc<HwQueue>,
    soft: Arc<Soft>,
    me: u8,
    /// The process that the lanes belong to.
    birth: Birth,
    place: Place,
    looker: RefCell<Looker>,
    posting: Posting,
    /// What of the vector's descriptor this thread's poller reports.
    watched: Cell<bool>,
    /// A foreign loop turns the queue, and has not left it.
    in_loop: Cell<bool>,
    outside: Outside,
    /// Something was posted and not yet committed.
    uncommitted: Cell<bool>,
    /// The clock read of the last batch.
    clock: Cell<Nanos>,
    /// The application's iterator runs: the book is its thread's, and the queue cannot be used.
    submitting: Cell<bool>,
    price: Cell<LatencyPrice>,
    signal: Arc<Signal>,
}

impl SoftQueue {
    /// A software queue of `controller` for the calling thread, in `mode`, or in that of its controller.
    ///
    /// # Errors
    /// All of them are taken, or the system is out of descriptors.
    pub(crate) fn take(controller: &Controller, mode: Option<Mode>) -> Result<SoftQueue, QueueError> {
        let (queue, me) = controller.take(mode.unwrap_or_else(|| controller.mode()))?;
        let taken = SoftQueue::new(controller.clone(), queue.clone(), me, mode).inspect_err(|_| controller.give_back(&queue, me))?;
        controller.begun(&queue, me);
        Ok(taken)
    }

    fn new(controller: Controller, queue: Arc<HwQueue>, me: u8, mode: Option<Mode>) -> Result<SoftQueue, QueueError> {
        let system = |what| move |source| QueueError::System { what, source };
        let place = Place::new().map_err(system("epoll instance"))?;
        let soft = queue.softs[usize::from(me)].clone();
        place.poller().add(&*soft.wake, KEY_WAKE).map_err(system("wake-up descriptor"))?;
        let tuning = Tuning { price: controller.price(), machine: cycle::known() };
        let begins = soft.mode.begin(|| controller.mode_on(None, mode.unwrap_or_else(|| controller.mode())));
        let policy = Policy::with(begins, &tuning);
        let mut looker = Looker::new(me, policy);
        if soft.open() > 0 {
            // The last thread's entries may have come while the vector was masked: begin with a look.
            looker.waiter.woken(Woke::OTHER);
        }
        looker.waiter.owner = !queue.is_shared();
        let queue = SoftQueue {
            signal: Arc::new(Signal::new(soft.wake.clone())),
            soft,
            price: Cell::new(tuning.price),
            controller,
            birth: queue.lane.birth(),
            queue,
            me,
            place,
            looker: RefCell::new(looker),
            posting: Posting::default(),
            uncommitted: Cell::new(false),
            clock: Cell::new(hw::now()),
            submitting: Cell::new(false),
            watched: Cell::new(false),
            in_loop: Cell::new(false),
            outside: Outside::default(),
        };
        queue.vector().watch(!queue.queue.is_shared());
        queue.settle();
        Ok(queue)
    }

    /// The device's namespaces.
    pub(crate) fn namespaces(&self) -> &[Namespace] {
        self.controller.namespaces()
    }

    /// The device's buffers.
    pub(crate) fn pool(&self) -> &DmaPool {
        self.controller.pool()
    }

    /// Submits requests: posts as many as there are tags, the others wait in line, and rings the doorbell once. `now`
    /// is the clock read of the batch ([`crate::now`]): time-outs count from it.
    ///
    /// # Errors
    /// The first request that cannot be carried out, and why; those before it are submitted, those after it stay in
    /// the iterator. The iterator runs while the queue is locked and must not use it. If it panics, the requests that it has
    /// yielded are submitted.
    #[inline]
    pub(crate) fn submit(&self, now: Nanos, requests: impl IntoIterator<Item = Request>) -> Result<(), (Refused, Request)> {
        self.clock.set(now);
        if !self.is_here() {
            return executor::refuse(Refused::Forked, requests);
        }
        let Some(inside) = self.enter() else { return executor::refuse(Refused::InsideSubmit, requests) };
        let mut book = self.soft.requests();
        let mut requests = requests.into_iter();
        let ways = (self.controller.checker(), |batch: &Batch| self.route(now, batch));
        let mut submitted = self.queue.submit(self.me, &mut book, now, (true, Claim::Batch), &mut requests, ways);
        if submitted.refused.is_some() {
            self.look_up(&mut book, now, (true, Claim::Batch), &mut submitted, &mut requests);
        }
        let class = if self.looker.borrow().waiter.policy.wants_class() { book.last_class() } else { None };
        drop(book);
        if self.uncommitted.replace(false) && self.queue.polled.is_some() {
            // What was held before may have gone to the other lane.
            self.queue.commit();
        }
        drop(inside);
        if submitted.batch.commands > 0 {
            self.committed(now, &Batch { class, ..submitted.batch });
        }
        submitted.refused.map_or(Ok(()), |refused| Err(*refused))
    }

    /// Some namespace may not be what it was: then the request that was refused and those that follow are looked up one by one.
    #[cold]
    #[inline(never)]
    fn look_up(
        &self,
        book: &mut Requests,
        now: Nanos,
        how: (bool, Claim),
        submitted: &mut Submitted,
        rest: &mut impl Iterator<Item = Request>,
    ) {
        let Some(refused) = submitted.refused.take_if(|refused| self.controller.looks_up(refused)) else { return };
        let ways = (self.controller.looking_checker(), |batch: &Batch| self.route(now, batch));
        *submitted = self.queue.submit(self.me, book, now, how, std::iter::once(refused.1).chain(rest), ways);
    }

    /// The lane of a batch that is about to be posted, where there are two.
    fn route(&self, now: Nanos, batch: &Batch) -> Route {
        // A foreign loop never spins: what does not notify would have to be looked for by its timer.
        if self.in_loop.get() { Route::Notify } else { self.looker.borrow().waiter.policy.route(now, batch) }
    }

    /// From here on the application's code may run, and find the queue in use. `None`: it does already.
    #[inline]
    fn enter(&self) -> Option<Submitting<'_>> {
        if self.submitting.replace(true) { None } else { Some(Submitting(self)) }
    }

    /// A batch was committed: its policy is told, and may want to look.
    #[inline(always)]
    fn committed(&self, now: Nanos, batch: &Batch) {
        let check = self.looker.borrow_mut().waiter.policy.submitted(now, batch);
        if check {
            self.check(WEIGHT);
        }
    }

    /// A look as a batch is committed. Apart from the loop over the requests, which needs every register.
    #[inline(never)]
    fn check(&self, budget: u32) {
        let checked = self.looker.borrow_mut().check(&self.queue, &self.soft, budget);
        if checked {
            self.wake_all();
            let owner = self.looker.borrow_mut().waiter.leaves_behind(&mut self.vector());
            self.tell(owner);
        }
    }

    /// Moves finished requests of [`SoftQueue::submit`] to `out`, as many as fit into its capacity (at least one). Only
    /// what has been found already: [`SoftQueue::wait`] and [`SoftQueue::turn`] look. Returns how many.
    pub(crate) fn reap(&self, out: &mut Vec<Completion>) -> usize {
        if self.soft.done() == 0 || self.submitting.get() {
            return 0;
        }
        let room = (out.capacity() - out.len()).max(1);
        let moved = self.soft.requests().take_done(room, out);
        self.queue.serve_own(self.clock.get());
        moved
    }

    /// Gives all that [`SoftQueue::reap`] would move to `take`, which must not use the queue: it is locked.
    #[inline]
    pub(crate) fn reap_each(&self, take: impl FnMut(Completion)) {
        self.soft.requests().take_each_done(take);
        self.queue.serve_own(self.clock.get());
    }

    /// Finished requests that [`SoftQueue::reap`] would move.
    pub(crate) fn finished(&self) -> usize {
        self.soft.done() as usize
    }

    /// Whether the application's iterator runs.
    pub(crate) fn is_submitting(&self) -> bool {
        self.submitting.get()
    }

    /// Requests that are not finished.
    pub(crate) fn in_flight(&self) -> u32 {
        self.soft.open()
    }

    /// Enters a call that blocks.
    #[inline]
    fn enter_wait(&self) -> Result<executor::Inside, WouldDeadlock> {
        if self.submitting.get() { Err(WouldDeadlock) } else { executor::enter() }
    }

    /// Drives the queue, as its completion mode plans, until at least `min` requests can be reaped, until `until`
    /// ([`Nanos::MAX`]: no limit), or, unless `idle` too is waited out, until nothing is in flight. Returns how many can be reaped.
    ///
    /// # Errors
    /// [`WouldDeadlock`] inside `block_on`, and inside an iterator that is being submitted.
    #[inline]
    pub(crate) fn wait(&self, min: usize, until: Nanos, idle: bool) -> Result<usize, WouldDeadlock> {
        let _inside = self.enter_wait()?;
        self.drive_alone(self.clock.get(), until, idle, || self.finished() >= min);
        Ok(self.finished())
    }

    /// A request as a future. It is posted at once; the doorbell rings when the queue is next driven, or by
    /// [`SoftQueue::commit`].
    pub(crate) fn start(&self, request: Request) -> Pending {
        let now = hw::now();
        self.clock.set(now);
        if self.submitting.get() {
            return Pending::refused(Refused::InsideSubmit, request);
        }
        if !self.is_here() {
            return Pending::refused(Refused::Forked, request);
        }
        let mut book = self.soft.requests();
        let (tickets, at) = (book.tickets().clone(), book.tickets().issue());
        let (how, ways) = ((false, Claim::Future(at)), (self.controller.checker(), |batch: &Batch| self.route(now, batch)));
        let mut submitted = self.queue.submit(self.me, &mut book, now, how, [request], ways);
        if submitted.refused.is_some() {
            self.look_up(&mut book, now, how, &mut submitted, &mut std::iter::empty());
        }
        drop(book);
        self.queue.serve_own(now);
        self.uncommitted.set(true);
        match submitted.refused {
            None => Pending::new(tickets, at),
            Some(refused) => {
                tickets.withdraw(at);
                Pending::refused(refused.0, refused.1)
            }
        }
    }

    /// Drives the queue until `enough`; what the caller waits for may come from elsewhere.
    pub(crate) fn drive(&self, until: Nanos, enough: impl Fn() -> bool) {
        self.drive_alone(self.clock.get(), until, true, enough);
    }

    /// Drives this queue and no other.
    #[inline(always)]
    fn drive_alone(&self, now: Nanos, until: Nanos, for_others: bool, enough: impl Fn() -> bool) {
        if !self.is_here() {
            // Nothing comes any more in this process.
            return;
        }
        self.commit();
        report(self.place.drive(&[self], now, until, for_others, enough));
    }

    /// Changes the completion mode, with requests in flight or without. Nothing is lost and nothing comes twice.
    pub(crate) fn set_mode(&self, mode: Mode) {
        let means = self.controller.mode_for(self.hardware_queue(), None, mode);
        cycle::prepare(means);
        self.soft.mode.ask(means);
        self.controller.kick_keeper();
    }

    /// Changes how late [`Mode::ADAPTIVE`] may be on this queue, from what its device was opened with; with requests in flight
    /// or without.
    pub(crate) fn set_latency_price(&self, price: LatencyPrice) {
        if self.price.replace(price) != price {
            let tuning = self.tuning();
            self.looker.borrow_mut().retune(&tuning);
        }
    }

    /// See [`crate::Queue::set_spin`].
    pub(crate) fn set_spin(&self, spin: Spin) {
        let mut looker = self.looker.borrow_mut();
        looker.spin = spin;
        // What was told under the other meaning.
        looker.waiter.seen.cpu_wanted = false;
    }

    /// See [`crate::Queue::set_wants_room_at`].
    pub(crate) fn set_wants_room_at(&self, due: Option<Nanos>) {
        self.looker.borrow_mut().waiter.seen.wants_room_at = due;
    }

    /// See [`crate::Queue::wants_room_at`].
    pub(crate) fn wants_room_at(&self) -> Option<Nanos> {
        self.looker.borrow().waiter.seen.wants_room_at
    }

    fn tuning(&self) -> Tuning {
        Tuning { price: self.price.get(), machine: cycle::known() }
    }

    /// The completion mode in force.
    pub(crate) fn mode(&self) -> Mode {
        self.looker.borrow().waiter.policy.mode()
    }

    /// See [`crate::Queue::looks_on_commit`].
    pub(crate) fn looks_on_commit(&self) -> bool {
        self.looker.borrow().waiter.policy.looks_on_commit()
    }

    /// What this queue's thread has counted.
    pub(crate) fn counters(&self) -> Counters {
        self.looker.borrow().counters
    }

    /// What this queue's thread has counted since the last call, or since the queue was taken.
    pub(crate) fn take_counters(&self) -> Counters {
        std::mem::take(&mut self.looker.borrow_mut().counters)
    }

    /// What has been counted of the hardware queue that this one posts to, for all the software queues that share it.
    pub(crate) fn hardware_counters(&self) -> HardwareCounters {
        self.controller.hardware_counters(&self.queue)
    }

    /// How often its policy has decided what, since the mode was adopted: in [`Mode::ADAPTIVE`] alone.
    pub(crate) fn decisions(&self) -> Option<Decisions> {
        self.looker.borrow().waiter.policy.decisions().copied()
    }

    /// From now on counts what wake-ups bring ([`SoftQueue::wakeups`]).
    pub(crate) fn count_wakeups(&self) {
        self.looker.borrow_mut().wakeups = Some(Box::new(Wakeups::begun(hw::now())));
    }

    /// What wake-ups have brought since [`SoftQueue::count_wakeups`].
    pub(crate) fn wakeups(&self) -> Wakeups {
        self.looker.borrow().wakeups.as_deref().copied().unwrap_or_default()
    }

    /// The hardware queue that this one posts to, from 0.
    pub(crate) fn hardware_queue(&self) -> u16 {
        self.queue.lane.id().0 - 1
    }

    /// Rings the doorbell for what [`SoftQueue::start`] has posted.
    #[inline(always)]
    pub(crate) fn commit(&self) {
        if self.uncommitted.replace(false) {
            self.queue.commit();
        }
    }

    /// Whether this process made it, and not one that has forked since.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.birth.is_here()
    }

    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }
}

/// While this lives the application's iterator may run.
struct Submitting<'a>(&'a SoftQueue);

impl Drop for Submitting<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.submitting.set(false);
        // Owed once the book is unlocked, which it is, even where the iterator has panicked.
        self.0.queue.serve_own(self.0.clock.get());
    }
}

impl Drop for SoftQueue {
    fn drop(&mut self) {
        if !self.is_here() {
            // All that would be told or waited for here is the parent's: its threads are not in this process.
            return;
        }
        self.commit();
        Driven::leave(self);
        if self.looker.borrow().waiter.others_look {
            self.queue.drain.dismiss();
        }
        self.posting.end(&self.queue.lane);
        self.soft.requests().disown_all();
        self.controller.give_back(&self.queue, self.me);
    }
}

#[cfg(test)]
pub(super) use tests::by_hand;
#[cfg(test)]
mod tests;
