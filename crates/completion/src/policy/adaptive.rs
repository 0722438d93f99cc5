//! `adaptive`: on an empty poll, spin, nap or sleep, whichever [`Action`] minimises C · Lⁿ. C is
//! the CPU time of an I/O in nanoseconds, with what a wake-up takes from other work; L is its mean
//! latency.
//!
//! A closed form estimates C and L of each action from a few measurements; a residual per action
//! corrects it by what that action has measured. `docs/adaptive.md` has the formula and its
//! reasons.
//!
//! ```text
//!   stretch (128 I/Os of one action)  ->  judge: measure C and L, update residuals
//!         ^                                  |
//!         |                                  v
//!         +---- take(action) <---- decide: closed loop: A-B-A trial
//!                                          open loop:   closed form only
//! ```

use super::{SLICE, YIELD, work_is_known};
use crate::{
    Action, AdaptiveState, Batch, Decisions, DelayExponent, Done, Nanos, Plan, Route, Seen,
    SleepCosts, WEIGHT, Why,
};

/// A stretch, the interval over which one action is measured, ends at this many completions, as the
/// mean of fewer is too noisy; or after this time, so that actions are also compared on slow
/// devices.
const STRETCH: u32 = 128;
const LONGEST: Nanos = Nanos::from_millis(100);
/// Least gain of a change, in units of [`DelayExponent::cost`]: below it, noise would change the
/// action at each stretch.
const GAIN: f32 = 0.02;
/// A gain from which the change is not put off. Two stretches of one action that differ by three
/// times as much ran under different loads, and are not compared.
const CLEAR: f32 = 0.10;
/// An action whose estimate is within this of the best is worth a trial: the error of the closed
/// form is that large.
const WORTH_A_TRIAL: f32 = 0.30;
/// Stretches from one trial to the next: at first, and at most. Each trial that fails doubles them,
/// so that trials become a small part of the work.
const PAUSES: (u32, u32) = (4, 1_024);
/// Waits for which the thread does not spin after another thread was runnable on its CPU.
const CROWDED: u32 = 1_024;
/// With this many commands in flight it naps in that case, as `poll` does, so that one wake-up
/// reaps several. After as many naps that found nothing it sleeps.
const SEVERAL: u32 = 4;
/// Highest utilization of the caller's queue depth for which the wait for room is estimated:
/// towards 1 the mean queue length is unbounded.
const FULL: f32 = 0.98;

/// What the thread has been doing since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Doing {
    /// It naps or sleeps, or nothing is in flight.
    #[default]
    Blocked,
    Running,
    Spinning,
    /// The caller has left the library.
    Away,
}

/// A measurement interval: the totals of one action.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    since: Nanos,
    /// Commands submitted, which stand for completions: on a shared queue other threads take
    /// entries.
    sent: u32,
    /// Nanoseconds in which the thread ran, and those of them in empty polls.
    awake: u64,
    spun: u64,
    /// Nanoseconds with commands in flight, and the integral of their number over time.
    busy: u64,
    in_flight: f32,
    naps: u32,
    sleeps: u32,
}

/// Input of the closed form, in nanoseconds unless noted.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Latency if each completion were found at once; CPU time per I/O without waiting.
    service: f32,
    cpu: f32,
    /// As measured under the action in force: mean latency, mean commands in flight while any is,
    /// and time with commands in flight per I/O.
    latency: f32,
    depth: f32,
    busy: f32,
    /// 10 % and 90 % quantiles of the service time, from completions found while spinning.
    low: f32,
    high: f32,
    /// Arrivals per nanosecond.
    rate: f32,
}

