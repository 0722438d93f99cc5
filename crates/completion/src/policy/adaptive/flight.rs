//! What is in flight, oldest first, as far as predicting the next completion needs it.
//!
//! Commands leave in the order in which they came, because only their number is known here: which ones completed would
//! cost a record for each. On a device that overtakes, the commands that stay are older than they look, and are then
//! looked for too late by no more than the spread of their times. Whether it does is seen by the last that each look takes.

use units::{Class, Nanos};

use super::service::Service;

/// Batches that are told apart; when there are more, two neighbours count as one. A power of two.
const BATCHES: usize = 32;

/// How many of the oldest may complete first, of those that do not look slow.
const FRONT: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Nanos,
    commands: u32,
    class: Class,
}

/// The batches in flight.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    ring: [Option<Sent>; BATCHES],
    /// Batches ever begun, and those that have left.
    begun: usize,
    left: usize,
    /// Commands in the ring.
    commands: u32,
    /// The last to complete was the one that had to be: those that are left are as old as they look.
    in_order: bool,
}

impl Flight {
    pub(super) fn new() -> Flight {
        Flight { ring: [None; BATCHES], begun: 0, left: 0, commands: 0, in_order: true }
    }

    #[inline]
    pub(super) fn sent(&mut self, at: Nanos, commands: u32, class: Class) {
        self.commands = self.commands.saturating_add(commands);
        if self.begun - self.left == BATCHES {
            self.halve();
        }
        self.ring[self.begun % BATCHES] = Some(Sent { at, commands, class });
        self.begun += 1;
    }

    /// Each two neighbours count as one from here on, sent when the younger of them was: so commands are still at least as old as
    /// they look, and the one that is sent next, of which something may be due first, is told apart from those that are slow.
    #[cold]
    fn halve(&mut self) {
        for pair in 0..BATCHES / 2 {
            let [older, younger] = [0, 1].map(|n| self.ring[(self.left + 2 * pair + n) % BATCHES]);
            let commands = older.map_or(0, |sent| sent.commands);
            let both = younger.map(|sent| Sent { commands: sent.commands.saturating_add(commands), ..sent });
            self.ring[(self.left + pair) % BATCHES] = both;
        }
        self.begun = self.left + BATCHES / 2;
    }

    /// Only so many are in flight: the oldest have completed. `sent`: when the last of them was, if the look that took it told.
    #[inline]
    pub(super) fn keep(&mut self, in_flight: u32, sent: Option<Nanos>, service: &Service) {
        let mut last = None;
        while self.commands > in_flight && self.left < self.begun {
            let Some(oldest) = &mut self.ring[self.left % BATCHES] else { return };
            last = Some(*oldest);
            let gone = oldest.commands.min(self.commands - in_flight);
            oldest.commands -= gone;
            self.commands -= gone;
            if oldest.commands == 0 {
                self.left += 1;
            }
        }
        if let (Some(last), Some(sent)) = (last, sent) {
            // Those that were sent closer to each other than a command takes may come in any order.
            let close = service.due(last.class, Nanos::ZERO).unwrap_or(Nanos::ZERO);
            self.in_order = last.at.0.abs_diff(sent.0) < close.0;
        }
    }

    /// How many have completed since, if only so many are in flight.
    pub(super) fn gone(&self, in_flight: u32) -> u32 {
        self.commands.saturating_sub(in_flight)
    }

    fn batches(&self) -> impl DoubleEndedIterator<Item = &Sent> {
        (self.left..self.begun).filter_map(|at| self.ring[at % BATCHES].as_ref())
    }

    /// The oldest.
    #[inline]
    pub(super) fn class(&self) -> Option<Class> {
        if self.left == self.begun { None } else { self.ring[self.left % BATCHES].map(|sent| sent.class) }
    }

    /// The youngest ever, in flight or not.
    pub(super) fn latest(&self) -> Option<Class> {
        self.ring[self.begun.checked_sub(1)? % BATCHES].map(|sent| sent.class)
    }

    /// Before this no completion is likely. `None`: nothing is known.
    ///
    /// Those in flight are at least as old as they look: what looks slow is. But if there are several, and some have overtaken others,
    /// it may be so for longer; `guesses` tells whether to rely on it nevertheless.
    #[inline]
    pub(super) fn first(&self, now: Nanos, service: &Service, guesses: bool) -> Option<Nanos> {
        let guesses = guesses || self.in_order || self.begun - self.left == 1;
        let (mut first, mut left) = (None, FRONT);
        for sent in self.batches() {
            let slow = service.slow_due(sent.class, now - sent.at).filter(|_| guesses);
            let due = sent.at + slow.or_else(|| service.due(sent.class, Nanos::ZERO))?;
            first = Some(first.map_or(due, |first: Nanos| first.min(due)));
            // Those that look slow tell nothing of the others.
            left -= usize::from(slow.is_none());
            if left == 0 {
                break;
            }
        }
        first
    }

    /// When the youngest batch, and so all of them, turns out to be slow, if it has not yet.
    pub(super) fn turns_slow(&self, now: Nanos, service: &Service) -> Option<Nanos> {
        let youngest = self.batches().next_back()?;
        service.slow_from(youngest.class).map(|age| youngest.at + age).filter(|&instant| instant > now)
    }

    /// How many do not look slow.
    pub(super) fn quick(&self, now: Nanos, service: &Service) -> u32 {
        self.batches().filter(|sent| service.slow_due(sent.class, now - sent.at).is_none()).map(|sent| sent.commands).sum()
    }

    /// When the oldest was sent.
    pub(super) fn since(&self) -> Option<Nanos> {
        self.batches().next().map(|oldest| oldest.at)
    }

    /// When most of everything has completed. With `spare`, when all have but for so many of the youngest. Slow ones only count
    /// if nothing else is in flight.
    pub(super) fn last(&self, now: Nanos, service: &Service, spare: Option<u32>) -> Nanos {
        let (mut last, mut slow) = (Nanos::ZERO, Nanos::ZERO);
        let mut left = spare.unwrap_or(0);
        for sent in self.batches().rev() {
            match service.slow_due(sent.class, now - sent.at) {
                Some(due) => slow = slow.max(sent.at + due),
                None if sent.commands <= left => left -= sent.commands,
                None if spare.is_some() => return sent.at + service.most(sent.class),
                None => last = last.max(sent.at + service.median(sent.class)),
            }
        }
        if last == Nanos::ZERO { slow } else { last }
    }

    /// How many are likely to have completed by then.
    pub(super) fn by(&self, now: Nanos, instant: Nanos, service: &Service) -> u32 {
        let due = |sent: &Sent| service.slow_due(sent.class, now - sent.at).unwrap_or_else(|| service.median(sent.class));
        self.batches().filter(|sent| sent.at + due(sent) <= instant).map(|sent| sent.commands).sum()
    }
}
