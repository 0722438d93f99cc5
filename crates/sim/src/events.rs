//! The calendar: one timer for each source of events (a CPU, a device, a sleeping thread), in
//! virtual time. A source moves its one timer at will, so no event is ever stale, and nothing is
//! allocated while time passes.
//!
//! The calendar is a hierarchical timer wheel, as in Linux, with a wheel of 64 slots for each
//! base-64 digit of an instant. A timer is in the wheel of the highest digit in which its instant
//! differs from the current time. When time reaches a slot of a coarse wheel, the slot's timers
//! move to finer wheels:
//!
//! ```text
//! wheel 2   [....x...........]    a slot spans 4096 ns
//! wheel 1   [..x.............]    a slot spans 64 ns
//! wheel 0   [.......x........]    a slot is 1 ns: the timer fires
//! ```
//!
//! Setting and moving a timer takes constant time.

use units::Nanos;

/// Bits of a digit.
const DIGIT: u32 = 6;
/// Wheels for the 64 bits of an instant.
const WHEELS: usize = 64_usize.div_ceil(DIGIT as usize);

/// Slots of a wheel.
const SLOTS: usize = 1 << DIGIT;

/// A node of a circular list: a source's timer, or the head of a slot.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// When the timer fires. `Nanos::MAX`: the timer is not set, and the node is in no list.
    at: Nanos,
    before: u32,
    after: u32,
}

/// The timers of all sources.
#[derive(Debug)]
pub(crate) struct Calendar {
    /// Heads of all slots, then the sources. Lists are in the order in which timers were set, so
    /// timers of the same instant fire in that order. The order depends on no hash and no
    /// address, so that the same seed gives the same run.
    nodes: Vec<Node>,
    /// By wheel: the slots with timers.
    occupied: [u64; WHEELS],
    /// The wheels with timers.
    wheels: u32,
    /// When the last timer fired. No timer is earlier.
    now: Nanos,
}

impl Calendar {
    /// `sources` sources without a timer.
    pub(crate) fn new(sources: usize) -> Calendar {
        let alone = |n: usize| Node { at: Nanos::MAX, before: n as u32, after: n as u32 };
        let nodes = (0..WHEELS * SLOTS + sources).map(alone).collect();
        Calendar { nodes, occupied: [0; WHEELS], wheels: 0, now: Nanos::ZERO }
    }

    /// Sets the timer of a source; [`Nanos::MAX`] clears it. An instant in the past fires now.
    #[inline]
    pub(crate) fn set(&mut self, source: usize, at: Nanos) {
        let n = WHEELS * SLOTS + source;
        self.clear(n);
        if at < Nanos::MAX {
            self.insert(n, at.max(self.now));
        }
    }

    /// Sets the timer of a source, unless it fires earlier already.
    pub(crate) fn set_no_later(&mut self, source: usize, at: Nanos) {
        if at < self.nodes[WHEELS * SLOTS + source].at {
            self.set(source, at);
        }
    }

    /// Clears the source's timer. Returns true if it is certain that no other timer fires at or
    /// before `at`; false if one does or may.
    #[inline]
    pub(crate) fn clear_and_check_next(&mut self, source: usize, at: Nanos) -> bool {
        // Usually the caller's timer has just fired, so there is nothing to clear.
        self.clear(WHEELS * SLOTS + source);
        self.first_slot().is_none_or(|(wheel, slot)| at < self.instant_of(wheel, slot))
    }

    /// Takes the earliest timer: its instant and its source.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Nanos, usize)> {
        loop {
            let (wheel, slot) = self.first_slot()?;
            let ring = wheel * SLOTS + slot;
            let Node { before: last, after: first, .. } = self.nodes[ring];
            // In a coarse slot a single timer need not move to finer wheels.
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

    #[inline]
    fn clear(&mut self, n: usize) {
        if self.nodes[n].at < Nanos::MAX {
            self.remove(n);
        }
    }

    /// The slot of the earliest timer.
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

    /// Time has reached a slot: moves its timers to finer wheels, in their order.
    #[inline(never)] // Most timers are alone in their slots, and fire without it.
    fn refine(&mut self, ring: usize, first: usize) {
        let mut n = first;
        while n != ring {
            let Node { at, after, .. } = self.nodes[n];
            self.remove(n);
            self.insert(n, at);
            n = after as usize;
        }
    }

    /// Appends a timer to the list of its slot.
    #[inline]
    fn insert(&mut self, n: usize, at: Nanos) {
        // The highest bit that differs selects the wheel.
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

    /// Removes a timer from its list.
    #[inline(always)]
    fn remove(&mut self, n: usize) {
        let Node { before, after, .. } = self.nodes[n];
        self.nodes[n].at = Nanos::MAX;
        self.nodes[before as usize].after = after;
        self.nodes[after as usize].before = before;
        if before == after {
            // Only the head is left: the slot is empty.
            let (wheel, slot) = (before as usize / SLOTS, before as usize % SLOTS);
            self.occupied[wheel] &= !(1 << slot);
            self.wheels &= !(u32::from(self.occupied[wheel] == 0) << wheel);
        }
    }
}

#[cfg(test)]
mod tests;
