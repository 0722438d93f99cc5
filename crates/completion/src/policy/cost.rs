//! `adaptive-cost`: at each look in vain the action of least expected cost per completion found.

mod climb;
mod forecast;

use units::Nanos;

use super::adaptive::ledger::Ledger;
use super::adaptive::timers::Timers;
use super::work::{WEIGHT, work_is_known};
use crate::{Batch, Cause, Check, Coalesce, Decisions, Done, Found, Plan, Route, Seen, Tuning};
use climb::Climb;
use forecast::Forecast;

const AWAKE: u32 = 64;
const MARGIN: u64 = 6;
const EXPLORE_EVERY: u64 = 64;
const LONGEST: f32 = 1_000_000.0;
const SLICE: Nanos = Nanos::from_micros(100);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Doing {
    #[default]
    Nothing,
    Glance,
    Spin,
    Nap,
    Sleep,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Nanos,
    came: Option<Nanos>,
    spun: Nanos,
    slept: bool,
    explores: Nanos,
}

#[derive(Clone, Debug)]
pub(super) struct Cost {
    lambda: f32,
    cpu: Nanos,
    timers: Timers,
    delay_over_late: Nanos,
    message: Nanos,
    forecast: Forecast,
    /// What a command takes on average, and how many times that the caller has been late by.
    typical: f32,
    behind: f32,
    climb: Climb,
    ledger: Ledger,
    decisions: Decisions,
    wait: Option<Wait>,
    doing: Doing,
    asked: Nanos,
    goes_on_at: Option<Nanos>,
    /// The last look in vain, and the last of those that found something.
    vain: Nanos,
    clock: Nanos,
    told: bool,
    awake: u32,
    checks: bool,
    outrun: bool,
}

impl Cost {
    pub(super) fn new(tuning: &Tuning) -> Cost {
        let machine = &tuning.machine;
        let lambda = match tuning.slack.thousandths() {
            u32::MAX => 1e6,
            100 => std::env::var("LAMBDA").ok().and_then(|l| l.parse().ok()).unwrap_or(0.1),
            l => l as f32 / 1_000.0,
        };
        Cost {
            lambda,
            cpu: machine.cpu.max(Nanos(1)),
            timers: Timers::new(machine.nap, machine.late),
            delay_over_late: machine.delay - machine.late,
            message: machine.message,
            forecast: Forecast::new(),
            typical: 0.0,
            behind: 0.0,
            climb: Climb::default(),
            ledger: Ledger::default(),
            decisions: Decisions::default(),
            wait: None,
            doing: Doing::Nothing,
            asked: Nanos::ZERO,
            goes_on_at: None,
            vain: Nanos::ZERO,
            clock: Nanos::ZERO,
            told: false,
            awake: 0,
            checks: false,
            outrun: false,
        }
    }

    pub(super) fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    pub(super) fn route(&self) -> Route {
        if self.awake >= AWAKE { Route::Poll } else { Route::Notify }
    }

    pub(super) fn submitted(&mut self, now: Nanos, batch: &Batch) -> Check {
        self.forecast.keep(batch.in_flight - batch.commands.min(batch.in_flight));
        self.forecast.sent(now, batch);
        self.clock = now;
        self.checks = batch.in_flight > batch.commands && self.looks_on_commit();
        if self.checks { Check::TryLook { budget: WEIGHT } } else { Check::No }
    }

    pub(super) fn looks_on_commit(&self) -> bool {
        !self.outrun && !self.gathers()
    }

    fn gathers(&self) -> bool {
        self.climb.closed >= AWAKE && self.climb.wanted() > 0
    }

    pub(super) fn completed(&mut self, done: &[Done]) {
        let Some(last) = done.last() else { return };
        self.outrun |= self.checks;
        let since = self.clock - last.age;
        let (from, to) = match last.found {
            Found::Looking => (last.age, last.age),
            Found::AfterSleep { at_most } if self.told => {
                let age = (at_most - self.delay()).max(Nanos(1));
                (age, age)
            }
            Found::AfterSleep { at_most } => (self.vain - since, at_most),
        };
        self.typical += (to.0 as f32 - self.typical) / 16.0;
        self.forecast.learn(last.class, from.min(to), to);
    }

    fn delay(&self) -> Nanos {
        self.timers.late() + self.delay_over_late
    }

