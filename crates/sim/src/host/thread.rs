//! The thread of a job: it asks its application what to do, submits, and waits. How it waits is the mode's: it looks at
//! its queues by itself as their policies say, or it blocks until the party that takes the entries has brought it enough.

mod wait;
mod work;

use completion::{Batch, Cause, Done, Mode, Plan, Policy, PollLimits, Records, Round, Seen, WEIGHT, combine};
use driver::Completed;
use units::Nanos;

use super::application::Application;
use super::drain::{self, TAKEN};
use super::multipath::MultipathRequests;
use super::sw_queue::SwQueue;
use super::{Context, Effect, Progress, StepContext};
use crate::Counts;
use crate::requests::Token;
use crate::sched::TaskId;
use crate::{Engine, EngineCosts, SimError};

/// Where the thread stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadStep {
    /// Asking the application what to do.
    Load,
    /// Posting to this lane and those after it, and ringing their doorbells; `waited`: the lane's lock is free now.
    Commit { sw_queue: usize, waited: bool },
    /// Looking at this lane because its policy said so after the commit.
    PollAfterSubmit { sw_queue: usize },
    /// Asking the policies, or, if others look, whether there is enough.
    Decide,
    /// Taking entries.
    Poll { sw_queue: usize, budget: u32, after: AfterPoll },
    /// The look's time is over: the lock is released, and what was taken goes to its owners.
    Release { sw_queue: usize, after: AfterPoll },
    /// Telling what has completed from what is posted again.
    Sort,
    /// Spinning has ended.
    SpinEnded,
    /// At this step of going to sleep.
    Sleep { step: usize, until: Nanos },
    /// In the system call that blocks.
    Blocking { until: Nanos },
    /// Off the CPU since then.
    Blocked { until: Nanos },
    /// Back on the CPU; by the timer, if it names an instant.
    Woken { cause: Cause, due: Nanos },
    /// The application computes since then.
    Away { since: Nanos },
}

/// Steps that may be taken as one. More than ever are; who takes them for ever is to be noticed.
const STEPS: u32 = 64;

/// What follows a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterPoll {
    /// The rest of the commit, from this lane on.
    Commit(usize),
    /// The next question to the policies.
    Decide,
}

/// What the application waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitGoal {
    /// This many completions,
    pub(super) min: u32,
    /// or this instant.
    pub(super) until: Nanos,
    /// It takes this many at once.
    pub(super) max: u32,
    /// It only waits for room, for what is or was due then.
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
    /// What others have taken for it.
    pub(super) inbox: Vec<Completed>,
    round: Round,
    in_round: bool,
    plans: Vec<Plan>,
    pub(super) next_step: ThreadStep,
    /// `None`: nothing, it goes on.
    pub(super) goal: Option<WaitGoal>,
    pub(super) leaving: bool,
    /// In the system call that submitted: waiting needs no other one.
    pub(super) in_call: bool,
    /// Somebody has something to tell, other than by a queue's notification.
    poked: bool,
    taken: Vec<Completed>,
    /// Of these, the ones that are other threads'.
    others: Vec<Completed>,
    done: Vec<Done>,
}

