//! One thread's queue on one controller: its open requests, its completion policy, and its transport. Nothing here is locked, because no
//! other thread touches it: what others want of the queue they leave in [`QueueShared`].
//!
//! ```text
//!  submit   check → slot → push             then one commit, unless the caller sleeps next
//!  wait     policy → reap | spin | nap | sleep, until enough requests are finished
//!  reap     finished slots → the caller
//! ```

use std::cell::{Cell, RefCell, RefMut};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::Waker;

use completion::{
    Batch, Decisions, Done, LatencyPrice, Lawful, Mode, Notification, Plan, Policy, Route, Spin, Tuning, WEIGHT, Waiter, Woke,
};
use hw::{Birth, DmaBuf, DmaPool, Lent};
use units::Nanos;

use super::contention::Contention;
use super::cycle;
use super::engine::{Driven, KEY_VECTOR, KEY_WAKE, Measured, Place, SPINS_PER_CLOCK, Slept, cause};
use super::executor::{self, Inside, Signal};
use super::soft_queue::Turned;
use crate::counters::{Counters, HardwareCounters};
use crate::error::{QueueError, Refused, WouldDeadlock};
use crate::link::{QueueTransport, SleepFor};
use crate::namespace::Namespace;
use crate::request::{Completion, Request, Token};
use crate::shared::book::{Claim, Requests};
use crate::shared::controller::Controller;
use crate::shared::future::Pending;
use crate::shared::queue_shared::{Orphan, QueueShared};
use crate::shared::reports::Reporter;
use crate::wakeups::Wakeups;

/// Of a policy that weighs what sleeps cost, one sleep in this many is measured, and one turn of a foreign loop in this many.
const MEASURED_SLEEPS: u32 = 32;
const MEASURED_TURNS: u32 = 8;

/// A queue of one thread on the transport `T`.
pub(crate) struct QueuePair<T: QueueTransport> {
    controller: Controller,
    shared: Arc<QueueShared>,
    /// The process that it belongs to.
    birth: Birth,
    signal: Arc<Signal>,
    /// Where a foreign loop, or a thread with several queues, waits for it.
    place: Place,
    /// Requests that can be reaped.
    done: Cell<u32>,
    /// The application's iterator runs: nothing is borrowed meantime, but the queue takes and gives no requests.
    submitting: Cell<bool>,
    inner: RefCell<Inner<T>>,
}

/// What is borrowed while the library's own code runs, and never while the application's does.
pub(crate) struct Inner<T: QueueTransport> {
    transport: T,
    requests: Requests,
    shared: Arc<QueueShared>,
    reporter: Reporter,
    waiter: Waiter,
    price: LatencyPrice,
    /// What spinning means where others want the CPU.
    spin: Spin,
    counters: Counters,
    wakeups: Option<Box<Wakeups>>,
    /// How long a request may take, and when one may have taken longer.
    timeout: Nanos,
    late_at: Nanos,
    /// The clock read of the last batch; and the one of the last wake-up, for the poll that follows it.
    clock: Nanos,
    woke_at: Option<Nanos>,
    /// Finished requests that the caller waits for.
    wanted: u32,
    /// Requests of futures may be open: each of them is waited for by itself.
    has_futures: bool,
    /// A foreign loop turns the queue, and has not left it; its turns.
    in_loop: bool,
    turns: u32,
    /// When the loop left with something to compute, and how often its thread had slept until then: of a turn that is measured.
    left_at: Option<(Nanos, u64)>,
    /// The place reports the transport's notification.
    watched: bool,
    sleeps: u32,
    records: Vec<Done>,
    wakers: Vec<Waker>,
    contention: Contention,
}

/// The notification of a transport that masks nothing, and that no other queue shares.
struct NeverMasked;

impl Notification for NeverMasked {
    type Thread = ();

    #[inline]
    fn is_shared(&self) -> bool {
        false
    }

    #[inline]
    fn is_alone(&self) -> bool {
        false
    }

    fn arm(&mut self) {}

    fn mask(&mut self) {}

    fn pending(&mut self) -> bool {
        false
    }

    fn take_role(&mut self) -> bool {
        true
    }

    fn has_role(&self) -> bool {
        true
    }

    fn release_role(&mut self) -> Option<()> {
        None
    }

    fn other_owner(&mut self) -> Option<()> {
        None
    }
}

