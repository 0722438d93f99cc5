//! One thread's queue on one controller: its open requests, its completion policy, and its transport. Nothing here is locked, because no
//! other thread touches it: what others want of the queue they leave in [`QueueShared`].
//!
//! ```text
//!  submit   check → slot → push             then one commit, unless the caller sleeps next
//!  wait     policy → reap | spin | nap | sleep, until enough requests are finished
//!  reap     finished slots → the caller
//! ```

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::Waker;

use completion::{
    Batch, Decisions, Done, Facts, Lawful, MAX_WEIGHT, Mode, Plan, Policy, PollLimits, Records, Route, Spin, WEIGHT, Waiter, Woke,
};
use hw::{Birth, DmaBuf, DmaPool, Lent, Poller};
use nvme::Vector;
use sync::{SleepSteps, WaiterId, WakeFlag, sleep};
use units::Nanos;

use super::block_on::{self, Inside, Signal};
use super::contention::Contention;
use super::event_loop::{LoopQueue, Measured, SPINS_PER_CLOCK, Slept, cause};
use super::ring_queue::RingQueue;
use super::sleep_cost;
use crate::counters::{Counters, HardwareCounters};
use crate::error::{QueueError, Refused, WouldDeadlock};
use crate::namespace::Namespace;
use crate::request::{Completion, Request, Token};
use crate::shared::controller::Controller;
use crate::shared::events::EventKind;
use crate::shared::future::Pending;
use crate::shared::queue_shared::{Orphan, QueueShared};
use crate::shared::reports::Reporter;
use crate::shared::requests::{Claim, Failure, Requests};
use crate::transport::{IoCommand, KEY_NOTIFICATION, KEY_WAKE, Post, QueueTransport, SleepFor, UringQueue};
use crate::wake;
use crate::wakeups::Wakeups;

/// Of a policy that weighs what sleeps cost, one sleep in this many is measured, and one turn of a foreign loop in this many.
const MEASURED_SLEEPS: u32 = 32;
const MEASURED_TURNS: u32 = 8;

/// A queue of one thread on the transport `T`.
pub(crate) struct QueuePair<T: QueueTransport> {
    pub(super) controller: Controller,
    pub(super) shared: Arc<QueueShared>,
    /// The process that it belongs to.
    birth: Birth,
    signal: Arc<Signal>,
    /// Where a foreign loop, or a thread with several queues, waits for it.
    poller: Arc<Poller>,
    /// Requests that can be reaped.
    done: Cell<u32>,
    /// The application's iterator runs. Nothing is borrowed then, but the requests are the batch's, and the queue takes and gives none.
    submitting: Cell<bool>,
    /// What the queue has in their place.
    spare: Cell<Option<Box<Requests>>>,
    pub(super) inner: RefCell<Inner<T>>,
}

/// What is borrowed while the library's own code runs, and never while the application's does.
pub(crate) struct Inner<T: QueueTransport> {
    pub(super) transport: T,
    pub(super) requests: Box<Requests>,
    shared: Arc<QueueShared>,
    reporter: Reporter,
    pub(super) waiter: Waiter,
    /// The mode in force, as a word: compared with the one that is asked for at each plan.
    mode: u64,
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
    pub(super) in_loop: bool,
    turns: u32,
    /// When the loop left with something to compute, and how often its thread had slept until then: of a turn that is measured.
    left_at: Option<(Nanos, u64)>,
    sleeps: u32,
    records: Vec<Done>,
    wakers: Vec<Waker>,
    /// What the poller has reported.
    events: Vec<u64>,
    pub(super) contention: Contention,
}

/// What [`crate::Queue::turn`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turned {
    /// Entries found.
    pub found: u32,
    /// There is more to do at once: call again, after whatever else the loop has to do. Otherwise the file descriptor
    /// becomes readable when there is, or [`crate::Queue::next_deadline`] comes.
    pub more: bool,
}

