//! The thread of a job: it takes I/Os from its application, submits, and waits. How it waits
//! depends on the mode: it polls its queues as their policies plan, or it blocks until the context
//! that reaps has delivered enough completions.
//!
//! ```text
//!   Load -> Commit -> [PollAfterSubmit] -> Load
//!     |
//!     v  the generator waits
//!   Decide -> Poll -> Release -> Decide       a policy plans a poll
//!     |-----> SpinEnded -> Decide             all policies plan to spin
//!     |-----> Sleep (arm, poll, block) -> Blocked -> Woken -> Decide
//!     `-----> Load                            enough completions, or the time is up
//! ```

mod wait;
mod work;

use completion::{
    Batch, Cause, Done, Mode, Plan, Policy, PollLimits, Records, Round, Seen, WEIGHT, combine,
};
use driver::Completed;
use units::Nanos;

use super::application::Application;
use super::drain::{self, TAKEN};
use super::multipath::MultipathRequests;
use super::sw_queue::SwQueue;
use super::{Context, Effect, Progress, StepContext};
use crate::Counts;
use crate::requests::CommandToken;
use crate::sched::TaskId;
use crate::{Engine, EngineCosts, SimError};

/// The thread's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadStep {
    /// Get the next action from the application.
    Load,
    /// Post to this software queue and the later ones, and ring their doorbells. `waited`: the
    /// thread has waited for the submission lock.
    Commit { sw_queue: usize, waited: bool },
    /// Poll this software queue, because its policy has a check after each commit.
    PollAfterSubmit { sw_queue: usize },
    /// Call the policies. If a drain reaps for the thread, check whether enough has completed.
    Decide,
    /// Reap entries.
    Poll { sw_queue: usize, budget: u32, after: AfterPoll },
    /// The poll's time is over: release the lock, and give completions to their owners.
    Release { sw_queue: usize, after: AfterPoll },
    /// Sort the completions of the inbox into ended requests and retries.
    Sort,
    /// The spin has ended.
    SpinEnded,
    /// The step of going to sleep with this index.
    Sleep { step: usize, until: Nanos },
    /// In the system call that blocks.
    Blocking { until: Nanos },
    /// Off the CPU.
    Blocked { until: Nanos },
    /// Back on the CPU. `due`: when the timer was to fire, if the thread had one.
    Woken { cause: Cause, due: Nanos },
    /// The application has been computing, outside the library, since then.
    Away { since: Nanos },
}

/// Maximum number of steps that one call of [`Thread::step`] takes. Without this limit the caller
/// could not detect a loop of steps that take no time.
const STEPS: u32 = 64;

/// What follows a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterPoll {
    /// The rest of the commit, from this software queue on.
    Commit(usize),
    /// The next call of the policies.
    Decide,
}

/// What the application waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitGoal {
    /// The wait ends with this many completions, or at `until`.
    pub(super) min: u32,
    /// The wait ends at this instant at the latest.
    pub(super) until: Nanos,
    /// Maximum number of completions that the application takes at once.
    pub(super) max: u32,
    /// The application waits only for a free slot, for an I/O that is due at this instant (which
    /// may have passed).
    pub(super) next_due: Option<Nanos>,
}

/// A job's thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) me: TaskId,
    pub(crate) sw_queues: Vec<SwQueue>,
    pub(crate) app: Application,
    pub(crate) engine: Engine,
    pub(crate) counts: Counts,
    /// Completions of this thread that another party has reaped.
    pub(super) inbox: Vec<Completed>,
    round: Round,
    in_round: bool,
    plans: Vec<Plan>,
    pub(super) next_step: ThreadStep,
    /// `None`: the application does not wait.
    pub(super) goal: Option<WaitGoal>,
    /// The thread *leaves*: instead of blocking, the application computes outside the library and
    /// comes back later.
    pub(super) leaving: bool,
    /// The thread is in the system call that submitted: it needs no second one to wait.
    pub(super) in_call: bool,
    /// Another party has changed something for this thread that no queue's notification announces.
    poked: bool,
    taken: Vec<Completed>,
    /// The completions of `taken` that belong to other threads.
    others: Vec<Completed>,
    done: Vec<Done>,
}

