//! A queue in an event loop of the application: the results of `turn`, the deadline, the
//! descriptor. The tests step the device.

use completion::{Mode, Notification, Plan};
use hw::Poller;
use units::Nanos;

use super::manual_stepping;
use super::sharing::{hardware, pair};
use crate::thread::queue_pair::QueuePair;
use crate::thread::ring_queue::RingQueue;
use crate::{Completion, Device, OpenOptions, PollStatus, Queue, Request};

fn open(mode: Mode) -> (Device, Queue) {
    let device = Device::open_with(
        "mem:1M?profile=null&queues=1",
        &OpenOptions { mode, ..OpenOptions::default() },
    )
    .unwrap();
    let queue = device.queue().unwrap();
    (device, queue)
}

fn submit(queue: &Queue, reads: usize) {
    let read = |_| Request::read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap());
    queue.submit((0..reads).map(read)).map_err(|(why, _)| why).unwrap();
}

fn is_readable(queue: &Queue) -> bool {
    let (poller, mut events) = (Poller::new().unwrap(), Vec::new());
    poller.add(pair(queue), 0).unwrap();
    poller.wait(Some(Nanos::ZERO), &mut events).unwrap();
    !events.is_empty()
}

/// What a loop does before it waits: calls `turn` while there is more to do, and reaps. Returns how
/// many.
fn turn(queue: &Queue) -> usize {
    let mut done: Vec<Completion> = Vec::with_capacity(64);
    for _ in 0..64 {
        let turned = queue.poll_events(4);
        queue.reap(&mut done);
        if !turned.more {
            assert!(done.iter().all(|done| done.result.is_ok()));
            return done.len();
        }
    }
    panic!("there is always more to do, in {}", pair(queue).mode());
}

/// A loop that follows the result of `turn`, the deadline and the descriptor misses nothing, and is
/// not woken for nothing.
#[test]
fn completions_wake_a_foreign_loop() {
    let _lock = manual_stepping();
    for mode in Mode::ALL {
        if mode.facts().drain_thread {
            // A drain thread reaps.
            continue;
        }
        let (device, queue) = open(mode);
        let hand = device.embedded().unwrap().manual_step();
        let rounds = 3 * sync::MAX_ROUNDS as usize;
        let mut found = 0;
        for round in 0..rounds {
            // As a batch: some modes poll after a commit.
            submit(&queue, 2);
            found += turn(&queue);
            assert!(!is_readable(&queue), "nothing came, round {round} in {mode}");
            while hand.step() {}
            let naps = matches!(pair(&queue).inner.borrow().waiter.plan, Plan::Nap { .. });
            assert_eq!(queue.next_deadline().is_some(), naps, "{mode}");
            // A coalesced message comes late. The time limit is for the failure.
            let limit = hw::now() + Nanos::from_secs(60);
            while !naps && !is_readable(&queue) {
                assert!(hw::now() < limit, "nobody is told, round {round} in {mode}");
                hand.step();
            }
            found += turn(&queue);
        }
        assert_eq!(found, 2 * rounds, "{mode}");
    }
}

/// Commands on the poll queue are polled for at the loop's deadline, whatever the descriptor says.
#[test]
fn nap_end_is_the_loop_deadline() {
    let _lock = manual_stepping();
    let options = OpenOptions {
        software_queues: Some(1),
        hardware_queues: Some(1),
        mode: Mode::POLL,
        ..OpenOptions::default()
    };
    let device = Device::open_with("mem:1M?profile=null&queues=2&masks=no", &options).unwrap();
    let (queue, hand) = (device.queue().unwrap(), device.embedded().unwrap().manual_step());
    submit(&queue, 1);
    assert_eq!(turn(&queue), 0);
    let plan = pair(&queue).inner.borrow().waiter.plan;
    let Plan::Nap { until, .. } = plan else {
        panic!("{plan:?} with a command out on the polled pair")
    };
    assert_eq!(pair(&queue).next_deadline(), Some(until));
    while hand.step() {}
    assert_eq!(turn(&queue), 1);
    assert_eq!(pair(&queue).next_deadline(), None);
}

