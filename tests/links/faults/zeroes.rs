//! Write Zeroes and Deallocate of files and block devices: what becomes of their room, and where
//! there is none, or no such thing.

use std::fs;
use std::os::unix::fs::MetadataExt;

use reap::{Device, IoError, Mode, Namespace, Queue, Refused, Request};
use tempfile::TempDir;

use super::files::Mounted;
use crate::happened::{happened, is_told};
use crate::place::{BYTES, Loop, Scratch, options, run};
use crate::table::skipped;
use crate::work::{differs, drain, fill, submit};

fn one(queue: &Queue, request: Request) -> Result<(), IoError> {
    submit(queue, [request]);
    drain(queue).remove(0).result
}

/// Writes 8 blocks; whether they are there.
fn write(queue: &Queue, ns: &Namespace, lba: u64) -> Result<(), IoError> {
    let block = ns.block_bytes() as usize;
    let mut buf = queue.buffer(8 * block).unwrap();
    fill(&mut buf, lba, block, 1);
    one(queue, Request::write(ns, lba, buf).fua())
}

fn read(queue: &Queue, ns: &Namespace, lba: u64) -> Vec<u8> {
    let (result, buf) = queue
        .block_on(queue.read(ns, lba, queue.buffer(8 * ns.block_bytes() as usize).unwrap()))
        .unwrap();
    result.unwrap();
    buf.to_vec()
}

/// More blocks than one part names, and all of them; a file keeps its size, and the room that it is
/// to keep.
#[test]
fn whole_file_is_zeroed() {
    const LARGE: u64 = 40 << 20;
    let file = Scratch::name("zeroed");
    let uri = format!("{}?size=40M&lba=512", file.uri());
    let device = Device::open_with(&uri, &options(1).mode(Mode::INTERRUPT)).unwrap();
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    let room = || {
        queue.block_on(queue.flush(&ns)).unwrap().unwrap();
        let meta = file.path().metadata().unwrap();
        assert_eq!(meta.len(), LARGE);
        meta.blocks()
    };
    let holds = |byte: u8| fs::read(file.path()).unwrap().iter().all(|&is| is == byte);
    let full = room();
    assert!(full >= LARGE / 512 && !holds(0), "it is laid out with bytes that are random");
    let before = queue.hardware_counters().finished;
    one(&queue, Request::write_zeroes(&ns, 0, ns.blocks()).keep_allocated()).unwrap();
    assert_eq!(queue.hardware_counters().finished - before, 3, "32,768 blocks at a time");
    assert!(holds(0));
    // Where it lies there may be none: tmpfs.
    match run(
        "fallocate",
        &[
            "--zero-range",
            "--length",
            "512",
            &Scratch::new("tried", 4096).path().display().to_string(),
        ],
    ) {
        Ok(_) => assert!(room() >= LARGE / 512, "it has all its room"),
        Err(why) => skipped(why),
    }
    write(&queue, &ns, 0).unwrap();
    one(&queue, Request::deallocate(&ns, 0, ns.blocks())).unwrap();
    assert!(holds(0));
    assert!(room() < full / 2, "{} of {full}: it has a hole", room());
    // And that is said where it is opened next.
    drop((queue, device));
    let device = Device::open_with(&uri, &options(1)).unwrap();
    assert!(is_told(&device, "holes"), "{:?}", happened(&device));
}

/// Discards that a disk has counted, and flushes (Documentation/block/stat.rst).
fn counted(node: &str) -> (u64, u64) {
    let stat = fs::read_to_string(format!("/sys/block/{node}/stat")).unwrap();
    let field = |n| stat.split_whitespace().nth(n).map_or(0, |n| n.parse().unwrap());
    (field(11), field(15))
}

fn discards_of(node: &str) -> u64 {
    counted(node).0
}

