//! What happens next: one alarm for each source of events, in virtual time.
//!
//! A source (a CPU, a device, a sleeping thread …) has one next instant, which it may move at will. So there are never
//! events that are no longer wanted, and nothing is allocated while time passes. The earliest is kept at the top of a
//! tournament tree: moving an alarm replays its matches, as many as the logarithm of the sources.

use units::Nanos;

/// An alarm in one word, so that the earlier of two is the smaller number: the instant, the order among those of the same
/// instant, the source. That order is all there is: no addresses, no hashes, so that the same seed gives the same run.
type Key = u128;

const NEVER: Key = Key::MAX;

/// Bits of a key that name its source, and those below the instant.
const SOURCE_BITS: u32 = 20;
const BELOW_INSTANT: u32 = 64;

/// Players of a match.
const ARITY: usize = 4;

/// The alarms of all sources.
#[derive(Debug)]
pub(crate) struct Calendar {
    /// The earliest of match `n` has its place in match `(n - 1) / 4`; match 0 is the final. The last round's places are the
    /// sources themselves, from match `first` on.
    matches: Vec<[Key; ARITY]>,
    first: usize,
    next: Key,
    moves: u64,
    /// Its alarm has gone off, and its matches do not know yet: nearly always it is set again at once.
    due: Option<usize>,
    /// A source, and an instant before which no other one's alarm goes off.
    alone: (usize, Nanos),
}

/// Matches of a calendar with few sources, at most 64: one CPU and one device with a vector for each of its queues make 20.
const FEW: usize = 1 + ARITY + ARITY * ARITY;

/// No source has this number.
const NOBODY: usize = usize::MAX;

impl Calendar {
    /// So many sources, none with an alarm.
    pub(crate) fn new(sources: usize) -> Calendar {
        debug_assert!(sources <= 1 << SOURCE_BITS);
        let (mut first, mut round) = (0, 1);
        while round * ARITY < sources {
            first += round;
            round *= ARITY;
        }
        Calendar { matches: vec![[NEVER; ARITY]; first + round], first, next: NEVER, moves: 0, due: None, alone: (NOBODY, Nanos::ZERO) }
    }

    /// Sets a source's alarm, in place of the one that it had; at [`Nanos::MAX`] it has none.
    pub(crate) fn set(&mut self, source: usize, at: Nanos) {
        if self.due == Some(source) {
            self.due = None;
        }
        if source != self.alone.0 {
            self.alone.1 = self.alone.1.min(at);
        }
        self.moves += 1;
        let order = u128::from(self.moves) << SOURCE_BITS | source as u128;
        self.replay(source, if at == Nanos::MAX { NEVER } else { u128::from(at.0) << BELOW_INSTANT | order });
    }

    /// Replays a source's matches, up to the first that ends as before.
    fn replay(&mut self, source: usize, mut key: Key) {
        let (mut n, mut place) = (self.first + source / ARITY, source % ARITY);
        loop {
            let players = &mut self.matches[n];
            if players[place] == key {
                return;
            }
            players[place] = key;
            let [a, b, c, d] = *players;
            key = a.min(b).min(c.min(d));
            if n == 0 {
                self.next = key;
                return;
            }
            (n, place) = ((n - 1) / ARITY, (n - 1) % ARITY);
        }
    }

    /// When a source's alarm is set.
    pub(crate) fn at(&self, source: usize) -> Nanos {
        let key = self.matches[self.first + source / ARITY][source % ARITY];
        if self.due == Some(source) { Nanos::MAX } else { instant(key) }
    }

    /// Sets it, unless it is set for earlier.
    pub(crate) fn set_by(&mut self, source: usize, at: Nanos) {
        if at < self.at(source) {
            self.set(source, at);
        }
    }

    /// Whether a source's alarm would be the next one, were it set for this instant now: nobody else has an earlier one, or
    /// one of the same instant. It may say no where somebody else's has been moved away, or has gone off and is not set again;
    /// and where there are many: then somebody else is nearly always before, and to find out costs more than it saves.
    #[inline]
    pub(crate) fn would_be_next(&mut self, source: usize, at: Nanos) -> bool {
        if self.matches.len() > FEW {
            return false;
        }
        if self.alone.0 != source {
            self.alone = (source, self.first_but(source));
        }
        at < self.alone.1
    }

    /// The earliest instant of the others' alarms.
    fn first_but(&self, source: usize) -> Nanos {
        let (mut n, mut place, mut first) = (self.first + source / ARITY, source % ARITY, NEVER);
        loop {
            let others = self.matches[n].iter().enumerate().filter(|(other, _)| *other != place);
            first = others.fold(first, |a, (_, &b)| a.min(b));
            if n == 0 {
                return instant(first);
            }
            (n, place) = ((n - 1) / ARITY, (n - 1) % ARITY);
        }
    }

    /// The earliest alarm, which is cleared, and its source.
    pub(crate) fn pop(&mut self) -> Option<(Nanos, usize)> {
        if let Some(source) = self.due.take() {
            self.replay(source, NEVER);
        }
        if self.next == NEVER {
            return None;
        }
        let source = source_of(self.next);
        (self.due, self.alone) = (Some(source), (NOBODY, Nanos::ZERO));
        Some((instant(self.next), source))
    }
}

fn source_of(key: Key) -> usize {
    key as usize & ((1 << SOURCE_BITS) - 1)
}

fn instant(key: Key) -> Nanos {
    Nanos((key >> BELOW_INSTANT) as u64)
}

#[cfg(test)]
mod tests;