/// An A-B-A trial: action B runs for one stretch between two of A, the action in force.
#[derive(Clone, Copy, Debug)]
struct Trial {
    other: Action,
    /// The cost of A in the stretch before.
    before: f32,
    /// The cost of B once its stretch has ended; A runs again.
    tried: Option<f32>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Adaptive {
    n: DelayExponent,
    machine: SleepCosts,
    pub(super) state: AdaptiveState,
    /// The action of the current stretch; in a trial it differs from `state.action`, the one in
    /// force.
    action: Action,
    trial: Option<Trial>,
    /// Under the action in force the thread has not slept in the last stretch.
    awake: bool,
    /// Stretches until the next trial, and the pause after it if it fails.
    pause: (u32, u32),
    stretch: Stretch,
    /// When the stretch ends at the latest, in nanoseconds from its beginning.
    longest: Nanos,
    /// Commands to submit before the stretch begins: those already in flight belong to the previous
    /// action.
    skip: u32,
    known: Known,
    residual: [f32; Action::COUNT],
    /// C and L of the last stretches, whatever their action.
    mean: (f32, f32),
    /// Trials so far: every second one is of a spin, which measures the service time.
    trials: u32,
    clock: Nanos,
    doing: Doing,
    in_flight: u32,
    /// The current wait: time spent spinning, and number of naps. `sent`: the last command's
    /// submission.
    spun: Nanos,
    naps: u32,
    waits: bool,
    sent: Nanos,
    crowded: u32,
    /// Consecutive waits in which no clock drives the caller (closed loop). `room`: the number in
    /// flight when the queue was full.
    closed: u32,
    room: u32,
    /// Estimated commands that wait for room; and the time for which the caller computes while
    /// away.
    backlog: f32,
    computes: Option<Nanos>,
    /// Waits for which a caller that has left is expected to leave again.
    leaves: u32,
}

impl Adaptive {
    pub(super) fn new(n: DelayExponent, machine: &SleepCosts) -> Adaptive {
        // Nothing is known yet: on a slow device a stretch of spins would cost more than the run, and
        // on a fast one a stretch of sleeps would build a backlog. This costs at most twice either.
        let action = match n {
            DelayExponent::LATENCY_ALONE => Action::Spin,
            _ => Action::Brief,
        };
        Adaptive {
            n,
            machine: *machine,
            state: AdaptiveState { action, before: action, ..AdaptiveState::default() },
            action,
            pause: (PAUSES.0, PAUSES.0),
            longest: LONGEST,
            skip: 1,
            ..Adaptive::default()
        }
    }

    /// Takes over what was measured before a switch of mode or exponent. Commands in flight are not
    /// recorded.
    pub(super) fn inherit(&mut self, earlier: &Adaptive) {
        (self.known, self.mean) = (earlier.known, earlier.mean);
        self.state = AdaptiveState { decisions: Decisions::default(), ..earlier.state };
        self.action = self.state.action;
    }

    /// The poll queue for a thread that spins: it finds its completions without a message.
    #[inline]
    pub(super) fn route(&self) -> Route {
        // Not in a trial: a command stays on its queue pair, and a later sleep would get no message
        // for it.
        let awake = self.awake && self.action == self.state.action;
        if awake && self.crowded == 0 && self.leaves == 0 { Route::Poll } else { Route::Notify }
    }

    /// Whether the thread is between two waits, where a poll is free and nothing is accounted.
    #[inline]
    pub(super) fn is_between_waits(&self) -> bool {
        self.doing == Doing::Running
    }

    #[inline(never)] // The others' batches pass by it.
    pub(super) fn submitted(&mut self, now: Nanos, batch: &Batch) -> bool {
        // Completions found since the last call did not overlap with this batch.
        self.in_flight = self.in_flight.min(batch.in_flight.saturating_sub(batch.commands));
        self.account(now);
        (self.in_flight, self.sent) = (batch.in_flight, now);
        // Latencies of commands submitted under the previous action must not count.
        if self.skip > 0 {
            self.skip = self.skip.saturating_sub(batch.commands);
            if self.skip == 0 {
                self.stretch = Stretch { since: now, ..Stretch::default() };
            }
            return false;
        }
        self.stretch.sent += batch.commands;
        // The first stretch, and a probe that only measures the service time, need few samples.
        let measures = matches!(self.trial, Some(Trial { other: Action::Spin, tried: None, .. }));
        let length = if self.known.service == 0.0 || measures {
            STRETCH / 4
        } else {
            STRETCH.max(4 * batch.in_flight)
        };
        let ends = self.stretch.sent >= length
            || now - self.stretch.since >= self.longest && self.stretch.sent >= STRETCH / 8;
        ends && self.judge(now)
    }