impl Thread {
    pub(crate) fn new(
        me: TaskId,
        sw_queues: Vec<SwQueue>,
        app: Application,
        engine: Engine,
    ) -> Thread {
        Thread {
            me,
            plans: Vec::with_capacity(sw_queues.len()),
            sw_queues,
            app,
            engine,
            counts: Counts::default(),
            inbox: Vec::with_capacity(TAKEN),
            round: Round::default(),
            in_round: false,
            next_step: ThreadStep::Load,
            goal: None,
            leaving: false,
            in_call: false,
            poked: false,
            taken: Vec::with_capacity(TAKEN),
            others: Vec::with_capacity(TAKEN),
            done: Vec::with_capacity(TAKEN),
        }
    }

    /// Takes steps, up to the first one that takes time or affects another party. `ahead`: the time
    /// of an earlier step is still to pass, so only private steps may be taken.
    pub(crate) fn step(&mut self, cx: &mut StepContext, ahead: bool) -> Result<Progress, SimError> {
        for _ in 0..STEPS {
            let progress = self.one_step(cx)?;
            let unnoticed = progress == Progress::Private(Nanos::ZERO) && cx.out.is_empty();
            if !unnoticed || ahead && !self.is_private() {
                return Ok(progress);
            }
        }
        Ok(Progress::Private(Nanos::ZERO))
    }

    /// Large steps are functions of their own (not inlined), because one large function would load
    /// more code than each step needs.
    #[inline(always)]
    fn one_step(&mut self, cx: &mut StepContext) -> Result<Progress, SimError> {
        match self.next_step {
            ThreadStep::Load => self.load(cx),
            ThreadStep::Commit { sw_queue, waited } => self.commit(cx, sw_queue, waited),
            ThreadStep::PollAfterSubmit { sw_queue } => Ok(self.poll_after_submit(cx, sw_queue)),
            ThreadStep::Decide => self.decide(cx),
            ThreadStep::Poll { sw_queue, budget, after } => {
                Ok(self.poll(cx, sw_queue, budget, after))
            }
            ThreadStep::Release { sw_queue, after } => self.release(cx, sw_queue, after),
            ThreadStep::Sort => self.sort_inbox(cx),
            ThreadStep::SpinEnded => Ok(self.spin_ended(cx)),
            ThreadStep::Sleep { step, until } => Ok(self.sleep(cx, step, until)),
            ThreadStep::Blocking { until } => Ok(self.block(cx, until)),
            ThreadStep::Blocked { until } => Ok(Progress::Block(until)),
            ThreadStep::Woken { cause, due } => Ok(self.woken(cx, cause, due)),
            ThreadStep::Away { since } => Ok(self.back(cx, since)),
        }
    }

    /// Another party has changed something for this thread that no queue's notification announces.
    pub(crate) fn poke(&mut self) {
        self.poked = true;
    }

    /// Another party has reaped a completion of this thread. Returns whether to wake the thread: it
    /// has all that it waits for, or it polls by itself.
    pub(crate) fn deliver(&mut self, completed: Completed, context: Context) -> bool {
        self.inbox.push(completed);
        let available = self.inbox.len() + self.app.finished.len();
        // A thread that polls by itself checks its goal when it runs.
        let wakes = context == Context::Waiter
            || self.goal.is_none_or(|goal| available >= goal.min as usize);
        self.poked |= wakes;
        wakes
    }

    /// The thread is woken.
    pub(crate) fn wake(&mut self, cause: Cause, due: Nanos) {
        self.next_step = ThreadStep::Woken { cause, due };
    }

    /// Whether the next step only calls the application, so that no other party can tell when it is
    /// taken.
    pub(crate) fn is_private(&self) -> bool {
        matches!(self.next_step, ThreadStep::Load)
    }

