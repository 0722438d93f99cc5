//! Files that cannot be used, and files that become otherwise while they are.

use std::fs;
use std::os::unix::fs::symlink;

use reap::{Device, IoError, Mode, QueueError, Request, TargetFault};

use super::{Written, eventually, fault};
use crate::happened::{happened, is_told};
use crate::place::{BYTES, Loop, Scratch, options, run};
use crate::table::skipped;
use crate::work::{Job, drain, submit};

#[test]
fn non_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let uri = |name: &str| format!("kernel:{}", dir.path().join(name).display());
    assert!(
        matches!(fault(&format!("kernel:{}", dir.path().display())), TargetFault::Unusable(why) if why.contains("directory"))
    );
    assert!(
        matches!(fault(&uri("nothing")), TargetFault::NotFound(why) if why.contains("`size=`"))
    );
    assert!(
        matches!(fault(&uri("no/where?size=1M")), TargetFault::NotFound(why) if why.contains("no directory"))
    );
    symlink("nowhere", dir.path().join("dangling")).unwrap();
    assert!(
        matches!(fault(&uri("dangling")), TargetFault::NotFound(why) if why.contains("symbolic link"))
    );
    symlink("loop", dir.path().join("loop")).unwrap();
    assert!(fault(&uri("loop")).to_string().contains("symbolic links"), "a link to itself");
    run("mkfifo", &[&dir.path().join("fifo").display().to_string()]).unwrap();
    assert!(matches!(fault(&uri("fifo")), TargetFault::Unusable(why) if why.contains("a FIFO")));
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    assert!(
        matches!(fault(&uri("socket")), TargetFault::Unusable(why) if why.contains("a socket"))
    );
    for path in ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"] {
        assert!(
            matches!(fault(&format!("kernel:{path}")), TargetFault::Unusable(why) if why.contains("a character device")),
            "{path}"
        );
    }
    assert!(
        matches!(fault("kernel:/dev/no-such-disk"), TargetFault::NotFound(why) if why.contains("no such device"))
    );
    assert!(
        matches!(fault("kernel:/dev/no-such-disk?size=1M"), TargetFault::NotFound(why) if why.contains("no such device"))
    );
    fs::write(dir.path().join("empty"), "").unwrap();
    assert!(
        matches!(fault(&uri("empty")), TargetFault::NotFound(why) if why.contains("0 bytes; `size=`"))
    );
}

#[test]
fn wrong_sizes_are_refused() {
    let file = Scratch::new("sizes", 1 << 20);
    let uri = format!("kernel:{}", file.path().display());
    for (bytes, with) in [(511, ""), (1024, "?lba=4096")] {
        file.resize(bytes);
        let (fault, said) = (fault(&format!("{uri}{with}")), bytes.to_string());
        assert!(
            matches!(&fault, TargetFault::Parameter(why) if why.contains("no multiple") && why.contains(&said)),
            "{fault}"
        );
    }
    // What is behind the last whole block is not used.
    for (bytes, with, blocks, rest) in
        [(1_000_000, "", 1953, 64), (513, "", 1, 1), ((1 << 20) + 512, "?lba=4096", 256, 512)]
    {
        file.resize(bytes);
        let device = Device::open_with(&format!("{uri}{with}"), &options(1)).unwrap();
        assert_eq!(device.namespaces()[0].blocks(), blocks);
        let said = happened(&device);
        assert!(
            is_told(&device, &format!("the last {rest} of the file's {bytes} bytes")),
            "{said:?}"
        );
    }
    file.resize(1 << 20);
    assert!(
        matches!(fault(&format!("{uri}?size=2M")), TargetFault::Parameter(why) if why.contains("1048576") && why.contains("2097152"))
    );
    assert!(matches!(fault(&format!("{uri}-new?size=1000T")), TargetFault::NoSpace(_)));
    assert!(!file.path().with_extension("-new").exists());
    for (options, said) in [
        (options(1).software_queues(0), "0 software queues"),
        (options(1).timeout(std::time::Duration::ZERO), "time-out of 0"),
    ] {
        let why = Device::open_with(&uri, &options).err().unwrap().to_string();
        assert!(why.contains(said), "{why}");
    }
}

/// Blocks of 4 KiB on the device below: requests of 512 bytes cannot be direct, and buffers have to
/// begin where it wants.
#[test]
fn alignment_is_what_the_device_wants() {
    let file = Scratch::new("aligned", BYTES);
    let path = file.path().display().to_string();
    let node = match run("losetup", &["--find", "--show", "--sector-size", "4096", &path]) {
        Ok(node) => Loop { node: node.trim().into() },
        Err(why) => return skipped(why),
    };
    let uri = format!("kernel:{}", node.node.display());
    assert!(
        matches!(fault(&format!("{uri}?lba=512")), TargetFault::Parameter(why) if why.contains("`lba=512` is no multiple of 4096 bytes"))
    );
    let device = Device::open_with(&uri, &options(1)).unwrap();
    let (queue, ns) = (device.local_queue().unwrap(), device.namespaces()[0]);
    assert_eq!(ns.block_bytes(), 4096);
    Job::of(1).run(&queue);
    let region =
        device.register(reap::Pages::new(64 << 10).unwrap()).map_err(|(why, _)| why).unwrap();
    // Either the range is refused, with what is wrong, or it works.
    match region.buffer(512..512 + 4096) {
        Err(why) => assert!(why.to_string().contains("multiples of"), "{why}"),
        Ok(buf) => queue.block_on(queue.write(&ns, 0, buf)).unwrap().0.unwrap(),
    }
    drop((queue, device));
    let buffered = Device::open_with(&format!("{uri}?buffered=yes&lba=512"), &options(1)).unwrap();
    Job::of(1).run(&buffered.local_queue().unwrap());
}

