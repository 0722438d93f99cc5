//! The executor of plans: the one place in the library where a thread goes to sleep.
//!
//! Policies say *when*; this says *how*, for the queues of one thread: looks within the group's rounds, spins, and
//! sleeps by invariant 1 (arm, fence, look, block). The simulator does the same in virtual time.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use completion::{Cause, Lawful, Plan, PollLimits, Round, Step, WEIGHT, Woke, combine, fall_asleep};
use hw::Poller;
use units::Nanos;

/// Spins between two clock reads.
pub(super) const SPINS_PER_CLOCK: u32 = 16;

/// Of this many sleeps the CPU time of one is measured, so that a policy which weighs it keeps track.
const MEASURED_SLEEPS: u32 = 32;

/// A queue of the thread's, as the engine drives it: in the order in which it does.
pub(crate) trait LoopQueue {
    /// Requests that are not finished.
    fn in_flight(&self) -> u32;

    /// What its policy wants to be done next. The caller goes on at `goes_on_at`, whatever has been found.
    fn plan(&self, now: Nanos, goes_on_at: Nanos) -> Plan;

    /// Takes at most `budget` entries. How many were found, and the clock read of the look if there were any.
    fn poll(&self, budget: u32) -> (u32, Option<Nanos>);

    /// How much a round over it and other queues takes at most.
    fn limits(&self) -> PollLimits;

    /// Begins to spin.
    fn begin_spin(&self);

    /// Whether there is something to take, without a lock.
    fn poll_ready(&self) -> bool;

    /// Has spun until now, and found nothing.
    fn spun_until(&self, now: Nanos);

    /// Whether its thread gives the CPU to others between looks, while it spins.
    fn yields_cpu(&self) -> bool;

    /// The arming half of invariant 1, where the queue's own plan is to sleep on its notification.
    fn arm(&self);

    /// The look between arming and blocking: whether there is anything that no notification tells of.
    fn check_before_sleep(&self) -> bool;

    /// Whether its policy is to be told what sleeps cost: measuring one takes four system calls.
    fn measures_sleeps(&self) -> bool;

    /// Takes what its own poller has to report, without waiting. Whether its notification was among it.
    fn drain_events(&self) -> io::Result<bool>;

    /// Awake again.
    fn woken(&self, slept: &Slept);

    /// The thread goes back to its caller.
    fn leave(&self);
}

/// How a sleep or a nap went, for one queue.
pub(crate) struct Slept {
    /// It did not block: there was something after arming.
    pub found: bool,
    /// No queue of the thread slept on its notification.
    pub nap: bool,
    /// This queue's notification came.
    pub notified: bool,
    /// When it was over, and when it was to be over at the latest.
    pub woke_at: Nanos,
    pub until: Nanos,
    /// The thread's CPU time, if it was measured.
    pub cycle: Option<Nanos>,
}

/// Where the thread of some queues sleeps, and the round it is in.
pub(crate) struct EventLoop {
    poller: Poller,
    state: RefCell<State>,
}

struct State {
    round: Round,
    plans: Vec<Plan>,
    events: Vec<u64>,
    sleeps: u32,
}

/// Why [`EventLoop::drive`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopEnd {
    /// What the caller waits for has come.
    Enough,
    /// The time has come.
    Deadline,
    /// Nothing is in flight, so nothing will come.
    Idle,
}

impl EventLoop {
    pub(crate) fn new() -> io::Result<EventLoop> {
        let state = State { round: Round::default(), plans: Vec::new(), events: Vec::with_capacity(64), sleeps: 0 };
        Ok(EventLoop { poller: Poller::new()?, state: RefCell::new(state) })
    }

    pub(crate) fn poller(&self) -> &Poller {
        &self.poller
    }

    /// Takes what the poller has to report, without waiting. Whether `key` was among it.
    pub(crate) fn drain(&self, key: u64) -> io::Result<bool> {
        // From a waker, while `drive` runs below it: that one takes the events.
        let Ok(mut state) = self.state.try_borrow_mut() else { return Ok(false) };
        let events = &mut state.events;
        self.poller.wait(Some(Nanos::ZERO), events)?;
        Ok(events.contains(&key))
    }

