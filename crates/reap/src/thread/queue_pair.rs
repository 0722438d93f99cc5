//! One thread's queue on one controller: its open requests, its completion policy and its
//! transport. This is the data path. It takes no lock, because only the queue's thread uses it;
//! other threads leave completions and requests for a change in [`QueueShared`].
//!
//! ```text
//!  submit   Request ─ check ─► slot (Requests) ─ Post::post ─► SQE        one commit for the batch:
//!                                                                         doorbell or io_uring_enter
//!  wait     policy ─► Plan ─┬─ poll  → transport.reap: CQE ─► slot        (Inner::poll)
//!             ▲             ├─ spin  → test the next CQE, no system call  (Inner::spin)
//!             │             ├─ nap   → sleep on a timer, not notified     (Inner::sleep)
//!             └─────────────┴─ sleep → arm, fence, check, block           (Inner::sleep)
//!  reap     finished slots ─► Completion ─► the caller
//! ```
//!
//! [`Inner`] is borrowed (`RefCell`) only while library code runs. The application's iterator and
//! its wakers run between two borrows, so that wakers may use the queue, and an iterator that does
//! is refused instead of panicking.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::Waker;

use completion::{
    AdaptiveState, Batch, Done, Facts, MAX_WEIGHT, Mode, NoAblation, Plan, Policy, PollLimits,
    Records, Route, Spin, WEIGHT, Waiter, Woke,
};
use hw::{DmaBuf, DmaPool, ForkGuard, Lent, Poller};
use nvme::Vector;
use sync::{SleepSteps, WaiterId, WakeFlag, sleep};
use units::Nanos;

use super::block_on::{self, BlockingCall, Signal};
use super::contention::Contention;
use super::event_loop::{LoopQueue, MEASURED_SLEEPS, SPINS_PER_CLOCK, SleepCpu, Slept, cause};
use super::ring_queue::RingQueue;
use super::sleep_cost;
use crate::counters::{Counters, HardwareCounters};
use crate::error::{QueueError, Refused, WouldDeadlock};
use crate::namespace::Namespace;
use crate::request::{Completion, Request, Token};
use crate::shared::controller::OpenController;
use crate::shared::events::EventKind;
use crate::shared::future_states::FutureStates;
use crate::shared::queue_shared::{Orphan, QueueShared};
use crate::shared::reports::Reporter;
use crate::shared::requests::{Claim, Failure, Requests};
use crate::transport::{
    IoCommand, KEY_NOTIFICATION, KEY_WAKE, Post, QueueTransport, SleepFor, UringQueue,
};
use crate::wake;
use crate::wakeups::Wakeups;

/// For policies that weigh the cost of a sleep: one call of a foreign event loop in this many is
/// measured. [`MEASURED_SLEEPS`] is the same for sleeps.
const MEASURED_TURNS: u32 = 8;

/// A queue of one thread on the transport `T`.
pub(crate) struct QueuePair<T: QueueTransport> {
    pub(super) controller: OpenController,
    pub(super) shared: Arc<QueueShared>,
    /// The process that created it: after a fork the child must not use the rings.
    fork_guard: ForkGuard,
    signal: Arc<Signal>,
    /// The epoll instance that a foreign event loop, or a thread with several queues, waits on.
    poller: Arc<Poller>,
    /// Requests that can be reaped.
    done: Cell<u32>,
    /// The application's iterator runs. `inner` is not borrowed, but its request table is in
    /// [`Submission`], so the queue neither accepts nor returns requests.
    submitting: Cell<bool>,
    /// An empty table that stands in `inner` while [`Submission`] has the real one.
    spare: Cell<Option<Box<Requests>>>,
    pub(super) inner: RefCell<Inner<T>>,
}

/// The part of a queue that is borrowed while library code runs, and never while the application's
/// code runs.
pub(crate) struct Inner<T: QueueTransport> {
    pub(super) transport: T,
    pub(super) requests: Box<Requests>,
    shared: Arc<QueueShared>,
    reporter: Reporter,
    pub(super) waiter: Waiter,
    /// The mode in force, as a word: compared with the requested mode at each plan.
    mode: u64,
    /// What a spinning thread does when other threads are ready on its CPU.
    spin: Spin,
    counters: Counters,
    wakeups: Option<Box<Wakeups>>,
    /// The time-out of a request, and the earliest time at which one may have exceeded it.
    timeout: Nanos,
    late_at: Nanos,
    /// The clock read of the last batch.
    clock: Nanos,
    /// The clock read of the last wake-up, which the next poll uses instead of one of its own.
    woke_at: Option<Nanos>,
    /// Finished requests that the caller waits for.
    wanted: u32,
    /// Requests of futures may be open. Each has its own waiter, so a sleep must end at the first
    /// completion.
    has_futures: bool,
    /// A foreign event loop drives the queue, and has not called [`QueuePair::leave_loop`].
    pub(super) in_loop: bool,
    /// Its calls of [`QueuePair::poll_events`] that found something.
    turns: u32,
    /// For a measured call: when it returned, and how often the thread had slept until then.
    left_at: Option<(Nanos, u64)>,
    sleeps: u32,
    records: Vec<Done>,
    wakers: Vec<Waker>,
    /// Keys that the poller has reported.
    events: Vec<u64>,
    pub(super) contention: Contention,
}

/// The result of [`crate::Queue::poll_events`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PollStatus {
    /// Completions reaped.
    pub found: u32,
    /// There is more to do now: call again, after the loop's other work. If false, wait until the
    /// file descriptor is readable or [`crate::Queue::next_deadline`] has passed.
    pub more: bool,
}

