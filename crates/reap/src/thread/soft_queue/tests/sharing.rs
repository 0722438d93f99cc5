//! What software queues of one hardware queue do for one another, step by step: the device is stepped by hand.

use completion::{Mode, Plan, Route};
use hw::now;
use sync::WaiterId;
use units::Nanos;

use super::super::SoftQueue;
use super::by_hand;
use crate::thread::engine::Driven;
use crate::{Device, OpenOptions, Queue, Request};

/// This many software queues of one hardware queue.
pub(super) fn open(uri: &str, queues: usize, mode: Mode) -> (Device, Vec<Queue>) {
    let options = OpenOptions::new().software_queues(queues).hardware_queues(1).mode(mode);
    let device = Device::open_with(uri, &options).unwrap();
    let queues = (0..queues).map(|_| device.queue().unwrap()).collect();
    (device, queues)
}

pub(super) fn submit(queue: &Queue, requests: u64) {
    let ns = queue.namespaces()[0];
    let requests = (0..requests).map(|n| Request::read(&ns, n, queue.buffer(4096).unwrap()));
    queue.submit(requests).map_err(|(why, _)| why).unwrap();
}

pub(super) fn lane(queue: &Queue) -> &SoftQueue {
    queue.lanes()[0].controller()
}

/// What each of the queues waits for, and what each has got.
fn stand(queues: &[Queue]) -> Vec<(u32, usize)> {
    queues.iter().map(|queue| (queue.in_flight(), queue.finished())).collect()
}

