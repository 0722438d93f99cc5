//! Gathering: until when to nap so that several completions are found at once, and whether that costs less than being told of
//! them.

use units::Nanos;

use super::timers::SETTING;
use super::{Adaptive, LONGEST};
use crate::{Cause, LatencySlack, Seen};

/// The slack, in thousandths, up to which half of what is in flight is always enough for a caller who has no room.
const HALF_UNTIL: u64 = 2_500;

/// And if there are fewer than so many: of many, those that are not waited for have most often come as well when the nap is over.
const MANY: u32 = 8;

impl Adaptive {
    /// How late the next completion may be found.
    pub(super) fn allowance(&self, seen: &Seen) -> Nanos {
        let Some(class) = self.flight.class().filter(|_| seen.urgent_waiting == 0) else { return Nanos::ZERO };
        let median = self.service.median(class);
        // Whoever is behind his clock loses room by waiting: no longer than the device takes for most, or a nap at all.
        let most = if self.pace.behind() { self.service.most(class).max(Nanos(self.timers.late().0 * 2)) } else { LONGEST };
        self.slack.of(median).min(most)
    }

    /// Whether what has come can wait although the thread is awake, because it woke for nothing but the caller's own instant.
    /// Where any time will do it is found when he has no room left, or when a nap ends: being ahead of his clock is what costs
    /// wake-ups, and whoever takes what has come keeps him so.
    pub(super) fn lets_wait(&self, now: Nanos, seen: &Seen) -> bool {
        let his = seen.woke.is_some_and(|woke| woke.cause == Cause::Timer) && self.step.goes_on_at.is_some_and(|at| at <= now);
        his && self.slack == LatencySlack::UNLIMITED && !seen.pending && !seen.leaving && seen.urgent_waiting == 0
    }

    /// Until when to gather, if that is allowed and pays.
    pub(super) fn gather(&mut self, now: Nanos, seen: &Seen, first: Nanos, allowed: Nanos) -> Option<Nanos> {
        if allowed == Nanos::ZERO {
            return None;
        }
        let end = first + allowed;
        if let Some(until) = self.until_he_goes_on(now, first, end) {
            return Some(until);
        }
        let room_by = self.room_by(now, seen.in_flight, first, allowed);
        if seen.goes_on_at.is_none()
            && let Some(until) = self.wait_for_room(now, seen.in_flight, first, room_by)
        {
            return Some(until);
        }
        self.gather_by(now, seen.in_flight, first, end)
    }

    /// How late a caller may be who waits for room: by more than the longest nap, if the slack is large.
    fn tolerated(&self, allowed: Nanos) -> Nanos {
        self.flight.class().map_or(allowed, |class| self.slack.of(self.service.median(class)).max(allowed))
    }

    /// By when a caller who waits for room is to have some.
    pub(super) fn room_by(&self, now: Nanos, in_flight: u32, first: Nanos, allowed: Nanos) -> Nanos {
        if !self.hurries() {
            return first + allowed;
        }
        self.pace.allows(now, self.woke, in_flight, first, allowed, self.tolerated(allowed))
    }

    /// Until when to nap if the caller goes on by himself before the end: the thread wakes then anyway. Not before he does, and no
    /// later than a timer of his own would.
    pub(super) fn until_he_goes_on(&self, now: Nanos, first: Nanos, end: Nanos) -> Option<Nanos> {
        let goes_on = self.step.goes_on_at.filter(|&at| now < at && at <= end)?;
        if goes_on + self.timers.late() <= end {
            return Some(goes_on);
        }
        // Asleep for as long it would be awake then as well, and sooner.
        if end <= first + self.delay() {
            return None;
        }
        let until = self.timers.until(now, end)?;
        (self.timers.back(now, until) >= goes_on).then_some(until)
    }

    /// Until when to nap if a clock drives the caller and he only waits for room: meanwhile his instants pass, and none of
    /// them wakes anybody.
    pub(super) fn wait_for_room(&mut self, now: Nanos, in_flight: u32, first: Nanos, end: Nanos) -> Option<Nanos> {
        let nap = self.timers.cost;
        let spared = self.pace.spares(end - first, nap);
        if spared == Nanos::ZERO || nap >= self.cpu + spared {
            return None;
        }
        let last = self.last(now);
        let batches = in_flight > 1 && self.pays(now, in_flight, in_flight, first, end);
        let fills = self.pace.fills(now, self.woke, in_flight, batches, end)?;
        if end < last {
            return None;
        }
        self.timers.until(now, end.min(first.max(last).max(fills)))
    }

    /// When most of what is in flight has completed, if spinning until then costs less than a nap, and a caller without room has to
    /// catch up: nothing more can come meanwhile, so that a nap finds no more than the spin, and gives him room later.
    pub(super) fn sooner_than_a_nap(&mut self, now: Nanos, in_flight: u32, allowed: Nanos) -> Option<Nanos> {
        if self.slack == LatencySlack::UNLIMITED {
            return self.cheaper_than_a_nap(now, in_flight);
        }
        let (last, all) = (self.last(now), self.flight.last(now, &self.service, Some(0)));
        let lags = self.hurries() && self.pace.lags(now, self.tolerated(allowed));
        (lags && now < last && all - now <= self.timers.cost).then_some(last)
    }