/// Somebody cuts the file off while it is written: from then on no write is taken, and nothing
/// makes it grow; what lies before is as it was.
#[test]
fn truncated_file_takes_no_writes() {
    for mode in [Mode::INTERRUPT, Mode::POLL, Mode::THREADED, Mode::ADAPTIVE] {
        let file = Scratch::new("truncated", BYTES);
        let device = Device::open_with(&file.uri(), &options(1).mode(mode)).unwrap();
        let (queue, ns, mut written) =
            (device.queue().unwrap(), device.namespaces()[0], Written::default());
        // These are not written again.
        written.write(&queue, (100..130).map(|n| 8 * n), 1);
        let path = file.path().to_owned();
        written.write_until(&queue, "truncation", move || {
            fs::OpenOptions::new().write(true).open(path).unwrap().set_len(BYTES / 2).unwrap();
        });
        let refused = |why: &IoError| matches!(why, IoError::Truncated | IoError::FlushLost);
        assert!(written.errors.iter().all(refused), "{mode}: {:?}", written.errors);
        let beyond = |n: u64| ns.blocks() / 2 + 8 * n;
        submit(
            &queue,
            (0..30).map(|n| Request::write(&ns, beyond(n), queue.buffer(4096).unwrap())),
        );
        drain(&queue)
            .into_iter()
            .for_each(|done| assert_eq!(done.result, Err(IoError::Truncated), "{mode}"));
        submit(&queue, (0..30).map(|n| Request::read(&ns, beyond(n), queue.buffer(4096).unwrap())));
        drain(&queue)
            .into_iter()
            .for_each(|done| assert_eq!(done.result, Err(IoError::Truncated), "{mode}"));
        assert_eq!(file.path().metadata().unwrap().len(), BYTES / 2, "{mode}");
        // Made as long as it was, it does not have what it had.
        file.resize(BYTES);
        written.write(&queue, [0].into_iter(), 9999);
        assert!(written.errors.iter().all(refused), "{mode}: {:?}", written.errors);
        assert!(written.durable.len() >= 30, "{mode}");
        written.is_there(&queue);
        assert_eq!((device.in_flight(), device.counters().leaked_bytes), (0, 0), "{mode}");
    }
}

/// A file system of a test's own, on a loop device of its own.
pub struct Mounted {
    pub dir: tempfile::TempDir,
    _looped: Loop,
    _image: Scratch,
}

impl Mounted {
    pub fn new(bytes: u64) -> Result<Mounted, String> {
        let image = Scratch::new("image", bytes);
        let looped = Loop::over(image.path())?;
        let (dir, node) = (tempfile::tempdir().unwrap(), looped.node.display().to_string());
        run("mkfs.ext4", &["-q", "-O", "^has_journal", &node])?;
        run("mount", &[&node, &dir.path().display().to_string()])?;
        Ok(Mounted { dir, _looped: looped, _image: image })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        _ = run("umount", &["--lazy", &self.dir.path().display().to_string()]);
    }
}

#[test]
fn full_file_system_keeps_data() {
    let mounted = match Mounted::new(16 << 20) {
        Ok(mounted) => mounted,
        Err(why) => return skipped(why),
    };
    for (extra, mode) in
        [("", Mode::INTERRUPT), ("?buffered=yes", Mode::THREADED), ("", Mode::ADAPTIVE)]
    {
        let path = mounted.dir.path().join("sparse");
        fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
        let uri = format!("kernel:{}{extra}", path.display());
        let (device, mut written) =
            (Device::open_with(&uri, &options(1).mode(mode)).unwrap(), Written::default());
        assert!(is_told(&device, "holes"), "{:?}", happened(&device));
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        let per = 4096 / u64::from(ns.block_bytes());
        for batch in 0..(64 << 20) / 4096 / 32 {
            written.write(&queue, (32 * batch..32 * (batch + 1)).map(|n| n * per), batch + 1);
            if !written.errors.is_empty() {
                break;
            }
        }
        println!("{mode}: {} written, then {:?}", written.durable.len(), written.errors);
        assert!(
            !written.errors.is_empty() && written.errors.iter().all(|why| why.errno() == 28),
            "{:?}",
            written.errors
        );
        assert!(
            written.durable.len() > 1000,
            "{} of 4 KiB were written to 16 MiB",
            written.durable.len()
        );
        // What stands already can be written again.
        let first = *written.durable.keys().next().unwrap();
        written.errors.clear();
        written.write(&queue, [first].into_iter(), 9999);
        assert_eq!(written.errors, []);
        drop((queue, device));
        let device = Device::open_with(&uri, &options(1)).unwrap();
        written.is_there(&device.local_queue().unwrap());
        drop(device);
        // And there is no room for another file, which leaves nothing behind.
        let new = mounted.dir.path().join("new");
        assert!(matches!(
            fault(&format!("kernel:{}?size=8M", new.display())),
            TargetFault::NoSpace(_)
        ));
        assert!(!new.exists());
        fs::remove_file(&path).unwrap();
        // Its blocks are free once the housekeeping thread has closed it.
        let room = || {
            rustix::fs::statvfs(mounted.dir.path())
                .is_ok_and(|fs| fs.f_bavail * fs.f_frsize > 8 << 20)
        };
        eventually("a removed file still has its blocks", room);
    }
}

#[test]
fn queue_count_is_respected() {
    let file = Scratch::new("queues", 1 << 20);
    let device = Device::open_with(&file.uri(), &options(2)).unwrap();
    let (_one, two) = (device.queue().unwrap(), device.local_queue().unwrap());
    assert!(matches!(device.local_queue(), Err(QueueError::AllTaken { queues: 2 })));
    drop(two);
    Job { requests: 4, ..Job::of(0) }.run(&device.queue().unwrap());
}
