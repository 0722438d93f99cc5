//! The choice: what each action costs for each completion that it finds.

use units::Nanos;

use super::caller::Caller;
use super::forecast::{INSTANTS, MEMORY, Point, at};
use super::price::ENDLESS;
use super::{Adaptive, MARGIN, SLICE};
use crate::{Plan, Seen};

/// The price of latency for each time that the caller is behind, at least.
const LEAST: f32 = 0.003;

fn span(nanos: f32) -> Nanos {
    Nanos(nanos as u64).max(Nanos(1))
}

impl Adaptive {
    /// What a unit of lateness costs here.
    fn lambda(&mut self, seen: &Seen) -> f32 {
        if seen.urgent_waiting > 0 {
            return ENDLESS;
        }
        // Of no price at all a load is carried nevertheless.
        let behind = self.caller.behind(self.price.delay.0 as f32, self.flow.typical);
        (self.price.lambda * (1.0 + behind.min(MEMORY as f32))).max(LEAST * behind)
    }

    /// The cheapest action; `None`: to sleep.
    pub(super) fn cheapest(&mut self, now: Nanos, seen: &Seen, points: &[Point; INSTANTS], spare: f32, spun: Nanos) -> Option<Plan> {
        let lambda = self.lambda(seen);
        let [cpu, nap, late] = [self.price.cpu, self.price.nap, self.price.late].map(|nanos| nanos.0 as f32);
        let sleep = cpu + lambda * self.price.delayed();
        // What others do with the CPU meanwhile is worth more than any instant.
        let horizon = if seen.cpu_wanted { 0.0 } else { (sleep.min(self.most()) - spun.0 as f32).max(0.0) };
        // What is left to pay after being awake from there on: spinning for as long as a sleep is worth, and sleeping then.
        let awake_from = |from: &Point| {
            let end = at(points, from.at + horizon);
            end.awake - from.awake + end.none * sleep
        };
        let mut best = (self.sleeping(points, seen.wants.max(seen.held), spare, lambda), None, false);
        let mut consider = |cost: f32, plan: Plan, gathers: bool| {
            if cost < best.0 {
                best = (cost, Some(plan), gathers);
            }
        };
        let spin = if horizon > 0.0 { awake_from(&Point::NOW) } else { f32::INFINITY };
        consider(spin, Plan::Spin { until: now + span(horizon) }, false);
        let goes_on = Caller::clock(now, seen, self.flow.typical).map(|at| (at - now).0 as f32);
        let (soonest, last) = (self.price.soonest().0 as f32, goes_on.unwrap_or(f32::INFINITY));
        // An urgent command is not kept waiting for others.
        let most = if seen.urgent_waiting > 0 { 1.0 } else { f32::INFINITY };
        let most = points.iter().position(|point| point.found >= most && point.at >= soonest).unwrap_or(INSTANTS - 1);
        for (n, point) in points[..=most].iter().enumerate().filter(|(_, point)| point.at >= soonest && point.at < last) {
            let cost = (nap + lambda * point.late + awake_from(point)) / point.found.max(1.0);
            // It could have been over sooner, with one.
            let gathers = n > 0 && points[n - 1].found >= 1.0 && points[n - 1].at >= soonest;
            consider(cost, Plan::nap(now + span(point.at - late)), gathers);
        }
        if let Some(goes_on) = goes_on {
            let [nap, spin] = self.until_caller(now, points, goes_on, lambda);
            consider(nap.0, nap.1, false);
            if !seen.cpu_wanted {
                consider(spin.0, spin.1, false);
            }
        }
        self.decisions.gathered += u64::from(best.2);
        best.1
    }

    /// What it costs to nap, and to spin, until the caller goes on by itself.
    fn until_caller(&self, now: Nanos, points: &[Point; INSTANTS], goes_on: f32, lambda: f32) -> [(f32, Plan); 2] {
        let [nap, late] = [self.price.nap, self.price.late].map(|nanos| nanos.0 as f32);
        // A thread that is awake then submits in time; a nap is late for it.
        let back = at(points, goes_on + late);
        let nap = ((nap + lambda * (back.late + late)) / (back.found + 1.0), Plan::nap(now + span(goes_on)));
        let spin = Plan::Spin { until: now + span(goes_on.min(self.most())) };
        [nap, (goes_on / (at(points, goes_on).found + 1.0), spin)]
    }

    /// The longest spin: what the ledger's margin leaves, but for a nap or a sleep.
    pub(super) fn most(&self) -> f32 {
        let margin = Nanos(self.price.cpu.0 * (MARGIN - 1));
        if self.price.is_bounded() { margin.min(SLICE) } else { SLICE }.0 as f32
    }

    /// What a sleep costs: the first is found late by D, those that come meanwhile by less, and each of these sends a message. Where it is
    /// for several, the last of them takes the place of the first, and those before it were of no use yet.
    pub(super) fn sleeping(&self, points: &[Point; INSTANTS], wants: u32, spare: f32, lambda: f32) -> f32 {
        let (delay, several) = (self.price.delayed(), wants.max(1) as f32);
        let ends = |point: &&Point| if wants < 2 { point.none < 0.5 } else { point.found >= several };
        let told = points.iter().find(ends).unwrap_or(&points[INSTANTS - 1]);
        let awake = at(points, told.at + delay);
        let more = (awake.found - told.found).max(0.0);
        let late = delay * several + (awake.late - told.late - (told.found - spare).max(0.0) * delay).max(0.0);
        // A sleep that lasts beyond the caller's instants spares the thread a waking for them, at most one.
        let spared = if self.caller.is_closed() { 0.0 } else { self.price.nap.0 as f32 * self.caller.commands_in(delay).min(1.0) };
        (self.price.cpu.0 as f32 - spared + more * self.price.message.0 as f32 + lambda * late) / (several + more)
    }
}
