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

/// The mount through which files of this device number are seen.
pub(super) fn mount_of(mounts: &[Mount], number: Dev) -> Option<&Mount> {
    mounts.iter().rev().find(|mount| mount.number == number)
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

/// Who holds the block device, its disk or its partitions. Never empty.
pub(super) fn device_holders(disk: &Disk) -> Vec<String> {
    let mut told = Vec::new();
    let (mounts, swaps) = (mounts(), swap_devices());
    for member in disk.family() {
        let subject = if member.name() == disk.name() { String::new() } else { format!("{}: ", member.name()) };
        tell(&member, &subject, &mounts, &swaps, &mut told, &mut BTreeSet::new());
        told.extend(openers(&member).into_iter().map(|opener| format!("{subject}open in {opener}")));
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
        told.extend(of_it.map(|mount| format!("{subject}mounted on {} ({})", mount.at.display(), mount.filesystem)));
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

/// Processes that have the device open. Links below `/proc` are read, not followed: a dead network mount answers no `stat`.
fn openers(disk: &Disk) -> Vec<String> {
    let node = Path::new("/dev").join(disk.name());
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|b| b.is_ascii_digit())) else { continue };
        let descriptors = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        if descriptors.into_iter().any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == node)) {
            found.push(process_name(pid));
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

/// What uses a regular file without a lock, and would be damaged by writes past it.
pub(super) fn file_users(file: FileId) -> Vec<String> {
    let swap = swaps().iter().any(|path| file.is_at(path)).then(|| "used as swap".to_owned());
    let looped = disk::loops().into_iter().filter(|(_, path)| file.is_at(path));
    let looped = looped.map(|(name, _)| format!("attached to /dev/{name} (`losetup --detach`)"));
    swap.into_iter().chain(looped).collect()
}

/// Who has locked the file by `flock` (proc_locks(5)).
pub(super) fn lockers(file: FileId) -> Vec<String> {
    let pids = parse_locks(&fs::read_to_string("/proc/locks").unwrap_or_default(), file);
    pids.iter().map(|pid| process_name(pid)).collect()
}

fn parse_locks(text: &str, file: FileId) -> Vec<String> {
    let id = format!("{:02x}:{:02x}:{}", major(file.device), minor(file.device), file.inode);
    let holder = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        // A second field `->` marks one that waits.
        let of_it = fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&id.as_str());
        // No process of this namespace: 0 or -1.
        fields.get(4).filter(|pid| of_it && pid.parse().is_ok_and(|pid: i64| pid > 0)).map(|&pid| pid.to_owned())
    };
    text.lines().filter_map(holder).collect()
}
