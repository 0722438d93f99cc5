//! Software queues that wait for a tag of the hardware queue they share, as blk-mq's
//! `hctx->dispatch_wait` does.

use crate::{Mutex, WakeFlag, lock};

/// The waiting software queues, by number. Tags are returned without this list's lock, so a
/// returned tag could be missed by both sides unless each checks what the other may have stored:
///
/// ```text
///   waiting thread   no tag: join (flag armed; fence)   try again   no tag: arm own flag, check, sleep
///   returning side   return the tags                    fence       flag armed? notify and wake each waiter
/// ```
///
/// A thread posts only for its own software queue. While there are as many tags as queues, a thread
/// that does not take its tags keeps none from the others.
#[derive(Debug, Default)]
pub struct TagWaitList {
    /// Armed while a queue waits. It is masked under the lock of `waiting`, so it is never masked
    /// while a queue is listed. The side that returns tags is the announcer.
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

    /// Adds a queue that has found no tag. Its thread tries again afterwards: a tag may have been
    /// returned before the wait was visible.
    #[cold]
    pub fn join(&self, queue: u8) {
        let mut waiting = lock(&self.waiting);
        if !waiting.contains(&queue) {
            waiting.push(queue);
        }
        self.flag.arm();
    }

    /// Whether a queue is among the first `places` that wait. While there are fewer tags than
    /// queues, those take the next tags, first come, first served.
    #[cold]
    pub fn is_among_first(&self, queue: u8, places: u32) -> bool {
        lock(&self.waiting).iter().take(places as usize).any(|&other| other == queue)
    }

    /// Removes a queue that no longer waits. If it has taken no tag, call [`TagWaitList::returned`]
    /// next: other queues may have moved up.
    #[cold]
    pub fn leave(&self, queue: u8) {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|&other| other != queue);
        // Under the lock: `join` lists the queue and arms the flag as one step.
        if waiting.is_empty() {
            self.flag.mask();
        }
    }

    /// Tags were returned, or may have been: calls `wake` for each waiting queue, under the list's
    /// lock.
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
