//! Whole-stack: the three ways to drive a queue, shared hardware queues, mode switches, and futures that are let go.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Waker};

use reap::{Device, Group, Mode, Nanos, OpenOptions, Queue, Reactor, Request};

fn open(options: OpenOptions) -> Device {
    open_without("", options)
}

fn open_without(what: &str, options: OpenOptions) -> Device {
    Device::open_with(&format!("mem:64M?profile=optane{what}"), &OpenOptions { pool_bytes: 64 << 20, ..options }).unwrap()
}

/// Runs a test on devices that lack what some links lack: a mask; a mask, and queue pairs for second lanes; a vector for each queue;
/// properties that answer at once.
fn everywhere(test: impl Fn(&dyn Fn(OpenOptions) -> Device)) {
    for lack in ["", "&masks=no", "&masks=no&queues=1", "&masks=no&vectors=2", "&properties=late"] {
        println!("with `{lack}`");
        test(&|options| open_without(lack, options));
    }
}

/// Writes its number to `n` blocks of its own and reads them back, `depth` at a time.
fn work(queue: &Queue, owner: u8, n: u64, depth: usize) {
    let ns = queue.namespaces()[0];
    let base = u64::from(owner) * 8192;
    for write in [true, false] {
        let (mut next, mut finished, mut out) = (0, 0, Vec::with_capacity(depth));
        while finished < n {
            let room = depth.saturating_sub(queue.in_flight() as usize).min((n - next) as usize);
            let batch = (next..next + room as u64).map(|i| {
                let mut buf = queue.buffer(512).unwrap();
                buf.fill(if write { owner ^ i as u8 } else { 0 });
                let request = if write { Request::write(&ns, base + i, buf) } else { Request::read(&ns, base + i, buf) };
                request.tag(i)
            });
            queue.submit(reap::now(), batch).map_err(|(why, _)| why).unwrap();
            next += room as u64;
            queue.wait(1, Nanos::MAX).unwrap();
            queue.reap(&mut out);
            for done in out.drain(..) {
                done.result.unwrap();
                let buf = done.buf.unwrap();
                assert!(write || buf.iter().all(|&b| b == owner ^ done.tag as u8), "block {} of {owner}", done.tag);
                finished += 1;
            }
        }
    }
    assert_eq!((queue.in_flight(), queue.finished()), (0, 0));
}

#[test]
fn threads_share_one_hardware_queue_in_every_mode() {
    everywhere(|open| {
        for mode in Mode::ALL {
            let device = open(OpenOptions { software_queues: 4, hardware_queues: 1, depth: 16, mode, ..OpenOptions::default() });
            std::thread::scope(|scope| {
                for owner in 1..=4 {
                    let queue = device.queue().unwrap();
                    scope.spawn(move || work(&queue, owner, 150, 8));
                }
            });
            let counters = device.counters();
            assert!(counters.sq_doorbells > 0 && counters.leaked_bytes == 0, "{mode}: {counters:?}");
        }
    });
}

#[test]
fn modes_switch_every_5_ms_with_requests_in_flight() {
    everywhere(|open| {
        let device = open(OpenOptions { software_queues: 3, hardware_queues: 2, ..OpenOptions::default() });
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (1..=3)
                .map(|owner| {
                    let queue = device.queue().unwrap();
                    scope.spawn(move || (0..3).for_each(|_| work(&queue, owner, 500, 16)))
                })
                .collect();
            scope.spawn(|| {
                for mode in Mode::ALL.into_iter().cycle() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    device.set_mode(mode);
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            });
            let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            stop.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|end| end.unwrap());
        });
        let health = device.health();
        assert_eq!((health.aborts, health.resets), (0, 0), "a lost wake-up ends in an abort: {health:?}");
    });
}

#[test]
fn a_group_takes_turns_over_queues_of_several_devices() {
    everywhere(|open| {
        let devices = [open(OpenOptions::default()), open(OpenOptions { mode: Mode::POLL, ..OpenOptions::default() })];
        let group = Group::new(devices.iter().map(|d| d.queue().unwrap()).collect()).unwrap();
        let mut out = Vec::with_capacity(64);
        for round in 0..50 {
            for queue in group.queues() {
                let ns = queue.namespaces()[0];
                let batch = (0..8).map(|i| Request::read(&ns, i * 8, queue.buffer(4096).unwrap()));
                queue.submit(reap::now(), batch).map_err(|(why, _)| why).unwrap();
            }
            assert_eq!(group.wait(16, Nanos::MAX).unwrap(), 16, "round {round}");
            group.queues().iter().for_each(|queue| _ = queue.reap(&mut out));
            assert_eq!(out.drain(..).filter(|done| done.result.is_ok()).count(), 16);
        }
    });
}

#[test]
#[expect(deprecated, reason = "the replacement is unsafe; the queue owns its descriptor for as long as it lives")]
fn a_foreign_loop_turns_the_queue_when_its_descriptor_is_readable() {
    everywhere(|open| {
        for mode in Mode::ALL {
            let device = open(OpenOptions { mode, ..OpenOptions::default() });
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().unwrap();
            runtime.block_on(async {
                let queue = tokio::io::unix::AsyncFd::new(device.queue().unwrap()).unwrap();
                let ns = device.namespaces()[0];
                for n in 0..100u64 {
                    let mut write = pin!(queue.get_ref().write(&ns, n, device.buffer(512).unwrap()));
                    loop {
                        let polled = write.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                        if let std::task::Poll::Ready((result, _)) = polled {
                            result.unwrap();
                            break;
                        }
                        if queue.get_ref().turn(64).more || queue.get_ref().in_flight() == 0 {
                            continue;
                        }
                        // What is only looked for tells nobody: the queue says when to come.
                        let left = queue.get_ref().next_deadline().map_or(Nanos::MAX, |deadline| deadline - reap::now());
                        let ready = tokio::time::timeout(std::time::Duration::from_nanos(left.0), queue.readable()).await;
                        if let Ok(ready) = ready {
                            ready.unwrap().clear_ready();
                        }
                    }
                }
            });
        }
    });
}

