//! Other processes: one that uses the same file, one that is forked, one that is stopped and
//! continued.

use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use reap::{Device, IoError, Mode, Refused, Request, TargetFault};
use rustix::process::{Pid, Signal, kill_process};

use super::{fault, is_child, passes, start, told};
use crate::forked::in_fork;
use crate::place::{BYTES, Scratch, options};
use crate::table::watched;
use crate::work::{Job, begin, drain};

#[test]
fn two_processes_exclude_each_other() {
    let name = "faults::processes::two_processes_exclude_each_other";
    if is_child() {
        let (path, expected) = (told(), std::env::var("REAP_TEST_EXPECTED").unwrap());
        let read_only = Device::open_with(&format!("kernel:{path}?readonly=yes"), &options(1));
        let locked = fault(&format!("kernel:{path}"));
        assert!(
            matches!(&locked, TargetFault::InUse(why) if why.contains("locked") && !why.contains("readers")),
            "{locked}"
        );
        match (&*expected, read_only) {
            ("writer", Err(why)) => assert!(why.to_string().contains("locked"), "{why}"),
            ("reader", Ok(device)) => {
                Job { requests: 20, ..Job::of(1) }.pass(&device.local_queue().unwrap(), false)
            }
            (_, other) => {
                panic!("beside a {expected}: {:?}", other.err().map(|why| why.to_string()))
            }
        }
        return;
    }
    let file = Scratch::new("two", BYTES);
    let path = file.path().display().to_string();
    let device = Device::open_with(&file.uri(), &options(1)).unwrap();
    let queue = device.local_queue().unwrap();
    begin(&queue, 30);
    passes(start(name, &["env", "REAP_TEST_EXPECTED=writer"], &path));
    drain(&queue).into_iter().for_each(|done| done.result.unwrap());
    Job::of(1).pass(&queue, true);
    drop((queue, device));
    let device = Device::open_with(&format!("{}?readonly=yes", file.uri()), &options(1)).unwrap();
    passes(start(name, &["env", "REAP_TEST_EXPECTED=reader"], &path));
    Job::of(1).pass(&device.local_queue().unwrap(), false);
}

/// A child has its parent's memory and descriptors, and is told that the device is not its own; the
/// parent goes on.
#[test]
fn forked_child_is_refused() {
    if !is_child() {
        // Alone in a process, so that no other test's thread has a lock at that moment.
        passes(start("faults::processes::forked_child_is_refused", &[], "child"));
        return;
    }
    let file = Scratch::new("fork", BYTES);
    for mode in Mode::ALL {
        let device = Device::open_with(&file.uri(), &options(2).mode(mode)).unwrap();
        // The child lets them go as well: it has copies of all that the parent has.
        let held = RefCell::new(Some((
            device.queue().unwrap(),
            device.local_queue().unwrap(),
            device.clone(),
        )));
        let (forked, ns) = (Err(IoError::Refused(Refused::Forked)), device.namespaces()[0]);
        for local in [false, true] {
            let held_now = held.borrow();
            let (sent, kept, _) = held_now.as_ref().unwrap();
            let queue = if local { &**kept } else { sent };
            Job { requests: 20, ..Job::of(1) }.run(queue);
            begin(queue, 30);
            let buf = queue.buffer(4096).unwrap();
            let child = || {
                let batch = queue.submit([Request::write(&ns, 0, buf)]);
                let Err((Refused::Forked, request)) = batch else { return false };
                let Some(buf) = request.into_buffer() else { return false };
                // Waiting, turning and mode switches end.
                queue.set_mode(Mode::POLL);
                _ = queue.poll_events(8);
                queue.wait(30, None).is_ok()
                    && queue
                        .block_on(queue.read(&ns, 0, buf))
                        .is_ok_and(|(result, _)| result == forked)
                    && device.current(&ns).blocks() == ns.blocks()
            };
            assert!(in_fork(child), "{mode}: what the child was told");
            drop(held_now);
            let closes = || {
                drop(held.take());
                true
            };
            assert!(in_fork(closes), "{mode}: the child closes what it has");
            let held_now = held.borrow();
            let (sent, kept, _) = held_now.as_ref().unwrap();
            let queue = if local { &**kept } else { sent };
            assert_eq!(
                queue.wait(30, None).unwrap(),
                30,
                "{mode}: what was in flight comes to the parent"
            );
            queue.reap(&mut Vec::with_capacity(64));
            Job { requests: 20, generation: 2, ..Job::of(1) }.run(queue);
        }
        let health = device.health();
        assert_eq!((health.aborts, device.counters().leaked_bytes), (0, 0), "{mode}: {health:?}");
    }
}

/// In the middle of requests, in each mode. The child works until its parent has stopped it often.
#[test]
fn stopped_process_goes_on() {
    if is_child() {
        let (file, often) = (Scratch::new("stopped", BYTES), PathBuf::from(told()));
        for (round, mode) in Mode::ALL.into_iter().cycle().enumerate() {
            if round >= Mode::ALL.len() && often.exists() {
                break;
            }
            let device = Device::open_with(&file.uri(), &options(2).mode(mode)).unwrap();
            thread::scope(|scope| {
                let (queue, device) = (device.queue().unwrap(), &device);
                scope.spawn(move || {
                    (0..5).for_each(|generation| {
                        Job { requests: 150, generation, ..Job::of(1) }.run(&queue)
                    })
                });
                scope.spawn(move || {
                    let queue = device.local_queue().unwrap();
                    (0..5).for_each(|generation| {
                        Job { requests: 150, generation, fused: true, ..Job::of(2) }.run(&queue)
                    });
                });
            });
            assert_eq!((device.health().aborts, device.counters().leaked_bytes), (0, 0), "{mode}");
        }
        return;
    }
    watched("SIGSTOP and SIGCONT", || {
        let often = Scratch::name("stopped-often");
        let word = often.path().display().to_string();
        let child = start("faults::processes::stopped_process_goes_on", &[], &word);
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        let ended = thread::spawn(move || passes(child));
        let mut stops = 0;
        while !ended.is_finished() {
            thread::sleep(Duration::from_millis(17));
            // It may have ended by now, and nobody has waited for it yet, or somebody has: then
            // there is nobody to tell.
            _ = kill_process(pid, Signal::STOP);
            thread::sleep(Duration::from_millis(3));
            _ = kill_process(pid, Signal::CONT);
            stops += 1;
            if stops == 6 {
                fs::write(often.path(), "").unwrap();
            }
        }
        ended.join().unwrap();
        assert!(stops > 5, "it was stopped {stops} times");
    });
}
