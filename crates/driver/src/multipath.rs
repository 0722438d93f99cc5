//! Multipath: several controllers of one subsystem as ways to one namespace.
//!
//! [`join`] judges whether controllers lead to the same namespace. [`Failover`] then decides, as a state machine without
//! I/O, what becomes of each request: which paths it may be sent on, whether it is sent again when one fails, when that is
//! safe, and when to give it up. Who chooses among the paths that it allows is a selector's business (`blkmq`).
//!
//! Each software queue has a [`Failover`] of its own, and is told of every path event; what concerns all of them, which
//! paths have unflushed writes, lies in [`WriteMarks`].

mod failover;
mod flush;
mod identity;
mod marks;
mod path;
mod slots;
mod verdict;

pub use failover::{Action, Counters, Ended, Failover, FailoverConfig, Failure, Submitted, TooManyPaths};
pub use identity::{Field, JoinError, Joined, PathIdentity, join};
pub use marks::WriteMarks;
pub use path::{Link, PathStatus, PathTraits};
pub use slots::RequestId;
pub use verdict::{Verdict, verdict};

/// One of the paths to a namespace, by its place in the list that was joined: below [`PathSet::MOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u8);

impl PathId {
    /// As an index.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl std::fmt::Display for PathId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of paths, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathSet(pub u64);

impl PathSet {
    /// The most paths that a namespace can have.
    pub const MOST: usize = 64;
    /// No path.
    pub const NONE: PathSet = PathSet(0);

    /// One path.
    #[inline]
    pub const fn of(path: PathId) -> PathSet {
        PathSet(1 << (path.0 & 63))
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many.
    #[inline]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether `path` is one of them.
    #[inline]
    pub const fn contains(self, path: PathId) -> bool {
        self.0 & PathSet::of(path).0 != 0
    }

    /// The one with the lowest number.
    #[inline]
    pub const fn first(self) -> Option<PathId> {
        if self.0 == 0 { None } else { Some(PathId(self.0.trailing_zeros() as u8)) }
    }

    /// With `path`.
    #[inline]
    #[must_use]
    pub const fn with(self, path: PathId) -> PathSet {
        PathSet(self.0 | PathSet::of(path).0)
    }

    /// Without these.
    #[inline]
    #[must_use]
    pub const fn without(self, other: PathSet) -> PathSet {
        PathSet(self.0 & !other.0)
    }

    /// Those that are in both.
    #[inline]
    #[must_use]
    pub const fn and(self, other: PathSet) -> PathSet {
        PathSet(self.0 & other.0)
    }

    /// In ascending order.
    pub fn iter(self) -> impl Iterator<Item = PathId> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let path = rest.first()?;
            rest = rest.without(PathSet::of(path));
            Some(path)
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