impl<T: QueueTransport> Inner<T> {
    /// What to do next. The caller goes on at `goes_on_at`, whatever has been found. `alone`: the thread drives no other queue, so that a sleep
    /// of the transport's submits what was posted.
    #[inline]
    fn plan(&mut self, now: Nanos, goes_on_at: Nanos, alone: bool) -> Plan {
        if let Some(mode) = self.shared.mode.adopt(self.waiter.policy.word()) {
            self.adopt(mode);
        }
        if now >= self.late_at {
            self.cancel_late(now);
        }
        if !(T::SUBMITS_IN_SLEEP && alone) {
            self.transport.commit();
        }
        if let Some(plan) = self.waiter.looks_first(|| self.transport.pending()).or_else(|| self.waiter.looks_when_woken()) {
            return plan;
        }
        let wants = self.wants(alone);
        let seen = &mut self.waiter.seen;
        seen.wants = wants;
        // A sleep for several counts what is there already.
        seen.pending &= wants < 2;
        seen.goes_on_at = (goes_on_at != Nanos::MAX).then_some(goes_on_at);
        (seen.in_flight, seen.urgent_waiting) = (self.requests.open(), self.requests.urgent());
        self.waiter.set_silent(self.transport.polled_in_flight());
        let plan = self.waiter.next(now, &mut NeverMasked);
        if T::SUBMITS_IN_SLEEP && alone && matches!(plan, Plan::Spin { .. } | Plan::Rest) {
            self.transport.commit();
        }
        plan
    }

    /// How many more completions the caller needs to go on, where a sleep may be for as many. Fewer must end it where each is waited for by
    /// itself, or a request waits for the place that it leaves.
    #[inline]
    fn wants(&self, alone: bool) -> u32 {
        let more = self.wanted.saturating_sub(self.requests.done());
        let several = more > 1 && alone && self.requests.urgent() == 0 && !self.has_futures && !self.requests.is_waiting();
        let counts = several && self.transport.counts_completions() && self.transport.polled_in_flight() == 0;
        if counts { more.min(self.requests.open()) } else { 0 }
    }

    /// Polls the completion queue for at most `budget` entries. When that was.
    #[inline]
    fn poll(&mut self, budget: u32) -> Nanos {
        let (slept, met) = self.waiter.begin_look();
        self.counters.looks += 1;
        if self.shared.fails_pending() {
            self.requests.lose_patience();
        }
        let wants_records = self.waiter.policy.wants_done();
        let (mut read, requests, records, wakers) = (self.woke_at.take(), &mut self.requests, &mut self.records, &mut self.wakers);
        let polled = self.transport.reap(budget, |completed| {
            let now = *read.get_or_insert_with(hw::now);
            if wants_records {
                records.extend(requests.record(Token(completed.token), completed.posted_at, now, slept));
            }
            wakers.extend(requests.answer(completed, now));
        });
        let seen = &mut self.waiter.seen;
        (seen.found, seen.budget_used_up, seen.pending) = (polled.found, polled.budget_used_up, polled.more);
        if polled.found == 0 {
            self.counters.empty_looks += 1;
            return hw::now();
        }
        let now = read.unwrap_or_else(hw::now);
        seen.met_at = met.then_some(now);
        self.clock = now;
        self.counters.entries += u64::from(polled.found);
        self.counters.drains += 1;
        self.counters.drain_max = self.counters.drain_max.max(polled.found);
        if let Some(wakeups) = &mut self.wakeups {
            wakeups.took(polled.found, now);
        }
        if self.requests.is_waiting() {
            self.post_waiting(now);
        }
        if wants_records {
            self.waiter.policy.completed(&self.records);
            self.records.clear();
        }
        now
    }

    /// There is room again for what waits.
    #[cold]
    fn post_waiting(&mut self, now: Nanos) {
        self.requests.post_waiting(&mut self.transport, now, u32::MAX);
        self.requests.take_ended(&mut self.wakers);
        self.transport.commit();
    }

    /// Looks for completions without reaping them until there are some, or until `until`. When it was over.
    fn spin(&mut self, until: Nanos, enough: &impl Fn() -> bool) -> Nanos {
        (self.counters.spins, self.woke_at) = (self.counters.spins + 1, None);
        let yields = self.spin.gives_way(self.waiter.policy.mode());
        loop {
            for _ in 0..SPINS_PER_CLOCK {
                if self.transport.pending() {
                    self.waiter.found_something();
                    // Whatever the policy, it would plan nothing else.
                    return self.poll(WEIGHT);
                }
                std::hint::spin_loop();
            }
            if yields {
                // Of no effect but a system call's time where no other thread is ready.
                std::thread::yield_now();
            }
            let now = hw::now();
            if now >= until || enough() {
                self.sample_delay(now);
                return now;
            }
        }
    }

