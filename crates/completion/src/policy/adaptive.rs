//! `adaptive`: at each empty poll the action of least expected cost per completion found.
//!
//! Cost is CPU time + λ · lateness: λ is the user's price of latency, lateness what the completions found have waited together.
//! A look that is free is taken first: between two waits, before a sleep, while looks find entries. On an empty poll one pass over
//! the instants at which something may complete ([`forecast`]) prices a spin, a nap to each of them, a nap or a spin to the
//! caller's own next instant, and a sleep ([`choose`]). What single waits cannot tell is found by trial over whole stretches ([`flow`]):
//! whether to stay awake altogether, and in a closed loop how many may be found late until the device runs dry. A ledger vetoes what
//! has cost too much. `docs/adaptive.md` has the reasons and the figures.

mod caller;
mod choose;
mod flow;
mod forecast;
mod ledger;
mod price;

use units::Nanos;

use super::work_is_known;
use crate::{Batch, Cause, Cycle, Decisions, Done, KeepArmed, LatencyPrice, Plan, Route, Seen, WEIGHT};
use caller::Caller;
use flow::{Around, Flow, Stretch};
use forecast::{Forecast, MEMORY, STRETCH};
use ledger::Ledger;
use price::Price;

/// Sleeps that one wait which follows a forecast can cost too much: a nap, a spin, a sleep, and what λ adds.
const MARGIN: u64 = 6;

/// Longest stretch of spinning before the question is asked again.
const SLICE: Nanos = Nanos::from_micros(100);

/// What the executor was told to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Doing {
    #[default]
    Nothing,
    /// Spins before anything is weighed, because the thread stays awake anyway.
    Glance,
    Spin,
    Nap,
    Sleep,
    /// Has left the library, and looks when it is back.
    Away,
}

/// The last step, as far as its end teaches something.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    doing: Doing,
    asked: Nanos,
    /// Its end was the notification's, or was not although it was slept for that.
    told: bool,
    slept_through: bool,
}

/// The wait under way: from an empty poll to the next that finds something.
#[derive(Clone, Copy, Debug, Default)]
struct Wait {
    since: Nanos,
    /// When an entry came, if that is known.
    came: Option<Nanos>,
    /// Spun since the last nap or sleep.
    spun: Nanos,
    /// It has had a nap or a sleep.
    slept: bool,
    /// The thread was away meanwhile, and did not wait.
    away: bool,
    /// CPU time left for looking all the way.
    explores: Nanos,
}

#[derive(Clone, Debug)]
pub(super) struct Adaptive {
    price: Price,
    forecast: Forecast,
    caller: Caller,
    flow: Flow,
    ledger: Ledger,
    pub(super) decisions: Decisions,
    wait: Option<Wait>,
    step: Step,
    clock: Nanos,
    /// Waits in a row without a nap or sleep; [`MEMORY`] of them make up for one that had some.
    awake: u32,
    /// A message was lost once: from then on every sleep has a deadline.
    distrusts: bool,
}

impl Adaptive {
    pub(super) fn new(price: LatencyPrice, machine: &Cycle) -> Adaptive {
        Adaptive {
            price: Price::new(price, machine),
            forecast: Forecast::new(),
            caller: Caller::default(),
            flow: Flow::new(),
            ledger: Ledger::default(),
            decisions: Decisions::default(),
            wait: None,
            step: Step::default(),
            clock: Nanos::ZERO,
            awake: 0,
            distrusts: false,
        }
    }

    /// Goes on with what was learnt before another mode or price. Of what is in flight it knows nothing.
    pub(super) fn inherit(&mut self, earlier: Adaptive) {
        let lambda = std::mem::replace(&mut self.price, earlier.price).lambda;
        self.price.lambda = lambda;
        self.forecast = earlier.forecast.resumes();
        self.flow = earlier.flow.resumes();
        (self.ledger, self.distrusts) = (earlier.ledger, earlier.distrusts);
    }

    /// What the device is to hold back.
    pub(super) fn holds(&self) -> u16 {
        if self.price.is_bounded() { self.flow.holds } else { 0 }
    }

    /// A thread that stays awake finds what it sends without being told.
    #[inline]
    pub(super) fn route(&self) -> Route {
        if self.awake >= MEMORY { Route::Poll } else { Route::Notify }
    }

    #[inline(never)] // The others' batches pass by it.
    pub(super) fn submitted(&mut self, now: Nanos, batch: &Batch) {
        self.forecast.keep(batch.in_flight.saturating_sub(batch.commands));
        self.forecast.sent(now, batch);
        self.caller.sent(now, batch.commands);
        if let Some(over) = self.flow.sent(now, batch.commands, batch.in_flight, self.ledger.spent) {
            self.judge(now, &over, batch.in_flight);
        }
        self.clock = now;
    }

    /// A stretch is over.
    #[cold]
    fn judge(&mut self, now: Nanos, over: &Stretch, in_flight: u32) {
        let (lambda, delay, open) = (self.price.lambda, self.price.delay, !self.caller.is_closed());
        self.flow.judge(now, over, &Around { in_flight, spent: self.ledger.spent, lambda, delay, open });
    }

