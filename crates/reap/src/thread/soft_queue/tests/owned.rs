//! What others want of a hardware queue that belongs to one thread, and of one that has been left; and what is counted of several. The
//! device is stepped by hand.

use std::cell::Cell;

use completion::{Mode, Plan, Route};
use units::Nanos;

use super::super::SoftQueue;
use super::by_hand;
use crate::shared::book::Claim;
use crate::thread::engine::{Driven, Slept};
use crate::{Device, OpenOptions, Queue, Request};
use hw::now;

fn open(uri: &str, queues: usize, mode: Mode) -> Device {
    let options = OpenOptions { software_queues: Some(queues), hardware_queues: Some(queues), mode, ..OpenOptions::default() };
    Device::open_with(uri, &options).unwrap()
}

fn read(queue: &Queue, lba: u64) -> Request {
    Request::read(&queue.namespaces()[0], lba, queue.buffer(4096).unwrap())
}

fn submit(queue: &Queue, requests: u64) {
    queue.submit((0..requests).map(|lba| read(queue, lba))).map_err(|(why, _)| why).unwrap();
}

fn lane(queue: &Queue) -> &SoftQueue {
    &queue.lanes()[0]
}

/// Whether the queue's thread would be told while it sleeps, and whether it is asked for something.
fn asks(queue: &Queue, what: impl FnOnce()) -> bool {
    let SoftQueue { queue: hardware, soft, .. } = lane(queue);
    soft.wake.arm();
    what();
    let told = !soft.wake.bell().is_armed();
    soft.wake.mask();
    let asked = hardware.take_errand();
    assert_eq!(told, asked, "who is asked is told");
    assert!(!hardware.take_errand(), "an errand is run once");
    asked
}

#[test]
fn requests_go_to_the_owner() {
    let _alone = by_hand();
    let device = open("mem:1M?profile=null&queues=1&entries=3&reaper=owner", 1, Mode::INTERRUPT);
    let queue = device.local_queue().unwrap();
    let hand = device.embedded().unwrap().by_hand();
    let hardware = lane(&queue).queue.clone();
    assert!(hardware.is_owned() && !hardware.lacks_its_owner());
    assert!(!asks(&queue, || {}));
    let mut taken = Vec::with_capacity(8);
    // Nobody stands in line: there is nothing to serve.
    assert!(!asks(&queue, || assert!(hardware.try_serve_line(now()))));
    assert!(asks(&queue, || assert_eq!(hardware.try_commit(), 0)));
    assert!(asks(&queue, || hardware.take_for_owners(&mut taken)));
    hardware.join_line(0);
    assert!(asks(&queue, || assert!(hardware.try_serve_line(now()))));
    hardware.serve_own(now());

    // The owner runs the errand when it is woken: what it has not announced is announced, and a look follows.
    let future = queue.read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap());
    lane(&queue).uncommitted.set(false);
    assert_eq!(hardware.lane.in_flight(), 0, "it is not announced");
    assert_eq!(hardware.try_commit(), 0);
    lane(&queue).woken(&Slept { found: false, nap: false, notified: false, woke_at: now(), until: Nanos::MAX, cycle: None });
    assert_eq!(hardware.lane.in_flight(), 1);
    assert!(!hardware.take_errand() && matches!(lane(&queue).plan(now(), Nanos::MAX), Plan::Look { .. }));
    while hand.step() {}
    // An errand that comes between arming and sleeping keeps it awake.
    lane(&queue).arm();
    assert_eq!(hardware.try_commit(), 0);
    assert!(lane(&queue).look_before_sleep());
    drop(hand);
    queue.block_on(future).unwrap().0.unwrap();

    drop(queue);
    assert!(hardware.is_owned() && hardware.lacks_its_owner());
    let again = device.local_queue().unwrap();
    assert!(!hardware.lacks_its_owner());
    submit(&again, 1);
    assert_eq!(again.wait(1, None).unwrap(), 1);
}

#[test]
fn other_threads_commit_idle_posts() {
    let _alone = by_hand();
    let device = open("mem:1M?profile=null&queues=1", 1, Mode::INTERRUPT);
    let queue = device.queue().unwrap();
    let hardware = &lane(&queue).queue;
    assert!(!hardware.is_owned() && !hardware.lacks_its_owner());
    assert!(!asks(&queue, || assert_eq!(hardware.try_commit(), 0)));
    let futures = [0, 8].map(|lba| queue.read(&queue.namespaces()[0], lba, queue.buffer(4096).unwrap()));
    {
        let _posts = hardware.lane.lock();
        assert_eq!((hardware.try_commit(), hardware.lane.in_flight()), (0, 0));
    }
    assert_eq!((hardware.try_commit(), hardware.try_commit()), (2, 0));
    for future in futures {
        queue.block_on(future).unwrap().0.unwrap();
    }
    // The owner of both lanes announces what is on either.
    let future = queue.read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap());
    assert_eq!(hardware.lane.in_flight(), 0);
    queue.commit();
    queue.block_on(future).unwrap().0.unwrap();
}