    /// Whether any of its queues or its inbox has a completion.
    pub(crate) fn sees_an_entry(&self, queues: &[crate::hw_queue::HwQueue]) -> bool {
        self.sw_queues.iter().any(|sw_queue| queues[sw_queue.queue].pending())
            || !self.inbox.is_empty()
    }

    /// Requests a mode switch of every software queue, which takes effect between two batches.
    pub(crate) fn switch(&mut self, mode: Mode, context: Context) {
        for sw_queue in &mut self.sw_queues {
            sw_queue.wanted = Some(mode);
            sw_queue.waiter.others_look = context != Context::Waiter;
        }
    }

    /// Whether something has come for the thread since it last checked, so that it must not block.
    fn would_not_block(&self, cx: &StepContext) -> bool {
        self.poked
            || cx.context == Context::Waiter
                && self
                    .sw_queues
                    .iter()
                    .any(|sw_queue| sw_queue.is_signalled(&cx.queues[sw_queue.queue]))
    }

    #[inline(never)]
    fn decide(&mut self, cx: &mut StepContext) -> Result<Progress, SimError> {
        if !self.inbox.is_empty() {
            self.next_step = ThreadStep::Sort;
            return Ok(Progress::Private(Nanos::ZERO));
        }
        self.apply_path_changes(cx)?;
        // Tags may be free again, or a queue may be open again.
        if std::mem::take(&mut self.poked) {
            self.app.no_tag = false;
        }
        if cx.context == Context::Waiter {
            self.sw_queues
                .iter_mut()
                .for_each(|sw_queue| sw_queue.adopt(&cx.queues[sw_queue.queue]));
        }
        // The thread returns to its application, so entries that only it knows of must be reaped by
        // another thread.
        if !self.leaving && (self.reached(cx.now) || self.app.can_post()) {
            self.notify_owners(cx);
            self.next_step = ThreadStep::Load;
            return Ok(Progress::Private(Nanos::ZERO));
        }
        if cx.context != Context::Waiter {
            // A drain reaps for the thread, which has nothing to arm or poll, and only blocks.
            self.next_step = ThreadStep::Sleep {
                step: cx.ablation.sleep.len() - 1,
                until: if self.leaving { Nanos::MAX } else { self.deadline() },
            };
            return Ok(Progress::Private(Nanos::ZERO));
        }
        let cost = self.ask_policies(cx);
        self.carry_out(cx, combine(self.plans.iter().copied()))?;
        Ok(match self.next_step {
            ThreadStep::SpinEnded => self.spin(cx, cost),
            _ => Progress::Private(cost),
        })
    }

    /// Calls the policy of each software queue whose last plan has been carried out. Returns the
    /// cost.
    fn ask_policies(&mut self, cx: &StepContext) -> Nanos {
        self.plans.clear();
        let (mut called, mut masked) = (0, 0);
        let reports_urgent = self.app.urgent && cx.ablation.reports_urgent;
        let goes_on_at = self.goal.map(|goal| goal.until).filter(|&until| until < Nanos::MAX);
        let next_due = self.goal.and_then(|goal| goal.next_due);
        for sw_queue in &mut self.sw_queues {
            // A plan to poll remains until the queue has been polled in its turn.
            if !matches!(sw_queue.waiter.plan, Plan::Poll { .. }) {
                let queue = &cx.queues[sw_queue.queue];
                let in_flight = sw_queue.in_flight(queue);
                let (leaving, cpu_wanted) = (self.leaving, cx.cpu_wanted);
                let urgent_waiting = if reports_urgent { in_flight } else { 0 };
                let (waiter, mut bound) = sw_queue.bind(queue);
                waiter.seen = Seen {
                    in_flight,
                    urgent_waiting,
                    leaving,
                    cpu_wanted,
                    goes_on_at,
                    next_due,
                    ..waiter.seen
                };
                waiter.set_silent(if in_flight > 0 { queue.polled_in_flight() } else { 0 });
                waiter.next(cx.now, &mut bound);
                called += 1;
                masked += bound.masked;
            }
            self.plans.push(sw_queue.waiter.plan);
        }
        Nanos(cx.costs.library.decide.0 * called + cx.costs.library.mask.0 * masked)
    }

