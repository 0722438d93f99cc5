//! `adaptive`: the action of least C · Lⁿ.
//!
//! C is the CPU time of an I/O, with what a wake-up takes from other work, and L its mean latency.
//! A closed form says from a few measured figures what each [`Action`] would come to; a residual
//! corrects it by what the action has really shown. In a closed loop the likeliest other action is
//! tried between two stretches of the one in force. `docs/adaptive.md` has the formula and its
//! reasons.

use units::Nanos;

use super::work_is_known;
use crate::{
    Action, Batch, Cycle, Decisions, DelayExponent, Done, KeepArmed, Plan, Route, Seen, State,
    WEIGHT, Why,
};

/// A stretch ends at this many completions: the mean of fewer says little. Or after so long, so
/// that slow devices are judged too.
const STRETCH: u32 = 128;
const LONGEST: Nanos = Nanos::from_millis(100);
/// A change has to gain this much (1 % of what n weighs), or noise would bring one with each
/// stretch.
const GAIN: f32 = 0.02;
/// An action within this of the best one is worth a trial: the closed form is off by as much.
const WORTH_A_TRIAL: f32 = 0.30;
/// A trial that is so much better or worse has no need of others; of two stretches that differ so
/// much nothing is learnt.
const CLEAR: f32 = 0.10;
/// Stretches from one trial to the next at first, and at most, when all have failed: 1/64 of the
/// work and less.
const PAUSES: (u32, u32) = (4, 1_024);
/// Waits for which the thread only sleeps after another has wanted its CPU.
const CROWDED: u32 = 1_024;
/// With so many in flight it naps then, as `poll` does: that gathers. So many naps for nothing are
/// followed by a sleep.
const SEVERAL: u32 = 4;
/// Above this utilization of the room that the caller has, a queue has no mean length.
const FULL: f32 = 0.98;
/// Longest time from one question to the next while it spins.
const SLICE: Nanos = Nanos::from_micros(100);

/// What is under way since the last question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Doing {
    #[default]
    Running,
    Spinning,
    Napping,
    Sleeping,
    /// The caller has left.
    Away,
    /// Nothing is in flight.
    Resting,
}

/// A stretch: one action, and what it has cost.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    since: Nanos,
    /// Completions, by the submissions that follow them: on a shared queue other threads take
    /// entries.
    sent: u32,
    /// Time that the thread had the CPU, and the part of it in empty polls.
    awake: u64,
    spun: u64,
    /// Time with commands in flight, and the integral of how many those were.
    busy: u64,
    in_flight: f32,
    naps: u32,
    sleeps: u32,
    rests: u32,
}

/// What the closed form goes by, in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Latency if each completion is found at once, and CPU time without waiting.
    service: f32,
    cpu: f32,
    /// CPU time of the timers that end the caller's rests.
    rests: f32,
    /// Mean latency, commands in flight while any is, and busy time per I/O, all as they are.
    latency: f32,
    depth: f32,
    busy: f32,
    /// 10 and 90 % of ages when found while spinning.
    low: f32,
    high: f32,
    /// Arrivals per ns.
    rate: f32,
}

/// Where a trial stands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trial {
    /// None, for so many stretches.
    None { pause: u32 },
    /// B runs; A came to this before.
    Tries { other: Action, before: f32, votes: i32 },
    /// A again; B came to this.
    Returns { other: Action, before: f32, tried: f32, votes: i32 },
}

#[derive(Clone, Debug)]
pub(super) struct Adaptive {
    n: DelayExponent,
    machine: Cycle,
    pub(super) decisions: Decisions,
    pub(super) state: State,
    /// The action of the stretch, which in a trial is not the one in force.
    action: Action,
    trial: Trial,
    /// Stretches until one of spinning, and from that to the next.
    probe: (u32, u32),
    stretch: Stretch,
    /// Submissions until the stretch begins: what was in flight before it is the last one's.
    skip: u32,
    known: Known,
    residual: [f32; Action::COUNT],
    clock: Nanos,
    doing: Doing,
    in_flight: u32,
    /// The wait under way: how long it has spun, and its naps. The last command's submission.
    spun: Nanos,
    naps: u32,
    waits: bool,
    sent: Nanos,
    crowded: u32,
    /// Waits without an instant at which the caller goes on by itself; and what is in flight when
    /// there is no room.
    closed: u32,
    room: u32,
    /// Commands that wait for room, and the time that a caller computes while away.
    backlog: f32,
    computes: Option<Nanos>,
    /// The caller has left within so many waits.
    leaves: u32,
}