/// What waits for a tag when its queue is dropped is posted by the thread that looks after the controller.
#[test]
fn dropped_queues_finish_pending_requests() {
    let _alone = by_hand();
    let device = open("mem:1M?profile=null&queues=1&entries=3", 1, Mode::INTERRUPT);
    let queue = device.queue().unwrap();
    let hand = device.embedded().unwrap().by_hand();
    submit(&queue, 7);
    let hardware = lane(&queue).queue.clone();
    assert_eq!((hardware.lane.in_flight(), hardware.most()), (2, 2));
    assert!(!hardware.has_line(), "who has all the tags waits for nobody's but its own");
    drop((queue, hand));
    let limit = now() + Nanos::from_secs(60);
    while hardware.softs[0].open() > 0 {
        assert!(now() < limit, "{} requests are left", hardware.softs[0].open());
        std::thread::yield_now();
    }
}

/// Who serves the line goes on while there are tags: one may have come back since the first in line was served, and nobody else
/// will come for it.
#[test]
fn wait_list_gets_free_tags() {
    let _alone = by_hand();
    let device = open("mem:1M?profile=null&queues=1&entries=3", 1, Mode::INTERRUPT);
    let queue = device.queue().unwrap();
    let hand = device.embedded().unwrap().by_hand();
    let hardware = lane(&queue).queue.clone();
    for (posted, exhausted) in [(0, false), (1, false), (1, true)] {
        submit(&queue, posted);
        assert_eq!(hardware.finds_no_tag(), exhausted);
    }
    drop(hand);
    assert_eq!(queue.wait(2, None).unwrap(), 2);
    assert!(!hardware.finds_no_tag());
}

/// The messages of a vector are counted once, however many queues share it.
#[test]
fn device_messages_sum_the_vectors() {
    let _alone = by_hand();
    for (vectors, shared) in [(3, false), (2, true)] {
        let device = open(&format!("mem:1M?profile=null&queues=2&vectors={vectors}"), 2, Mode::INTERRUPT);
        let queues = [device.queue().unwrap(), device.queue().unwrap()];
        let [first, second] = queues.each_ref().map(|queue| lane(queue).queue.lane.vector());
        assert_eq!(first == second, shared);
        // By hand: a message follows its entry, which the thread that waits may take before.
        let hand = device.embedded().unwrap().by_hand();
        for queue in &queues {
            submit(queue, 1);
            while hand.step() {}
            assert_eq!(queue.wait(1, None).unwrap(), 1);
        }
        let counters = device.counters();
        assert_eq!((counters.messages, counters.sq_doorbells), (2, 2), "{vectors} vectors");
    }
    // A lane that does not notify has no messages of its own, whichever thread counts them.
    let device = open("mem:1M?profile=null&queues=2&masks=no", 1, Mode::INTERRUPT);
    let queue = device.queue().unwrap();
    submit(&queue, 1);
    assert_eq!(queue.wait(1, None).unwrap(), 1);
    let hardware = &lane(&queue).queue;
    let asked = Cell::new(0);
    _ = hardware.counted(|vector| {
        assert_eq!(vector, hardware.lane.vector());
        asked.set(asked.get() + 1);
        false
    });
    assert_eq!(asked.get(), 1, "a polled lane is asked for its vector");
}

/// What the kernel's own modes come to on a queue that is not the kernel's.
#[test]
fn kernel_modes_fall_back_to_interrupt() {
    let device = open("mem:1M?profile=null", 1, Mode::INTERRUPT);
    let queue = device.queue().unwrap();
    for mode in Mode::KERNELS {
        assert_eq!(lane(&queue).queue.means(mode), Mode::INTERRUPT);
    }
    for mode in Mode::ALL {
        assert_eq!(lane(&queue).queue.means(mode), mode);
    }
}

