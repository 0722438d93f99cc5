//! Completions on their way from the thread that reaped them to the software queue whose commands they complete.

use std::collections::VecDeque;

use crate::atomic::{AtomicUsize, Ordering};
use crate::{Mutex, lock};

/// A bounded queue with many producers and one consumer, the owner. Its size is the owner's commands in flight, so a
/// correct stack never fills it.
///
/// Producers [`push`](Inbox::push) and then wake the owner by its [`WakeFlag`](crate::WakeFlag), once per batch and owner; the owner
/// arms its flag, asks [`is_empty`](Inbox::is_empty), and sleeps. A lock for a batch is dearer than a lock-free queue
/// for one entry and cheaper for many, and it is held for a copy only.
#[derive(Debug)]
pub struct Inbox<T> {
    items: Mutex<VecDeque<T>>,
    /// `items.len()`, for a check without the lock.
    waiting: AtomicUsize,
    capacity: usize,
}

impl<T> Inbox<T> {
    /// Room for `capacity` entries, allocated now and never again.
    pub fn new(capacity: usize) -> Inbox<T> {
        Inbox { items: Mutex::new(VecDeque::with_capacity(capacity)), waiting: AtomicUsize::new(0), capacity }
    }

    /// Leaves an entry for the owner, which the caller wakes afterwards.
    ///
    /// # Errors
    /// The entry comes back if the inbox is full: more completions than commands, so a device or the stack is at fault.
    pub fn push(&self, item: T) -> Result<(), T> {
        match self.push_all([item]) {
            None => Ok(()),
            Some(item) => Err(item),
        }
    }

    /// Leaves entries for the owner, under one lock. The first entry that does not fit comes back, and those after it
    /// are not taken from the iterator.
    pub fn push_all(&self, items: impl IntoIterator<Item = T>) -> Option<T> {
        let mut queue = lock(&self.items);
        let mut items = items.into_iter();
        let refused = loop {
            let Some(item) = items.next() else { break None };
            if queue.len() == self.capacity {
                break Some(item);
            }
            queue.push_back(item);
        };
        self.waiting.store(queue.len(), Ordering::Release);
        refused
    }

    /// Owner: the oldest entry.
    pub fn pop(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut queue = lock(&self.items);
        let item = queue.pop_front();
        self.waiting.store(queue.len(), Ordering::Release);
        item
    }

    /// Owner: appends at most `budget` entries to `out`, oldest first, under one lock. Returns how many.
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

    /// Whether nothing waits: one load. The check that the owner makes between arming its flag and sleeping.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
#[path = "../tests/unit/inbox.rs"]
mod tests;
