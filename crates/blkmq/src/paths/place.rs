//! Where requests come from, and which counts are that place's own.

use std::cell::Cell;
use std::marker::PhantomData;

use super::count::{NO_ROW, Rows};
use super::shape::Shape;

/// What requests in flight are counted by: the kinds of rows of a selector's counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Controllers,
    Namespaces,
    Queues,
    Cpus,
    /// By `latency`: load, by hardware queue.
    Loads,
}

impl Kind {
    pub(super) const ALL: [Kind; 5] = [Kind::Controllers, Kind::Namespaces, Kind::Queues, Kind::Cpus, Kind::Loads];

    /// The kind of a number (`as u8`); of any that is none, the last.
    #[inline]
    pub(super) fn of_number(number: u8) -> Kind {
        Kind::ALL.get(usize::from(number)).copied().unwrap_or(Kind::Loads)
    }

    /// Rows of this kind.
    pub(super) fn rows(self, shape: &Shape) -> u32 {
        match self {
            Kind::Controllers => 1,
            Kind::Namespaces => shape.namespaces.into(),
            Kind::Queues | Kind::Loads => shape.queues.into(),
            Kind::Cpus => shape.cpus.into(),
        }
    }

    /// The first of them, among all rows.
    pub(super) fn first(self, shape: &Shape) -> u32 {
        Kind::ALL.into_iter().take_while(|&kind| kind != self).map(|kind| kind.rows(shape)).sum()
    }
}

/// Where a thread's requests come from: [`super::Paths::place`]. One thread has it at a time; it may be sent to another.
///
/// It owns the counts that it was the first to ask for, and changes them without a locked instruction. It goes back by
/// [`super::Paths::leave`]; if it is dropped without, those counts stay without an owner: exact, and slower.
#[derive(Debug)]
pub struct Place {
    pub(super) queue: u16,
    pub(super) node: u16,
    /// Which path it looks at first; where all are alike it is taken.
    pub(super) first: u8,
    /// By kind, the row that its requests are counted in, and the same if it owns that.
    rows: [u32; Place::KINDS],
    own: [u32; Place::KINDS],
    /// Two threads that used it at the same time would both be the owner.
    _one_thread: PhantomData<Cell<()>>,
}

impl Place {
    /// A power of two, so that a kind's number needs no check.
    const KINDS: usize = 8;

    pub(super) fn new(queue: u16, node: u16, first: u8) -> Place {
        Place { queue, node, first, rows: [NO_ROW; Place::KINDS], own: [NO_ROW; Place::KINDS], _one_thread: PhantomData }
    }

    /// The row of this kind.
    #[inline]
    pub(super) fn row(&self, kind: Kind) -> u32 {
        self.rows[kind as usize % Place::KINDS]
    }

    /// Whether a row of this kind is its own.
    #[inline]
    pub(super) fn owns(&self, kind: Kind, row: u32) -> bool {
        self.own[kind as usize % Place::KINDS] == row
    }

    /// From now on its requests are counted in this row of the kind.
    pub(super) fn settle(&mut self, kind: Kind, row: u32, rows: &Rows) {
        self.vacate(kind, rows);
        self.rows[kind as usize % Place::KINDS] = row;
        if rows.claim(row) {
            self.own[kind as usize % Place::KINDS] = row;
        }
    }

    /// Somebody else may own what it owned.
    pub(super) fn vacate(&mut self, kind: Kind, rows: &Rows) {
        let own = std::mem::replace(&mut self.own[kind as usize % Place::KINDS], NO_ROW);
        rows.give_up(own);
    }
}

#[cfg(all(test, loom))]
impl Place {
    /// For a twin: claims what it does not own without seeing what the last owner wrote.
    pub(super) fn settle_unseen(&mut self, rows: &Rows) {
        for kind in Kind::ALL {
            let row = self.row(kind);
            if !self.owns(kind, row) && rows.claim_unseen(row) {
                self.own[kind as usize % Place::KINDS] = row;
            }
        }
    }
}
