//! Having the device hold its messages back, where the user's slack allows as much as the feature's shortest time: a sleep
//! then finds several entries with one message, and costs less than the nap that would find them.

use units::Nanos;

use super::step::Wait;
use super::{Adaptive, LONGEST, MARGIN};
use crate::{Coalesce, Plan, STEP, Seen};

/// After an urgent command nothing is held back for so long.
const CAREFUL: Nanos = Nanos::from_millis(100);

/// A sleep ends when all have come, a nap when that was expected: it is taken if it costs no more than so many of them.
const NAPS: u64 = 2;

/// Whoever may not rely on the message looks again after this part of the time that he has waited.
const AGAIN: u64 = 8;

/// So many in flight are many.
const MANY: u32 = 8;

/// Whoever sends one command after another keeps up with his clock, with one part in so many of his time to spare.
const ROOM: u64 = 4;

impl Adaptive {
    /// What the device may hold back on account of this queue. `None`: nothing is known yet.
    ///
    /// A message for all that are in flight, when they have come: nothing more will come before the caller has heard of
    /// them. Of a single command the message waits for the caller's next instants, if a clock drives him and he keeps up
    /// nevertheless.
    pub(crate) fn holds(&self, now: Nanos) -> Option<Coalesce> {
        let class = self.flight.latest()?;
        let median = self.service.median(class);
        if median == Nanos::ZERO {
            return None;
        }
        let urgent = self.holds.urgent.is_some_and(|at| now < at + CAREFUL);
        if median < self.holds.from || urgent || self.cpu > Nanos(self.timers.cost.0 * NAPS) {
            return Some(Coalesce::OFF);
        }
        let allowed = self.slack.of(median).min(LONGEST);
        let most = self.holds.most();
        let spread = self.service.most(class) - self.service.due(class, Nanos::ZERO).unwrap_or(median);
        let room = self.pace.gap() - (median + self.delay());
        let time = if most > 1 { (spread + STEP).min(allowed) } else { allowed.min(room - Nanos(room.0 / ROOM)) };
        let entries = match most {
            0..MANY => most,
            // Waiting for the last of them takes room from the caller, and naps find many as well.
            _ => return Some(Coalesce::OFF),
        };
        Some(Coalesce::new(entries.clamp(2, 256) as u16, (time.0 / STEP.0) as u8))
    }

    /// What to do while the device holds messages back, if that makes a difference.
    pub(super) fn under_hold(&mut self, now: Nanos, seen: &Seen, wait: &Wait, first: Nanos) -> Option<Plan> {
        if seen.urgent_waiting > 0 {
            return Some(self.without_message(now, seen, wait, first));
        }
        let (time, all) = (seen.held.span(), seen.in_flight >= u32::from(seen.held.entries()));
        let allowed = self.slack.of(self.service.median(self.flight.class()?)).min(LONGEST);
        let told = first + time;
        let clocked = self.pace.has_clock();
        // Whoever has no clock has nothing to send before he hears of what is there; and the thread may be awake before that.
        if time > allowed || !(all || clocked) || !self.ledger.may_predict(self.cpu, MARGIN) {
            return None;
        }
        if seen.goes_on_at.is_some_and(|at| at <= told) {
            return None;
        }
        // So that he falls behind his clock, a nap takes longer.
        if self.crowded
            && let Some(until) = self.wait_for_room(now, seen.in_flight, first, self.room_by(now, seen.in_flight, first, allowed))
            && self.pace.refills()
            && (all || until > told + time)
        {
            self.decisions.gathered += 1;
            return Some(Plan::Nap { until });
        }
        self.decisions.held += 1;
        self.holds.under = if all { Nanos::ZERO } else { time };
        Some(self.sleep(now))
    }

    /// Somebody waits for a command whose message is held back: finds it without.
    fn without_message(&mut self, now: Nanos, seen: &Seen, wait: &Wait, first: Nanos) -> Plan {
        let left = self.cpu - wait.spun;
        if self.nap_until(now, first).is_some() || left > Nanos::ZERO && !seen.cpu_wanted {
            return self.spin_or_nap(now, first, first, Nanos::ZERO, left.max(Nanos(1)));
        }
        // Late already, and the longer it takes the less a look more often finds it sooner, in proportion.
        self.decisions.napped += 1;
        Plan::Nap { until: now + self.timers.cost.max(Nanos((now - wait.since).0 / AGAIN)) }
    }
}
