//! Drives several queues of one thread: the queues of a `Group`, or the paths of a multipath
//! device. (A single queue drives itself, in `queue_pair.rs`.) Policies decide when to poll and
//! sleep; this module combines their plans and carries them out, all queues in one epoll instance.
//!
//! ```text
//!  plan    each queue's policy → Plan; `combine` takes the most urgent: poll, spin, nap, sleep, rest
//!  poll    a round: each queue that plans to poll, within weight, budget and time limit (as NAPI)
//!  spin    test all CQs in turn, without system calls
//!  sleep   arm every queue → fence → check every queue → epoll_wait → report the result to each queue
//! ```
//!
//! The simulator (crate `sim`) does the same in virtual time.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use completion::{
    Cause, NoAblation, Plan, PollLimits, Round, StepResult, WEIGHT, Woke, combine, sleep_step,
};
use hw::Poller;
use units::Nanos;

/// Tests of the CQ between two clock reads: a clock read costs about as much as several tests.
pub(super) const SPINS_PER_CLOCK: u32 = 16;

/// For policies that weigh the cost of a sleep: the CPU time of one sleep in this many is measured.
pub(super) const MEASURED_SLEEPS: u32 = 32;

/// A queue that an [`EventLoop`] drives. The methods are in the order of their use.
pub(crate) trait LoopQueue {
    /// Requests that are not finished.
    fn in_flight(&self) -> u32;

    /// What the queue's policy plans. The caller continues at `goes_on_at` in any case.
    fn plan(&self, now: Nanos, goes_on_at: Nanos) -> Plan;

    /// Reaps at most `budget` completions. Returns how many, and the clock read of the poll if it
    /// made one.
    fn poll(&self, budget: u32) -> (u32, Option<Nanos>);

    /// The limits of a round in which the queue takes part.
    fn limits(&self) -> PollLimits;

    /// The thread begins to spin.
    fn spin_started(&self);

    /// Whether a poll would find something. Takes no lock.
    fn poll_ready(&self) -> bool;

    /// The thread has spun until `now`, and found nothing.
    fn spin_ended(&self, now: Nanos);

    /// Whether a spinning thread yields the CPU between tests.
    fn yields_cpu(&self) -> bool;

    /// Arms the notification, if the queue's own plan is to sleep on it (invariant 1, first half).
    fn arm(&self);

    /// Between arming and blocking: whether there is something that has sent no notification
    /// (second half).
    fn check_before_sleep(&self) -> bool;

    /// Whether the policy weighs the cost of sleeps: measuring one takes four system calls.
    fn measures_sleeps(&self) -> bool;

    /// Reads the events of the queue's own poller, without waiting. Returns whether its
    /// notification was among them.
    fn drain_events(&self) -> io::Result<bool>;

    /// The thread has slept.
    fn woken(&self, slept: &Slept);

    /// The thread returns to its caller.
    fn leave(&self);
}

/// How a sleep or a nap ended, for one queue.
pub(crate) struct Slept {
    /// The thread did not block: the check after arming found something.
    pub found: bool,
    /// No queue of the thread slept on its notification.
    pub nap: bool,
    /// This queue's notification came.
    pub notified: bool,
    /// When it ended, and its deadline.
    pub woke_at: Nanos,
    pub until: Nanos,
    /// The thread's CPU time for it, if measured.
    pub cycle: Option<Nanos>,
}

/// The epoll instance in which the thread of several queues sleeps. The key of each queue's own
/// poller in it is the queue's index.
pub(crate) struct EventLoop {
    poller: Poller,
    state: RefCell<LoopState>,
}

struct LoopState {
    round: Round,
    plans: Vec<Plan>,
    events: Vec<u64>,
    sleeps: u32,
}

/// Why [`EventLoop::drive`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopEnd {
    /// `enough` was true.
    Enough,
    /// `until` has come.
    Deadline,
    /// Nothing is in flight.
    Idle,
}

impl EventLoop {
    pub(crate) fn new() -> io::Result<EventLoop> {
        let state = LoopState {
            round: Round::default(),
            plans: Vec::new(),
            events: Vec::with_capacity(64),
            sleeps: 0,
        };
        Ok(EventLoop { poller: Poller::new()?, state: RefCell::new(state) })
    }

    pub(crate) fn poller(&self) -> &Poller {
        &self.poller
    }

    /// Reads the poller's events, without waiting. Returns whether `key` was among them.
    pub(crate) fn drain(&self, key: u64) -> io::Result<bool> {
        // Borrowed: a waker calls this from within `drive`, which reads the events itself.
        let Ok(mut state) = self.state.try_borrow_mut() else { return Ok(false) };
        let events = &mut state.events;
        self.poller.wait(Some(Nanos::ZERO), events)?;
        Ok(events.contains(&key))
    }

