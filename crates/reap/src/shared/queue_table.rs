//! The hardware queues of a controller, and the list of software queues that no thread has taken.

use std::sync::{Arc, Mutex, PoisonError};

use super::hw_queue::HwQueue;
use super::queue_shared::QueueShared;
use crate::error::QueueError;

/// The hardware queues of a controller. The table of a file is empty.
#[derive(Default)]
pub(crate) struct QueueTable {
    queues: Vec<Arc<HwQueue>>,
    /// A stack of the free software queues: for each the hardware queue, and the index among its
    /// users.
    free: Mutex<Vec<(usize, u8)>>,
    /// Number of software queues.
    software_queues: usize,
}

impl QueueTable {
    /// `free`: all software queues, each as its hardware queue and the index among its users, in
    /// descending order, so that the lowest is taken first.
    pub(crate) fn new(queues: Vec<Arc<HwQueue>>, free: Vec<(usize, u8)>) -> QueueTable {
        let software_queues = free.len();
        QueueTable { queues, free: Mutex::new(free), software_queues }
    }

    /// All hardware queues.
    pub(crate) fn all(&self) -> &[Arc<HwQueue>] {
        &self.queues
    }

    /// Takes a software queue for the calling thread. Returns its hardware queue, and the index
    /// among its users.
    ///
    /// # Errors
    /// All queues are taken.
    pub(crate) fn take(&self) -> Result<(Arc<HwQueue>, u8), QueueError> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (hardware, index) =
            free.ok_or(QueueError::AllTaken { queues: self.software_queues })?;
        Ok((self.queues[hardware].clone(), index))
    }

    /// Makes a queue free again. Returns false if it is not a queue of this table.
    pub(crate) fn give_back(&self, queue: &Arc<QueueShared>) -> bool {
        // A search is fast enough, because each queue is given back only once.
        let of = |hardware: &Arc<HwQueue>| {
            hardware.users.iter().position(|user| Arc::ptr_eq(user, queue))
        };
        let found =
            (0..).zip(&self.queues).find_map(|(n, hardware)| Some((n, of(hardware)? as u8)));
        self.free.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
        found.is_some()
    }
}