    /// Sleeps as the plan says, until `until` at most. When it was over.
    fn sleep(&mut self, until: Nanos, enough: &impl Fn() -> bool) -> Nanos {
        let plan = self.waiter.plan;
        let (mut notified, mut cycle) = (false, None);
        // Armed, and then checked: a thread that asks for something after the check finds it armed, and signals.
        self.shared.wake.arm();
        let found = !self.shared.mode.settled() || enough();
        if !found {
            self.sleeps = self.sleeps.wrapping_add(1);
            let weighs = self.waiter.policy.facts().weighs_sleeps && self.sleeps.is_multiple_of(MEASURED_SLEEPS);
            let measured = weighs.then(Measured::begin);
            let timeout = (until != Nanos::MAX).then(|| until - hw::now());
            let wants = self.waiter.seen.wants;
            notified = match (plan, timeout) {
                (Plan::Sleep { at_least, .. }, _) => self.transport.sleep(SleepFor::Completions(at_least), timeout),
                (Plan::Nap { .. }, Some(nap)) if self.extends_nap() => {
                    let limit = self.waiter.seen.goes_on_at.map(|at| at - hw::now());
                    self.transport.sleep(SleepFor::NapThenFirst(nap, wants), limit)
                }
                (Plan::Nap { .. }, _) => self.transport.sleep(SleepFor::Nap(wants), timeout),
                _ => self.transport.sleep(SleepFor::Completions(1), timeout),
            };
            cycle = measured.and_then(Measured::end);
        }
        self.shared.wake.mask();
        let woke_at = hw::now();
        let nap = matches!(plan, Plan::Nap { .. });
        self.awake(&Slept { found, nap, notified, woke_at, until: plan_end(plan), cycle });
        woke_at
    }

    /// Whether the system can go on with a nap that has brought nothing until the first completion, and the policy would sleep on as well.
    fn extends_nap(&self) -> bool {
        self.waiter.policy.dozes() && self.waiter.silent() == 0 && self.transport.can_extend_nap()
    }

    /// Awake again: counts, and notes for the policy why.
    fn awake(&mut self, &Slept { found, nap, notified, woke_at, until, cycle }: &Slept) {
        self.waiter.seen.cycle = cycle;
        self.woke_at = Some(woke_at);
        self.counters.sleeps += u64::from(!nap);
        self.counters.naps += u64::from(nap);
        if nap || self.waiter.seen.cpu_wanted {
            self.sample_delay(woke_at);
        }
        if found {
            return;
        }
        self.counters.wakeups += 1;
        if let Some(wakeups) = &mut self.wakeups
            && notified
        {
            wakeups.woken(None, woke_at);
        }
        self.waiter.woken(cause(notified, woke_at, until));
    }

    /// Goes on in another mode.
    #[cold]
    fn adopt(&mut self, mode: Mode) {
        self.waiter.adopt(Policy::with(mode, &self.tuning()));
        self.waiter.settle(&mut NeverMasked);
    }

    /// When a request may be late, for the thread that wakes this one then.
    fn set_late_at(&mut self, at: Nanos) {
        self.late_at = at;
        self.shared.set_late_at(at);
    }

    fn tuning(&self) -> Tuning {
        Tuning { price: self.price, machine: cycle::known() }
    }

    /// Nothing can be aborted for sure: what is late is cancelled where that can be, and comes back with its own completion and not before.
    #[cold]
    fn cancel_late(&mut self, now: Nanos) {
        let (late, next) = self.transport.cancel_late(now, self.timeout);
        self.set_late_at(next);
        if late > 0 {
            self.reporter.cancelled(late, self.shared.id - 1, self.timeout);
        }
    }

    /// Tells the policy whether others want this CPU, unless its mode spins and is to spin all the same.
    fn sample_delay(&mut self, now: Nanos) {
        if let Some(wanted) = self.contention.sample(now) {
            self.waiter.seen.cpu_wanted = wanted && self.spin.tells_wanted(self.waiter.policy.mode());
        }
    }
}

impl<T: QueueTransport> Orphan for Inner<T> {
    fn turn(&mut self, now: Nanos) -> (Vec<Waker>, Vec<DmaBuf>) {
        self.requests.keep_registered();
        if now >= self.late_at {
            self.cancel_late(now);
        }
        self.transport.commit();
        self.poll(WEIGHT);
        self.shared.set_open(self.requests.open());
        (std::mem::take(&mut self.wakers), self.requests.take_kept())
    }

    fn shared(&self) -> &Arc<QueueShared> {
        &self.shared
    }

    fn cancel_all(&mut self) {
        (self.timeout, self.late_at) = (Nanos::ZERO, Nanos::ZERO);
    }

