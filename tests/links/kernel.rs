//! What a mode comes to where the kernel decides.

use std::time::{Duration, Instant};

use reap::{Mode, ModeNote, OpenOptions};

use super::table::{everywhere, skipped};
use super::work::Job;

#[test]
fn coalescing_modes_fall_back_to_interrupt() {
    everywhere(&[], |place| {
        if !place.is_kernel() {
            return skipped("where no kernel decides: tests/stack/modes.rs has moderators");
        }
        let device = place.open(1, Mode::DIM);
        let queue = device.local_queue().unwrap();
        while queue.mode() != Mode::INTERRUPT {
            Job { requests: 1, ..Job::of(1) }.run(&queue);
        }
        assert!(device.health().coalescing_refused);
        assert_eq!(device.mode_note(Mode::DIM), Some(ModeNote::NotCoalesced(Mode::DIM)));
        assert_eq!(device.mode_note(Mode::INTERRUPT), None);
    });
}

/// Each of the kernel's own modes carries data, in queues of its own beside others, or says in a
/// sentence what is missing.
#[test]
fn kernel_modes_work_or_explain() {
    everywhere(&[], |place| {
        for mode in Mode::KERNELS {
            let device = place.open(3, Mode::INTERRUPT);
            let Ok(queue) = device.local_queue_in(mode) else {
                // A device that says that it polls may be found not to in a trial.
                let why = device.local_queue_in(mode).map(drop).unwrap_err().to_string();
                assert!(why.contains(&mode.to_string()), "{why}");
                assert!(
                    device
                        .unsupported_reason(mode)
                        .is_none_or(|lacking| why.contains(&lacking.to_string())),
                    "{why}"
                );
                let Some(lacking) =
                    device.unsupported_reason(mode).map(|lacking| lacking.to_string())
                else {
                    continue;
                };
                drop(device);
                let opens = || {
                    place
                        .try_open("", OpenOptions::new().mode(mode))
                        .map(drop)
                        .unwrap_err()
                        .to_string()
                };
                let since = Instant::now();
                // Until the last device here lets go of it, that is what is in the way.
                while !opens().contains(&lacking) {
                    assert!(since.elapsed() < Duration::from_secs(60), "{lacking}: {}", opens());
                    std::thread::sleep(Duration::from_millis(1));
                }
                continue;
            };
            assert!(place.is_kernel() && device.unsupported_reason(mode).is_none());
            let beside = device.local_queue().unwrap();
            assert_eq!((queue.mode(), beside.mode()), (mode, Mode::INTERRUPT));
            Job { fused: true, ..Job::of(1) }.run(&queue);
            Job::of(2).run(&beside);
            // Neither ring becomes the other's.
            device.set_mode(Mode::SUSPEND);
            Job::of(1).run(&queue);
            Job::of(2).run(&beside);
            assert_eq!((queue.mode(), beside.mode()), (mode, Mode::SUSPEND));
            beside.set_mode(mode);
            Job::of(2).run(&beside);
            assert_eq!(beside.mode(), Mode::INTERRUPT);
            // Flushes too, which polled rings send elsewhere.
            let flushed = queue.block_on(queue.flush(&queue.namespaces()[0])).unwrap();
            flushed.unwrap();
        }
    });
}

/// A ring that a thread of the kernel's submits is entered to wait, and to wake that thread, and
/// for nothing else.
#[test]
fn sqpoll_needs_no_submit_call() {
    everywhere(&[], |place| {
        let device = place.open(1, Mode::INTERRUPT);
        let Ok(queue) = device.local_queue_in(Mode::KERNEL_SQPOLL) else { return };
        let before = device.counters();
        Job { requests: 400, ..Job::of(1) }.run(&queue);
        let after = device.counters();
        let calls = after.system_calls.unwrap() - before.system_calls.unwrap();
        assert!(calls <= 2 * (2 * 400), "{calls} system calls for 800 requests");
    });
}
