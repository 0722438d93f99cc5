//! `queue-depth`: the path with the fewest requests in flight, and the five places where that can be counted (post 004).

use super::count::Rows;
use super::lines::Lines;
use super::place::{Kind, Place};
use super::set::{PathId, PathSet};
use super::shape::Shape;

/// Where requests in flight are counted. Each count has a cache line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counting {
    /// By hardware queue, and the thread that chooses adds all of a path's up: right, and as slow as there are queues.
    Sum,
    /// One count for each path, which every CPU writes to: right, and as slow as the CPUs that share it.
    Controller,
    /// One for each path and namespace: shared by fewer.
    Namespace,
    /// By hardware queue; the thread that chooses sees its own queue's only. Shared by the threads of that queue.
    Queue,
    /// By CPU; the thread that chooses sees its own CPU's only. Shared with the thread that reaps.
    Cpu,
}

impl Counting {
    /// The kind of row that requests are counted in.
    #[inline]
    pub(super) fn kind(self) -> Kind {
        match self {
            Counting::Controller => Kind::Controllers,
            Counting::Namespace => Kind::Namespaces,
            Counting::Sum | Counting::Queue => Kind::Queues,
            Counting::Cpu => Kind::Cpus,
        }
    }
}

/// The path with the fewest in flight; of several, the first from the place's own on.
#[inline]
pub(super) fn choose(
    rows: &Rows,
    counting: Counting,
    shape: &Shape,
    usable: PathSet,
    place: &Place,
    lines: &mut impl Lines,
) -> Option<PathId> {
    if counting == Counting::Sum {
        return usable.iter_from(place.first).min_by_key(|&path| sum(rows, shape, path, lines));
    }
    rows.least(place.row(counting.kind()), usable, place.first, lines)
}

/// What a path has in flight on all hardware queues.
pub(super) fn sum(rows: &Rows, shape: &Shape, path: PathId, lines: &mut impl Lines) -> u32 {
    let first = Kind::Queues.first(shape);
    rows.sum(first..first + u32::from(shape.queues), path, lines)
}
