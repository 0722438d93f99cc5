//! The calls of an event loop on a queue, one by one: before the thread sleeps, where it blocks,
//! after it wakes. The tests step the device.

use completion::{Cause, Mode, Plan, Spin};
use units::Nanos;

use super::manual_stepping;
use super::sharing::{hardware, pair};
use crate::thread::contention::Contention;
use crate::thread::event_loop::{LoopQueue, Slept};
use crate::thread::path_queue::PathQueue;
use crate::{Device, OpenOptions, Queue, Request};
use hw::now;

const URI: &str = "mem:1M?profile=null&queues=1";

fn open(uri: &str, mode: Mode) -> (Device, Queue) {
    let device = Device::open_with(uri, &OpenOptions { mode, ..OpenOptions::default() }).unwrap();
    let queue = device.queue().unwrap();
    (device, queue)
}

fn read(queue: &Queue) -> Request {
    Request::read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap())
}

fn submit(queue: &Queue, requests: usize) {
    queue.submit((0..requests).map(|_| read(queue))).map_err(|(why, _)| why).unwrap();
}

fn slept(notified: bool) -> Slept {
    Slept { found: false, nap: false, notified, woke_at: now(), until: Nanos::MAX, cycle: None }
}

/// The doorbell is rung before the policy is asked for a plan.
#[test]
fn plans_commit_unannounced_posts() {
    let _lock = manual_stepping();
    for mode in [Mode::INTERRUPT, Mode::POLL] {
        let (device, queue) = open(URI, mode);
        let hand = device.embedded().unwrap().manual_step();
        let (pair, hardware) = (pair(&queue), hardware(&queue));
        // A polling mode has polled once, and spins.
        submit(&queue, 1);
        while let Plan::Poll { budget } = pair.plan(now(), Nanos::MAX) {
            pair.poll(budget);
        }
        let future = queue.read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap());
        assert_eq!((hardware.pair.in_flight(), LoopQueue::in_flight(pair)), (1, 2));
        let plan = pair.plan(now(), Nanos::MAX);
        assert_eq!(hardware.pair.in_flight(), 2, "{mode}, {plan:?}");
        drop(hand);
        queue.block_on(future).unwrap().0.unwrap();
    }
}

#[test]
fn queues_report_their_mode() {
    for (mode, spin, weighs, yields_cpu) in [
        (Mode::INTERRUPT, Spin::Naps, false, false),
        (Mode::POLL, Spin::Yields, false, true),
        (Mode::POLL, Spin::Naps, false, false),
        (Mode::ADAPTIVE, Spin::Naps, true, false),
    ] {
        let (_device, queue) = open(URI, mode);
        queue.set_spin(spin);
        assert_eq!(
            (pair(&queue).measures_sleeps(), pair(&queue).yields_cpu()),
            (weighs, yields_cpu),
            "{mode}, {spin}"
        );
    }
}

/// The run delay is sampled after a spin that found nothing, after a nap, and while the thread
/// yields.
#[test]
fn cpu_contention_is_asked_again() {
    let (_device, queue) = open(URI, Mode::POLL);
    let pair = pair(&queue);
    // Run delay from before the first sample does not count.
    let wanted = |ask: &dyn Fn()| {
        pair.inner.borrow_mut().contention = Contention::default();
        pair.inner.borrow_mut().waiter.seen.cpu_wanted = true;
        ask();
        pair.inner.borrow().waiter.seen.cpu_wanted
    };
    assert!(wanted(&|| {}));
    assert!(!wanted(&|| pair.spin_ended(now())));
    assert!(!wanted(&|| pair.woken(&slept(false))));
}

/// The cause of a wake-up is counted, and given to the policy. A queue without coalescing does not
/// wake the controller task.
#[test]
fn wakeups_are_counted_by_cause() {
    let (_device, queue) = open(URI, Mode::INTERRUPT);
    let pair = pair(&queue);
    pair.shared.idle.arm();
    for (notified, cause, wakeups) in
        [(true, Cause::Notification, 1), (false, Cause::Other, 2), (true, Cause::Notification, 3)]
    {
        pair.arm();
        pair.woken(&slept(notified));
        assert_eq!(queue.counters().wakeups, wakeups);
        assert_eq!(pair.inner.borrow().waiter.seen.woke.map(|woke| woke.cause), Some(cause));
    }
    assert!(pair.shared.idle.is_armed());
    pair.shared.idle.disarm();
}

/// The queue's poller reports a message of its vector once.
#[test]
fn poller_events_name_the_vector() {
    let _lock = manual_stepping();
    let (device, queue) = open(URI, Mode::INTERRUPT);
    let (pair, hand) = (pair(&queue), device.embedded().unwrap().manual_step());
    assert!(!pair.drain_events().unwrap());
    submit(&queue, 1);
    while hand.step() {}
    assert!(pair.drain_events().unwrap());
    assert!(!pair.drain_events().unwrap());
    drop(hand);
    pair.poll(u32::MAX);
    assert_eq!(queue.finished(), 1);
}

/// With nothing open, a queue of a controller that is given up polls once, and may sleep.
#[test]
fn idle_queues_have_nothing_to_fail() {
    let (_device, queue) = open(URI, Mode::INTERRUPT);
    let pair = pair(&queue);
    pair.shared.fail_all();
    assert!(pair.poll_ready());
    assert_eq!((pair.poll(u32::MAX).0, queue.finished()), (0, 0));
    assert!(pair.shared.fails_all() && !pair.poll_ready());
    pair.arm();
    assert!(!pair.check_before_sleep());
    pair.woken(&slept(false));
    pair.shared.revive();
}

#[test]
fn requested_modes_are_adopted() {
    let (_device, queue) = open(URI, Mode::INTERRUPT);
    pair(&queue).shared.mode.request(Mode::POLL);
    assert_eq!(pair(&queue).mode(), Mode::INTERRUPT);
    pair(&queue).plan(now(), Nanos::MAX);
    assert_eq!(pair(&queue).mode(), Mode::POLL);
}

/// Queues share a notification only on one controller, and only if each has its vector alone.
#[test]
fn same_thread_queues_share_notifications() {
    let options = OpenOptions {
        software_queues: Some(3),
        hardware_queues: Some(2),
        mode: Mode::POSTED,
        ..OpenOptions::default()
    };
    let open = || Device::open_with("mem:1M?profile=null&queues=2&vectors=3", &options).unwrap();
    let (device, other) = (open(), open());
    let queues = [device.queue().unwrap(), device.queue().unwrap(), device.queue().unwrap()];
    let elsewhere = other.queue().unwrap();
    fn path(queue: &Queue) -> &PathQueue {
        &queue.path_queues()[0]
    }
    assert!(queues.iter().all(|queue| path(queue).shares_controller(path(&queues[0]))
        && !path(queue).shares_controller(path(&elsewhere))));
    let (several, single): (Vec<_>, Vec<_>) =
        queues.iter().partition(|queue| hardware(queue).has_several_users());
    assert_eq!((several.len(), single.len()), (2, 1));
    for (queue, home) in [(several[0], single[0]), (single[0], several[0])] {
        path(queue).share_notification(path(home));
        let own = &hardware(queue).pair;
        assert_eq!(pair(queue).transport().posted_msi.target(own), own.vector());
    }
}