impl<T: QueueTransport> Inner<T> {
    /// What to do next. The caller goes on at `goes_on_at`, whatever has been found. `alone`: the thread drives no other queue, so that a sleep
    /// of the transport's submits what was posted.
    #[inline]
    pub(super) fn plan(&mut self, now: Nanos, goes_on_at: Nanos, alone: bool) -> Plan {
        if let Some(mode) = self.shared.mode.adopt(self.mode) {
            self.adopt(mode);
        }
        if now >= self.late_at {
            self.cancel_late(now);
        }
        if !(T::SUBMITS_IN_SLEEP && alone) {
            self.transport.commit();
        }
        let found = self.shared.is_noticed() || self.waiter.policy.facts().checks_first && self.transport.pending();
        if found {
            self.waiter.found_something();
        }
        if (found || self.waiter.seen.woke.is_some())
            && let Some(plan) = self.waiter.cached()
        {
            return plan;
        }
        let wants = self.wants(alone);
        let seen = &mut self.waiter.seen;
        seen.wants = wants;
        // A sleep for several counts what is there already.
        seen.pending &= found || wants < 2;
        seen.goes_on_at = (goes_on_at != Nanos::MAX).then_some(goes_on_at);
        (seen.in_flight, seen.urgent_waiting) = (self.requests.open(), self.requests.urgent());
        seen.held = self.shared.held();
        self.waiter.set_silent(self.transport.polled_in_flight());
        let plan = self.waiter.next(now, &mut self.transport);
        let holds = self.waiter.hold.into();
        if holds != self.shared.holds() && self.shared.asks_to_hold(holds) {
            self.reporter.stirred();
        }
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
        let noticed = self.shared.is_noticed();
        if noticed {
            self.shared.take_notice();
            if self.shared.fails_retries() {
                self.requests.fail_retries();
            }
        }
        let wanted = self.waiter.policy.facts().records;
        let (mut read, requests, records, wakers) = (self.woke_at.take(), &mut self.requests, &mut self.records, &mut self.wakers);
        let polled = self.transport.reap(budget, |completed| {
            let now = *read.get_or_insert_with(hw::now);
            if wanted != Records::None {
                let from = if wanted == Records::Last { completed.len().saturating_sub(1) } else { 0 };
                let all = completed.iter().skip(from);
                records.extend(all.filter_map(|one| requests.record(Token(one.token), one.posted_at, now, slept)));
            }
            requests.answered(completed, now, wakers);
        });
        let seen = &mut self.waiter.seen;
        (seen.found, seen.budget_used_up, seen.pending) = (polled.found + polled.passed, polled.budget_used_up, polled.more);
        seen.lock_busy = polled.busy;
        let found = seen.found > 0;
        let now = if found { read.unwrap_or_else(hw::now) } else { hw::now() };
        if found {
            seen.met_at = met.then_some(now);
            self.clock = now;
            self.counters.entries += u64::from(polled.found);
            self.counters.drains += 1;
            self.counters.drain_max = self.counters.drain_max.max(polled.found);
            if let Some(wakeups) = &mut self.wakeups {
                wakeups.took(polled.found, now);
            }
        } else {
            self.counters.empty_looks += 1;
        }
        if self.requests.is_waiting() && (found || noticed) {
            self.post_waiting(now);
        }
        if wanted != Records::None && found {
            self.waiter.policy.completed(&self.records);
            self.records.clear();
        }
        now
    }

    /// There may be room again for what waits.
    #[cold]
    fn post_waiting(&mut self, now: Nanos) {
        self.post_as_far_as_room(now);
        self.leave_waiting(now);
    }

    fn post_as_far_as_room(&mut self, now: Nanos) {
        let room = self.transport.room(self.requests.posted());
        let mut posting = self.transport.posting();
        self.requests.post_waiting(&mut posting, now, room);
        posting.commit();
    }

