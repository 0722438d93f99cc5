//! What a machine that is shared does not allow: NVMe controllers that are removed, device-mapper, io_uring switched off. In a guest,
//! by `tests/links.sh`; all of it needs root.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use reap::{Device, IoError, Mode, OpenOptions, TargetFault};

use super::{Written, eventually, fault};
use crate::place::{options, run};
use crate::table::watched;
use crate::work::{Job, drain};

/// A disk that the test may take away, by its name.
const DISK: &str = "REAP_TEST_DISK";

fn disk() -> String {
    std::env::var(DISK).unwrap_or_else(|_| panic!("{DISK} names no disk"))
}

fn write(path: impl AsRef<Path>, what: &str) {
    fs::write(&path, what).unwrap_or_else(|e| panic!("{}: {e}", path.as_ref().display()));
}

/// Its PCI function goes and comes again: what was in flight fails, what was acknowledged is there.
#[test]
#[ignore = "takes a disk away: tests/links.sh runs it in a guest"]
fn an_nvme_controller_that_is_removed_fails_what_is_in_flight() {
    for mode in [Mode::INTERRUPT, Mode::POLL, Mode::THREADED, Mode::ADAPTIVE] {
        let (uri, sys) = (format!("kernel:/dev/{}", disk()), PathBuf::from(format!("/sys/block/{}", disk())));
        let function = fs::canonicalize(sys.join("device")).unwrap();
        let function = function.ancestors().find(|dir| dir.join("remove").exists()).unwrap().to_owned();
        let device = Device::open_with(&uri, &OpenOptions { mode, ..options(1) }).unwrap();
        let (queue, mut written) = (device.queue().unwrap(), Written::default());
        let (tell, told) = mpsc::channel();
        let remover = thread::spawn(move || {
            told.recv().unwrap();
            write(function.join("remove"), "1");
        });
        watched("a removed controller", || {
            for generation in 1.. {
                written.write(&queue, (0..40).map(|n| 8 * n), generation);
                if generation == 5 {
                    tell.send(()).unwrap();
                }
                if !written.errors.is_empty() {
                    break;
                }
            }
        });
        remover.join().unwrap();
        println!("{mode}: {:?}", written.errors);
        // Of a device that has gone the size is zero, and a write beyond the end has no space (ENOSPC).
        assert!(written.errors.iter().all(|why| matches!(why, IoError::System(5 | 6 | 19 | 28))), "{:?}", written.errors);
        // Nothing hangs afterwards either, and the device is let go of.
        written.errors.clear();
        written.write(&queue, [0].into_iter(), 0);
        assert!(!written.errors.is_empty(), "there is no device any more");
        assert_eq!((device.in_flight(), device.counters().leaked_bytes), (0, 0));
        drop((queue, device));
        eventually("the node stays", || !Path::new("/dev").join(disk()).exists());
        assert!(matches!(fault(&uri), TargetFault::NoSuchDevice));
        write("/sys/bus/pci/rescan", "1");
        eventually("it does not come back", || Device::open_with(&uri, &options(1)).is_ok());
        let device = Device::open_with(&uri, &options(1)).unwrap();
        written.is_there(&device.local_queue().unwrap());
    }
}

fn dmsetup(arguments: &[&str]) {
    run("dmsetup", &[&["--noudevsync", "--noudevrules"], arguments].concat()).unwrap();
}

/// Suspended, requests wait and are not lost; with a table that fails everything, they fail.
#[test]
#[ignore = "makes devices of device-mapper: tests/links.sh runs it in a guest"]
fn a_mapped_device_that_is_suspended_and_then_fails() {
    let sectors = fs::read_to_string(format!("/sys/block/{}/size", disk())).unwrap().trim().to_owned();
    dmsetup(&["create", "reap", "--table", &format!("0 {sectors} linear /dev/{} 0", disk())]);
    let uri = "kernel:/dev/dm-0";
    // What it stands on is held by it, and says so.
    let why = fault(&format!("kernel:/dev/{}", disk()));
    assert!(matches!(&why, TargetFault::Held { by } if by.iter().any(|who| who.contains("reap"))), "{why}");
    for mode in [Mode::INTERRUPT, Mode::POLL, Mode::THREADED, Mode::ADAPTIVE] {
        let device = Device::open_with(uri, &OpenOptions { mode, ..options(1) }).unwrap();
        let (queue, mut written) = (device.queue().unwrap(), Written::default());
        watched("a mapped device", || {
            written.write(&queue, (0..40).map(|n| 8 * n), 1);
            dmsetup(&["suspend", "reap"]);
            let resume = thread::spawn(|| {
                thread::sleep(std::time::Duration::from_millis(100));
                dmsetup(&["resume", "reap"]);
            });
            written.write(&queue, (0..40).map(|n| 8 * n), 2);
            resume.join().unwrap();
            assert_eq!(written.errors, []);
            dmsetup(&["suspend", "reap"]);
            dmsetup(&["load", "reap", "--table", &format!("0 {sectors} error")]);
            dmsetup(&["resume", "reap"]);
            let before = written.durable.clone();
            written.write(&queue, (0..40).map(|n| 8 * n), 3);
            assert!(!written.errors.is_empty() && written.errors.iter().all(|why| *why == IoError::System(5)), "{:?}", written.errors);
            dmsetup(&["suspend", "reap"]);
            dmsetup(&["load", "reap", "--table", &format!("0 {sectors} linear /dev/{} 0", disk())]);
            dmsetup(&["resume", "reap"]);
            // Nothing of what failed has reached it.
            written.durable = before;
            written.is_there(&queue);
            assert!(drain(&queue).is_empty());
        });
    }
    dmsetup(&["remove", "--retry", "reap"]);
}

/// For nobody new; who has a ring keeps it.
#[test]
#[ignore = "switches io_uring off for all: tests/links.sh runs it in a guest"]
fn io_uring_that_is_switched_off_is_said_at_open() {
    const SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";
    let uri = format!("kernel:/dev/{}", disk());
    let device = Device::open_with(&uri, &options(2)).unwrap();
    let queue = device.queue().unwrap();
    write(SWITCH, "2");
    let why = device.local_queue().err().unwrap().to_string();
    Job::of(1).run(&queue);
    drop((queue, device));
    let fault = fault(&uri);
    write(SWITCH, "0");
    assert!(why.contains("cannot make a queue"), "{why}");
    assert!(matches!(&fault, TargetFault::Kernel(why) if why.contains("io_uring_disabled")), "{fault}");
    Job::of(1).run(&Device::open_with(&uri, &options(1)).unwrap().local_queue().unwrap());
}
