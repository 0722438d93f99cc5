//! `adaptive`: whatever costs least, within what the user lets it cost in latency.
//!
//! A look that is free is taken first: after every commit, before every sleep, while looks find entries. On a look in vain
//! the choice is between four things, by what each is expected to cost in CPU time:
//! - **spin** until something comes: costs the wait;
//! - **nap** on a timer until just before something is likely, then spin: costs a timer, and what is left of the wait;
//! - **sleep** until notified: costs B, measured, and delays the completion by D;
//! - **gather**: nap on until several are likely to have come: costs one timer for all of them.
//!
//! The user's slack says how late a completion may be found, as a share of its device time: so far a gathering nap may
//! reach. Below its default it also says what earliness is worth: a sleep then counts as dearer by what its delay is beyond that,
//! so that at 0 there is only spinning and napping; above it, a sleep counts as cheaper, since what comes meanwhile is
//! gathered by it as well. `docs/adaptive.md` has the reasons and the figures.

mod awake;
mod flight;
mod gather;
mod hold_back;
mod holds;
pub(super) mod ledger;
mod outcome;
mod pace;
mod put_off;
mod room;
mod service;
mod step;
pub(super) mod timers;
mod waits;

use units::Nanos;

use super::work::{WEIGHT, work_is_known};
use crate::{Batch, Check, Coalesce, Decisions, LatencySlack, Plan, Seen, Tuning};
use flight::Flight;
use holds::Holds;
use ledger::Ledger;
use pace::Pace;
use room::Room;
use service::Service;
use step::{Doing, Step, Wait};
use timers::Timers;
use waits::{Spans, Waits, Yields};

/// One wait in so many is looked at all the way, because what is found after a sleep says little about the device.
const EXPLORE_EVERY: u64 = 64;

/// And the first ones, if several are in flight, because nothing is known yet. Of a command that is alone a sleep tells enough:
/// the device took as long as the sleep did, but for its delay.
const EXPLORE_FIRST: u64 = 8;

/// For as long as so many sleeps cost; a command that takes longer than was predicted by that is no use for predicting.
const EXPLORE_SLEEPS: u64 = 8;

/// Sleeps that one wait which follows a prediction can cost too much: a nap, a spin and a sleep, and what a choice of the
/// user's adds.
const MARGIN: u64 = 6;

/// So many sleeps a sleep counts as where the caller falls behind: half of the margin may be spun then, and the rest naps and sleeps.
const KEEPS_UP: u64 = MARGIN / 2;

/// A caller's instants are dense if there are so many in the CPU time of a nap: two in what is spent before the thread blocks.
const DENSE: u64 = 6;

/// A thread that naps or sleeps in less than one of so many waits stays awake.
pub(super) const AWAKE: u32 = 64;

/// Longest stretch of spinning before the question is asked again.
const SLICE: Nanos = Nanos::from_micros(100);

/// Longest gathering nap, whatever the slack: NAPI's suspension has the same order of magnitude.
const LONGEST: Nanos = Nanos::from_millis(1);