impl Adaptive {
    pub(super) fn new(n: DelayExponent, machine: &Cycle) -> Adaptive {
        Adaptive {
            n,
            machine: *machine,
            decisions: Decisions::default(),
            state: State::default(),
            action: Action::Spin,
            trial: Trial::None { pause: PAUSES.0 },
            probe: (PAUSES.0, PAUSES.0),
            stretch: Stretch::default(),
            skip: 1,
            known: Known::default(),
            residual: [0.0; Action::COUNT],
            clock: Nanos::ZERO,
            doing: Doing::Resting,
            in_flight: 0,
            spun: Nanos::ZERO,
            naps: 0,
            waits: false,
            sent: Nanos::ZERO,
            crowded: 0,
            closed: 0,
            room: 0,
            backlog: 0.0,
            computes: None,
            leaves: 0,
        }
    }

    /// Goes on with what was learnt before another mode or exponent. Of what is in flight it knows
    /// nothing.
    pub(super) fn inherit(&mut self, earlier: Adaptive) {
        let fresh = Adaptive::new(self.n, &self.machine);
        *self = Adaptive {
            known: earlier.known,
            residual: earlier.residual,
            state: earlier.state,
            ..fresh
        };
        self.action = self.state.action;
    }

    /// A thread that stays awake finds what it sends without being told.
    #[inline]
    pub(super) fn route(&self) -> Route {
        let awake =
            [self.action, self.state.action] == [Action::Spin; 2] && self.known.service > 0.0;
        if awake && self.crowded == 0 && self.leaves == 0 { Route::Poll } else { Route::Notify }
    }

    /// Between two waits a poll that finds something is free, and there is nothing to account for.
    #[inline]
    pub(super) fn is_between_waits(&self) -> bool {
        self.doing == Doing::Running
    }

    #[inline(never)] // The others' batches pass by it.
    pub(super) fn submitted(&mut self, now: Nanos, batch: &Batch) {
        // What has been found since the last question has not waited for this.
        self.in_flight = self.in_flight.min(batch.in_flight.saturating_sub(batch.commands));
        self.account(now);
        (self.in_flight, self.sent) = (batch.in_flight, now);
        if self.skip > 0 {
            self.skip = self.skip.saturating_sub(batch.commands);
            if self.skip == 0 {
                self.stretch = Stretch { since: now, ..Stretch::default() };
            }
            return;
        }
        self.stretch.sent += batch.commands;
        // At the start, and of a spin that only measures, a few are enough.
        let measures = matches!(self.trial, Trial::Tries { other: Action::Spin, .. });
        let length = if self.known.service == 0.0 || measures {
            STRETCH / 4
        } else {
            STRETCH.max(4 * batch.in_flight)
        };
        if self.stretch.sent >= length
            || now - self.stretch.since >= LONGEST && self.stretch.sent >= STRETCH / 8
        {
            self.judge(now);
        }
    }

    /// The last one is the freshest; the others have waited for this poll as well.
    #[inline]
    pub(super) fn completed(&mut self, done: &[Done]) {
        let Some(last) = done.last() else { return };
        let (age, known) = (last.age.0 as f32, &mut self.known);
        if known.low == 0.0 {
            (known.low, known.high) = (age, age);
        } else if !last.slept {
            // Steps of 1/16 whose ups and downs cancel where 10 % and 90 % are below.
            known.low *= if age < known.low { 1.0 - 0.9 / 16.0 } else { 1.0 + 0.1 / 16.0 };
            known.high *= if age > known.high { 1.0 + 0.9 / 16.0 } else { 1.0 - 0.1 / 16.0 };
        }
    }

