//! Queues of which each belongs to one thread, as a ring of the kernel's with `DEFER_TASKRUN` has it: nobody else may post, announce,
//! or take completions. The embedded link panics where another thread does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use reap::{Device, FaultPlan, Faults, Group, LocalQueue, Mode, Nanos, OpenOptions, Queue, QueueError, Reactor, Request};

const BLOCK: usize = 512;

fn open(queues: usize, mode: Mode) -> Device {
    open_without("", queues, mode)
}

fn open_without(what: &str, queues: usize, mode: Mode) -> Device {
    let options = OpenOptions { software_queues: queues, mode, depth: 16, pool_bytes: 16 << 20, ..OpenOptions::default() };
    Device::open_with(&format!("mem:64M?profile=optane&reaper=owner{what}"), &options).unwrap()
}

/// Writes its number to `n` blocks of its own and reads them back, `depth` at a time: more than there are tags.
fn work(queue: &Queue, owner: u8, n: u64, depth: usize) {
    let (ns, base) = (queue.namespaces()[0], u64::from(owner) * 8192);
    for write in [true, false] {
        let (mut next, mut finished, mut out) = (0, 0, Vec::with_capacity(depth));
        while finished < n {
            let room = depth.saturating_sub(queue.in_flight() as usize).min((n - next) as usize);
            let batch = (next..next + room as u64).map(|i| {
                let mut buf = queue.buffer(BLOCK).unwrap();
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
                assert!(write || done.buf.unwrap().iter().all(|&b| b == owner ^ done.tag as u8), "block {} of {owner}", done.tag);
                finished += 1;
            }
        }
    }
    assert_eq!((queue.in_flight(), queue.finished()), (0, 0));
}

/// So many writes, which nobody waits for yet.
fn begin(queue: &Queue, n: u64) {
    let ns = queue.namespaces()[0];
    let batch = (0..n).map(|i| Request::write(&ns, i, queue.buffer(BLOCK).unwrap()));
    queue.submit(reap::now(), batch).map_err(|(why, _)| why).unwrap();
}

#[test]
fn each_thread_drives_its_own_in_every_mode() {
    for what in ["", "&masks=no", "&masks=no&vectors=2", "&properties=late"] {
        for mode in Mode::ALL {
            let device = open_without(what, 3, mode);
            thread::scope(|scope| {
                for owner in 1..=3 {
                    let device = &device;
                    scope.spawn(move || work(&device.local_queue().unwrap(), owner, 60, 24));
                }
            });
            let (health, counters) = (device.health(), device.counters());
            assert_eq!((health.resets, health.aborts, counters.leaked_bytes), (0, 0, 0), "{mode} with `{what}`: {health:?}");
            let said = health.events.iter().any(|event| event.contains("belongs to one thread"));
            assert!(!said || mode.to_string().starts_with("threaded"), "{mode}: {health:?}");
        }
    }
}

#[test]
fn threaded_says_that_the_queues_own_thread_drains() {
    let device = open(1, Mode::THREADED);
    let queue = device.local_queue().unwrap();
    work(&queue, 1, 40, 8);
    assert_eq!(queue.hardware_counters().drain_cpu, Nanos::ZERO);
    while !device.health().events.iter().any(|event| event.contains("belongs to one thread")) {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn modes_switch_with_requests_in_flight() {
    let device = open(2, Mode::INTERRUPT);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (1..=2)
            .map(|owner| {
                let device = &device;
                scope.spawn(move || {
                    let queue = device.local_queue().unwrap();
                    (0..6).for_each(|_| work(&queue, owner, 200, 24));
                })
            })
            .collect();
        scope.spawn(|| {
            for mode in Mode::ALL.into_iter().cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                device.set_mode(mode);
                thread::sleep(Duration::from_millis(3));
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!((device.health().aborts, device.counters().leaked_bytes), (0, 0));
}

#[test]
fn a_queue_that_could_be_sent_is_refused() {
    let device = open(1, Mode::INTERRUPT);
    assert!(matches!(device.queue(), Err(QueueError::OneThread)));
    let first = device.local_queue().unwrap();
    assert!(matches!(device.local_queue(), Err(QueueError::AllTaken { queues: 1 })));
    drop(first);
    work(&device.local_queue().unwrap(), 1, 10, 4);
    // Where any thread may, so may this one.
    work(&Device::open("mem:64M?profile=optane").unwrap().local_queue().unwrap(), 1, 10, 4);
    let several = Device::open("multipath:?path=mem:64M%3Freaper=owner&path=mem:64M%3Freaper=owner");
    assert!(several.err().unwrap().to_string().contains("belong to one thread"));
    let few = Device::open_with("mem:64M?reaper=owner&queues=2", &OpenOptions { software_queues: 3, ..OpenOptions::default() });
    assert!(few.err().unwrap().to_string().contains("a hardware queue of its own"));
}

#[test]
fn a_group_takes_turns_over_queues_of_its_thread() {
    for mode in Mode::ALL {
        let (one, two) = (open(2, mode), open(1, mode));
        let queues = vec![one.local_queue().unwrap(), one.local_queue().unwrap(), two.local_queue().unwrap()];
        let group: Group<LocalQueue> = Group::new(queues).unwrap();
        for _ in 0..20 {
            group.queues().iter().for_each(|queue| begin(queue, 20));
            assert_eq!(group.wait(60, Nanos::MAX).unwrap(), 60, "{mode}");
            group.queues().iter().for_each(|queue| _ = queue.reap(&mut Vec::with_capacity(64)));
        }
    }
}

#[test]
fn a_reactor_drives_a_queue_that_its_own_thread_has_taken() {
    let device = open(1, Mode::ADAPTIVE);
    let reactor = Reactor::start_local(&device, None).unwrap();
    assert!(matches!(Reactor::start_local(&device, None), Err(QueueError::AllTaken { .. })));
    let main = Device::open("mem:1M").unwrap().queue().unwrap();
    let ns = device.namespaces()[0];
    for i in 0..100 {
        let done = main.block_on(reactor.start_request(Request::write(&ns, i, device.buffer(BLOCK).unwrap()))).unwrap();
        done.result.unwrap();
    }
}

#[test]
fn a_foreign_loop_turns_it() {
    let device = open(1, Mode::INTERRUPT);
    for mode in Mode::ALL {
        let queue = device.local_queue().unwrap();
        queue.set_mode(mode);
        begin(&queue, 24);
        let poller = hw::Poller::new().unwrap();
        poller.add(&*queue, 0).unwrap();
        while queue.finished() < 24 {
            if !queue.turn(8).more {
                let due = queue.next_deadline().map_or(Nanos::from_millis(500), |due| due - reap::now());
                poller.wait(Some(due), &mut Vec::new()).unwrap();
            }
        }
        queue.leave_loop();
    }
}

#[test]
fn memory_of_the_callers_takes_part() {
    let device = open(1, Mode::POLL);
    let queue = device.local_queue().unwrap();
    let ns = device.namespaces()[0];
    let mut frames = reap::Pages::new(1 << 20).unwrap();
    frames[4096..8192].fill(9);
    // Registered by another thread than the owner.
    let frames = thread::scope(|scope| scope.spawn(|| device.register(frames).map_err(|(why, _)| why).unwrap()).join().unwrap());
    let (result, _) = queue.block_on(queue.write(&ns, 0, frames.buffer(4096..8192).unwrap())).unwrap();
    result.unwrap();
    let (result, read) = queue.block_on(queue.read(&ns, 0, device.buffer(4096).unwrap())).unwrap();
    result.unwrap();
    assert!(read.iter().all(|&byte| byte == 9));
}

/// A device whose commands take their time, as long as the test wants.
fn hanging(timeout: Nanos) -> (Device, Faults) {
    let faults = Faults::new(FaultPlan::new());
    let embedded = reap::EmbeddedOptions { faults: Some(faults.clone()), ..Default::default() };
    let options = OpenOptions { timeout, depth: 16, embedded, ..OpenOptions::default() };
    (Device::open_with("mem:64M?profile=optane&reaper=owner", &options).unwrap(), faults)
}

/// The owner goes while commands are out that nobody answers: it stays for a second, and a reset takes the rest back.
#[test]
fn an_owner_that_goes_leaves_nothing_behind_for_good() {
    let (device, faults) = hanging(Nanos::from_secs(2));
    let before = device.counters().leaked_bytes;
    let owner = {
        let (device, faults) = (device.clone(), faults.clone());
        thread::spawn(move || {
            let queue = device.local_queue().unwrap();
            begin(&queue, 8);
            faults.hang();
            begin(&queue, 8);
        })
    };
    owner.join().unwrap();
    if device.in_flight() > 0 {
        // Taken up by another thread, it goes on as if it were new.
        faults.go_on();
        work(&device.local_queue().unwrap(), 1, 20, 4);
    }
    while device.in_flight() > 0 {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((device.counters().leaked_bytes, device.health().dead), (before, None));
}

/// The same, and nobody takes the queue again: what has no owner is taken back when its time is over.
#[test]
fn what_is_left_comes_back_with_a_reset() {
    let (device, faults) = hanging(Nanos::from_millis(1_500));
    let (tell, told) = mpsc::channel();
    let left = Arc::new(AtomicBool::new(false));
    {
        let (device, left) = (device.clone(), left.clone());
        thread::spawn(move || {
            let queue = device.local_queue().unwrap();
            begin(&queue, 1);
            queue.wait(1, Nanos::MAX).unwrap();
            faults.hang();
            begin(&queue, 8);
            drop(queue);
            left.store(true, Ordering::SeqCst);
            faults.go_on();
            tell.send(()).unwrap();
        });
    }
    told.recv().unwrap();
    while device.in_flight() > 0 {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(left.load(Ordering::SeqCst) && device.health().dead.is_none());
    assert!(device.health().events.iter().any(|event| event.contains("left by its thread")), "{:?}", device.health());
    work(&device.local_queue().unwrap(), 1, 20, 4);
}

/// A command that is late because its thread computes is not the controller's fault, and nobody but that thread can look.
#[test]
fn an_owner_that_computes_finds_what_has_come() {
    let (device, _faults) = hanging(Nanos::from_millis(300));
    let queue = device.local_queue().unwrap();
    begin(&queue, 4);
    thread::sleep(Duration::from_millis(350));
    assert_eq!(queue.wait(4, Nanos::MAX).unwrap(), 4);
    let mut out = Vec::with_capacity(4);
    queue.reap(&mut out);
    assert!(out.iter().all(|done| done.result.is_ok()), "{out:?}");
    assert_eq!(device.health().resets, 0);
}