    fn lose_all(&mut self) -> (Vec<Waker>, Vec<DmaBuf>) {
        let left = self.requests.open();
        if left == 0 {
            return (Vec::new(), Vec::new());
        }
        tracing::error!(queue = self.shared.id, left, "the kernel has not answered requests of a closed queue: their buffers are leaked");
        self.reporter.noted(format!("queue {} was left with {left} requests that the kernel has not answered", self.shared.id - 1));
        self.requests.lose_all(hw::now(), &mut self.wakers);
        self.shared.set_open(0);
        (std::mem::take(&mut self.wakers), self.requests.take_kept())
    }
}

/// When the plan was to be over.
fn plan_end(plan: Plan) -> Nanos {
    match plan {
        Plan::Spin { until } | Plan::Nap { until } | Plan::Sleep { until, .. } => until,
        Plan::Look { .. } | Plan::Rest => Nanos::MAX,
    }
}

impl<T: QueueTransport> QueuePair<T> {
    /// A queue of `controller` for the calling thread, over `transport`, in the mode that `shared` has.
    ///
    /// # Errors
    /// The system is out of descriptors.
    pub(crate) fn new(controller: Controller, shared: Arc<QueueShared>, transport: T, birth: Birth) -> Result<QueuePair<T>, QueueError> {
        let system = |what| move |source| QueueError::System { what, source };
        let place = Place::new().map_err(system("epoll instance"))?;
        place.poller().add(&*shared.wake, KEY_WAKE).map_err(system("wake-up descriptor"))?;
        let (price, mode) = (controller.price(), shared.mode.asked().unwrap_or(Mode::INTERRUPT));
        let mut waiter = Waiter::new(Policy::with(mode, &Tuning { price, machine: cycle::known() }), Lawful);
        waiter.owner = true;
        let inner = Inner {
            transport,
            requests: Requests::new(0),
            shared: shared.clone(),
            reporter: controller.reporter(),
            waiter,
            price,
            spin: Spin::Naps,
            counters: Counters::default(),
            wakeups: None,
            timeout: controller.timeout(),
            late_at: Nanos::MAX,
            clock: hw::now(),
            woke_at: None,
            wanted: 0,
            has_futures: false,
            in_loop: false,
            turns: 0,
            left_at: None,
            watched: false,
            sleeps: 0,
            records: Vec::with_capacity(256),
            wakers: Vec::new(),
            contention: Contention::default(),
        };
        let signal = Arc::new(Signal::new(shared.wake.clone()));
        Ok(QueuePair {
            controller,
            shared,
            birth,
            signal,
            place,
            done: Cell::new(0),
            submitting: Cell::new(false),
            inner: RefCell::new(inner),
        })
    }

    pub(crate) fn namespaces(&self) -> &[Namespace] {
        self.controller.namespaces()
    }

    pub(crate) fn pool(&self) -> &DmaPool {
        self.controller.pool()
    }

    /// See [`crate::Queue::submit_at`]. If the caller `waits` next and the transport can submit as it sleeps, the wait announces them.
    #[inline(never)] // Next to the other kind of queue, the loops of both would have fewer registers.
    pub(crate) fn submit(&self, now: Nanos, waits: bool, requests: impl IntoIterator<Item = Request>) -> Result<(), (Refused, Request)> {
        if !self.is_here() {
            return executor::refuse(Refused::Forked, requests);
        }
        if self.submitting.get() {
            return executor::refuse(Refused::InsideSubmit, requests);
        }
        let requests = requests.into_iter();
        // A mode that polls after each commit has them announced at once: that poll is what it is for.
        let holds = waits && T::SUBMITS_IN_SLEEP && !self.looks_on_commit();
        let batch = Submission::begin(self, now, holds, requests.size_hint().0);
        let check = self.controller.file_checker();
        let mut refused = None;
        for request in requests {
            let (checked, request) = check(request);
            if let Err(why) = checked {
                refused = Some((why, request));
                break;
            }
            if let Err(request) = batch.submit(request, Claim::Batch) {
                refused = Some((Refused::TooMany, request));
                break;
            }
        }
        drop(batch);
        refused.map_or(Ok(()), Err)
    }

    /// See [`crate::Queue::start`].
    pub(crate) fn start(&self, request: Request) -> Pending {
        if !self.is_here() {
            return Pending::refused(Refused::Forked, request);
        }
        if self.submitting.get() {
            return Pending::refused(Refused::InsideSubmit, request);
        }
        let (checked, request) = self.controller.file_checker()(request);
        if let Err(why) = checked {
            return Pending::refused(why, request);
        }
        let tickets = self.inner.borrow().requests.tickets().clone();
        let ticket = tickets.issue();
        // Announced when the queue is next driven, or by `commit`.
        let batch = Submission::begin(self, hw::now(), true, 1);
        self.inner.borrow_mut().has_futures = true;
        match batch.submit(request, Claim::Future(ticket)) {
            Ok(()) => Pending::new(tickets, ticket),
            Err(request) => {
                tickets.withdraw(ticket);
                Pending::refused(Refused::TooMany, request)
            }
        }
    }

