//! `round-robin`: one after the other. Each hardware queue goes round on its own, so that queues share nothing.

use crossbeam_utils::CachePadded;
use sync::atomic::AtomicU32;
use sync::atomic::Ordering::Relaxed;

use super::lines::{Line, Lines, Table};
use super::set::{PathId, PathSet};

/// The last path that each hardware queue took.
pub(super) struct Cursors(Box<[CachePadded<AtomicU32>]>);

impl Cursors {
    /// Queue `q` begins with path `q`, so that they do not all begin with the same one.
    pub(super) fn new(queues: u16) -> Cursors {
        Cursors(
            (0..u32::from(queues)).map(|queue| CachePadded::new(AtomicU32::new(queue.wrapping_sub(1) % PathSet::MOST as u32))).collect(),
        )
    }

    /// The next one after the last. Where threads share the queue two of them may take the same, and it goes on from
    /// there: nothing is counted here.
    #[inline]
    pub(super) fn choose(&self, usable: PathSet, queue: u16, lines: &mut impl Lines) -> Option<PathId> {
        let next = usable.iter_from(self.next(queue)).next()?;
        self.set(queue, next, lines);
        Some(next)
    }

    /// Where a queue goes on; [`Cursors::set`] follows, which tells of the line.
    #[inline]
    pub(super) fn next(&self, queue: u16) -> u8 {
        let last = self.0.get(usize::from(queue)).map_or(0, |cursor| cursor.load(Relaxed));
        (last.wrapping_add(1) % PathSet::MOST as u32) as u8
    }

    /// It goes on with this one.
    #[inline]
    pub(super) fn set_next(&self, queue: u16, next: PathId, lines: &mut impl Lines) {
        self.set(queue, PathId(next.0.wrapping_sub(1) % PathSet::MOST as u8), lines);
    }

    /// A queue has taken this one last.
    #[inline]
    pub(super) fn set(&self, queue: u16, path: PathId, lines: &mut impl Lines) {
        lines.write(Line { table: Table::Cursors, at: queue.into() });
        if let Some(cursor) = self.0.get(usize::from(queue)) {
            cursor.store(path.0.into(), Relaxed);
        }
    }
}
