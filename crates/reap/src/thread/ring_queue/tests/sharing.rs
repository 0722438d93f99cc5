//! Threads that share a hardware queue: reaping for each other, the notification role, tags. The
//! tests step the device.

use std::sync::Arc;

use completion::{Mode, Plan};
use hw::now;
use proptest::prelude::*;
use sync::WaiterId;
use units::Nanos;

use super::manual_stepping;
use crate::shared::hw_queue::HwQueue;
use crate::thread::event_loop::{LoopQueue, Slept};
use crate::thread::queue_pair::QueuePair;
use crate::thread::ring_queue::RingQueue;
use crate::transport::QueueTransport;
use crate::{Device, OpenOptions, Queue, Request};

/// A hardware queue with this many users.
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

pub(super) fn pair(queue: &Queue) -> &QueuePair<RingQueue> {
    queue.path_queues()[0].controller()
}

pub(super) fn hardware(queue: &Queue) -> Arc<HwQueue> {
    pair(queue).transport().hardware().clone()
}

/// Commands of a queue in flight, as its thread knows.
fn posted(queue: &Queue) -> u32 {
    pair(queue).inner.borrow().requests.posted()
}

fn is_woken(queue: &Queue) -> bool {
    !pair(queue).shared.wake.flag().is_armed()
}

fn slept(found: bool, notified: bool) -> Slept {
    Slept { found, nap: false, notified, woke_at: now(), until: Nanos::MAX, cycle: None }
}

/// Open and finished requests of each queue.
fn stand(queues: &[Queue]) -> Vec<(u32, usize)> {
    queues.iter().map(|queue| (queue.in_flight(), queue.finished())).collect()
}

#[test]
fn completions_go_to_sleeping_owners() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null&queues=1", 130, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().manual_step();
    let owners = [0, 1, 63, 64, 65, 127, 129];
    for owner in owners {
        submit(&queues[owner], 1 + owner as u64 % 2);
    }
    while hand.step() {}
    queues.iter().for_each(|queue| pair(queue).shared.wake.arm());
    let hardware = hardware(&queues[0]);
    // Queue 64 reaps all of them at once.
    assert_eq!(pair(&queues[64]).poll(u32::MAX).0, 12);
    assert!(!hardware.pending());
    assert_eq!(queues[64].finished(), 1);
    for (n, queue) in queues.iter().enumerate() {
        let (left, told) = (!pair(queue).shared.inbox.is_empty(), is_woken(queue));
        let expected = owners.contains(&n) && n != 64;
        assert_eq!((left, told), (expected, expected), "queue {n}");
        assert_eq!(pair(queue).poll_ready(), expected, "queue {n}");
    }
    for owner in owners {
        let queue = &queues[owner];
        assert_eq!(queue.wait(2, None).unwrap(), 1 + owner % 2, "queue {owner}");
    }

    // A thread that is no user delivers all of them, also with a small buffer.
    for owner in owners {
        submit(&queues[owner], 1);
    }
    while hand.step() {}
    hardware.reap_for_owners(&mut Vec::with_capacity(2));
    assert!(!hardware.pending());
    assert!(owners.iter().all(|&owner| !pair(&queues[owner]).shared.inbox.is_empty()));
    for owner in owners {
        assert_eq!(queues[owner].wait(3, None).unwrap(), 2 + owner % 2, "queue {owner}");
    }
}

/// CQEs left behind wake the owner of the notification: it may have found the lock busy after the
/// last message.
#[test]
fn leftover_entries_wake_the_sleeper() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null&queues=1&entries=33", 2, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().manual_step();
    let (sleeper, hardware) = (&pair(&queues[0]).shared, hardware(&queues[0]));
    assert!(hardware.role.try_take(WaiterId(0)));
    let wakes_for = |entries: u64| {
        submit(&queues[1], entries);
        while hand.step() {}
        sleeper.wake.arm();
        // Eight at most.
        hardware.reap_for_owners(&mut Vec::with_capacity(2));
        let told = is_woken(&queues[0]);
        pair(&queues[1]).poll(u32::MAX);
        told
    };
    assert!(!wakes_for(4), "all are taken, and the other queue's thread is woken");
    assert!(wakes_for(20));
    assert_eq!(hardware.role.release(WaiterId(0)), None);
    assert_eq!(queues[1].wait(24, None).unwrap(), 24);
}