    /// Polls, spins and sleeps as the queues' policies plan, until `enough` is true or `until` has
    /// come. Unless the caller waits `for_others` too, it also returns when nothing is in flight.
    ///
    /// `now` may be the clock read of the last batch. A plan made with an old clock read ends early
    /// and is made again, so a busy queue reads the clock once per batch.
    ///
    /// # Errors
    /// `epoll_wait` failed.
    pub(crate) fn drive(
        &self,
        queues: &[&impl LoopQueue],
        mut now: Nanos,
        until: Nanos,
        for_others: bool,
        enough: impl Fn() -> bool,
    ) -> io::Result<LoopEnd> {
        let state = &mut *self.state.borrow_mut();
        let ended = loop {
            if enough() {
                break LoopEnd::Enough;
            }
            if now >= until {
                break LoopEnd::Deadline;
            }
            match state.plan(queues, now, until) {
                Plan::Poll { .. } => now = state.round(queues, now),
                // A policy spins to the caller's deadline although nothing is in flight: the caller
                // computes instead.
                Plan::Spin { .. }
                    if until != Nanos::MAX
                        && !for_others
                        && queues.iter().all(|queue| queue.in_flight() == 0) =>
                {
                    break LoopEnd::Idle;
                }
                Plan::Spin { until: end } => now = state.spin(queues, now, end.min(until), &enough),
                Plan::Nap { until: end, .. } | Plan::Sleep { until: end, .. } => {
                    now = self.sleep(state, queues, end.min(until), &enough)?
                }
                Plan::Idle if !for_others => break LoopEnd::Idle,
                Plan::Idle => now = self.sleep(state, queues, until, &enough)?,
            }
        };
        for queue in queues.iter() {
            queue.leave();
        }
        Ok(ended)
    }

    /// Arm, fence, check, block (invariant 1). Only queues whose own plan is to sleep arm their
    /// vectors. Returns the time of the wake-up.
    #[inline(never)] // Keeps its stack frame out of waits that find something.
    fn sleep(
        &self,
        state: &mut LoopState,
        queues: &[&impl LoopQueue],
        until: Nanos,
        enough: &impl Fn() -> bool,
    ) -> io::Result<Nanos> {
        state.events.clear();
        let (mut found, mut cycle, mut step) = (false, None, 0);
        loop {
            let arm = |queue: &&_| {
                LoopQueue::arm(*queue);
                true
            };
            // `SLEEP` has the order, here and in the simulator: all queues are armed before
            // the first check.
            match sleep_step(&NoAblation, step, queues.iter(), arm, |queue| {
                Some(queue.check_before_sleep())
            }) {
                // After arming: what makes `enough` true later wakes the thread.
                StepResult::Armed(_) => found = enough(),
                StepResult::Empty(_) if !found => {}
                StepResult::Empty(_) | StepResult::Found(_) => {
                    found = true;
                    break;
                }
                StepResult::Block => {
                    state.sleeps = state.sleeps.wrapping_add(1);
                    let measures = state.sleeps.is_multiple_of(MEASURED_SLEEPS)
                        && queues.iter().any(|queue| queue.measures_sleeps());
                    let measured = measures.then(SleepCpu::begin);
                    let timeout = (until != Nanos::MAX).then(|| until - hw::now());
                    self.poller.wait(timeout, &mut state.events)?;
                    cycle = measured.and_then(SleepCpu::end);
                    break;
                }
            }
            step += 1;
        }
        let woke_at = hw::now();
        let nap = !state.plans.iter().any(|plan| matches!(plan, Plan::Sleep { .. } | Plan::Idle));
        for (at, queue) in queues.iter().enumerate() {
            // Only queues whose poller has reported cost a system call.
            let notified = state.events.contains(&(at as u64)) && queue.drain_events()?;
            queue.woken(&Slept { found, nap, notified, woke_at, until, cycle });
        }
        Ok(woke_at)
    }
}

/// Measures the CPU time of one sleep.
pub(super) struct SleepCpu {
    sleeps: u64,
    cpu: Nanos,
}

impl SleepCpu {
    pub(super) fn begin() -> SleepCpu {
        let sleeps = hw::thread_usage().sleeps;
        SleepCpu { sleeps, cpu: hw::thread_cpu() }
    }

    /// The thread's CPU time since [`SleepCpu::begin`]. `None` if the thread did not leave its CPU,
    /// because the sleep was over before it began.
    pub(super) fn end(self) -> Option<Nanos> {
        let cpu = hw::thread_cpu() - self.cpu;
        // On a fast device most sleeps end before they begin, and are cheap. A policy that took
        // them for the cost of sleeping would sleep more, and see still more of them.
        (hw::thread_usage().sleeps != self.sleeps).then_some(cpu)
    }
}

impl AsFd for EventLoop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