/// The kernel's version, where it is told as `6.12.1-…`.
fn kernel() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[test]
fn block_device_gets_discards() {
    let file = Scratch::new("discarded", BYTES);
    let looped = match Loop::over(file.path()) {
        Ok(looped) => looped,
        Err(why) => return skipped(why),
    };
    let device =
        Device::open_with(&format!("kernel:{}", looped.node.display()), &options(1)).unwrap();
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    let node = looped.node.file_name().unwrap().to_str().unwrap();
    let (full, before) = (file.path().metadata().unwrap().blocks(), discards_of(node));
    one(&queue, Request::deallocate(&ns, 0, ns.blocks() / 2)).unwrap();
    assert!(file.path().metadata().unwrap().blocks() < full, "the file behind it has a hole");
    // Before 6.12 there are no discards by entries: Write Zeroes, which may unmap, is in their
    // place.
    assert_eq!(discards_of(node) > before, kernel() >= (6, 12));
    let (half, before) = (file.path().metadata().unwrap().blocks(), discards_of(node));
    one(&queue, Request::write_zeroes(&ns, ns.blocks() / 2, 4096)).unwrap();
    assert_eq!(discards_of(node), before, "zeroes are promised: they are no discard");
    assert!(file.path().metadata().unwrap().blocks() < half);
    let flushes = counted(node).1;
    one(&queue, Request::write_zeroes(&ns, 0, 64)).unwrap();
    assert_eq!(counted(node).1, flushes);
    one(&queue, Request::write_zeroes(&ns, 0, 64).fua()).unwrap();
    assert!(counted(node).1 > flushes, "FUA reaches the disk");
    write(&queue, &ns, 0).unwrap();
}

/// Zeroes that keep room find none for a hole; what is given back can be written elsewhere.
#[test]
fn deallocate_frees_file_system_space() {
    let mounted = match Mounted::new(16 << 20) {
        Ok(mounted) => mounted,
        Err(why) => return skipped(why),
    };
    for mode in [Mode::INTERRUPT, Mode::POLL, Mode::THREADED] {
        let path = mounted.dir.path().join("sparse");
        fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
        let uri = format!("kernel:{}?lba=4096", path.display());
        let device = Device::open_with(&uri, &options(1).mode(mode)).unwrap();
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        write(&queue, &ns, 0).unwrap();
        let full = one(&queue, Request::write_zeroes(&ns, 0, ns.blocks()).keep_allocated());
        // ENOSPC (errno(3)).
        assert_eq!(full, Err(IoError::System(28)), "{mode}");
        let written = (0..ns.blocks() / 8).map_while(|n| write(&queue, &ns, 8 * n).ok()).count();
        assert!(
            (200..512).contains(&written),
            "{mode}: {written} of 32 KiB were written to 16 MiB"
        );
        assert_eq!(write(&queue, &ns, ns.blocks() - 8), Err(IoError::System(28)), "{mode}");
        // Zeroes need no room either, where they need keep none.
        one(&queue, Request::write_zeroes(&ns, 0, 512).fua()).unwrap();
        write(&queue, &ns, ns.blocks() - 8).unwrap();
        one(&queue, Request::deallocate(&ns, 0, ns.blocks())).unwrap();
        assert!(read(&queue, &ns, ns.blocks() - 8).iter().all(|&byte| byte == 0));
        write(&queue, &ns, 4096).unwrap();
        assert_eq!(device.counters().leaked_bytes, 0);
        drop((queue, device));
        fs::remove_file(&path).unwrap();
    }
}

/// A file system in memory of a test's own.
struct InMemory(TempDir);

impl InMemory {
    fn new(filesystem: &str) -> Result<InMemory, String> {
        let dir = tempfile::tempdir().unwrap();
        run("mount", &["-t", filesystem, filesystem, &dir.path().display().to_string()])?;
        Ok(InMemory(dir))
    }

    fn file(&self, name: &str) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, vec![0x5a; 4 << 20]).unwrap();
        path.display().to_string()
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        _ = run("umount", &["--lazy", &self.0.path().display().to_string()]);
    }
}

fn unsupported(result: Result<(), IoError>) -> bool {
    matches!(result, Err(why @ IoError::Refused(Refused::Unsupported { .. })) if why.errno() == 95 && why.to_string().contains("supports_"))
}

