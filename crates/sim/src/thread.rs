//! The executor of plans in virtual time: one thread, its hardware queues, and what it does next.
//!
//! Each [`Thread::step`] has its effect at once and says how long the CPU is busy with it; whatever happens in that time
//! (entries posted, interrupts, a switch of mode) meets the thread before its next step. So a step is as small as what
//! another party may come between: arming, the look after it, and blocking are three.

mod application;

use std::rc::Rc;

use completion::{Batch, Cause, Check, Done, Found, Group, Notifier, Plan, Round, Seen, Woke, combine};
use driver::{Completed, ProtocolViolation};
use units::Nanos;

pub(crate) use application::Application;

use crate::lane::Lane;
use crate::notifier::PerVector;
use crate::port::HostBar;
use crate::report::Tally;
use crate::requests::Token;
use crate::{Costs, SimError};

/// What a thread reaches: the clock, the prices, the bus.
pub(crate) struct Ground<'a> {
    pub(crate) now: Nanos,
    pub(crate) costs: &'a Costs,
    pub(crate) bells: &'a HostBar,
}

/// How long the thread is at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// CPU time of the library.
    Busy(Nanos),
    /// CPU time of the application, away from the library.
    Away(Nanos),
    /// Looks at its queues again and again, until an entry is there or this instant has come.
    Spin(Nanos),
    /// Off the CPU until it is woken, and until this instant at the latest.
    Block(Nanos),
    /// Done for good.
    Finished,
}

/// The steps of going to sleep, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SleepStep {
    /// Allows notifications. In virtual time the fence is in the order of the steps.
    Arm,
    /// Looks once more.
    Look,
    /// Blocks, or leaves.
    Block,
}

/// How a thread keeps law 1, as data, so that tests can break it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Habits {
    /// What going to sleep consists of.
    pub(crate) sleep: &'static [SleepStep],
    /// Taking a mask off because of a switch of mode is followed by a look, too.
    pub(crate) looks_after_switch: bool,
}

/// Law 1, host side. What an entry posted before `Arm` did not signal, `Look` finds.
pub(crate) const LAWFUL: Habits = Habits { sleep: &[SleepStep::Arm, SleepStep::Look, SleepStep::Block], looks_after_switch: true };

/// Where the thread stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Asking the application what to do.
    Load,
    /// Ringing the doorbell of this lane and those after it.
    Commit(usize),
    /// Looking at this lane because its policy said so after the commit.
    Check { lane: usize, budget: u32 },
    /// Asking the policies.
    Decide,
    /// Taking entries.
    Look { lane: usize, budget: u32, after: After },
    /// Telling what has completed from what is posted again.
    Sort { after: After },
    /// Spinning has ended.
    Spun,
    /// At this step of [`Habits::sleep`].
    Sleep { step: usize, until: Nanos },
    /// In the system call that blocks.
    Blocking { until: Nanos },
    /// Off the CPU since then.
    Blocked { until: Nanos },
    /// Back on the CPU.
    Woken(Woke),
    /// The application computes.
    Away,
}

/// What follows a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// The rest of the commit, from this lane on.
    Commit(usize),
    /// The next question to the policies.
    Decide,
}

/// What the application waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Goal {
    /// So many completions,
    min: u32,
    /// or this instant.
    until: Nanos,
    /// It takes so many at once.
    max: u32,
}

/// A host thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) app: Application,
    pub(crate) tally: Tally,
    /// The controller broke the protocol; to be taken by whoever resets it.
    pub(crate) violation: Option<ProtocolViolation>,
    notifier: Rc<PerVector>,
    habits: Habits,
    round: Round,
    in_round: bool,
    plans: Vec<Plan>,
    at: At,
    /// `None`: nothing, it goes on.
    goal: Option<Goal>,
    leaving: bool,
    /// Somebody has something to tell, other than by a queue's notification.
    poked: bool,
    taken: Vec<Completed>,
    done: Vec<Done>,
}

/// Room for what one look takes: no policy's budget is larger.
const TAKEN: usize = 1024;