    /// See [`crate::Queue::reap`].
    pub(crate) fn reap(&self, out: &mut Vec<Completion>) -> usize {
        if self.done.get() == 0 || self.submitting.get() {
            return 0;
        }
        let mut inner = self.inner.borrow_mut();
        let room = (out.capacity() - out.len()).max(1);
        let moved = inner.requests.take_done(room, out);
        self.done.set(inner.requests.done());
        moved
    }

    /// Gives all of them to `take`, which must not use the queue.
    pub(crate) fn reap_each(&self, take: impl FnMut(Completion)) {
        self.inner.borrow_mut().requests.take_each_done(take);
        self.done.set(0);
    }

    /// Finished requests that [`QueuePair::reap`] would move.
    pub(crate) fn finished(&self) -> usize {
        self.done.get() as usize
    }

    /// Requests that are not finished.
    pub(crate) fn in_flight(&self) -> u32 {
        self.shared.open()
    }

    /// Whether the application's iterator runs.
    pub(crate) fn is_submitting(&self) -> bool {
        self.submitting.get()
    }

    /// Drives the queue until at least `min` requests can be reaped, until `until`, or, unless `idle` too is waited out, until nothing is
    /// in flight. Returns how many can be reaped.
    ///
    /// # Errors
    /// [`WouldDeadlock`] inside `block_on`, and inside an iterator that is being submitted.
    #[inline]
    pub(crate) fn wait(&self, min: usize, until: Nanos, idle: bool) -> Result<usize, WouldDeadlock> {
        let _inside: Inside = executor::enter()?;
        if self.is_submitting() {
            return Err(WouldDeadlock);
        }
        self.run(until, idle, Some(u32::try_from(min).unwrap_or(u32::MAX)), || false);
        Ok(self.finished())
    }

    /// Drives the queue until `enough`; what the caller waits for may come from elsewhere.
    pub(crate) fn drive(&self, until: Nanos, enough: impl Fn() -> bool) {
        self.run(until, true, None, enough);
    }

    /// Polls, spins and sleeps as the policy plans, until `wanted` requests can be reaped, `enough`, `until`, or, unless the caller waits for
    /// others too, nothing is in flight. The queue is borrowed between the steps: wakers run when it is not.
    #[inline]
    fn run(&self, until: Nanos, for_others: bool, wanted: Option<u32>, enough: impl Fn() -> bool) {
        if !self.is_here() {
            // Nothing comes any more in this process.
            return;
        }
        let mut inner = self.inner.borrow_mut();
        inner.wanted = wanted.unwrap_or(0);
        // The clock read of the last batch: a plan made with it ends early and is made again, and a busy queue reads the clock once per batch.
        let mut now = inner.clock;
        loop {
            if wanted.is_some_and(|wanted| inner.requests.done() >= wanted) || enough() || now >= until {
                break;
            }
            match inner.plan(now, until, true) {
                Plan::Look { budget } => now = inner.poll(budget.min(WEIGHT)),
                // To the next instant of the caller, who does not wait for it.
                Plan::Spin { .. } if until != Nanos::MAX && !for_others && inner.requests.open() == 0 => break,
                Plan::Spin { until: end } => now = inner.spin(end.min(until), &enough),
                Plan::Nap { until: end } | Plan::Sleep { until: end, .. } => now = self.sleep(&mut inner, end.min(until), &enough),
                Plan::Rest if for_others => now = self.sleep(&mut inner, until, &enough),
                Plan::Rest => break,
            }
            if !inner.wakers.is_empty() {
                inner = self.wake_all(inner);
            }
        }
        // The clock read of a wake-up is that of the poll which follows it, and of no later one.
        (inner.wanted, inner.woke_at) = (0, None);
        inner.transport.commit();
        self.publish(&inner);
    }

    #[inline]
    fn sleep(&self, inner: &mut Inner<T>, until: Nanos, enough: &impl Fn() -> bool) -> Nanos {
        // Other threads may read it during the sleep.
        self.publish(inner);
        inner.sleep(until, enough)
    }

    /// What others may know of the queue.
    #[inline]
    fn publish(&self, inner: &Inner<T>) {
        self.done.set(inner.requests.done());
        self.shared.set_open(inner.requests.open());
    }