    /// This many may be found late, and nobody is later for it: in a closed loop, what waits within the device, by Little's law.
    fn spare(&self) -> f32 {
        if self.caller.is_closed() { self.flow.spare().min(self.forecast.commands as f32) } else { 0.0 }
    }

    /// Whether several are to be found at a time: a nap then is for them, and one that has brought none was too short.
    pub(super) fn gathers(&self) -> bool {
        self.spare() > 1.0
    }

    /// Between two waits a poll that finds something is free, and there is nothing to account for.
    #[inline]
    pub(super) fn is_between_waits(&self) -> bool {
        self.wait.is_none() && self.step.doing == Doing::Nothing
    }

    /// Whether what a poll has found says anything new. What is there before the thread waits may have been there for any time, and the waits
    /// of a thread that stays awake are all alike.
    #[inline]
    pub(super) fn learns(&self) -> bool {
        let new = self.wait.is_some_and(|wait| wait.slept || self.awake < MEMORY);
        new || !self.is_between_waits() && self.decisions.waits.is_multiple_of(STRETCH.into())
    }

    #[inline]
    pub(super) fn completed(&mut self, done: &[Done]) {
        // The last one is the freshest; the others have waited for this look as well.
        let Some(last) = done.last() else { return };
        let (age, asked) = (last.age, last.age - (self.clock - self.step.asked));
        if self.step.slept_through && age > self.forecast.deadline(last.class) {
            self.decisions.missed_notifications += 1;
            self.distrusts = true;
        }
        self.flow.took(age);
        let told = age - self.price.delay;
        let range = match last.slept {
            false => (age, age),
            true if self.step.told && told > asked => (told, told),
            // It was not there when the nap or the sleep began.
            true => (asked.min(age), age),
        };
        self.forecast.learn(last.class, range);
    }