#[test]
fn entries_go_to_sleeping_owners() {
    let _alone = by_hand();
    let (device, queues) = open("mem:1M?profile=null&queues=1", 130, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().by_hand();
    let owners = [0, 1, 63, 64, 65, 127, 129];
    for owner in owners {
        submit(&queues[owner], 1 + owner as u64 % 2);
    }
    while hand.step() {}
    queues.iter().for_each(|queue| lane(queue).soft.wake.arm());
    let hardware = &lane(&queues[0]).queue;
    // Queue 64 takes them; as many at once as there are, so that none is left.
    assert_eq!(lane(&queues[64]).look(u32::MAX).0, 12);
    assert!(!hardware.hint() && !hardware.hint() && !hardware.hint());
    assert_eq!(queues[64].finished(), 1);
    for (n, queue) in queues.iter().enumerate() {
        let (left, told) = (!lane(queue).soft.inbox.is_empty(), !lane(queue).soft.wake.bell().is_armed());
        let expected = owners.contains(&n) && n != 64;
        assert_eq!((left, told), (expected, expected), "queue {n}");
        assert_eq!(lane(queue).look_while_spinning(), expected, "queue {n}");
    }
    for owner in owners {
        let queue = &queues[owner];
        assert_eq!(queue.wait(2, None).unwrap(), 1 + owner % 2, "queue {owner}");
    }

    // A thread that is none of theirs leaves each with its owner, however little it takes at once.
    for owner in owners {
        submit(&queues[owner], 1);
    }
    while hand.step() {}
    hardware.take_for_owners(&mut Vec::with_capacity(2));
    assert!(!hardware.hint());
    assert!(owners.iter().all(|&owner| !lane(&queues[owner]).soft.inbox.is_empty()));
    for owner in owners {
        assert_eq!(queues[owner].wait(3, None).unwrap(), 2 + owner % 2, "queue {owner}");
    }
}

/// The thread that sleeps on the queue may have found the lock held, and then been told for the last time.
#[test]
fn leftover_entries_wake_the_sleeper() {
    let _alone = by_hand();
    let (device, queues) = open("mem:1M?profile=null&queues=1&entries=33", 2, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().by_hand();
    let (sleeper, hardware) = (&lane(&queues[0]).soft, &lane(&queues[0]).queue);
    assert!(hardware.role.try_take(WaiterId(0)));
    let is_told_of = |entries: u64| {
        submit(&queues[1], entries);
        while hand.step() {}
        sleeper.wake.arm();
        // Eight at most.
        hardware.take_for_owners(&mut Vec::with_capacity(2));
        let told = !sleeper.wake.bell().is_armed();
        lane(&queues[1]).look(u32::MAX);
        told
    };
    assert!(!is_told_of(4), "all are taken, and the other queue's thread is told");
    assert!(is_told_of(20));
    assert_eq!(hardware.role.release(WaiterId(0)), None);
    assert_eq!(queues[1].wait(24, None).unwrap(), 24);
}

#[test]
fn tags_go_to_the_longest_waiter() {
    let _alone = by_hand();
    let (device, queues) = open("mem:1M?profile=null&queues=1&entries=3", 3, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().by_hand();
    let [first, second, third] = &queues[..] else { unreachable!("three were taken") };
    let hardware = &lane(first).queue;
    let carry_out = || while hand.step() {};
    assert_eq!(hardware.most(), 2);
    submit(first, 2);
    submit(second, 3);
    submit(third, 1);
    // What is in line comes before what its queues add, and before a queue that has a tag to return.
    submit(first, 1);
    assert_eq!((hardware.lane.in_flight(), stand(&queues)), (2, vec![(3, 0), (3, 0), (1, 0)]));
    // As long as there are no tags, the thread that serves the line need not come again.
    assert!(hardware.try_serve_line(now()));
    carry_out();
    lane(first).look(u32::MAX);
    assert_eq!((hardware.lane.in_flight(), stand(&queues)), (2, vec![(1, 2), (3, 0), (1, 0)]));
    carry_out();
    lane(second).look(u32::MAX);
    assert_eq!((hardware.lane.in_flight(), stand(&queues)), (2, vec![(1, 2), (1, 2), (1, 0)]));
    carry_out();
    // The housekeeping thread takes what is there, and serves the line without waiting for anybody.
    hardware.take_for_owners(&mut Vec::with_capacity(8));
    {
        let _busy = hardware.lane.lock::<true>();
        assert!(!hardware.try_serve_line(now()), "it has to come again");
    }
    assert!(hardware.try_serve_line(now()));
    assert_eq!(hardware.lane.in_flight(), 1);
    carry_out();
    for (queue, all) in queues.iter().zip([3, 3, 1]) {
        assert_eq!(queue.wait(all, None).unwrap(), all);
    }
    // Nobody waits any more, so that a queue with a tag posts at once.
    submit(third, 1);
    assert_eq!((hardware.lane.in_flight(), hardware.try_serve_line(now())), (1, true));
    carry_out();
    assert_eq!(third.wait(2, None).unwrap(), 2);
}

#[test]
fn busy_queues_take_tags_later() {
    let _alone = by_hand();
    let (device, queues) = open("mem:1M?profile=null&queues=1&entries=2", 2, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().by_hand();
    let [first, second] = &queues[..] else { unreachable!("two were taken") };
    let hardware = &lane(first).queue;
    submit(first, 1);
    submit(second, 1);
    while hand.step() {}
    let book = lane(second).soft.requests();
    lane(first).look(u32::MAX);
    assert_eq!((hardware.lane.in_flight(), first.finished()), (0, 1));
    drop(book);
    hardware.serve_own(now());
    assert_eq!(hardware.lane.in_flight(), 1);
    while hand.step() {}
    assert_eq!(second.wait(1, None).unwrap(), 1);
}

#[test]
fn unmaskable_links_poll_both_lanes() {
    let _alone = by_hand();
    let (device, queues) = open("mem:1M?profile=null&queues=2&masks=no", 1, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().by_hand();
    let queue = &queues[0];
    let hardware = &lane(queue).queue;
    let polled = hardware.polled.as_ref().unwrap();
    let both = || (hardware.lane.in_flight(), polled.in_flight());
    submit(queue, 3);
    assert_eq!(both(), (3, 0));
    queue.set_mode(Mode::POLL);
    assert!(matches!(lane(queue).plan(now(), Nanos::MAX), Plan::Look { .. } | Plan::Spin { .. }));
    submit(queue, 4);
    assert_eq!(lane(queue).soft.requests().route, Route::Poll);
    assert_eq!(both(), (3, 4));
    assert!(!hardware.hint() && !hardware.hint() && !hardware.hint());
    while hand.step() {}
    assert!(hardware.hint() && hardware.hint() && hardware.hint());
    // Half of a look's places are the first lane's, so that neither starves the other.
    assert_eq!((lane(queue).look(2).0, both()), (2, (2, 3)));
    assert!(lane(queue).looker.borrow().waiter.seen.budget_used_up);
    assert_eq!((lane(queue).look(u32::MAX).0, both()), (5, (0, 0)));
    assert!(!hardware.hint() && !lane(queue).looker.borrow().waiter.seen.pending);

    // Either lane alone is enough for a look to be worth it, whether the other one's lock is free or not.
    submit(queue, 1);
    while hand.step() {}
    assert!(hardware.hint() && hardware.hint() && hardware.hint());
    assert_eq!(lane(queue).look(u32::MAX).0, 1);
    queue.set_mode(Mode::INTERRUPT);
    lane(queue).plan(now(), Nanos::MAX);
    submit(queue, 1);
    while hand.step() {}
    assert!(hardware.hint() && hardware.hint() && hardware.hint());
    assert_eq!(queue.wait(9, None).unwrap(), 9);

    // What one lane alone has left over is left over.
    for mode in [Mode::INTERRUPT, Mode::POLL] {
        queue.set_mode(mode);
        lane(queue).plan(now(), Nanos::MAX);
        submit(queue, 3);
        while hand.step() {}
        assert!(lane(queue).look(2).0 < 3);
        let (used_up, more) = (lane(queue).looker.borrow().waiter.seen.budget_used_up, lane(queue).looker.borrow().waiter.seen.pending);
        assert!(used_up && more, "{mode}");
        lane(queue).look(u32::MAX);
    }
    assert_eq!(queue.finished(), 15);
}

#[test]
fn dead_controllers_post_nothing() {
    let _alone = by_hand();
    let (device, queues) = open("mem:1M?profile=null&queues=1&entries=3", 1, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().by_hand();
    let (queue, hardware) = (&queues[0], &lane(&queues[0]).queue);
    submit(queue, 3);
    lane(queue).soft.wake.arm();
    hardware.fail();
    assert!(hardware.is_dead() && !lane(queue).soft.wake.bell().is_armed());
    submit(queue, 2);
    assert_eq!((hardware.lane.in_flight(), stand(&queues)), (2, vec![(2, 3)]), "what waited has failed, and what came since");
    let mut done = Vec::with_capacity(8);
    queue.reap(&mut done);
    assert!(done.len() == 3 && done.iter().all(|done| done.result.is_err()));
    hardware.revive();
    while hand.step() {}
    submit(queue, 1);
    // It posts what waited as it takes what was out.
    lane(queue).look(u32::MAX);
    assert_eq!((hardware.lane.in_flight(), stand(&queues)), (1, vec![(1, 2)]));
    while hand.step() {}
    assert_eq!(queue.wait_or_idle(3, Some(crate::Instant::now() + std::time::Duration::from_secs(60))).unwrap(), 3);
}

/// A queue that is served while its thread sleeps is told where no notification tells of what was posted for it, and not elsewhere.
#[test]
fn silent_lanes_wake_served_queues() {
    let _alone = by_hand();
    for (mode, told) in [(Mode::POLL, true), (Mode::INTERRUPT, false)] {
        let (device, queues) = open("mem:1M?profile=null&queues=2&masks=no&entries=2", 2, mode);
        let hand = device.embedded().unwrap().by_hand();
        let [first, second] = &queues[..] else { unreachable!("two were taken") };
        let hardware = &lane(first).queue;
        let (polled, notifying) = (hardware.polled.as_ref().unwrap(), &hardware.lane);
        submit(first, 1);
        submit(second, 1);
        assert_eq!((polled.in_flight() == 1, notifying.in_flight() == 1), (told, !told));
        lane(second).soft.wake.arm();
        while hand.step() {}
        assert_eq!(lane(first).look(u32::MAX).0, 1);
        assert_eq!((polled.in_flight() == 1, notifying.in_flight() == 1), (told, !told), "the second's is posted");
        assert_eq!(!lane(second).soft.wake.bell().is_armed(), told, "{mode}");
        while hand.step() {}
        assert_eq!(second.wait(1, None).unwrap(), 1);
    }
}