    /// Carries out the combined plan.
    fn carry_out(&mut self, cx: &mut StepContext, plan: Plan) -> Result<(), SimError> {
        if !matches!(plan, Plan::Poll { .. } | Plan::Spin { .. }) {
            // Registers the thread for the notifications of the shared queues that it sleeps on,
            // and releases the notifications of its other queues.
            for sw_queue in &mut self.sw_queues {
                let (waiter, mut bound) = sw_queue.bind(&cx.queues[sw_queue.queue]);
                cx.out.extend(waiter.register(&mut bound).map(Effect::Poke));
            }
        }
        let last = cx.ablation.sleep.len() - 1;
        self.next_step = match plan {
            Plan::Poll { .. } => {
                self.take_turn(cx);
                return Ok(());
            }
            Plan::Spin { .. } if self.leaving => {
                return Err(SimError::LeftUnarmed(plan));
            }
            Plan::Spin { until } => {
                self.spin_until(until);
                ThreadStep::SpinEnded
            }
            // Each software queue whose own plan is to sleep is armed, also if another one naps.
            Plan::Nap { until, .. } | Plan::Sleep { until, .. } => {
                ThreadStep::Sleep { step: 0, until: until.min(self.deadline()) }
            }
            Plan::Idle if self.leaving => ThreadStep::Sleep { step: last, until: Nanos::MAX },
            // Nothing is in flight: the application waits for the clock, or for a controller that
            // is being reset.
            Plan::Idle => ThreadStep::Sleep { step: last, until: self.deadline() },
        };
        self.in_round = false;
        Ok(())
    }

    /// Gives up the ownership of every notification, before the thread computes or ends.
    fn release_notifications(&mut self, cx: &mut StepContext) {
        for sw_queue in &mut self.sw_queues {
            let (waiter, mut bound) = sw_queue.bind(&cx.queues[sw_queue.queue]);
            cx.out.extend(waiter.leave(&mut bound).map(Effect::Poke));
        }
    }

    /// If this thread's last poll of a shared queue left entries, wakes the owner of the queue's
    /// notification: the message of those entries may be consumed, so the owner would sleep on.
    fn notify_owners(&mut self, cx: &mut StepContext) {
        if cx.context == Context::Waiter {
            for sw_queue in &mut self.sw_queues {
                let (waiter, mut bound) = sw_queue.bind(&cx.queues[sw_queue.queue]);
                cx.out.extend(waiter.owner_to_wake(&mut bound).map(Effect::Poke));
            }
        }
    }

    /// The thread ends. Other threads become owners of the notifications that it has owned.
    pub(super) fn finish(&mut self, cx: &mut StepContext) -> Progress {
        self.release_notifications(cx);
        Progress::Finished
    }

    /// The next queue's turn. At the end of a round a new one begins.
    fn take_turn(&mut self, cx: &StepContext) {
        for _ in 0..2 {
            if !self.in_round {
                // The software queues may be in several modes: the smallest limits hold.
                let limits = self
                    .sw_queues
                    .iter()
                    .map(|sw_queue| sw_queue.waiter.policy.mode().limits())
                    .reduce(PollLimits::smallest);
                self.round.begin(cx.now, limits.unwrap_or(PollLimits::DEFAULT));
                self.counts.drain = 0;
                self.in_round = true;
            }
            if let Some(turn) = self.round.turn(cx.now, &self.plans) {
                self.next_step = ThreadStep::Poll {
                    sw_queue: turn.queue,
                    budget: turn.budget,
                    after: AfterPoll::Decide,
                };
                return;
            }
            self.in_round = false;
        }
    }