impl<T: QueueTransport> Inner<T> {
    /// Asks the policy what to do next. The caller continues at `goes_on_at` in any case. `alone`:
    /// the thread drives no other queue, so a sleep in the transport also submits what was posted.
    #[inline]
    pub(super) fn plan(&mut self, now: Nanos, goes_on_at: Nanos, alone: bool) -> Plan {
        // A mode changes only here, between two batches: no plan of the old mode is under way.
        if let Some(mode) = self.shared.mode.adopt(self.mode) {
            self.adopt(mode);
        }
        if now >= self.late_at {
            self.cancel_overdue(now);
        }
        // io_uring submits and waits in one system call: leave the SQEs for the sleep that may
        // follow.
        if !(T::SUBMITS_IN_SLEEP && alone) {
            self.transport.commit();
        }
        let found = self.shared.is_noticed()
            || self.waiter.policy.facts().checks_first && self.transport.pending();
        if found {
            self.waiter.found_something();
        }
        // Work is known: most modes then always poll with the same budget, so the policy is not
        // asked.
        if (found || self.waiter.seen.woke.is_some())
            && let Some(plan) = self.waiter.cached()
        {
            return plan;
        }
        let wants = self.wants(alone);
        let seen = &mut self.waiter.seen;
        seen.wants = wants;
        // The kernel counts CQEs that are already in the ring towards a sleep for several, so one
        // that an earlier poll saw is no reason to poll again.
        seen.pending &= found || wants < 2;
        seen.goes_on_at = (goes_on_at != Nanos::MAX).then_some(goes_on_at);
        (seen.in_flight, seen.urgent_waiting) = (self.requests.open(), self.requests.urgent());
        self.waiter.set_silent(self.transport.polled_in_flight());
        let plan = self.waiter.next(now, &mut self.transport);
        // Neither plan enters the kernel by itself, so nothing else would submit what was posted.
        if T::SUBMITS_IN_SLEEP && alone && matches!(plan, Plan::Spin { .. } | Plan::Idle) {
            self.transport.commit();
        }
        plan
    }

    /// How many more completions the caller needs, if a sleep may wait for that many; else 0. The
    /// first completion must end the sleep where each request has its own waiter, or where a
    /// request waits for the tag that a completion returns.
    #[inline]
    fn wants(&self, alone: bool) -> u32 {
        let more = self.wanted.saturating_sub(self.requests.done());
        let several = more > 1
            && alone
            && self.requests.urgent() == 0
            && !self.has_futures
            && !self.requests.is_waiting();
        // Completions of a poll queue do not count towards the kernel's `min_complete` of the other
        // ring.
        let counts = several
            && self.transport.counts_completions()
            && self.transport.polled_in_flight() == 0;
        if counts { more.min(self.requests.open()) } else { 0 }
    }

    /// Polls the completion queue for at most `budget` entries. Returns the time of the poll.
    #[inline]
    fn poll(&mut self, budget: u32) -> Nanos {
        let slept = self.waiter.begin_poll();
        self.counters.polls += 1;
        let noticed = self.shared.is_noticed();
        if noticed {
            // Cleared before the inbox is read: what another thread leaves after this sets the flag
            // again.
            self.shared.take_notice();
            if self.shared.fails_retries() {
                self.requests.fail_retries();
            }
        }
        let wanted = self.waiter.policy.facts().records;
        let (mut read, requests, records, wakers) =
            (self.woke_at.take(), &mut self.requests, &mut self.records, &mut self.wakers);
        let polled = self.transport.reap(budget, |completed| {
            // One clock read for the batch. After a sleep, the wake-up's clock read serves.
            let now = *read.get_or_insert_with(hw::now);
            if wanted != Records::None {
                let from =
                    if wanted == Records::Last { completed.len().saturating_sub(1) } else { 0 };
                let all = completed.iter().skip(from);
                // Before `complete`, which may free the slot that a record is read from.
                records.extend(all.filter_map(|one| {
                    requests.record(Token(one.token), one.posted_at, now, slept)
                }));
            }
            requests.complete(completed, now, wakers);
        });
        let seen = &mut self.waiter.seen;
        (seen.found, seen.budget_used_up, seen.pending) =
            (polled.found + polled.passed, polled.budget_used_up, polled.more);
        seen.lock_busy = polled.busy;
        let found = seen.found > 0;
        let now = if found { read.unwrap_or_else(hw::now) } else { hw::now() };
        if found {
            self.clock = now;
            self.counters.entries += u64::from(polled.found);
            self.counters.drains += 1;
            self.counters.drain_max = self.counters.drain_max.max(polled.found);
            if let Some(wakeups) = &mut self.wakeups {
                wakeups.took(polled.found, now);
            }
        } else {
            self.counters.empty_polls += 1;
        }
        // Completions return tags, and a notice may mean that another queue has returned some.
        if self.requests.is_waiting() && (found || noticed) {
            self.post_waiting(now);
        }
        if wanted != Records::None && found {
            self.waiter.policy.completed(&self.records);
            self.records.clear();
        }
        now
    }

    /// Posts requests that wait for a tag, and joins the wait list if some still do.
    #[cold]
    fn post_waiting(&mut self, now: Nanos) {
        self.post_up_to_room(now);
        self.wait_for_room(now);
    }

    fn post_up_to_room(&mut self, now: Nanos) {
        let room = self.transport.room(self.requests.posted());
        let mut posting = self.transport.posting();
        self.requests.post_waiting(&mut posting, now, room);
        posting.commit();
    }

    /// After posting: joins the tag wait list if requests still wait, and leaves it if none do.
    #[cold]
    fn wait_for_room(&mut self, now: Nanos) {
        self.shared.set_open(self.requests.open());
        if self.shared.fails_all() {
            self.requests.fail_waiting(Failure::DeviceLost, now);
        } else if self.requests.is_waiting() && self.transport.wait_for_tag(self.requests.posted())
        {
            // A tag may have come back between the failed post and joining the list, when no thread
            // knew of this waiter. So try once more now that it is listed.
            self.post_up_to_room(now);
            _ = self.requests.is_waiting() && self.transport.wait_for_tag(self.requests.posted());
        }
        if !self.requests.is_waiting() {
            self.transport.stop_waiting();
        }
        self.requests.take_ended(&mut self.wakers);
    }

