//! How many paths, queues, CPUs and namespaces there are.

use super::numa::Distances;
use super::set::PathSet;

/// How many there are of everything that requests are counted by. Places past the last go round again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Paths, 1 to [`PathSet::MOST`].
    pub paths: u8,
    /// Hardware queues of each path.
    pub queues: u16,
    /// CPUs that submit.
    pub cpus: u16,
    /// Namespaces that share the paths.
    pub namespaces: u16,
    /// For `numa`: how far the paths' controllers are.
    pub distances: Distances,
}

/// A shape that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{paths} paths, {queues} queues, {cpus} CPUs and {namespaces} namespaces: there have to be 1 to 64 paths, and one of each other")]
pub struct ShapeError {
    /// As given.
    pub paths: u8,
    /// As given.
    pub queues: u16,
    /// As given.
    pub cpus: u16,
    /// As given.
    pub namespaces: u16,
}

impl Shape {
    /// The shape, if it can be.
    pub(super) fn legal(self) -> Result<Shape, ShapeError> {
        let Shape { paths, queues, cpus, namespaces, .. } = self;
        if paths == 0 || usize::from(paths) > PathSet::MOST || queues == 0 || cpus == 0 || namespaces == 0 {
            return Err(ShapeError { paths, queues, cpus, namespaces });
        }
        Ok(self)
    }
}