    /// Looks, spins and sleeps as the queues' policies plan, until `enough`, `until`, or, unless the caller waits for
    /// others too (`for_others`), nothing is in flight.
    ///
    /// `now` may be the clock read of the queue's last batch: a plan made with it ends early and is made again, and a busy
    /// queue reads the clock once per batch.
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
                Plan::Look { .. } => now = state.round(queues, now),
                // To the next instant of the caller, who does not wait for it.
                Plan::Spin { .. } if until != Nanos::MAX && !for_others && queues.iter().all(|queue| queue.in_flight() == 0) => {
                    break LoopEnd::Idle;
                }
                Plan::Spin { until: end } => now = state.spin(queues, now, end.min(until), &enough),
                Plan::Nap { until: end, .. } | Plan::Sleep { until: end, .. } => {
                    now = self.sleep(state, queues, end.min(until), &enough)?
                }
                Plan::Rest if !for_others => break LoopEnd::Idle,
                Plan::Rest => now = self.sleep(state, queues, until, &enough)?,
            }
        };
        for queue in queues.iter() {
            queue.leave();
        }
        Ok(ended)
    }

    /// Arm, fence, look, block. Vectors are armed of those queues alone whose own plan is to sleep. When it was over.
    #[inline(never)] // What it needs of the stack and the registers, a wait that finds something does without.
    fn sleep(&self, state: &mut State, queues: &[&impl LoopQueue], until: Nanos, enough: &impl Fn() -> bool) -> io::Result<Nanos> {
        state.events.clear();
        let (mut found, mut cycle, mut step) = (false, None, 0);
        loop {
            let arm = |queue: &&_| {
                LoopQueue::arm(*queue);
                true
            };
            match fall_asleep(&Lawful, step, queues.iter(), arm, |queue| Some(queue.check_before_sleep())) {
                Step::Armed(_) => found = enough(),
                Step::Empty(_) if !found => {}
                Step::Empty(_) | Step::Found(_) => {
                    found = true;
                    break;
                }
                Step::Block => {
                    state.sleeps = state.sleeps.wrapping_add(1);
                    let measures = state.sleeps.is_multiple_of(MEASURED_SLEEPS) && queues.iter().any(|queue| queue.measures_sleeps());
                    let measured = measures.then(Measured::begin);
                    let timeout = (until != Nanos::MAX).then(|| until - hw::now());
                    self.poller.wait(timeout, &mut state.events)?;
                    cycle = measured.and_then(Measured::end);
                    break;
                }
            }
            step += 1;
        }
        let woke_at = hw::now();
        let nap = !state.plans.iter().any(|plan| matches!(plan, Plan::Sleep { .. } | Plan::Rest));
        for (at, queue) in queues.iter().enumerate() {
            // The key of a queue's own poller is the queue's place.
            let notified = state.events.contains(&(at as u64)) && queue.drain_events()?;
            queue.woken(&Slept { found, nap, notified, woke_at, until, cycle });
        }
        Ok(woke_at)
    }
}

/// A sleep whose CPU time is measured.
pub(super) struct Measured {
    sleeps: u64,
    cpu: Nanos,
}

impl Measured {
    pub(super) fn begin() -> Measured {
        let sleeps = hw::thread_usage().sleeps;
        Measured { sleeps, cpu: hw::thread_cpu() }
    }

    /// The thread's CPU time since. `None`: what was to end the sleep came before the thread had left its CPU, so that there was
    /// none. Where entries come fast most end so, and cost so little that a policy which took them for sleeps would sleep more, and
    /// meet more of them.
    pub(super) fn end(self) -> Option<Nanos> {
        let cpu = hw::thread_cpu() - self.cpu;
        (hw::thread_usage().sleeps != self.sleeps).then_some(cpu)
    }
}

impl AsFd for EventLoop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