    /// Tests for completions until there are some, which it reaps, or until `until`. Takes no lock
    /// and makes no system call. Returns the time.
    fn spin(&mut self, until: Nanos, enough: &impl Fn() -> bool) -> Nanos {
        (self.counters.spins, self.woke_at) = (self.counters.spins + 1, None);
        let yields = self.spin.yields_cpu(self.waiter.policy.mode());
        loop {
            // The clock read costs more than a test, so it is shared by several.
            for _ in 0..SPINS_PER_CLOCK {
                if self.transport.pending() || self.shared.is_noticed() {
                    self.waiter.found_something();
                    // Every policy would plan a poll now: do it without asking.
                    return self.poll(WEIGHT);
                }
                std::hint::spin_loop();
            }
            if yields {
                // If no other thread is ready this costs only the system call.
                std::thread::yield_now();
            }
            let now = hw::now();
            if now >= until || enough() {
                self.sample_delay(now);
                return now;
            }
        }
    }

    /// Sleeps as the plan says, until `until` at most. Returns the time of the wake-up.
    fn sleep(&mut self, until: Nanos, enough: &impl Fn() -> bool) -> Nanos {
        let plan = self.waiter.plan;
        let (mut notified, mut cycle) = (false, None);
        // Invariant 1: arm, then check. A thread that leaves something after the check finds the
        // flag armed, and signals. `arm` has the SeqCst fence that keeps the two in order.
        let left = if T::SUBMITS_IN_SLEEP {
            // The CQ needs no check: `io_uring_enter` tests it before it blocks.
            self.shared.wake.arm();
            self.has_completions() | self.is_wanted()
        } else {
            sleep::arm(self);
            sleep::check(self)
        };
        // `|`, not `||`: the checks note for the policy what they have seen.
        let found = left | enough();
        if !found {
            self.sleeps = self.sleeps.wrapping_add(1);
            // Measuring takes four system calls, so it is done for few sleeps.
            let weighs = self.waiter.policy.facts().weighs_sleeps
                && self.sleeps.is_multiple_of(MEASURED_SLEEPS);
            let measured = weighs.then(SleepCpu::begin);
            let timeout = (until != Nanos::MAX).then(|| until - hw::now());
            let wants = self.waiter.seen.wants;
            notified = match (plan, timeout) {
                (Plan::Sleep { at_least, .. }, _) => {
                    self.transport.sleep(SleepFor::Completions(at_least), timeout)
                }
                (Plan::Nap { extends: true, .. }, Some(nap)) if self.transport.can_extend_nap() => {
                    // One system call for the nap and the sleep that would follow if it brings
                    // nothing.
                    let limit = self.waiter.seen.goes_on_at.map(|at| at - hw::now());
                    self.transport.sleep(SleepFor::NapThenFirst(nap, wants), limit)
                }
                (Plan::Nap { .. }, _) => self.transport.sleep(SleepFor::Nap(wants), timeout),
                _ => self.transport.sleep(SleepFor::Completions(1), timeout),
            };
            cycle = measured.and_then(SleepCpu::end);
        }
        if T::SUBMITS_IN_SLEEP {
            self.shared.wake.disarm();
        } else {
            sleep::wake(self);
        }
        // Also the clock read of the poll that follows.
        let woke_at = hw::now();
        let nap = matches!(plan, Plan::Nap { .. });
        self.after_sleep(&Slept { found, nap, notified, woke_at, until: plan_end(plan), cycle });
        woke_at
    }

    /// After a sleep: counts it, and notes for the policy why it ended.
    fn after_sleep(&mut self, &Slept { found, nap, notified, woke_at, until, cycle }: &Slept) {
        // The controller task stops its coalescing timer on idle queues, and arms `idle`.
        if self.waiter.policy.mode().moderation().is_some() && self.shared.idle.claim_wake() {
            self.reporter.queue_active();
        }
        self.waiter.seen.cycle = cycle;
        self.woke_at = Some(woke_at);
        self.counters.sleeps += u64::from(!nap);
        self.counters.naps += u64::from(nap);
        // A nap takes the place of spinning, so it is sampled like it. While the CPU counts as
        // wanted every wake-up is sampled, or that would never end.
        if nap || self.waiter.seen.cpu_wanted {
            self.sample_delay(woke_at);
        }
        if found {
            // It did not block: there was no wake-up to count.
            return;
        }
        // The transport first, whatever was reported: it clears the posted bit.
        let notified = self.transport.was_notified() || notified;
        self.counters.wakeups += 1;
        if let Some(wakeups) = &mut self.wakeups
            && notified
        {
            wakeups.woken(self.transport.message_time(), woke_at);
        }
        self.waiter.woken(cause(notified, woke_at, until));
    }

    /// Switches to another mode.
    #[cold]
    fn adopt(&mut self, mode: Mode) {
        self.waiter.adopt(mode, &sleep_cost::known());
        self.mode = mode.into();
        self.apply_mode();
    }

    /// Sets up what the mode needs: the thread that reaps, the target of messages, the mask.
    fn apply_mode(&mut self) {
        // The transport first: it decides whether this thread owns the notification that is masked
        // next.
        self.transport.adopt(self.waiter.policy.mode(), &mut self.waiter);
        self.waiter.settle(&mut self.transport);
    }

    /// The thread returns to its caller: passes the notification of a shared hardware queue to
    /// another thread that sleeps on it (invariant 6).
    #[inline]
    fn leave(&mut self) {
        if self.transport.is_shared()
            && let Some(next_owner) = self.waiter.leave(&mut self.transport)
        {
            self.transport.notify(next_owner);
        }
    }

    /// Sets when a request may be late, also for the housekeeping thread, which wakes this thread
    /// then.
    fn set_late_at(&mut self, at: Nanos) {
        self.late_at = at;
        self.shared.set_late_at(at);
    }

    /// Asks the kernel to cancel late requests. It may not be able to, so each request still ends
    /// with a completion of its own, and its buffer stays lent until then.
    #[cold]
    fn cancel_overdue(&mut self, now: Nanos) {
        let (late, next) = self.transport.cancel_overdue(now, self.timeout);
        self.set_late_at(next);
        if late > 0 {
            self.reporter.cancelled(late, self.shared.id - 1, self.timeout);
        }
    }

