//! Whole-stack: what `kernel:` says after acknowledged writes were lost. Root makes the loop
//! devices and the small file system.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use reap::{Device, IoError, Mode, OpenOptions as Options, Queue, Request};
use tempfile::TempDir;

/// A loop device over a sparse file on a tmpfs with less room than the file says.
struct Small {
    dir: TempDir,
    node: PathBuf,
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output =
        Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Small {
    /// 64 MiB, of which 4 can be written.
    fn new() -> Result<Small, String> {
        let dir = TempDir::new().map_err(|e| e.to_string())?;
        let mut small = Small { dir, node: PathBuf::new() };
        run("mount", &["-t", "tmpfs", "-o", "size=4M", "tmpfs", small.text(small.dir.path())])?;
        let image = small.image();
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&image)
            .and_then(|file| file.set_len(64 << 20))
            .map_err(|e| e.to_string())?;
        small.node = run("losetup", &["--find", "--show", small.text(&image)])?.into();
        Ok(small)
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn text<'a>(&self, path: &'a Path) -> &'a str {
        path.to_str().expect("a temporary name is UTF-8")
    }

    fn open(&self, more: &str) -> Device {
        let uri = format!("kernel:{}?lba=4096{more}", self.node.display());
        Device::open_with(&uri, &Options::new().mode(Mode::INTERRUPT))
            .unwrap_or_else(|e| panic!("{e}"))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        if self.node.is_absolute() {
            let _ = run("losetup", &["--detach", self.text(&self.node)]);
        }
        let _ = run("umount", &["--lazy", self.text(self.dir.path())]);
    }
}

fn small() -> Option<Small> {
    Small::new()
        .inspect_err(|why| println!("skipped: no small loop device can be made here ({why})"))
        .ok()
}

/// Writes of 64 KiB to the first `bytes` bytes, all acknowledged or not.
fn write(queue: &Queue, bytes: u64) -> Vec<Result<(), IoError>> {
    let ns = queue.namespaces()[0];
    let each = |at| {
        let mut buf = queue.buffer(64 << 10).unwrap();
        buf.fill(7);
        queue.block_on(queue.write(&ns, at / 4096, buf)).unwrap().0
    };
    (0..bytes).step_by(64 << 10).map(each).collect()
}

fn flush(queue: &Queue) -> Result<(), IoError> {
    queue.block_on(queue.flush(&queue.namespaces()[0])).unwrap()
}

fn write_through(queue: &Queue) -> Result<(), IoError> {
    let buf = queue.buffer(4096).unwrap();
    let request = Request::write(&queue.namespaces()[0], 0, buf).fua();
    queue.submit([request]).map_err(|(why, _)| why).unwrap();
    queue.wait(1, None).unwrap();
    let mut done = Vec::with_capacity(1);
    queue.reap(&mut done);
    done.remove(0).result
}

#[test]
fn every_flush_fails_after_lost_writes() {
    let Some(small) = small() else { return };
    let device = small.open("&buffered=yes");
    let (queue, other) = (device.queue().unwrap(), device.queue().unwrap());
    assert!(write(&queue, 16 << 20).iter().all(Result::is_ok), "the page cache takes them");
    assert!(matches!(flush(&queue), Err(IoError::System(_))), "twelve of sixteen MiB have no room");
    // The file of its ring is its own, to which the kernel has reported nothing yet.
    assert!(matches!(flush(&other), Err(IoError::System(_))));
    for queue in [&queue, &other] {
        for _ in 0..3 {
            let flushed = flush(queue);
            assert!(matches!(flushed, Err(IoError::FlushLost | IoError::System(_))), "{flushed:?}");
        }
        let through = write_through(queue);
        assert!(matches!(through, Err(IoError::FlushLost | IoError::System(_))), "{through:?}");
    }
    // Through another open file the kernel has nothing to report any more.
    assert!(matches!(flush(&queue), Err(IoError::FlushLost)));
    drop((queue, other, device));
    let device = small.open("&buffered=yes");
    let queue = device.queue().unwrap();
    assert_eq!(write(&queue, 64 << 10).len(), 1);
    flush(&queue).expect("opened again, with room for what is written");
}

/// Several at once: each is told, whatever the order in which their completions are taken.
#[test]
fn flushes_in_flight_all_fail() {
    let Some(small) = small() else { return };
    let device = small.open("&buffered=yes");
    let queue = device.queue().unwrap();
    write(&queue, 16 << 20);
    let ns = queue.namespaces()[0];
    queue.submit((0..16).map(|_| Request::flush(&ns))).map_err(|(why, _)| why).unwrap();
    let mut done = Vec::with_capacity(16);
    while done.len() < 16 {
        queue.wait(16 - done.len(), None).unwrap();
        queue.reap(&mut done);
    }
    assert!(
        done.iter().all(|done| done.result.is_err()),
        "{:?}",
        done.iter().map(|done| &done.result).collect::<Vec<_>>()
    );
}

#[test]
fn a_cut_backing_file_fails_flushes() {
    let Some(small) = small() else { return };
    let device = small.open("&buffered=yes");
    let queue = device.queue().unwrap();
    fs::OpenOptions::new().write(true).open(small.image()).unwrap().set_len(4096).unwrap();
    // The loop device writes beyond the end of its file, which grows until the file system is full.
    write(&queue, 16 << 20);
    assert!(flush(&queue).is_err() && matches!(flush(&queue), Err(IoError::FlushLost)));
}

#[test]
fn a_truncated_file_takes_no_write() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("disk");
    for more in ["", "&buffered=yes"] {
        let _ = fs::remove_file(&path);
        let device =
            Device::open(&format!("kernel:{}?size=1M&lba=4096{more}", path.display())).unwrap();
        let queue = device.queue().unwrap();
        assert!(write(&queue, 1 << 20).iter().all(Result::is_ok));
        OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
        let written = write(&queue, 1 << 20);
        assert!(
            written.iter().all(|result| matches!(result, Err(IoError::Truncated))),
            "{written:?}"
        );
        assert!(
            matches!(flush(&queue), Err(IoError::Truncated))
                && matches!(write_through(&queue), Err(IoError::Truncated))
        );
        assert_eq!(fs::metadata(&path).unwrap().len(), 4096, "it did not grow again");
    }
}