    /// The same where any time will do: wherever spinning finds entries for less, if so many wait for room that he has none either
    /// once all have come. Whoever has some is ahead of his clock, which is what costs wake-ups.
    fn cheaper_than_a_nap(&mut self, now: Nanos, in_flight: u32) -> Option<Nanos> {
        let (last, quick) = (self.flight.last(now, &self.service, None), self.flight.quick(now, &self.service));
        let soon = quick > 0 && now < last && last - now <= self.timers.cost;
        if !soon || !self.crowded || self.pace.backlog(now) < u64::from(in_flight) {
            return None;
        }
        let pays = self.yields.spin_pays(quick, self.timers.cost);
        self.step.spins = pays.then_some((quick, Nanos::ZERO));
        pays.then_some(last)
    }

    /// When most of what is in flight has completed; where the caller waits for room, half of it: the sooner he has some the
    /// better, and what has just been sent need not hold up what was late. Whoever lets it cost any latency has all of it
    /// found at once, his clock notwithstanding.
    pub(super) fn last(&self, now: Nanos) -> Nanos {
        self.flight.last(now, &self.service, self.spare(now))
    }

    /// So many a nap is to find.
    pub(super) fn wanted(&self, now: Nanos) -> u32 {
        self.flight.quick(now, &self.service) - self.spare(now).unwrap_or(0)
    }

    /// How many of the youngest that do not look slow hold up nobody, if a caller without room waits for a few.
    fn spare(&self, now: Nanos) -> Option<u32> {
        match self.slack {
            LatencySlack::UNLIMITED => Some(0),
            _ if !self.hurries() => None,
            _ => Some(self.flight.quick(now, &self.service)).map(|quick| if quick >= MANY || self.all { 0 } else { quick / 2 }),
        }
    }

    /// Whether the wait that begins is for all of a few: the later a completion may be found, the more often. Between half and all
    /// there is nothing to choose: the youngest were sent together, and by when one of them has come nearly all have.
    pub(super) fn draw(&mut self) {
        let slack = u64::from(self.slack.thousandths()).max(HALF_UNTIL);
        self.share += slack - HALF_UNTIL;
        self.all = self.share >= slack;
        if self.all {
            self.share -= slack;
        }
    }

    /// The caller's having no room is worth something.
    fn hurries(&self) -> bool {
        self.crowded && self.slack != LatencySlack::UNLIMITED
    }

    /// Whether a nap that finds so many, and is over at `back`, costs less than the sleeps that do.
    fn pays(&self, now: Nanos, in_flight: u32, gathered: u32, first: Nanos, back: Nanos) -> bool {
        let awake = first + self.delay();
        let slept_over = u64::from(self.flight.by(now, awake, &self.service).max(1));
        let sleep = self.cpu + self.further(now, in_flight, first) - self.spared(back, awake);
        self.timers.cost.0 * slept_over < sleep.0 * u64::from(gathered)
    }

    /// Who is still asleep when the caller goes on need not wake for him later: what that is worth in this span.
    fn spared(&self, from: Nanos, to: Nanos) -> Nanos {
        match self.step.goes_on_at {
            Some(at) if at <= from => self.pace.spares(to - from, self.timers.cost),
            Some(at) if at <= to => self.timers.cost,
            _ => Nanos::ZERO,
        }
    }

    /// What the messages but for the first cost that come during a sleep: CPU time, and for as long the thread waits for the
    /// CPU. As seen of late; a guess, as long as there was no sleep.
    fn further(&self, now: Nanos, in_flight: u32, first: Nanos) -> Nanos {
        self.yields.further(in_flight, self.message).unwrap_or_else(|| self.messages(now, first))
    }

    /// A guess at that, from what is due.
    fn messages(&self, now: Nanos, first: Nanos) -> Nanos {
        let awake = first + self.delay();
        let slept_over = self.flight.by(now, awake, &self.service).max(1);
        // Until a CPU that has gone idle takes the first message, others are one with it.
        let idle = first > now + Nanos(self.cpu.0 / SETTING);
        let one = if idle { self.flight.by(now, awake - self.waking(), &self.service).max(1) } else { 1 };
        Nanos(self.message.0 * u64::from(slept_over - one)).min(self.delay())
    }

    /// Until when to nap so that several are there by `end` at the latest, if that finds them for less than a sleep does.
    pub(super) fn gather_by(&self, now: Nanos, in_flight: u32, first: Nanos, end: Nanos) -> Option<Nanos> {
        if in_flight < 2 {
            return None;
        }
        self.timers.until(now, end)?;
        let until = |by: Nanos| self.timers.until(now, by.min(end)).unwrap_or(self.timers.soonest(now));
        let last = self.last(now);
        let wanted = self.wanted(now);
        let found = self.spans.of(wanted, last);
        if last <= now {
            // All overdue, and nobody knows when they come: what has taken so long may take as long again. But a caller
            // without room loses by that: what is late by so much may be so by as much again.
            let age = if self.hurries() { (now - last).max(self.delay()) } else { now - self.flight.since().unwrap_or(now) };
            let again = (now + age).max(found);
            return self.yields.pays(in_flight, self.timers.cost, self.cpu, self.message).then(|| until(again));
        }
        let until = until(first.max(found));
        let back = self.timers.back(now, until);
        let seen = if back >= found { wanted } else { 0 };
        let gathered = self.flight.by(now, back, &self.service).max(seen);
        (gathered >= 2 && self.pays(now, in_flight, gathered, first, back)).then_some(until)
    }

    /// From the instant at which a notification is taken until the thread masks it: the CPU time of a sleep but for what is
    /// spent before the thread blocks. What is left of the delay is spent by nobody, on a CPU that is being woken.
    fn waking(&self) -> Nanos {
        (self.cpu - Nanos(self.cpu.0 / SETTING)).min(self.delay())
    }
}