#[derive(Clone, Debug)]
pub(super) struct Adaptive {
    slack: LatencySlack,
    /// B, and what timers cost and how late they are, as seen lately; D is later than a timer by a constant.
    cpu: Nanos,
    timers: Timers,
    delay_over_late: Nanos,
    /// What each further notification costs.
    message: Nanos,
    flight: Flight,
    /// How old the last was of those that the look has taken which is over, and since when the policy has not been asked.
    taken: Option<(Nanos, Nanos)>,
    service: Service,
    pace: Pace,
    waits: Waits,
    yields: Yields,
    spans: Spans,
    ledger: Ledger,
    holds: Holds,
    decisions: Decisions,
    wait: Option<Wait>,
    step: Step,
    clock: Nanos,
    /// Back from a nap or sleep since then; and from one that was not to end before something was due.
    woke: Nanos,
    blind: Nanos,
    /// CPU time left for looking all the way, to learn, and for how many commands more: the first to come are the fastest.
    explores: Nanos,
    explored: u32,
    /// The caller has a clock, but no room.
    crowded: bool,
    /// Where the nap ended that the look which comes follows, as [`Step::aims`].
    napped: Option<u64>,
    /// With so many in flight the look that comes was asked for, after a nap or sleep. What it takes is seen by how many are left:
    /// another look may come before the next question, after a commit.
    looks: Option<u32>,
    /// The look that comes follows a sleep that the notification did not end; and one that it did.
    slept_through: bool,
    told: bool,
    /// What the last sleep found was due at another time than that: sooner, or slow.
    surprised: bool,
    /// The last question was whether to look after a commit, and the answer was yes.
    checks: bool,
    /// What has come is left where it is until the caller has no room; and how much that is.
    puts_off: bool,
    room: Room,
    /// Such a look found something, and no wait was needed since, or the thread stays awake in its waits: its next look comes
    /// soon anyway, and entries gather by themselves until then.
    outrun: bool,
    /// Waits without a nap or sleep; [`AWAKE`] of them make up for one that had some. From as many on the thread stays awake.
    awake: u32,
    /// A message was lost once; from then on every sleep has a deadline.
    distrusts: bool,
    /// The wait is for all of a few in flight, and not for half of them; and how near the next such wait is, in parts of the slack.
    all: bool,
    share: u64,
}

impl Adaptive {
    pub(super) fn new(tuning: &Tuning) -> Adaptive {
        let machine = &tuning.machine;
        Adaptive {
            slack: tuning.slack,
            cpu: machine.cpu.max(Nanos(1)),
            timers: Timers::new(machine.nap, machine.late),
            delay_over_late: machine.delay - machine.late,
            message: machine.message,
            flight: Flight::new(),
            taken: None,
            service: Service::new(tuning.slack),
            pace: Pace::default(),
            waits: Waits::new(),
            yields: Yields::new(),
            spans: Spans::default(),
            ledger: Ledger::default(),
            holds: Holds::new(tuning.slack),
            decisions: Decisions::default(),
            wait: None,
            step: Step::default(),
            clock: Nanos::ZERO,
            woke: Nanos::ZERO,
            blind: Nanos::ZERO,
            explores: Nanos::ZERO,
            explored: 0,
            crowded: false,
            napped: None,
            looks: None,
            slept_through: false,
            told: false,
            surprised: true,
            checks: false,
            puts_off: false,
            room: Room::default(),
            outrun: false,
            awake: 0,
            distrusts: false,
            all: false,
            share: 0,
        }
    }

    pub(super) fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    #[inline(never)] // The others' batches pass by it.
    pub(super) fn submitted(&mut self, now: Nanos, batch: &Batch) -> Check {
        if let Some(class) = batch.class {
            self.flight.sent(now, batch.commands, class);
        }
        self.pace.sent(batch.commands);
        self.clock = now;
        if self.looks.is_some() {
            self.looked(batch.in_flight.saturating_sub(batch.commands));
        }
        // Nothing else was in flight: nothing can be there yet.
        self.checks = batch.in_flight > batch.commands && self.looks_on_commit();
        if self.checks { Check::TryLook { budget: WEIGHT } } else { Check::No }
    }

    /// A thread that the device outruns comes to its next look soon anyway: looking sooner would only find fewer at a time, as it
    /// does where what has come may wait.
    #[inline]
    pub(super) fn looks_on_commit(&self) -> bool {
        !self.outrun && !self.puts_off && self.slack != LatencySlack::UNLIMITED
    }