    /// Uses the last completion only: the earlier ones have also waited for this poll, so their
    /// ages exceed the service time.
    #[inline]
    pub(super) fn completed(&mut self, done: &[Done]) {
        let Some(last) = done.last() else { return };
        let delay = if last.slept { self.machine.delay.0 as f32 } else { 0.0 };
        let (age, known) = ((last.age.0 as f32 - delay).max(1.0), &mut self.known);
        if known.low == 0.0 {
            (known.low, known.high) = (age, age);
            return;
        }
        // After a nap, and after computing, the age is no more than an upper bound.
        let exact = self.waits
            && (!last.slept || matches!(self.action, Action::Spin | Action::Sleep | Action::Brief));
        let below = !self.waits || self.action == Action::Due;
        // Steps of 1/16 that balance where 10 % and 90 % of the ages are below.
        if exact || below && age < known.low {
            known.low *= if age < known.low { 1.0 - 0.9 / 16.0 } else { 1.0 + 0.1 / 16.0 };
        }
        if exact || below && age < known.high {
            known.high *= if age > known.high { 1.0 + 0.9 / 16.0 } else { 1.0 - 0.1 / 16.0 };
        }
    }

    #[inline]
    pub(super) fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        if let (Doing::Away, Some(cycle)) = (self.doing, seen.cycle) {
            // Away time that was nearly all CPU time was computing, which the caller is likely to
            // repeat; else it slept elsewhere.
            let away = now - self.clock;
            self.computes = (cycle.0 > away.0 / 8 * 7).then_some(cycle.min(away));
        }
        self.account(now);
        self.doing = Doing::Running;
        self.in_flight = seen.in_flight;
        if seen.found > 0 {
            self.waits = false;
        }
        if work_is_known(seen) || seen.budget_used_up && seen.in_flight > 0 {
            return Plan::Poll { budget: WEIGHT };
        }
        if seen.in_flight == 0 {
            self.doing = Doing::Blocked;
            return Plan::Idle;
        }
        if !self.waits {
            (self.waits, self.spun, self.naps) = (true, Nanos::ZERO, 0);
            self.state.decisions.waits += 1;
            self.begin(now, seen);
        }
        // Demand for the CPU comes and goes: the effect lasts for many waits.
        if seen.cpu_wanted {
            self.crowded = CROWDED;
        }
        let plan = self.plan(now, seen);
        let (decisions, stays) = (&mut self.state.decisions, u32::from(!seen.leaving));
        decisions.gave_way += u64::from(seen.leaving || self.crowded > 0);
        self.doing = Doing::Blocked;
        match plan {
            Plan::Spin { .. } => {
                decisions.spun += 1;
                self.doing = Doing::Spinning;
            }
            Plan::Nap { extends, .. } => {
                decisions.napped += 1;
                decisions.gathered += u64::from(extends);
                self.naps += stays;
                self.stretch.naps += stays;
            }
            _ => {
                decisions.slept += 1;
                self.stretch.sleeps += stays;
            }
        }
        if seen.leaving {
            (self.doing, self.leaves) = (Doing::Away, STRETCH);
        }
        plan
    }

    /// Adds the time since the last call to what the thread was doing.
    #[inline]
    fn account(&mut self, now: Nanos) {
        let span = (now - self.clock).0;
        self.clock = now;
        let stretch = &mut self.stretch;
        if self.doing == Doing::Spinning {
            stretch.spun += span;
            self.spun += Nanos(span);
        }
        if matches!(self.doing, Doing::Running | Doing::Spinning) {
            stretch.awake += span;
        }
        if self.in_flight > 0 {
            stretch.busy += span;
            stretch.in_flight += self.in_flight as f32 * span as f32;
        }
    }

