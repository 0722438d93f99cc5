//! The line of queues that wait for a tag of what they share: first come, first served.

use std::collections::VecDeque;

use crate::Bell;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::{Mutex, lock};

/// Queues that wait for a tag, by number. Tags come back without a lock, and books are only ever tried by threads that are not their
/// queue's. So a tag that comes back may be seen by neither side, unless both look after what the other may have met:
///
/// ```text
///   the queue's thread   no tag: joins (bell armed; fence)   unlocks its book; serves the line, if there is one
///   who returns tags     returns them                        rings (fence; is there a line?): serves it
///   who serves           order locked   a book is locked: passes it by, because its thread serves afterwards
/// ```
///
/// A queue is struck off while its book is locked. One that was struck off afterwards could have entered more meanwhile, and would
/// wait outside the line.
#[derive(Debug, Default)]
pub struct Line {
    /// Armed while somebody waits: changed under the lock of `order`, so that a queue in line never finds it masked. Returning
    /// tags is the telling side.
    bell: Bell,
    order: Mutex<VecDeque<u8>>,
}

/// The queues that stand in a [`Line`], as the thread meets them that serves it.
pub trait Waiting {
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

impl Line {
    /// Nobody waits.
    pub fn new() -> Line {
        Line { bell: Bell::new(), order: Mutex::new(VecDeque::new()) }
    }

    /// Whether a queue stands in it, for the thread that joins by itself.
    #[inline]
    pub fn is_formed(&self) -> bool {
        self.bell.is_armed()
    }

    /// Whether a queue may post at once: nobody stands in line before it.
    #[inline]
    pub fn may_post(&self, queue: u8) -> bool {
        !self.is_formed() || self.is_first(queue)
    }

    #[cold]
    fn is_first(&self, queue: u8) -> bool {
        lock(&self.order).front().is_none_or(|&first| first == queue)
    }

    /// The thread that has the queue's book, in which something waits: joins behind the others, unless the queue stands in line
    /// already. Once the book is unlocked [`Line::unlocked`] or [`Line::returned`] follows: a tag may have come back before the wait
    /// was known.
    #[cold]
    pub fn join(&self, queue: u8) {
        let mut order = lock(&self.order);
        if !order.contains(&queue) {
            order.push_back(queue);
        }
        self.bell.arm();
    }

    /// Whether a queue stands in it, for a thread that has returned tags: a queue that joins later finds them.
    #[inline]
    pub fn rings(&self) -> bool {
        self.bell.rings()
    }

    /// The thread that has unlocked its queue's book, without any lock: posts for the queues in line although there are tags. Another
    /// thread may have come to this queue's place in the line, and found the book locked; and a queue that left the line's head by
    /// posting itself would otherwise hold the others up until something completes. As [`Line::returned`].
    #[inline]
    pub fn unlocked(&self, queues: &impl Waiting) -> Option<bool> {
        if self.bell.is_armed() { Some(self.serve(queues)) } else { None }
    }

    /// Tags came back, or may have; without any lock: lets the queues that wait for one post, in order. False: a lock was busy that is
    /// not waited for, and the caller has to come again. `None`: no queue waits.
    #[inline]
    pub fn returned(&self, queues: &impl Waiting) -> Option<bool> {
        if self.rings() { Some(self.serve(queues)) } else { None }
    }

    #[cold]
    fn serve(&self, queues: &impl Waiting) -> bool {
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

    /// The queue at this place of the line.
    fn at(&self, place: usize) -> Option<u8> {
        lock(&self.order).get(place).copied()
    }

    fn leave(&self, queue: u8) {
        let mut order = lock(&self.order);
        order.retain(|&other| other != queue);
        if order.is_empty() {
            self.bell.mask();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
