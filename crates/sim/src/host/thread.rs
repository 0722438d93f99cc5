//! The thread of a job: it asks its application what to do, submits, and waits. How it waits is the mode's: it looks at
//! its queues by itself as their policies say, or it blocks until the party that takes the entries has brought it enough.

mod wait;
mod work;

use completion::{Batch, Cause, Done, Mode, Plan, Policy, PollLimits, Records, Round, Seen, WEIGHT, combine};
use driver::Completed;
use units::Nanos;

use super::application::Application;
use super::drain::{self, TAKEN};
use super::head::Head;
use super::lane::Lane;
use super::{Context, Effect, Ground, Progress};
use crate::Counts;
use crate::requests::Token;
use crate::sched::TaskId;
use crate::{Engine, EngineCosts, SimError};

/// Where the thread stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Asking the application what to do.
    Load,
    /// Posting to this lane and those after it, and ringing their doorbells; `waited`: the lane's lock is free now.
    Commit { lane: usize, waited: bool },
    /// Looking at this lane because its policy said so after the commit.
    Check { lane: usize },
    /// Asking the policies, or, if others look, whether there is enough.
    Decide,
    /// Taking entries.
    Look { lane: usize, budget: u32, after: After },
    /// The look's time is over: the lock is released, and what was taken goes to its owners.
    Release { lane: usize, after: After },
    /// Telling what has completed from what is posted again.
    Sort,
    /// Spinning has ended.
    Spun,
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
pub(super) enum After {
    /// The rest of the commit, from this lane on.
    Commit(usize),
    /// The next question to the policies.
    Decide,
}

/// What the application waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Goal {
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
    pub(crate) lanes: Vec<Lane>,
    pub(crate) app: Application,
    pub(crate) engine: Engine,
    pub(crate) counts: Counts,
    /// What others have taken for it.
    pub(super) inbox: Vec<Completed>,
    round: Round,
    in_round: bool,
    plans: Vec<Plan>,
    pub(super) at: At,
    /// `None`: nothing, it goes on.
    pub(super) goal: Option<Goal>,
    pub(super) leaving: bool,
    /// In the system call that submitted: waiting needs no other one.
    pub(super) in_call: bool,
    /// Somebody has something to tell, other than by a queue's notification.
    poked: bool,
    taken: Vec<Completed>,
    /// Of these, the ones that are other threads'.
    foreign: Vec<Completed>,
    done: Vec<Done>,
}

impl Thread {
    pub(crate) fn new(me: TaskId, lanes: Vec<Lane>, app: Application, engine: Engine) -> Thread {
        Thread {
            me,
            plans: Vec::with_capacity(lanes.len()),
            lanes,
            app,
            engine,
            counts: Counts::default(),
            inbox: Vec::with_capacity(TAKEN),
            round: Round::default(),
            in_round: false,
            at: At::Load,
            goal: None,
            leaving: false,
            in_call: false,
            poked: false,
            taken: Vec::with_capacity(TAKEN),
            foreign: Vec::with_capacity(TAKEN),
            done: Vec::with_capacity(TAKEN),
        }
    }

    /// The next step, and with it those before it that take no time and do nothing to others. `ahead`: time has still to pass
    /// for the one before, so that others may come between unless it is private.
    pub(crate) fn step(&mut self, g: &mut Ground, ahead: bool) -> Result<Progress, SimError> {
        for _ in 0..STEPS {
            let progress = self.one_step(g)?;
            let unnoticed = progress == Progress::Private(Nanos::ZERO) && g.out.is_empty();
            if !unnoticed || ahead && !self.is_private() {
                return Ok(progress);
            }
        }
        Ok(Progress::Private(Nanos::ZERO))
    }

    /// The larger ones are kept out of line: in one function each would fetch what any of them may need.
    #[inline(always)]
    fn one_step(&mut self, g: &mut Ground) -> Result<Progress, SimError> {
        match self.at {
            At::Load => self.load(g),
            At::Commit { lane, waited } => self.commit(g, lane, waited),
            At::Check { lane } => Ok(self.check(g, lane)),
            At::Decide => self.decide(g),
            At::Look { lane, budget, after } => Ok(self.look(g, lane, budget, after)),
            At::Release { lane, after } => self.release(g, lane, after),
            At::Sort => self.sort_inbox(g),
            At::Spun => Ok(self.spun(g)),
            At::Sleep { step, until } => Ok(self.sleep(g, step, until)),
            At::Blocking { until } => Ok(self.block(g, until)),
            At::Blocked { until } => Ok(Progress::Block(until)),
            At::Woken { cause, due } => Ok(self.woken(g, cause, due)),
            At::Away { since } => Ok(self.back(g, since)),
        }
    }

    /// Something happened that no queue notifies of.
    pub(crate) fn poke(&mut self) {
        self.poked = true;
    }