    /// Starts a wait: determines whether a clock drives the caller (open loop), and its backlog.
    fn begin(&mut self, now: Nanos, seen: &Seen) {
        self.crowded = self.crowded.saturating_sub(1);
        self.leaves = self.leaves.saturating_sub(1);
        // A distant instant is a time-out, not the clock of an open loop.
        let soon = now + Nanos((self.known.latency * 8.0) as u64);
        let clock = seen.goes_on_at.is_some_and(|at| at < soon) || seen.next_due.is_some();
        self.closed = if clock { 0 } else { self.closed.saturating_add(1) };
        self.backlog = 0.0;
        // The next command is overdue, so the queue is full, and further ones have arrived at the
        // usual rate.
        if let Some(due) = seen.next_due.filter(|&due| due < now) {
            self.room = seen.in_flight;
            self.backlog = (now - due).0 as f32 * self.known.rate;
        }
    }

    fn plan(&self, now: Nanos, seen: &Seen) -> Plan {
        if seen.leaving {
            // The thread polls only after it has computed, so messages before that would be wasted
            // interrupts: stay masked for the usual time.
            return match self.computes {
                Some(span) if seen.found > 0 => Plan::nap(now + span.clamp(Nanos(1), LONGEST)),
                _ => self.sleep(),
            };
        }
        // Other threads need the CPU: a spin would take it from them, and a trial would measure
        // them.
        if self.crowded > 0 {
            return if seen.in_flight < SEVERAL || seen.urgent_waiting > 0 {
                self.sleep()
            } else {
                Plan::nap(now + YIELD.max(Nanos((self.known.low / 2.0) as u64)))
            };
        }
        let (cost, known) = (Nanos((self.machine.cpu + self.machine.wake).0.max(1)), &self.known);
        // With a backlog or an urgent command only latency counts: no nap, and a spin if a backlog
        // shrinks noticeably faster by it.
        let gathers = self.action.gathers();
        let urgent = seen.urgent_waiting > 0 && gathers;
        let backlog = self.backlog > 4.0 * self.room as f32;
        let hurried = urgent || backlog && self.machine.delay.0 as f32 > known.latency / 20.0;
        // The larger n, the more CPU time a spin may cost compared with a sleep. A command that
        // takes longer than this may never complete, so the spin must be bounded.
        let limit = match self.action {
            Action::Spin if known.high == 0.0 => Nanos::from_millis(1),
            Action::Brief if !hurried => cost,
            action if hurried || matches!(action, Action::Spin | Action::Due) => {
                Nanos(((1.0 + self.n.get()) * known.high.max(cost.0 as f32)) as u64)
            }
            _ => Nanos::ZERO,
        };
        let nap = match self.action {
            _ if urgent || backlog => 0.0,
            // After several empty naps the device is in a slow phase, and more of them only cost
            // CPU time.
            action if gathers && self.naps < SEVERAL => self.nap_of(action),
            Action::Due if self.spun == Nanos::ZERO => {
                let left = self.nap_of(Action::Due) - (now - self.sent).0 as f32;
                if left > self.machine.nap.0 as f32 { left } else { 0.0 }
            }
            _ => 0.0,
        };
        if nap > 0.0 {
            let until = now + Nanos(nap as u64).clamp(Nanos(1), LONGEST);
            return Plan::Nap { until, extends: gathers };
        }
        if self.spun < limit {
            Plan::Spin { until: now + (limit - self.spun).min(SLICE) }
        } else {
            self.sleep()
        }
    }