impl LoopState {
    /// Asks each policy for its plan, and combines them.
    fn plan(&mut self, queues: &[&impl LoopQueue], now: Nanos, until: Nanos) -> Plan {
        self.plans.clear();
        let plans = &mut self.plans;
        combine(queues.iter().map(|queue| {
            let plan = queue.plan(now, until);
            plans.push(plan);
            plan
        }))
    }

    /// Spins, and reaps what it finds without asking the policies: each would plan a poll. Returns
    /// the time.
    #[inline]
    fn spin(
        &mut self,
        queues: &[&impl LoopQueue],
        now: Nanos,
        until: Nanos,
        enough: &impl Fn() -> bool,
    ) -> Nanos {
        match spin(queues, &mut self.plans, now, until, enough) {
            (now, true) => self.round(queues, now),
            (now, false) => now,
        }
    }

    /// Polls each queue that plans to, within weight, budget and time limit (invariant 2). Returns
    /// the time.
    fn round(&mut self, queues: &[&impl LoopQueue], mut now: Nanos) -> Nanos {
        let limits = queues.iter().map(|queue| queue.limits()).reduce(PollLimits::smallest);
        // The strictest limits of all queues hold for the round.
        self.round.begin(now, limits.unwrap_or(PollLimits::DEFAULT));
        // At most one poll for each queue, so that the loop ends.
        for _ in queues {
            let Some(turn) = self.round.turn(now, &self.plans) else { break };
            let (found, read) = queues[turn.queue].poll(turn.budget);
            now = read.unwrap_or_else(hw::now);
            self.round.took(found);
            // Not again in this round. Its policy is asked before the next.
            self.plans[turn.queue] = Plan::Idle;
        }
        now
    }
}

/// Tests all queues until one has something to reap (true) or `until` has come (false). Takes no
/// lock. Changes the plan of each spinning queue that has something to a poll.
fn spin(
    queues: &[&impl LoopQueue],
    plans: &mut [Plan],
    mut now: Nanos,
    until: Nanos,
    enough: &impl Fn() -> bool,
) -> (Nanos, bool) {
    for queue in queues.iter() {
        queue.spin_started();
    }
    let yields_cpu = queues.iter().any(|queue| queue.yields_cpu());
    loop {
        for _ in 0..SPINS_PER_CLOCK {
            let mut found = false;
            for (queue, plan) in queues.iter().zip(&mut *plans) {
                if queue.poll_ready() {
                    found = true;
                    // A queue that plans to sleep or nap is not polled before its policy has said
                    // so.
                    if matches!(plan, Plan::Spin { .. }) {
                        *plan = Plan::Poll { budget: WEIGHT };
                    }
                }
            }
            if found {
                return (now, true);
            }
            std::hint::spin_loop();
        }
        if yields_cpu {
            // If no other thread is ready this costs only the system call.
            std::thread::yield_now();
        }
        now = hw::now();
        if now >= until || enough() {
            break;
        }
    }
    for queue in queues.iter() {
        queue.spin_ended(now);
    }
    (now, false)
}

/// Classifies a wake-up for the policy, with how late its timer was.
pub(crate) fn cause(notified: bool, woke_at: Nanos, until: Nanos) -> Woke {
    if notified {
        Woke { cause: Cause::Notification, late: Nanos::ZERO }
    } else if woke_at >= until {
        Woke { cause: Cause::Timer, late: woke_at - until }
    } else {
        Woke { cause: Cause::Other, late: Nanos::ZERO }
    }
}

/// Logs an error of [`EventLoop::drive`]: only `epoll_wait` can fail there.
#[inline(always)]
pub(crate) fn report(ended: io::Result<LoopEnd>) {
    if let Err(error) = ended {
        cannot_sleep(&error);
    }
}

#[cold]
fn cannot_sleep(error: &io::Error) {
    tracing::error!(%error, "the thread cannot sleep");
}

/// Most queues whose list is kept on the stack.
const STACK_QUEUES: usize = 32;

/// Calls `then` with `queues` as a slice, for [`EventLoop::drive`]. Allocates only for more than a
/// few.
pub(crate) fn together<'a, Q: LoopQueue + 'a, T>(
    queues: impl Iterator<Item = &'a Q> + Clone,
    then: impl FnOnce(&[&Q]) -> T,
) -> T {
    let Some(first) = queues.clone().next() else { return then(&[]) };
    let mut few = [first; STACK_QUEUES];
    let mut count = 0;
    for (place, queue) in few.iter_mut().zip(queues.clone()) {
        *place = queue;
        count += 1;
    }
    match few.get(..count) {
        // At STACK_QUEUES the array may have been too short for the rest.
        Some(all) if count < STACK_QUEUES => then(all),
        _ => then(&queues.collect::<Vec<_>>()),
    }
}

#[cfg(test)]
mod tests;