    /// Reads the events of the poller, without waiting. Returns whether the notification was among
    /// them.
    fn drain_events(&mut self, poller: &Poller) -> io::Result<bool> {
        // The eventfd is another queue's. `was_notified` tells from memory whether it was for this
        // one.
        if self.transport.is_notified_elsewhere() {
            return Ok(false);
        }
        poller.wait(Some(Nanos::ZERO), &mut self.events)?;
        Ok(self.events.contains(&KEY_NOTIFICATION))
    }

    /// Notes for the policy whether other threads want this CPU, unless the mode is set to spin
    /// regardless.
    fn sample_delay(&mut self, now: Nanos) {
        if let Some(wanted) = self.contention.sample(now) {
            self.waiter.seen.cpu_wanted =
                wanted && self.spin.reports_cpu_wanted_in(self.waiter.policy.mode());
        }
    }
}

/// The single steps of going to sleep; [`sleep`] calls them in order.
impl<T: QueueTransport> SleepSteps for Inner<T> {
    type Thread = WaiterId;

    #[inline]
    fn flag(&self) -> &WakeFlag {
        self.shared.wake.flag()
    }

    fn register(&mut self) -> Option<WaiterId> {
        self.waiter.register(&mut self.transport)
    }

    fn unmask(&mut self) {
        self.waiter.arm(&mut self.transport);
        let sleeps = matches!(self.waiter.plan, Plan::Sleep { .. });
        // The vector is in this thread's epoll set only while it sleeps on a notification that it
        // owns: a signal of the eventfd wakes every thread that has it in its set.
        self.transport.watch(sleeps && self.waiter.owner && !self.waiter.others_look);
    }

    fn notify(&self, thread: WaiterId) {
        self.transport.notify(thread);
    }

    fn was_posted(&mut self) -> bool {
        let posted = self.transport.found_when_armed();
        if posted {
            self.waiter.found_something();
        }
        posted
    }

    fn has_entry(&mut self) -> bool {
        self.waiter.recheck(&mut self.transport).unwrap_or(false)
    }

    fn has_completions(&mut self) -> bool {
        let noticed = self.shared.is_noticed();
        if noticed {
            self.waiter.found_something();
        }
        noticed
    }

    fn is_wanted(&mut self) -> bool {
        !self.shared.mode.is_adopted()
    }

    fn mask(&mut self) {
        // First: another thread may have passed the notification to this one while it slept.
        self.waiter.wakes(&self.transport);
        self.waiter.mask_or_keep(self.requests.open(), &mut self.transport);
    }
}

impl<T: QueueTransport> Orphan for Inner<T> {
    fn poll_orphan(&mut self, now: Nanos) -> (Vec<Waker>, Vec<DmaBuf>) {
        // Dropping registered memory runs the application's code, which must not run on this
        // thread.
        self.requests.defer_drops();
        if now >= self.late_at {
            self.cancel_overdue(now);
        }
        self.transport.commit();
        self.poll(WEIGHT);
        self.shared.set_open(self.requests.open());
        (std::mem::take(&mut self.wakers), self.requests.take_deferred_drops())
    }

    fn shared(&self) -> &Arc<QueueShared> {
        &self.shared
    }

    fn cancel_all(&mut self) {
        // With a time-out of zero the next poll finds every request late.
        (self.timeout, self.late_at) = (Nanos::ZERO, Nanos::ZERO);
    }

    fn lose_all(&mut self) -> (Vec<Waker>, Vec<DmaBuf>) {
        let left = self.requests.open();
        if left == 0 {
            return (Vec::new(), Vec::new());
        }
        tracing::error!(
            queue = self.shared.id,
            left,
            "the kernel has not answered requests of a closed queue: their buffers are leaked"
        );
        let left = format!(
            "queue {} was left with {left} requests that the kernel has not answered",
            self.shared.id - 1
        );
        self.reporter.push(EventKind::Note(left));
        self.requests.lose_all(hw::now(), &mut self.wakers);
        self.shared.set_open(0);
        (std::mem::take(&mut self.wakers), self.requests.take_deferred_drops())
    }
}

/// Logs a change of `adaptive`'s action, with what was measured of either.
#[cold]
fn log_change(queue: u16, state: &AdaptiveState) {
    let [before, after] = [state.before, state.action].map(|action| state.measured(action));
    tracing::debug!(queue, before, after, why = %state.why, "adaptive has changed its action");
}

/// The end of the plan; [`Nanos::MAX`] if it has none.
fn plan_end(plan: Plan) -> Nanos {
    match plan {
        Plan::Spin { until } | Plan::Nap { until, .. } | Plan::Sleep { until, .. } => until,
        Plan::Poll { .. } | Plan::Idle => Nanos::MAX,
    }
}

