//! How the drain thread goes to sleep, step by step. The test makes the steps; no drain thread
//! runs.

use super::*;
use crate::thread::ring_queue::manual_stepping;
use crate::{Device, OpenOptions, Queue, Request};

fn open() -> (Device, Queue, Arc<HwQueue>) {
    let options = OpenOptions { mode: Mode::INTERRUPT, ..OpenOptions::default() };
    let device = Device::open_with("mem:1M?profile=null&queues=1", &options).unwrap();
    let queue = device.queue().unwrap();
    let hardware = queue.path_queues()[0].controller().transport().hardware().clone();
    hardware.drain.acquire(|| std::thread::Builder::new().spawn(|| ())).unwrap();
    (device, queue, hardware)
}

fn submit(queue: &Queue) {
    let request = Request::read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap());
    queue.submit([request]).map_err(|(why, _)| why).unwrap();
}

#[test]
fn drain_thread_arms_and_polls() {
    let _lock = manual_stepping();
    let (device, queue, hardware) = open();
    let hand = device.embedded().unwrap().manual_step();
    let mut worker = Worker::new(&hardware).unwrap();
    let mut context = SleepContext::new(&mut worker, &hardware);
    let messages = || hardware.pair.messages();

    sleep::arm(&mut context);
    assert!(hardware.drain.wake.flag().is_armed());
    assert_eq!(
        hardware.role.owner(),
        Some(hardware.drain_id()),
        "a thread that goes away from entries finds it by the role"
    );
    assert!(!sleep::check(&mut context), "there is nothing");
    sleep::wake(&mut context);
    assert!(!hardware.drain.wake.flag().is_armed());

    // A thread that polled has left the vector masked.
    hardware.pair.mask();
    submit(&queue);
    let before = messages();
    while hand.step() {}
    assert_eq!(messages(), before, "it is masked");
    sleep::arm(&mut context);
    assert!(sleep::check(&mut context), "an entry that no message tells of");
    while hand.step() {}
    sleep::wake(&mut context);
    context.worker.taken.clear();
    hardware.reap_for_owners(&mut context.worker.taken);
    submit(&queue);
    let before = messages();
    while hand.step() {}
    assert_eq!(messages(), before + 1, "messages are allowed");
    hardware.reap_for_owners(&mut context.worker.taken);

    // The last queue leaves the mode, after the flag was armed or before.
    sleep::arm(&mut context);
    assert!(!sleep::check(&mut context));
    hardware.drain.release();
    assert!(!hardware.drain.wake.flag().is_armed());
    sleep::wake(&mut context);
    sleep::arm(&mut context);
    assert!(sleep::check(&mut context), "nobody wants it any more");
    sleep::wake(&mut context);
    drop(hand);
    assert_eq!(queue.wait(2, None).unwrap(), 2);
}

/// The notification that it takes may be for other queues of a group. Their thread is woken for
/// these alone.
#[test]
fn shared_notifications_are_passed_on() {
    let (_device, _queue, hardware) = open();
    let worker = Worker::new(&hardware).unwrap();
    let (flag, vector) = (hardware.users[0].wake.flag(), hardware.pair.vector());
    flag.arm();
    worker.notice_group();
    assert!(flag.is_armed(), "nothing was posted");
    hardware.pair.posted(vector).unwrap().post(vector.0);
    worker.notice_group();
    assert!(!flag.is_armed(), "no thread was woken");
}
