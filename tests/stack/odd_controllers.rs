//! Whole-stack: an embedded controller as unkind as hardware may be. Messages that meet a mask are
//! pending, buffers and lists are fetched early, doorbell writes arrive late and out of order,
//! aborts end in any order, and each controller has a thread of its own.

use std::fs;

use crate::common::open;
use crate::load::{Load, SOON, Watchdog};
use crate::work::Job;
use reap::{Mode, OpenOptions};

/// One by one, and together.
const UNKIND: [&str; 8] = [
    "pending=cleared",
    "pending=kept",
    "pending=none",
    "fetch=early",
    "fetch=mixed",
    "doorbells=late",
    "thread=own",
    "pending=kept&fetch=mixed&doorbells=late&aborts=after&thread=own&vectors=2",
];

/// Three threads write and read back, two of them on one hardware queue, by data pointers of both
/// kinds: pages and lists.
#[test]
fn data_survive_every_mode() {
    for unkind in UNKIND {
        let _watchdog = Watchdog::new(unkind);
        for mode in Mode::ALL {
            let options =
                OpenOptions::new().software_queues(3).hardware_queues(2).depth(16).mode(mode);
            let device = open(&format!("mem:64M?profile=optane&{unkind}"), options);
            std::thread::scope(|scope| {
                for owner in 0..3 {
                    let queue = device.queue().unwrap();
                    scope.spawn(move || {
                        Job { requests: 40, ..Job::of(owner) }.run(&queue);
                        Job {
                            requests: 20,
                            bytes: 32 << 10,
                            depth: 8,
                            generation: 2,
                            ..Job::of(owner)
                        }
                        .run(&queue);
                    });
                }
            });
            let (health, counters) = (device.health(), device.counters());
            assert_eq!(
                (health.resets, health.aborts, counters.leaked_bytes),
                (0, 0, 0),
                "{unkind}, {mode}: {health:?}"
            );
        }
    }
}

#[test]
fn modes_switch_under_load() {
    for unkind in UNKIND {
        let _watchdog = Watchdog::new(unkind);
        let device =
            open(&format!("mem:64M?profile=optane&{unkind}"), OpenOptions::new().depth(16));
        let queue = device.queue().unwrap();
        for (generation, mode) in
            Mode::ALL.into_iter().cycle().take(3 * Mode::ALL.len()).enumerate()
        {
            device.set_mode(mode);
            Job { requests: 30, generation: generation as u64, ..Job::of(0) }.run(&queue);
        }
        let health = device.health();
        assert_eq!((health.resets, health.aborts), (0, 0), "{unkind}: {health:?}");
    }
}

#[test]
fn reset_and_close() {
    for unkind in UNKIND {
        let _watchdog = Watchdog::new(unkind);
        let device = open(&format!("mem:64M?profile=tlc&{unkind}"), OpenOptions::new().depth(16));
        let queue = device.queue().unwrap();
        for generation in 0..3 {
            crate::work::begin(&queue, 12);
            device.reset();
            crate::work::drain(&queue).into_iter().for_each(|done| done.result.unwrap());
            Job { requests: 30, generation, ..Job::of(1) }.run(&queue);
        }
        drop(queue);
        assert_eq!(device.counters().leaked_bytes, 0, "{unkind}");
    }
}

/// Some commands take longer than their time-out, and their aborts end in any order.
#[test]
fn aborts_complete_each_request_once() {
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("slow.toml");
    let slow = "base_ns = 20000\ntail_ppm = 5000\ntail_ns = 400000000\n";
    fs::write(&profile, format!("[read]\n{slow}[write]\n{slow}")).unwrap();
    for aborts in ["before", "after", "deferred", "never"] {
        let _watchdog = Watchdog::new(aborts);
        let mut aborted = 0;
        for mode in crate::load::modes() {
            let options = OpenOptions::new().depth(32).mode(mode).timeout(SOON.into());
            let device =
                open(&format!("mem:16M?profile={}&aborts={aborts}", profile.display()), options);
            let queue = device.queue().unwrap();
            let ended = Load::new(&queue, 0).run(400, 16).good;
            assert_eq!(ended, 400, "{aborts}, {mode}");
            let health = device.health();
            assert!(health.dead.is_none(), "{aborts}, {mode}: {health:?}");
            println!(
                "{aborts}, {mode}: {} aborts, {} resets, {:?}",
                health.aborts, health.resets, health.last_reset
            );
            aborted += health.aborts;
            assert_eq!(device.counters().leaked_bytes, 0);
        }
        assert!(aborted > 0, "{aborts}: no command has been aborted");
    }
}

/// Two controllers on threads of their own carry out commands on one medium at a time.
#[test]
fn threaded_controllers_share_a_namespace() {
    let _watchdog = Watchdog::new("two controllers");
    let path = "path=mem:64M?profile=optane%26thread=own";
    let options = OpenOptions::new().software_queues(3).hardware_queues(1);
    let device = open(&format!("multipath:?{path}&{path}"), options);
    std::thread::scope(|scope| {
        for owner in 0..3 {
            let queue = device.queue().unwrap();
            scope.spawn(move || {
                (1..4).for_each(|generation| Job { generation, ..Job::of(owner) }.run(&queue))
            });
        }
    });
}