#[test]
fn a_reactor_drives_futures_of_other_threads() {
    everywhere(|open| {
        let device = open(OpenOptions { software_queues: 2, ..OpenOptions::default() });
        let reactor = Reactor::start(device.queue().unwrap(), None).unwrap();
        let here = device.queue().unwrap();
        let ns = device.namespaces()[0];
        for n in 0..200 {
            let request = Request::write(&ns, n, device.buffer(512).unwrap());
            here.block_on(reactor.start_request(request)).unwrap().result.unwrap();
        }
        drop(reactor);
    });
}

#[test]
fn dropped_and_forgotten_futures_leave_their_buffers_with_the_queue() {
    everywhere(|open| {
        let device = open(OpenOptions { depth: 8, ..OpenOptions::default() });
        let queue = device.queue().unwrap();
        let ns = device.namespaces()[0];
        for n in 0..200 {
            drop(queue.read(&ns, n, queue.buffer(4096).unwrap()));
            std::mem::forget(queue.read(&ns, n, queue.buffer(4096).unwrap()));
            drop(queue.start(Request::flush(&ns)));
        }
        let (result, _) = queue.block_on(queue.read(&ns, 0, queue.buffer(4096).unwrap())).unwrap();
        result.unwrap();
        assert_eq!(device.counters().leaked_bytes, 0);
    });
}

#[test]
fn a_queue_that_is_dropped_with_requests_in_flight_can_be_taken_again() {
    everywhere(|open| {
        let device = open(OpenOptions::default());
        let ns = device.namespaces()[0];
        for _ in 0..20 {
            let queue = device.queue().unwrap();
            assert!(device.queue().is_err(), "there is only one");
            let batch = (0..100).map(|n| Request::read(&ns, n, queue.buffer(512).unwrap()));
            queue.submit(reap::now(), batch).map_err(|(why, _)| why).unwrap();
        }
        work(&device.queue().unwrap(), 1, 100, 8);
    });
}

#[test]
fn blocking_inside_block_on_is_an_error() {
    let device = open(OpenOptions { software_queues: 2, ..OpenOptions::default() });
    let (queue, other) = (device.queue().unwrap(), device.queue().unwrap());
    queue
        .block_on(async {
            assert!(other.block_on(async {}).is_err());
            assert!(other.wait(1, Nanos::MAX).is_err());
        })
        .unwrap();
    assert!(other.block_on(async {}).is_ok());
}

#[test]
fn a_reset_in_the_middle_loses_nothing() {
    everywhere(|open| {
        for mode in [Mode::INTERRUPT, Mode::POLL] {
            let device = open(OpenOptions { software_queues: 2, hardware_queues: 1, mode, ..OpenOptions::default() });
            std::thread::scope(|scope| {
                for owner in 1..=2 {
                    let queue = device.queue().unwrap();
                    scope.spawn(move || (0..10).for_each(|_| work(&queue, owner, 500, 16)));
                }
                for _ in 0..5 {
                    std::thread::sleep(std::time::Duration::from_millis(4));
                    device.reset();
                }
            });
            let health = device.health();
            assert!(health.resets >= 1 && health.dead.is_none(), "{health:?}");
        }
    });
}

#[test]
fn a_mode_asked_for_before_the_queue_is_taken_is_the_queues_mode() {
    everywhere(|open| {
        for (opened, asked) in [(Mode::POLL, Mode::INTERRUPT), (Mode::INTERRUPT, Mode::IRQ_POLL)] {
            let device = open(OpenOptions { mode: opened, ..OpenOptions::default() });
            device.set_mode(asked);
            let queue = device.queue().unwrap();
            assert_eq!(queue.mode(), asked);
            work(&queue, 1, 100, 8);
            queue.set_mode(opened);
            work(&queue, 1, 100, 8);
            drop(queue);
            let again = device.queue().unwrap();
            assert_eq!(again.mode(), asked);
            work(&again, 1, 100, 8);
        }
    });
}

/// The second comes while the thread is at work on the first, and finds its bell masked, or armed.
#[test]
fn a_foreign_loop_misses_no_mode_that_another_thread_asks_for() {
    let device = open(OpenOptions::default());
    let queue = device.queue().unwrap();
    let (in_force, over) = (AtomicU32::new(queue.mode().into()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The queue is this thread's alone.
            let queue = queue;
            let (poller, mut events) = (hw::Poller::new().unwrap(), Vec::new());
            poller.add(&queue, 0).unwrap();
            while !over.load(Ordering::Acquire) {
                while queue.turn(64).more {}
                in_force.store(queue.mode().into(), Ordering::Release);
                poller.wait(None, &mut events).unwrap();
            }
        });
        let is_adopted = |round: u32| {
            device.set_mode(Mode::POLL);
            (0..round % 997).for_each(|_| std::hint::spin_loop());
            device.set_mode(Mode::INTERRUPT);
            let since = std::time::Instant::now();
            while in_force.load(Ordering::Acquire) != u32::from(Mode::INTERRUPT) && since.elapsed().as_secs() < 20 {
                std::thread::yield_now();
            }
            in_force.load(Ordering::Acquire) == u32::from(Mode::INTERRUPT)
        };
        let missed = (0..100_000).find(|&round| !is_adopted(round));
        over.store(true, Ordering::Release);
        device.set_mode(Mode::POLL);
        assert_eq!(missed, None, "the mode of this round was adopted by nobody");
    });
}