    /// Another CPU has taken a completion for it. Whether that is what it waits for.
    pub(crate) fn deliver(&mut self, completed: Completed, context: Context) -> bool {
        self.inbox.push(completed);
        let there = self.inbox.len() + self.app.ready.len();
        let enough = context == Context::Waiter || self.goal.is_none_or(|goal| there >= goal.min as usize);
        self.poked |= enough;
        enough
    }

    /// Back on the CPU.
    pub(crate) fn wake(&mut self, cause: Cause, due: Nanos) {
        self.at = At::Woken { cause, due };
    }

    /// Whether its next step is nobody else's business: it asks its application.
    pub(crate) fn is_private(&self) -> bool {
        matches!(self.at, At::Load)
    }

    /// Whether an entry waits on any of its queues.
    pub(crate) fn sees_an_entry(&self, g_queues: &[crate::hw_queue::HwQueue]) -> bool {
        self.lanes.iter().any(|lane| g_queues[lane.queue].pending()) || !self.inbox.is_empty()
    }

    /// The next mode of every queue, adopted between two batches.
    pub(crate) fn switch(&mut self, mode: Mode, context: Context) {
        for lane in &mut self.lanes {
            lane.wanted = Some(mode);
            lane.waiter.others_look = context != Context::Waiter;
        }
    }

    /// A thread that blocks with this would be woken at once.
    fn is_called(&self, g: &Ground) -> bool {
        self.poked || g.context == Context::Waiter && self.lanes.iter().any(|lane| lane.is_signalled(&g.queues[lane.queue]))
    }

    #[inline(never)]
    fn decide(&mut self, g: &mut Ground) -> Result<Progress, SimError> {
        if !self.inbox.is_empty() {
            self.at = At::Sort;
            return Ok(Progress::Private(Nanos::ZERO));
        }
        self.hear_of_paths(g)?;
        if std::mem::take(&mut self.poked) {
            self.app.stuck = false;
        }
        if g.context == Context::Waiter {
            self.lanes.iter_mut().for_each(|lane| lane.adopt(&g.queues[lane.queue]));
        }
        if !self.leaving && (self.reached(g.now) || self.app.can_post()) {
            self.tell_owners(g);
            self.at = At::Load;
            return Ok(Progress::Private(Nanos::ZERO));
        }
        if g.context != Context::Waiter {
            // Others look.
            self.at = At::Sleep { step: g.habits.sleep.len() - 1, until: if self.leaving { Nanos::MAX } else { self.deadline() } };
            return Ok(Progress::Private(Nanos::ZERO));
        }
        let cost = self.ask(g);
        self.follow(g, combine(self.plans.iter().copied()))?;
        Ok(match self.at {
            At::Spun => self.spin(g, cost),
            _ => Progress::Private(cost),
        })
    }

    /// Asks each lane's policy whose last answer has been carried out. What that costs.
    fn ask(&mut self, g: &Ground) -> Nanos {
        self.plans.clear();
        let (mut asked, mut masked) = (0, 0);
        let tells = self.app.urgent && g.habits.tells_urgent;
        let goes_on_at = self.goal.map(|goal| goal.until).filter(|&until| until < Nanos::MAX);
        let next_due = self.goal.and_then(|goal| goal.next_due);
        for lane in &mut self.lanes {
            if !matches!(lane.waiter.plan, Plan::Look { .. }) {
                let queue = &g.queues[lane.queue];
                let in_flight = lane.in_flight(queue);
                let (leaving, cpu_wanted) = (self.leaving, g.cpu_wanted);
                let urgent_waiting = if tells { in_flight } else { 0 };
                let (waiter, mut bound) = lane.bind(queue);
                let held = queue.held_back;
                waiter.seen = Seen { in_flight, urgent_waiting, leaving, cpu_wanted, goes_on_at, next_due, held, ..waiter.seen };
                waiter.set_silent(if in_flight > 0 { queue.silent() } else { 0 });
                waiter.next(g.now, &mut bound);
                asked += 1;
                masked += bound.masked;
            }
            self.plans.push(lane.waiter.plan);
        }
        Nanos(g.costs.library.decide.0 * asked + g.costs.library.mask.0 * masked)
    }