    #[inline]
    pub(super) fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        self.back(now, seen);
        let put_off = if work_is_known(seen) && !seen.budget_used_up { self.put_off(now, seen) } else { None };
        self.puts_off = put_off.is_some();
        let waits = self.puts_off || self.lets_wait(now, seen);
        if work_is_known(seen) && !waits || seen.budget_used_up && seen.in_flight > 0 {
            self.decisions.looks += 1;
            self.looks = seen.woke.map(|_| seen.in_flight);
            return Plan::Look { budget: WEIGHT };
        }
        if seen.goes_on_at.is_some() {
            self.pace.clocked(now);
        }
        if seen.in_flight == 0 {
            self.wait = None;
            return self.attends(now, seen).map_or(Plan::Rest, |until| Plan::Spin { until });
        }
        self.crowded = seen.goes_on_at.is_none() && self.pace.has_clock();
        if self.crowded {
            self.room.full(seen.in_flight);
        }
        // A look that ended a spin came later than the policy was asked.
        let sent = self.taken.take().map(|(age, asked)| seen.met_at.unwrap_or(asked) - age);
        if let Some((quick, spent)) = self.step.spins.take() {
            self.yields.spun(quick, spent, self.flight.gone(seen.in_flight));
        }
        self.flight.keep(seen.in_flight, sent, &self.service);
        self.holds.under = Nanos::ZERO;
        if let Some(until) = put_off {
            self.decisions.gathered += 1;
            (self.step.asked, self.step.goes_on_at, self.step.doing) = (now, seen.goes_on_at, Doing::Gather);
            return Plan::Nap { until };
        }
        if let Some(until) = self.glance(now, seen) {
            (self.step.asked, self.step.doing) = (now, Doing::Glance);
            return Plan::Spin { until };
        }
        self.weigh(now, seen)
    }

    /// Takes what is cheapest, and remembers what it was told for when it is over.
    fn weigh(&mut self, now: Nanos, seen: &Seen) -> Plan {
        let before = self.decisions.gathered;
        (self.step.asked, self.step.goes_on_at) = (now, seen.goes_on_at);
        let plan = self.decide(now, seen);
        let gathers = self.decisions.gathered != before;
        self.outrun &= self.awake >= AWAKE;
        let overdue = seen.in_flight > 1 && !matches!(plan, Plan::Spin { .. }) && self.last(now) <= now;
        self.step.patient = overdue.then_some((seen.in_flight, gathers));
        self.step.gathers = gathers.then(|| (self.wanted(now), self.last(now)));
        self.step.doing = match plan {
            Plan::Spin { .. } => Doing::Spin,
            Plan::Nap { .. } if gathers => Doing::Gather,
            Plan::Nap { .. } => Doing::Nap,
            Plan::Sleep { .. } => Doing::Sleep,
            Plan::Look { .. } | Plan::Rest => Doing::Nothing,
        };
        match self.attends(now, seen) {
            Some(until) if self.step.doing != Doing::Spin => {
                (self.step.doing, self.step.patient, self.step.gathers) = (Doing::Attend, None, None);
                Plan::Spin { until }
            }
            _ => plan,
        }
    }

    /// From an entry to the first look of a thread that it has woken.
    fn delay(&self) -> Nanos {
        self.timers.late() + self.delay_over_late
    }

    /// When the caller goes on by himself, if that is before a thread that sets a timer for it would have blocked: it is awake until
    /// then in any case, and longer if it sets one. Not where any time will do, since what has come is left where it is, nor above the
    /// default where several of his instants may pass meanwhile: it is awake for the next one as well then, and a timer gathers them.
    fn attends(&self, now: Nanos, seen: &Seen) -> Option<Nanos> {
        let at = seen.goes_on_at.filter(|&at| now < at && at < self.timers.soonest(now))?;
        let away = seen.leaving || seen.cpu_wanted || self.lets_pass() || self.slack == LatencySlack::UNLIMITED;
        (!away).then_some(at)
    }

    /// Above the default slack the caller's instants are to pass where they are dense: being ahead of his clock is what costs.
    fn lets_pass(&self) -> bool {
        self.slack > LatencySlack::default() && self.pace.gap().0 < self.timers.cost.0 / DENSE
    }

    /// What a sleep counts as: its CPU time, and the worth of what its delay is beyond the slack.
    #[inline]
    fn horizon(&self) -> Nanos {
        let (slack, usual) = (u64::from(self.slack.thousandths()), u64::from(LatencySlack::default().thousandths()));
        match slack {
            0 => Nanos::MAX,
            slack if slack < usual => {
                let allowed = self.flight.class().map_or(Nanos::ZERO, |class| self.slack.of(self.service.median(class)));
                // By the cube: a nap that is late by the slack comes first. It costs p99 little where a few sleeps already cost it much.
                let late = (self.delay() - allowed).0;
                self.cpu + Nanos(late.saturating_mul(usual.pow(3) - slack.pow(3)) / slack.pow(3))
            }
            // Without dividing: it is asked for twice in each wait.
            slack if slack == usual => self.cpu,
            slack => Nanos(self.cpu.0 * usual / slack),
        }
    }

    /// Whether each delay makes all that follows later, because the caller falls behind his clock: up to the default slack, keeping
    /// up with him is worth more than a sleep, and nothing may be found late any more.
    fn keeps_up(&mut self, now: Nanos, seen: &Seen) -> bool {
        let Some(due) = seen.wants_room_at.filter(|_| self.slack <= LatencySlack::default()) else { return false };
        let Some(class) = self.flight.class() else { return false };
        self.pace.falls_behind(now, due, self.service.median(class), self.delay())
    }

    /// Waiting costs no more than twice what it need have cost. Below the default it may: earliness has a price there.
    fn bounded(&self) -> bool {
        self.slack >= LatencySlack::default()
    }

    fn decide(&mut self, now: Nanos, seen: &Seen) -> Plan {
        let (keeps_up, mut horizon) = (self.keeps_up(now, seen), self.horizon());
        if keeps_up {
            horizon = horizon.max(Nanos(self.cpu.0 * KEEPS_UP));
        }
        let due = self.flight.first(now, &self.service, horizon < self.cpu);
        let first = due.unwrap_or(now).max(now);
        self.step.overdue = first == now;
        let wait = self.begin(now, seen, first);
        let known = due.is_some() || horizon > self.cpu;
        if let Some(plan) = self.without_weighing(now, seen, &wait, first, known) {
            return plan;
        }
        let allowance = if keeps_up { Nanos::ZERO } else { self.allowance(seen) };
        if let Some(last) = self.sooner_than_a_nap(now, seen.in_flight, allowance).filter(|_| !seen.cpu_wanted) {
            return self.spin(now, last - now);
        }
        if let Some(until) = self.gather(now, seen, first, allowance) {
            self.decisions.gathered += 1;
            return Plan::Nap { until };
        }
        if seen.cpu_wanted {
            return self.give_way(now);
        }
        let expected = self.waits.expected(seen.in_flight);
        let awake = if self.nap_until(now, first).is_some() { self.timers.cost } else { first - now } + expected;
        if wait.spun >= horizon || awake > horizon {
            return self.sleep_or_nap(now, seen, first);
        }
        // As if polled: whoever goes on by himself is not to be late either.
        let earliest = seen.goes_on_at.filter(|_| horizon == Nanos::MAX);
        let awake = earliest.unwrap_or(first).clamp(now, first);
        // Alone, a nap ends when its command is due; several are gathered within the slack.
        let alone = self.flight.class().filter(|_| seen.in_flight == 1 && seen.urgent_waiting == 0);
        let allowed = match alone {
            Some(class) if !self.step.overdue && !keeps_up => self.service.aimed(class),
            Some(_) => Nanos::ZERO,
            None => allowance,
        };
        self.step.aims = alone.map(|_| if keeps_up { 0 } else { self.service.aim });
        self.spin_or_nap(now, awake, first, allowed, (horizon - wait.spun).min(SLICE))
    }

    /// What to do where there is nothing to choose: the thread has other things to do, it is to learn, the device holds messages back,
    /// nothing is `known` of when something is due, or no prediction may be followed because too many were wrong.
    fn without_weighing(&mut self, now: Nanos, seen: &Seen, wait: &Wait, first: Nanos, known: bool) -> Option<Plan> {
        if seen.leaving {
            return Some(self.give_way(now));
        }
        if wait.explores > Nanos::ZERO && !seen.cpu_wanted {
            self.step.aims = Some(0);
            return Some(self.spin_or_nap(now, first, first, Nanos::ZERO, wait.explores));
        }
        if seen.held != Coalesce::OFF
            && let Some(plan) = self.under_hold(now, seen, wait, first)
        {
            return Some(plan);
        }
        if !known && !seen.cpu_wanted {
            // After a sleep something is.
            return Some(self.sleep(now));
        }
        if self.bounded() && !self.ledger.may_predict(self.cpu, MARGIN) {
            // As if nothing were known.
            let left = self.cpu - wait.spun;
            let rents = left > Nanos::ZERO && wait.in_vain == 0 && !self.ledger.sleeps(self.cpu);
            let spins = rents && !seen.cpu_wanted;
            return Some(if spins { self.spin(now, left) } else { self.sleep(now) });
        }
        None
    }

    /// What a sleep finds late as well, a nap finds without being told of each: if the caller goes on by then, the thread wakes for him
    /// anyway, and else where several have come.
    fn sleep_or_nap(&mut self, now: Nanos, seen: &Seen, first: Nanos) -> Plan {
        let awake = first + self.delay();
        let his = || self.until_he_goes_on(now, first, awake).filter(|_| !self.lets_pass());
        let nap = || his().or_else(|| self.gather_by(now, seen.in_flight, first, awake));
        let Some(until) = (seen.urgent_waiting == 0).then(nap).flatten() else {
            return self.sleep(now);
        };
        self.decisions.gathered += 1;
        self.pace.sleeps();
        Plan::Nap { until }
    }

    /// The wait under way, or a new one.
    #[inline]
    fn begin(&mut self, now: Nanos, seen: &Seen, due: Nanos) -> Wait {
        let in_flight = seen.in_flight;
        if let Some(wait) = &mut self.wait {
            if wait.due == Nanos::ZERO {
                wait.due = due;
            }
            return *wait;
        }
        self.decisions.waits += 1;
        self.draw();
        self.pace.waits();
        self.holds.waits(now, self.decisions.waits, seen);
        let turn = self.decisions.waits.is_multiple_of(EXPLORE_EVERY) && self.ledger.may_explore() && (in_flight > 1 || self.surprised);
        let early = self.decisions.waits <= EXPLORE_FIRST && in_flight > 1;
        if (turn || early) && self.ledger.may_predict(self.cpu, EXPLORE_SLEEPS + MARGIN) {
            self.decisions.explored += 1;
            (self.explores, self.explored) = (Nanos(self.cpu.0 * EXPLORE_SLEEPS), if turn { in_flight } else { 1 });
        }
        let explores = if self.explored > 0 { self.explores } else { Nanos::ZERO };
        let wait = Wait { since: now, due, in_flight, came: None, spun: Nanos::ZERO, in_vain: 0, explores };
        self.wait = Some(wait);
        wait
    }

    /// Somebody else wants the CPU, or the thread has other things to do.
    fn give_way(&mut self, now: Nanos) -> Plan {
        self.decisions.gave_way += 1;
        self.sleep(now)
    }

    fn sleep(&mut self, now: Nanos) -> Plan {
        self.decisions.slept += 1;
        self.pace.sleeps();
        let deadline = self.flight.class().map_or(Nanos::MAX, |class| now + self.holds.under + self.service.deadline(class));
        Plan::sleep(if self.distrusts { deadline } else { Nanos::MAX })
    }

    fn spin(&mut self, now: Nanos, at_most: Nanos) -> Plan {
        self.decisions.spun += 1;
        Plan::Spin { until: now + at_most.max(Nanos(1)) }
    }

    /// Until when to nap to be back by then, if that is cheaper than staying awake for as long.
    fn nap_until(&self, now: Nanos, end: Nanos) -> Option<Nanos> {
        self.timers.until(now, end).filter(|&until| self.timers.back(now, until) > now + self.timers.cost)
    }

    /// Awake at `awake`, and from when something is due for so long.
    fn spin_or_nap(&mut self, now: Nanos, awake: Nanos, first: Nanos, allowed: Nanos, at_most: Nanos) -> Plan {
        if let Some(until) = self.nap_until(now, awake + allowed) {
            self.decisions.napped += 1;
            return Plan::Nap { until };
        }
        let turns = self.flight.turns_slow(now, &self.service).unwrap_or(Nanos::MAX);
        self.spin(now, ((first - now) + at_most).min(turns - now))
    }
}

#[cfg(test)]
mod tests;