    #[inline]
    pub(super) fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        self.clock = now;
        self.account(now, seen);
        if seen.found > 0 {
            self.flow.in_flight(now, seen.in_flight);
        }
        if work_is_known(seen) || seen.budget_used_up && seen.in_flight > 0 {
            self.decisions.looks += 1;
            return Plan::Look { budget: WEIGHT };
        }
        let busy = seen.leaving || seen.cpu_wanted;
        if seen.in_flight == 0 {
            self.wait = None;
            // Awake until then costs less than a timer does for each of the caller's instants that pass before it is over.
            let soon = self.price.nap.0 as f32 / (1.0 + self.caller.commands_in(self.price.late.0 as f32));
            if let Some(until) = seen.goes_on_at.filter(|&at| !busy && at > now && at < now + Nanos(soon as u64)) {
                return Plan::Spin { until };
            }
            self.flow.rests(now);
            return Plan::Rest;
        }
        self.caller.waits(now, seen, self.flow.typical);
        self.step.asked = now;
        if self.awake >= MEMORY && self.wait.is_none() && !busy && seen.wants < 2 && !self.gathers() {
            // Most of its waits are over within half of what a sleep costs; the others are weighed then.
            (self.step.doing, self.decisions.spun) = (Doing::Glance, self.decisions.spun + 1);
            return Plan::Spin { until: now + Nanos(self.price.cpu.0 / 2).max(Nanos(1)) };
        }
        self.weigh(now, seen)
    }

    #[inline(never)]
    fn weigh(&mut self, now: Nanos, seen: &Seen) -> Plan {
        self.forecast.keep(seen.in_flight);
        let mut plan = self.decide(now, seen);
        if let Plan::Nap { extends, .. } = &mut plan {
            *extends = self.gathers();
        }
        let (doing, count) = match plan {
            Plan::Spin { .. } => (Doing::Spin, &mut self.decisions.spun),
            Plan::Nap { .. } => (Doing::Nap, &mut self.decisions.napped),
            _ => (Doing::Sleep, &mut self.decisions.slept),
        };
        *count += 1;
        self.step.doing = if seen.leaving { Doing::Away } else { doing };
        plan
    }

    fn decide(&mut self, now: Nanos, seen: &Seen) -> Plan {
        let wait = self.begin(now, seen.in_flight);
        self.decisions.gave_way += u64::from(seen.leaving || seen.cpu_wanted);
        let spare = if seen.urgent_waiting > 0 { 0.0 } else { self.spare() };
        if seen.leaving {
            return self.leaves(now, seen);
        }
        if wait.explores > Nanos::ZERO {
            let until = now + wait.explores.min(SLICE);
            return if seen.cpu_wanted { Plan::nap(until) } else { Plan::Spin { until } };
        }
        let cpu = self.price.cpu;
        if self.price.is_bounded() && !self.ledger.may_predict(cpu, MARGIN) {
            // As if nothing were known.
            let left = cpu - wait.spun;
            let rents = !seen.cpu_wanted && left > Nanos::ZERO && !wait.slept && !self.ledger.sleeps(cpu);
            return if rents { Plan::Spin { until: now + left } } else { self.sleep(now, 0) };
        }
        // Whether it finds out what staying awake costs, or has found that it is cheaper.
        if !seen.cpu_wanted && self.flow.is_awake() {
            return Plan::Spin { until: now + Nanos(self.most() as u64) };
        }
        if !self.forecast.is_known() {
            // After a sleep something is.
            return self.sleep(now, 0);
        }
        let points =
            if spare > 1.0 { self.forecast.full(self.flow.full(), spare) } else { self.forecast.look(now, self.price.soonest().0 as f32) };
        self.cheapest(now, seen, &points, spare, wait.spun).unwrap_or_else(|| self.sleep(now, seen.held))
    }

    /// A thread that computes until it looks again is told in vain of what completes meanwhile. One that waits elsewhere has to be told.
    fn leaves(&self, now: Nanos, seen: &Seen) -> Plan {
        match self.caller.computes() {
            Some(span) if seen.found > 0 => Plan::nap(now + span),
            _ => self.sleep(now, 0),
        }
    }

    fn sleep(&self, now: Nanos, held: u32) -> Plan {
        let deadline = self.forecast.oldest().map_or(Nanos::MAX, |class| now + self.forecast.deadline(class));
        let until = if self.distrusts { deadline } else { Nanos::MAX };
        // With one command in flight its message is the one that ends the sleep for it, and no other can come before that. A device that holds
        // messages back sends one for several entries, and entries that are there are no reason to look.
        let keep_armed = if held > 1 { KeepArmed::Always } else { KeepArmed::Alone };
        Plan::Sleep { until, at_least: 1, hold: self.holds(), keep_armed }
    }

    /// The wait under way, or a new one.
    fn begin(&mut self, now: Nanos, in_flight: u32) -> Wait {
        if let Some(wait) = self.wait {
            return wait;
        }
        self.decisions.waits += 1;
        // A command that is alone is told of, which says nearly as much.
        let seldom = if in_flight > 1 { MEMORY } else { MEMORY * STRETCH };
        let turn = self.decisions.waits.is_multiple_of(seldom.into()) || self.decisions.waits <= MARGIN;
        let learns = turn && !self.gathers() && self.ledger.may_predict(self.price.cpu, 2 * MARGIN);
        self.decisions.explored += u64::from(learns);
        // As long as looking may pay.
        let explores = Nanos(if learns { self.most().min(self.price.sleep()) as u64 } else { 0 });
        *self.wait.insert(Wait { since: now, explores, ..Wait::default() })
    }

    /// What the last step has cost and shown.
    #[inline]
    fn account(&mut self, now: Nanos, seen: &Seen) {
        let doing = std::mem::take(&mut self.step.doing);
        let spins = matches!(doing, Doing::Glance | Doing::Spin);
        // What the caller has done with it since is not waiting.
        let over = seen.met_at.filter(|_| spins).unwrap_or(now);
        let met = seen.pending || seen.met_at.is_some();
        if doing == Doing::Glance {
            self.decisions.waits += 1;
            self.wait = Some(Wait { since: self.step.asked, ..Wait::default() });
        }
        let spent = if spins { over - self.step.asked } else { self.slept(now, seen, doing) };
        if let Some(wait) = self.wait.as_mut().filter(|_| spins) {
            wait.spun += spent;
            wait.came = met.then_some(over);
            wait.explores = wait.explores - spent;
        }
        self.ledger.spend(spent);
        self.step.told &= seen.found == 0;
        if (seen.found > 0 || met && doing == Doing::Glance)
            && let Some(wait) = self.wait.take()
        {
            self.awake = if wait.slept { self.awake.saturating_sub(MEMORY) } else { (self.awake + 1).min(MEMORY * MEMORY) };
            if !wait.away {
                self.ledger.waited(wait.came.map(|came| came - wait.since), over - wait.since, self.price.cpu);
            }
        }
    }

    /// Back from a nap or a sleep, or not gone at all: what that has cost.
    fn slept(&mut self, now: Nanos, seen: &Seen, doing: Doing) -> Nanos {
        let asked = self.step.asked;
        if !matches!(doing, Doing::Nap | Doing::Sleep | Doing::Away) {
            return Nanos::ZERO;
        }
        let woke = seen.woke.map(|woke| woke.cause);
        let told = doing == Doing::Sleep && woke == Some(Cause::Notification);
        (self.step.told, self.step.slept_through) = (told, doing == Doing::Sleep && woke.is_some() && !told);
        let Some(woke) = seen.woke else { return Nanos::ZERO };
        if let Some(wait) = &mut self.wait {
            (wait.slept, wait.spun, wait.explores) = (true, Nanos::ZERO, Nanos::ZERO);
            wait.away |= doing == Doing::Away;
            if told {
                wait.came = Some(wait.since.max(now - self.price.delay));
            }
        }
        if doing == Doing::Away {
            self.caller.was_away(now - asked, seen.cycle);
            self.flow.slept(now - asked - seen.cycle.unwrap_or(Nanos::ZERO));
            return Nanos::ZERO;
        }
        let spent = self.price.took(doing == Doing::Nap, seen.cycle, woke, now - asked);
        self.flow.slept(now - asked - spent);
        spent
    }
}

#[cfg(test)]
mod tests;
