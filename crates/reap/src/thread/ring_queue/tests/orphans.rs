//! Queues whose thread is gone or that are shared: left requests, tags, coalescing, counters. The
//! tests step the device.

use std::cell::Cell;
use std::sync::mpsc::{Sender, channel};

use completion::{Batch, Facts, Mode, Plan, Policy, Seen};
use hw::now;
use units::Nanos;

use super::{manual_stepping, open, pair, request, submit};
use crate::request::REQUEUED;
use crate::thread::event_loop::LoopQueue;
use crate::transport::QueueTransport;
use crate::{IoError, Queue};

#[test]
fn other_threads_commit_idle_posts() {
    let _lock = manual_stepping();
    let (_device, queues) = open("mem:1M?profile=null&queues=1", 1, 1, Mode::INTERRUPT);
    let queue = &queues[0];
    let hardware = pair(queue).transport().hardware().clone();
    assert_eq!(hardware.try_commit(), 0);
    let futures =
        [0, 8].map(|lba| queue.read(&queue.namespaces()[0], lba, queue.buffer(4096).unwrap()));
    {
        let _posts = hardware.pair.posting();
        assert_eq!((hardware.try_commit(), hardware.pair.in_flight()), (0, 0));
    }
    assert_eq!((hardware.try_commit(), hardware.try_commit()), (2, 0));
    for future in futures {
        queue.block_on(future).unwrap().0.unwrap();
    }
    // The queue's thread rings the doorbell for the rest.
    let future = queue.read(&queue.namespaces()[0], 0, queue.buffer(4096).unwrap());
    assert_eq!(hardware.pair.in_flight(), 0);
    queue.commit();
    queue.block_on(future).unwrap().0.unwrap();
}

/// Requests that wait for a tag when their queue is dropped are posted by the housekeeping thread.
#[test]
fn dropped_queues_finish_pending_requests() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null&queues=1&entries=3", 1, 1, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().manual_step();
    submit(&queues[0], 7);
    let hardware = pair(&queues[0]).transport().hardware().clone();
    assert_eq!((hardware.pair.in_flight(), hardware.tags()), (2, 2));
    drop((queues, hand));
    let limit = now() + Nanos::from_secs(60);
    while device.in_flight() > 0 {
        assert!(now() < limit, "{} requests are left", device.in_flight());
        std::thread::yield_now();
    }
    assert_eq!(hardware.pair.counters().finished, 7);
    // Nothing is left for the thread that takes the queue next.
    let queue = device.queue().unwrap();
    submit(&queue, 3);
    assert_eq!((queue.wait(3, None).unwrap(), queue.in_flight()), (3, 0));
}

/// A thread that takes a queue drives the requests that the last thread has left; its caller does
/// not see them.
#[test]
fn taken_queues_inherit_open_requests() {
    let _lock = manual_stepping();
    let (device, mut queues) =
        open("mem:1M?profile=null&queues=1&entries=3", 1, 1, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().manual_step();
    let hardware = pair(&queues[0]).transport().hardware().clone();
    for left in [2, 7] {
        submit(&queues[0], left);
        queues.clear();
        let queue = device.queue().unwrap();
        assert_eq!(
            (queue.in_flight(), queue.finished(), hardware.pair.in_flight()),
            (left as u32, 0, 2)
        );
        submit(&queue, 1);
        while queue.in_flight() > 0 {
            while hand.step() {}
            pair(&queue).poll(u32::MAX);
        }
        assert_eq!((queue.finished(), queue.reap(&mut Vec::with_capacity(4))), (1, 1));
        queues.push(queue);
    }
    assert_eq!(hardware.pair.counters().finished, 11);
}

/// A queue joins the wait list only for other queues' tags: its own come back with its completions.
/// While one waits, each queue that has requests has an equal share.
#[test]
fn queues_wait_for_others_tags() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null&queues=1&entries=5", 2, 1, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().manual_step();
    let [first, second] = [pair(&queues[0]), pair(&queues[1])];
    let hardware = first.transport().hardware().clone();
    let room = |posted: u32| first.transport().room(posted);
    submit(&queues[0], 6);
    assert!(!hardware.waiters.has_waiters(), "it has all tags");
    assert_eq!([0, 1, 4].map(room), [4, 3, 0]);
    submit(&queues[1], 1);
    assert!(hardware.waiters.has_waiters() && hardware.pair.in_flight() == 4);
    assert_eq!([0, 1, 2, 4].map(room), [2, 1, 0, 0]);
    while hand.step() {}
    // The waiting queue's share is free now. It gets a notice, and posts by itself.
    assert_eq!((first.poll(u32::MAX).0, second.shared.is_noticed()), (4, true));
    assert_eq!(hardware.pair.in_flight(), 2);
    second.poll(u32::MAX);
    assert!(!hardware.waiters.has_waiters() && hardware.pair.in_flight() == 3);
    assert_eq!([0, 1, 4].map(room), [4, 3, 0]);
    drop(hand);
    assert_eq!((queues[0].wait(6, None).unwrap(), queues[1].wait(1, None).unwrap()), (6, 1));
}

