//! How the drain thread goes to sleep, step by step: the test takes its steps, and no such thread runs.

use super::*;
use crate::thread::ring_queue::by_hand;
use crate::{Device, OpenOptions, Queue, Request};

fn open() -> (Device, Queue, Arc<HwQueue>) {
    let options = OpenOptions { mode: Mode::INTERRUPT, ..OpenOptions::default() };
    let device = Device::open_with("mem:1M?profile=null&queues=1", &options).unwrap();
    let queue = device.queue().unwrap();
    let hardware = queue.path_queues()[0].controller().transport().hardware().clone();
    hardware.drain.engage(|| std::thread::Builder::new().spawn(|| ())).unwrap();
    (device, queue, hardware)
}

fn submit(queue: &Queue) {
    let request = Request::read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap());
    queue.submit([request]).map_err(|(why, _)| why).unwrap();
}

#[test]
fn drain_thread_arms_and_polls() {
    let _alone = by_hand();
    let (device, queue, hardware) = open();
    let hand = device.embedded().unwrap().by_hand();
    let mut worker = Worker::new(&hardware).unwrap();
    let mut side = Side::new(&mut worker, &hardware);
    let messages = || hardware.pair.messages();

    sleep::arm(&mut side);
    assert!(hardware.drain.wake.flag().is_armed());
    assert_eq!(hardware.role.owner(), Some(hardware.drain_id()), "a thread that goes away from entries finds it by the role");
    assert!(!sleep::check(&mut side), "there is nothing");
    sleep::wake(&mut side);
    assert!(!hardware.drain.wake.flag().is_armed());

    // A thread that polled has left the vector masked.
    hardware.pair.mask();
    submit(&queue);
    let before = messages();
    while hand.step() {}
    assert_eq!(messages(), before, "it is masked");
    sleep::arm(&mut side);
    assert!(sleep::check(&mut side), "an entry that no message tells of");
    while hand.step() {}
    sleep::wake(&mut side);
    side.worker.taken.clear();
    hardware.take_for_owners(&mut side.worker.taken);
    submit(&queue);
    let before = messages();
    while hand.step() {}
    assert_eq!(messages(), before + 1, "messages are allowed");
    hardware.take_for_owners(&mut side.worker.taken);

    // The last queue leaves the mode, after the flag was armed or before.
    sleep::arm(&mut side);
    assert!(!sleep::check(&mut side));
    hardware.drain.dismiss();
    assert!(!hardware.drain.wake.flag().is_armed());
    sleep::wake(&mut side);
    sleep::arm(&mut side);
    assert!(sleep::check(&mut side), "nobody wants it any more");
    sleep::wake(&mut side);
    drop(hand);
    assert_eq!(queue.wait(2, None).unwrap(), 2);
}

/// The notification that it takes may stand for messages of a group's other queues. Their thread is told of those, and of nothing else.
#[test]
fn shared_notifications_are_passed_on() {
    let (_device, _queue, hardware) = open();
    let worker = Worker::new(&hardware).unwrap();
    let (flag, vector) = (hardware.users[0].wake.flag(), hardware.pair.vector());
    flag.arm();
    worker.pass_on();
    assert!(flag.is_armed(), "nothing was posted");
    hardware.pair.posted(vector).unwrap().post(vector.0);
    worker.pass_on();
    assert!(!flag.is_armed(), "no thread was woken");
}
