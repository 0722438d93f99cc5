//! Who is left waiting: requests that have no tag, whose lane nobody is told of, whose thread is
//! inside its own iterator, or whose memory ends in a panic. Nothing here may depend on a time-out,
//! so that they are an hour long where they are not the subject.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use reap::{Device, FaultPlan, IoError, Mode, Nanos, OpenOptions, Queue, Request};

use crate::load::{BLOCK, LONG, SOON, Watchdog, open, open_to_lose};

const NEVER: Nanos = Nanos::from_secs(3600);

fn read(queue: &Queue, count: u64) {
    let ns = queue.namespaces()[0];
    let batch = (0..count).map(|n| Request::read(&ns, n, queue.buffer(BLOCK).unwrap()));
    queue.submit(batch).map_err(|(why, _)| why).unwrap();
}

/// All that is open ends; how often well.
fn wait(queue: &Queue) -> usize {
    while queue.in_flight() > 0 {
        queue.wait(usize::MAX, None).unwrap();
    }
    let mut out = Vec::with_capacity(1024);
    queue.reap(&mut out);
    out.iter().filter(|done| done.result.is_ok()).count()
}

/// The controller is given up while the queue's thread computes: nothing of the queue's is in
/// flight, so that nothing comes.
#[test]
fn queued_requests_fail_with_their_controller() {
    let lose = |name: &str| {
        let _watchdog = Watchdog::new(&format!("requests without a tag, {name}"));
        let (device, faults) = open_to_lose(FaultPlan::new(), name.parse().unwrap(), 1, SOON);
        let queue = device.queue().unwrap();
        faults.hang();
        device.reset();
        while device.health().resets == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        read(&queue, 4);
        while device.health().dead.is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        while queue.in_flight() > 0 {
            queue.wait(4, None).unwrap();
        }
        let mut out = Vec::with_capacity(4);
        queue.reap(&mut out);
        assert!(
            out.len() == 4 && out.iter().all(|done| done.result == Err(IoError::DeviceLost)),
            "{name}: {out:?}"
        );
    };
    thread::scope(|scope| {
        for name in ["interrupt", "irq-poll", "threaded", "suspend", "poll", "adaptive"] {
            scope.spawn(move || lose(name));
        }
    });
}

/// More threads than tags: those in line are served, no matter which thread returns a tag or has
/// their books meanwhile.
#[test]
fn nobody_is_left_in_the_line() {
    let _watchdog = Watchdog::new("the line");
    for masks in ["yes", "no"] {
        let options =
            OpenOptions::new().software_queues(6).hardware_queues(1).depth(2).timeout(NEVER.into());
        let device =
            Device::open_with(&format!("mem:16M?profile=null&masks={masks}"), &options).unwrap();
        thread::scope(|scope| {
            for n in 0..6 {
                let queue = device.queue().unwrap();
                scope.spawn(move || {
                    for round in 0..200 {
                        queue.set_mode(if masks == "no" && (round + n) % 3 == 0 {
                            Mode::POLL
                        } else {
                            Mode::INTERRUPT
                        });
                        read(&queue, 4);
                        assert_eq!(wait(&queue), 4);
                    }
                });
            }
        });
    }
}

/// The drain thread is told of the lane that notifies; what is out on the other one is looked for.
#[test]
fn poll_queue_is_drained_in_threaded() {
    let _watchdog = Watchdog::new("threaded without masks");
    let options = OpenOptions::new().mode(Mode::POLL).timeout(NEVER.into());
    let device = Device::open_with("mem:16M?profile=tlc&masks=no", &options).unwrap();
    let queue = device.queue().unwrap();
    for _ in 0..30 {
        device.set_mode(Mode::POLL);
        read(&queue, 1);
        assert_eq!(wait(&queue), 1);
        read(&queue, 128);
        device.set_mode(Mode::THREADED);
        assert_eq!(wait(&queue), 128);
    }
}

#[test]
fn polling_inside_an_iterator_is_refused() {
    let _watchdog = Watchdog::new("a turn inside the iterator");
    let (device, _faults) = open(FaultPlan::new(), Mode::INTERRUPT, 1, LONG);
    let queue = device.queue().unwrap();
    let ns = queue.namespaces()[0];
    read(&queue, 1);
    let batch = (0..4).map(|n| {
        let turned = queue.poll_events(64);
        assert!(turned.found == 0 && turned.more);
        Request::read(&ns, n, queue.buffer(BLOCK).unwrap())
    });
    queue.submit(batch).map_err(|(why, _)| why).unwrap();
    assert_eq!(wait(&queue), 5);
}

/// What nobody claims is dropped by the housekeeping thread, and with it an application's memory.
#[test]
fn panicking_drop_spares_other_devices() {
    struct Bomb(mpsc::Sender<()>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            panic!("on purpose");
        }
    }
    let _watchdog = Watchdog::new("a drop that panics");
    let (device, faults) = open(FaultPlan::new(), Mode::INTERRUPT, 1, NEVER);
    let queue = device.queue().unwrap();
    let ns = queue.namespaces()[0];
    let (tell, told) = mpsc::channel();
    let region = device
        .register((reap::Pages::new(1 << 16).unwrap(), Bomb(tell)))
        .map_err(|(why, _)| why)
        .unwrap();
    let buffer = region.buffer(0..4096).unwrap();
    drop(region);
    faults.hang();
    queue.submit([Request::read(&ns, 0, buffer)]).map_err(|(why, _)| why).unwrap();
    drop(queue);
    faults.go_on();
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    let (other, _faults) = open(FaultPlan::new(), Mode::INTERRUPT, 1, NEVER);
    let queue = other.queue().unwrap();
    read(&queue, 8);
    assert_eq!(wait(&queue), 8);
}
