//! How the simulated thread is told: each queue's vector signals an eventfd, as under VFIO. Queues may share a vector.

use std::cell::Cell;
use std::rc::Rc;

use completion::{Notifier, QueueSet};
use nvme::Vector;

use crate::port::Vectors;

/// The vectors of one thread's queues, and the eventfds behind them.
#[derive(Debug)]
pub(crate) struct PerVector {
    vectors: Rc<Vectors>,
    /// By queue.
    lines: Vec<Vector>,
    /// Signalled and not read: eventfds are sticky.
    signalled: Cell<QueueSet>,
}

impl PerVector {
    pub(crate) fn new(vectors: Rc<Vectors>, lines: Vec<Vector>) -> PerVector {
        PerVector { vectors, lines, signalled: Cell::default() }
    }

    /// The interrupt handler signals a vector's eventfd.
    pub(crate) fn signal(&self, vector: Vector) {
        let mut signalled = self.signalled.get();
        let told = self.lines.iter().enumerate().filter(|&(_, &line)| line == vector);
        told.for_each(|(queue, _)| signalled.insert(queue));
        self.signalled.set(signalled);
    }

    /// Whether blocking would return at once.
    pub(crate) fn is_signalled(&self) -> bool {
        !self.signalled.get().is_empty()
    }
}

/// In virtual time the store that arms is its own fence.
impl Notifier for PerVector {
    fn arm(&self, queue: usize) {
        if let Some(&vector) = self.lines.get(queue) {
            self.vectors.arm(vector);
        }
    }

    fn mask(&self, queue: usize) {
        if let Some(&vector) = self.lines.get(queue) {
            self.vectors.mask(vector);
        }
    }

    fn pending(&self) -> QueueSet {
        self.signalled.take()
    }
}