    pub(super) fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        self.clock = now;
        self.checks = false;
        self.account(now, seen);
        if work_is_known(seen) || seen.budget_used_up && seen.in_flight > 0 {
            self.decisions.looks += 1;
            return Plan::Look { budget: WEIGHT };
        }
        if seen.in_flight == 0 {
            self.wait = None;
            return Plan::Rest;
        }
        self.vain = now;
        self.forecast.keep(seen.in_flight);
        let open = seen.goes_on_at.is_some() || seen.wants_room_at.is_some();
        self.climb.closed = if open { 0 } else { self.climb.closed.saturating_add(1) };
        self.asked = now;
        self.goes_on_at = seen.goes_on_at;
        let plan = self.decide(now, seen);
        self.doing = match plan {
            Plan::Spin { .. } if self.doing == Doing::Glance => Doing::Glance,
            Plan::Spin { .. } => Doing::Spin,
            Plan::Nap { .. } => Doing::Nap,
            _ => Doing::Sleep,
        };
        match self.doing {
            Doing::Glance | Doing::Spin => self.decisions.spun += 1,
            Doing::Nap => self.decisions.napped += 1,
            _ => self.decisions.slept += 1,
        }
        plan
    }

    fn decide(&mut self, now: Nanos, seen: &Seen) -> Plan {
        if self.wait.is_none() {
            self.begin(now, seen);
        }
        let Some(wait) = self.wait else { return Plan::sleep(Nanos::MAX) };
        if seen.leaving || seen.cpu_wanted {
            self.decisions.gave_way += 1;
            return Plan::sleep(Nanos::MAX);
        }
        if wait.explores > Nanos::ZERO {
            return Plan::Spin { until: now + wait.explores.min(SLICE) };
        }
        if self.lambda <= 1.0 && !self.ledger.may_predict(self.cpu, MARGIN) {
            let left = self.cpu - wait.spun;
            let rents = left > Nanos::ZERO && !wait.slept && !self.ledger.sleeps(self.cpu);
            return if rents { Plan::Spin { until: now + left } } else { Plan::sleep(Nanos::MAX) };
        }
        if !self.forecast.known() {
            return Plan::sleep(Nanos::MAX);
        }
        if self.climb.closed >= AWAKE && seen.in_flight >= 4 {
            self.climb.tick(now, seen.in_flight, self.lambda);
            if self.climb.wanted() > 0 {
                let wanted = (self.climb.wanted() as f32).min(seen.in_flight as f32 * 0.97);
                let span = self.forecast.when(now, wanted, LONGEST);
                let until = now + Nanos(span as u64);
                if let Some(until) = self.timers.until(now, until) {
                    self.decisions.gathered += 1;
                    return Plan::Nap { until };
                }
            }
        }
        self.cheapest(now, seen, &wait)
    }

    /// ∫ of how many are there and not found, over `from..to` from now on.
    fn late(&self, now: Nanos, to: f32) -> f32 {
        let step = to / 4.0;
        (1..=4).map(|i| self.forecast.by(now, step * (i as f32 - 0.5))).sum::<f32>() * step
    }

    fn cheapest(&mut self, now: Nanos, seen: &Seen, wait: &Wait) -> Plan {
        let n = seen.in_flight as f32;
        let (cpu, nap, delay) = (self.cpu.0 as f32, self.timers.cost.0 as f32, self.delay().0 as f32);
        // Whoever waits for room is delayed as well, and so is who comes after him.
        let behind = seen.wants_room_at.map_or(0.0, |due| (now - due).0 as f32 / self.typical.max(1.0));
        self.behind += (behind - self.behind) / 64.0;
        let lambda = self.lambda * if seen.urgent_waiting > 0 { 100.0 } else { 1.0 + behind.max(self.behind) };
        let single = seen.in_flight == 1;
        let alive = |by: f32| if single { 1.0 - by.min(1.0) } else { (-by).exp() };
        let horizon = (cpu + lambda * delay).min(LONGEST) - wait.spun.0 as f32;
        // What is left to pay after being awake in `from`, when nothing had come by then.
        let awake_from = |from: f32| {
            if horizon <= 0.0 {
                return alive(self.forecast.by(now, from)) * (cpu + lambda * delay);
            }
            let step = horizon / 4.0;
            let spun: f32 = (0..4).map(|i| alive(self.forecast.by(now, from + step * (i as f32 + 0.5)))).sum::<f32>() * step;
            spun + alive(self.forecast.by(now, from + horizon)) * (cpu + lambda * delay)
        };
        // Sleep.
        let first = self.forecast.when(now, if single { 0.5 } else { 0.7 }, LONGEST);
        let found = self.forecast.by(now, first + delay).max(1.0);
        let late = self.late(now, first + delay);
        let mut best = (cpu + (found - 1.0) * self.message.0 as f32 + lambda * late.max(delay)) / found;
        let mut plan = Plan::sleep(Nanos::MAX);
        if horizon > 0.0 {
            let cost = awake_from(0.0);
            if cost < best {
                (best, plan) = (cost, Plan::Spin { until: now + Nanos(horizon as u64).max(Nanos(1)).min(SLICE) });
            }
        }
        let back = |span: f32| self.timers.back(now, now + Nanos(span as u64));
        let mut nap = |end: f32| {
            let Some(until) = self.timers.until(now, now + Nanos(end as u64)) else { return };
            let to = (back((until - now).0 as f32) - now).0 as f32;
            let found = self.forecast.by(now, to);
            let cost = (nap + lambda * self.late(now, to) + awake_from(to)) / found.max(1.0);
            if cost < best {
                (best, plan) = (cost, Plan::Nap { until });
            }
        };
        let wanted = if single { [0.05, 0.2, 0.5, 0.9] } else { [0.1, 1.0, n / 2.0, n * 0.95] };
        for wanted in wanted {
            nap(self.forecast.when(now, wanted, LONGEST));
        }
        if n > 8.0 {
            nap(self.forecast.when(now, n / 4.0, LONGEST));
            nap(self.forecast.when(now, n / 8.0, LONGEST));
        }
        if let Some(at) = seen.goes_on_at.filter(|&at| at > now) {
            let to = (at - now).0 as f32 + self.timers.late().0 as f32;
            let found = self.forecast.by(now, to);
            let cost = lambda * self.late(now, to) / found.max(1e-6);
            if cost < best {
                plan = Plan::Nap { until: at };
            }
        }
        plan
    }

    fn begin(&mut self, now: Nanos, seen: &Seen) {
        self.decisions.waits += 1;
        let turn = self.decisions.waits.is_multiple_of(EXPLORE_EVERY) && seen.in_flight > 1 && !self.gathers();
        let early = self.decisions.waits <= 8 && seen.in_flight > 1;
        let explores = if (turn || early) && self.ledger.may_predict(self.cpu, 8 + MARGIN) {
            self.decisions.explored += 1;
            Nanos(self.cpu.0 * 8)
        } else {
            Nanos::ZERO
        };
        self.wait = Some(Wait { since: now, came: None, spun: Nanos::ZERO, slept: false, explores });
    }

    fn account(&mut self, now: Nanos, seen: &Seen) {
        let doing = std::mem::take(&mut self.doing);
        let over = seen.met_at.filter(|_| doing == Doing::Spin).unwrap_or(now);
        let mut spent = Nanos::ZERO;
        self.climb.found(seen.found);
        match doing {
            Doing::Nothing | Doing::Glance => {}
            Doing::Spin => {
                spent = over - self.asked;
                if let Some(wait) = &mut self.wait {
                    wait.spun += spent;
                    wait.came = (seen.pending || seen.met_at.is_some()).then_some(over);
                    wait.explores = wait.explores - spent;
                    if wait.explores > Nanos::ZERO || wait.explores == Nanos::ZERO && wait.spun > self.cpu {
                        self.ledger.explore(Nanos::ZERO);
                    }
                }
            }
            Doing::Nap | Doing::Sleep => {
                self.told = false;
                if let Some(woke) = seen.woke {
                    self.told = doing == Doing::Sleep && woke.cause == Cause::Notification;
                    let delay = self.delay();
                    let cost = if doing == Doing::Nap { &mut self.timers.cost } else { &mut self.cpu };
                    if let Some(cycle) = seen.cycle {
                        *cost = Nanos((cost.0 - cost.0 / 8 + cycle.0 / 8).max(1));
                    }
                    spent = *cost;
                    if woke.cause == Cause::Timer && now - self.asked > spent {
                        self.timers.was(now - self.asked - woke.late, woke.late);
                    }
                    if let Some(wait) = &mut self.wait {
                        wait.slept = true;
                        wait.spun = Nanos::ZERO;
                        if self.told {
                            wait.came = Some(wait.since.max(now - delay));
                        }
                    }
                    if woke.cause == Cause::Timer && self.goes_on_at.is_some_and(|at| at <= now) {
                        spent = Nanos::ZERO;
                    }
                }
            }
        }
        self.ledger.spend(spent);
        self.climb.spend(spent);
        if seen.found > 0
            && let Some(wait) = self.wait.take()
        {
            self.awake = if wait.slept { self.awake.saturating_sub(AWAKE) } else { (self.awake + 1).min(8 * AWAKE) };
            self.outrun &= !wait.slept;
            self.ledger.waited(wait.came.map(|came| came - wait.since), over - wait.since, self.cpu);
        }
    }

    pub(super) fn holds(&self, _now: Nanos) -> Option<Coalesce> {
        Some(Coalesce::OFF)
    }
}
