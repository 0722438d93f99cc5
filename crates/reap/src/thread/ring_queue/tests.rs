mod caller;
mod foreign_loop;
mod orphans;
mod policy_inputs;
mod posted_msi;
mod sharing;
mod sleep_steps;

use std::sync::{Mutex, MutexGuard, PoisonError};

use completion::{Mode, Plan};
use hw::now;
use units::Nanos;

use super::RingQueue;
use crate::thread::event_loop::{LoopQueue, Slept};
use crate::thread::queue_pair::QueuePair;
use crate::{Device, Group, OpenOptions, Queue, Request};

/// One thread steps all embedded controllers of the process, so only one test at a time may step
/// them itself. Take the lock first, so that it is released last.
pub(in crate::thread) fn manual_stepping() -> MutexGuard<'static, ()> {
    static HAND: Mutex<()> = Mutex::new(());
    HAND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device with `queues` software queues on `hardware` hardware queues, all of them taken.
fn open(uri: &str, queues: usize, hardware: usize, mode: Mode) -> (Device, Vec<Queue>) {
    let options = OpenOptions::new().software_queues(queues).hardware_queues(hardware).mode(mode);
    let device = Device::open_with(uri, &options).unwrap();
    let queues = (0..queues).map(|_| device.queue().unwrap()).collect();
    (device, queues)
}

fn pair(queue: &Queue) -> &QueuePair<RingQueue> {
    queue.path_queues()[0].controller()
}

fn request(queue: &Queue, lba: u64) -> Request {
    Request::read(&queue.namespaces()[0], lba, queue.buffer(4096).unwrap())
}

fn submit(queue: &Queue, requests: u64) {
    queue.submit((0..requests).map(|lba| request(queue, lba))).map_err(|(why, _)| why).unwrap();
}

/// Polls as long as the policy plans to. Returns the next plan.
fn poll_while_planned(pair: &QueuePair<RingQueue>) -> Plan {
    loop {
        match pair.plan(now(), Nanos::MAX) {
            Plan::Poll { budget } => _ = pair.poll(budget),
            plan => return plan,
        }
    }
}

fn read(queue: &Queue, ios: u64) {
    let ns = queue.namespaces()[0];
    let mut done = Vec::with_capacity(8);
    for n in 0..ios {
        let batch = (0..8).map(|i| Request::read(&ns, (n + i) % 64, queue.buffer(4096).unwrap()));
        queue.submit(batch).map_err(|(why, _)| why).unwrap();
        assert_eq!(queue.wait(8, None).unwrap(), 8);
        queue.reap(&mut done);
        assert_eq!(done.drain(..).filter(|done| done.result.is_ok()).count(), 8);
    }
}

/// After a drain thread has ended, the only queue of its hardware queue has the vector in its
/// poller again.
#[test]
fn drained_queues_return_to_their_thread() {
    let device =
        Device::open_with("mem:1M?profile=optane", &OpenOptions::new().mode(Mode::INTERRUPT))
            .unwrap();
    let queue = device.queue().unwrap();
    let hardware = pair(&queue).transport().hardware().clone();
    let alone = || {
        let inner = pair(&queue).inner.borrow();
        let (ring, waiter) = (&inner.transport, &inner.waiter);
        assert!(
            !hardware.is_shared()
                && waiter.owner
                && ring.watched
                && !ring.drained
                && !waiter.others_look
        );
        assert_eq!(hardware.role.owner(), None);
    };
    alone();
    for mode in Mode::ALL {
        queue.set_mode(Mode::THREADED);
        read(&queue, 20);
        assert!(hardware.is_shared() && !pair(&queue).transport().watched);
        if mode.facts().drain_thread {
            continue;
        }
        queue.set_mode(mode);
        read(&queue, 20);
        alone();
    }
    // The same for the thread that takes the queue next.
    queue.set_mode(Mode::THREADED);
    read(&queue, 1);
    drop(queue);
    let queue = device.queue().unwrap();
    let others_poll = pair(&queue).inner.borrow().waiter.others_look;
    assert_eq!(
        (others_poll, pair(&queue).transport().drained),
        (hardware.is_shared(), hardware.is_shared())
    );
    read(&queue, 1);
}

