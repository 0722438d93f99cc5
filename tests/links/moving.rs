//! While requests are in flight: modes that change, queues, futures and devices that are let go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use reap::{Device, LocalQueue, Mode, Queue, QueueError, Request};

use super::place::{Kind, options};
use super::table::everywhere;
use super::work::{Job, begin};

#[test]
fn modes_switch_every_3_ms() {
    everywhere(&[], |place| {
        let device = place.open(4, Mode::INTERRUPT);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let device = &device;
            let job = |owner| Job { requests: 200, ..Job::of(owner) };
            let kept = |owner| {
                scope.spawn(move || {
                    let queue = device.local_queue().unwrap();
                    (0..3).for_each(|round| {
                        Job { fused: round == owner, generation: round, ..job(owner) }.run(&queue)
                    });
                })
            };
            let mut workers = vec![kept(0), kept(1)];
            for owner in [2, 3] {
                let queue = device.queue().unwrap();
                workers.push(scope.spawn(move || {
                    (0..3).for_each(|round| Job { generation: round, ..job(owner) }.run(&queue))
                }));
            }
            scope.spawn(|| {
                for mode in
                    Mode::ALL.into_iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed))
                {
                    device.set_mode(mode);
                    thread::sleep(Duration::from_millis(3));
                }
            });
            let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            stop.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|end| end.unwrap());
        });
        let (health, counters) = (device.health(), device.counters());
        assert_eq!(
            (health.aborts, health.resets, counters.leaked_bytes),
            (0, 0, 0),
            "a lost wake-up ends in an abort: {health:?}"
        );
    });
}

#[test]
fn mode_changes_under_a_batch() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        place.on_each_kind(&device, |queue, _| {
            for from in Mode::ALL {
                for to in
                    [Mode::INTERRUPT, Mode::POLL, Mode::THREADED, Mode::POSTED, Mode::ADAPTIVE]
                {
                    queue.set_mode(from);
                    begin(queue, 20);
                    queue.set_mode(to);
                    assert_eq!(queue.wait(20, None).unwrap(), 20, "from {from} to {to}");
                    queue.reap(&mut Vec::with_capacity(20));
                    assert_eq!(queue.mode(), to);
                }
            }
        });
        assert_eq!(device.health().aborts, 0);
    });
}

/// A queue of a device that has one: the last owner of it may have left some in flight.
fn again<Q>(take: impl Fn() -> Result<Q, QueueError>) -> Q {
    let since = Instant::now();
    loop {
        match take() {
            Err(QueueError::AllTaken { .. }) if since.elapsed() < Duration::from_secs(60) => {
                thread::sleep(Duration::from_millis(1))
            }
            taken => return taken.unwrap(),
        }
    }
}

#[test]
fn dropped_busy_queue_is_retaken() {
    everywhere(&[], |place| {
        for mode in [Mode::INTERRUPT, Mode::POLL, Mode::THREADED, Mode::ADAPTIVE] {
            let device = place.open(1, mode);
            for round in 0..8 {
                if round % 2 == 0 {
                    let queue: Queue = again(|| device.queue());
                    begin(&queue, 60);
                } else {
                    let queue: LocalQueue = again(|| device.local_queue());
                    begin(&queue, 60);
                }
            }
            let queue = again(|| device.local_queue());
            Job::of(1).run(&queue);
            drop(queue);
            nothing_is_left(&device);
        }
    });
}

#[test]
fn dropped_futures_leave_their_buffers() {
    everywhere(&[], |place| {
        let device = place.open_with(options(1).depth(8));
        place.on_each_kind(&device, |queue, _| {
            let ns = queue.namespaces()[0];
            for n in 0..60 {
                drop(queue.read(&ns, n, queue.buffer(4096).unwrap()));
                std::mem::forget(queue.read(&ns, n, queue.buffer(4096).unwrap()));
                drop(queue.start(Request::flush(&ns)));
            }
            let (result, _) =
                queue.block_on(queue.read(&ns, 0, queue.buffer(4096).unwrap())).unwrap();
            result.unwrap();
        });
        nothing_is_left(&device);
    });
}

#[test]
fn queues_outlive_the_device_handle() {
    everywhere(&[], |place| {
        for mode in [Mode::INTERRUPT, Mode::THREADED] {
            let device = place.open(2, mode);
            let other = device.local_queue().unwrap();
            drop(device);
            let ns = other.namespaces()[0];
            let write = other.write(&ns, 8, other.buffer(4096).unwrap());
            Job::of(2).run(&other);
            let (result, _) = other.block_on(write).unwrap();
            result.unwrap();
            // A future without its queue ends as well: the housekeeping thread takes its
            // completion.
            let read = other.read(&ns, 8, other.buffer(4096).unwrap());
            drop(other);
            let elsewhere = super::place::companion().queue().unwrap();
            let (result, _) = elsewhere.block_on(read).unwrap();
            result.unwrap();
        }
    });
}

#[test]
fn busy_closed_device_opens_again() {
    everywhere(&[], |place| {
        for kind in [Kind::Sent, Kind::Kept] {
            for _ in 0..3 {
                // It is free once the kernel has answered.
                let device = place.open_when_free(&options(1));
                match kind {
                    Kind::Sent => begin(&device.queue().unwrap(), 60),
                    Kind::Kept => begin(&device.local_queue().unwrap(), 60),
                }
            }
        }
    });
}

/// What was in flight ends without anybody's help.
fn nothing_is_left(device: &Device) {
    let since = Instant::now();
    while device.in_flight() > 0 {
        assert!(
            since.elapsed() < Duration::from_secs(60),
            "{} requests are still in flight",
            device.in_flight()
        );
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(device.counters().leaked_bytes, 0);
}