impl<T: QueueTransport> QueuePair<T> {
    /// A queue of `controller` for the calling thread, over `transport`, in the mode of `shared`,
    /// with the requests that the queue's last thread has left. `index` is its number in tokens.
    /// The thread sleeps in `poller`, unless the transport has a sleep of its own.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn new(
        controller: OpenController,
        shared: Arc<QueueShared>,
        index: u8,
        transport: T,
        poller: Arc<Poller>,
        fork_guard: ForkGuard,
    ) -> Result<QueuePair<T>, QueueError> {
        poller
            .add(&*shared.wake, KEY_WAKE)
            .map_err(|source| QueueError::System { what: "wake-up descriptor", source })?;
        // Nothing below can fail. On an error above, the requests stay in `left` for the next
        // thread.
        let mut requests = shared.left().take().unwrap_or_else(|| Box::new(Requests::new(index)));
        shared.set_orphaned(false);
        let mode = shared.mode.in_force().unwrap_or(Mode::INTERRUPT);
        let mut waiter = Waiter::new(mode, &sleep_cost::known(), NoAblation);
        // On a shared hardware queue the notification has to be taken first (`NotificationRole`).
        waiter.owner = !transport.is_shared();
        if requests.open() > 0 {
            // Completions of the last thread may have come while the notification was masked, and
            // have sent no message: begin with a poll.
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
        inner.apply_mode();
        let signal = Arc::new(Signal::new(shared.wake.clone()));
        let (done, submitting, spare) =
            (Cell::new(0), Cell::new(false), Cell::new(Some(Box::new(Requests::new(0)))));
        Ok(QueuePair {
            controller,
            shared,
            fork_guard,
            signal,
            poller,
            done,
            submitting,
            spare,
            inner: RefCell::new(inner),
        })
    }

    pub(crate) fn transport(&self) -> Ref<'_, T> {
        Ref::map(self.inner.borrow(), |inner| &inner.transport)
    }

    pub(crate) fn namespaces(&self) -> &[Namespace] {
        self.controller.namespaces()
    }

    pub(crate) fn pool(&self) -> &DmaPool {
        self.controller.pool()
    }

    /// See [`crate::Queue::submit_at`]. If the caller `waits` next and the transport submits in its
    /// sleep, the batch is not committed here.
    #[inline]
    pub(crate) fn submit(
        &self,
        now: Nanos,
        waits: bool,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<(), (Refused, Request)> {
        if !self.same_process() {
            return block_on::refuse(Refused::Forked, requests);
        }
        if self.submitting.get() {
            return block_on::refuse(Refused::InsideSubmit, requests);
        }
        // `+submit-check` polls after each commit, so there has to be one.
        let defers_commit = waits && T::SUBMITS_IN_SLEEP && !self.polls_after_submit();
        let mut batch = Submission::begin(self, now, defers_commit);
        let refused = batch.enter(requests.into_iter(), Claim::Batch);
        // Dropping it posts the batch: also what came before a refused request, and if the iterator
        // panics.
        drop(batch);
        refused.map_or(Ok(()), |refused| Err(*refused))
    }

    /// What futures have.
    pub(crate) fn tickets(&self) -> Arc<FutureStates> {
        self.inner.borrow().requests.tickets().clone()
    }

    /// See [`crate::Queue::start`]; `ticket` is its future's. With a `command` of the caller's own
    /// the request is that.
    pub(crate) fn start(
        &self,
        ticket: u32,
        request: Request,
        command: Option<Box<IoCommand>>,
    ) -> Result<(), (Refused, Request)> {
        if !self.same_process() {
            return Err((Refused::Forked, request));
        }
        if self.submitting.get() {
            return Err((Refused::InsideSubmit, request));
        }
        // Announced when the queue is next driven, or by `commit`.
        let mut batch = Submission::begin(self, hw::now(), true);
        self.inner.borrow_mut().has_futures = true;
        let refused = batch.enter(std::iter::once(request), Claim::Future(ticket));
        if let (None, Some(command), Some(requests)) = (&refused, command, &mut batch.requests) {
            requests.set_command(command);
        }
        drop(batch);
        refused.map_or(Ok(()), |refused| Err(*refused))
    }

    /// See [`crate::Queue::reap`].
    pub(crate) fn reap(&self, out: &mut Vec<Completion>) -> usize {
        // While the iterator runs `inner` has an empty table.
        if self.done.get() == 0 || self.submitting.get() {
            return 0;
        }
        let mut inner = self.inner.borrow_mut();
        // `out` does not grow on the data path (invariant 5), but one completion at least is moved.
        let room = (out.capacity() - out.len()).max(1);
        let moved = inner.requests.take_done(room, out);
        self.done.set(inner.requests.done());
        moved
    }

    /// Calls `take` for each finished request. `take` must not use the queue.
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

    /// Whether the application's iterator runs, inside [`QueuePair::submit`].
    pub(crate) fn is_submitting(&self) -> bool {
        self.submitting.get()
    }

    /// Drives the queue until at least `min` requests can be reaped, or until `until`. Without
    /// `idle` it also returns when nothing is in flight. Returns how many requests can be reaped.
    ///
    /// # Errors
    /// [`WouldDeadlock`] inside `block_on`, and inside the iterator of a `submit`.
    #[inline]
    pub(crate) fn wait(
        &self,
        min: usize,
        until: Nanos,
        idle: bool,
    ) -> Result<usize, WouldDeadlock> {
        let _inside: BlockingCall = block_on::enter()?;
        if self.is_submitting() {
            return Err(WouldDeadlock);
        }
        self.run(until, idle, Some(u32::try_from(min).unwrap_or(u32::MAX)), || false);
        Ok(self.finished())
    }

    /// Polls, spins and sleeps as the policy plans, until `wanted` requests can be reaped, `enough`
    /// is true or `until` has come. Unless the caller waits `for_others` too, it also returns when
    /// nothing is in flight. `inner` stays borrowed from step to step; only wakers run outside the
    /// borrow.
    #[inline]
    pub(crate) fn run(
        &self,
        until: Nanos,
        for_others: bool,
        wanted: Option<u32>,
        enough: impl Fn() -> bool,
    ) {
        if !self.same_process() {
            // After a fork: no completion reaches the child.
            return;
        }
        let mut inner = self.inner.borrow_mut();
        inner.wanted = wanted.unwrap_or(0);
        // The clock read of the last batch, which may be old: a plan made with it ends early and is
        // made again. So a busy queue reads the clock once per batch.
        let mut now = inner.clock;
        loop {
            if wanted.is_some_and(|wanted| inner.requests.done() >= wanted)
                || enough()
                || now >= until
            {
                break;
            }
            let plan = inner.plan(now, until, true);
            if !for_others && inner.requests.open() == 0 {
                // Nothing is in flight, so nothing that this caller waits for can come.
                break;
            }
            match plan {
                Plan::Poll { budget } => now = inner.poll(budget.min(MAX_WEIGHT)),
                Plan::Spin { until: end } => now = inner.spin(end.min(until), &enough),
                Plan::Nap { until: end, .. } | Plan::Sleep { until: end, .. } => {
                    now = self.sleep(&mut inner, end.min(until), &enough)
                }
                // Nothing is in flight: only another thread can end this sleep, by the queue's
                // wake-up.
                Plan::Idle if for_others => now = self.sleep(&mut inner, until, &enough),
                Plan::Idle => break,
            }
            if !inner.wakers.is_empty() {
                inner = self.wake_all(inner);
            }
        }
        // A clock read of a wake-up must not serve a poll of a later call.
        (inner.wanted, inner.woke_at) = (0, None);
        // Requests of futures may be posted and not announced.
        inner.transport.commit();
        inner.leave();
        self.publish(&inner);
    }

    #[inline]
    fn sleep(&self, inner: &mut Inner<T>, until: Nanos, enough: &impl Fn() -> bool) -> Nanos {
        // Other threads read `open` during the sleep: the housekeeping thread, and queues that
        // share tags.
        self.publish(inner);
        inner.sleep(until, enough)
    }

    /// Stores the counts of requests where they can be read without a borrow of `inner`.
    #[inline]
    fn publish(&self, inner: &Inner<T>) {
        self.done.set(inner.requests.done());
        self.shared.set_open(inner.requests.open());
    }

    /// Runs the wakers of finished futures with nothing borrowed: they may use the queue.
    #[cold]
    fn wake_all<'a>(&'a self, mut inner: RefMut<'a, Inner<T>>) -> RefMut<'a, Inner<T>> {
        self.publish(&inner);
        let mut wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        wake::wake_all(wakers.drain(..));
        let mut inner = self.inner.borrow_mut();
        // Put the allocation back, unless a waker has driven the queue and made another.
        if inner.wakers.capacity() == 0 {
            inner.wakers = wakers;
        }
        inner
    }

    /// Rings the doorbell, or enters the kernel, for what was posted.
    pub(crate) fn commit(&self) {
        self.inner.borrow_mut().transport.commit();
    }

    /// Has the transport register the memory of a buffer before the first request that uses it.
    pub(crate) fn prepare(&self, lent: &Lent) {
        if self.same_process() {
            self.inner.borrow_mut().transport.prepare(lent);
        }
    }

    /// Changes the completion mode, with requests in flight or without.
    pub(crate) fn set_mode(&self, mode: Mode) {
        let in_force = self.controller.mode_for(self.hardware_queue(), self.shared.made_for, mode);
        // Here, not where the mode is adopted: a measurement takes 10 ms.
        sleep_cost::prepare(in_force);
        self.shared.mode.request(in_force);
        // Interrupt Coalescing of the controller follows from the modes of its queues.
        self.controller.wake_task();
    }

    /// See [`crate::Queue::set_spin`].
    pub(crate) fn set_spin(&self, spin: Spin) {
        let mut inner = self.inner.borrow_mut();
        inner.spin = spin;
        // It was measured under the old setting.
        inner.waiter.seen.cpu_wanted = false;
    }

    /// See [`crate::Queue::set_next_due`].
    pub(crate) fn set_next_due(&self, due: Option<Nanos>) {
        self.inner.borrow_mut().waiter.seen.next_due = due;
    }

    /// See [`crate::Queue::next_due`].
    #[cfg(feature = "testing")]
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.inner.borrow().waiter.seen.next_due
    }

    /// The completion mode in force.
    pub(crate) fn mode(&self) -> Mode {
        self.inner.borrow().waiter.policy.mode()
    }

    /// Whether a commit polls for completions before it returns.
    fn polls_after_submit(&self) -> bool {
        self.inner.borrow().waiter.policy.facts().submit_check
    }

    /// The counters of the queue's thread.
    pub(crate) fn counters(&self) -> Counters {
        self.inner.borrow().counters
    }

    /// The counters of the queue's thread since the last call, or since the queue was taken.
    pub(crate) fn take_counters(&self) -> Counters {
        std::mem::take(&mut self.inner.borrow_mut().counters)
    }

    /// What `adaptive` does and why; `None` in other modes.
    pub(crate) fn adaptive_state(&self) -> Option<AdaptiveState> {
        self.inner.borrow().waiter.policy.state().copied()
    }

    /// From now on counts completions per wake-up ([`QueuePair::wakeups`]).
    pub(crate) fn count_wakeups(&self) {
        self.inner.borrow_mut().wakeups = Some(Box::new(Wakeups::begun(hw::now())));
    }

    /// Completions per wake-up since [`QueuePair::count_wakeups`].
    pub(crate) fn wakeups(&self) -> Wakeups {
        self.inner.borrow().wakeups.as_deref().copied().unwrap_or_default()
    }

    /// The number of its hardware queue, from 0. NVMe numbers I/O queues from 1.
    pub(crate) fn hardware_queue(&self) -> u16 {
        self.shared.id - 1
    }

    /// Whether the calling process created it. False in a child that was forked since.
    #[inline]
    pub(crate) fn same_process(&self) -> bool {
        self.fork_guard.same_process()
    }

    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// From now on the thread may sleep outside the transport: in an
    /// [`super::event_loop::EventLoop`] or a loop of its own.
    pub(crate) fn allow_external_sleep(&self) {
        self.inner.borrow_mut().transport.notify_by_eventfd();
    }

    /// See [`crate::Queue::poll_events`].
    pub(crate) fn poll_events(&self, budget: u32) -> PollStatus {
        if !self.same_process() {
            return PollStatus { found: 0, more: false };
        }
        if self.submitting.get() {
            // Called from the application's iterator: the loop has to come again once the batch is
            // posted.
            return PollStatus { found: 0, more: true };
        }
        let mut inner = self.inner.borrow_mut();
        inner.in_loop = true;
        inner.transport.notify_by_eventfd();
        _ = inner.drain_events(&self.poller);
        let weighs = inner.waiter.policy.facts().weighs_sleeps;
        let mut before = 0;
        if weighs {
            // `plan` below only tells the policy of the time outside. Its answer is a poll, which
            // follows anyway.
            before = inner.waiter.seen.found;
            // How long the thread has computed since it left. If it has slept since, the time says
            // nothing.
            let computed = inner.left_at.take();
            inner.waiter.seen.cycle = computed.map(|(left, sleeps)| {
                if hw::thread_usage().sleeps == sleeps { hw::now() - left } else { Nanos::ZERO }
            });
            inner.waiter.woken(Woke::OTHER);
            inner.plan(hw::now(), Nanos::MAX, false);
        }
        inner.transport.commit();
        let now = inner.poll(budget.max(1));
        // Completions may have returned tags, so that waiting requests were posted.
        inner.transport.commit();
        let found = inner.waiter.seen.found;
        inner.waiter.seen.found += before;
        let there = inner.waiter.seen.found > 0;
        inner.waiter.seen.leaving = true;
        if !matches!(inner.plan(now, Nanos::MAX, false), Plan::Nap { .. }) {
            // The loop sleeps in its own epoll next, and no other thread reaps for it. So the
            // notification has to be armed, even if the policy would spin.
            inner.waiter.plan = Plan::sleep(Nanos::MAX);
        } else if inner.waiter.silent() == 0 {
            // The policy lets the loop compute undisturbed until the nap is over.
            SleepSteps::mask(&mut *inner);
        }
        inner.turns = inner.turns.wrapping_add(u32::from(weighs && there));
        if weighs && there && inner.turns.is_multiple_of(MEASURED_TURNS) {
            inner.left_at = Some((hw::now(), hw::thread_usage().sleeps));
        }
        // As before a sleep: arm, then check. Blocking is left to the application's loop.
        sleep::arm(&mut *inner);
        self.publish(&inner);
        let inner_ref = &mut *inner;
        let pending = inner_ref.was_posted() | inner_ref.has_completions()
            || inner_ref.waiter.owner && inner_ref.transport.pending();
        if pending {
            inner.waiter.found_something();
        }
        // A mode change requested before the wake-up was armed has sent no signal.
        let more = pending || inner.requests.done() > 0 || !self.shared.mode.is_adopted();
        if !inner.wakers.is_empty() {
            drop(self.wake_all(inner));
        }
        PollStatus { found, more }
    }

    /// See [`crate::Queue::leave_loop`].
    pub(crate) fn leave_loop(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.in_loop = false;
        if self.same_process() {
            inner.leave();
            self.shared.wake.disarm();
        }
    }

    /// See [`crate::Queue::next_deadline`].
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let inner = self.inner.borrow();
        Some(plan_end(inner.waiter.plan)).filter(|&at| at != Nanos::MAX)
    }

    /// The thread is done with the queue. The housekeeping thread reaps what is still in flight. If
    /// only this thread can reap it (SINGLE_ISSUER), `close` waits for it: for the time-out, and
    /// one second for the kernel to cancel it.
    pub(crate) fn close(self) {
        if !self.same_process() {
            // After a fork: the requests are the parent's.
            return;
        }
        self.commit();
        let bound = self.inner.borrow().transport.is_bound_to_thread();
        if bound && self.in_flight() > 0 {
            self.run(hw::now() + self.controller.close_timeout(), false, None, || false);
        }
        let QueuePair { controller, shared, inner, .. } = self;
        let mut inner = inner.into_inner();
        inner.leave();
        inner.transport.close();
        inner.requests.unclaim_all();
        shared.set_open(inner.requests.open());
        if inner.requests.open() == 0 {
            return controller.release_queue(&shared);
        }
        shared.set_orphaned(true);
        if T::REAPED_BY_OTHERS {
            // The table before the queue is released: the next thread takes both.
            *shared.left() = Some(inner.requests);
            controller.release_queue(&shared);
            return controller.wake_task();
        }
        if !bound {
            // The ring goes to the housekeeping thread together with its requests.
            return controller.add_orphan(Box::new(inner));
        }
        // The kernel has not even cancelled them, and may still write to the buffers: leak these.
        let (wakers, memory) = inner.lose_all();
        wake::wake_all(wakers);
        block_on::drop_buffers(memory);
        controller.release_queue(&shared);
    }
}