    /// Wakers run while nothing is borrowed: they may do anything with the queue.
    #[cold]
    fn wake_all<'a>(&'a self, mut inner: RefMut<'a, Inner<T>>) -> RefMut<'a, Inner<T>> {
        self.publish(&inner);
        let mut wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        executor::wake_all(wakers.drain(..));
        let mut inner = self.inner.borrow_mut();
        if inner.wakers.capacity() == 0 {
            inner.wakers = wakers;
        }
        inner
    }

    /// Announces what was posted.
    pub(crate) fn commit(&self) {
        self.inner.borrow_mut().transport.commit();
    }

    /// Has the transport register the memory of a buffer before a request names it.
    pub(crate) fn prepare(&self, lent: &Lent) {
        if self.is_here() {
            self.inner.borrow_mut().transport.prepare(lent);
        }
    }

    /// Changes the completion mode, with requests in flight or without.
    pub(crate) fn set_mode(&self, mode: Mode) {
        let means = self.controller.mode_for(self.hardware_queue(), self.shared.made_for, mode);
        cycle::prepare(means);
        self.shared.mode.ask(means);
    }

    /// See [`crate::Queue::set_latency_price`].
    pub(crate) fn set_latency_price(&self, price: LatencyPrice) {
        let mut inner = self.inner.borrow_mut();
        if std::mem::replace(&mut inner.price, price) != price {
            let mode = inner.waiter.policy.mode();
            inner.adopt(mode);
        }
    }

    /// See [`crate::Queue::set_spin`].
    pub(crate) fn set_spin(&self, spin: Spin) {
        let mut inner = self.inner.borrow_mut();
        inner.spin = spin;
        // What was said under the other meaning.
        inner.waiter.seen.cpu_wanted = false;
    }

    /// See [`crate::Queue::set_wants_room_at`].
    pub(crate) fn set_wants_room_at(&self, due: Option<Nanos>) {
        self.inner.borrow_mut().waiter.seen.wants_room_at = due;
    }

    /// See [`crate::Queue::wants_room_at`].
    pub(crate) fn wants_room_at(&self) -> Option<Nanos> {
        self.inner.borrow().waiter.seen.wants_room_at
    }

    /// The completion mode in force.
    pub(crate) fn mode(&self) -> Mode {
        self.inner.borrow().waiter.policy.mode()
    }

    /// See [`crate::Queue::looks_on_commit`].
    pub(crate) fn looks_on_commit(&self) -> bool {
        self.inner.borrow().waiter.policy.looks_on_commit()
    }

    /// What the queue's thread has counted.
    pub(crate) fn counters(&self) -> Counters {
        self.inner.borrow().counters
    }

    /// What the queue's thread has counted since the last call, or since the queue was taken.
    pub(crate) fn take_counters(&self) -> Counters {
        std::mem::take(&mut self.inner.borrow_mut().counters)
    }

    /// What has been counted of its transport.
    pub(crate) fn hardware_counters(&self) -> HardwareCounters {
        self.shared.hardware_counters()
    }

    /// How often its policy has decided what, since the mode was adopted: in [`Mode::ADAPTIVE`] alone.
    pub(crate) fn decisions(&self) -> Option<Decisions> {
        self.inner.borrow().waiter.policy.decisions().copied()
    }

    /// From now on counts what wake-ups bring ([`QueuePair::wakeups`]).
    pub(crate) fn count_wakeups(&self) {
        self.inner.borrow_mut().wakeups = Some(Box::new(Wakeups::begun(hw::now())));
    }

    /// What wake-ups have brought since [`QueuePair::count_wakeups`].
    pub(crate) fn wakeups(&self) -> Wakeups {
        self.inner.borrow().wakeups.as_deref().copied().unwrap_or_default()
    }

    /// Its number, from 0.
    pub(crate) fn hardware_queue(&self) -> u16 {
        self.shared.id - 1
    }