    /// Where the combined plan leads.
    fn follow(&mut self, g: &mut Ground, plan: Plan) -> Result<(), SimError> {
        if !matches!(plan, Plan::Look { .. } | Plan::Spin { .. }) {
            // Registers with the shared queues that it sleeps on, and hands the others' notifications on.
            for lane in &mut self.lanes {
                let (waiter, mut bound) = lane.bind(&g.queues[lane.queue]);
                g.out.extend(waiter.register(&mut bound).map(Effect::Poke));
            }
        }
        let last = g.habits.sleep.len() - 1;
        self.at = match plan {
            Plan::Look { .. } => {
                self.take_turn(g);
                return Ok(());
            }
            Plan::Spin { .. } if self.leaving => {
                return Err(SimError::LeftUnarmed(plan));
            }
            Plan::Spin { until } => {
                self.spin_until(until);
                At::Spun
            }
            // Lanes whose own plan is to sleep are armed, whatever the others do.
            Plan::Nap { until, .. } | Plan::Sleep { until, .. } => At::Sleep { step: 0, until: until.min(self.deadline()) },
            Plan::Rest if self.leaving => At::Sleep { step: last, until: Nanos::MAX },
            // Nothing is in flight: the application waits for the clock, or for a controller that is being reset.
            Plan::Rest => At::Sleep { step: last, until: self.deadline() },
        };
        self.in_round = false;
        Ok(())
    }

    /// Hands on every notification: it computes, or is done.
    fn leave_all(&mut self, g: &mut Ground) {
        for lane in &mut self.lanes {
            let (waiter, mut bound) = lane.bind(&g.queues[lane.queue]);
            g.out.extend(waiter.leave(&mut bound).map(Effect::Poke));
        }
    }

    /// It goes away from entries that it knows of: as in the library, the notification's owner is told, whether it has
    /// found the lock held or not. Nobody remembers that.
    fn tell_owners(&mut self, g: &mut Ground) {
        if g.context == Context::Waiter {
            for lane in &mut self.lanes {
                let (waiter, mut bound) = lane.bind(&g.queues[lane.queue]);
                g.out.extend(waiter.leaves_behind(&mut bound).map(Effect::Poke));
            }
        }
    }

    /// Done for good: somebody else has to look at what it has looked at.
    pub(super) fn finish(&mut self, g: &mut Ground) -> Progress {
        self.leave_all(g);
        Progress::Finished
    }

    /// The next queue's turn. If the round is over, whatever else there is to do has been done between its turns, and the
    /// next begins.
    fn take_turn(&mut self, g: &Ground) {
        for _ in 0..2 {
            if !self.in_round {
                let limits = self.lanes.iter().map(|lane| lane.waiter.policy.mode().limits()).reduce(PollLimits::smallest);
                self.round.begin(g.now, limits.unwrap_or(PollLimits::DEFAULT));
                self.counts.drain = 0;
                self.in_round = true;
            }
            if let Some(turn) = self.round.turn(g.now, &self.plans) {
                self.at = At::Look { lane: turn.queue, budget: turn.budget, after: After::Decide };
                return;
            }
            self.in_round = false;
        }
    }

    #[inline(never)]
    fn look(&mut self, g: &mut Ground, at: usize, budget: u32, after: After) -> Progress {
        let lane = &mut self.lanes[at];
        lane.waiter.plan = Plan::Rest;
        let queue = &mut g.queues[lane.queue];
        let Some(looked) = queue.try_look(g.cpu, budget, g.costs, g.lines, &mut self.taken) else {
            lane.waiter.seen.lock_busy = true;
            self.counts.busy_looks += 1;
            self.at = after.at();
            return Progress::Busy(g.costs.library.look + g.costs.memory.contended_lock);
        };
        let (device, reaped) = (queue.device, looked.reaped);
        lane.waiter.seen = Seen { found: reaped.found, budget_used_up: reaped.budget_used_up, ..Seen::default() };
        self.learn(g, at);
        if let Some(violation) = reaped.violation {
            g.out.push(Effect::Violation(device, *violation));
        }
        match after {
            After::Decide => {
                self.counts.looked(reaped.found);
                self.round.took(reaped.found);
            }
            After::Commit(_) => self.counts.checked(reaped.found),
        }
        self.at = At::Release { lane: at, after };
        let queue = self.lanes[at].queue;
        Progress::Busy(looked.cost + drain::delivery(g, queue, &self.taken))
    }

    /// Tells the policy what a look has taken.
    fn learn(&mut self, g: &Ground, at: usize) {
        let lane = &mut self.lanes[at];
        let slept = std::mem::take(&mut lane.slept);
        let records = lane.waiter.policy.facts().records;
        if records != Records::None {
            let done = |c: &Completed| {
                let class = self.app.requests.class(Token::from_word(c.token)).ok()?;
                Some(Done { class, age: g.now - c.posted_at, slept })
            };
            self.done.clear();
            if records == Records::Last {
                self.done.extend(self.taken.iter().rev().find_map(done));
            } else {
                self.done.extend(self.taken.iter().filter_map(done));
            }
            lane.waiter.policy.completed(&self.done);
        }
    }