    /// Sleeps until the first message. With one command in flight the vector may stay armed: no
    /// other command's message can cause an interrupt before that.
    fn sleep(&self) -> Plan {
        Plan::Sleep { until: Nanos::MAX, at_least: 1, keep_armed: true }
    }

    /// Length of the action's nap in nanoseconds.
    fn nap_of(&self, action: Action) -> f32 {
        match action {
            Action::Quarter => self.known.low / 4.0,
            Action::Half => self.known.low / 2.0,
            Action::Whole => self.known.high,
            // Early enough that the command is not yet complete when a late timer fires.
            _ => self.known.low - 1.25 * self.machine.late.0 as f32,
        }
    }

    /// The closed form: estimated C and L of an action, in nanoseconds. Infinite if it does not
    /// apply.
    fn form(&self, action: Action) -> (f32, f32) {
        let Known { service: s, latency, depth: q, busy, low, high, .. } = self.known;
        let c = self.known.cpu;
        let m = &self.machine;
        let (late, delay) = (m.late.0 as f32, m.delay.0 as f32);
        let (sleep, nap) = self.wake_costs();
        let length = self.nap_of(action);
        // `rate`: completions per nanosecond while any is in flight. `batch`: how many a thread
        // finds that polls this long after the first.
        let rate = q / latency.max(1.0);
        let more = (q - 1.0).max(0.0) / latency.max(1.0);
        let batch = |after: f32| (1.0 + more * after).clamp(1.0, q.max(1.0));
        let none = (f32::INFINITY, f32::INFINITY);
        let (cpu, mean) = match action {
            Action::Spin => (c.max(busy * s / latency.max(1.0)), s),
            Action::Sleep => {
                let k = batch(delay);
                (c + sleep / k, s + delay * (1.0 + k) / (2.0 * k))
            }
            Action::Brief => {
                // One in flight completes after the service time; several complete at random times.
                let (found, spun) = if q < 1.5 {
                    (0.95 * f32::from(high <= sleep), s.min(sleep))
                } else {
                    let found = 1.0 - (-sleep * rate).exp();
                    (found, found / rate)
                };
                let (k, missed) = (batch(delay), 1.0 - found);
                let each = found + missed * k;
                (
                    c + (spun + missed * sleep) / each,
                    s + missed * k / each * delay * (1.0 + k) / (2.0 * k),
                )
            }
            Action::Quarter | Action::Half | Action::Whole => {
                let whole = length + late;
                if length < m.nap.0 as f32
                    || low == 0.0
                    || action == Action::Whole && high > 2.0 * low
                {
                    return none;
                }
                let all = action == Action::Whole && self.is_closed();
                let mean = if all { s.max(whole) } else { s + whole / 2.0 };
                // Naps that find nothing are repeated, so divide by the mean number found per nap.
                (c + nap / (q * whole / mean).min(q), mean)
            }
            Action::Due => {
                if q > 1.5 || length < 2.0 * m.nap.0 as f32 {
                    return none;
                }
                (c + nap + (s - length - late).max(0.0), s + late / 16.0)
            }
        };
        // In a closed loop the thread's CPU time bounds the rate, and with it the latency (Little's
        // law).
        if self.is_closed() { (cpu, mean.max(q * cpu)) } else { (cpu, mean) }
    }

    /// CPU time of a sleep, with the further messages that arrive until the thread runs and masks;
    /// and that of a nap. In nanoseconds.
    fn wake_costs(&self) -> (f32, f32) {
        let (Known { latency, depth, .. }, m) = (self.known, &self.machine);
        let further = (depth - 1.0).max(0.0) * (m.delay.0 as f32 / latency.max(1.0)).min(1.0);
        let sleep = (m.cpu + m.wake).0 as f32 + m.message.0 as f32 * further;
        (sleep, (m.nap + m.timer_wake).0 as f32)
    }

    fn is_closed(&self) -> bool {
        self.closed >= 8
    }