/// Requests are retried after a controller is back, but not after `fail_retries`, also on queues
/// that are taken later.
#[test]
fn only_fail_retries_ends_retries() {
    let _lock = manual_stepping();
    let (device, queues) = open("mem:1M?profile=null&queues=1", 1, 1, Mode::INTERRUPT);
    let hand = device.embedded().unwrap().manual_step();
    let hardware = pair(&queues[0]).transport().hardware().clone();
    let (user, mut queues, mut taken) = (&hardware.users[0], queues, Vec::with_capacity(1));
    // A request that a reset takes back.
    let mut take_back = |queue: &Queue| {
        submit(queue, 1);
        while hand.step() {}
        taken.clear();
        _ = hardware.pair.try_reap_more(1, &mut taken);
        taken[0].status = REQUEUED;
        hardware.deliver_one(&taken[0]);
        user.notice();
        pair(queue).poll(u32::MAX);
        (queue.finished(), hardware.pair.in_flight())
    };
    for given_up in [false, true] {
        if given_up {
            user.fail_all();
            pair(&queues[0]).poll(u32::MAX);
            user.revive();
            pair(&queues[0]).poll(u32::MAX);
        }
        assert_eq!(take_back(&queues[0]), (0, 1), "given up: {given_up}");
        while hand.step() {}
        let mut done = Vec::with_capacity(1);
        pair(&queues[0]).poll(u32::MAX);
        assert_eq!(queues[0].reap(&mut done), 1);
        assert!(done[0].result.is_ok());
    }
    device.fail_pending();
    // `fail_retries` stays in force.
    user.fail_all();
    user.revive();
    for _ in 0..2 {
        assert_eq!(take_back(&queues[0]), (1, 0));
        let mut done = Vec::with_capacity(1);
        queues[0].reap(&mut done);
        assert!(matches!(done[0].result, Err(IoError::TimedOut)), "{done:?}");
        queues.clear();
        queues.push(device.queue().unwrap());
        user.take_notice();
    }
}

/// The controller begins and ends Interrupt Coalescing as the mode of a single queue says.
#[test]
fn queue_modes_reach_the_controller() {
    let (device, queues) = open("mem:1M?profile=null&queues=1", 1, 1, Mode::INTERRUPT);
    for mode in [Mode::COALESCE, Mode::INTERRUPT, Mode::COALESCE] {
        queues[0].set_mode(mode);
        let limit = now() + Nanos::from_secs(60);
        while device.health().coalescing.is_some() != (mode == Mode::COALESCE) {
            assert!(now() < limit, "{mode}");
            std::thread::yield_now();
        }
    }
}

/// The messages of a vector are counted once, however many queues share it.
#[test]
fn device_messages_sum_the_vectors() {
    let _lock = manual_stepping();
    for (vectors, shared) in [(3, false), (2, true)] {
        let (device, queues) =
            open(&format!("mem:1M?profile=null&queues=2&vectors={vectors}"), 2, 2, Mode::INTERRUPT);
        let [first, second] =
            [0, 1].map(|n: usize| pair(&queues[n]).transport().hardware().pair.vector());
        assert_eq!(first == second, shared);
        // Stepped by the test: a message follows its CQE, which a waiting thread might reap before.
        let hand = device.embedded().unwrap().manual_step();
        for queue in &queues {
            submit(queue, 1);
            while hand.step() {}
            assert_eq!(queue.wait(1, None).unwrap(), 1);
        }
        let counters = device.counters();
        assert_eq!((counters.messages, counters.sq_doorbells), (2, 2), "{vectors} vectors");
    }
    // A poll queue has no messages.
    let (_device, queues) = open("mem:1M?profile=null&queues=2&masks=no", 1, 1, Mode::INTERRUPT);
    submit(&queues[0], 1);
    assert_eq!(queues[0].wait(1, None).unwrap(), 1);
    let hardware = pair(&queues[0]).transport().hardware().clone();
    let asked = Cell::new(0);
    _ = hardware.device_counters(|vector| {
        assert_eq!(vector, hardware.pair.vector());
        asked.set(asked.get() + 1);
        false
    });
    assert_eq!(asked.get(), 1, "a polled pair is asked for its vector");
}

/// The kernel's own modes on a queue of a controller.
#[test]
fn kernel_modes_fall_back_to_interrupt() {
    let (_device, queues) = open("mem:1M?profile=null", 1, 1, Mode::INTERRUPT);
    let controller = &pair(&queues[0]).controller;
    for mode in Mode::KERNELS {
        assert_eq!(controller.mode_on(None, mode), Mode::INTERRUPT);
    }
    for mode in Mode::ALL {
        assert_eq!(controller.mode_on(None, mode), mode);
    }
}

/// Only the urgent requests of a batch count as its urgent ones, whatever is open already.
#[test]
fn batches_inherit_urgency() {
    #[derive(Debug)]
    struct Reports(Sender<Batch>);
    impl Policy for Reports {
        fn next(&mut self, _: Nanos, seen: &Seen) -> Plan {
            if seen.pending || seen.woke.is_some() {
                Plan::Poll { budget: 32 }
            } else {
                Plan::sleep(Nanos::MAX)
            }
        }
        fn submitted(&mut self, _: Nanos, batch: &Batch) {
            _ = self.0.send(*batch);
        }
    }
    let _lock = manual_stepping();
    let (report, batches) = channel();
    let mode = Mode::register("reports-batches", Facts::MASKED, move |_| {
        Box::new(Reports(report.clone()))
    })
    .unwrap();
    let (device, queues) = open("mem:1M?profile=null&queues=1&entries=5", 1, 1, mode);
    let (queue, hand) = (&queues[0], device.embedded().unwrap().manual_step());
    // There is a tag for one of the last requests.
    for (urgent, plain, commands, told, in_flight) in
        [(2, 0, 2, 2, 2), (0, 1, 1, 0, 3), (3, 0, 1, 1, 6)]
    {
        let requests = (0..urgent)
            .map(|lba| request(queue, lba).urgent())
            .chain((0..plain).map(|lba| request(queue, lba)));
        queue.submit(requests).map_err(|(why, _)| why).unwrap();
        let batch = batches.try_recv().unwrap();
        assert_eq!((batch.commands, batch.urgent, batch.in_flight), (commands, told, in_flight));
    }
    drop(hand);
    assert_eq!(queue.wait(6, None).unwrap(), 6);
}