    /// Something may still wait for room.
    #[cold]
    fn leave_waiting(&mut self, now: Nanos) {
        self.shared.set_open(self.requests.open());
        if self.shared.fails_all() {
            self.requests.fail_waiting(Failure::DeviceLost, now);
        } else if self.requests.is_waiting() && self.transport.wait_for_tag(self.requests.posted()) {
            // A tag may have come back before the wait was known. With it this queue may have its share.
            self.post_as_far_as_room(now);
            _ = self.requests.is_waiting() && self.transport.wait_for_tag(self.requests.posted());
        }
        if !self.requests.is_waiting() {
            self.transport.stop_waiting();
        }
        self.requests.take_ended(&mut self.wakers);
    }

    /// Looks for completions without reaping them until there are some, or until `until`. When it was over.
    fn spin(&mut self, until: Nanos, enough: &impl Fn() -> bool) -> Nanos {
        (self.counters.spins, self.woke_at) = (self.counters.spins + 1, None);
        let yields = self.spin.gives_way(self.waiter.policy.mode());
        loop {
            for _ in 0..SPINS_PER_CLOCK {
                if self.transport.pending() || self.shared.is_noticed() {
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
        // Armed, and then checked: a thread that leaves something after the check finds it armed, and signals.
        let left = if T::SUBMITS_IN_SLEEP {
            self.shared.wake.arm();
            self.has_mail() | self.is_wanted()
        } else {
            sleep::arm(self);
            sleep::check(self)
        };
        let found = left | enough();
        if !found {
            self.sleeps = self.sleeps.wrapping_add(1);
            let weighs = self.waiter.policy.facts().weighs_sleeps && self.sleeps.is_multiple_of(MEASURED_SLEEPS);
            let measured = weighs.then(Measured::begin);
            let timeout = (until != Nanos::MAX).then(|| until - hw::now());
            let wants = self.waiter.seen.wants;
            notified = match (plan, timeout) {
                (Plan::Sleep { at_least, .. }, _) => self.transport.sleep(SleepFor::Completions(at_least), timeout),
                (Plan::Nap { extends: true, .. }, Some(nap)) if self.transport.can_extend_nap() => {
                    let limit = self.waiter.seen.goes_on_at.map(|at| at - hw::now());
                    self.transport.sleep(SleepFor::NapThenFirst(nap, wants), limit)
                }
                (Plan::Nap { .. }, _) => self.transport.sleep(SleepFor::Nap(wants), timeout),
                _ => self.transport.sleep(SleepFor::Completions(1), timeout),
            };
            cycle = measured.and_then(Measured::end);
        }
        if T::SUBMITS_IN_SLEEP {
            self.shared.wake.mask();
        } else {
            sleep::wake(self);
        }
        let woke_at = hw::now();
        let nap = matches!(plan, Plan::Nap { .. });
        self.awake(&Slept { found, nap, notified, woke_at, until: plan_end(plan), cycle });
        woke_at
    }

    /// Awake again: counts, and notes for the policy why.
    fn awake(&mut self, &Slept { found, nap, notified, woke_at, until, cycle }: &Slept) {
        if self.waiter.policy.mode().moderation().is_some() && self.shared.idle.claim_wake() {
            self.reporter.stirred();
        }
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
        let notified = self.transport.was_notified() || notified;
        self.counters.wakeups += 1;
        if let Some(wakeups) = &mut self.wakeups
            && notified
        {
            wakeups.woken(self.transport.message_time(), woke_at);
        }
        self.waiter.woken(cause(notified, woke_at, until));
    }

    /// Goes on in another mode.
    #[cold]
    fn adopt(&mut self, mode: Mode) {
        self.waiter.adopt(mode, &sleep_cost::known());
        self.mode = mode.into();
        self.settle();
    }

    /// A mode has been adopted: who reaps, where messages go, and whether the notification is masked, are as it wants them.
    fn settle(&mut self) {
        self.transport.adopt(self.waiter.policy.mode(), &mut self.waiter);
        self.waiter.settle(&mut self.transport);
    }

    /// The thread goes back to its caller: hands on the notification of a shared hardware queue, if others need it.
    #[inline]
    fn leave(&mut self) {
        if self.transport.is_shared()
            && let Some(heir) = self.waiter.leave(&mut self.transport)
        {
            self.transport.tell(heir);
        }
    }

    /// When a request may be late, for the thread that wakes this one then.
    fn set_late_at(&mut self, at: Nanos) {
        self.late_at = at;
        self.shared.set_late_at(at);
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

    /// Takes what the poller has to report, without waiting. Whether the notification was among it.
    fn drain_events(&mut self, poller: &Poller) -> io::Result<bool> {
        // What is reported is another queue's notification: whether it was for this one shows without a system call.
        if self.transport.is_notified_elsewhere() {
            return Ok(false);
        }
        poller.wait(Some(Nanos::ZERO), &mut self.events)?;
        Ok(self.events.contains(&KEY_NOTIFICATION))
    }

    /// Tells the policy whether others want this CPU, unless its mode spins and is to spin all the same.
    fn sample_delay(&mut self, now: Nanos) {
        if let Some(wanted) = self.contention.sample(now) {
            self.waiter.seen.cpu_wanted = wanted && self.spin.tells_wanted(self.waiter.policy.mode());
        }
    }
}

/// The steps of going to sleep, whose order [`sleep`] has.
impl<T: QueueTransport> SleepSteps for Inner<T> {
    type Thread = WaiterId;

    #[inline]
    fn flag(&self) -> &WakeFlag {
        self.shared.wake.flag()
    }

    fn register(&mut self) -> Option<WaiterId> {
        self.waiter.register(&mut self.transport)
    }

    fn allow(&mut self) {
        self.waiter.arm(&mut self.transport);
        let sleeps = matches!(self.waiter.plan, Plan::Sleep { .. });
        self.transport.watch(sleeps && self.waiter.owner && !self.waiter.others_look);
    }

    fn tell(&self, thread: WaiterId) {
        self.transport.tell(thread);
    }

    fn was_posted(&mut self) -> bool {
        let posted = self.transport.found_when_armed();
        if posted {
            self.waiter.found_something();
        }
        posted
    }

    fn has_entry(&mut self) -> bool {
        self.waiter.look_once_more(&mut self.transport).unwrap_or(false)
    }

    fn has_mail(&mut self) -> bool {
        let noticed = self.shared.is_noticed();
        if noticed {
            self.waiter.found_something();
        }
        noticed
    }

    fn is_wanted(&mut self) -> bool {
        !self.shared.mode.settled()
    }

    fn mask(&mut self) {
        self.waiter.wakes(&self.transport);
        self.waiter.mask_or_keep(self.requests.open(), &mut self.transport);
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
        let left = format!("queue {} was left with {left} requests that the kernel has not answered", self.shared.id - 1);
        self.reporter.push(EventKind::Note(left));
        self.requests.lose_all(hw::now(), &mut self.wakers);
        self.shared.set_open(0);
        (std::mem::take(&mut self.wakers), self.requests.take_kept())
    }
}

/// When the plan was to be over.
fn plan_end(plan: Plan) -> Nanos {
    match plan {
        Plan::Spin { until } | Plan::Nap { until, .. } | Plan::Sleep { until, .. } => until,
        Plan::Look { .. } | Plan::Rest => Nanos::MAX,
    }
}

impl<T: QueueTransport> QueuePair<T> {
    /// A queue of `controller` for the calling thread, over `transport`, in the mode that `shared` has, with the requests that the last thread
    /// has left. `me`: its number in tokens. `poller` is where it sleeps, unless the transport has a place of its own.
    ///
    /// # Errors
    /// The system is out of descriptors.
    pub(crate) fn new(
        controller: Controller,
        shared: Arc<QueueShared>,
        me: u8,
        transport: T,
        poller: Arc<Poller>,
        birth: Birth,
    ) -> Result<QueuePair<T>, QueueError> {
        poller.add(&*shared.wake, KEY_WAKE).map_err(|source| QueueError::System { what: "wake-up descriptor", source })?;
        // Nothing fails from here on: they stay with the queue until a thread has it.
        let mut requests = shared.left().take().unwrap_or_else(|| Box::new(Requests::new(me)));
        shared.set_orphaned(false);
        let mode = shared.mode.in_force().unwrap_or(Mode::INTERRUPT);
        let mut waiter = Waiter::new(mode, &sleep_cost::known(), Lawful);
        waiter.owner = !transport.is_shared();
        if requests.open() > 0 {
            // The last thread's completions may have come while the notification was masked: begin with a poll.
            waiter.woken(Woke::OTHER);
        }
        if shared.fails_retries() {
            requests.fail_retries();
        }
        let mut inner = Inner {
            transport,
            requests,
            shared: shared.clone(),
            reporter: controller.reporter(),
            waiter,
            mode: mode.into(),
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
            sleeps: 0,
            records: Vec::with_capacity(256),
            wakers: Vec::new(),
            events: Vec::with_capacity(8),
            contention: Contention::default(),
        };
        inner.settle();
        let signal = Arc::new(Signal::new(shared.wake.clone()));
        let (done, submitting, spare) = (Cell::new(0), Cell::new(false), Cell::new(Some(Box::new(Requests::new(0)))));
        Ok(QueuePair { controller, shared, birth, signal, poller, done, submitting, spare, inner: RefCell::new(inner) })
    }

    /// Its transport.
    pub(crate) fn transport(&self) -> Ref<'_, T> {
        Ref::map(self.inner.borrow(), |inner| &inner.transport)
    }

    pub(crate) fn namespaces(&self) -> &[Namespace] {
        self.controller.namespaces()
    }

    pub(crate) fn pool(&self) -> &DmaPool {
        self.controller.pool()
    }

    /// See [`crate::Queue::submit_at`]. If the caller `waits` next and the transport can submit as it sleeps, the wait announces them.
    #[inline]
    pub(crate) fn submit(&self, now: Nanos, waits: bool, requests: impl IntoIterator<Item = Request>) -> Result<(), (Refused, Request)> {
        if !self.is_here() {
            return block_on::refuse(Refused::Forked, requests);
        }
        if self.submitting.get() {
            return block_on::refuse(Refused::InsideSubmit, requests);
        }
        // A mode that polls after each commit has them announced at once: that poll is what it is for.
        let holds = waits && T::SUBMITS_IN_SLEEP && !self.looks_on_commit();
        let mut batch = Submission::begin(self, now, holds);
        let refused = batch.enter(requests.into_iter(), Claim::Batch);
        drop(batch);
        refused.map_or(Ok(()), |refused| Err(*refused))
    }

    /// See [`crate::Queue::start`]. With a `command` of the caller's own the request is that.
    pub(crate) fn start(&self, request: Request, command: Option<Box<IoCommand>>) -> Pending {
        if !self.is_here() {
            return Pending::refused(Refused::Forked, request);
        }
        if self.submitting.get() {
            return Pending::refused(Refused::InsideSubmit, request);
        }
        let tickets = self.inner.borrow().requests.tickets().clone();
        let ticket = tickets.issue();
        // Announced when the queue is next driven, or by `commit`.
        let mut batch = Submission::begin(self, hw::now(), true);
        self.inner.borrow_mut().has_futures = true;
        let refused = batch.enter(std::iter::once(request), Claim::Future(ticket));
        if let (None, Some(command), Some(requests)) = (&refused, command, &mut batch.requests) {
            requests.set_command(command);
        }
        drop(batch);
        match refused {
            None => Pending::new(tickets, ticket),
            Some(refused) => {
                tickets.withdraw(ticket);
                Pending::refused(refused.0, refused.1)
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
        let _inside: Inside = block_on::enter()?;
        if self.is_submitting() {
            return Err(WouldDeadlock);
        }
        self.run(until, idle, Some(u32::try_from(min).unwrap_or(u32::MAX)), || false);
        Ok(self.finished())
    }

    /// Polls, spins and sleeps as the policy plans, until `wanted` requests can be reaped, `enough`, `until`, or, unless the caller waits for
    /// others too, nothing is in flight. The queue is borrowed between the steps: wakers run when it is not.
    #[inline]
    pub(crate) fn run(&self, until: Nanos, for_others: bool, wanted: Option<u32>, enough: impl Fn() -> bool) {
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
            let plan = inner.plan(now, until, true);
            if !for_others && inner.requests.open() == 0 {
                // Nothing can come that this caller waits for.
                break;
            }
            match plan {
                Plan::Look { budget } => now = inner.poll(budget.min(MAX_WEIGHT)),
                Plan::Spin { until: end } => now = inner.spin(end.min(until), &enough),
                Plan::Nap { until: end, .. } | Plan::Sleep { until: end, .. } => now = self.sleep(&mut inner, end.min(until), &enough),
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
        inner.leave();
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
        wake::wake_all(wakers.drain(..));
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
        sleep_cost::prepare(means);
        self.shared.mode.ask(means);
        // The controller coalesces as the modes of its queues say.
        self.controller.wake_task();
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
        self.inner.borrow().waiter.policy.facts().submit_check
    }

    /// What the queue's thread has counted.
    pub(crate) fn counters(&self) -> Counters {
        self.inner.borrow().counters
    }

    /// What the queue's thread has counted since the last call, or since the queue was taken.
    pub(crate) fn take_counters(&self) -> Counters {
        std::mem::take(&mut self.inner.borrow_mut().counters)
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
        _ = inner.drain_events(&self.poller);
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
        } else if inner.waiter.silent() == 0 {
            // The loop computes: it is not to be notified until its nap is over.
            SleepSteps::mask(&mut *inner);
        }
        inner.turns = inner.turns.wrapping_add(u32::from(weighs && there));
        if weighs && there && inner.turns.is_multiple_of(MEASURED_TURNS) {
            inner.left_at = Some((hw::now(), hw::thread_usage().sleeps));
        }
        sleep::arm(&mut *inner);
        self.publish(&inner);
        let inner_ref = &mut *inner;
        let pending = inner_ref.was_posted() | inner_ref.has_mail() || inner_ref.waiter.owner && inner_ref.transport.pending();
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
        let mut inner = self.inner.borrow_mut();
        inner.in_loop = false;
        if self.is_here() {
            inner.leave();
            self.shared.wake.mask();
        }
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
            self.run(hw::now() + self.controller.stays(), false, None, || false);
        }
        let QueuePair { controller, shared, inner, .. } = self;
        let mut inner = inner.into_inner();
        inner.leave();
        inner.transport.close();
        inner.requests.disown_all();
        shared.set_open(inner.requests.open());
        if inner.requests.open() == 0 {
            return controller.retire(&shared);
        }
        shared.set_orphaned(true);
        if T::REAPED_BY_OTHERS {
            *shared.left() = Some(inner.requests);
            controller.retire(&shared);
            return controller.wake_task();
        }
        if !bound {
            return controller.adopt(Box::new(inner));
        }
        let (wakers, memory) = inner.lose_all();
        wake::wake_all(wakers);
        block_on::let_go(memory);
        controller.retire(&shared);
    }
}

impl QueuePair<UringQueue> {
    /// What has been counted of its rings.
    pub(crate) fn hardware_counters(&self) -> HardwareCounters {
        self.shared.hardware_counters()
    }
}

impl QueuePair<RingQueue> {
    /// What has been counted of its hardware queue, by all threads that share it.
    pub(crate) fn hardware_counters(&self) -> HardwareCounters {
        self.controller.hardware_counters(self.transport().hardware())
    }

    /// The notification of `home`, another queue of the same thread or this one, stands for this one's where messages are posted.
    pub(crate) fn share_notification(&self, home: Vector) {
        let inner = &mut *self.inner.borrow_mut();
        if inner.transport.share_notification(home) {
            inner.waiter.settle(&mut inner.transport);
            inner.waiter.woken(Woke::OTHER);
        }
    }
}

/// Requests on their way into a queue. When it is dropped they are posted and announced, even where the application's iterator has panicked.
struct Submission<'a, T: QueueTransport> {
    queue: &'a QueuePair<T>,
    /// The queue's; taken when this is dropped.
    requests: Option<Box<Requests>>,
    now: Nanos,
    /// A future waits for them.
    is_future: bool,
    urgent: u32,
    /// They are announced later.
    holds: bool,
}

impl<'a, T: QueueTransport> Submission<'a, T> {
    #[inline]
    fn begin(queue: &'a QueuePair<T>, now: Nanos, holds: bool) -> Submission<'a, T> {
        let inner = &mut *queue.inner.borrow_mut();
        inner.clock = now;
        queue.submitting.set(true);
        let spare = queue.spare.take().unwrap_or_else(|| Box::new(Requests::new(0)));
        let mut requests = std::mem::replace(&mut inner.requests, spare);
        inner.has_futures &= requests.open() > 0;
        requests.begin();
        let urgent = requests.urgent();
        Submission { queue, requests: Some(requests), now, is_future: false, urgent, holds }
    }

    /// Takes in what the application's iterator yields, until one is refused. A function of its own, so that nothing else is known to have the
    /// requests: it saves four instructions a request.
    #[inline(always)]
    fn enter(&mut self, requests: impl Iterator<Item = Request>, claim: Claim) -> Option<Box<(Refused, Request)>> {
        let (controller, now) = (&self.queue.controller, self.now);
        self.is_future = claim != Claim::Batch;
        let entered = self.requests.as_deref_mut()?;
        let check = controller.checker();
        for request in requests {
            let (checked, request) = check(request);
            if let Err(why) = checked {
                match controller.look_up(why, request) {
                    Ok(request) => match entered.enter_growing(request, claim, now) {
                        None => continue,
                        Some(request) => return Some(refusal(Refused::TooMany, request)),
                    },
                    Err((why, request)) => return Some(refusal(why, request)),
                }
            }
            // A request is taken apart on its way into its slot, and stored only where the slots have to grow.
            if let Err(request) = entered.enter(request, claim, now)
                && let Some(request) = entered.enter_growing(request, claim, now)
            {
                return Some(refusal(Refused::TooMany, request));
            }
        }
        None
    }
}

/// Apart from the data path, and small on it.
#[cold]
fn refusal(why: Refused, request: Request) -> Box<(Refused, Request)> {
    Box::new((why, request))
}

impl<T: QueueTransport> Drop for Submission<'_, T> {
    #[inline(never)] // Next to the loop that takes requests in, the one that posts them would have fewer registers.
    fn drop(&mut self) {
        let &mut Submission { queue, now, is_future, holds, urgent, .. } = self;
        queue.submitting.set(false);
        let mut borrowed = queue.inner.borrow_mut();
        let inner = &mut *borrowed;
        let Some(requests) = self.requests.take() else { return };
        queue.spare.set(Some(std::mem::replace(&mut inner.requests, requests)));
        let Inner { requests, transport, waiter, .. } = inner;
        let urgent = requests.urgent() - urgent;
        if transport.has_poll_queue() {
            // A foreign loop never spins: it would have to poll by its timer for what does not notify.
            let batch = Batch { urgent, in_flight: requests.open(), ..Batch::default() };
            transport.set_route(if inner.in_loop { Route::Notify } else { waiter.policy.route(now, &batch) });
        }
        let room = transport.room(requests.posted());
        let mut posting = transport.posting();
        let commands = requests.post_entered(&mut posting, !is_future && urgent == 0, now, room);
        if !holds {
            posting.commit();
        }
        drop(posting);
        if holds {
            transport.defer_commit();
        }
        queue.shared.set_open(requests.open());
        if requests.is_waiting() {
            transport.commit();
            inner.leave_waiting(now);
            queue.publish(inner);
            if queue.shared.fails_all() {
                // No completion follows what has failed, and a loop of the application's waits for its descriptor.
                queue.shared.notice();
            }
        }
        if commands > 0 {
            if T::CANCELS_LATE && inner.late_at == Nanos::MAX {
                let at = hw::now() + inner.timeout;
                inner.set_late_at(at);
            }
            let policy = &mut inner.waiter.policy;
            let Facts { records, submit_check, .. } = *policy.facts();
            let class = if records == Records::None { None } else { inner.requests.last_class() };
            policy.submitted(now, &Batch { commands, urgent: urgent.min(commands), in_flight: inner.requests.open(), class });
            if submit_check && !holds && inner.transport.pending() {
                inner.counters.submit_checks += 1;
                inner.transport.set_reaps_itself(true);
                inner.poll(WEIGHT);
                inner.transport.set_reaps_itself(false);
                if let Some(owner) = inner.waiter.leaves_behind(&mut inner.transport) {
                    inner.transport.tell(owner);
                }
                queue.publish(inner);
            }
        }
        if !inner.wakers.is_empty() {
            drop(queue.wake_all(borrowed));
        }
    }
}

/// For several queues of a thread, which sleeps in a place of theirs.
impl<T: QueueTransport> LoopQueue for QueuePair<T> {
    fn in_flight(&self) -> u32 {
        self.shared.open()
    }

    fn plan(&self, now: Nanos, goes_on_at: Nanos) -> Plan {
        self.inner.borrow_mut().plan(now, goes_on_at, false)
    }

    fn poll(&self, budget: u32) -> (u32, Option<Nanos>) {
        let mut inner = self.inner.borrow_mut();
        let now = inner.poll(budget);
        let found = inner.waiter.seen.found;
        self.publish(&inner);
        if !inner.wakers.is_empty() {
            drop(self.wake_all(inner));
        }
        (found, Some(now))
    }

    fn begin_spin(&self) {
        self.inner.borrow_mut().counters.spins += 1;
    }

    fn poll_ready(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        let found = inner.transport.pending() || self.shared.is_noticed();
        if found {
            inner.waiter.found_something();
        }
        found
    }

    fn limits(&self) -> PollLimits {
        self.inner.borrow().waiter.policy.mode().limits()
    }

    fn spun_until(&self, now: Nanos) {
        self.inner.borrow_mut().sample_delay(now);
    }

    fn yields_cpu(&self) -> bool {
        let inner = self.inner.borrow();
        inner.spin.gives_way(inner.waiter.policy.mode())
    }

    fn arm(&self) {
        sleep::arm(&mut *self.inner.borrow_mut());
    }

    fn check_before_sleep(&self) -> bool {
        let inner = &mut *self.inner.borrow_mut();
        // The notification of a transport that tells by itself in its own sleep has signalled only what came since.
        let unannounced = T::SUBMITS_IN_SLEEP && matches!(inner.waiter.plan, Plan::Sleep { .. }) && inner.transport.pending();
        if unannounced {
            inner.waiter.found_something();
        }
        sleep::check(inner) | unannounced
    }

    fn measures_sleeps(&self) -> bool {
        self.inner.borrow().waiter.policy.facts().weighs_sleeps
    }

    fn drain_events(&self) -> io::Result<bool> {
        self.inner.borrow_mut().drain_events(&self.poller)
    }

    fn woken(&self, slept: &Slept) {
        let mut inner = self.inner.borrow_mut();
        sleep::wake(&mut *inner);
        inner.awake(slept);
        // The other queues are polled first, each with a clock read of its own.
        inner.woke_at = None;
    }

    fn leave(&self) {
        self.inner.borrow_mut().leave();
    }
}

/// Readable when [`QueuePair::turn`] has something to do.
impl<T: QueueTransport> AsFd for QueuePair<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

#[cfg(test)]
mod tests;