/// The counters of a queue agree with each other and with the calls.
#[test]
fn counters_match_the_calls() {
    const IOS: u64 = 40;
    for mode in [Mode::INTERRUPT, Mode::HYBRID_MEAN, Mode::POLL] {
        let options = OpenOptions::new().mode(mode);
        let device = Device::open_with("mem:1M?profile=tlc", &options).unwrap();
        let queue = device.queue().unwrap();
        _ = queue.take_counters();
        read(&queue, IOS);
        let counted = queue.counters();
        assert_eq!((counted.entries, counted.submit_checks), (IOS * 8, 0), "{mode}: {counted:?}");
        assert_eq!(counted.polls, counted.drains + counted.empty_polls, "{mode}: {counted:?}");
        // 8 requests at a time.
        assert!(
            (IOS..=IOS * 8).contains(&counted.drains) && (1..=8).contains(&counted.drain_max),
            "{mode}: {counted:?}"
        );
        assert!(
            counted.entries <= counted.drains * u64::from(counted.drain_max),
            "{mode}: {counted:?}"
        );
        assert!(counted.wakeups <= counted.sleeps + counted.naps, "{mode}: {counted:?}");
        // If other threads want the CPU, a thread that spins also naps.
        match mode {
            Mode::INTERRUPT => assert!(
                counted.sleeps > 0 && counted.naps == 0 && counted.spins == 0,
                "{counted:?}"
            ),
            Mode::POLL => assert!(counted.sleeps == 0 && counted.spins > 0, "{counted:?}"),
            _ => assert!(counted.naps > 0, "{counted:?}"),
        }
    }
}

/// In `posted`, queues of a group share one notification, whichever modes they had before.
#[test]
fn drain_threads_keep_group_notifications() {
    let options = OpenOptions::new().software_queues(2).hardware_queues(2).mode(Mode::THREADED);
    let device = Device::open_with("mem:1M?profile=optane&queues=2&vectors=3", &options).unwrap();
    let group = Group::new((0..2).map(|_| device.queue().unwrap()).collect()).unwrap();
    let pairs: Vec<_> = group.queues().iter().map(pair).collect();
    let home = pairs[0].transport().queue.pair.vector();
    for mode in [Mode::POSTED, Mode::THREADED, Mode::POSTED] {
        group.queues().iter().for_each(|queue| queue.set_mode(mode));
        group.wait(1, None).unwrap();
        for pair in &pairs {
            let ring = pair.transport();
            assert_eq!((pair.mode(), ring.posted_msi.target(&ring.queue.pair)), (mode, home));
        }
    }
}

/// A group posts its messages to the first queue's vector. The others are notified whichever mode
/// that queue is in: its drain thread wakes them. (The time limit is for the failure: a lost
/// message is never found.)
#[test]
fn posted_messages_notify_the_group() {
    let options = OpenOptions::new().software_queues(2).hardware_queues(2).mode(Mode::POSTED);
    let device = Device::open_with("mem:1M?profile=optane&queues=2&vectors=3", &options).unwrap();
    let group = Group::new((0..2).map(|_| device.queue().unwrap()).collect()).unwrap();
    let [first, posted] = group.queues() else { unreachable!("two were joined") };
    let mut done = Vec::with_capacity(8);
    for mode in Mode::ALL {
        first.set_mode(mode);
        for n in 0..50 {
            let batch = [posted, first].into_iter().take(1 + n % 2);
            let sent = batch.map(|queue| {
                queue.submit([Request::read(
                    &queue.namespaces()[0],
                    0,
                    queue.buffer(4096).unwrap(),
                )])
            });
            let sent = sent.map(|sent| sent.map_err(|(why, _)| why).unwrap()).count();
            assert_eq!(
                group
                    .wait(sent, Some(crate::Instant::now() + std::time::Duration::from_secs(60)))
                    .unwrap(),
                sent,
                "{mode}"
            );
            group.queues().iter().for_each(|queue| _ = queue.reap(&mut done));
        }
    }
    assert!(done.iter().all(|done| done.result.is_ok()));
}

