//! Limit on the memory of sparse media.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::MediaError;

/// A limit in bytes on the memory that media allocate, shared by its clones: sparse devices may be
/// larger than the machine's memory.
#[derive(Clone, Debug)]
pub struct Budget {
    left: Arc<AtomicU64>,
    limit: u64,
}

impl Budget {
    /// A budget of `bytes`. A quarter of the machine's memory is a reasonable value.
    pub fn new(bytes: u64) -> Budget {
        Budget { left: Arc::new(AtomicU64::new(bytes)), limit: bytes }
    }

    /// Bytes not allocated yet.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    pub(super) fn take(&self, bytes: u64) -> Result<(), MediaError> {
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        taken.map(drop).map_err(|_| self.full())
    }

    /// The error when the budget is exhausted.
    pub(super) fn full(&self) -> MediaError {
        MediaError::Full { limit: self.limit }
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}
