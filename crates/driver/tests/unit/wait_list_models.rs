//! Queues that wait for a tag: `sync::TagWaitList` over the driver's tags.

use sync::atomic::Ordering::AcqRel;
use sync::atomic::{AtomicBool, AtomicU32};
use sync::model::{EventFds, LostWakeUp, fails, holds};
use sync::{Arc, Mutex, TagWaitList, WakeFlag, lock, thread};

use super::*;

/// A step that a mutant leaves out. `Nothing`: the protocol as it is.
#[derive(Clone, Copy, PartialEq)]
enum Omit {
    Nothing,
    /// The second try, after joining.
    SecondTry,
    /// The check for a notice before sleeping.
    Check,
    /// Waking the queues that wait, after returning a tag.
    Wake,
    /// Waking those after the first in the list.
    WakeOthers,
    /// The fence between returning a tag and checking for waiters.
    Fence,
}

/// A hardware queue with one tag, and the queues that share it.
struct HwQueue {
    tags: Tags,
    taker: Mutex<Taker>,
    list: TagWaitList,
    /// Each queue's thread: its own flag, and whether tags may have been returned since it last
    /// tried.
    flags: [WakeFlag; 2],
    notices: [AtomicBool; 2],
    /// How often a queue has taken the tag.
    taken: AtomicU32,
    fds: Arc<EventFds>,
    omit: Omit,
}

/// What the thread of each queue blocks on.
const QUEUES: [&[usize]; 2] = [&[0], &[1]];
const RETURNER: &[usize] = &[2];

impl HwQueue {
    /// Its one tag is in use; `queues` wait for it.
    fn new(queues: u8, omit: Omit) -> (Arc<HwQueue>, Returner) {
        let (tags, mut taker, returner) = Tags::new(1);
        taker.take(&tags);
        let queue = HwQueue {
            tags,
            taker: Mutex::new(taker),
            list: TagWaitList::new(),
            flags: [WakeFlag::new(), WakeFlag::new()],
            notices: [AtomicBool::new(false), AtomicBool::new(false)],
            taken: AtomicU32::new(0),
            fds: EventFds::new(3, usize::from(queues) + 1),
            omit,
        };
        (Arc::new(queue), returner)
    }

    fn take(&self) -> bool {
        lock(&self.taker).take(&self.tags).is_some()
    }

    /// The thread of a queue: sleeps until it has the tag.
    fn wait(&self, queue: u8) -> Result<(), LostWakeUp> {
        let at = usize::from(queue);
        while !self.take() {
            self.list.join(queue);
            if self.omit != Omit::SecondTry && self.take() {
                break;
            }
            self.flags[at].arm();
            if self.omit == Omit::Check || !self.notices[at].load(Acquire) {
                self.fds.block(QUEUES[at])?;
            }
            self.flags[at].disarm();
            self.notices[at].swap(false, AcqRel);
        }
        self.list.leave(queue);
        self.taken.fetch_add(1, Release);
        self.fds.signal(RETURNER[0]);
        Ok(())
    }

    /// Another thread: returns the tag this number of times, each time after a queue has taken it.
    fn give_back(&self, returner: &mut Returner, times: u32) -> Result<(), LostWakeUp> {
        for before in 0..times {
            while self.taken.load(Acquire) < before {
                self.fds.block(RETURNER)?;
            }
            returner.add(&self.tags, Tag(0));
            returner.flush(&self.tags);
            let mut called = 0;
            let wake = |queue: u8| {
                called += 1;
                let skips = self.omit == Omit::WakeOthers && called > 1;
                if !skips {
                    self.notices[usize::from(queue)].store(true, Release);
                    if self.flags[usize::from(queue)].claim_wake() {
                        self.fds.signal(usize::from(queue));
                    }
                }
            };
            match self.omit {
                Omit::Wake => {}
                Omit::Fence => self.list.returned_unfenced(wake),
                _ => self.list.returned(wake),
            }
        }
        Ok(())
    }
}

/// `queues` wait for the tag, and another thread returns it once for each. Returns whether each
/// queue gets it.
fn queues_wait(queues: u8, omit: Omit) -> bool {
    let (queue, returner) = HwQueue::new(queues, omit);
    all_get_the_tag(&queue, returner, queues) && !queue.list.has_waiters()
}

/// The same for one queue, after one whose thread does not take its tags.
fn queue_waits_after_absent(omit: Omit) -> bool {
    let (queue, returner) = HwQueue::new(1, omit);
    queue.list.join(1);
    all_get_the_tag(&queue, returner, 1) && queue.list.has_waiters()
}

fn all_get_the_tag(queue: &Arc<HwQueue>, mut returner: Returner, queues: u8) -> bool {
    let spawn = |part: Box<dyn FnOnce(&HwQueue) -> bool>| {
        let queue = queue.clone();
        thread::spawn(move || {
            let done = part(&queue);
            queue.fds.end();
            done
        })
    };
    let mut others = vec![spawn(Box::new(move |queue| {
        queue.give_back(&mut returner, u32::from(queues)).is_ok()
    }))];
    others.extend((1..queues).map(|other| spawn(Box::new(move |queue| queue.wait(other).is_ok()))));
    let done = queue.wait(0).is_ok();
    queue.fds.end();
    let others_done =
        others.into_iter().map(|other| other.join().unwrap()).fold(true, |all, done| all & done);
    done && others_done && !queue.take()
}

#[test]
fn waiting_queue_gets_the_tag() {
    holds(3, || queues_wait(1, Omit::Nothing));
}

#[test]
fn each_waiting_queue_gets_it_once() {
    holds(2, || queues_wait(2, Omit::Nothing));
}

#[test]
fn idle_thread_keeps_no_tag() {
    holds(3, || queue_waits_after_absent(Omit::Nothing));
}

#[test]
fn missing_second_try_is_caught() {
    fails(2, || queues_wait(1, Omit::SecondTry));
}

#[test]
fn missing_check_before_sleep_is_caught() {
    fails(2, || queues_wait(1, Omit::Check));
}

#[test]
fn missing_wake_is_caught() {
    fails(2, || queues_wait(1, Omit::Wake));
}

#[test]
fn missing_fence_is_caught() {
    fails(2, || queues_wait(1, Omit::Fence));
}

#[test]
fn waking_only_the_first_is_caught() {
    fails(2, || queue_waits_after_absent(Omit::WakeOthers));
}