/// What the controller has confirmed to hold back is what the policy goes by.
#[test]
fn policy_sees_the_coalescing() {
    let device = open("mem:1M?profile=null", 1, Mode::ADAPTIVE);
    let queue = device.queue().unwrap();
    for entries in [0, 5, 1] {
        lane(&queue).queue.holds_back(entries);
        _ = lane(&queue).looker.borrow_mut().next(&lane(&queue).soft, now(), (Nanos::MAX, 0), &mut lane(&queue).vector());
        assert_eq!(lane(&queue).looker.borrow().waiter.seen.held, entries);
    }
}

/// Of a batch's requests those are urgent that somebody waits for, whatever is open already.
#[test]
fn batches_inherit_urgency() {
    let _alone = by_hand();
    let device = open("mem:1M?profile=null&queues=1&entries=5", 1, Mode::INTERRUPT);
    let queue = device.queue().unwrap();
    let hand = device.embedded().unwrap().by_hand();
    let SoftQueue { queue: hardware, soft, me, .. } = lane(&queue);
    for (urgent, plain, told) in [(2, 0, 2), (0, 1, 0), (3, 0, 1)] {
        let requests = (0..urgent).map(|lba| read(&queue, lba).urgent()).chain((0..plain).map(|lba| read(&queue, lba)));
        let mut book = soft.requests();
        let ways = (|request| (Ok(()), request), |_: &_| Route::Notify);
        let submitted = hardware.submit(*me, &mut book, now(), (true, Claim::Batch), requests, ways);
        // Of the last ones there is a tag for one.
        assert_eq!(submitted.batch.urgent, told);
    }
    drop(hand);
    assert_eq!(queue.wait(6, None).unwrap(), 6);
}

/// A command that the kernel has not answered in time is cancelled once, and its owner, where it alone may enter the kernel, is asked to.
#[test]
fn late_kernel_requests_cancel_once() {
    let Some((device, _file)) = in_the_kernel(&OpenOptions::default()) else { return };
    for owned in [true, false] {
        let (local, sent);
        let queue: &Queue = if owned {
            local = device.local_queue().unwrap();
            &local
        } else {
            sent = device.queue().unwrap();
            &sent
        };
        let hardware = &lane(queue).queue;
        assert_eq!(hardware.is_owned(), owned);
        let (at, second) = (now(), Nanos::from_secs(1));
        lane(queue).submit(at, true, [read(queue, 0), read(queue, 8)]).map_err(|(why, _)| why).unwrap();
        let cancels = |late: Nanos, count: u32| asks(queue, || assert_eq!(hardware.cancel_late(at + late, second), count, "{late}"));
        assert!(!cancels(Nanos::ZERO, 0), "nothing is late yet");
        assert_eq!(cancels(second, 2), owned);
        assert!(!cancels(second + second, 0), "it is cancelled already");
        assert_eq!(queue.wait(2, None).unwrap(), 2);
        let mut done = Vec::with_capacity(2);
        queue.reap(&mut done);
    }
}

pub(super) fn in_the_kernel(options: &OpenOptions) -> Option<(Device, tempfile::NamedTempFile)> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, &vec![7; 1 << 20]).unwrap();
    match Device::open_with(&format!("kernel:{}", file.path().display()), options) {
        Ok(device) => Some((device, file)),
        Err(why) => {
            eprintln!("skipped: {why}");
            None
        }
    }
}

/// A thread that sleeps in its ring needs no event; one that sleeps with other queues, or in a loop of its own, has no other word of it.
#[test]
fn ring_eventfd_wakes_other_sleepers() {
    let Some((device, _file)) = in_the_kernel(&OpenOptions::default()) else { return };
    let queue = device.local_queue().unwrap();
    let event = || lane(&queue).queue.lane.uring().unwrap().wait_on().and_then(|event| event.count().ok());
    assert_eq!(event(), None);
    lane(&queue).sleeps_elsewhere();
    let before = event().unwrap();
    submit(&queue, 1);
    assert_eq!(queue.wait(1, None).unwrap(), 1);
    assert!(event().unwrap() > before, "it was not told");
}

/// What a thread leaves in the kernel nobody else can take: it has as long for it as a command has, and then for the kernel to cancel it.
#[test]
fn owner_waits_for_kernel_requests() {
    let (timeout, second) = (Nanos::from_secs(7), Nanos::from_secs(1));
    let options = OpenOptions::new().timeout(timeout.into());
    let embedded = Device::open_with("mem:1M?profile=null&reaper=owner", &options).unwrap();
    assert_eq!(lane(&embedded.local_queue().unwrap()).controller.stays(), second, "a reset takes it back");
    let Some((device, _file)) = in_the_kernel(&options) else { return };
    assert_eq!(lane(&device.local_queue().unwrap()).controller.stays(), timeout + second);
}
