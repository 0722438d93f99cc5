//! The I/O queue pairs that bring-up creates.

use nvme::{QueueId, Vector};

use crate::QueueSizes;

/// The I/O queue pairs wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedQueues {
    /// New ones, as far as the controller grants them.
    New {
        /// Commands in flight on each, as far as the controller allows.
        depth: u32,
        /// One for each queue pair: the vector that its completions raise, or `None` for a queue that is only polled.
        vectors: Vec<Option<Vector>>,
    },
    /// After a reset: the ones that there were, with the same memory. If the controller now grants less, that is an error.
    Again(Vec<QueueLayout>),
}

/// An I/O queue pair as it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLayout {
    /// Identifier of both queues.
    pub id: QueueId,
    /// Sizes.
    pub sizes: QueueSizes,
    /// Bus address of the submission queue.
    pub sq: u64,
    /// Bus address of the completion queue, zeroed.
    pub cq: u64,
    /// The vector that completions raise.
    pub vector: Option<Vector>,
}
