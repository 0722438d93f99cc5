//! The hardware queues of a controller, and the list of software queues that no thread has taken.

use std::sync::{Arc, Mutex, PoisonError};

use super::hw_queue::HwQueue;
use super::queue_shared::QueueShared;
use crate::error::QueueError;

/// The hardware queues of a controller. A file has none.
#[derive(Default)]
pub(crate) struct QueueTable {
    queues: Vec<Arc<HwQueue>>,
    /// The free software queues: hardware queue, and index in it. A stack.
    free: Mutex<Vec<(usize, u8)>>,
    /// Number of software queues.
    most: usize,
}

impl QueueTable {
    /// `free`: hardware queue, and index in it, in descending order, so that the first taken is the
    /// lowest.
    pub(crate) fn new(queues: Vec<Arc<HwQueue>>, free: Vec<(usize, u8)>) -> QueueTable {
        let most = free.len();
        QueueTable { queues, free: Mutex::new(free), most }
    }

    /// All hardware queues.
    pub(crate) fn all(&self) -> &[Arc<HwQueue>] {
        &self.queues
    }

    /// Takes a software queue for the calling thread: its hardware queue, and its index there.
    ///
    /// # Errors
    /// All queues are taken.
    pub(crate) fn take(&self) -> Result<(Arc<HwQueue>, u8), QueueError> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (hardware, index) = free.ok_or(QueueError::AllTaken { queues: self.most })?;
        Ok((self.queues[hardware].clone(), index))
    }

    /// Makes a queue free again. Returns false if it is not a queue of this table.
    pub(crate) fn give_back(&self, queue: &Arc<QueueShared>) -> bool {
        // A search, because a queue is given back once, and need not carry its index for that.
        let of = |hardware: &Arc<HwQueue>| {
            hardware.users.iter().position(|user| Arc::ptr_eq(user, queue))
        };
        let found =
            (0..).zip(&self.queues).find_map(|(n, hardware)| Some((n, of(hardware)? as u8)));
        self.free.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
        found.is_some()
    }
}
