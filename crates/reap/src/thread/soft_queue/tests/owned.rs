//! What others want of a hardware queue that has been left; and what is counted of several. The
//! device is stepped by hand.

use std::cell::Cell;

use completion::{Mode, Route};
use units::Nanos;

use super::super::SoftQueue;
use super::by_hand;
use crate::shared::book::Claim;
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
    queue.lanes()[0].controller()
}

#[test]
fn other_threads_commit_idle_posts() {
    let _alone = by_hand();
    let device = open("mem:1M?profile=null&queues=1", 1, Mode::INTERRUPT);
    let queue = device.queue().unwrap();
    let hardware = &lane(&queue).queue;
    assert_eq!(hardware.try_commit(), 0);
    let futures = [0, 8].map(|lba| queue.read(&queue.namespaces()[0], lba, queue.buffer(4096).unwrap()));
    {
        let _posts = hardware.lane.lock::<true>();
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
        assert_eq!(lane(&queue).controller.mode_on(None, mode), Mode::INTERRUPT);
    }
    for mode in Mode::ALL {
        assert_eq!(lane(&queue).controller.mode_on(None, mode), mode);
    }
}

/// What the controller has confirmed to hold back is what the policy goes by.
#[test]
fn policy_sees_the_coalescing() {
    let device = open("mem:1M?profile=null", 1, Mode::ADAPTIVE);
    let queue = device.queue().unwrap();
    for entries in [0, 5, 1] {
        lane(&queue).queue.holds_back(entries);
        _ = lane(&queue).looker.borrow_mut().next(&lane(&queue).soft, now(), Nanos::MAX, &mut lane(&queue).vector());
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
