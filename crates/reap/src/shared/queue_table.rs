//! The hardware queues of a controller, and which software queues of theirs no thread has.

use std::sync::{Arc, Mutex, PoisonError};

use super::hw_queue::HwQueue;
use super::queue_shared::QueueShared;
use crate::error::QueueError;

/// The hardware queues of a controller; of a file there are none.
#[derive(Default)]
pub(crate) struct QueueTable {
    queues: Vec<Arc<HwQueue>>,
    /// Hardware queue and place in it of each software queue that no thread has, in descending order.
    free: Mutex<Vec<(usize, u8)>>,
    /// Software queues that there are.
    most: usize,
}

impl QueueTable {
    /// `free`: hardware queue and place in it, in descending order.
    pub(crate) fn new(queues: Vec<Arc<HwQueue>>, free: Vec<(usize, u8)>) -> QueueTable {
        let most = free.len();
        QueueTable { queues, free: Mutex::new(free), most }
    }

    /// All hardware queues.
    pub(crate) fn all(&self) -> &[Arc<HwQueue>] {
        &self.queues
    }

    /// Takes a software queue for the calling thread: its hardware queue, and its place there.
    ///
    /// # Errors
    /// All of them are taken.
    pub(crate) fn take(&self) -> Result<(Arc<HwQueue>, u8), QueueError> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (hardware, me) = free.ok_or(QueueError::AllTaken { queues: self.most })?;
        Ok((self.queues[hardware].clone(), me))
    }

    /// No thread has the queue any more. False: it is none of these.
    pub(crate) fn give_back(&self, queue: &Arc<QueueShared>) -> bool {
        let of = |hardware: &Arc<HwQueue>| hardware.users.iter().position(|user| Arc::ptr_eq(user, queue));
        let found = (0..).zip(&self.queues).find_map(|(n, hardware)| Some((n, of(hardware)? as u8)));
        self.free.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
        found.is_some()
    }
}