impl Thread {
    pub(crate) fn new(lanes: Vec<Lane>, notifier: Rc<PerVector>, app: Application, group: Group, habits: Habits) -> Thread {
        Thread {
            plans: Vec::with_capacity(lanes.len()),
            lanes,
            app,
            tally: Tally::default(),
            violation: None,
            notifier,
            habits,
            round: Round::new(group),
            in_round: false,
            at: At::Load,
            goal: None,
            leaving: false,
            poked: false,
            taken: Vec::with_capacity(TAKEN),
            done: Vec::with_capacity(TAKEN),
        }
    }

    /// The next step.
    pub(crate) fn step(&mut self, g: &Ground) -> Result<Progress, SimError> {
        match self.at {
            At::Load => self.load(g),
            At::Commit(lane) => Ok(self.commit(g, lane)),
            At::Check { lane, budget } => Ok(self.check(g, lane, budget)),
            At::Decide => self.decide(g),
            At::Look { lane, budget, after } => Ok(self.look(g, lane, budget, after)),
            At::Sort { after } => self.sort(g, after),
            At::Spun => Ok(self.spun(g)),
            At::Sleep { step, until } => Ok(self.sleep(g, step, until)),
            At::Blocking { until } => Ok(self.block(g, until)),
            At::Blocked { until } => Ok(Progress::Block(until)),
            At::Woken(woke) => Ok(self.woken(g, woke)),
            At::Away => Ok(self.back(g)),
        }
    }

    /// Something happened that no queue notifies of.
    pub(crate) fn poke(&mut self) {
        self.poked = true;
    }

    /// Whoever blocks with this would be woken at once.
    fn is_called(&self) -> bool {
        self.poked || self.notifier.is_signalled()
    }

    /// Back on the CPU.
    pub(crate) fn wake(&mut self, woke: Woke) {
        self.at = At::Woken(woke);
    }

    /// Whether an entry waits on any queue.
    pub(crate) fn sees_an_entry(&self) -> bool {
        self.lanes.iter().any(|lane| lane.pair.pending())
    }

    /// The next mode of every queue, adopted between two batches.
    pub(crate) fn switch(&mut self, mode: completion::Mode) {
        for lane in &mut self.lanes {
            lane.wanted = Some(mode);
        }
    }

    fn decide(&mut self, g: &Ground) -> Result<Progress, SimError> {
        for lane in &mut self.lanes {
            lane.adopt(&*self.notifier, self.habits.looks_after_switch);
        }
        if std::mem::take(&mut self.poked) {
            self.app.unblock();
        }
        if !self.leaving && (self.reached(g.now) || self.app.can_post()) {
            self.at = At::Load;
            return Ok(Progress::Busy(Nanos::ZERO));
        }
        self.plans.clear();
        let mut asked = 0;
        for lane in &mut self.lanes {
            if !matches!(lane.plan, Plan::Look { .. }) {
                let in_flight = lane.pair.in_flight();
                let (leaving, cpu_wanted) = (self.leaving, self.app.cpu_wanted);
                let goes_on_at = self.goal.map(|goal| goal.until).filter(|&until| until < Nanos::MAX);
                let seen = Seen { in_flight, leaving, cpu_wanted, goes_on_at, ..lane.seen };
                lane.plan = lane.policy.next(g.now, &seen);
                lane.seen = Seen::default();
                asked += 1;
            }
            self.plans.push(lane.plan);
        }
        let cost = Nanos(g.costs.library.decide.0 * asked);
        self.follow(g, combine(self.plans.iter().copied()))?;
        Ok(match self.at {
            At::Spun => self.spin(g, cost),
            _ => Progress::Busy(cost),
        })
    }