    /// Whether this process made it, and not one that has forked since.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.birth.is_here()
    }

    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// From now on its thread may sleep elsewhere than in the transport: with other queues, or in a loop of its own.
    pub(crate) fn sleeps_elsewhere(&self) {
        self.inner.borrow_mut().transport.notify_by_eventfd();
    }

    /// See [`crate::Queue::turn`].
    pub(crate) fn turn(&self, budget: u32) -> Turned {
        if !self.is_here() {
            return Turned { found: 0, more: false };
        }
        if self.submitting.get() {
            // Inside the application's iterator: once it is over there may be something.
            return Turned { found: 0, more: true };
        }
        let mut inner = self.inner.borrow_mut();
        inner.in_loop = true;
        inner.transport.notify_by_eventfd();
        _ = self.place.drain(KEY_VECTOR);
        let weighs = inner.waiter.policy.facts().weighs_sleeps;
        let mut before = 0;
        if weighs {
            // The policy learns of the time outside. It answers with a poll, which follows anyway.
            before = inner.waiter.seen.found;
            // How long the thread has computed since it left: not at all, if it has slept since.
            let computed = inner.left_at.take();
            inner.waiter.seen.cycle =
                computed.map(|(left, sleeps)| if hw::thread_usage().sleeps == sleeps { hw::now() - left } else { Nanos::ZERO });
            inner.waiter.woken(Woke::OTHER);
            inner.plan(hw::now(), Nanos::MAX, false);
        }
        inner.transport.commit();
        let now = inner.poll(budget.max(1));
        inner.transport.commit();
        let found = inner.waiter.seen.found;
        inner.waiter.seen.found += before;
        let there = inner.waiter.seen.found > 0;
        inner.waiter.seen.leaving = true;
        if !matches!(inner.plan(now, Nanos::MAX, false), Plan::Nap { .. }) {
            // No other thread takes completions while the loop waits, whatever the plan.
            inner.waiter.plan = Plan::sleep(Nanos::MAX);
        }
        inner.turns = inner.turns.wrapping_add(u32::from(weighs && there));
        if weighs && there && inner.turns.is_multiple_of(MEASURED_TURNS) {
            inner.left_at = Some((hw::now(), hw::thread_usage().sleeps));
        }
        self.arm_in(&mut inner);
        self.publish(&inner);
        let pending = inner.transport.pending();
        if pending {
            inner.waiter.found_something();
        }
        // A mode that was asked for before the wake-up was armed has not signalled.
        let more = pending || inner.requests.done() > 0 || !self.shared.mode.settled();
        if !inner.wakers.is_empty() {
            drop(self.wake_all(inner));
        }
        Turned { found, more }
    }

    /// See [`crate::Queue::leave_loop`].
    pub(crate) fn leave_loop(&self) {
        self.inner.borrow_mut().in_loop = false;
        self.shared.wake.mask();
    }

    /// See [`crate::Queue::next_deadline`].
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let inner = self.inner.borrow();
        Some(plan_end(inner.waiter.plan)).filter(|&at| at != Nanos::MAX)
    }

    /// Its thread needs it no more. What is in flight is reaped by the housekeeping thread from now on. Where this thread alone can reap it, it
    /// stays for as long as a request may take and the kernel needs to cancel it.
    pub(crate) fn close(self) {
        if !self.is_here() {
            // What would be announced or waited for is the parent's.
            return;
        }
        self.commit();
        let bound = self.inner.borrow().transport.is_bound_to_thread();
        if bound && self.in_flight() > 0 {
            self.run(hw::now() + self.controller.stays(), false, None, || self.in_flight() == 0);
        }
        let QueuePair { controller, shared, inner, .. } = self;
        let mut inner = inner.into_inner();
        inner.requests.disown_all();
        if inner.requests.open() > 0 && !bound {
            return controller.adopt(Box::new(inner));
        }
        let (wakers, memory) = inner.lose_all();
        executor::wake_all(wakers);
        executor::let_go(memory);
        controller.retire(&shared);
    }

    /// Before a sleep in the place: wake-ups may come, and the notification is reported if the plan is to sleep on it.
    fn arm_in(&self, inner: &mut Inner<T>) {
        self.shared.wake.arm();
        let watch = matches!(inner.waiter.plan, Plan::Sleep { .. });
        let Some(event) = inner.transport.notification().filter(|_| inner.watched != watch) else { return };
        let poller = self.place.poller();
        match if watch { poller.add(event, KEY_VECTOR) } else { poller.remove(event) } {
            Ok(()) => inner.watched = watch,
            Err(error) => tracing::error!(%error, watch, "a queue's notification cannot be watched, or left alone"),
        }
    }
}

/// Requests on their way into a queue. When it is dropped they are announced, even where the application's iterator has panicked.
struct Submission<'a, T: QueueTransport> {
    queue: &'a QueuePair<T>,
    now: Nanos,
    posted: u32,
    urgent: u32,
    /// They are announced later.
    holds: bool,
}

