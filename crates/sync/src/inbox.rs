//! Completions handed from the thread that reaped them to the software queue that submitted the
//! commands.
//!
//! Several software queues may share one hardware queue. The thread that polls its completion queue
//! finds entries of all of them, and leaves those of another thread in that thread's inbox.

use std::collections::VecDeque;

use crate::atomic::{AtomicUsize, Ordering};
use crate::{Mutex, lock};

/// A bounded queue with many producers and one consumer, the owner. Its capacity is the maximum
/// number of commands that the owner can have in flight, so the queue is full only if the device or
/// this stack is at fault.
///
/// Producers [`push`](Inbox::push) and then wake the owner by its [`WakeFlag`](crate::WakeFlag),
/// once per batch and owner. The owner arms its flag, checks [`is_empty`](Inbox::is_empty), and
/// sleeps.
///
/// A mutex guards the queue: locking it once per batch costs less than the atomic operations of a
/// lock-free queue once per entry. The mutex is held only while entries are copied.
#[derive(Debug)]
pub struct Inbox<T> {
    items: Mutex<VecDeque<T>>,
    /// A copy of `items.len()`, written under the lock and read without it.
    waiting: AtomicUsize,
    capacity: usize,
}

impl<T> Inbox<T> {
    /// An empty inbox for `capacity` entries. Later calls allocate no memory.
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

    /// Locks once and adds entries. Returns the first entry that does not fit; the entries after it
    /// stay in the iterator.
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
        // Release pairs with the acquire in `is_empty`: an owner that reads the new length without
        // the lock also sees the entries.
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

    /// Owner: locks once and moves at most `budget` entries to `out`, oldest first. Returns the
    /// number moved.
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

    /// Whether the inbox is empty: one load, without the lock. The owner checks this between arming
    /// its flag and sleeping.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
#[path = "../tests/unit/inbox.rs"]
mod tests;