/// Tags go to a queue that waits, whichever thread runs first.
#[test]
fn waiting_queues_share_tags_equally() {
    let _lock = manual_stepping();
    for order in [[0, 1, 2], [1, 2, 0], [2, 1, 0]] {
        let (device, queues) = open("mem:1M?profile=null&queues=1&entries=7", 3, Mode::INTERRUPT);
        let hand = device.embedded().unwrap().manual_step();
        let all = || queues.iter().map(posted).collect::<Vec<_>>();
        submit(&queues[0], 20);
        assert_eq!(all(), [6, 0, 0], "alone it has all tags");
        submit(&queues[1], 20);
        submit(&queues[2], 20);
        while hand.step() {}
        order.into_iter().for_each(|n| _ = pair(&queues[n]).poll(u32::MAX));
        assert_eq!(hardware(&queues[0]).pair.in_flight(), 6);
        assert_eq!(all(), [2, 2, 2], "in the order {order:?}");
        drop(hand);
        assert!(queues.iter().all(|queue| queue.wait(20, None).unwrap() == 20));
        // No queue waits any more.
        let _hand = device.embedded().unwrap().manual_step();
        submit(&queues[1], 20);
        assert_eq!(all(), [0, 6, 0]);
    }
}

/// A free tag goes to the queue that has waited longest. A queue that has had one waits behind
/// those that have not.
#[test]
fn few_tags_go_to_longest_waiter() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null&queues=1&entries=3", 4, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().manual_step();
    let all = || queues.iter().map(posted).collect::<Vec<_>>();
    submit(&queues[0], 2);
    for n in [3, 1, 2] {
        submit(&queues[n], 3);
    }
    while hand.step() {}
    for (n, after) in [
        (2, [2, 0, 0, 0]),
        (1, [2, 1, 0, 0]),
        (2, [2, 1, 0, 0]),
        (3, [2, 1, 0, 1]),
        (2, [2, 1, 0, 1]),
        (0, [0, 1, 0, 1]),
    ] {
        pair(&queues[n]).poll(u32::MAX);
        assert_eq!(all(), after, "after queue {n}");
    }
    while hand.step() {}
    // Both tags are free for the first waiter; one of them for the second.
    for (n, after) in [(1, [0, 1, 0, 1]), (3, [0, 1, 0, 0]), (2, [0, 1, 1, 0])] {
        pair(&queues[n]).poll(u32::MAX);
        assert_eq!(all(), after, "after queue {n}");
    }
    drop(hand);
    for (queue, all) in queues.iter().zip([2, 3, 3, 3]) {
        assert_eq!(queue.wait(all, None).unwrap(), all);
    }
}

#[test]
fn newcomers_take_no_tag_first() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null&queues=1&entries=2", 3, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().manual_step();
    submit(&queues[0], 1);
    submit(&queues[1], 1);
    while hand.step() {}
    assert_eq!(pair(&queues[0]).poll(u32::MAX).0, 1);
    submit(&queues[2], 1);
    assert_eq!(posted(&queues[2]), 0);
    pair(&queues[1]).poll(u32::MAX);
    assert_eq!(posted(&queues[1]), 1);
    drop(hand);
    assert!(queues.iter().all(|queue| queue.wait(1, None).unwrap() == 1));
}

/// A queue that has got a tag leaves the wait list, also if it got it while it joined.
#[test]
fn served_waiters_leave_the_list() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null&queues=1&entries=3", 4, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().manual_step();
    let carry_out = || while hand.step() {};
    // Neither thread runs again: the first has finished its requests, the fourth is first in the
    // list.
    submit(&queues[0], 2);
    submit(&queues[3], 1);
    submit(&queues[1], 1);
    for finished in [0, 1] {
        carry_out();
        pair(&queues[1]).poll(u32::MAX);
        assert_eq!(queues[1].finished(), finished);
    }
    submit(&queues[2], 2);
    assert_eq!(posted(&queues[2]), 1, "of two tags one is kept for the fourth");
    submit(&queues[1], 1);
    assert_eq!(posted(&queues[1]), 0);
    carry_out();
    pair(&queues[1]).poll(u32::MAX);
    assert_eq!(posted(&queues[1]), 1);
    drop(hand);
    for (queue, all) in queues.iter().zip([2, 2, 2, 1]) {
        assert_eq!(queue.wait(all, None).unwrap(), all);
    }
}

/// A thread that does not run leaves its inbox full, but keeps no tag.
#[test]
fn absent_threads_keep_no_tags() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null&queues=1&entries=5", 2, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().manual_step();
    let [absent, other] = &queues[..] else { unreachable!("two were taken") };
    submit(absent, 8);
    submit(other, 7);
    for has in [2, 4, 1, 0] {
        while hand.step() {}
        pair(other).poll(u32::MAX);
        assert_eq!(posted(other), has);
    }
    assert_eq!(stand(&queues), [(8, 0), (0, 7)]);
    drop(hand);
    assert_eq!(absent.wait(8, None).unwrap(), 8);
}

