//! `queue-depth`: the path with the fewest requests in flight, and the five places where that can be counted (post 004).

use crossbeam_utils::CachePadded;
use handover::sync::atomic::AtomicU32;
use handover::sync::atomic::Ordering::Relaxed;

use super::lines::{Line, Lines, Table};
use super::set::{PathId, PathSet};
use super::{Place, Shape};

/// Where requests in flight are counted. Each count has a cache line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counting {
    /// By hardware queue, and whoever chooses adds all of a path's up: right, and as slow as there are queues.
    Sum,
    /// One count for each path, which every CPU writes to: right, and as slow as the CPUs that share it.
    Controller,
    /// One for each path and namespace: shared by fewer.
    Namespace,
    /// By hardware queue; whoever chooses sees his own queue's only. Shared by the threads of that queue.
    Queue,
    /// By CPU; whoever chooses sees his own CPU's only. Shared with whoever reaps.
    Cpu,
}

impl Counting {
    /// The table that requests are counted in.
    #[inline]
    pub(super) fn table(self) -> Table {
        match self {
            Counting::Controller => Table::Controllers,
            Counting::Namespace => Table::Namespaces,
            Counting::Sum | Counting::Queue => Table::Queues,
            Counting::Cpu => Table::Cpus,
        }
    }

    /// The place there, for all paths.
    #[inline]
    pub(super) fn at(self, place: &Place) -> u16 {
        match self {
            Counting::Controller => 0,
            Counting::Namespace => place.namespace,
            Counting::Sum | Counting::Queue => place.queue,
            Counting::Cpu => place.cpu,
        }
    }
}

/// The counts of all five.
pub(super) struct Counts {
    controllers: Tallies,
    namespaces: Tallies,
    queues: Tallies,
    cpus: Tallies,
}

impl Counts {
    pub(super) fn new(shape: &Shape) -> Counts {
        let paths = usize::from(shape.paths);
        let tallies = |places: u16| Tallies::new(paths, places.into());
        Counts { controllers: tallies(1), namespaces: tallies(shape.namespaces), queues: tallies(shape.queues), cpus: tallies(shape.cpus) }
    }

    #[inline]
    fn tallies(&self, table: Table) -> Option<&Tallies> {
        match table {
            Table::Controllers => Some(&self.controllers),
            Table::Namespaces => Some(&self.namespaces),
            Table::Queues => Some(&self.queues),
            Table::Cpus => Some(&self.cpus),
            Table::Cursors | Table::Load | Table::Learnt | Table::Explorers => None,
        }
    }

    /// The path with the fewest in flight; of several, the first from the place's own on.
    #[inline]
    pub(super) fn choose(&self, counting: Counting, usable: PathSet, place: &Place, lines: &mut impl Lines) -> Option<PathId> {
        if counting == Counting::Sum {
            return usable.iter_from(place.first).min_by_key(|&path| self.queues.sum(path, lines));
        }
        let (table, at) = (counting.table(), counting.at(place));
        let tallies = self.tallies(table)?;
        let row = tallies.row(at);
        usable.iter_from(place.first).min_by_key(|&path| {
            lines.read(tallies.line(table, at, path));
            row.get(usize::from(path.0)).map_or(u32::MAX, |count| count.load(Relaxed))
        })
    }

    #[inline]
    pub(super) fn add(&self, table: Table, at: u16, path: PathId, lines: &mut impl Lines) {
        let Some(tallies) = self.tallies(table) else { return };
        lines.write(tallies.line(table, at, path));
        if let Some(count) = tallies.row(at).get(usize::from(path.0)) {
            count.fetch_add(1, Relaxed);
        }
    }

    #[inline]
    pub(super) fn take(&self, table: Table, at: u16, path: PathId, lines: &mut impl Lines) {
        let Some(tallies) = self.tallies(table) else { return };
        lines.write(tallies.line(table, at, path));
        if let Some(count) = tallies.row(at).get(usize::from(path.0)) {
            count.fetch_sub(1, Relaxed);
        }
    }

    /// Everything that is counted, of all paths and tables.
    pub(super) fn total(&self) -> u64 {
        [&self.controllers, &self.namespaces, &self.queues, &self.cpus].iter().map(|tallies| tallies.total()).sum()
    }

    /// What is counted of `path`.
    pub(super) fn of(&self, path: PathId) -> u64 {
        [&self.controllers, &self.namespaces, &self.queues, &self.cpus].iter().map(|tallies| u64::from(tallies.sum(path, &mut ()))).sum()
    }
}

/// Counts by place and path; each on a cache line of its own.
struct Tallies {
    counts: Box<[CachePadded<AtomicU32>]>,
    paths: usize,
}

impl Tallies {
    fn new(paths: usize, places: usize) -> Tallies {
        Tallies { counts: (0..paths * places).map(|_| CachePadded::new(AtomicU32::new(0))).collect(), paths }
    }

    /// A place's counts, one for each path.
    #[inline]
    fn row(&self, at: u16) -> &[CachePadded<AtomicU32>] {
        let from = usize::from(at) * self.paths;
        self.counts.get(from..from + self.paths).unwrap_or_default()
    }

    #[inline]
    fn line(&self, table: Table, at: u16, path: PathId) -> Line {
        Line { table, at: u32::from(at) * self.paths as u32 + u32::from(path.0) }
    }

    /// All of a path's counts: a cache line for each hardware queue, most of them last written by another CPU.
    fn sum(&self, path: PathId, lines: &mut impl Lines) -> u32 {
        let mut sum = 0u32;
        let mut at = usize::from(path.0);
        while let Some(count) = self.counts.get(at) {
            lines.read(Line { table: Table::Queues, at: at as u32 });
            sum = sum.wrapping_add(count.load(Relaxed));
            at += self.paths;
        }
        sum
    }

    fn total(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(count.load(Relaxed))).sum()
    }
}

#[cfg(all(test, loom))]
impl Counts {
    /// What a count down must not be: for the twin of the model.
    pub(super) fn take_in_two_steps(&self, path: PathId) {
        if let Some(count) = self.controllers.row(0).get(path.index()) {
            count.store(count.load(Relaxed).wrapping_sub(1), Relaxed);
        }
    }
}
