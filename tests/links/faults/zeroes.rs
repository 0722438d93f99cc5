//! Write Zeroes and Deallocate where there is no room for them, or no such thing.

use std::fs;

use reap::{Device, IoError, Mode, Namespace, OpenOptions, Queue, Refused, Request};
use tempfile::TempDir;

use super::files::Mounted;
use crate::place::{Loop, Scratch, options, run};
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
    let (result, buf) = queue.block_on(queue.read(ns, lba, queue.buffer(8 * ns.block_bytes() as usize).unwrap())).unwrap();
    result.unwrap();
    buf.to_vec()
}

/// Zeroes that keep room find none for a hole; what is given back can be written elsewhere.
#[test]
fn a_full_file_system_has_room_again_after_a_deallocate() {
    let mounted = match Mounted::new(16 << 20) {
        Ok(mounted) => mounted,
        Err(why) => return skipped(why),
    };
    for mode in [Mode::INTERRUPT, Mode::POLL, Mode::THREADED] {
        let path = mounted.dir.path().join("sparse");
        fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
        let uri = format!("kernel:{}?lba=4096", path.display());
        let device = Device::open_with(&uri, &OpenOptions { mode, ..options(1) }).unwrap();
        let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
        write(&queue, &ns, 0).unwrap();
        let full = one(&queue, Request::write_zeroes(&ns, 0, ns.blocks()).keep_allocated());
        // ENOSPC (errno(3)).
        assert_eq!(full, Err(IoError::System(28)), "{mode}");
        let written = (0..ns.blocks() / 8).map_while(|n| write(&queue, &ns, 8 * n).ok()).count();
        assert!((200..512).contains(&written), "{mode}: {written} of 32 KiB were written to 16 MiB");
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
fn a_file_system_without_holes_is_not_asked_for_any() {
    let memory = match InMemory::new("ramfs") {
        Ok(memory) => memory,
        Err(why) => return skipped(why),
    };
    let path = memory.file("file");
    let device = Device::open_with(&format!("kernel:{path}"), &options(1)).unwrap();
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    assert_eq!((ns.supports_write_zeroes(), ns.supports_deallocate()), (None, None));
    for request in [Request::write_zeroes(&ns, 0, 8), Request::deallocate(&ns, 0, 8)] {
        let (why, _) = queue.submit(reap::now(), [request]).unwrap_err();
        assert!(unsupported(Err(why.into())), "{why}");
    }
    write(&queue, &ns, 0).unwrap();
    // On a loop device over such a file the kernel writes the zeroes, and nothing can be given back.
    let looped = match Loop::over(memory.file("looped").as_ref()) {
        Ok(looped) => looped,
        Err(why) => return skipped(why),
    };
    let device = Device::open_with(&format!("kernel:{}", looped.node.display()), &options(1)).unwrap();
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    assert_eq!((ns.supports_write_zeroes().is_some(), ns.supports_deallocate()), (true, None));
    write(&queue, &ns, 8).unwrap();
    for request in [Request::write_zeroes(&ns, 8, 8), Request::write_zeroes(&ns, 64, 8).keep_allocated().fua()] {
        one(&queue, request).unwrap();
    }
    assert!([8, 64].into_iter().all(|lba| read(&queue, &ns, lba).iter().all(|&byte| byte == 0)));
    assert!(read(&queue, &ns, 80).iter().all(|&byte| byte == 0x5a));
}

/// tmpfs has holes and no ranges of zeroes: the first request finds out, and gives the room back instead.
#[test]
fn a_file_system_that_refuses_one_way_is_asked_for_the_other() {
    let memory = match InMemory::new("tmpfs") {
        Ok(memory) => memory,
        Err(why) => return skipped(why),
    };
    for mode in [Mode::INTERRUPT, Mode::POLL, Mode::THREADED, Mode::ADAPTIVE] {
        let path = memory.file("file");
        let device = Device::open_with(&format!("kernel:{path}"), &OpenOptions { mode, ..options(1) }).unwrap();
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
        assert!(device.current(&ns).supports_write_zeroes().is_some() && device.current(&ns).supports_deallocate().is_some());
    }
}

/// Somebody cuts the file off: zeroes beyond its end are an error, or a hole, and those before it are there.
#[test]
fn a_file_that_was_cut_off_is_zeroed_where_it_still_is() {
    let file = Scratch::new("cut", 4 << 20);
    let device = Device::open_with(&format!("{}?lba=512", file.uri()), &options(1)).unwrap();
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    write(&queue, &ns, 64).unwrap();
    file.resize(1 << 20);
    for make in [Request::write_zeroes, Request::deallocate] {
        one(&queue, make(&ns, 0, 64)).unwrap();
        one(&queue, make(&ns, 4096, 64)).unwrap();
    }
    assert_eq!(file.path().metadata().unwrap().len(), 1 << 20, "nothing grows by what gives room back");
    one(&queue, Request::write_zeroes(&ns, 4096, 64).keep_allocated()).unwrap();
    assert_eq!(file.path().metadata().unwrap().len(), (4096 + 64) * 512, "by zeroes that keep room it does, as by a Write");
    assert!(read(&queue, &ns, 0).iter().chain(&read(&queue, &ns, 4096)).all(|&byte| byte == 0));
    assert_eq!(differs(&read(&queue, &ns, 64), 64, 512, 1), None);
}
