//! Who else uses a file or a block device, as far as the system tells.
//!
//! The refusal itself is the kernel's: O_EXCL on block devices, `flock` on files. What is read here names the holder.
//! Two users of a regular file take no lock of their own, so that they are looked for: swap, and loop devices.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Dev, major, makedev, minor};

use super::disk::{self, Disk};

/// One mounted file system (proc_pid_mountinfo(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    number: Dev,
    at: PathBuf,
    pub(super) filesystem: String,
    source: PathBuf,
}

/// The file systems that this process sees.
pub(super) fn mounts() -> Vec<Mount> {
    parse_mounts(&fs::read("/proc/self/mountinfo").unwrap_or_default())
}

fn parse_mounts(text: &[u8]) -> Vec<Mount> {
    let mount = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
        // Optional fields stand before the dash.
        let dash = fields.iter().position(|&field| field == b"-")?;
        let (major, minor) = std::str::from_utf8(fields.get(2)?).ok()?.split_once(':')?;
        Some(Mount {
            number: makedev(major.parse().ok()?, minor.parse().ok()?),
            at: unescape(fields.get(4)?),
            filesystem: String::from_utf8_lossy(fields.get(dash + 1)?).into_owned(),
            source: unescape(fields.get(dash + 2)?),
        })
    };
    text.split(|&b| b == b'\n').filter_map(mount).collect()
}

/// The mount through which a file of this device number is seen. Files of btrfs and overlayfs have numbers that no mount has:
/// the path, which is whole and without links, says where those are.
pub(super) fn mount_of<'a>(mounts: &'a [Mount], number: Dev, path: &Path) -> Option<&'a Mount> {
    let around = |mount: &&Mount| path.starts_with(&mount.at);
    // Of several at one place the last hides the others.
    let by_path = || mounts.iter().filter(around).max_by_key(|mount| mount.at.as_os_str().len());
    mounts.iter().rev().find(|mount| mount.number == number).or_else(by_path)
}

impl Mount {
    /// The block device below it. Some file systems (btrfs) have a number of their own: their source names the device.
    pub(super) fn device(&self) -> Option<Dev> {
        if Disk::of(self.number).is_some() {
            return Some(self.number);
        }
        let meta = self.source.is_absolute().then(|| fs::metadata(&self.source).ok()).flatten()?;
        meta.file_type().is_block_device().then(|| meta.rdev())
    }
}

/// Files and devices that are swap (proc_swaps(5)).
fn swaps() -> Vec<PathBuf> {
    parse_swaps(&fs::read("/proc/swaps").unwrap_or_default())
}

fn parse_swaps(text: &[u8]) -> Vec<PathBuf> {
    let first = |line: &[u8]| line.split(|&b| b == b' ' || b == b'\t').next().map(unescape);
    text.split(|&b| b == b'\n').skip(1).filter(|line| !line.is_empty()).filter_map(first).collect()
}

/// Undoes `\040` and the like, as the kernel writes spaces, tabs, line ends and backslashes in paths.
fn unescape(text: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => (out.push(byte), rest = &tail[3..]),
            None => (out.push(*first), rest = tail),
        };
    }
    OsString::from_vec(out).into()
}

/// How many places of one device are named.
const SHOWN: usize = 3;

/// Who holds the block device, its disk or its partitions. Never empty.
pub(super) fn device_holders(disk: &Disk) -> Vec<String> {
    let mut told = Vec::new();
    let (mounts, swaps) = (mounts(), swap_devices());
    for member in disk.family() {
        let subject = if member.name() == disk.name() { String::new() } else { format!("{}: ", member.name()) };
        tell(&member, &subject, &mounts, &swaps, &mut told, &mut BTreeSet::new());
    }
    if told.is_empty() {
        let nodes: Vec<_> = disk.family().iter().map(|member| (member.name(), member.node())).collect();
        told.extend(openers(&nodes));
    }
    if told.is_empty() {
        told.push("the kernel or a process that cannot be seen from here holds it (try `lsblk` and `fuser`)".into());
    }
    told
}

fn tell(disk: &Disk, subject: &str, mounts: &[Mount], swaps: &[Dev], told: &mut Vec<String>, seen: &mut BTreeSet<String>) {
    // What stands on what has no circles, but the same holder may stand on several devices.
    if !seen.insert(disk.name()) {
        return;
    }
    if let Some(number) = disk.number() {
        let of_it = mounts.iter().filter(|mount| mount.number == number || mount.device() == Some(number));
        let places: Vec<_> = of_it.map(|mount| format!("{subject}mounted on {} ({})", mount.at.display(), mount.filesystem)).collect();
        // Containers mount one thing in dozens of places.
        told.extend(places.iter().take(SHOWN).cloned());
        told.extend(places.get(SHOWN..).filter(|rest| !rest.is_empty()).map(|rest| format!("{subject}and on {} more", rest.len())));
        told.extend(swaps.iter().filter(|&&swap| swap == number).map(|_| format!("{subject}used as swap")));
    }
    for holder in disk.holders() {
        let name = holder.mapper_name().map_or_else(|| holder.name(), |mapped| format!("{} ({mapped})", holder.name()));
        told.push(format!("{subject}held by {name}"));
        tell(&holder, &format!("{subject}{name}: "), mounts, swaps, told, seen);
    }
}

fn swap_devices() -> Vec<Dev> {
    let number = |path: PathBuf| fs::metadata(path).ok().filter(|meta| meta.file_type().is_block_device()).map(|meta| meta.rdev());
    swaps().into_iter().filter_map(number).collect()
}

/// Processes that have one of these nodes open: one of them may be who holds it. Links below `/proc` are read, not
/// followed, because a dead network mount answers no `stat`.
fn openers(nodes: &[(String, PathBuf)]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|b| b.is_ascii_digit())) else { continue };
        for fd in fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
            let Ok(to) = fs::read_link(fd.path()) else { continue };
            found.extend(nodes.iter().filter(|(_, node)| to == *node).map(|(name, _)| format!("{name} is open in {}", process_name(pid))));
        }
    }
    found
}

fn process_name(pid: &str) -> String {
    if pid == std::process::id().to_string() {
        return "this process".into();
    }
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("process {pid} ({})", name.trim())
}

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
    let looped = disk::loops().into_iter().filter(|(_, path)| file.is_at(path));
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