    /// Where the combined plan leads.
    fn follow(&mut self, g: &Ground, plan: Plan) -> Result<(), SimError> {
        self.at = match plan {
            Plan::Look { .. } => {
                self.take_turn(g);
                return Ok(());
            }
            Plan::Spin { .. } | Plan::Nap { .. } if self.leaving => return Err(SimError::LeftUnarmed { at: g.now, plan }),
            Plan::Spin { until } => {
                self.spin_until(until);
                At::Spun
            }
            // Lanes whose own plan is to sleep are armed, whatever the others do.
            Plan::Nap { until } | Plan::Sleep { until } => At::Sleep { step: 0, until: until.min(self.deadline()) },
            Plan::Rest if self.leaving => At::Sleep { step: self.habits.sleep.len() - 1, until: Nanos::MAX },
            // Nothing is in flight: the application waits for the clock, or for a controller that is being reset.
            Plan::Rest => At::Sleep { step: self.habits.sleep.len() - 1, until: self.deadline() },
        };
        self.in_round = false;
        Ok(())
    }

    /// The next queue's turn. If the round is over, whatever else there is to do has been done between its turns, and the
    /// next begins.
    fn take_turn(&mut self, g: &Ground) {
        for _ in 0..2 {
            if !self.in_round {
                self.round.begin(g.now);
                self.tally.begin_drain();
                self.in_round = true;
            }
            if let Some(turn) = self.round.turn(g.now, &self.plans) {
                self.at = At::Look { lane: turn.queue, budget: turn.budget, after: After::Decide };
                return;
            }
            self.in_round = false;
        }
    }

    fn look(&mut self, g: &Ground, at: usize, budget: u32, after: After) -> Progress {
        let lane = &mut self.lanes[at];
        lane.plan = Plan::Rest;
        let before = self.taken.len();
        let Some(reaped) = lane.pair.try_reap(g.bells, budget, &mut self.taken) else {
            lane.seen.lock_busy = true;
            self.at = after.at();
            return Progress::Busy(g.costs.library.look);
        };
        lane.seen = Seen { found: reaped.found, budget_used_up: reaped.budget_used_up, pending: reaped.more, ..Seen::default() };
        let found = if lane.slept { None } else { Some(Found::Looking) };
        lane.slept = false;
        if lane.policy.wants_done() {
            let done = |c: &Completed| {
                let age = g.now - c.posted_at;
                let class = self.app.requests.class(Token::from_word(c.token)).ok()?;
                Some(Done { class, age, found: found.unwrap_or(Found::AfterSleep { at_most: age }) })
            };
            self.done.clear();
            self.done.extend(self.taken[before..].iter().filter_map(done));
            lane.policy.completed(&self.done);
        }
        if let Some(violation) = reaped.violation {
            self.violation = Some(violation);
        }
        self.tally.looked(reaped.found);
        if after == After::Decide {
            self.round.took(reaped.found);
        }
        self.at = if reaped.found > 0 { At::Sort { after } } else { after.at() };
        let doorbell = if reaped.found > 0 { g.costs.memory.mmio } else { Nanos::ZERO };
        Progress::Busy(g.costs.library.reap + doorbell + Nanos(g.costs.library.entry.0 * u64::from(reaped.found)))
    }

    fn commit(&mut self, g: &Ground, at: usize) -> Progress {
        let Some(lane) = self.lanes.get_mut(at) else {
            self.app.committed(g.now);
            self.at = At::Load;
            return Progress::Busy(Nanos::ZERO);
        };
        self.at = At::Commit(at + 1);
        let commands = lane.pair.lock_sq().commit(g.bells);
        if commands == 0 {
            return Progress::Busy(Nanos::ZERO);
        }
        let class = self.app.take_class(at);
        let batch = Batch { commands, urgent: 0, in_flight: lane.pair.in_flight(), class };
        if let Check::TryLook { budget } = lane.policy.submitted(g.now, &batch) {
            self.at = At::Check { lane: at, budget };
        }
        Progress::Busy(g.costs.memory.mmio)
    }

    fn check(&mut self, g: &Ground, lane: usize, budget: u32) -> Progress {
        let after = After::Commit(lane + 1);
        self.tally.begin_drain();
        self.at = if self.lanes[lane].pair.pending() { At::Look { lane, budget, after } } else { after.at() };
        Progress::Busy(g.costs.library.look)
    }

    /// When the application goes on, whatever has completed.
    fn deadline(&self) -> Nanos {
        self.goal.map_or(Nanos::MAX, |goal| goal.until)
    }

