//! What came of the last step: what it has cost and shown, and what that teaches.

use units::Nanos;

use super::Adaptive;
use super::step::{Doing, track};
use crate::{Cause, Coalesce, Done, Found, Seen};

impl Adaptive {
    #[inline]
    pub(crate) fn completed(&mut self, done: &[Done]) {
        // The last one is the freshest; the others have waited for this look as well.
        if let Some(last) = done.last() {
            self.outrun |= self.checks;
            self.taken = Some((last.age, self.clock));
            if self.slept_through && last.age > self.service.deadline(last.class) + self.holds.under {
                self.decisions.missed_notifications += 1;
                self.distrusts = true;
            }
            // Where the caller waits for room, one nap follows another: what was due when one ended, and came only after it, says
            // nothing of those that had come. But how slow the slow ones are it does say.
            let age = self.blind - (self.clock - last.age);
            let slow = self.service.slow_due(last.class, last.age).is_some();
            let missed = self.crowded && !slow && self.service.due(last.class, age).is_some_and(|due| age > due);
            if missed && last.found == Found::Looking {
                return;
            }
            let delay = self.delay() + self.holds.under;
            self.surprised = match last.found {
                Found::AfterSleep { at_most } => !self.told || !self.service.foresaw(last.class, at_most - delay),
                Found::Looking => false,
            };
            // What the notification tells comes when it does; of a nap's end only what was seen before it is certain.
            let reached = if self.told { last.age - delay } else { self.step.asked - (self.clock - last.age) };
            if self.holds.under == Nanos::ZERO {
                self.service.learn(last, self.napped, delay, reached);
            }
        }
    }

    /// The step is over, or its look after a nap or sleep is.
    #[inline]
    pub(super) fn back(&mut self, now: Nanos, seen: &Seen) {
        self.checks = false;
        self.clock = now;
        if seen.woke.is_some() {
            self.woke = now;
            if self.step.doing != Doing::Nap || self.step.overdue {
                self.blind = now;
            }
        }
        if self.looks.is_some() && seen.woke.is_none() {
            self.looked(seen.in_flight);
        }
        self.account(now, seen);
        self.pace.wants_room(seen.wants_room_at);
    }

    /// The look after a nap or sleep is over, if one was asked for, and so many are left. Apart from what each commit of a busy thread
    /// needs.
    #[inline(never)]
    pub(super) fn looked(&mut self, left: u32) {
        let Some(before) = self.looks.take() else { return };
        let found = before.saturating_sub(left);
        if let Some((in_flight, napped)) = self.step.patient.take() {
            self.yields.found(in_flight, napped, found);
        }
        if let Some((wanted, last)) = self.step.gathers.take() {
            self.spans.found(wanted, found, last, self.woke, self.woke - self.step.asked);
        }
    }

    /// What the last step has cost and shown.
    #[inline]
    fn account(&mut self, now: Nanos, seen: &Seen) {
        let doing = std::mem::replace(&mut self.step.doing, Doing::Nothing);
        let mut spent = Nanos::ZERO;
        // What the caller has done with it since is not waiting.
        let over = seen.met_at.filter(|_| matches!(doing, Doing::Spin | Doing::Glance | Doing::Attend)).unwrap_or(now);
        match doing {
            Doing::Glance => return self.glanced(over, seen),
            Doing::Nothing => {}
            // No choice would have cost less, and it counts as what was chosen.
            Doing::Attend => {
                self.woke = now;
                if let Some(wait) = &mut self.wait {
                    (wait.spun, wait.in_vain) = (Nanos::ZERO, wait.in_vain + 1);
                }
            }
            Doing::Spin => {
                spent = over - self.step.asked;
                self.step.spins = self.step.spins.map(|(quick, _)| (quick, spent));
                if let Some(wait) = &mut self.wait {
                    wait.spun += spent;
                    wait.came = (seen.pending || seen.met_at.is_some()).then_some(over);
                }
            }
            Doing::Nap | Doing::Gather | Doing::Sleep => spent = self.slept(now, seen, doing != Doing::Sleep),
        }
        self.napped = if doing == Doing::Nap { self.step.aims } else { None };
        let notified = seen.woke.filter(|_| doing == Doing::Sleep).map(|woke| woke.cause == Cause::Notification);
        (self.told, self.slept_through) = (notified == Some(true), notified == Some(false));
        self.ledger.spend(spent);
        if let Some(wait) = &mut self.wait {
            if wait.explores > Nanos::ZERO {
                self.ledger.explore(spent);
                wait.explores = wait.explores - spent;
                self.explores = wait.explores;
            }
            if seen.found > 0 {
                self.explored = self.explored.saturating_sub(seen.found);
                self.end_wait(over);
            }
        }
    }

    /// Back from a nap or a sleep, or not gone at all.
    fn slept(&mut self, now: Nanos, seen: &Seen, nap: bool) -> Nanos {
        let Some(woke) = seen.woke else {
            // The look before it found something.
            if let Some(wait) = &mut self.wait {
                wait.came = Some(now);
            }
            return Nanos::ZERO;
        };
        let delay = self.delay() + self.holds.under;
        if !nap && seen.messages > 0 && seen.held == Coalesce::OFF {
            let in_flight = self.wait.map_or(seen.in_flight, |wait| wait.in_flight);
            self.yields.told(in_flight, seen.messages);
        }
        let cost = if nap { &mut self.timers.cost } else { &mut self.cpu };
        if let Some(cycle) = seen.cycle {
            *cost = track(*cost, cycle).max(Nanos(1));
        }
        let cost = *cost;
        // Back sooner than going takes: the timer had passed already.
        if woke.cause == Cause::Timer && now - self.step.asked > cost {
            self.timers.was(now - self.step.asked - woke.late, woke.late);
        }
        if let Some(wait) = &mut self.wait {
            wait.spun = if nap && self.step.overdue { wait.spun + cost } else { Nanos::ZERO };
            wait.in_vain += 1;
            if woke.cause == Cause::Notification {
                wait.came = Some(wait.since.max(now - delay));
            }
        }
        // The caller would have woken it whatever it does.
        let anyway = woke.cause == Cause::Timer && self.step.goes_on_at.is_some_and(|at| at <= now);
        if anyway { Nanos::ZERO } else { cost }
    }

    #[inline]
    fn end_wait(&mut self, now: Nanos) {
        let Some(wait) = self.wait.take() else { return };
        let elapsed = now - wait.since;
        self.stayed_awake(wait.in_vain == 0);
        self.ledger.waited(wait.came.map(|came| came - wait.since), elapsed, self.cpu);
        if let Some(came) = wait.came {
            self.waits.took(wait.in_flight, came - wait.due.max(wait.since), self.horizon());
        }
    }
}