    #[inline(never)]
    fn release(&mut self, g: &mut Ground, at: usize, after: After) -> Result<Progress, SimError> {
        let lane = &mut self.lanes[at];
        let index = lane.queue;
        let (pending, kick) = g.queues[index].release();
        lane.waiter.seen.pending |= pending;
        lane.leaves_some = pending;
        // An interrupt handler that was turned away does not come again by itself.
        if kick && g.context != Context::Waiter && g.habits.releases_look {
            g.out.push(Effect::Kick(index));
        }
        if matches!(after, After::Commit(_)) {
            self.tell_owners(g);
        }
        self.at = after.at();
        let mut taken = std::mem::take(&mut self.taken);
        if g.queues[index].shared {
            // What is others' goes to them.
            let me = self.me;
            self.foreign.extend(taken.extract_if(.., |c| Token::from_word(c.token).task() != me));
            drain::hand_on(g, index, &mut self.foreign);
        }
        let sorted = self.sort(g, &mut taken);
        self.taken = taken;
        sorted?;
        Ok(Progress::Private(Nanos::ZERO))
    }

    fn sort_inbox(&mut self, g: &mut Ground) -> Result<Progress, SimError> {
        self.at = At::Decide;
        let mut inbox = std::mem::take(&mut self.inbox);
        let sorted = self.sort(g, &mut inbox);
        self.inbox = inbox;
        sorted?;
        Ok(Progress::Private(Nanos::ZERO))
    }

    /// Posts what waits for this lane, under its lock, and rings its doorbell: once.
    #[inline(never)]
    fn commit(&mut self, g: &mut Ground, at: usize, waited: bool) -> Result<Progress, SimError> {
        let Some(lane) = self.lanes.get_mut(at) else { return Ok(self.committed(g)) };
        self.at = At::Commit { lane: at + 1, waited: false };
        if self.app.backlog[at].is_empty() {
            return Ok(Progress::Private(Nanos::ZERO));
        }
        let index = lane.queue;
        let wait = g.queues[index].sq_wait(g.now);
        if wait > Nanos::ZERO && !waited {
            self.at = At::Commit { lane: at, waited: true };
            return Ok(Progress::Busy(wait + g.costs.memory.contended_lock));
        }
        let queue = &mut g.queues[index];
        // What is in flight on the lane already is all that is known before the batch is made.
        let known = Batch { in_flight: lane.in_flight(queue), ..Batch::default() };
        let waiter = if g.context == Context::Waiter { &mut lane.waiter } else { &mut g.drains[index].waiter };
        let pair = queue.pair_for(waiter.policy.route(g.now, &known));
        let (class, posted, left) = self.app.post(at, pair, g.now)?;
        let commands = pair.lock_sq().commit(&queue.bells);
        lane.mine += posted;
        if left {
            queue.stuck.push(self.me);
        }
        if commands == 0 {
            return Ok(Progress::Private(Nanos::ZERO));
        }
        let cost = queue.hold_sq(g.now, g.cpu, g.costs, g.lines);
        let urgent = if self.app.urgent && g.habits.tells_urgent { commands } else { 0 };
        let batch = Batch { commands, urgent, in_flight: lane.in_flight(queue), class };
        let waiter = if g.context == Context::Waiter { &mut lane.waiter } else { &mut g.drains[index].waiter };
        waiter.policy.submitted(g.now, &batch);
        if waiter.policy.facts().submit_check {
            self.at = At::Check { lane: at };
        }
        Ok(Progress::Busy(cost))
    }

    /// Every lane has posted what it could.
    fn committed(&mut self, g: &Ground) -> Progress {
        if self.app.committed(g.now) {
            self.at = At::Load;
        } else {
            self.wait_for(Goal { min: 1, max: u32::MAX, until: Nanos::MAX, next_due: None });
        }
        Progress::Private(Nanos::ZERO)
    }

    fn check(&mut self, g: &Ground, lane: usize) -> Progress {
        let after = After::Commit(lane + 1);
        let pending = g.queues[self.lanes[lane].queue].pending();
        self.at = if pending { At::Look { lane, budget: WEIGHT, after } } else { after.at() };
        Progress::Busy(g.costs.library.look)
    }

    /// When the application goes on, whatever has completed, or the paths' head has something to do.
    fn deadline(&self) -> Nanos {
        let head = self.app.head.as_ref().map_or(Nanos::MAX, Head::next_deadline);
        self.goal.map_or(Nanos::MAX, |goal| goal.until).min(head)
    }

    /// The price list of its interface.
    #[inline]
    pub(super) fn engine_costs(&self, g: &Ground) -> EngineCosts {
        match self.engine {
            Engine::Libaio => g.costs.libaio,
            Engine::IoUring => g.costs.io_uring,
        }
    }
}

impl After {
    fn at(self) -> At {
        match self {
            After::Commit(lane) => At::Commit { lane, waited: false },
            After::Decide => At::Decide,
        }
    }
}