impl Thread {
    pub(crate) fn new(me: TaskId, sw_queues: Vec<SwQueue>, app: Application, engine: Engine) -> Thread {
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

    /// The next step, and with it those before it that take no time and do nothing to others. `ahead`: time has still to pass
    /// for the one before, so that others may come between unless it is private.
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

    /// The larger ones are kept out of line: in one function each would fetch what any of them may need.
    #[inline(always)]
    fn one_step(&mut self, cx: &mut StepContext) -> Result<Progress, SimError> {
        match self.next_step {
            ThreadStep::Load => self.load(cx),
            ThreadStep::Commit { sw_queue, waited } => self.commit(cx, sw_queue, waited),
            ThreadStep::PollAfterSubmit { sw_queue } => Ok(self.poll_after_submit(cx, sw_queue)),
            ThreadStep::Decide => self.decide(cx),
            ThreadStep::Poll { sw_queue, budget, after } => Ok(self.poll(cx, sw_queue, budget, after)),
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

    /// Something happened that no queue notifies of.
    pub(crate) fn poke(&mut self) {
        self.poked = true;
    }

    /// Another CPU has taken a completion for it. Whether that is what it waits for.
    pub(crate) fn deliver(&mut self, completed: Completed, context: Context) -> bool {
        self.inbox.push(completed);
        let there = self.inbox.len() + self.app.finished.len();
        let enough = context == Context::Waiter || self.goal.is_none_or(|goal| there >= goal.min as usize);
        self.poked |= enough;
        enough
    }

    /// Back on the CPU.
    pub(crate) fn wake(&mut self, cause: Cause, due: Nanos) {
        self.next_step = ThreadStep::Woken { cause, due };
    }

    /// Whether its next step is nobody else's business: it asks its application.
    pub(crate) fn is_private(&self) -> bool {
        matches!(self.next_step, ThreadStep::Load)
    }

    /// Whether an entry waits on any of its queues.
    pub(crate) fn sees_an_entry(&self, queues: &[crate::hw_queue::HwQueue]) -> bool {
        self.sw_queues.iter().any(|sw_queue| queues[sw_queue.queue].pending()) || !self.inbox.is_empty()
    }

    /// The next mode of every queue, adopted between two batches.
    pub(crate) fn switch(&mut self, mode: Mode, context: Context) {
        for sw_queue in &mut self.sw_queues {
            sw_queue.wanted = Some(mode);
            sw_queue.waiter.others_look = context != Context::Waiter;
        }
    }

    /// A thread that blocks with this would be woken at once.
    fn would_not_block(&self, cx: &StepContext) -> bool {
        self.poked
            || cx.context == Context::Waiter && self.sw_queues.iter().any(|sw_queue| sw_queue.is_signalled(&cx.queues[sw_queue.queue]))
    }

    #[inline(never)]
    fn decide(&mut self, cx: &mut StepContext) -> Result<Progress, SimError> {
        if !self.inbox.is_empty() {
            self.next_step = ThreadStep::Sort;
            return Ok(Progress::Private(Nanos::ZERO));
        }
        self.apply_path_changes(cx)?;
        if std::mem::take(&mut self.poked) {
            self.app.no_tag = false;
        }
        if cx.context == Context::Waiter {
            self.sw_queues.iter_mut().for_each(|sw_queue| sw_queue.adopt(&cx.queues[sw_queue.queue]));
        }
        if !self.leaving && (self.reached(cx.now) || self.app.can_post()) {
            self.notify_owners(cx);
            self.next_step = ThreadStep::Load;
            return Ok(Progress::Private(Nanos::ZERO));
        }
        if cx.context != Context::Waiter {
            // Others look.
            self.next_step =
                ThreadStep::Sleep { step: cx.habits.sleep.len() - 1, until: if self.leaving { Nanos::MAX } else { self.deadline() } };
            return Ok(Progress::Private(Nanos::ZERO));
        }
        let cost = self.ask_policies(cx);
        self.carry_out(cx, combine(self.plans.iter().copied()))?;
        Ok(match self.next_step {
            ThreadStep::SpinEnded => self.spin(cx, cost),
            _ => Progress::Private(cost),
        })
    }

    /// Asks each lane's policy whose last answer has been carried out. What that costs.
    fn ask_policies(&mut self, cx: &StepContext) -> Nanos {
        self.plans.clear();
        let (mut asked, mut masked) = (0, 0);
        let tells = self.app.urgent && cx.habits.tells_urgent;
        let goes_on_at = self.goal.map(|goal| goal.until).filter(|&until| until < Nanos::MAX);
        let next_due = self.goal.and_then(|goal| goal.next_due);
        for sw_queue in &mut self.sw_queues {
            if !matches!(sw_queue.waiter.plan, Plan::Look { .. }) {
                let queue = &cx.queues[sw_queue.queue];
                let in_flight = sw_queue.in_flight(queue);
                let (leaving, cpu_wanted) = (self.leaving, cx.cpu_wanted);
                let urgent_waiting = if tells { in_flight } else { 0 };
                let (waiter, mut bound) = sw_queue.bind(queue);
                let held = queue.coalescing;
                waiter.seen = Seen { in_flight, urgent_waiting, leaving, cpu_wanted, goes_on_at, next_due, held, ..waiter.seen };
                waiter.set_silent(if in_flight > 0 { queue.polled_in_flight() } else { 0 });
                waiter.next(cx.now, &mut bound);
                asked += 1;
                masked += bound.masked;
            }
            self.plans.push(sw_queue.waiter.plan);
        }
        Nanos(cx.costs.library.decide.0 * asked + cx.costs.library.mask.0 * masked)
    }

    /// Where the combined plan leads.
    fn carry_out(&mut self, cx: &mut StepContext, plan: Plan) -> Result<(), SimError> {
        if !matches!(plan, Plan::Look { .. } | Plan::Spin { .. }) {
            // Registers with the shared queues that it sleeps on, and hands the others' notifications on.
            for sw_queue in &mut self.sw_queues {
                let (waiter, mut bound) = sw_queue.bind(&cx.queues[sw_queue.queue]);
                cx.out.extend(waiter.register(&mut bound).map(Effect::Poke));
            }
        }
        let last = cx.habits.sleep.len() - 1;
        self.next_step = match plan {
            Plan::Look { .. } => {
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
            // Lanes whose own plan is to sleep are armed, whatever the others do.
            Plan::Nap { until, .. } | Plan::Sleep { until, .. } => ThreadStep::Sleep { step: 0, until: until.min(self.deadline()) },
            Plan::Rest if self.leaving => ThreadStep::Sleep { step: last, until: Nanos::MAX },
            // Nothing is in flight: the application waits for the clock, or for a controller that is being reset.
            Plan::Rest => ThreadStep::Sleep { step: last, until: self.deadline() },
        };
        self.in_round = false;
        Ok(())
    }

    /// Hands on every notification: it computes, or is done.
    fn release_notifications(&mut self, cx: &mut StepContext) {
        for sw_queue in &mut self.sw_queues {
            let (waiter, mut bound) = sw_queue.bind(&cx.queues[sw_queue.queue]);
            cx.out.extend(waiter.leave(&mut bound).map(Effect::Poke));
        }
    }

    /// It goes away from entries that it knows of: as in the library, the notification's owner is told, whether it has
    /// found the lock held or not. Nobody remembers that.
    fn notify_owners(&mut self, cx: &mut StepContext) {
        if cx.context == Context::Waiter {
            for sw_queue in &mut self.sw_queues {
                let (waiter, mut bound) = sw_queue.bind(&cx.queues[sw_queue.queue]);
                cx.out.extend(waiter.leaves_behind(&mut bound).map(Effect::Poke));
            }
        }
    }

    /// Done for good: somebody else has to look at what it has looked at.
    pub(super) fn finish(&mut self, cx: &mut StepContext) -> Progress {
        self.release_notifications(cx);
        Progress::Finished
    }

    /// The next queue's turn. If the round is over, whatever else there is to do has been done between its turns, and the
    /// next begins.
    fn take_turn(&mut self, cx: &StepContext) {
        for _ in 0..2 {
            if !self.in_round {
                let limits = self.sw_queues.iter().map(|sw_queue| sw_queue.waiter.policy.mode().limits()).reduce(PollLimits::smallest);
                self.round.begin(cx.now, limits.unwrap_or(PollLimits::DEFAULT));
                self.counts.drain = 0;
                self.in_round = true;
            }
            if let Some(turn) = self.round.turn(cx.now, &self.plans) {
                self.next_step = ThreadStep::Poll { sw_queue: turn.queue, budget: turn.budget, after: AfterPoll::Decide };
                return;
            }
            self.in_round = false;
        }
    }

    #[inline(never)]
    fn poll(&mut self, cx: &mut StepContext, at: usize, budget: u32, after: AfterPoll) -> Progress {
        let sw_queue = &mut self.sw_queues[at];
        sw_queue.waiter.plan = Plan::Rest;
        let queue = &mut cx.queues[sw_queue.queue];
        let Some(looked) = queue.try_poll(cx.cpu, budget, cx.costs, cx.lines, &mut self.taken) else {
            sw_queue.waiter.seen.lock_busy = true;
            self.counts.busy_looks += 1;
            self.next_step = after.step();
            return Progress::Busy(cx.costs.library.look + cx.costs.memory.contended_lock);
        };
        let (device, reaped) = (queue.device, looked.reaped);
        sw_queue.waiter.seen = Seen { found: reaped.found, budget_used_up: reaped.budget_used_up, ..Seen::default() };
        self.record_completions(cx, at);
        if let Some(violation) = reaped.violation {
            cx.out.push(Effect::Violation(device, *violation));
        }
        match after {
            AfterPoll::Decide => {
                self.counts.looked(reaped.found);
                self.round.took(reaped.found);
            }
            AfterPoll::Commit(_) => self.counts.checked(reaped.found),
        }
        self.next_step = ThreadStep::Release { sw_queue: at, after };
        let queue = self.sw_queues[at].queue;
        Progress::Busy(looked.cost + drain::delivery(cx, queue, &self.taken))
    }

    /// Tells the policy what a look has taken.
    fn record_completions(&mut self, cx: &StepContext, at: usize) {
        let sw_queue = &mut self.sw_queues[at];
        let slept = std::mem::take(&mut sw_queue.slept);
        let records = sw_queue.waiter.policy.facts().records;
        if records != Records::None {
            let done = |c: &Completed| {
                let class = self.app.requests.class(Token::from_word(c.token)).ok()?;
                Some(Done { class, age: cx.now - c.posted_at, slept })
            };
            self.done.clear();
            if records == Records::Last {
                self.done.extend(self.taken.iter().rev().find_map(done));
            } else {
                self.done.extend(self.taken.iter().filter_map(done));
            }
            sw_queue.waiter.policy.completed(&self.done);
        }
    }

    #[inline(never)]
    fn release(&mut self, cx: &mut StepContext, at: usize, after: AfterPoll) -> Result<Progress, SimError> {
        let sw_queue = &mut self.sw_queues[at];
        let index = sw_queue.queue;
        let (pending, kick) = cx.queues[index].release();
        sw_queue.waiter.seen.pending |= pending;
        sw_queue.leaves_some = pending;
        // An interrupt handler that was turned away does not come again by itself.
        if kick && cx.context != Context::Waiter && cx.habits.releases_look {
            cx.out.push(Effect::Kick(index));
        }
        if matches!(after, AfterPoll::Commit(_)) {
            self.notify_owners(cx);
        }
        self.next_step = after.step();
        let mut taken = std::mem::take(&mut self.taken);
        if cx.queues[index].shared {
            // What is others' goes to them.
            let me = self.me;
            self.others.extend(taken.extract_if(.., |c| Token::from_word(c.token).task() != me));
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

    /// Posts what waits for this lane, under its lock, and rings its doorbell: once.
    #[inline(never)]
    fn commit(&mut self, cx: &mut StepContext, at: usize, waited: bool) -> Result<Progress, SimError> {
        let Some(sw_queue) = self.sw_queues.get_mut(at) else { return Ok(self.committed(cx)) };
        self.next_step = ThreadStep::Commit { sw_queue: at + 1, waited: false };
        if self.app.backlog[at].is_empty() {
            return Ok(Progress::Private(Nanos::ZERO));
        }
        let index = sw_queue.queue;
        let wait = cx.queues[index].sq_wait(cx.now);
        if wait > Nanos::ZERO && !waited {
            self.next_step = ThreadStep::Commit { sw_queue: at, waited: true };
            return Ok(Progress::Busy(wait + cx.costs.memory.contended_lock));
        }
        let queue = &mut cx.queues[index];
        // What is in flight on the lane already is all that is known before the batch is made.
        let known = Batch { in_flight: sw_queue.in_flight(queue), ..Batch::default() };
        let waiter = if cx.context == Context::Waiter { &mut sw_queue.waiter } else { &mut cx.drains[index].waiter };
        let pair = queue.pair_for(waiter.policy.route(cx.now, &known));
        let (class, posted, left) = self.app.post(at, pair, cx.now)?;
        let commands = pair.lock_sq().commit(&queue.bar);
        sw_queue.mine += posted;
        if left {
            queue.tag_waiters.push(self.me);
        }
        if commands == 0 {
            return Ok(Progress::Private(Nanos::ZERO));
        }
        let cost = queue.hold_sq(cx.now, cx.cpu, cx.costs, cx.lines);
        let urgent = if self.app.urgent && cx.habits.tells_urgent { commands } else { 0 };
        let batch = Batch { commands, urgent, in_flight: sw_queue.in_flight(queue), class };
        let waiter = if cx.context == Context::Waiter { &mut sw_queue.waiter } else { &mut cx.drains[index].waiter };
        waiter.policy.submitted(cx.now, &batch);
        if waiter.policy.facts().submit_check {
            self.next_step = ThreadStep::PollAfterSubmit { sw_queue: at };
        }
        Ok(Progress::Busy(cost))
    }

    /// Every lane has posted what it could.
    fn committed(&mut self, cx: &StepContext) -> Progress {
        if self.app.committed(cx.now) {
            self.next_step = ThreadStep::Load;
        } else {
            self.wait_for(WaitGoal { min: 1, max: u32::MAX, until: Nanos::MAX, next_due: None });
        }
        Progress::Private(Nanos::ZERO)
    }

    fn poll_after_submit(&mut self, cx: &StepContext, sw_queue: usize) -> Progress {
        let after = AfterPoll::Commit(sw_queue + 1);
        let pending = cx.queues[self.sw_queues[sw_queue].queue].pending();
        self.next_step = if pending { ThreadStep::Poll { sw_queue, budget: WEIGHT, after } } else { after.step() };
        Progress::Busy(cx.costs.library.look)
    }

    /// When the application goes on, whatever has completed, or the paths' head has something to do.
    fn deadline(&self) -> Nanos {
        let multipath = self.app.multipath.as_ref().map_or(Nanos::MAX, MultipathRequests::next_deadline);
        self.goal.map_or(Nanos::MAX, |goal| goal.until).min(multipath)
    }

    /// The price list of its interface.
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