    /// Estimated cost of an action: the closed form plus its residual.
    fn expected(&self, action: Action) -> f32 {
        let (cpu, latency) = self.form(action);
        if !latency.is_finite() {
            return f32::INFINITY;
        }
        if self.is_closed() || self.room == 0 {
            return self.cost(cpu, latency) + self.residual[action as usize];
        }
        // In an open loop a command also waits for room, as in a queue with `room` servers
        // (Sakasegawa's approximation, for Poisson arrivals and constant service times). The last
        // term rejects an action that cannot carry the load before a backlog builds up.
        let room = self.room as f32;
        let used = self.known.rate * latency / room;
        let part = used.min(FULL);
        let wait =
            latency / 2.0 * part.powf((2.0 * (room + 1.0)).sqrt() - 1.0) / (room * (1.0 - part));
        self.cost(cpu, latency + wait) + self.residual[action as usize] + 40.0 * (used - part)
    }

    /// Ends a stretch, and decides on the next action. Returns whether another one is in force.
    #[cold]
    fn judge(&mut self, now: Nanos) -> bool {
        let before = self.state.action;
        self.measure(now);
        self.state.action != before
    }

    /// Updates the measurements and residuals from a stretch that has ended.
    fn measure(&mut self, now: Nanos) {
        let over =
            std::mem::replace(&mut self.stretch, Stretch { since: now, ..Stretch::default() });
        if self.crowded > 0 {
            return self.change(Action::Sleep, Why::Crowded);
        }
        let (n, (sleep, nap)) = (over.sent as f32, self.wake_costs());
        let woken = over.sleeps as f32 * sleep + over.naps as f32 * nap;
        let (cpu, latency) = ((over.awake as f32 + woken) / n, (over.in_flight / n).max(1.0));
        self.state.shown[self.action as usize] = Some((Nanos(cpu as u64), Nanos(latency as u64)));
        let first = self.known.service == 0.0;
        let follow = |old: &mut f32, new: f32, part: f32| {
            *old += (new - *old) * if first { 1.0 } else { part };
        };
        follow(&mut self.mean.0, cpu, 1.0 / 32.0);
        follow(&mut self.mean.1, latency, 1.0 / 32.0);
        let cost = self.cost(cpu, latency);
        let own = self.state.action;
        if let Some(trial) = self.trial.filter(|trial| trial.tried.is_none()) {
            if trial.other == Action::Spin {
                follow(&mut self.known.service, latency, 0.25);
            }
            self.trial = Some(Trial { tried: Some(cost), ..trial });
            return self.take(own);
        }
        self.awake = own == Action::Spin || own == Action::Brief && over.sleeps == 0;
        let known = &mut self.known;
        follow(&mut known.cpu, (over.awake - over.spun) as f32 / n, 0.25);
        // Arrivals vary more than latencies, so they are averaged over more stretches; but a step
        // in load (by more than half) takes effect at once.
        let rate = n / (now - over.since).0.max(1) as f32;
        let steady = !first && (rate / known.rate).ln().abs() < 0.4;
        known.rate = if steady { known.rate + (rate - known.rate) / 16.0 } else { rate };
        follow(&mut known.latency, latency, 0.25);
        follow(&mut known.depth, over.in_flight / over.busy.max(1) as f32, 0.25);
        follow(&mut known.busy, over.busy as f32 / n, 0.25);
        // The form estimates what the action adds to the latency; the rest is the device's service
        // time.
        let added = if first { 0.0 } else { self.form(own).1 - self.known.service };
        let service = (latency - added).clamp(latency / 4.0, latency);
        let before = std::mem::replace(&mut self.known.service, service);
        let residual = cost - self.formed(own);
        if !first {
            self.known.service = before + (service - before) / 4.0;
        }
        // Residuals of other actions decay, as the load they were measured under may be gone.
        let kept = self.residual[own as usize];
        self.residual.iter_mut().for_each(|old| *old -= *old / 64.0);
        self.residual[own as usize] = kept;
        self.correct(own, residual, 0.25);
        // In an open loop, a stretch that takes twice as long as expected has another load.
        let expected = 2.0 * STRETCH as f32 / self.known.rate.max(1e-9);
        self.longest = if self.is_closed() { LONGEST } else { LONGEST.min(Nanos(expected as u64)) };
        if self.n == DelayExponent::LATENCY_ALONE {
            self.change(Action::Spin, Why::Form);
        } else {
            self.decide(cost);
        }
    }

