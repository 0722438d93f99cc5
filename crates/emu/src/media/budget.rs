//! How much memory media may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::MediaError;

/// A limit on what media really allocate, shared by clones: a sparse device may be larger than the
/// machine.
#[derive(Clone, Debug)]
pub struct Budget {
    left: Arc<AtomicU64>,
    limit: u64,
}

impl Budget {
    /// A budget of `bytes`. The caller decides; a quarter of the machine's memory is a good
    /// default.
    pub fn new(bytes: u64) -> Budget {
        Budget { left: Arc::new(AtomicU64::new(bytes)), limit: bytes }
    }

    /// Bytes not yet taken.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    pub(super) fn take(&self, bytes: u64) -> Result<(), MediaError> {
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        taken.map(drop).map_err(|_| self.full())
    }

    /// What is said when it is used up.
    pub(super) fn full(&self) -> MediaError {
        MediaError::Full { limit: self.limit }
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}