    /// Spins until the goal's instant at the latest.
    fn spin_until(&mut self, until: Nanos) {
        let until = until.min(self.deadline());
        for lane in &mut self.lanes {
            lane.plan = Plan::Spin { until };
        }
    }

    fn spin(&mut self, g: &Ground, cost: Nanos) -> Progress {
        let until = self.lanes.iter().map(|lane| lane.plan).find_map(|plan| match plan {
            Plan::Spin { until } => Some(until),
            _ => None,
        });
        if self.sees_an_entry() {
            Progress::Busy(cost + g.costs.library.look)
        } else {
            Progress::Spin(until.unwrap_or(g.now).max(g.now + cost))
        }
    }

    fn spun(&mut self, g: &Ground) -> Progress {
        for lane in &mut self.lanes {
            lane.seen.pending = lane.pair.pending();
            // It looked all the while; what it finds now was posted just now.
            lane.slept = false;
        }
        self.at = At::Decide;
        Progress::Busy(g.costs.library.look)
    }

    fn sleep(&mut self, g: &Ground, step: usize, until: Nanos) -> Progress {
        self.at = At::Sleep { step: step + 1, until };
        match self.habits.sleep[step] {
            SleepStep::Arm => {
                let mut armed = 0;
                for lane in self.lanes.iter().filter(|lane| lane.is_to_arm()) {
                    lane.arm(&*self.notifier);
                    armed += 1;
                }
                Progress::Busy(Nanos(g.costs.library.arm.0 * armed))
            }
            SleepStep::Look => {
                let (mut looked, mut found) = (0, false);
                for lane in self.lanes.iter_mut().filter(|lane| lane.is_to_arm()) {
                    lane.seen.pending = lane.pair.pending();
                    found |= lane.seen.pending;
                    looked += 1;
                }
                let masked = if found { self.mask_all(g) } else { Nanos::ZERO };
                if found {
                    self.at = At::Decide;
                }
                Progress::Busy(Nanos(g.costs.library.look.0 * looked) + masked)
            }
            SleepStep::Block if self.leaving => {
                self.at = At::Away;
                Progress::Away(self.app.think)
            }
            SleepStep::Block => {
                self.at = At::Blocking { until };
                let timer = if until < Nanos::MAX { g.costs.thread.timer } else { Nanos::ZERO };
                Progress::Busy(if self.is_called() { g.costs.thread.syscall } else { g.costs.old_block() + timer })
            }
        }
    }

    /// The system call: it returns at once if a signal waits, because signals are sticky.
    fn block(&mut self, g: &Ground, until: Nanos) -> Progress {
        if self.is_called() || until <= g.now {
            self.tally.returned_at_once += 1;
            let cause = if until <= g.now { Cause::Timer } else { Cause::Other };
            self.at = At::Woken(Woke { cause, late: g.now - until });
            return Progress::Busy(Nanos::ZERO);
        }
        self.at = At::Blocked { until };
        Progress::Block(until)
    }

    fn woken(&mut self, g: &Ground, woke: Woke) -> Progress {
        let cost = self.mask_all(g);
        self.poked = false;
        let called = self.notifier.pending();
        for (queue, lane) in self.lanes.iter_mut().enumerate() {
            lane.slept = true;
            let own = if called.contains(queue) { Woke { cause: Cause::Notification, late: Nanos::ZERO } } else { woke };
            lane.seen.woke = (lane.pair.in_flight() > 0).then_some(own);
        }
        self.app.unblock();
        self.at = At::Decide;
        Progress::Busy(cost)
    }

    /// The application is back in the library.
    fn back(&mut self, g: &Ground) -> Progress {
        self.leaving = false;
        self.woken(g, Woke { cause: Cause::Other, late: Nanos::ZERO })
    }

    fn mask_all(&self, g: &Ground) -> Nanos {
        let masked = self.lanes.iter().filter(|lane| lane.mask(&*self.notifier)).count();
        Nanos(g.costs.library.mask.0 * masked as u64)
    }
}

impl After {
    fn at(self) -> At {
        match self {
            After::Commit(lane) => At::Commit(lane),
            After::Decide => At::Decide,
        }
    }
}
