//! `numa`: the path whose controller is nearest to the CPU that asks, and always the same one.

use super::set::{PathId, PathSet};

/// How far each path's controller is from each memory node, in the units of the firmware's table (10: the same node).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distances(pub Vec<Vec<u8>>);

impl Distances {
    /// What a distance that nobody has given counts as: farther than any.
    pub const UNKNOWN: u8 = u8::MAX;

    fn between(&self, node: u16, path: PathId) -> u8 {
        let row = self.0.get(usize::from(node));
        row.and_then(|row| row.get(usize::from(path.0))).copied().unwrap_or(Distances::UNKNOWN)
    }

    /// The nearest; of several, the first.
    #[inline]
    pub(super) fn choose(&self, usable: PathSet, node: u16) -> Option<PathId> {
        usable.iter().min_by_key(|&path| self.between(node, path))
    }
}
