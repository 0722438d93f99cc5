//! Queues of which each belongs to one thread, as a ring of the kernel's with `DEFER_TASKRUN` has it: nobody else may post, announce,
//! or take completions. The embedded link panics where another thread does. What such queues have in common with others is in `links/`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::work::{Job, begin};
use reap::{Device, FaultPlan, Faults, Mode, Nanos, OpenOptions, Queue, QueueError};

/// `n` blocks of its own, `depth` at a time.
fn work(queue: &Queue, owner: u64, n: u64, depth: usize) {
    Job { requests: n, bytes: 512, depth, ..Job::of(owner) }.run(queue);
}

fn open(queues: usize, mode: Mode) -> Device {
    let options = OpenOptions::new().software_queues(queues).hardware_queues(1).mode(mode).depth(16).pool_bytes(16 << 20);
    Device::open_with("mem:64M?profile=optane&reaper=owner", &options).unwrap()
}

#[test]
fn threaded_note_on_owned_queues() {
    let device = open(1, Mode::THREADED);
    let queue = device.local_queue().unwrap();
    work(&queue, 1, 40, 8);
    assert_eq!(queue.hardware_counters().drain_cpu, Nanos::ZERO);
    while !device.health().events.iter().any(|event| event.contains("belongs to one thread")) {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn sendable_queue_is_refused() {
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
    let few = Device::open_with("mem:64M?reaper=owner&queues=2", &OpenOptions::new().software_queues(3).hardware_queues(1));
    assert!(few.err().unwrap().to_string().contains("a hardware queue of its own"));
}

/// A device whose commands take their time, as long as the test wants.
fn hanging(timeout: Nanos) -> (Device, Faults) {
    let faults = Faults::new(FaultPlan::new());
    let embedded = reap::EmbeddedOptions {
        faults: Some(faults.clone()),
        ready_timeout: Some(std::time::Duration::from_secs(60)),
        ..Default::default()
    };
    let options = OpenOptions::new().timeout(timeout.into()).depth(16).embedded(embedded);
    (Device::open_with("mem:64M?profile=optane&reaper=owner", &options).unwrap(), faults)
}

/// The owner goes while commands are out that nobody answers: it stays for a second, and a reset takes the rest back.
#[test]
fn exited_owner_leaves_nothing() {
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
fn reset_returns_abandoned_requests() {
    let (device, faults) = hanging(Nanos::from_millis(1_500));
    let (tell, told) = mpsc::channel();
    let left = Arc::new(AtomicBool::new(false));
    {
        let (device, left) = (device.clone(), left.clone());
        thread::spawn(move || {
            let queue = device.local_queue().unwrap();
            begin(&queue, 1);
            queue.wait(1, None).unwrap();
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

/// A command that is late because its thread computes is not the controller's fault, and nobody but that thread can look. Its Abort is
/// answered at once, and a second later the controller is reset: a thread that is kept from its CPU until then finds a reset.
#[test]
fn computing_owner_finds_completions() {
    let (device, _faults) = hanging(Nanos::from_secs(6));
    let queue = device.local_queue().unwrap();
    let begun = Instant::now();
    begin(&queue, 4);
    thread::sleep(Duration::from_millis(6_200));
    assert_eq!(queue.wait(4, None).unwrap(), 4);
    let in_time = begun.elapsed() < Duration::from_secs(7);
    let mut out = Vec::with_capacity(4);
    queue.reap(&mut out);
    assert!(out.iter().all(|done| done.result.is_ok()), "{out:?}");
    let health = device.health();
    assert!(health.dead.is_none() && (health.resets == 0 || !in_time), "{health:?}");
}