    /// Decides which action comes next, or is tried.
    fn decide(&mut self, cost: f32) {
        let own = self.state.action;
        if let Some(Trial { other, before, tried: Some(tried) }) = self.trial.take() {
            if (before - cost).abs() > 3.0 * CLEAR {
                return;
            }
            let gained = (before + cost) / 2.0 - tried;
            // The trial compares both actions under the same load, so it corrects the residual of B
            // relative to that of A.
            let residual =
                self.residual[own as usize] + self.formed(own) - self.formed(other) - gained;
            self.correct(other, residual, 0.5);
            if gained > GAIN {
                return self.change(other, Why::Trial);
            }
            self.pause = (self.pause.1, (self.pause.1 * 2).min(PAUSES.1));
        }
        let expected = Action::ALL.map(|action| self.expected(action));
        let of = |action: Action| expected[action as usize];
        let others = Action::ALL.into_iter().filter(|&action| action != own);
        let best = others.min_by(|&a, &b| of(a).total_cmp(&of(b))).unwrap_or(own);
        let gain = of(own) - of(best);
        self.pause.0 = self.pause.0.saturating_sub(1);
        // In an open loop an action that cannot carry the load builds up a backlog: no trials, but
        // of spins, which measure the service time.
        let other = match self.is_closed() {
            // A late wake-up also reaps the commands that arrive in the meantime, which the form
            // does not model. Where only CPU time counts, sleeping is therefore best.
            false if self.n == DelayExponent::CPU_ALONE => {
                return self.change(Action::Sleep, Why::Form);
            }
            false if gain > GAIN => return self.change(best, Why::Form),
            true if gain > CLEAR => best,
            _ if self.pause.0 > 0 => return,
            true if self.trials.is_multiple_of(2) => best,
            _ => Action::Spin,
        };
        self.trials = self.trials.wrapping_add(1);
        if other != own && of(other) - of(own) < WORTH_A_TRIAL {
            self.state.decisions.tried += 1;
            self.trial = Some(Trial { other, before: cost, tried: None });
            self.take(other);
        }
    }

    /// Moves an action's residual by a part towards one that was measured. That of an action to
    /// which the form does not apply is infinite, and not used.
    fn correct(&mut self, action: Action, measured: f32, part: f32) {
        let old = &mut self.residual[action as usize];
        if measured.is_finite() {
            *old += (measured - *old) * part;
        }
    }

    /// Puts an action in force.
    fn change(&mut self, action: Action, why: Why) {
        if action != self.state.action {
            self.state.decisions.changed += 1;
            (self.state.before, self.state.action, self.state.why) =
                (self.state.action, action, why);
            self.awake = action == Action::Spin;
            self.pause = (PAUSES.0, PAUSES.0);
        }
        self.trial = None;
        self.take(action);
    }

    /// Cost of an action for the load as a whole, of which this stretch may be a part: that of both
    /// together.
    fn cost(&self, cpu: f32, latency: f32) -> f32 {
        self.n.cost(cpu + self.mean.0, latency + self.mean.1)
    }

    /// Cost of an action by the closed form.
    fn formed(&self, action: Action) -> f32 {
        let (cpu, latency) = self.form(action);
        self.cost(cpu, latency)
    }

    /// Starts a stretch of this action once the commands in flight have completed.
    fn take(&mut self, action: Action) {
        if action != self.action {
            (self.action, self.skip) = (action, self.in_flight.max(1));
        }
    }
}

#[cfg(test)]
mod tests;
