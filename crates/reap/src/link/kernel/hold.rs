//! Who else uses a file, as far as the system tells. Of block devices `hw::block` tells.
//!
//! The refusal itself is the kernel's: O_EXCL on block devices, `flock` on files. What is read here names the holder.
//! Two users of a regular file take no lock of their own, so that they are looked for: swap, and loop devices.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hw::block::{loops, process_name, swaps};
use rustix::fs::{Dev, major, minor};

/// Which file it is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: Dev,
    inode: u64,
}

impl FileId {
    pub(super) fn of(meta: &fs::Metadata) -> FileId {
        FileId { device: meta.dev(), inode: meta.ino() }
    }

    fn is_at(self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|meta| FileId::of(&meta) == self)
    }
}

/// Who uses a regular file without a `flock`, and would be damaged by writes past it: swap, loop devices, and the holders
/// of byte-range locks (databases; QEMU locks the images of its guests so).
pub(super) fn file_users(file: FileId) -> Vec<String> {
    let swap = swaps().iter().any(|path| file.is_at(path)).then(|| "used as swap".to_owned());
    let looped = loops().into_iter().filter(|(_, path)| file.is_at(path));
    let looped = looped.map(|(name, _)| format!("attached to /dev/{name} (`losetup --detach`)"));
    let locked = locks(file).into_iter().filter(|lock| lock.kind != "FLOCK");
    let locked = locked.map(|lock| format!("parts of it are locked by {}", lock.holder()));
    let users: BTreeSet<String> = swap.into_iter().chain(looped).chain(locked).collect();
    users.into_iter().collect()
}

/// Who has locked the file by `flock`, as far as this process may see.
pub(super) fn lockers(file: FileId) -> Vec<String> {
    locks(file).iter().filter(|lock| lock.kind == "FLOCK").map(Lock::holder).collect()
}

/// One lock of a file (proc_locks(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lock {
    /// FLOCK, POSIX or OFDLCK.
    kind: String,
    /// `None`: it belongs to an open file, or to a process that this one cannot see.
    pid: Option<String>,
}

impl Lock {
    fn holder(&self) -> String {
        self.pid.as_deref().map_or_else(|| "another process".to_owned(), process_name)
    }
}

fn locks(file: FileId) -> Vec<Lock> {
    parse_locks(&fs::read_to_string("/proc/locks").unwrap_or_default(), file)
}

fn parse_locks(text: &str, file: FileId) -> Vec<Lock> {
    let id = format!("{:02x}:{:02x}:{}", major(file.device), minor(file.device), file.inode);
    let lock = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        // One that waits has `->` as its second field, and one more than these.
        let [_, kind @ ("FLOCK" | "POSIX" | "OFDLCK"), _, _, pid, of, ..] = fields[..] else { return None };
        let seen = pid.parse().is_ok_and(|pid: i64| pid > 0);
        (of == id).then(|| Lock { kind: kind.to_owned(), pid: seen.then(|| pid.to_owned()) })
    };
    text.lines().filter_map(lock).collect()
}

#[cfg(test)]
mod tests;