impl QueuePair<UringQueue> {
    /// The counters of its rings.
    pub(crate) fn hardware_counters(&self) -> HardwareCounters {
        self.shared.hardware_counters()
    }
}

impl QueuePair<RingQueue> {
    /// The counters of its hardware queue, for all threads that share it.
    pub(crate) fn hardware_counters(&self) -> HardwareCounters {
        self.controller.hardware_counters(self.transport().hardware())
    }

    /// In `posted`, messages of this queue's vector signal the eventfd of `target` from now on: the
    /// vector of another queue of the same thread, or its own.
    pub(crate) fn share_notification(&self, target: Vector) {
        let inner = &mut *self.inner.borrow_mut();
        if inner.transport.share_notification(target) {
            inner.waiter.settle(&mut inner.transport);
            // A message on its way may have signalled the old target: poll once.
            inner.waiter.woken(Woke::OTHER);
        }
    }
}

/// A batch that is being entered. Dropping it posts and commits the batch, also when the
/// application's iterator has panicked.
struct Submission<'a, T: QueueTransport> {
    queue: &'a QueuePair<T>,
    /// The queue's request table, moved out of `inner` so that the application's iterator runs with
    /// nothing borrowed. `drop` puts it back.
    requests: Option<Box<Requests>>,
    now: Nanos,
    /// The requests are those of a future.
    is_future: bool,
    /// Urgent requests that were open before the batch.
    urgent: u32,
    /// The caller commits later.
    defers_commit: bool,
}

