//! What waiting awake has cost lately.
//!
//! For each number of commands in flight, by powers of two: the cost, averaged over the last waits, of spinning for at most
//! a limit and sleeping after that. It is kept of every wait whose length is known, whatever was done about it.

use units::Nanos;

use crate::policy::work::WEIGHT;

/// Powers of two of commands in flight that are told apart.
const BUCKETS: usize = 10;

/// Waits over which the average forgets, as a power of two.
const MEMORY_LOG2: u32 = 3;

/// Spins over which the averages of what they cost and find forget, as a power of two.
const SPINS_LOG2: u32 = 6;

#[derive(Clone, Debug)]
pub(super) struct Waits {
    /// In nanoseconds; `None`: no wait yet.
    cost: [Option<u64>; BUCKETS],
}

impl Waits {
    pub(super) fn new() -> Waits {
        Waits { cost: [None; BUCKETS] }
    }

    fn bucket(in_flight: u32) -> usize {
        (in_flight.max(1).ilog2() as usize).min(BUCKETS - 1)
    }

    /// What to expect with so many in flight; nothing, as long as nothing is known.
    #[inline]
    pub(super) fn expected(&self, in_flight: u32) -> Nanos {
        Nanos(self.cost[Waits::bucket(in_flight)].unwrap_or(0))
    }

    /// A wait with so many in flight took `length` from when something was due, and sleeping costs `sleep`.
    #[inline]
    pub(super) fn took(&mut self, in_flight: u32, length: Nanos, sleep: Nanos) {
        let cost = if length <= sleep { length.0 } else { sleep.0.saturating_mul(2) };
        let average = &mut self.cost[Waits::bucket(in_flight)];
        *average = Some(match *average {
            None => cost,
            Some(average) => average - (average >> MEMORY_LOG2) + (cost >> MEMORY_LOG2),
        });
    }
}

/// How long after the last of them was due as many have completed as a nap waits for, or before, by powers of two of these. A device
/// at its limit takes longer for many than for each; and of many that were sent together the last comes sooner than a single one
/// may. Since it was due and not since it was sent: those that were not sent together are due sooner after the last of all was sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans {
    late: [i64; BUCKETS],
}

impl Spans {
    /// When so many have completed, the last of which is due then; as long as nothing is known, then.
    pub(super) fn of(&self, wanted: u32, last: Nanos) -> Nanos {
        Nanos(last.0.saturating_add_signed(self.late[Waits::bucket(wanted)]))
    }

    /// When a nap of this `length` was `over`, `found` of so many had completed that were wanted, the last of which was due at `last`. A
    /// few may be missing: slow ones hold up nobody. Where most are although the last was due, they are slow, and say nothing
    /// of the others.
    pub(super) fn found(&mut self, wanted: u32, found: u32, last: Nanos, over: Nanos, length: Nanos) {
        if wanted == 0 {
            return;
        }
        let late = &mut self.late[Waits::bucket(wanted)];
        let signed = |span: u64| i64::try_from(span).unwrap_or(i64::MAX);
        let (wanted, after) = (wanted.min(WEIGHT), signed((over - last).0) - signed((last - over).0));
        if found >= wanted - wanted / 8 {
            *late = (*late).min(after).saturating_sub(signed(length.0 / 64));
        } else if found > wanted / 4 || after < 0 {
            *late = (*late).max(after).saturating_add(signed(length.0 / 8));
        }
    }
}

/// Entries that a nap and a sleep find when whatever is in flight is overdue already: by powers of two in flight, in
/// [`ONE`]s.
#[derive(Clone, Debug)]
pub(super) struct Yields {
    nap: [u32; BUCKETS],
    sleep: [u32; BUCKETS],
    /// Messages that a sleep has taken, whatever was overdue; 0: not known.
    messages: [u32; BUCKETS],
    /// What a spin for a caller without room has cost, and what it has found: by powers of two of those that are not slow.
    spin: [(Nanos, u32); BUCKETS],
}

/// One entry.
const ONE: u32 = 1 << 10;

/// What is believed of a nap that has not been tried for long, so that it is tried.
const HOPED: u32 = 2 * ONE;

impl Yields {
    pub(super) fn new() -> Yields {
        Yields { nap: [HOPED; BUCKETS], sleep: [ONE; BUCKETS], messages: [0; BUCKETS], spin: [(Nanos::ZERO, ONE / 4); BUCKETS] }
    }

    /// Whether a nap that costs so much finds entries for less than a sleep does, of which each but the first sends a
    /// message.
    pub(super) fn pays(&self, in_flight: u32, nap: Nanos, sleep: Nanos, message: Nanos) -> bool {
        let at = Waits::bucket(in_flight);
        let (napped, slept) = (u64::from(self.nap[at]), u64::from(self.sleep[at].max(ONE)));
        let sleep = sleep.0 + message.0.saturating_mul(slept - u64::from(ONE)) / u64::from(ONE);
        nap.0.saturating_mul(slept) <= sleep.saturating_mul(napped)
    }

    /// Whether spinning finds entries for less than a nap that costs so much, and finds all of as many. A device at its limit brings
    /// one after the other, and there it does not. What was seen of spinning is forgotten slowly, so that it is tried again.
    pub(super) fn spin_pays(&mut self, quick: u32, nap: Nanos) -> bool {
        let (cost, found) = &mut self.spin[Waits::bucket(quick)];
        let pays = cost.0.saturating_mul((quick * ONE).into()) <= nap.0.saturating_mul((*found).into());
        if !pays {
            *cost = Nanos(cost.0 - (cost.0 >> 8));
        }
        pays
    }

    /// A spin for so many has cost so much and found so many. One says little: of those that were sent one after the other the first
    /// ends it, and the others cost nothing.
    pub(super) fn spun(&mut self, quick: u32, spent: Nanos, entries: u32) {
        let (cost, found) = &mut self.spin[Waits::bucket(quick)];
        *cost = Nanos(cost.0 - (cost.0 >> SPINS_LOG2) + (spent.0 >> SPINS_LOG2));
        *found = *found - (*found >> SPINS_LOG2) + ((entries.min(WEIGHT) * ONE) >> SPINS_LOG2);
    }

    /// A sleep with so many in flight has taken so many messages.
    pub(super) fn told(&mut self, in_flight: u32, messages: u32) {
        let seen = &mut self.messages[Waits::bucket(in_flight)];
        let told = messages.min(64) * ONE;
        *seen = if *seen == 0 { told } else { *seen - (*seen >> MEMORY_LOG2) + (told >> MEMORY_LOG2) };
    }

    /// What the messages of such a sleep but for the first cost, if each costs so much. `None`: not known.
    pub(super) fn further(&self, in_flight: u32, message: Nanos) -> Option<Nanos> {
        let seen = self.messages[Waits::bucket(in_flight)];
        (seen > 0).then(|| Nanos(message.0.saturating_mul(u64::from(seen.max(ONE) - ONE)) / u64::from(ONE)))
    }

    /// A nap, or a sleep, has found so many.
    pub(super) fn found(&mut self, in_flight: u32, napped: bool, entries: u32) {
        let at = Waits::bucket(in_flight);
        let (seen, other) = if napped { (&mut self.nap, &mut self.sleep) } else { (&mut self.sleep, &mut self.nap) };
        seen[at] = seen[at] - (seen[at] >> MEMORY_LOG2) + ((entries.min(64) * ONE) >> MEMORY_LOG2);
        if !napped {
            // What was seen of naps is forgotten slowly, so that they are tried again.
            other[at] += (seen[at] + ONE).saturating_sub(other[at]) >> 8;
        }
    }
}