    #[inline]
    pub(super) fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        if let (Doing::Away, Some(cycle)) = (self.doing, seen.cycle) {
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
            self.doing = Doing::Resting;
            // A timer ends the caller's rest: the later an action finds, the fewer rests there are.
            self.stretch.rests += u32::from(seen.goes_on_at.is_some_and(|at| at > now));
            return Plan::Rest;
        }
        if !self.waits {
            (self.waits, self.spun, self.naps) = (true, Nanos::ZERO, 0);
            self.decisions.waits += 1;
            self.begin(now, seen);
        }
        if seen.cpu_wanted {
            self.crowded = CROWDED;
        }
        let plan = self.plan(now, seen);
        let (doing, count) = match plan {
            Plan::Spin { .. } => (Doing::Spinning, &mut self.decisions.spun),
            Plan::Nap { .. } => (Doing::Napping, &mut self.decisions.napped),
            _ => (Doing::Sleeping, &mut self.decisions.slept),
        };
        *count += 1;
        self.decisions.gave_way += u64::from(seen.leaving || self.crowded > 0);
        self.decisions.gathered += u64::from(matches!(plan, Plan::Nap { extends: true, .. }));
        (self.doing, self.leaves) =
            if seen.leaving { (Doing::Away, STRETCH) } else { (doing, self.leaves) };
        match self.doing {
            Doing::Napping => {
                self.stretch.naps += 1;
                self.naps += 1;
            }
            Doing::Sleeping => self.stretch.sleeps += 1,
            _ => {}
        }
        plan
    }

    /// The time since the last call goes to what was under way.
    #[inline]
    fn account(&mut self, now: Nanos) {
        let span = (now - self.clock).0;
        self.clock = now;
        let stretch = &mut self.stretch;
        match self.doing {
            Doing::Resting => return,
            Doing::Running => stretch.awake += span,
            Doing::Spinning => {
                stretch.awake += span;
                stretch.spun += span;
                self.spun += Nanos(span);
            }
            Doing::Napping | Doing::Sleeping | Doing::Away => {}
        }
        if self.in_flight > 0 {
            stretch.busy += span;
            stretch.in_flight += self.in_flight as f32 * span as f32;
        }
    }

    /// A wait begins: whether a clock drives the caller, and whether that is behind.
    fn begin(&mut self, now: Nanos, seen: &Seen) {
        self.crowded = self.crowded.saturating_sub(1);
        self.leaves = self.leaves.saturating_sub(1);
        let soon = now + Nanos((self.known.latency * 8.0) as u64);
        let clock = seen.goes_on_at.is_some_and(|at| at < soon) || seen.next_due.is_some();
        self.closed = if clock { 0 } else { self.closed.saturating_add(1) };
        self.backlog = 0.0;
        if let Some(due) = seen.next_due.filter(|&due| due < now) {
            self.room = seen.in_flight;
            self.backlog = (now - due).0 as f32 * self.known.rate;
        }
    }

    fn plan(&self, now: Nanos, seen: &Seen) -> Plan {
        if seen.leaving {
            // A thread that computes until it looks again is notified in vain of what completes
            // meanwhile.
            return match self.computes {
                Some(span) if seen.found > 0 => Plan::nap(now + span.clamp(Nanos(1), LONGEST)),
                _ => self.sleep(),
            };
        }
        // Others have the CPU: a spin would take it from them, and a trial would measure them.
        if self.crowded > 0 {
            return if seen.in_flight < SEVERAL || seen.urgent_waiting > 0 {
                self.sleep()
            } else {
                Plan::nap(now + super::YIELD)
            };
        }
        let (cost, known) = (Nanos((self.machine.cpu + self.machine.wake).0.max(1)), &self.known);
        // With a backlog, or an urgent command, only latency counts.
        let slow =
            self.action != Action::Sleep || self.machine.delay.0 as f32 > known.latency / 20.0;
        let hurried = slow && self.backlog > 4.0 * self.room as f32
            || seen.urgent_waiting > 0 && self.action.gathers();
        // The more latency counts, the longer it may cost more than a sleep; what takes longer
        // still may take for ever.
        let spin = Nanos(((1.0 + self.n.get()) * known.high.max(cost.0 as f32)) as u64);
        let limit = match self.action {
            Action::Spin if known.high == 0.0 => Nanos::from_millis(1),
            Action::Spin | Action::Due => spin,
            _ if hurried => spin,
            Action::Brief => cost,
            _ => Nanos::ZERO,
        };
        let nap = |ns: f32| Plan::Nap {
            until: now + Nanos((ns as u64).clamp(1, LONGEST.0)),
            extends: self.action.gathers(),
        };
        match self.action {
            _ if hurried => {}
            // A device in a slow phase is not asked again and again.
            Action::Quarter | Action::Half | Action::Whole if self.naps < SEVERAL => {
                return nap(self.nap_of(self.action));
            }
            Action::Due if self.spun == Nanos::ZERO => {
                let left = self.nap_of(Action::Due) - (now - self.sent).0 as f32;
                if left > self.machine.nap.0 as f32 {
                    return nap(left);
                }
            }
            _ => {}
        }
        if self.spun < limit {
            Plan::Spin { until: now + (limit - self.spun).min(SLICE) }
        } else {
            self.sleep()
        }
    }

    /// With one command in flight its message is the one that ends the sleep for it, and no other
    /// can come before that.
    fn sleep(&self) -> Plan {
        Plan::Sleep { until: Nanos::MAX, at_least: 1, hold: 0, keep_armed: KeepArmed::Alone }
    }

    /// How long an action naps.
    fn nap_of(&self, action: Action) -> f32 {
        match action {
            Action::Quarter => self.known.low / 4.0,
            Action::Half => self.known.low / 2.0,
            Action::Whole => self.known.high,
            // Back before it is there, however late the timer is.
            _ => self.known.low - 1.25 * self.machine.late.0 as f32,
        }
    }

    /// What an action would come to: C and L. Infinite where it is none.
    fn form(&self, action: Action) -> (f32, f32) {
        let Known { service: s, latency, depth: q, busy, low, high, rests, .. } = self.known;
        let c = self.known.cpu + rests;
        let m = &self.machine;
        let (late, delay) = (m.late.0 as f32, m.delay.0 as f32);
        let (sleep, nap) = (self.sleep_cost(), (m.nap + m.timer_wake).0 as f32);
        let length = self.nap_of(action);
        // Completions per ns while any is in flight; found at a time by a thread that comes so much
        // later than the first.
        let rate = q / latency.max(1.0);
        let more = (q - 1.0).max(0.0) / latency.max(1.0);
        let batch = |after: f32| {
            ((1.0 + more * after) / (1.0 - (more * c).min(0.9))).clamp(1.0, q.max(1.0))
        };
        let none = (f32::INFINITY, f32::INFINITY);
        let (cpu, mean) = match action {
            Action::Spin => (rests + (c - rests).max(busy * s / latency.max(1.0)), s),
            Action::Sleep => {
                let k = batch(delay);
                (c + sleep / k, s + delay * (1.0 + k) / (2.0 * k))
            }
            Action::Brief => {
                // One in flight comes at its time, several at random.
                let found = if q < 1.5 {
                    0.95 * f32::from(high <= sleep)
                } else {
                    1.0 - (-sleep * rate).exp()
                };
                let spun = if q < 1.5 { s.min(sleep) } else { found / rate };
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
                // Naps that find nothing are repeated.
                (c + nap / (q * whole / mean).min(q), mean)
            }
            Action::Due => {
                if q > 1.5 || length < 2.0 * m.nap.0 as f32 {
                    return none;
                }
                (c + nap + (s - length - late).max(0.0), s + late / 16.0)
            }
        };
        // In a closed loop the thread's own time bounds the rate.
        if self.is_closed() { (cpu, mean.max(q * cpu)) } else { (cpu, mean) }
    }

    /// With what the messages cost that follow the first until the thread is back and masks.
    fn sleep_cost(&self) -> f32 {
        let Known { latency, depth, .. } = self.known;
        let further =
            (depth - 1.0).max(0.0) * (self.machine.delay.0 as f32 / latency.max(1.0)).min(1.0);
        (self.machine.cpu + self.machine.wake).0 as f32 + self.machine.message.0 as f32 * further
    }

    fn is_closed(&self) -> bool {
        self.closed >= 8
    }

    /// What an action is expected to cost, by the form and by what it has shown.
    fn expected(&self, action: Action) -> f32 {
        let (cpu, latency) = self.form(action);
        if !latency.is_finite() {
            return f32::INFINITY;
        }
        if self.is_closed() || self.room == 0 {
            return self.n.cost(cpu, latency) + self.residual[action as usize];
        }
        // In an open loop a command waits for room as well: as in a queue of `room` servers
        // (Sakasegawa), of which Poisson arrivals ask for even times.
        let room = self.room as f32;
        let used = self.known.rate * latency / room;
        let part = used.min(FULL);
        let wait =
            latency / 2.0 * part.powf((2.0 * (room + 1.0)).sqrt() - 1.0) / (room * (1.0 - part));
        self.n.cost(cpu, latency + wait) + self.residual[action as usize] + 40.0 * (used - part)
    }

    /// A stretch is over.
    #[cold]
    fn judge(&mut self, now: Nanos) {
        let over =
            std::mem::replace(&mut self.stretch, Stretch { since: now, ..Stretch::default() });
        if self.crowded > 0 {
            (self.state.action, self.state.why) = (Action::Sleep, Why::Crowded);
            self.trial = Trial::None { pause: PAUSES.0 };
            self.take(Action::Sleep);
            return;
        }
        let n = over.sent as f32;
        let m = self.machine;
        let nap = (m.nap + m.timer_wake).0 as f32;
        let (woken, rests) = (
            over.sleeps as f32 * self.sleep_cost() + over.naps as f32 * nap,
            over.rests as f32 * nap,
        );
        let cpu = (over.awake as f32 + woken + rests) / n;
        let latency = (over.in_flight / n).max(1.0);
        let cost = self.n.cost(cpu, latency);
        self.state.shown[self.action as usize] = Some((Nanos(cpu as u64), Nanos(latency as u64)));
        let first = self.known.service == 0.0;
        let follow =
            |old: &mut f32, new: f32| *old = if first { new } else { *old + (new - *old) / 4.0 };
        if let Trial::Tries { other, before, votes } = self.trial {
            if other == Action::Spin {
                follow(&mut self.known.service, latency);
            }
            self.trial = Trial::Returns { other, before, tried: cost, votes };
            self.take(self.state.action);
            return;
        }
        let known = &mut self.known;
        follow(&mut known.cpu, (over.awake - over.spun) as f32 / n);
        follow(&mut known.rests, rests / n);
        // Arrivals vary by chance where latencies do not; a step in load is none of that.
        let rate = n / (now - over.since).0.max(1) as f32;
        let steady = !first && (rate / known.rate).ln().abs() < 0.4;
        known.rate = if steady { known.rate + (rate - known.rate) / 16.0 } else { rate };
        follow(&mut known.latency, latency);
        follow(&mut known.depth, over.in_flight / over.busy.max(1) as f32);
        follow(&mut known.busy, over.busy as f32 / n);
        // What the form has the action add to the latency is not the device's.
        let added = if first { 0.0 } else { self.form(self.action).1 - self.known.service };
        let service = (latency - added).clamp(latency / 4.0, latency);
        let before = std::mem::replace(&mut self.known.service, service);
        let form = self.form(self.action);
        let shown = cost - self.n.cost(form.0, form.1);
        for (action, residual) in Action::ALL.into_iter().zip(&mut self.residual) {
            // What was shown long ago is forgotten.
            let target = if action == self.action && shown.is_finite() {
                shown
            } else {
                *residual * 15.0 / 16.0
            };
            *residual += (target - *residual) / 4.0;
        }
        if !first {
            // A nap for all says nothing of how long they took.
            let weight = if self.action == Action::Whole { 0.0 } else { 0.25 };
            self.known.service = before + (service - before) * weight;
        }
        if self.n != DelayExponent::LATENCY_ALONE {
            self.decide(cost);
        } else if self.action != Action::Spin {
            self.change(Action::Spin, Why::Form);
        }
    }

    /// Which action comes next, or which is tried.
    fn decide(&mut self, cost: f32) {
        let own = self.state.action;
        let expected = Action::ALL.map(|action| self.expected(action));
        let best = |tries: bool| {
            let of = |action: Action| {
                expected[action as usize]
                    + if tries { 0.02 * self.state.lost[action as usize] as f32 } else { 0.0 }
            };
            Action::ALL
                .into_iter()
                .filter(|&action| action != own)
                .min_by(|&a, &b| of(a).total_cmp(&of(b)))
                .unwrap_or(own)
        };
        if let Trial::Returns { other, before, tried, votes } = self.trial {
            self.trial = Trial::None { pause: PAUSES.0 };
            if (before - cost).abs() > 0.35 {
                return;
            }
            let gained = (before + cost) / 2.0 - tried;
            // The residual of what was tried, against the one in force at the same time.
            let shown = self.residual[own as usize] - gained + self.forms_differ(own, other);
            if shown.is_finite() {
                let residual = &mut self.residual[other as usize];
                *residual += (shown - *residual) / 2.0;
            }
            let votes = votes
                + if gained > CLEAR {
                    3
                } else if gained > GAIN {
                    1
                } else if gained < -CLEAR {
                    -2
                } else {
                    -1
                };
            match votes {
                3.. => {
                    self.state.lost = [0; Action::COUNT];
                    self.change(other, Why::Trial);
                }
                ..=-2 => {
                    let lost = &mut self.state.lost[other as usize];
                    *lost += 1;
                    // Trials are to lose no more than 1/64 of what is spent.
                    let excess = (-gained * (1.0 + self.n.get())).exp()
                        * if other == Action::Spin { 16.0 } else { 64.0 };
                    let pause = (PAUSES.0 << (*lost).min(6)).max(excess as u32).min(PAUSES.1);
                    self.trial = Trial::None { pause };
                    self.probe.0 = self.probe.0.max(pause);
                }
                _ => self.try_out(other, cost, votes),
            }
            return;
        }
        let by_form = best(false);
        let gain = expected[own as usize] - expected[by_form as usize];
        let closed = self.is_closed();
        let Trial::None { pause } = &mut self.trial else { return };
        *pause = pause.saturating_sub(1);
        if !closed {
            // A late wake-up serves the caller's next arrivals as well, which the form does not
            // know; where only CPU time counts, that decides.
            if self.n == DelayExponent::CPU_ALONE {
                if own != Action::Sleep {
                    self.change(Action::Sleep, Why::Form);
                }
            } else if gain > CLEAR || gain > GAIN && *pause == 0 {
                self.change(by_form, Why::Form);
            } else {
                self.probe(cost);
            }
            return;
        }
        if gain > GAIN.max(CLEAR) || gain > GAIN && self.state.lost[by_form as usize] == 0 {
            // The form is clear: tried at once.
            self.try_out(by_form, cost, 0);
        } else if *pause == 0 {
            let other = best(true);
            if expected[other as usize] - expected[own as usize] < WORTH_A_TRIAL {
                self.try_out(other, cost, 0);
            } else {
                self.probe(cost);
            }
        } else {
            self.probe(cost);
        }
    }

    fn forms_differ(&self, own: Action, other: Action) -> f32 {
        let ((a, b), (c, d)) = (self.form(own), self.form(other));
        self.n.cost(a, b) - self.n.cost(c, d)
    }

    fn try_out(&mut self, other: Action, before: f32, votes: i32) {
        self.decisions.tried += 1;
        self.trial = Trial::Tries { other, before, votes };
        self.take(other);
    }

    /// Another action is in force.
    fn change(&mut self, action: Action, why: Why) {
        self.decisions.changed += 1;
        (self.state.action, self.state.why) = (action, why);
        self.trial = Trial::None { pause: PAUSES.0 };
        self.probe = (PAUSES.0, PAUSES.0);
        self.take(action);
    }

    /// Only a spin shows how long the device takes: one stretch of it after 4, 8, … others.
    fn probe(&mut self, cost: f32) {
        let (left, length) = self.probe;
        self.probe = match left {
            _ if self.action == Action::Spin => self.probe,
            0 => {
                self.try_out(Action::Spin, cost, 0);
                ((length * 2).min(PAUSES.1), (length * 2).min(PAUSES.1))
            }
            left => (left - 1, length),
        };
    }

    /// The next stretch is this action's, once what is in flight has completed.
    fn take(&mut self, action: Action) {
        if action != self.action {
            (self.action, self.skip) = (action, self.in_flight.max(1));
        }
    }
}

#[cfg(test)]
mod tests;
