//! Path numbers and sets of them, as bits of one word.

use std::fmt;

/// A path to a namespace: one controller of its subsystem. Numbered in the order in which the paths
/// were given, below [`PathSet::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u8);

impl PathId {
    /// As an index.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of paths. A selector chooses from the paths that are up and in the best ANA state that any
/// of them has.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PathSet(pub u64);

impl PathSet {
    /// Maximum paths of a namespace.
    pub const MAX: usize = 64;
    /// No path.
    pub const NONE: PathSet = PathSet(0);

    /// One path.
    #[inline]
    pub const fn of(path: PathId) -> PathSet {
        // Masked: a shift by 64 or more would panic in a debug build.
        PathSet(1 << (path.0 & 63))
    }

    /// The first `paths` paths, at most [`PathSet::MAX`].
    pub const fn below(paths: usize) -> PathSet {
        PathSet(if paths >= PathSet::MAX { u64::MAX } else { (1 << paths) - 1 })
    }

    /// Whether the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether there is nothing to choose: at most one path.
    #[inline]
    pub const fn is_at_most_one(self) -> bool {
        // Clears the lowest bit; cheaper than a population count.
        self.0 & self.0.wrapping_sub(1) == 0
    }

    /// Number of paths.
    #[inline]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether `path` is in the set.
    #[inline]
    pub const fn contains(self, path: PathId) -> bool {
        self.0 & PathSet::of(path).0 != 0
    }

    /// The path with the lowest number.
    #[inline]
    pub const fn first(self) -> Option<PathId> {
        if self.0 == 0 { None } else { Some(PathId(self.0.trailing_zeros() as u8)) }
    }

    /// The set with `path`.
    #[inline]
    #[must_use]
    pub const fn with(self, path: PathId) -> PathSet {
        PathSet(self.0 | PathSet::of(path).0)
    }

    /// The set without the paths of `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: PathSet) -> PathSet {
        PathSet(self.0 & !other.0)
    }

    /// The paths in both sets.
    #[inline]
    #[must_use]
    pub const fn and(self, other: PathSet) -> PathSet {
        PathSet(self.0 & other.0)
    }

    /// The paths in ascending order.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = PathId> {
        self.iter_from(0)
    }

    /// The paths in ascending order from `first`, then from 0. Threads that see all paths as equal
    /// start at different ones.
    #[inline]
    pub fn iter_from(self, first: u8) -> impl Iterator<Item = PathId> {
        // Rotated, so that `first` is bit 0 and the order wraps by itself.
        let mut left = self.0.rotate_right(u32::from(first));
        std::iter::from_fn(move || {
            let next = left.trailing_zeros();
            if next >= u64::BITS {
                return None;
            }
            left &= left - 1;
            Some(PathId((next as u8).wrapping_add(first) % PathSet::MAX as u8))
        })
    }
}

impl FromIterator<PathId> for PathSet {
    fn from_iter<I: IntoIterator<Item = PathId>>(paths: I) -> PathSet {
        paths.into_iter().fold(PathSet::NONE, PathSet::with)
    }
}

impl fmt::Debug for PathSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|path| path.0)).finish()
    }
}

/// No path, or more than [`PathSet::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} paths: there must be 1 to {max}", max = PathSet::MAX)]
pub struct TooManyPaths(pub usize);
