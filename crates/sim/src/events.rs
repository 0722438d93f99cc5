//! What happens next: one alarm for each source of events, in virtual time.
//!
//! A source (a CPU, a device, a sleeping thread …) has one next instant, which it may move at will. So there are never
//! events that are no longer wanted, and nothing is allocated while time passes. The earliest is kept at the top of a
//! tournament tree: moving an alarm replays the matches of its branch, as many as the logarithm of the sources.

use units::Nanos;

/// A source's alarm: when, and in which order among those of the same instant. That order is all there is: no addresses,
/// no hashes, so that the same seed gives the same run.
type Key = (u64, u64);

const NEVER: Key = (u64::MAX, u64::MAX);

/// The alarms of all sources.
#[derive(Debug)]
pub(crate) struct Calendar {
    keys: Vec<Key>,
    /// `winners[1]` is the source that is next; `winners[n]` won against `winners[2n + 1]` or `winners[2n]`; the leaves
    /// are the sources themselves.
    winners: Vec<u32>,
    leaves: usize,
    moves: u64,
}

impl Calendar {
    /// So many sources, none with an alarm.
    pub(crate) fn new(sources: usize) -> Calendar {
        let leaves = sources.next_power_of_two().max(2);
        let mut winners = vec![0; 2 * leaves];
        for at in (1..2 * leaves).rev() {
            winners[at] = if at >= leaves { (at - leaves) as u32 } else { winners[2 * at] };
        }
        Calendar { keys: vec![NEVER; leaves], winners, leaves, moves: 0 }
    }

    /// Sets a source's alarm, in place of the one that it had; at [`Nanos::MAX`] it has none.
    pub(crate) fn set(&mut self, source: usize, at: Nanos) {
        self.moves += 1;
        self.keys[source] = if at == Nanos::MAX { NEVER } else { (at.0, self.moves) };
        let mut node = (source + self.leaves) / 2;
        while node > 0 {
            let (left, right) = (self.winners[2 * node], self.winners[2 * node + 1]);
            let winner = if self.keys[right as usize] < self.keys[left as usize] { right } else { left };
            if winner == self.winners[node] && winner as usize != source {
                // Nothing changes further up.
                return;
            }
            self.winners[node] = winner;
            node /= 2;
        }
    }

    /// When a source's alarm is set.
    pub(crate) fn at(&self, source: usize) -> Nanos {
        Nanos(self.keys[source].0)
    }

    /// Sets it, unless it is set for earlier.
    pub(crate) fn set_by(&mut self, source: usize, at: Nanos) {
        if at < self.at(source) {
            self.set(source, at);
        }
    }

    /// The earliest alarm, which is cleared, and its source.
    pub(crate) fn pop(&mut self) -> Option<(Nanos, usize)> {
        let source = self.winners[1] as usize;
        let at = self.at(source);
        if at == Nanos::MAX {
            return None;
        }
        self.set(source, Nanos::MAX);
        Some((at, source))
    }
}

#[cfg(test)]
mod tests;
