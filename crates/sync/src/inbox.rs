//! Completions handed from the thread that reaped them to the software queue that submitted the
//! commands.
//!
//! Several software queues may share one hardware queue. The thread that polls its completion queue
//! finds entries of all of them, and leaves those of another thread in that thread's inbox.

use std::collections::VecDeque;

use crate::atomic::{AtomicUsize, Ordering};
use crate::{Mutex, lock};

/// A bounded queue with many producers and one consumer, the owner. Its capacity is the most
/// commands that the owner can have in flight, so it is never full unless the device or the stack
/// is at fault.
///
/// Producers [`push`](Inbox::push) and then wake the owner by its [`WakeFlag`](crate::WakeFlag),
/// once per batch and owner. The owner arms its flag, checks [`is_empty`](Inbox::is_empty), and
/// sleeps.
///
/// A mutex guards the queue: for a batch it costs less than a lock-free queue does per entry, and
/// it is held for a copy only.
#[derive(Debug)]
pub struct Inbox<T> {
    items: Mutex<VecDeque<T>>,
    /// A copy of `items.len()`, written under the lock and read without it.
    waiting: AtomicUsize,
    capacity: usize,
}

impl<T> Inbox<T> {
    /// Room for `capacity` entries, allocated now and never again.
    pub fn new(capacity: usize) -> Inbox<T> {
        Inbox {
            items: Mutex::new(VecDeque::with_capacity(capacity)),
            waiting: AtomicUsize::new(0),
            capacity,
        }
    }

    /// Adds an entry. The caller wakes the owner afterwards.
    ///
    /// # Errors
    ///
    /// Returns the entry if the inbox is full: there are more completions than commands, so the
    /// device or the stack is at fault.
    pub fn push(&self, item: T) -> Result<(), T> {
        match self.push_all([item]) {
            None => Ok(()),
            Some(item) => Err(item),
        }
    }

    /// Adds entries under one lock. Returns the first entry that does not fit; those after it are
    /// not taken from the iterator.
    pub fn push_all(&self, items: impl IntoIterator<Item = T>) -> Option<T> {
        let mut queue = lock(&self.items);
        let mut items = items.into_iter();
        let refused = loop {
            let Some(item) = items.next() else { break None };
            // Never grow: a push must not allocate on the completion path.
            if queue.len() == self.capacity {
                break Some(item);
            }
            queue.push_back(item);
        };
        // Release pairs with the acquire in `is_empty`. The owner's check without the lock sees the
        // entries once it sees the length.
        self.waiting.store(queue.len(), Ordering::Release);
        refused
    }

    /// Owner: removes the oldest entry.
    pub fn pop(&self) -> Option<T> {
        // The usual poll finds nothing and must not pay for the lock.
        if self.is_empty() {
            return None;
        }
        let mut queue = lock(&self.items);
        let item = queue.pop_front();
        self.waiting.store(queue.len(), Ordering::Release);
        item
    }

    /// Owner: appends at most `budget` entries to `out`, oldest first, under one lock. Returns the
    /// number appended.
    pub fn take(&self, budget: usize, out: &mut Vec<T>) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut queue = lock(&self.items);
        let taken = queue.len().min(budget);
        out.extend(queue.drain(..taken));
        self.waiting.store(queue.len(), Ordering::Release);
        taken
    }

    /// Whether there is no entry: one load. The owner checks this between arming its flag and
    /// sleeping.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
#[path = "../tests/unit/inbox.rs"]
mod tests;