/// A thread that waits for one queue of a group alone is woken by messages posted to the group.
/// (The time limit is for the failure.)
#[test]
fn group_members_can_wait_alone() {
    // No other thread would find the completion.
    let late = std::time::Duration::from_secs(600);
    let options =
        OpenOptions::new().software_queues(2).hardware_queues(2).mode(Mode::POSTED).timeout(late);
    let device = Device::open_with("mem:1M?profile=optane&queues=2&vectors=3", &options).unwrap();
    let group = Group::new((0..2).map(|_| device.queue().unwrap()).collect()).unwrap();
    let mut done = Vec::with_capacity(8);
    let limit = || Some(crate::Instant::now() + std::time::Duration::from_secs(60));
    let submit = |queue: &Queue| {
        let read = Request::read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap());
        queue.submit([read]).map_err(|(why, _)| why).unwrap();
    };
    for round in 0..100 {
        let [first, second] = group.queues() else { unreachable!("two were joined") };
        let (alone, other) = if round % 3 == 0 { (first, second) } else { (second, first) };
        submit(alone);
        // Sometimes the notification is outstanding for the other queue already.
        (round % 2 == 0).then(|| submit(other));
        assert_eq!(alone.wait(1, limit()).unwrap(), 1, "round {round}");
        alone.reap(&mut done);
        assert_eq!(
            group.wait(1, (round % 2 == 0).then(limit).flatten()).unwrap(),
            usize::from(round % 2 == 0),
            "round {round}"
        );
        other.reap(&mut done);
    }
    assert!(done.len() == 150 && done.iter().all(|done| done.result.is_ok()));
}

/// After an iterator has panicked, the requests that it has yielded finish, with a tag or waiting
/// for one, and the queue works.
#[test]
fn iterator_panics_keep_earlier_requests() {
    for mode in [Mode::POLL, Mode::INTERRUPT] {
        let device = Device::open_with("mem:1M?entries=4", &OpenOptions::new().mode(mode)).unwrap();
        let queue = device.queue().unwrap();
        let ns = queue.namespaces()[0];
        let mut all = 0;
        for yielded in [0, 2, 10, 1, 7] {
            let requests = (0..=yielded).map(|n| {
                assert!(n < yielded, "the caller's own mistake");
                Request::read(&ns, n, queue.buffer(4096).unwrap())
            });
            let submit = || queue.submit(requests).map_err(|(why, _)| why).unwrap();
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(submit)).is_err());
            // Earlier requests are finished and not reaped.
            all += yielded as usize;
            assert_eq!(queue.in_flight() as usize + queue.finished(), all, "in {mode}");
            assert_eq!(
                queue
                    .wait(all, Some(crate::Instant::now() + std::time::Duration::from_secs(60)))
                    .unwrap(),
                all,
                "in {mode}"
            );
            assert_eq!(queue.in_flight(), 0, "in {mode}");
        }
        let mut done = Vec::with_capacity(all);
        assert_eq!(queue.reap(&mut done), all);
        assert!(done.iter().all(|done| done.result.is_ok()));
        read(&queue, 10);
    }
}

#[test]
fn zero_timeout_is_refused() {
    let opened = Device::open_with(
        "mem:1M?profile=null",
        &OpenOptions::new().timeout(std::time::Duration::ZERO),
    );
    let refused = opened.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("time-out of 0"), "{refused}");
}