/// A loop that computes between its calls of `turn` is not notified: it polls at the deadline. One
/// that sleeps is.
#[test]
fn computing_loops_stay_masked() {
    let _lock = manual_stepping();
    let (device, queue) = open(Mode::ADAPTIVE);
    let hand = device.embedded().unwrap().manual_step();
    submit(&queue, 2);
    let mut done: Vec<Completion> = Vec::with_capacity(8);
    // One `turn` that finds completions, with others in flight: whether it leaves the queue masked.
    let mut leaves_masked = || {
        while hand.step() {}
        submit(&queue, 2);
        queue.poll_events(4);
        queue.reap(&mut done);
        done.clear();
        queue.next_deadline().is_some()
    };
    // Whether one of several does, and is not notified then.
    let mut is_masked = |turns: u32, outside: &dyn Fn()| {
        (0..turns).any(|_| {
            let masked = leaves_masked();
            outside();
            while hand.step() {}
            assert!(!masked || !is_readable(&queue), "it is told in vain");
            masked
        })
    };
    let sleeps = || hw::sleep_until(hw::now() + Nanos::from_micros(60));
    let computes = || (0..20_000).for_each(|_| std::hint::spin_loop());
    assert!(!is_masked(600, &sleeps), "it waits elsewhere");
    assert!(is_masked(100_000, &computes), "it never is");
    // Its sleeps elsewhere do not count as computing.
    let round = |_| {
        let masked = leaves_masked();
        computes();
        for _ in 0..2 {
            queue.poll_events(4);
            sleeps();
        }
        masked
    };
    assert!((0..100).map(round).skip(90).any(|masked| masked), "it is told while it computes");
}

/// `more` is true while anything is left: completions past the budget, an inbox, requests to reap,
/// requests to fail.
#[test]
fn turns_report_remaining_work() {
    let _lock = manual_stepping();
    let device = Device::open_with(
        "mem:1M?profile=null&queues=1&entries=5",
        &OpenOptions::new().mode(Mode::INTERRUPT),
    )
    .unwrap();
    let queue = device.queue().unwrap();
    let hand = device.embedded().unwrap().manual_step();
    let turn =
        |found: u32, more: bool| assert_eq!(queue.poll_events(1), PollStatus { found, more });
    let reap = |requests: usize| {
        let mut done = Vec::with_capacity(8);
        assert_eq!(queue.reap(&mut done), requests);
    };
    turn(0, false);
    submit(&queue, 3);
    turn(0, false);
    while hand.step() {}
    turn(1, true);
    reap(1);
    assert!(hardware(&queue).pending());
    turn(1, true);
    reap(1);
    hardware(&queue).reap_for_owners(&mut Vec::with_capacity(4));
    assert!(!hardware(&queue).pending() && is_readable(&queue), "another thread has left one");
    turn(1, true);
    turn(0, true);
    reap(1);
    turn(0, false);
    // Two have no tag.
    submit(&queue, 6);
    turn(0, false);
    pair(&queue).shared.fail_all();
    assert!(is_readable(&queue), "two have to fail");
    turn(0, true);
    reap(2);
    turn(0, false);
    pair(&queue).shared.revive();
    while hand.step() {}
    drop(hand);
    assert_eq!(queue.wait(4, None).unwrap(), 4);
}

/// Inside the application's iterator `turn` does nothing, and reports that there may be more.
#[test]
fn turns_inside_submit_are_deferred() {
    let (_device, queue) = open(Mode::INTERRUPT);
    let inside = std::iter::from_fn(|| {
        assert_eq!(queue.poll_events(4), PollStatus { found: 0, more: true });
        assert!(pair(&queue).is_submitting() && !pair(&queue).inner.borrow().in_loop);
        None
    });
    queue.submit(inside).map_err(|(why, _)| why).unwrap();
    assert_eq!(queue.poll_events(4), PollStatus { found: 0, more: false });
}

/// A loop that stops watching the descriptor passes the notification on, and is not notified any
/// more.
#[test]
fn leaving_loops_give_up_the_role() {
    let _lock = manual_stepping();
    let options = OpenOptions {
        software_queues: Some(2),
        hardware_queues: Some(1),
        mode: Mode::INTERRUPT,
        ..OpenOptions::default()
    };
    let device = Device::open_with("mem:1M?profile=null&queues=1", &options).unwrap();
    let queues = [device.queue().unwrap(), device.queue().unwrap()];
    let [first, second] = queues.each_ref().map(pair);
    let hand = device.embedded().unwrap().manual_step();
    let has_role = |queue: &QueuePair<RingQueue>| queue.transport().has_role();
    for queue in &queues {
        submit(queue, 1);
        assert_eq!(turn(queue), 0);
    }
    assert!(has_role(first) && !has_role(second));
    queues[0].leave_loop();
    assert!(
        !has_role(first) && !first.inner.borrow().in_loop && !first.shared.wake.flag().is_armed()
    );
    // The next owner is woken, and finds what comes from now on.
    assert!(has_role(second) && is_readable(&queues[1]));
    assert_eq!(turn(&queues[1]), 0);
    while hand.step() {}
    assert!(is_readable(&queues[1]));
    assert_eq!((turn(&queues[1]), turn(&queues[0])), (1, 1));
    queues.iter().for_each(Queue::leave_loop);
}
