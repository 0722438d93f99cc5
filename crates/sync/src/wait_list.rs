//! Queues that wait for a tag of the hardware queue that they share.

use crate::{Mutex, WakeFlag, lock};

/// Queues that have found no tag, by number. Tags come back without a lock of this list, so a tag that comes back may be seen by neither
/// side, unless both check what the other may have met:
///
/// ```text
///   a queue's thread     no tag: joins (flag armed; fence)   tries again; no tag: arms its own flag, checks its notice, sleeps
///   who returns tags     returns them                        fence; is the flag armed? yes: leaves each that waits a notice, and wakes it
/// ```
///
/// Nothing is posted for another thread's queue. While there are as many tags as queues, a thread that does not come for its tags keeps none
/// from the others.
#[derive(Debug, Default)]
pub struct TagWaitList {
    /// Armed while a queue waits: masked under the lock of `waiting`, so that a listed queue never finds it masked. Returning
    /// tags is the announcing side.
    flag: WakeFlag,
    waiting: Mutex<Vec<u8>>,
}

impl TagWaitList {
    /// Empty.
    pub fn new() -> TagWaitList {
        TagWaitList { flag: WakeFlag::new(), waiting: Mutex::new(Vec::new()) }
    }

    /// Whether any queue waits.
    #[inline]
    pub fn has_waiters(&self) -> bool {
        self.flag.is_armed()
    }

    /// The thread of a queue that has found no tag. It tries again afterwards: a tag may have come back before the wait was known.
    #[cold]
    pub fn join(&self, queue: u8) {
        let mut waiting = lock(&self.waiting);
        if !waiting.contains(&queue) {
            waiting.push(queue);
        }
        self.flag.arm();
    }

    /// Whether a queue is one of the first `places` that wait: while there are fewer tags than queues, those are the next to have one.
    #[cold]
    pub fn is_among_first(&self, queue: u8, places: u32) -> bool {
        lock(&self.waiting).iter().take(places as usize).any(|&other| other == queue)
    }

    /// The thread of a queue: it waits for no tag any more. If it has taken none, [`TagWaitList::returned`] follows: others may be next now.
    #[cold]
    pub fn leave(&self, queue: u8) {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|&other| other != queue);
        if waiting.is_empty() {
            self.flag.mask();
        }
    }

    /// Tags came back, or may have: `wake` leaves the thread of each queue that waits a notice, and wakes it. It runs under the list's lock.
    #[inline]
    pub fn returned(&self, wake: impl FnMut(u8)) {
        if self.flag.should_wake() {
            self.wake_all(wake);
        }
    }

    #[cold]
    fn wake_all(&self, wake: impl FnMut(u8)) {
        lock(&self.waiting).iter().copied().for_each(wake);
    }

    /// [`TagWaitList::returned`] without its fence: for a mutant.
    #[cfg(loom)]
    pub fn returned_unfenced(&self, wake: impl FnMut(u8)) {
        if self.flag.is_armed() {
            self.wake_all(wake);
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "../tests/unit/wait_list.rs"]
mod tests;