/// The check between arming and blocking finds whatever has arrived, from any source, and nothing
/// if nothing has.
#[test]
fn poll_before_sleep_finds_completions() {
    let _lock = manual_stepping();
    let device =
        Device::open_with("mem:1M?profile=null", &OpenOptions::new().mode(Mode::IRQ_POLL)).unwrap();
    let (queue, hand) = (device.queue().unwrap(), device.embedded().unwrap().manual_step());
    let pair = pair(&queue);
    let (shared, hardware) = (&pair.shared, pair.transport().hardware().clone());
    // Goes to sleep, with one event after arming, and wakes.
    let finds = |meanwhile: &dyn Fn()| {
        assert!(matches!(pair.plan(now(), Nanos::MAX), Plan::Sleep { .. }));
        pair.arm();
        assert!(shared.wake.flag().is_armed());
        meanwhile();
        let found = pair.check_before_sleep();
        pair.woken(&Slept {
            found,
            nap: false,
            notified: false,
            woke_at: now(),
            until: Nanos::MAX,
            cycle: None,
        });
        assert!(!shared.wake.flag().is_armed());
        poll_while_planned(pair);
        found
    };
    submit(&queue, 1);
    assert!(!finds(&|| {}), "nothing came");
    // A spurious wake-up is followed by a poll, and changes nothing.
    assert!(!finds(&|| {}));

    let entry = || while hand.step() {};
    assert!(finds(&|| entry()), "an entry");
    assert_eq!(queue.finished(), 1);

    submit(&queue, 1);
    let mail = || {
        entry();
        hardware.reap_for_owners(&mut Vec::with_capacity(4));
    };
    assert!(finds(&mail), "another thread has taken the entry, and left it in the inbox");
    assert_eq!(queue.finished(), 2);

    submit(&queue, 1);
    assert!(finds(&|| shared.mode.request(Mode::SUSPEND)), "another mode was asked for");
    shared.mode.request(Mode::IRQ_POLL);
    // Adopting a mode is followed by a poll.
    poll_while_planned(pair);
    assert!(!finds(&|| {}));

    assert!(
        finds(&|| shared.notice()),
        "another thread has left something else: a tag that came back"
    );
    assert!(!finds(&|| {}), "once");

    submit(&queue, 1);
    shared.fail_all();
    assert!(pair.poll_ready());
    shared.revive();
    poll_while_planned(pair);
    assert!(finds(&|| shared.fail_all()), "the controller is given up");
    shared.revive();
    entry();
    assert_eq!(queue.wait(4, None).unwrap(), 4);
}

/// A thread that owns the notification of a shared queue is woken by its id, in its own poller.
#[test]
fn role_holder_is_woken() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null&queues=1", 2, 1, Mode::INTERRUPT);
    let [first, second] = [pair(&queues[0]), pair(&queues[1])];
    let _hand = device.embedded().unwrap().manual_step();
    for queue in &queues {
        submit(queue, 1);
    }
    for pair in [first, second] {
        assert!(matches!(pair.plan(now(), Nanos::MAX), Plan::Sleep { .. }));
        pair.arm();
    }
    let owner = |pair: &QueuePair<RingQueue>| pair.inner.borrow().waiter.owner;
    let armed = |pair: &QueuePair<RingQueue>| pair.shared.wake.flag().is_armed();
    assert!(
        owner(first) && !owner(second) && first.transport().watched && !second.transport().watched
    );
    // The owner leaves: the other thread is the next owner, and is woken.
    first.leave();
    assert!(!armed(second) && armed(first));
    second.woken(&Slept {
        found: false,
        nap: false,
        notified: false,
        woke_at: now(),
        until: Nanos::MAX,
        cycle: None,
    });
    assert!(owner(second));
    // A thread that naps passes the role on as well.
    first.arm();
    assert!(!owner(first));
    second.inner.borrow_mut().waiter.plan = Plan::nap(Nanos::MAX);
    second.arm();
    assert!(!owner(second) && !armed(first));
    first.leave();
    second.leave();
}
