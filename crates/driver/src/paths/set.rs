//! Paths by number, and sets of them.

use std::fmt;

/// One way to a namespace: a controller of its subsystem. Numbered in the order in which the paths were given, below
/// [`PathSet::MOST`].
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

/// Some of the paths, as bits. What a selector chooses from: the ones that are up, in the best ANA state that any of them
/// is in.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
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

    /// The first `paths` of them, [`PathSet::MOST`] at most.
    pub const fn below(paths: usize) -> PathSet {
        PathSet(if paths >= PathSet::MOST { u64::MAX } else { (1 << paths) - 1 })
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether there is nothing to choose from.
    #[inline]
    pub const fn is_at_most_one(self) -> bool {
        self.0 & self.0.wrapping_sub(1) == 0
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
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = PathId> {
        self.iter_from(0)
    }

    /// In ascending order from `first` on, and then from 0: so that not everybody who finds all paths alike takes the
    /// same one.
    #[inline]
    pub fn iter_from(self, first: u8) -> impl Iterator<Item = PathId> {
        let mut left = self.0.rotate_right(u32::from(first));
        std::iter::from_fn(move || {
            let next = left.trailing_zeros();
            if next >= u64::BITS {
                return None;
            }
            left &= left - 1;
            Some(PathId((next as u8).wrapping_add(first) % PathSet::MOST as u8))
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

/// More paths than there can be, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} paths: there have to be 1 to {most}", most = PathSet::MOST)]
pub struct TooManyPaths(pub usize);