impl<'a, T: QueueTransport> Submission<'a, T> {
    #[inline]
    fn begin(queue: &'a QueuePair<T>, now: Nanos, holds: bool, requests: usize) -> Submission<'a, T> {
        let inner = &mut *queue.inner.borrow_mut();
        inner.clock = now;
        inner.has_futures &= inner.requests.open() > 0;
        if inner.transport.has_poll_queue() {
            // An iterator without an end says that it has as many as there are numbers.
            let commands = u32::try_from(requests).unwrap_or(u32::MAX);
            let in_flight = inner.requests.open().saturating_add(commands);
            // A foreign loop never spins: it would have to poll by its timer for what does not notify.
            let route = match inner.in_loop {
                true => Route::Notify,
                false => inner.waiter.policy.route(now, &Batch { commands, in_flight, ..Batch::default() }),
            };
            inner.transport.set_route(route);
        }
        let (posted, urgent) = (inner.requests.posted(), inner.requests.urgent());
        queue.submitting.set(true);
        Submission { queue, now, posted, urgent, holds }
    }

    /// Takes in a request that was checked.
    ///
    /// # Errors
    /// The request, where there are as many as can be.
    #[inline(always)] // A request stays in registers from the caller's iterator to its slot.
    fn submit(&self, request: Request, claim: Claim) -> Result<(), Request> {
        let Inner { requests, transport, .. } = &mut *self.queue.inner.borrow_mut();
        requests.submit(request, claim, self.now, transport)
    }
}

impl<T: QueueTransport> Drop for Submission<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let &mut Submission { queue, now, posted, urgent, holds } = self;
        queue.submitting.set(false);
        let mut borrowed = queue.inner.borrow_mut();
        let inner = &mut *borrowed;
        queue.shared.set_open(inner.requests.open());
        let commands = inner.requests.posted() - posted;
        if commands > 0 {
            if inner.late_at == Nanos::MAX {
                let at = hw::now() + inner.timeout;
                inner.set_late_at(at);
            }
            if !holds {
                inner.transport.commit();
            }
            let policy = &mut inner.waiter.policy;
            let class = if policy.wants_class() { inner.requests.last_class() } else { None };
            let urgent = (inner.requests.urgent() - urgent).min(commands);
            let polls = policy.submitted(now, &Batch { commands, urgent, in_flight: inner.requests.open(), class });
            if polls && !holds && inner.transport.pending() {
                inner.counters.submit_checks += 1;
                inner.poll(WEIGHT);
                queue.publish(inner);
                if !inner.wakers.is_empty() {
                    drop(queue.wake_all(borrowed));
                }
            }
        }
    }
}

/// For several queues of a thread, which sleeps in a place of theirs.
impl<T: QueueTransport> Driven for QueuePair<T> {
    fn in_flight(&self) -> u32 {
        self.shared.open()
    }

    fn plan(&self, now: Nanos, goes_on_at: Nanos) -> Plan {
        self.inner.borrow_mut().plan(now, goes_on_at, false)
    }

    fn look(&self, budget: u32) -> (u32, Option<Nanos>) {
        let mut inner = self.inner.borrow_mut();
        let now = inner.poll(budget);
        let found = inner.waiter.seen.found;
        self.publish(&inner);
        if !inner.wakers.is_empty() {
            drop(self.wake_all(inner));
        }
        (found, Some(now))
    }

    fn spins(&self) {
        self.inner.borrow_mut().counters.spins += 1;
    }

    fn look_while_spinning(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        let found = inner.transport.pending();
        if found {
            inner.waiter.found_something();
        }
        found
    }

    fn spun_in_vain(&self, now: Nanos) {
        self.inner.borrow_mut().sample_delay(now);
    }

    fn gives_way(&self) -> bool {
        let inner = self.inner.borrow();
        inner.spin.gives_way(inner.waiter.policy.mode())
    }

    fn arm(&self) {
        self.arm_in(&mut self.inner.borrow_mut());
    }

    fn look_before_sleep(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        let found = matches!(inner.waiter.plan, Plan::Sleep { .. }) && inner.transport.pending();
        if found {
            inner.waiter.found_something();
        }
        found || !self.shared.mode.settled()
    }

    fn weighs_sleeps(&self) -> bool {
        self.inner.borrow().waiter.policy.facts().weighs_sleeps
    }

    fn drain_events(&self) -> io::Result<bool> {
        self.place.drain(KEY_VECTOR)
    }

    fn woken(&self, slept: &Slept) {
        self.shared.wake.mask();
        let mut inner = self.inner.borrow_mut();
        inner.awake(slept);
        // The other queues are polled first, each with a clock read of its own.
        inner.woke_at = None;
    }

    fn leave(&self) {}
}

/// Readable when [`QueuePair::turn`] has something to do.
impl<T: QueueTransport> AsFd for QueuePair<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.place.as_fd()
    }
}

#[cfg(test)]
mod tests;
