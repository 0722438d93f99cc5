//! `adaptive-cost`: at each look in vain the action of least expected cost per completion found.

mod climb;
mod forecast;

use units::Nanos;

use super::adaptive::ledger::Ledger;
use super::work::{WEIGHT, work_is_known};
use crate::{Batch, Cause, Check, Coalesce, Decisions, Done, Found, Plan, Route, Seen, Tuning};
use climb::Climb;
use forecast::{Forecast, INSTANTS, Point, at};

const AWAKE: u32 = 64;
const MARGIN: u64 = 6;
const EXPLORE_EVERY: u64 = 64;
const LONGEST: f32 = 1_000_000.0;
const SLICE: f32 = 100_000.0;

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
    nap: Nanos,
    late: Nanos,
    delay_over_late: Nanos,
    message: Nanos,
    forecast: Forecast,
    /// What a command takes on average, and how many times that the caller has been late by.
    typical: f32,
    behind: f32,
    /// From one command to the next.
    gap: f32,
    sent: Nanos,
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
            nap: machine.nap.max(Nanos(1)),
            late: machine.late,
            delay_over_late: machine.delay - machine.late,
            message: machine.message,
            forecast: Forecast::new(),
            typical: 0.0,
            behind: 0.0,
            gap: 0.0,
            sent: Nanos::ZERO,
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
        let gap = (now - self.sent).0 as f32 / batch.commands.max(1) as f32;
        self.gap += (gap - self.gap) / 16.0;
        self.sent = now;
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
        self.late + self.delay_over_late
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
            let soon = Nanos((self.nap.0 as f32 + self.lambda * self.late.0 as f32) as u64);
            let attends = seen.goes_on_at.filter(|&at| at > now && at < now + soon && !seen.leaving && !seen.cpu_wanted);
            return attends.map_or(Plan::Rest, |until| Plan::Spin { until });
        }
        self.vain = now;
        self.forecast.keep(seen.in_flight);
        let open = seen.goes_on_at.is_some() || seen.wants_room_at.is_some();
        self.climb.closed = if open { 0 } else { self.climb.closed.saturating_add(1) };
        self.asked = now;
        self.goes_on_at = seen.goes_on_at;
        if self.wait.is_none() && self.climb.closed >= AWAKE && seen.in_flight >= 4 {
            self.climb.tick(now, seen.in_flight, self.lambda);
        }
        if self.awake >= AWAKE && self.wait.is_none() && !self.gathers() && !seen.cpu_wanted && !seen.leaving {
            self.doing = Doing::Glance;
            self.decisions.spun += 1;
            return Plan::Spin { until: now + Nanos(self.cpu.0 / 2).max(Nanos(1)) };
        }
        let plan = self.decide(now, seen);
        self.doing = match plan {
            Plan::Spin { .. } => Doing::Spin,
            Plan::Nap { .. } => Doing::Nap,
            _ => Doing::Sleep,
        };
        match self.doing {
            Doing::Spin => self.decisions.spun += 1,
            Doing::Nap => self.decisions.napped += 1,
            _ => self.decisions.slept += 1,
        }
        plan
    }

    /// Until when to nap to be back at `end`.
    fn until(&self, now: Nanos, end: Nanos) -> Option<Nanos> {
        let until = end - self.late;
        (until > now + Nanos(self.nap.0 / 3)).then_some(until)
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
            return Plan::Spin { until: now + wait.explores.min(Nanos(SLICE as u64)) };
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
            if self.climb.wanted() > 0 {
                let wanted = (self.climb.wanted() as f32).min(seen.in_flight as f32 * 0.8);
                let points = self.forecast.look(now);
                let next = points.iter().position(|point| point.found >= wanted).unwrap_or(INSTANTS - 1);
                let before = if next == 0 { Point::default() } else { points[next - 1] };
                let part = (wanted - before.found) / (points[next].found - before.found).max(0.01);
                let span = before.at + (points[next].at - before.at) * part.min(1.0);
                let until = now + Nanos(span as u64);
                if let Some(until) = self.until(now, until) {
                    self.decisions.gathered += 1;
                    return Plan::Nap { until };
                }
            }
        }
        self.cheapest(now, seen, &wait)
    }

    fn cheapest(&mut self, now: Nanos, seen: &Seen, wait: &Wait) -> Plan {
        let (cpu, nap, delay, timer) = (self.cpu.0 as f32, self.nap.0 as f32, self.delay().0 as f32, self.late.0 as f32);
        // Whoever waits for room is delayed as well, and so is who comes after him.
        let behind = seen.wants_room_at.map_or(0.0, |due| (now - due).0 as f32 / self.typical.max(1.0));
        self.behind = behind.max(self.behind * (1.0 - 1.0 / 256.0));
        let lambda = self.lambda * if seen.urgent_waiting > 0 { 100.0 } else { 1.0 + (self.behind * 2.0 * delay / (self.typical + delay)).min(32.0) };
        let points = self.forecast.look(now);
        let sleep = cpu + lambda * delay;
        let horizon = (sleep - wait.spun.0 as f32).max(0.0);
        // What is left to pay after being awake from there on, when nothing had come by then.
        let awake_from = |from: &Point| {
            let end = at(&points, from.at + horizon);
            end.awake - from.awake + end.none * sleep
        };
        let goes_on = seen.goes_on_at.filter(|&at| at > now).map_or(f32::MAX, |at| (at - now).0 as f32);
        let now_is = Point { none: 1.0, ..Point::default() };
        let first = points.iter().find(|point| point.none < 0.5).unwrap_or(&points[INSTANTS - 1]).at;
        // The first is found late by the delay, those that come meanwhile by less.
        let (told, awake) = (at(&points, first), at(&points, first + delay));
        let more = (awake.found - told.found).max(0.0);
        let late = delay + (awake.late - told.late - told.found * delay).max(0.0);
        let mut best = (cpu + more * self.message.0 as f32 + lambda * late) / (1.0 + more);
        let mut plan = Plan::sleep(Nanos::MAX);
        let until = |span: f32| now + Nanos(span as u64).max(Nanos(1));
        if horizon > 0.0 && awake_from(&now_is) < best {
            (best, plan) = (awake_from(&now_is), Plan::Spin { until: until(horizon.min(SLICE)) });
        }
        let soonest = timer + nap / 3.0;
        for point in points.iter().filter(|point| point.at > soonest && point.at < goes_on) {
            let cost = (nap + lambda * point.late + awake_from(point)) / point.found.max(1.0);
            if cost < best {
                (best, plan) = (cost, Plan::Nap { until: until(point.at - timer) });
            }
        }
        if goes_on < LONGEST {
            // The caller goes on: what a thread that is awake then spares him, and what one that is not costs him.
            let back = at(&points, goes_on + timer);
            // Those of his instants that pass meanwhile wake nobody.
            let his = 1.0 + timer / self.gap.max(1.0);
            let cost = (nap + lambda * (back.late + timer * (1.0 + his) / 2.0)) / (back.found + his);
            if cost < best {
                (best, plan) = (cost, Plan::Nap { until: until(goes_on) });
            }
            if goes_on / (at(&points, goes_on).found + 1.0) < best {
                plan = Plan::Spin { until: until(goes_on) };
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
        let over = seen.met_at.filter(|_| matches!(doing, Doing::Spin | Doing::Glance)).unwrap_or(now);
        let mut spent = Nanos::ZERO;
        self.climb.found(seen.found);
        match doing {
            Doing::Nothing => {}
            Doing::Glance | Doing::Spin => {
                spent = over - self.asked;
                if doing == Doing::Glance {
                    self.decisions.waits += 1;
                    self.wait = Some(Wait { since: self.asked, came: None, spun: Nanos::ZERO, slept: false, explores: Nanos::ZERO });
                }
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
                    let cost = if doing == Doing::Nap { &mut self.nap } else { &mut self.cpu };
                    if let Some(cycle) = seen.cycle {
                        *cost = Nanos((cost.0 - cost.0 / 8 + cycle.0 / 8).max(1));
                    }
                    spent = *cost;
                    if woke.cause == Cause::Timer && now - self.asked > spent {
                        self.late = Nanos(self.late.0 - self.late.0 / 16 + woke.late.0 / 16);
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