/// A queue that is closed while it is first in the wait list wakes the next.
#[test]
fn closed_waiters_wake_the_next() {
    let _lock = manual_stepping();
    let (device, mut queues) = open("mem:1M?profile=null&queues=1&entries=2", 3, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().manual_step();
    queues.iter().for_each(|queue| submit(queue, 1));
    while hand.step() {}
    assert_eq!(pair(&queues[0]).poll(u32::MAX).0, 1);
    pair(&queues[2]).poll(u32::MAX);
    assert_eq!(queues.iter().map(posted).collect::<Vec<_>>(), [0, 0, 0], "it is the second's turn");
    pair(&queues[2]).shared.wake.arm();
    // As `close` does. The housekeeping thread, which posts the rest, is not waited for.
    pair(&queues[1]).inner.borrow_mut().transport.close();
    assert!(is_woken(&queues[2]));
    pair(&queues[2]).poll(u32::MAX);
    assert_eq!(posted(&queues[2]), 1);
    drop(queues.remove(1));
    drop(hand);
    assert_eq!(queues[1].wait(1, None).unwrap(), 1);
}

/// A thread that sleeps without a tag is woken by the thread that returns some, on either pair. If
/// the tags come before it sleeps, it does not sleep.
#[test]
fn returned_tags_wake_sleeping_waiters() {
    let _lock = manual_stepping();
    for (uri, mode) in [
        ("mem:1M?profile=null&queues=1&entries=2", Mode::INTERRUPT),
        ("mem:1M?profile=null&queues=2&masks=no&entries=2", Mode::INTERRUPT),
        ("mem:1M?profile=null&queues=2&masks=no&entries=2", Mode::POLL),
    ] {
        let (device, queues) = open(uri, 2, mode);
        let hand = device.embedded().unwrap().manual_step();
        let [first, second] = &queues[..] else { unreachable!("two were taken") };
        let poll = |queue: &Queue| {
            while let Plan::Poll { budget } = pair(queue).plan(now(), Nanos::MAX) {
                pair(queue).poll(budget);
            }
        };
        for sleeps in [true, false] {
            submit(first, 1);
            submit(second, 1);
            assert_eq!((posted(first), posted(second)), (1, 0));
            poll(second);
            while hand.step() {}
            pair(second).inner.borrow_mut().waiter.plan = Plan::sleep(Nanos::MAX);
            if !sleeps {
                pair(first).poll(u32::MAX);
            }
            pair(second).arm();
            // The first queue's inbox is another reason not to sleep.
            assert!(sleeps || pair(second).check_before_sleep());
            if sleeps {
                pair(first).poll(u32::MAX);
                assert!(is_woken(second), "{uri} in {mode}");
            }
            pair(second).woken(&slept(!sleeps, false));
            poll(second);
            assert_eq!((posted(first), posted(second)), (0, 1), "{uri} in {mode}");
            while hand.step() {}
            pair(second).poll(u32::MAX);
        }
        assert_eq!(stand(&queues), [(0, 2), (0, 2)]);
    }
}

/// The next step of a thread that waits for its requests.
#[derive(Clone, Copy, PartialEq)]
enum Waits {
    Awake,
    Armed,
    Asleep,
}

/// Makes one step of a thread that waits for its requests. False: it sleeps until it is woken.
fn step(queue: &Queue, waits: &mut Waits) -> bool {
    let pair = pair(queue);
    match *waits {
        Waits::Awake => match pair.plan(now(), Nanos::MAX) {
            Plan::Poll { budget } => _ = pair.poll(budget),
            Plan::Sleep { .. } => {
                pair.arm();
                *waits = Waits::Armed;
            }
            _ => {
                pair.leave();
                return false;
            }
        },
        Waits::Armed if pair.check_before_sleep() => {
            pair.woken(&slept(true, false));
            *waits = Waits::Awake;
        }
        Waits::Armed => *waits = Waits::Asleep,
        Waits::Asleep => {
            let notified = pair.drain_events().unwrap();
            if !notified && !is_woken(queue) {
                return false;
            }
            pair.woken(&slept(false, notified));
            *waits = Waits::Awake;
        }
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// In any order of steps, every request of every queue finishes.
    #[test]
    fn no_schedule_loses_a_tag(threads in 2..=4usize, tags in 1..=5u32, schedule in proptest::collection::vec((0..4usize, 0..4u64, 0..3u8), 0..200)) {
        let _lock = manual_stepping();
        let (device, queues) = open(&format!("mem:1M?profile=null&queues=1&entries={}", tags + 1), threads, Mode::INTERRUPT);
        let hand = device.embedded().unwrap().manual_step();
        let (mut waits, mut sent) = ([Waits::Awake; 4], [0; 4]);
        for (n, requests, what) in schedule {
            let n = n % threads;
            match what {
                0 => _ = hand.step(),
                1 if waits[n] == Waits::Awake => {
                    pair(&queues[n]).leave();
                    submit(&queues[n], requests);
                    sent[n] += requests as usize;
                }
                _ => _ = step(&queues[n], &mut waits[n]),
            }
        }
        let (mut steps, mut idle) = (0, 0);
        // A thread that takes no step may have woken another by leaving its queue.
        while idle < 2 {
            let any = (0..threads).fold(hand.step(), |any, n| any | step(&queues[n], &mut waits[n]));
            (steps, idle) = (steps + 1, if any { 0 } else { idle + 1 });
            prop_assert!(steps < 100_000, "it never ends: {:?}", stand(&queues));
        }
        let finished: Vec<_> = sent[..threads].iter().map(|&sent| (0, sent)).collect();
        prop_assert_eq!(stand(&queues), finished);
    }
}

#[test]
fn unmaskable_transports_poll_both_pairs() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null&queues=2&masks=no", 1, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().manual_step();
    let queue = &queues[0];
    let hardware = hardware(queue);
    let polled = hardware.polled.as_ref().unwrap();
    let both = || (hardware.pair.in_flight(), polled.in_flight());
    submit(queue, 3);
    assert_eq!(both(), (3, 0));
    queue.set_mode(Mode::POLL);
    assert!(matches!(pair(queue).plan(now(), Nanos::MAX), Plan::Poll { .. } | Plan::Spin { .. }));
    submit(queue, 4);
    assert!(pair(queue).transport().to_poll_queue);
    assert_eq!(both(), (3, 4));
    assert!(!hardware.pending());
    while hand.step() {}
    assert!(hardware.pending());
    // Half of a poll's places are for the first pair.
    assert_eq!((pair(queue).poll(2).0, both()), (2, (2, 3)));
    assert!(pair(queue).inner.borrow().waiter.seen.budget_used_up);
    assert_eq!((pair(queue).poll(u32::MAX).0, both()), (5, (0, 0)));
    assert!(!hardware.pending() && !pair(queue).inner.borrow().waiter.seen.pending);

    // A completion on either pair makes a poll worthwhile, also if the other pair's lock is busy.
    submit(queue, 1);
    while hand.step() {}
    assert!(hardware.pending());
    assert_eq!(pair(queue).poll(u32::MAX).0, 1);
    queue.set_mode(Mode::INTERRUPT);
    pair(queue).plan(now(), Nanos::MAX);
    submit(queue, 1);
    while hand.step() {}
    assert!(hardware.pending());
    assert_eq!(queue.wait(9, None).unwrap(), 9);

    // CQEs left on one pair count as left.
    for mode in [Mode::INTERRUPT, Mode::POLL] {
        queue.set_mode(mode);
        pair(queue).plan(now(), Nanos::MAX);
        submit(queue, 3);
        while hand.step() {}
        assert!(pair(queue).poll(2).0 < 3);
        let (used_up, more) = (
            pair(queue).inner.borrow().waiter.seen.budget_used_up,
            pair(queue).inner.borrow().waiter.seen.pending,
        );
        assert!(used_up && more, "{mode}");
        pair(queue).poll(u32::MAX);
    }
    assert_eq!(queue.finished(), 15);
}

#[test]
fn dead_controllers_post_nothing() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null&queues=1&entries=3", 1, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().manual_step();
    let (queue, hardware) = (&queues[0], hardware(&queues[0]));
    submit(queue, 3);
    pair(queue).shared.wake.arm();
    pair(queue).shared.fail_all();
    assert!(is_woken(queue) && pair(queue).poll_ready());
    assert_eq!(
        (pair(queue).poll(u32::MAX).0, stand(&queues)),
        (0, vec![(2, 1)]),
        "what waited has failed"
    );
    submit(queue, 2);
    assert_eq!(
        (hardware.pair.in_flight(), stand(&queues)),
        (2, vec![(2, 3)]),
        "and what came since"
    );
    let mut done = Vec::with_capacity(8);
    queue.reap(&mut done);
    assert!(done.len() == 3 && done.iter().all(|done| done.result.is_err()));
    pair(queue).shared.revive();
    submit(queue, 1);
    while hand.step() {}
    // It posts waiting requests as it reaps.
    pair(queue).poll(u32::MAX);
    assert_eq!((hardware.pair.in_flight(), stand(&queues)), (1, vec![(1, 2)]));
    while hand.step() {}
    assert_eq!(
        queue
            .wait_or_idle(3, Some(crate::Instant::now() + std::time::Duration::from_secs(60)))
            .unwrap(),
        3
    );
}
