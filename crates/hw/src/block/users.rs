//! Who uses a block device, as far as the system tells: mounts, swap, what stands on it, processes that have it open.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Dev, makedev};

use super::disk::Disk;

/// One mounted file system (proc_pid_mountinfo(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The device number that files on it show. Some file systems (btrfs) have one of their own.
    pub number: Dev,
    /// Where.
    pub at: PathBuf,
    /// `ext4`.
    pub filesystem: String,
    /// What is mounted: the node of a block device, or anything else.
    pub source: PathBuf,
}

/// The file systems that this process sees.
pub fn mounts() -> Vec<Mount> {
    mounts_at(Path::new("/"))
}

fn mounts_at(root: &Path) -> Vec<Mount> {
    parse_mounts(&fs::read(root.join("proc/self/mountinfo")).unwrap_or_default())
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
pub fn mount_of<'a>(mounts: &'a [Mount], number: Dev, path: &Path) -> Option<&'a Mount> {
    let around = |mount: &&Mount| path.starts_with(&mount.at);
    // Of several at one place the last hides the others.
    let by_path = || mounts.iter().filter(around).max_by_key(|mount| mount.at.as_os_str().len());
    mounts.iter().rev().find(|mount| mount.number == number).or_else(by_path)
}

impl Mount {
    /// The block device below it. Where the number is the file system's own, the source names the device.
    pub fn device(&self) -> Option<Dev> {
        if Disk::of(self.number).is_some() {
            return Some(self.number);
        }
        node_number(&self.source)
    }

    fn is_of(&self, disk: &Disk, number: Dev) -> bool {
        self.number == number || self.source == disk.node() || self.device() == Some(number)
    }
}

/// Files and devices that are swap (proc_swaps(5)).
pub fn swaps() -> Vec<PathBuf> {
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

/// What a system says of all its block devices' users, read once.
#[derive(Clone, Debug)]
pub struct Users {
    mounts: Vec<Mount>,
    /// Each with its number, if it is the node of a block device.
    swaps: Vec<(PathBuf, Option<Dev>)>,
}

impl Users {
    /// This system's.
    pub fn here() -> Users {
        Users::at(Path::new("/"))
    }

    /// Those of the system whose `/proc` is below `root`.
    pub fn at(root: &Path) -> Users {
        let swaps = parse_swaps(&fs::read(root.join("proc/swaps")).unwrap_or_default());
        Users { mounts: mounts_at(root), swaps: swaps.into_iter().map(|path| (path.clone(), node_number(&path))).collect() }
    }

    /// Who uses this device, but for its partitions and its whole disk: where it is mounted, whether it is swap, what stands on it, and who
    /// uses that. Empty: nobody that is seen from here.
    pub fn of(&self, disk: &Disk) -> Vec<String> {
        let mut told = Vec::new();
        self.tell(disk, "", &mut told, &mut BTreeSet::new());
        told
    }

    /// Who holds the device, its disk or its partitions, when the kernel says that somebody does. Never empty.
    pub fn holders(&self, disk: &Disk) -> Vec<String> {
        let mut told = Vec::new();
        for member in disk.family() {
            let subject = if member.name() == disk.name() { String::new() } else { format!("{}: ", member.name()) };
            self.tell(&member, &subject, &mut told, &mut BTreeSet::new());
        }
        if told.is_empty() {
            let nodes: Vec<_> = disk.family().iter().map(Disk::node).collect();
            told.extend(openers(&nodes).into_iter().map(|(node, process)| format!("{} is open in {process}", name_of(&node))));
        }
        if told.is_empty() {
            told.push("the kernel or a process that cannot be seen from here holds it (try `lsblk` and `fuser`)".into());
        }
        told
    }

    fn tell(&self, disk: &Disk, subject: &str, told: &mut Vec<String>, seen: &mut BTreeSet<String>) {
        // What stands on what has no circles, but the same holder may stand on several devices.
        if !seen.insert(disk.name()) {
            return;
        }
        if let Some(number) = disk.number() {
            let of_it = self.mounts.iter().filter(|mount| mount.is_of(disk, number));
            let places: Vec<_> = of_it.map(|mount| format!("{subject}mounted on {} ({})", mount.at.display(), mount.filesystem)).collect();
            // Containers mount one thing in dozens of places.
            told.extend(places.iter().take(SHOWN).cloned());
            told.extend(places.get(SHOWN..).filter(|rest| !rest.is_empty()).map(|rest| format!("{subject}and on {} more", rest.len())));
            let swap = self.swaps.iter().filter(|(path, swap)| *swap == Some(number) || *path == disk.node());
            told.extend(swap.map(|_| format!("{subject}used as swap")));
        }
        for holder in disk.holders() {
            let name = holder.mapper_name().map_or_else(|| holder.name(), |mapped| format!("{} ({mapped})", holder.name()));
            told.push(format!("{subject}held by {name}"));
            self.tell(&holder, &format!("{subject}{name}: "), told, seen);
        }
    }
}

/// The number of a block device's node.
fn node_number(path: &Path) -> Option<Dev> {
    let meta = path.is_absolute().then(|| fs::metadata(path).ok()).flatten()?;
    meta.file_type().is_block_device().then(|| meta.rdev())
}

fn name_of(node: &Path) -> String {
    node.strip_prefix("/dev").unwrap_or(node).display().to_string()
}

/// Processes that have one of these files open, each with the file: one of them may be who holds it. Links below `/proc` are read, not
/// followed, because a dead network mount answers no `stat`. Of others' processes only root is told.
pub fn openers(files: &[PathBuf]) -> BTreeSet<(PathBuf, String)> {
    let mut found = BTreeSet::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|b| b.is_ascii_digit())) else { continue };
        for fd in fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
            let Ok(to) = fs::read_link(fd.path()) else { continue };
            found.extend(files.iter().filter(|file| to == **file).map(|file| (file.clone(), process_name(pid))));
        }
    }
    found
}

/// A process, for people, by its number.
pub fn process_name(pid: &str) -> String {
    if pid == std::process::id().to_string() {
        return "this process".into();
    }
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("process {pid} ({})", name.trim())
}

#[cfg(test)]
mod tests;