    #[inline(never)]
    fn poll(&mut self, cx: &mut StepContext, at: usize, budget: u32, after: AfterPoll) -> Progress {
        let sw_queue = &mut self.sw_queues[at];
        sw_queue.waiter.plan = Plan::Idle;
        let queue = &mut cx.queues[sw_queue.queue];
        let Some(looked) = queue.try_poll(cx.cpu, budget, cx.costs, cx.lines, &mut self.taken)
        else {
            sw_queue.waiter.seen.lock_busy = true;
            // The holder polls once more when it releases the lock, so nothing is lost.
            self.counts.busy_looks += 1;
            self.next_step = after.step();
            return Progress::Busy(cx.costs.library.look + cx.costs.memory.contended_lock);
        };
        let (device, reaped) = (queue.device, looked.reaped);
        sw_queue.waiter.seen =
            Seen { found: reaped.found, budget_used_up: reaped.budget_used_up, ..Seen::default() };
        self.record_completions(cx, at);
        if let Some(violation) = reaped.violation {
            cx.out.push(Effect::Violation(device, *violation));
        }
        match after {
            AfterPoll::Decide => {
                self.counts.looked(reaped.found);
                // The round's budget covers all queues, so that one busy queue cannot starve the
                // others.
                self.round.took(reaped.found);
            }
            AfterPoll::Commit(_) => self.counts.checked(reaped.found),
        }
        self.next_step = ThreadStep::Release { sw_queue: at, after };
        let queue = self.sw_queues[at].queue;
        Progress::Busy(looked.cost + drain::delivery(cx, queue, &self.taken))
    }

    /// Passes the completions of a poll to the policy, as [`completion::Facts::records`] selects.
    fn record_completions(&mut self, cx: &StepContext, at: usize) {
        let sw_queue = &mut self.sw_queues[at];
        let slept = std::mem::take(&mut sw_queue.slept);
        let records = sw_queue.waiter.policy.facts().records;
        if records != Records::None {
            let done = |c: &Completed| {
                let class = self.app.requests.class(CommandToken::from_word(c.token)).ok()?;
                Some(Done { class, age: cx.now - c.posted_at, slept })
            };
            self.done.clear();
            // One completion is enough for a running mean, and cheaper than all of a batch.
            if records == Records::Last {
                self.done.extend(self.taken.iter().rev().find_map(done));
            } else {
                self.done.extend(self.taken.iter().filter_map(done));
            }
            sw_queue.waiter.policy.completed(&self.done);
        }
    }

    #[inline(never)]
    fn release(
        &mut self,
        cx: &mut StepContext,
        at: usize,
        after: AfterPoll,
    ) -> Result<Progress, SimError> {
        let sw_queue = &mut self.sw_queues[at];
        let index = sw_queue.queue;
        let (pending, kick) = cx.queues[index].release();
        sw_queue.waiter.seen.pending |= pending;
        sw_queue.left_entries = pending;
        // An interrupt handler that found the lock held has returned, and no further interrupt
        // comes for its entries.
        if kick && cx.context != Context::Waiter && cx.ablation.polls_on_release {
            cx.out.push(Effect::Kick(index));
        }
        if matches!(after, AfterPoll::Commit(_)) {
            self.notify_owners(cx);
        }
        self.next_step = after.step();
        let mut taken = std::mem::take(&mut self.taken);
        if cx.queues[index].shared {
            // Entries of other threads that share the queue go to their inboxes.
            let me = self.me;
            self.others
                .extend(taken.extract_if(.., |c| CommandToken::from_word(c.token).task() != me));
            drain::hand_on(cx, index, &mut self.others);
        }
        let sorted = self.sort(cx, &mut taken);
        self.taken = taken;
        sorted?;
        Ok(Progress::Private(Nanos::ZERO))
    }

    fn sort_inbox(&mut self, cx: &mut StepContext) -> Result<Progress, SimError> {
        self.next_step = ThreadStep::Decide;
        let mut inbox = std::mem::take(&mut self.inbox);
        let sorted = self.sort(cx, &mut inbox);
        self.inbox = inbox;
        sorted?;
        Ok(Progress::Private(Nanos::ZERO))
    }

