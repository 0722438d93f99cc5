//! The list of software queues that wait for a tag (a free command identifier) of the hardware
//! queue they share, as with blk-mq's `hctx->dispatch_wait`.

use crate::{Mutex, WakeFlag, lock};

/// The waiting software queues, by number. Tags are returned without this list's lock, so a
/// returned tag could be missed by both sides unless each checks what the other may have stored:
///
/// ```text
///   waiting thread   no tag: join (arms the list's flag; fence)   try again   no tag: arm the thread's own WakeFlag, check, sleep
///   returning side   return the tags                              fence       list's flag armed: wake each waiter
/// ```
///
/// Returned tags are not handed to a waiter: all waiting threads are woken and try again, each for
/// its own software queue. If there are at least as many tags as queues, a woken thread that is
/// slow to try does not hold up the others. With fewer tags,
/// [`is_among_first`](TagWaitList::is_among_first) makes the waiters take turns.
#[derive(Debug, Default)]
pub struct TagWaitList {
    /// Armed while a queue waits. It is disarmed under the lock of `waiting`, so it is armed
    /// whenever a queue is listed. The side that returns tags is the waker.
    flag: WakeFlag,
    waiting: Mutex<Vec<u8>>,
}

impl TagWaitList {
    /// An empty list.
    pub fn new() -> TagWaitList {
        TagWaitList { flag: WakeFlag::new(), waiting: Mutex::new(Vec::new()) }
    }

    /// Whether any queue waits.
    #[inline]
    pub fn has_waiters(&self) -> bool {
        self.flag.is_armed()
    }

    /// Adds a queue that has found no tag. Its thread then tries again: a tag may have been
    /// returned before the queue was on the list.
    #[cold]
    pub fn join(&self, queue: u8) {
        let mut waiting = lock(&self.waiting);
        if !waiting.contains(&queue) {
            waiting.push(queue);
        }
        self.flag.arm();
    }

    /// Whether a queue is among the first `places` queues of the list. While there are fewer tags
    /// than queues, only the first queues of the list (as many as there are free tags) may take
    /// one.
    #[cold]
    pub fn is_among_first(&self, queue: u8, places: u32) -> bool {
        lock(&self.waiting).iter().take(places as usize).any(|&other| other == queue)
    }

    /// Removes a queue that no longer waits. If the queue has taken no tag, call
    /// [`TagWaitList::returned`] next: a queue behind it may now be among the first.
    #[cold]
    pub fn leave(&self, queue: u8) {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|&other| other != queue);
        // Under the lock: `join` lists the queue and arms the flag as one step.
        if waiting.is_empty() {
            self.flag.disarm();
        }
    }

    /// For the side that has returned tags, or may have: calls `wake` for each waiting queue, under
    /// the list's lock.
    #[inline]
    pub fn returned(&self, wake: impl FnMut(u8)) {
        // One fence and one load on the completion path while no queue waits.
        if self.flag.should_wake() {
            self.wake_all(wake);
        }
    }

    #[cold]
    fn wake_all(&self, wake: impl FnMut(u8)) {
        lock(&self.waiting).iter().copied().for_each(wake);
    }

    /// [`TagWaitList::returned`] without its fence, for a negative test.
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
