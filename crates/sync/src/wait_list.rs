//! The software queues that wait for a tag of the hardware queue that they share: first come, first served.

use std::collections::VecDeque;

use crate::atomic::{Ordering, fence};
use crate::{Mutex, WakeFlag, lock};

/// Software queues that wait for a tag, by number. Tags come back without a lock, and a queue's request table (its book) is only ever
/// tried by threads other than the queue's. So a tag that comes back may be seen by neither side, unless both check what the other may
/// have met:
///
/// ```text
///   the queue's thread   no tag: joins (flag armed; fence)   unlocks its book; serves the list, unless it is empty
///   who returns tags     returns them                        fence; is the list empty? no: serves it
///   who serves           order locked   a book is locked: skips it, because its thread serves afterwards
/// ```
///
/// A queue is removed while its book is locked. One that was removed afterwards could have entered more meanwhile, and would
/// wait without being listed.
#[derive(Debug, Default)]
pub struct TagWaitList {
    /// Armed while a queue waits: changed under the lock of `order`, so that a listed queue never finds it masked. Returning
    /// tags is the announcing side.
    flag: WakeFlag,
    order: Mutex<VecDeque<u8>>,
}

/// The queues of a [`TagWaitList`], as the thread that serves it reaches them.
pub trait TagWaiters {
    /// What a queue has entered, locked.
    type Book<'a>
    where
        Self: 'a;

    /// Where a book posts, and finds its tags.
    type Place;

    /// The book of this queue; `None`: another thread has it.
    fn try_book(&self, queue: u8) -> Option<Self::Book<'_>>;

    /// Posts what waits in a book, as far as there are tags, and announces it.
    fn post(&self, book: &mut Self::Book<'_>) -> Progress<Self::Place>;

    /// The book of this queue is unlocked: whatever else is to be done.
    fn served(&self, queue: u8, place: &Self::Place);

    /// Whether there is no tag now. `None`: the place's lock is busy, and is not waited for.
    fn is_exhausted(&self, place: &Self::Place) -> Option<bool>;
}

/// What became of what waits in a book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<P> {
    /// The place's lock is busy, and is not waited for.
    PutOff,
    /// Nothing waits for a tag any more.
    All(P),
    /// Something does.
    Some(P),
}

impl TagWaitList {
    /// Empty.
    pub fn new() -> TagWaitList {
        TagWaitList { flag: WakeFlag::new(), order: Mutex::new(VecDeque::new()) }
    }

    /// Whether a queue waits, for the thread that joins by itself.
    #[inline]
    pub fn has_waiters(&self) -> bool {
        self.flag.is_armed()
    }

    /// Whether a queue may post at once: no other waits before it.
    #[inline]
    pub fn may_post(&self, queue: u8) -> bool {
        !self.has_waiters() || self.is_first(queue)
    }

    #[cold]
    fn is_first(&self, queue: u8) -> bool {
        lock(&self.order).front().is_none_or(|&first| first == queue)
    }

    /// The thread that has the queue's book, in which something waits: joins behind the others, unless the queue is
    /// listed already. Once the book is unlocked [`TagWaitList::unlocked`] or [`TagWaitList::returned`] follows: a tag may have come back before the wait
    /// was known.
    #[cold]
    pub fn join(&self, queue: u8) {
        let mut order = lock(&self.order);
        if !order.contains(&queue) {
            order.push_back(queue);
        }
        self.flag.arm();
    }

    /// Whether a queue waits, for a thread that has returned tags: a queue that joins later finds them.
    #[inline]
    pub fn must_serve(&self) -> bool {
        self.flag.should_wake()
    }

    /// The thread that has unlocked its queue's book, without any lock: posts for the queues that wait although there are tags. Another
    /// thread may have come to this queue in the list, and found the book locked; and a queue that left the head of the list by
    /// posting itself would otherwise delay the others until something completes. As [`TagWaitList::returned`].
    #[inline]
    pub fn unlocked(&self, queues: &impl TagWaiters) -> Option<bool> {
        if self.flag.is_armed() { Some(self.serve(queues)) } else { None }
    }

    /// Tags came back, or may have; without any lock: lets the queues that wait for one post, in order. False: a lock was busy that is
    /// not waited for, and the caller has to come again. `None`: no queue waits.
    #[inline]
    pub fn returned(&self, queues: &impl TagWaiters) -> Option<bool> {
        if self.must_serve() { Some(self.serve(queues)) } else { None }
    }

    #[cold]
    fn serve(&self, queues: &impl TagWaiters) -> bool {
        // The lock of the order, which `at` takes: a thread that returned tags either took it before, so that this one sees the tags,
        // or takes it later, and then finds the book unlocked.
        let mut at = 0;
        while let Some(queue) = self.at(at) {
            let Some(mut book) = queues.try_book(queue) else {
                // Its thread serves it afterwards, or another that does just that; nobody waits for either.
                at += 1;
                continue;
            };
            let (place, stuck) = match queues.post(&mut book) {
                Progress::PutOff => return false,
                Progress::Some(place) => (place, true),
                Progress::All(place) => {
                    self.leave(queue);
                    (place, false)
                }
            };
            drop(book);
            queues.served(queue, &place);
            if !stuck {
                continue;
            }
            // Tags may have come back meanwhile to a thread that found the book locked, and left it to this one.
            fence(Ordering::SeqCst);
            match queues.is_exhausted(&place) {
                None => return false,
                Some(true) => break,
                Some(false) => {}
            }
        }
        true
    }

    /// The queue at this place of the list.
    fn at(&self, place: usize) -> Option<u8> {
        lock(&self.order).get(place).copied()
    }

    fn leave(&self, queue: u8) {
        let mut order = lock(&self.order);
        order.retain(|&other| other != queue);
        if order.is_empty() {
            self.flag.mask();
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "../tests/unit/wait_list.rs"]
mod tests;