impl<'a, T: QueueTransport> Submission<'a, T> {
    #[inline]
    fn begin(queue: &'a QueuePair<T>, now: Nanos, defers_commit: bool) -> Submission<'a, T> {
        let inner = &mut *queue.inner.borrow_mut();
        inner.clock = now;
        queue.submitting.set(true);
        let spare = queue.spare.take().unwrap_or_else(|| Box::new(Requests::new(0)));
        let mut requests = std::mem::replace(&mut inner.requests, spare);
        // Cleared lazily: with nothing open no future waits.
        inner.has_futures &= requests.open() > 0;
        requests.begin();
        let urgent = requests.urgent();
        Submission { queue, requests: Some(requests), now, is_future: false, urgent, defers_commit }
    }

    /// Enters what the application's iterator yields, until a request is refused. A function of its
    /// own so that the compiler knows of no other reference to the table: saves four instructions
    /// per request.
    #[inline(always)]
    fn enter(
        &mut self,
        requests: impl Iterator<Item = Request>,
        claim: Claim,
    ) -> Option<Box<(Refused, Request)>> {
        let (controller, now) = (&self.queue.controller, self.now);
        self.is_future = claim != Claim::Batch;
        let entered = self.requests.as_deref_mut()?;
        let check = controller.checker();
        for request in requests {
            let (checked, request) = check(request);
            if let Err(why) = checked {
                // After a namespace has changed, the quick check refuses every request of the
                // controller.
                match controller.recheck(why, request) {
                    Ok(request) => match entered.enter_growing(request, claim, now) {
                        None => continue,
                        Some(request) => return Some(refusal(Refused::TooMany, request)),
                    },
                    Err((why, request)) => return Some(refusal(why, request)),
                }
            }
            // `enter` stores the fields straight into the slot: the request is moved as a whole
            // only if the table has to grow.
            if let Err(request) = entered.enter(request, claim, now)
                && let Some(request) = entered.enter_growing(request, claim, now)
            {
                return Some(refusal(Refused::TooMany, request));
            }
        }
        None
    }
}

/// Boxed, so that the result of [`Submission::enter`] is one word on the data path.
#[cold]
fn refusal(why: Refused, request: Request) -> Box<(Refused, Request)> {
    Box::new((why, request))
}

impl<T: QueueTransport> Drop for Submission<'_, T> {
    #[inline(never)] // Next to the loop that takes requests in, the one that posts them would have fewer registers.
    fn drop(&mut self) {
        let &mut Submission { queue, now, is_future, defers_commit, urgent, .. } = self;
        queue.submitting.set(false);
        let mut borrowed = queue.inner.borrow_mut();
        let inner = &mut *borrowed;
        let Some(requests) = self.requests.take() else { return };
        queue.spare.set(Some(std::mem::replace(&mut inner.requests, requests)));
        let Inner { requests, transport, waiter, .. } = inner;
        let urgent = requests.urgent() - urgent;
        if transport.has_poll_queue() {
            // A foreign loop never spins: commands of a poll queue would have to be polled for by
            // its timer.
            let batch = Batch { urgent, in_flight: requests.open(), ..Batch::default() };
            transport.set_route(if inner.in_loop {
                Route::Notify
            } else {
                waiter.policy.route(now, &batch)
            });
        }
        let room = transport.room(requests.posted());
        let mut posting = transport.posting();
        let commands = requests.post_entered(&mut posting, !is_future && urgent == 0, now, room);
        // Under the submission lock that `posting` holds: one lock for the batch and its doorbell.
        if !defers_commit {
            posting.commit();
        }
        drop(posting);
        if defers_commit {
            transport.defer_commit();
        }
        queue.shared.set_open(requests.open());
        if requests.is_waiting() {
            // Tags come back only from commands that the controller knows of.
            transport.commit();
            inner.wait_for_room(now);
            queue.publish(inner);
            if queue.shared.fails_all() {
                // Failed requests have no completion that would make the descriptor of a foreign
                // loop readable.
                queue.shared.notice();
            }
        }
        if commands > 0 {
            if T::CANCELS_OVERDUE && inner.late_at == Nanos::MAX {
                // A clock read per idle period: `now` may be the caller's, and old.
                let at = hw::now() + inner.timeout;
                inner.set_late_at(at);
            }
            let policy = &mut inner.waiter.policy;
            let Facts { records, submit_check, .. } = *policy.facts();
            let class = if records == Records::None { None } else { inner.requests.last_class() };
            let batch = Batch {
                commands,
                urgent: urgent.min(commands),
                in_flight: inner.requests.open(),
                class,
            };
            if policy.submitted(now, &batch)
                && let Some(state) = policy.state()
            {
                log_change(queue.shared.id, state);
            }
            // `+submit-check`: reap what is already there. Older Linux kernels did so in
            // nvme_queue_rq.
            if submit_check && !defers_commit && inner.transport.pending() {
                inner.counters.submit_checks += 1;
                // Also where a drain thread reaps for this queue.
                inner.transport.set_reaps_itself(true);
                inner.poll(WEIGHT);
                inner.transport.set_reaps_itself(false);
                // The owner of the notification may have found the completion lock busy and gone to
                // sleep.
                if let Some(owner) = inner.waiter.owner_to_wake(&mut inner.transport) {
                    inner.transport.notify(owner);
                }
                queue.publish(inner);
            }
        }
        if !inner.wakers.is_empty() {
            drop(queue.wake_all(borrowed));
        }
    }
}

