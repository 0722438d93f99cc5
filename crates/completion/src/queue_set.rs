//! Which queues of one thread have called.

/// A set of one thread's queues, by their index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSet([u64; 4]);

impl QueueSet {
    /// Most queues of one thread: the bits of a posted-interrupt descriptor.
    pub const MOST: usize = 256;
    /// No queue.
    pub const EMPTY: QueueSet = QueueSet([0; 4]);

    /// Adds a queue. Indices from [`QueueSet::MOST`] on are left out.
    #[inline]
    pub fn insert(&mut self, queue: usize) {
        if let Some(word) = self.0.get_mut(queue / 64) {
            *word |= 1 << (queue % 64);
        }
    }

    /// Whether a queue is in the set.
    #[inline]
    pub fn contains(&self, queue: usize) -> bool {
        self.0.get(queue / 64).is_some_and(|word| word >> (queue % 64) & 1 == 1)
    }

    /// Whether no queue is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        *self == QueueSet::EMPTY
    }

    /// The queues, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let at = left.iter().position(|&word| word != 0)?;
            let bit = left[at].trailing_zeros() as usize;
            left[at] &= left[at] - 1;
            Some(at * 64 + bit)
        })
    }
}

impl FromIterator<usize> for QueueSet {
    fn from_iter<I: IntoIterator<Item = usize>>(queues: I) -> QueueSet {
        let mut set = QueueSet::EMPTY;
        queues.into_iter().for_each(|queue| set.insert(queue));
        set
    }
}

#[cfg(test)]
mod tests;
