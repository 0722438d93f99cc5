//! What happens when: a queue of future events in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use units::Nanos;

/// Future events, in order of time and, at the same instant, of scheduling. That order is all there is: no addresses,
/// no hashes, so that the same seed gives the same run.
#[derive(Debug)]
pub(crate) struct Events<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    scheduled: u64,
}

/// Names one scheduled event. An event that is no longer wanted stays in the queue; whoever gets it compares tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

#[derive(Debug)]
struct Entry<E> {
    at: Nanos,
    ticket: Ticket,
    event: E,
}

impl<E> Events<E> {
    pub(crate) fn new() -> Events<E> {
        Events { heap: BinaryHeap::new(), scheduled: 0 }
    }

    /// Has `event` happen at `at`. At [`Nanos::MAX`] it never does.
    pub(crate) fn schedule(&mut self, at: Nanos, event: E) -> Ticket {
        self.scheduled += 1;
        let ticket = Ticket(self.scheduled);
        if at < Nanos::MAX {
            self.heap.push(Reverse(Entry { at, ticket, event }));
        }
        ticket
    }

    /// The next event.
    pub(crate) fn pop(&mut self) -> Option<(Nanos, Ticket, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.ticket, entry.event))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.ticket == other.ticket
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.ticket).cmp(&(other.at, other.ticket))
    }
}

#[cfg(test)]
mod tests;