#[test]
fn no_holes_no_punching() {
    let memory = match InMemory::new("ramfs") {
        Ok(memory) => memory,
        Err(why) => return skipped(why),
    };
    let path = memory.file("file");
    let device = Device::open_with(&format!("kernel:{path}"), &options(1)).unwrap();
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    assert_eq!((ns.supports_write_zeroes(), ns.supports_deallocate()), (None, None));
    for request in [Request::write_zeroes(&ns, 0, 8), Request::deallocate(&ns, 0, 8)] {
        let (why, _) = queue.submit([request]).unwrap_err();
        assert!(unsupported(Err(why.into())), "{why}");
    }
    write(&queue, &ns, 0).unwrap();
    // On a loop device over such a file the kernel writes the zeroes, and nothing can be given
    // back.
    let looped = match Loop::over(memory.file("looped").as_ref()) {
        Ok(looped) => looped,
        Err(why) => return skipped(why),
    };
    let device =
        Device::open_with(&format!("kernel:{}", looped.node.display()), &options(1)).unwrap();
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    assert_eq!((ns.supports_write_zeroes().is_some(), ns.supports_deallocate()), (true, None));
    write(&queue, &ns, 8).unwrap();
    for request in
        [Request::write_zeroes(&ns, 8, 8), Request::write_zeroes(&ns, 64, 8).keep_allocated().fua()]
    {
        one(&queue, request).unwrap();
    }
    assert!([8, 64].into_iter().all(|lba| read(&queue, &ns, lba).iter().all(|&byte| byte == 0)));
    assert!(read(&queue, &ns, 80).iter().all(|&byte| byte == 0x5a));
}

/// tmpfs has holes and no ranges of zeroes: the first request finds out, and gives the room back
/// instead.
#[test]
fn refused_fallocate_falls_back() {
    let memory = match InMemory::new("tmpfs") {
        Ok(memory) => memory,
        Err(why) => return skipped(why),
    };
    for mode in [Mode::INTERRUPT, Mode::POLL, Mode::THREADED, Mode::ADAPTIVE] {
        let path = memory.file("file");
        let device = Device::open_with(&format!("kernel:{path}"), &options(1).mode(mode)).unwrap();
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        let before = queue.hardware_counters().finished;
        for n in 0..3 {
            one(&queue, Request::write_zeroes(&ns, 32 * n, 16).keep_allocated().fua()).unwrap();
        }
        assert_eq!(queue.hardware_counters().finished - before, 3, "{mode}");
        for lba in [0, 8, 32, 40, 64, 72] {
            assert!(read(&queue, &ns, lba).iter().all(|&byte| byte == 0), "{mode}");
        }
        assert!(read(&queue, &ns, 16).iter().all(|&byte| byte == 0x5a), "{mode}");
        assert!(
            device.current(&ns).supports_write_zeroes().is_some()
                && device.current(&ns).supports_deallocate().is_some()
        );
    }
}

/// Somebody cuts the file off: what it held is gone, so it takes no change at all, and does not
/// grow.
#[test]
fn truncated_file_takes_no_zeroes() {
    let file = Scratch::new("cut", 4 << 20);
    let device = Device::open_with(&format!("{}?lba=512", file.uri()), &options(1)).unwrap();
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    write(&queue, &ns, 64).unwrap();
    file.resize(1 << 20);
    for make in [Request::write_zeroes, Request::deallocate] {
        for lba in [0, 64, 4096] {
            assert_eq!(one(&queue, make(&ns, lba, 8)), Err(IoError::Truncated), "{lba}");
        }
    }
    assert_eq!(
        one(&queue, Request::write_zeroes(&ns, 4096, 64).keep_allocated()),
        Err(IoError::Truncated)
    );
    assert_eq!(file.path().metadata().unwrap().len(), 1 << 20);
    assert_eq!(differs(&read(&queue, &ns, 64), 64, 512, 1), None, "what is there can be read");
}
