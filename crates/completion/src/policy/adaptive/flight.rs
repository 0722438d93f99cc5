//! What is in flight, oldest first, as far as predicting the next completion needs it.
//!
//! Commands leave in the order in which they came, because only their number is known here: which ones completed would
//! cost a record for each. On a device that overtakes, the commands that stay are older than they look, and are then
//! looked for too late by no more than the spread of their times.

use units::{Class, Nanos};

use super::service::Service;

/// Batches that are told apart; what comes on top is counted with the youngest. A power of two.
const BATCHES: usize = 32;

/// How many of the oldest may complete first.
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
}

impl Flight {
    pub(super) fn new() -> Flight {
        Flight { ring: [None; BATCHES], begun: 0, left: 0, commands: 0 }
    }

    #[inline]
    pub(super) fn sent(&mut self, at: Nanos, commands: u32, class: Class) {
        self.commands = self.commands.saturating_add(commands);
        if self.begun - self.left == BATCHES {
            if let Some(youngest) = &mut self.ring[(self.begun - 1) % BATCHES] {
                youngest.commands = youngest.commands.saturating_add(commands);
            }
            return;
        }
        self.ring[self.begun % BATCHES] = Some(Sent { at, commands, class });
        self.begun += 1;
    }

    /// Only so many are in flight: the oldest have completed.
    #[inline]
    pub(super) fn keep(&mut self, in_flight: u32) {
        while self.commands > in_flight && self.left < self.begun {
            let Some(oldest) = &mut self.ring[self.left % BATCHES] else { return };
            let gone = oldest.commands.min(self.commands - in_flight);
            oldest.commands -= gone;
            self.commands -= gone;
            if oldest.commands == 0 {
                self.left += 1;
            }
        }
    }

    fn batches(&self) -> impl Iterator<Item = &Sent> {
        (self.left..self.begun).filter_map(|at| self.ring[at % BATCHES].as_ref())
    }

    /// The oldest.
    #[inline]
    pub(super) fn class(&self) -> Option<Class> {
        if self.left == self.begun { None } else { self.ring[self.left % BATCHES].map(|sent| sent.class) }
    }

    /// Before this no completion is likely. `None`: nothing is known.
    #[inline]
    pub(super) fn first(&self, now: Nanos, service: &Service) -> Option<Nanos> {
        let mut first = None;
        for sent in self.batches().take(FRONT) {
            // Which of several is the slow one is not known.
            let age = if self.begun - self.left == 1 { now - sent.at } else { Nanos::ZERO };
            let due = sent.at + service.due(sent.class, age)?;
            first = Some(first.map_or(due, |first: Nanos| first.min(due)));
        }
        first
    }

    /// When the only batch turns out to be a slow one, if it has not yet.
    pub(super) fn turns_slow(&self, now: Nanos, service: &Service) -> Option<Nanos> {
        let oldest = self.batches().next().filter(|_| self.begun - self.left == 1)?;
        service.slow_from(oldest.class).map(|age| oldest.at + age).filter(|&instant| instant > now)
    }

    /// When the oldest was sent.
    pub(super) fn since(&self) -> Option<Nanos> {
        self.batches().next().map(|oldest| oldest.at)
    }

    /// When most of everything has.
    pub(super) fn last(&self, service: &Service) -> Nanos {
        self.batches().map(|sent| sent.at + service.median(sent.class)).max().unwrap_or(Nanos::ZERO)
    }

    /// How many are likely to have completed by then.
    pub(super) fn by(&self, instant: Nanos, service: &Service) -> u32 {
        self.batches().filter(|sent| sent.at + service.median(sent.class) <= instant).map(|sent| sent.commands).sum()
    }
}
