use completion::Mode;

use crate::{Device, Group, OpenOptions, Queue, Request, now};
use units::Nanos;

fn read(queue: &Queue, ios: u64) {
    let ns = queue.namespaces()[0];
    let mut done = Vec::with_capacity(8);
    for n in 0..ios {
        let batch = (0..8).map(|i| Request::read(&ns, (n + i) % 64, queue.buffer(4096).unwrap()));
        queue.submit(now(), batch).map_err(|(why, _)| why).unwrap();
        assert_eq!(queue.wait(8, Nanos::MAX).unwrap(), 8);
        queue.reap(&mut done);
        assert_eq!(done.drain(..).filter(|done| done.result.is_ok()).count(), 8);
    }
}

/// While a drain thread takes its entries, and afterwards, a queue of its own is what it was before: its thread watches the vector,
/// and does not go by the look role.
#[test]
fn a_queue_that_was_drained_is_its_threads_alone_again() {
    let device = Device::open_with("mem:1M?profile=optane", &OpenOptions { mode: Mode::INTERRUPT, ..OpenOptions::default() }).unwrap();
    let queue = device.queue().unwrap();
    let lane = &queue.lanes()[0];
    let alone = || {
        let looker = lane.looker.borrow();
        assert!(!lane.queue.is_shared() && looker.waiter.owner && lane.watched.get().read && !looker.waiter.others_look);
        assert_eq!(lane.queue.role.owner(), None);
    };
    alone();
    for mode in Mode::ALL {
        queue.set_mode(Mode::THREADED);
        read(&queue, 20);
        assert!(lane.queue.is_shared() && !lane.watched.get().read);
        if mode.placement() == completion::Placement::DrainThread {
            continue;
        }
        queue.set_mode(mode);
        read(&queue, 20);
        alone();
    }
    // The same for whoever takes the queue next.
    queue.set_mode(Mode::THREADED);
    read(&queue, 1);
    drop(queue);
    let queue = device.queue().unwrap();
    assert!(queue.lanes().iter().all(|lane| lane.queue.is_shared() == lane.looker.borrow().waiter.others_look));
    read(&queue, 1);
}

/// Queues of a group have one notification where they are posted, whatever mode they were in when they were joined or since.
#[test]
fn a_drain_thread_leaves_a_groups_notification_as_it_was() {
    let options = OpenOptions { software_queues: 2, hardware_queues: 2, mode: Mode::THREADED, ..OpenOptions::default() };
    let device = Device::open_with("mem:1M?profile=optane&queues=2&vectors=3", &options).unwrap();
    let group = Group::new((0..2).map(|_| device.queue().unwrap()).collect()).unwrap();
    let lanes: Vec<_> = group.queues().iter().flat_map(Queue::lanes).collect();
    for mode in [Mode::POSTED, Mode::THREADED, Mode::POSTED] {
        group.queues().iter().for_each(|queue| queue.set_mode(mode));
        group.wait(1, Nanos::MAX).unwrap();
        assert!(
            lanes.iter().all(|lane| lane.mode() == mode && lane.posting.home(&lane.queue.lane) == lanes[0].queue.lane.vector()),
            "{mode}"
        );
    }
}

/// The notification of a group's posted messages is its first queue's. Whatever mode that one alone is in, the others are notified: a
/// drain thread, which takes its vector, passes on what stands for them. (The limit is for the failure: a message that is lost is
/// found by nobody.)
#[test]
fn a_group_is_notified_of_what_was_posted_whatever_its_first_queue_does() {
    let options = OpenOptions { software_queues: 2, hardware_queues: 2, mode: Mode::POSTED, ..OpenOptions::default() };
    let device = Device::open_with("mem:1M?profile=optane&queues=2&vectors=3", &options).unwrap();
    let group = Group::new((0..2).map(|_| device.queue().unwrap()).collect()).unwrap();
    let [first, posted] = group.queues() else { unreachable!("two were joined") };
    let mut done = Vec::with_capacity(8);
    for mode in Mode::ALL {
        first.set_mode(mode);
        for n in 0..50 {
            let batch = [posted, first].into_iter().take(1 + n % 2);
            let sent = batch.map(|queue| queue.submit(now(), [Request::read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap())]));
            let sent = sent.map(|sent| sent.map_err(|(why, _)| why).unwrap()).count();
            assert_eq!(group.wait(sent, now() + Nanos::from_secs(20)).unwrap(), sent, "{mode}");
            group.queues().iter().for_each(|queue| _ = queue.reap(&mut done));
        }
    }
    assert!(done.iter().all(|done| done.result.is_ok()));
}

/// An iterator of the caller's that panics is its end: what it has yielded is done, whether it found a tag or waits for one, and the
/// queue goes on.
#[test]
fn requests_before_a_panic_of_the_iterator_are_done() {
    for mode in [Mode::POLL, Mode::INTERRUPT] {
        let device = Device::open_with("mem:1M?entries=4", &OpenOptions { mode, ..OpenOptions::default() }).unwrap();
        let queue = device.queue().unwrap();
        let ns = queue.namespaces()[0];
        let mut all = 0;
        for yielded in [0, 2, 10, 1, 7] {
            let requests = (0..=yielded).map(|n| {
                assert!(n < yielded, "the caller's own mistake");
                Request::read(&ns, n, queue.buffer(4096).unwrap())
            });
            let submit = || queue.submit(now(), requests).map_err(|(why, _)| why).unwrap();
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(submit)).is_err());
            // Those of before are done and not reaped.
            all += yielded as usize;
            assert_eq!(queue.in_flight() as usize + queue.finished(), all, "in {mode}");
            assert_eq!(queue.wait_until(all, now() + Nanos::from_secs(20)).unwrap(), all, "in {mode}");
            assert_eq!(queue.in_flight(), 0, "in {mode}");
        }
        let mut done = Vec::with_capacity(all);
        assert_eq!(queue.reap(&mut done), all);
        assert!(done.iter().all(|done| done.result.is_ok()));
        read(&queue, 10);
    }
}

#[test]
fn without_a_time_out_every_command_would_be_late_and_no_device_is_opened() {
    let opened = Device::open_with("mem:1M?profile=null", &OpenOptions { timeout: Nanos::ZERO, ..OpenOptions::default() });
    let refused = opened.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("time-out of 0"), "{refused}");
}