/// One of several queues of a thread, which sleeps in an [`super::event_loop::EventLoop`].
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

    fn spin_started(&self) {
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

    fn spin_ended(&self, now: Nanos) {
        self.inner.borrow_mut().sample_delay(now);
    }

    fn yields_cpu(&self) -> bool {
        let inner = self.inner.borrow();
        inner.spin.yields_cpu(inner.waiter.policy.mode())
    }

    fn arm(&self) {
        sleep::arm(&mut *self.inner.borrow_mut());
    }

    fn check_before_sleep(&self) -> bool {
        let inner = &mut *self.inner.borrow_mut();
        // io_uring signals its eventfd only for CQEs posted after the eventfd was registered: test
        // the CQ too.
        let unannounced = T::SUBMITS_IN_SLEEP
            && matches!(inner.waiter.plan, Plan::Sleep { .. })
            && inner.transport.pending();
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
        inner.after_sleep(slept);
        // Other queues may be polled first, which takes time: this queue's poll needs a clock read
        // of its own.
        inner.woke_at = None;
    }

    fn leave(&self) {
        self.inner.borrow_mut().leave();
    }
}

/// Readable when [`QueuePair::poll_events`] has something to do.
impl<T: QueueTransport> AsFd for QueuePair<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

#[cfg(test)]
mod tests;