    /// Posts the commands of a software queue under the submission lock, and rings the doorbell
    /// once.
    #[inline(never)]
    fn commit(
        &mut self,
        cx: &mut StepContext,
        at: usize,
        waited: bool,
    ) -> Result<Progress, SimError> {
        let Some(sw_queue) = self.sw_queues.get_mut(at) else { return Ok(self.committed(cx)) };
        self.next_step = ThreadStep::Commit { sw_queue: at + 1, waited: false };
        if self.app.backlog[at].is_empty() {
            return Ok(Progress::Private(Nanos::ZERO));
        }
        let index = sw_queue.queue;
        // Another thread may hold the submission lock at this instant.
        let wait = cx.queues[index].sq_wait(cx.now);
        // The wait is a step of its own: other threads may post in that time.
        if wait > Nanos::ZERO && !waited {
            self.next_step = ThreadStep::Commit { sw_queue: at, waited: true };
            return Ok(Progress::Busy(wait + cx.costs.memory.contended_lock));
        }
        let queue = &mut cx.queues[index];
        // The queue pair is chosen before the batch is made, so only the commands in flight are
        // known.
        let known = Batch { in_flight: sw_queue.in_flight(queue), ..Batch::default() };
        let waiter = if cx.context == Context::Waiter {
            &mut sw_queue.waiter
        } else {
            &mut cx.drains[index].waiter
        };
        let pair = queue.pair_for(waiter.policy.route(cx.now, &known));
        let (class, posted, left) = self.app.post(at, pair, cx.now)?;
        let commands = pair.lock_sq().commit(&queue.bar);
        // The thread's own commands: other threads may share the queue.
        sw_queue.mine += posted;
        if left {
            // No tag is free: the thread waits for a completion of any thread of the queue.
            queue.tag_waiters.push(self.me);
        }
        if commands == 0 {
            return Ok(Progress::Private(Nanos::ZERO));
        }
        let cost = queue.hold_sq(cx.now, cx.cpu, cx.costs, cx.lines);
        let urgent = if self.app.urgent && cx.ablation.reports_urgent { commands } else { 0 };
        let batch = Batch { commands, urgent, in_flight: sw_queue.in_flight(queue), class };
        let waiter = if cx.context == Context::Waiter {
            &mut sw_queue.waiter
        } else {
            &mut cx.drains[index].waiter
        };
        waiter.policy.submitted(cx.now, &batch);
        if waiter.policy.facts().submit_check {
            self.next_step = ThreadStep::PollAfterSubmit { sw_queue: at };
        }
        Ok(Progress::Busy(cost))
    }

    /// All software queues have posted what they could.
    fn committed(&mut self, cx: &StepContext) -> Progress {
        if self.app.committed(cx.now) {
            self.next_step = ThreadStep::Load;
        } else {
            // Commands without a tag are posted once one has completed.
            self.wait_for(WaitGoal { min: 1, max: u32::MAX, until: Nanos::MAX, next_due: None });
        }
        Progress::Private(Nanos::ZERO)
    }

    fn poll_after_submit(&mut self, cx: &StepContext, sw_queue: usize) -> Progress {
        let after = AfterPoll::Commit(sw_queue + 1);
        let pending = cx.queues[self.sw_queues[sw_queue].queue].pending();
        self.next_step = if pending {
            ThreadStep::Poll { sw_queue, budget: WEIGHT, after }
        } else {
            after.step()
        };
        Progress::Busy(cx.costs.library.look)
    }

    /// When the thread has to run at the latest, for its application or for its paths.
    fn deadline(&self) -> Nanos {
        let multipath =
            self.app.multipath.as_ref().map_or(Nanos::MAX, MultipathRequests::next_deadline);
        self.goal.map_or(Nanos::MAX, |goal| goal.until).min(multipath)
    }

    /// The prices of the thread's I/O interface.
    #[inline]
    pub(super) fn engine_costs(&self, cx: &StepContext) -> EngineCosts {
        match self.engine {
            Engine::Libaio => cx.costs.libaio,
            Engine::IoUring => cx.costs.io_uring,
        }
    }
}

impl AfterPoll {
    fn step(self) -> ThreadStep {
        match self {
            AfterPoll::Commit(sw_queue) => ThreadStep::Commit { sw_queue, waited: false },
            AfterPoll::Decide => ThreadStep::Decide,
        }
    }
}