impl State {
    /// What the queues plan together.
    fn plan(&mut self, queues: &[&impl LoopQueue], now: Nanos, until: Nanos) -> Plan {
        self.plans.clear();
        let plans = &mut self.plans;
        combine(queues.iter().map(|queue| {
            let plan = queue.plan(now, until);
            plans.push(plan);
            plan
        }))
    }

    /// Spins. What is found is taken at once: whatever a queue's policy, it would plan nothing else.
    #[inline]
    fn spin(&mut self, queues: &[&impl LoopQueue], now: Nanos, until: Nanos, enough: &impl Fn() -> bool) -> Nanos {
        match spin(queues, &mut self.plans, now, until, enough) {
            (now, true) => self.round(queues, now),
            (now, false) => now,
        }
    }

    /// Every queue that plans to look has its turn within weight, budget and time limit. When it was over.
    fn round(&mut self, queues: &[&impl LoopQueue], mut now: Nanos) -> Nanos {
        let limits = queues.iter().map(|queue| queue.limits()).reduce(PollLimits::smallest);
        self.round.begin(now, limits.unwrap_or(PollLimits::DEFAULT));
        // Each has one turn at most.
        for _ in queues {
            let Some(turn) = self.round.turn(now, &self.plans) else { break };
            let (found, read) = queues[turn.queue].poll(turn.budget);
            now = read.unwrap_or_else(hw::now);
            self.round.took(found);
            // It is asked again after the round.
            self.plans[turn.queue] = Plan::Rest;
        }
        now
    }
}

/// Looks locklessly until something is there (true), or the time has come. Of several queues those that find something plan to
/// look, if they have been spinning.
fn spin(queues: &[&impl LoopQueue], plans: &mut [Plan], mut now: Nanos, until: Nanos, enough: &impl Fn() -> bool) -> (Nanos, bool) {
    for queue in queues.iter() {
        queue.begin_spin();
    }
    let yields_cpu = queues.iter().any(|queue| queue.yields_cpu());
    loop {
        for _ in 0..SPINS_PER_CLOCK {
            let mut found = false;
            for (queue, plan) in queues.iter().zip(&mut *plans) {
                if queue.poll_ready() {
                    found = true;
                    // One that sleeps or naps is asked what it makes of it.
                    if matches!(plan, Plan::Spin { .. }) {
                        *plan = Plan::Look { budget: WEIGHT };
                    }
                }
            }
            if found {
                return (now, true);
            }
            std::hint::spin_loop();
        }
        if yields_cpu {
            // Of no effect but a system call's time where nobody else is ready.
            std::thread::yield_now();
        }
        now = hw::now();
        if now >= until || enough() {
            break;
        }
    }
    for queue in queues.iter() {
        queue.spun_until(now);
    }
    (now, false)
}

/// What a wake-up is called: the policy is told whether its timer was late.
pub(crate) fn cause(notified: bool, woke_at: Nanos, until: Nanos) -> Woke {
    if notified {
        Woke { cause: Cause::Notification, late: Nanos::ZERO }
    } else if woke_at >= until {
        Woke { cause: Cause::Timer, late: woke_at - until }
    } else {
        Woke { cause: Cause::Other, late: Nanos::ZERO }
    }
}

/// The only thing that can fail while driving is the system's refusal to let a thread sleep.
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

/// Most queues that are driven together without an allocation.
const FEW: usize = 32;

/// Lends `queues` as one list, for [`EventLoop::drive`].
pub(crate) fn together<'a, Q: LoopQueue + 'a, T>(queues: impl Iterator<Item = &'a Q> + Clone, then: impl FnOnce(&[&Q]) -> T) -> T {
    let Some(first) = queues.clone().next() else { return then(&[]) };
    let mut few = [first; FEW];
    let mut count = 0;
    for (place, queue) in few.iter_mut().zip(queues.clone()) {
        *place = queue;
        count += 1;
    }
    match few.get(..count) {
        Some(all) if count < FEW => then(all),
        _ => then(&queues.collect::<Vec<_>>()),
    }
}

#[cfg(test)]
mod tests;
