//! The line of queues that wait for a tag: `sync`'s, over the tags that the library's queues take.

use sync::atomic::AtomicU32;
use sync::atomic::Ordering::{Acquire, Release};
use sync::model::{EventFds, LostWakeUp, fails, holds};
use sync::{Arc, Mutex, MutexGuard, lock, thread, try_lock};
use sync::{Progress, TagWaitList, TagWaiters};

use super::*;

/// A step that a mutant leaves out. `Nothing`: the protocol as it is.
#[derive(Clone, Copy, PartialEq)]
enum Omit {
    Nothing,
    /// Serving the line after unlocking one's own book.
    ServeOwn,
    /// Serving the line after returning a tag.
    ServeReturned,
    /// The fence between returning a tag and asking whether there is a line.
    Fence,
    /// Keeping the book locked until its queue is struck off the line.
    StrikeOffLocked,
}

/// A hardware queue with one tag, and the software queue that waits for it. Commands complete when the returner says so.
struct HwQueue {
    tags: Tags,
    taker: Mutex<Taker>,
    returner: Mutex<Returner>,
    line: TagWaitList,
    /// Commands that wait.
    book: Mutex<u32>,
    /// Commands posted so far.
    posted: AtomicU32,
    fds: Arc<EventFds>,
    omit: Omit,
}

const OWNER: &[usize] = &[0];
const RETURNER: &[usize] = &[1];

impl HwQueue {
    /// Its one tag is in use.
    fn new(omit: Omit) -> Arc<HwQueue> {
        let (tags, mut taker, returner) = Tags::new(1);
        taker.take(&tags);
        Arc::new(HwQueue {
            tags,
            taker: Mutex::new(taker),
            returner: Mutex::new(returner),
            line: TagWaitList::new(),
            book: Mutex::new(0),
            posted: AtomicU32::new(0),
            fds: EventFds::new(2, 2),
            omit,
        })
    }

    /// Posts as many as there are tags. Whether all were.
    fn post_all(&self, waiting: &mut u32) -> bool {
        let mut taker = lock(&self.taker);
        let mut posted = 0;
        while *waiting > 0 && taker.take(&self.tags).is_some() {
            (*waiting, posted) = (*waiting - 1, posted + 1);
        }
        drop(taker);
        if posted > 0 {
            self.posted.fetch_add(posted, Release);
            self.fds.signal(0);
            self.fds.signal(1);
        }
        *waiting == 0
    }

    /// The queue's thread: submits a command, as [`TagWaitList`] says.
    fn submit(&self) {
        let mut book = lock(&self.book);
        *book += 1;
        if !(self.line.may_post(0) && self.post_all(&mut book)) {
            self.line.join(0);
        }
        drop(book);
        if self.omit != Omit::ServeOwn {
            self.line.unlocked(self);
        }
    }

    /// The queue's thread: sleeps until this many commands have been posted in all. What becomes of those does not help it.
    fn wait(&self, posted: u32) -> Result<(), LostWakeUp> {
        while self.posted.load(Acquire) < posted {
            self.fds.block(OWNER)?;
        }
        Ok(())
    }

    /// Another thread: takes the completion of the command that has the tag.
    fn give_back(&self) {
        let mut returner = lock(&self.returner);
        returner.add(&self.tags, Tag(0));
        returner.flush(&self.tags);
        drop(returner);
        match self.omit {
            Omit::ServeReturned => {}
            // As if this were the same.
            Omit::Fence => _ = self.line.unlocked(self),
            _ => _ = self.line.returned(self),
        }
    }

    /// Another thread: takes this many completions, one after the other, as soon as there are the commands.
    fn complete(&self, commands: u32) -> Result<(), LostWakeUp> {
        for before in 0..commands {
            while self.posted.load(Acquire) < before {
                self.fds.block(RETURNER)?;
            }
            self.give_back();
        }
        Ok(())
    }
}

impl TagWaiters for HwQueue {
    type Book<'a> = Option<MutexGuard<'a, u32>>;
    type Place = ();

    fn try_book(&self, _: u8) -> Option<Option<MutexGuard<'_, u32>>> {
        try_lock(&self.book).map(Some)
    }

    fn post(&self, book: &mut Option<MutexGuard<'_, u32>>) -> Progress<()> {
        let all = book.as_mut().is_some_and(|book| self.post_all(book));
        if self.omit == Omit::StrikeOffLocked {
            *book = None;
        }
        if all { Progress::All(()) } else { Progress::Some(()) }
    }

    fn served(&self, _: u8, (): &()) {}

    fn is_exhausted(&self, (): &()) -> Option<bool> {
        Some(lock(&self.taker).exhausted(&self.tags))
    }
}

/// This many commands wait already; the queue's thread submits another, while another thread takes completions until there is a tag for
/// each. Whether all are posted.
fn a_queue_waits(before: u32, omit: Omit) -> bool {
    let queue = HwQueue::new(omit);
    if before > 0 {
        *lock(&queue.book) = before;
        queue.line.join(0);
    }
    let returner = {
        let queue = queue.clone();
        thread::spawn(move || {
            let done = queue.complete(before + 1);
            queue.fds.end();
            done.is_ok()
        })
    };
    queue.submit();
    let posted = queue.wait(before + 1).is_ok();
    queue.fds.end();
    returner.join().unwrap() && posted
}

#[test]
fn each_waiting_command_is_posted() {
    holds(3, || a_queue_waits(0, Omit::Nothing));
    holds(3, || a_queue_waits(1, Omit::Nothing));
}

#[test]
fn unserved_list_after_submit_is_caught() {
    fails(2, || a_queue_waits(0, Omit::ServeOwn));
}

#[test]
fn unserved_list_after_reap_is_caught() {
    fails(2, || a_queue_waits(0, Omit::ServeReturned));
}

#[test]
fn missing_fence_after_reap_is_caught() {
    fails(2, || a_queue_waits(0, Omit::Fence));
}

#[test]
fn removal_without_lock_is_caught() {
    fails(2, || a_queue_waits(1, Omit::StrikeOffLocked));
}
