//! What a machine that is shared does not allow: NVMe controllers that are removed, device-mapper,
//! io_uring switched off. In a guest, by `tests/links.sh`; all of it needs root.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nvme::Status;
use reap::{Device, IoError, Mode, TargetFault};

use super::{Written, eventually, fault, is_child, passes, start, told};
use crate::place::{options, run};
use crate::table::watched;
use crate::work::{Job, drain};

/// A disk that the test may take away, by its name.
const DISK: &str = "REAP_TEST_DISK";

fn disk() -> String {
    std::env::var(DISK).unwrap_or_else(|_| panic!("{DISK} names no disk"))
}

/// The character device of the same namespace.
fn character() -> String {
    disk().replacen("nvme", "ng", 1)
}

fn write(path: impl AsRef<Path>, what: &str) {
    fs::write(&path, what).unwrap_or_else(|e| panic!("{}: {e}", path.as_ref().display()));
}

/// Its PCI function goes and comes again: what was in flight fails, what was acknowledged is there.
#[test]
#[ignore = "takes a disk away: tests/links.sh runs it in a guest"]
fn removed_controller_fails_requests() {
    let modes = [Mode::INTERRUPT, Mode::POLL, Mode::THREADED, Mode::ADAPTIVE];
    let by_block = modes.map(|mode| (disk(), mode));
    for (node, mode) in
        by_block.into_iter().chain([Mode::INTERRUPT, Mode::POLL].map(|mode| (character(), mode)))
    {
        let (uri, sys) =
            (format!("kernel:/dev/{node}"), PathBuf::from(format!("/sys/block/{}", disk())));
        let function = fs::canonicalize(sys.join("device")).unwrap();
        let function =
            function.ancestors().find(|dir| dir.join("remove").exists()).unwrap().to_owned();
        let device = Device::open_with(&uri, &options(1).mode(mode)).unwrap();
        let (queue, mut written) = (device.queue().unwrap(), Written::default());
        let remove = move || write(function.join("remove"), "1");
        written.write_until(&queue, "a removed controller", remove.clone());
        println!("{node}, {mode}: {:?}", written.errors);
        // EIO, ENXIO and ENODEV (errno(3)), never that a device which has gone were full.
        let of_one_that_goes =
            |why: &IoError| matches!(why, IoError::System(5 | 6 | 19) | IoError::Status(_));
        assert!(written.errors.iter().all(of_one_that_goes), "{:?}", written.errors);
        // Nothing hangs afterwards either, and the device is let go of.
        written.errors.clear();
        written.write(&queue, [0].into_iter(), 0);
        assert!(
            !written.errors.is_empty()
                && written.errors.iter().all(|why| *why == IoError::System(19)),
            "{:?}",
            written.errors
        );
        assert_eq!((device.in_flight(), device.counters().leaked_bytes), (0, 0));
        drop((queue, device));
        eventually("the node stays", || !Path::new("/dev").join(&node).exists());
        assert!(
            matches!(fault(&uri), TargetFault::NotFound(why) if why.contains("no such device"))
        );
        write("/sys/bus/pci/rescan", "1");
        let is_back = || {
            (0..100).any(|_| {
                thread::sleep(Duration::from_millis(10));
                Device::open_with(&uri, &options(1)).is_ok()
            })
        };
        // A worker of the kernel's that has carried out a Flush lets go of the file some time after
        // its completion: until then the name is taken.
        eventually("it does not come back", || {
            is_back() || {
                remove();
                write("/sys/bus/pci/rescan", "1");
                false
            }
        });
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
fn suspended_mapped_device_then_fails() {
    let sectors =
        fs::read_to_string(format!("/sys/block/{}/size", disk())).unwrap().trim().to_owned();
    dmsetup(&["create", "reap", "--table", &format!("0 {sectors} linear /dev/{} 0", disk())]);
    let uri = "kernel:/dev/dm-0";
    // What it stands on is held by it, and says so.
    let why = fault(&format!("kernel:/dev/{}", disk()));
    assert!(matches!(&why, TargetFault::InUse(why) if why.contains("reap")), "{why}");
    for mode in [Mode::INTERRUPT, Mode::POLL, Mode::THREADED, Mode::ADAPTIVE] {
        let device = Device::open_with(uri, &options(1).mode(mode)).unwrap();
        let (queue, mut written) = (device.queue().unwrap(), Written::default());
        watched("a mapped device", || {
            written.write(&queue, (0..40).map(|n| 8 * n), 1);
            dmsetup(&["suspend", "reap"]);
            let resume = thread::spawn(|| {
                thread::sleep(Duration::from_millis(100));
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
            // EIO of the target. A polled request does not come so far: the kernel answers
            // EOPNOTSUPP where the table in force cannot be polled (`submit_bio_noacct`), which the
            // disk below can since the test of its removal probed it again.
            let errno = if mode == Mode::POLL { [5, 95] } else { [5, 5] };
            let refused =
                |why: &IoError| matches!(why, IoError::System(why) if errno.contains(why));
            assert!(
                !written.errors.is_empty() && written.errors.iter().all(refused),
                "{mode}: {:?}",
                written.errors
            );
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
fn disabled_io_uring_is_reported() {
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
    assert!(
        matches!(&fault, TargetFault::Kernel(why) if why.contains("io_uring_disabled")),
        "{fault}"
    );
    Job::of(1).run(&Device::open_with(&uri, &options(1)).unwrap().local_queue().unwrap());
}

/// The block device is held against writers beside it. Whatever goes wrong at open says what to do.
#[test]
#[ignore = "changes modes of device nodes: tests/links.sh runs it in a guest"]
fn block_device_holds_its_namespace() {
    let (block, character) =
        (format!("kernel:/dev/{}", disk()), format!("kernel:/dev/{}", character()));
    let held = |uri: &str| {
        let why = fault(uri);
        assert!(matches!(&why, TargetFault::InUse(why) if why.contains("in use")), "{why}");
    };
    let device = Device::open_with(&character, &options(1)).unwrap();
    held(&block);
    held(&character);
    // Readers share it.
    let reader = Device::open_with(&format!("{character}?readonly=yes"), &options(1)).unwrap();
    Job::of(1).run(&device.local_queue().unwrap());
    Job::of(1).pass(&reader.local_queue().unwrap(), false);
    drop((device, reader));
    let device = Device::open_with(&block, &options(1)).unwrap();
    held(&character);
    drop(device);
    let device = Device::open_with(&format!("{character}?lba=4096"), &options(1)).unwrap();
    assert_eq!(device.namespaces()[0].block_bytes(), 4096);
    Job::of(2).run(&device.local_queue().unwrap());
    drop(device);
    assert!(
        matches!(fault(&format!("{character}?buffered=yes")), TargetFault::Parameter(why) if why.contains("page cache"))
    );
    assert!(
        matches!(fault(&format!("{character}?size=1M")), TargetFault::Parameter(why) if why.contains("`size=`"))
    );
}

fn allow(name: &str, mode: u32) {
    fs::set_permissions(Path::new("/dev").join(name), Permissions::from_mode(mode)).unwrap();
}

/// By the modes of two files: Linux 6.2 and newer trust a user that may open the device, where the
/// controller says what its commands do.
#[test]
#[ignore = "changes modes of device nodes: tests/links.sh runs it in a guest"]
fn unprivileged_passthrough_follows_file_modes() {
    let (uri, name) = (
        format!("kernel:/dev/{}", character()),
        "faults::guest::unprivileged_passthrough_follows_file_modes",
    );
    if !is_child() {
        for (word, of_character, of_block) in
            [("nothing", 0o600, 0o600), ("character", 0o666, 0o600), ("both", 0o666, 0o666)]
        {
            allow(&character(), of_character);
            allow(&disk(), of_block);
            passes(start(
                name,
                &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
                word,
            ));
        }
        allow(&character(), 0o600);
        return allow(&disk(), 0o600);
    }
    let read_only = || Device::open_with(&format!("{uri}?readonly=yes"), &options(1)).unwrap();
    match &*told() {
        "nothing" => {
            let why = fault(&uri);
            assert!(
                matches!(&why, TargetFault::Permission { what, .. } if what.contains("the device's group")),
                "{why}"
            );
        }
        "character" => {
            let why = fault(&uri);
            assert!(
                matches!(&why, TargetFault::Permission { what, .. } if what.contains("pass-through commands write") && what.contains("readonly=yes")),
                "{why}"
            );
            Job::of(1).pass(&read_only().local_queue().unwrap(), false);
        }
        _ => Job::of(1).run(&Device::open_with(&uri, &options(1)).unwrap().local_queue().unwrap()),
    }
}

/// A disk whose block 2048 cannot be read, by the name of its character device.
const BAD: &str = "REAP_TEST_BAD";

/// The block layer makes an errno of it.
#[test]
#[ignore = "needs a device that fails: tests/links.sh runs it in a guest"]
fn failed_command_shows_its_status() {
    let bad = std::env::var(BAD).unwrap_or_else(|_| panic!("{BAD} names no device"));
    for mode in [Mode::INTERRUPT, Mode::ADAPTIVE] {
        let device =
            Device::open_with(&format!("kernel:/dev/{bad}"), &options(1).mode(mode)).unwrap();
        let (queue, ns) = (device.local_queue().unwrap(), device.namespaces()[0]);
        let read =
            |lba| queue.block_on(queue.read(&ns, lba, device.buffer(4096).unwrap())).unwrap().0;
        let failed = read(2048).unwrap_err();
        assert!(
            matches!(failed, IoError::Status(status) if status.kind() == Status::UNRECOVERED_READ_ERROR),
            "{failed}"
        );
        assert_eq!((read(1024), failed.errno()), (Ok(()), 5));
    }
}
