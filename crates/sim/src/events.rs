//! What happens next: one alarm for each source of events, in virtual time.
//!
//! A source (a CPU, a device, a sleeping thread …) has one next instant, which it may move at will. So there are never
//! events that are no longer wanted, and nothing is allocated while time passes.
//!
//! Alarms hang in wheels of 64 slots, one wheel for each digit of an instant in base 64: an alarm hangs in that of the first
//! digit in which its instant is not now's. As soon as time comes to a slot, what hangs there moves to finer wheels, down to
//! the slot of its nanosecond. To set or move an alarm costs the same however many there are.

use units::Nanos;

/// Bits of a digit, and the wheels that 64 bits need.
const DIGIT: u32 = 6;
const WHEELS: usize = 64_usize.div_ceil(DIGIT as usize);

/// Slots of a wheel.
const SLOTS: usize = 1 << DIGIT;

/// A source's place in the ring of its slot; and the slot's own, which is in no other ring.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// When its alarm is set; never: it is in no ring.
    at: Nanos,
    before: u32,
    after: u32,
}

/// The alarms of all sources.
#[derive(Debug)]
pub(crate) struct Calendar {
    /// Those of all wheels' slots, then those of the sources. In a ring they are in the order in which they were set, so that
    /// alarms of the same instant go off in that order. It is all there is: no addresses, no hashes, so that the same seed
    /// gives the same run.
    nodes: Vec<Node>,
    /// By wheel, the slots where something hangs; and the wheels that have such.
    occupied: [u64; WHEELS],
    wheels: u32,
    /// No alarm is earlier: the last one to go off.
    now: Nanos,
}

impl Calendar {
    /// This many sources, none with an alarm.
    pub(crate) fn new(sources: usize) -> Calendar {
        let alone = |n: usize| Node { at: Nanos::MAX, before: n as u32, after: n as u32 };
        let nodes = (0..WHEELS * SLOTS + sources).map(alone).collect();
        Calendar { nodes, occupied: [0; WHEELS], wheels: 0, now: Nanos::ZERO }
    }

    /// Sets a source's alarm, in place of the one that it had; at [`Nanos::MAX`] it has none. What is past is now.
    #[inline]
    pub(crate) fn set(&mut self, source: usize, at: Nanos) {
        let n = WHEELS * SLOTS + source;
        self.clear(n);
        if at < Nanos::MAX {
            self.insert(n, at.max(self.now));
        }
    }

    /// Sets it, unless it is set for earlier.
    pub(crate) fn set_by(&mut self, source: usize, at: Nanos) {
        if at < self.nodes[WHEELS * SLOTS + source].at {
            self.set(source, at);
        }
    }

    /// Whether a source's alarm, were it set for this instant now, would be the next one: nobody else has an earlier one, or one
    /// of the same instant. It may say no all the same. Its alarm is cleared.
    #[inline]
    pub(crate) fn would_be_next(&mut self, source: usize, at: Nanos) -> bool {
        // Most of the sources that ask have just gone off.
        self.clear(WHEELS * SLOTS + source);
        self.first_slot().is_none_or(|(wheel, slot)| at < self.instant_of(wheel, slot))
    }

    /// The earliest alarm, which is cleared, and its source.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Nanos, usize)> {
        loop {
            let (wheel, slot) = self.first_slot()?;
            let ring = wheel * SLOTS + slot;
            let Node { before: last, after: first, .. } = self.nodes[ring];
            if wheel == 0 || first == last {
                let n = first as usize;
                self.now = self.nodes[n].at;
                self.remove(n);
                return Some((self.now, n - WHEELS * SLOTS));
            }
            self.now = self.instant_of(wheel, slot);
            self.refine(ring, first as usize);
        }
    }

    /// A source, by its place, has no alarm from now on.
    #[inline]
    fn clear(&mut self, n: usize) {
        if self.nodes[n].at < Nanos::MAX {
            self.remove(n);
        }
    }

    /// The slot where the earliest alarm hangs.
    #[inline]
    fn first_slot(&self) -> Option<(usize, usize)> {
        let wheel = self.wheels.trailing_zeros() as usize;
        self.occupied.get(wheel).map(|slots| (wheel, slots.trailing_zeros() as usize))
    }

    /// The first instant of a slot.
    fn instant_of(&self, wheel: usize, slot: usize) -> Nanos {
        let below = wheel as u32 * DIGIT;
        Nanos((self.now.0 >> below & !(SLOTS as u64 - 1) | slot as u64) << below)
    }

    /// Time has come to a slot: moves what hangs there to finer wheels, in its order.
    #[inline(never)] // Most alarms are alone in their slots, and go off without.
    fn refine(&mut self, ring: usize, first: usize) {
        let mut n = first;
        while n != ring {
            let Node { at, after, .. } = self.nodes[n];
            self.remove(n);
            self.insert(n, at);
            n = after as usize;
        }
    }

    /// The last in the ring of its slot.
    #[inline]
    fn insert(&mut self, n: usize, at: Nanos) {
        let differs = at.0 ^ self.now.0;
        let wheel = ((differs | 1).ilog2() / DIGIT) as usize;
        let slot = (at.0 >> (wheel as u32 * DIGIT)) as usize % SLOTS;
        let ring = wheel * SLOTS + slot;
        let last = std::mem::replace(&mut self.nodes[ring].before, n as u32);
        self.nodes[last as usize].after = n as u32;
        self.nodes[n] = Node { at, before: last, after: ring as u32 };
        self.occupied[wheel] |= 1 << slot;
        self.wheels |= 1 << wheel;
    }

    /// Out of its ring.
    #[inline(always)]
    fn remove(&mut self, n: usize) {
        let Node { before, after, .. } = self.nodes[n];
        self.nodes[n].at = Nanos::MAX;
        self.nodes[before as usize].after = after;
        self.nodes[after as usize].before = before;
        if before == after {
            // Only the slot itself is left in the ring.
            let (wheel, slot) = (before as usize / SLOTS, before as usize % SLOTS);
            self.occupied[wheel] &= !(1 << slot);
            self.wheels &= !(u32::from(self.occupied[wheel] == 0) << wheel);
        }
    }
}

#[cfg(test)]
mod tests;
