//! Block devices as sysfs shows them: what a disk is, what uses it (mounts, swap, stacked devices,
//! processes), and which CPUs complete its I/O. No device is opened except loop devices, to ask for
//! their backing file.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Dev, major, makedev, minor};

use crate::cpu::cpu_list;

/// A block device: a whole disk, or a partition of one.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The device's directory in sysfs.
    dir: PathBuf,
    /// The sysfs directory of the whole disk: `dir`, or its parent if the device is a partition.
    whole: PathBuf,
}

/// A disk's model, serial number and firmware, for display.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Model, preceded by the vendor where sysfs has that as a separate attribute. For a virtual
    /// disk: what backs it, or its name.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Firmware revision.
    pub firmware: Option<String>,
}

impl Disk {
    /// The block device of this number. `root` is `/`, or a directory with a copy of `sys` and
    /// `proc`. `None`: sysfs has no such device, as for the anonymous device numbers of btrfs,
    /// overlayfs and tmpfs.
    pub fn of(root: &Path, number: Dev) -> Option<Disk> {
        Disk::at(&root.join(format!("sys/dev/block/{}:{}", major(number), minor(number))))
    }

    /// The device whose sysfs directory `link` resolves to.
    fn at(link: &Path) -> Option<Disk> {
        let dir = fs::canonicalize(link).ok()?;
        let whole =
            if dir.join("partition").exists() { dir.parent()?.to_owned() } else { dir.clone() };
        Some(Disk { dir, whole })
    }

    /// The block device of the NVMe namespace whose character device (`ng0n1`, Linux 5.13) has this
    /// number. Both are in one sysfs directory, also for the head of a multipath namespace. `None`:
    /// the number is not an NVMe generic device. `Some(None)`: the kernel has no block device for
    /// that namespace.
    pub fn of_character(root: &Path, number: Dev) -> Option<Option<Disk>> {
        let dir = fs::canonicalize(root.join(format!(
            "sys/dev/char/{}:{}",
            major(number),
            minor(number)
        )))
        .ok()?;
        let class = fs::canonicalize(dir.join("subsystem")).ok()?;
        let name = name_of(&dir)
            .strip_prefix("ng")
            .filter(|_| name_of(&class) == "nvme-generic")?
            .to_owned();
        let dir = dir.with_file_name(format!("nvme{name}"));
        let disk = Disk { whole: dir.clone(), dir };
        // For a namespace that the kernel does not drive, such as one of another command set, sysfs
        // has a disk without a device number.
        Some(disk.number().is_some().then_some(disk))
    }

    /// All whole disks below `root`, sorted by name with numbers compared as numbers: `nvme2n1`
    /// before `nvme10n1`. Disks that the kernel hides are left out, such as the paths of a
    /// multipath namespace.
    pub fn all(root: &Path) -> Vec<Disk> {
        let shown = |dir: PathBuf| {
            fs::canonicalize(dir)
                .ok()
                .filter(|dir| attribute(dir, "hidden").as_deref() != Some("1"))
        };
        let mut found: Vec<Disk> = children(&root.join("sys/block"))
            .into_iter()
            .filter_map(shown)
            .map(|dir| Disk { whole: dir.clone(), dir })
            .collect();
        found.sort_by_cached_key(|disk| natural_key(&disk.name()));
        found
    }

    /// Size in bytes. The attribute `size` counts units of 512 bytes, whatever the logical block
    /// size.
    pub fn bytes(&self) -> u64 {
        attribute(&self.dir, "size")
            .and_then(|blocks| blocks.parse::<u64>().ok())
            .unwrap_or(0)
            .saturating_mul(512)
    }

    /// An attribute of the whole disk (`nuse`, `queue/zoned`), trimmed; `None` if it is missing or
    /// empty.
    pub fn attribute(&self, name: &str) -> Option<String> {
        attribute(&self.whole, name).filter(|text| !text.is_empty())
    }

    /// The driver of the parent device: `nvme`, `virtio_blk`.
    pub fn driver(&self) -> Option<String> {
        fs::canonicalize(self.whole.join("device/driver")).ok().map(|dir| name_of(&dir))
    }

    /// The namespace identifier (NSID), if this is an NVMe disk.
    pub fn nsid(&self) -> Option<u32> {
        attribute(&self.whole, "nsid")?.parse().ok()
    }

    /// Whether this is a partition.
    pub fn is_partition(&self) -> bool {
        self.dir != self.whole
    }

    /// The kernel's name: `nvme0n1p2`.
    pub fn name(&self) -> String {
        name_of(&self.dir)
    }

    /// The device node. Sysfs writes a slash within a name as an exclamation mark.
    pub fn node(&self) -> PathBuf {
        Path::new("/dev").join(self.name().replace('!', "/"))
    }

    /// The name of the whole disk: `nvme0n1`.
    pub fn whole_name(&self) -> String {
        name_of(&self.whole)
    }

    /// Whether the kernel refuses writes (`ro`).
    pub fn read_only(&self) -> bool {
        attribute(&self.dir, "ro").as_deref() == Some("1")
    }

    /// A numeric attribute of the disk's queue (`queue/NAME`); `None`: this kernel or device does
    /// not have it.
    pub fn queue(&self, name: &str) -> Option<u64> {
        attribute(&self.whole, &format!("queue/{name}"))?.parse().ok()
    }

    /// This device, then the devices that share its blocks: a whole disk and all its partitions, or
    /// a partition and its whole disk. The kernel refuses an exclusive open while one of them is
    /// held.
    pub fn family(&self) -> Vec<Disk> {
        let part = |dir: PathBuf| Disk { dir, whole: self.whole.clone() };
        // Sibling partitions do not overlap: one may be written while another is in use.
        if self.is_partition() {
            return vec![self.clone(), part(self.whole.clone())];
        }
        let mut parts: Vec<PathBuf> = children(&self.whole)
            .into_iter()
            .filter(|dir| dir.join("partition").exists())
            .collect();
        parts.sort();
        std::iter::once(self.clone()).chain(parts.into_iter().map(part)).collect()
    }

    /// Devices stacked on this one (`holders`): device-mapper targets, RAID sets, caches.
    pub fn holders(&self) -> Vec<Disk> {
        linked_disks(&self.dir.join("holders"))
    }

    /// The device's number.
    pub fn number(&self) -> Option<Dev> {
        let text = attribute(&self.dir, "dev")?;
        let (major, minor) = text.split_once(':')?;
        Some(makedev(major.parse().ok()?, minor.parse().ok()?))
    }

    /// The backing file of a loop device.
    fn backing_file(&self) -> Option<PathBuf> {
        attribute(&self.whole, "loop/backing_file").map(PathBuf::from)
    }

    /// Model, serial number and firmware. NVMe and SCSI have these attributes below `device`;
    /// virtio has the serial number next to it.
    pub fn identity(&self) -> Identity {
        let attr = |name: &str| self.attribute(name);
        // A PCI or virtio vendor identifier (`0x1af4`) is not a vendor name.
        let vendor = attr("device/vendor").filter(|text| !text.starts_with("0x"));
        let model = attr("device/model")
            .map(|model| vendor.map_or(model.clone(), |vendor| format!("{vendor} {model}")));
        let backing = || {
            let mapped = self.attribute("dm/name").map(|name| format!("device-mapper {name}"));
            let looped =
                || self.backing_file().map(|file| format!("loop device over {}", file.display()));
            let raid = || attr("md/level").map(|level| format!("md {level}"));
            let driver = || self.driver().map(|driver| format!("{driver} disk"));
            mapped
                .or_else(looped)
                .or_else(raid)
                .or_else(driver)
                .unwrap_or_else(|| format!("disk {}", self.whole_name()))
        };
        Identity {
            model: Some(model.unwrap_or_else(backing)),
            serial: attr("device/serial").or_else(|| attr("serial")),
            firmware: attr("device/firmware_rev").or_else(|| attr("device/rev")),
        }
    }
}

/// A loop device with a backing file.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The kernel's name of the device: `loop0`.
    pub name: String,
    /// Path of the backing file when it was attached. The file may have been renamed or unlinked
    /// since.
    pub path: PathBuf,
    /// Device number and inode of the backing file. `None`: this process may not open the loop
    /// device.
    pub id: Option<(Dev, u64)>,
}

/// All loop devices that have a backing file.
pub fn loops() -> Vec<Loop> {
    let of = |dir: PathBuf| {
        let (name, path) = (name_of(&dir), attribute(&dir, "loop/backing_file")?.into());
        let id =
            File::open(Path::new("/dev").join(&name)).ok().and_then(|device| loop_file(&device));
        Some(Loop { name, path, id })
    };
    children(Path::new("/sys/block")).into_iter().filter_map(of).collect()
}

/// Device number and inode of the backing file of a loop device (LOOP_GET_STATUS64, loop(4)).
fn loop_file(device: &File) -> Option<(Dev, u64)> {
    /// linux/loop.h.
    const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
    // `struct loop_info64` has 232 bytes: first lo_device and lo_inode, of 8 bytes each.
    let mut info = [0u64; 29];
    // SAFETY: the call fills in a `struct loop_info64`, and `info` is as long and aligned as one.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, info.as_mut_ptr()) };
    (done == 0).then_some((info[0], info[1]))
}

/// Sort key that compares digits within a name as numbers.
fn natural_key(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let (word, tail) =
            rest.split_at(rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len()));
        let (digits, tail) =
            tail.split_at(tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len()));
        parts.push((word.to_owned(), digits.parse().unwrap_or(0)));
        rest = tail;
    }
    parts
}

fn name_of(dir: &Path) -> String {
    dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn linked_disks(dir: &Path) -> Vec<Disk> {
    let mut found: Vec<Disk> = children(dir).iter().filter_map(|link| Disk::at(link)).collect();
    found.sort_by(|one, other| one.dir.cmp(&other.dir));
    found
}

fn children(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// The text of an attribute, trimmed: NVMe pads its strings with spaces.
fn attribute(dir: &Path, name: &str) -> Option<String> {
    let bytes = fs::read(dir.join(name)).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// One mounted file system (proc_pid_mountinfo(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Device number of the files on it (`st_dev`). Some file systems, such as btrfs, use an
    /// anonymous number of their own.
    pub number: Dev,
    /// Mount point.
    pub at: PathBuf,
    /// File system type, such as `ext4`.
    pub filesystem: String,
    /// Mount source: the node of a block device, or another name.
    pub source: PathBuf,
}

/// The file systems in the mount namespace of this process. `root` is `/`, or a directory with a
/// copy of `proc`.
pub fn mounts(root: &Path) -> Vec<Mount> {
    let text = fs::read(root.join("proc/self/mountinfo")).unwrap_or_default();
    let mount = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
        // A variable number of optional fields precedes the dash.
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

/// The mount that a file is on, by its device number. Files of btrfs and overlayfs have a number
/// that no mount has: then the mount is found by `path`, which must be absolute and without
/// symbolic links.
pub fn mount_of<'a>(mounts: &'a [Mount], number: Dev, path: &Path) -> Option<&'a Mount> {
    let around = |mount: &&Mount| path.starts_with(&mount.at);
    // Of several mounts at one mount point only the last is visible; `max_by_key` returns the last
    // maximum.
    let by_path = || mounts.iter().filter(around).max_by_key(|mount| mount.at.as_os_str().len());
    mounts.iter().rev().find(|mount| mount.number == number).or_else(by_path)
}

impl Mount {
    /// The block device that the file system is on. If the file system's device number is
    /// anonymous, the mount source names the device.
    pub fn device(&self) -> Option<Dev> {
        if Disk::of(Path::new("/"), self.number).is_some() {
            return Some(self.number);
        }
        node_number(&self.source)
    }
}

/// Files and devices used as swap (proc_swaps(5)). `root` is `/`, or a directory with a copy of
/// `proc`.
pub fn swaps(root: &Path) -> Vec<PathBuf> {
    let text = fs::read(root.join("proc/swaps")).unwrap_or_default();
    let first = |line: &[u8]| line.split(|&b| b == b' ' || b == b'\t').next().map(unescape);
    text.split(|&b| b == b'\n').skip(1).filter(|line| !line.is_empty()).filter_map(first).collect()
}

/// Decodes the octal escapes (`\040`) with which the kernel writes spaces, tabs, line ends and
/// backslashes in paths.
fn unescape(text: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let octal = tail
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => (out.push(byte), rest = &tail[3..]),
            None => (out.push(*first), rest = tail),
        };
    }
    OsString::from_vec(out).into()
}

/// Mount points listed per device.
const MAX_LISTED_MOUNTS: usize = 3;

/// Mounts and swap areas of the system, read once: what uses each block device.
#[derive(Clone, Debug)]
pub struct Users {
    mounts: Vec<Mount>,
    /// Path of each swap area, and its device number if it is a block device.
    swaps: Vec<(PathBuf, Option<Dev>)>,
}

impl Users {
    /// Reads `root/proc`.
    pub fn at(root: &Path) -> Users {
        Users {
            mounts: mounts(root),
            swaps: swaps(root).into_iter().map(|path| (path.clone(), node_number(&path))).collect(),
        }
    }

    /// What uses exactly this device, not its partitions or its whole disk: mount points, swap, and
    /// stacked devices with the users of these. One sentence per user; empty if none is visible.
    pub fn of(&self, disk: &Disk) -> Vec<String> {
        let mut lines = Vec::new();
        self.describe(disk, "", &mut lines, &mut BTreeSet::new());
        lines
    }

    /// What may hold the device, its whole disk or its partitions after the kernel has refused an
    /// exclusive open. Never empty.
    pub fn holders(&self, disk: &Disk) -> Vec<String> {
        let mut lines = Vec::new();
        for member in disk.family() {
            let subject = if member.name() == disk.name() {
                String::new()
            } else {
                format!("{}: ", member.name())
            };
            self.describe(&member, &subject, &mut lines, &mut BTreeSet::new());
        }
        if lines.is_empty() {
            let nodes: Vec<_> = disk.family().iter().map(Disk::node).collect();
            let open = |(node, process): (PathBuf, String)| {
                format!(
                    "{} is open in {process}",
                    node.strip_prefix("/dev").unwrap_or(&node).display()
                )
            };
            lines.extend(openers(&nodes).into_iter().map(open));
        }
        if lines.is_empty() {
            lines.push("the kernel or a process that cannot be seen from here holds it (try `lsblk` and `fuser`)".into());
        }
        lines
    }

    fn describe(
        &self,
        disk: &Disk,
        subject: &str,
        lines: &mut Vec<String>,
        seen: &mut BTreeSet<String>,
    ) {
        // Stacking has no cycles, but one holder may be stacked on several devices: list it once.
        if !seen.insert(disk.name()) {
            return;
        }
        if let Some(number) = disk.number() {
            let is_of_it = |mount: &&Mount| {
                mount.number == number
                    || mount.source == disk.node()
                    || mount.device() == Some(number)
            };
            let of_it = self.mounts.iter().filter(is_of_it);
            let places: Vec<_> = of_it
                .map(|mount| {
                    format!("{subject}mounted on {} ({})", mount.at.display(), mount.filesystem)
                })
                .collect();
            // Containers bind-mount one file system dozens of times.
            lines.extend(places.iter().take(MAX_LISTED_MOUNTS).cloned());
            lines.extend(
                places
                    .get(MAX_LISTED_MOUNTS..)
                    .filter(|rest| !rest.is_empty())
                    .map(|rest| format!("{subject}and on {} more", rest.len())),
            );
            let swap = self
                .swaps
                .iter()
                .filter(|(path, swap)| *swap == Some(number) || *path == disk.node());
            lines.extend(swap.map(|_| format!("{subject}used as swap")));
        }
        for holder in disk.holders() {
            let name = holder
                .attribute("dm/name")
                .map_or_else(|| holder.name(), |mapped| format!("{} ({mapped})", holder.name()));
            lines.push(format!("{subject}held by {name}"));
            self.describe(&holder, &format!("{subject}{name}: "), lines, seen);
        }
    }
}

/// The device number of a path, if it is the node of a block device.
fn node_number(path: &Path) -> Option<Dev> {
    let meta = path.is_absolute().then(|| fs::metadata(path).ok()).flatten()?;
    meta.file_type().is_block_device().then(|| meta.rdev())
}

/// Processes that have one of these files open, with the file. The links in `/proc/PID/fd` are
/// read, not followed: `stat` on a dead network mount blocks. Without privilege only processes of
/// the same user are found.
pub fn openers(files: &[PathBuf]) -> BTreeSet<(PathBuf, String)> {
    let mut found = BTreeSet::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
        else {
            continue;
        };
        for fd in fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
            let Ok(to) = fs::read_link(fd.path()) else { continue };
            found.extend(
                files
                    .iter()
                    .filter(|file| to == **file)
                    .map(|file| (file.clone(), process_name(pid))),
            );
        }
    }
    found
}

/// A process as it is named in messages: its number and command name.
pub fn process_name(pid: &str) -> String {
    if pid == std::process::id().to_string() {
        return "this process".into();
    }
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("process {pid} ({})", name.trim())
}

/// The CPUs that complete the I/O of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionCpus {
    /// Name of the disk; of stacked devices, the lowest one.
    pub disk: String,
    /// CPUs in the order of the interrupts or hardware queues, without duplicates; never empty.
    pub cpus: Vec<usize>,
    /// `true`: the effective affinity of the interrupts. `false`: no interrupt of the disk was
    /// found, and these are the CPUs mapped to its hardware queues.
    pub by_interrupt: bool,
}

/// Limit on nested stacked devices: sysfs could be inconsistent.
const MAX_STACKED: usize = 8;

impl CompletionCpus {
    /// The CPUs of a block device, or of the disk that a file is on. `root` contains `sys` and
    /// `proc`. `None`: there is no such disk (network file systems, btrfs, overlayfs, tmpfs), or it
    /// has neither interrupts nor queues (`zram`).
    pub fn of(root: &Path, path: &Path) -> Option<CompletionCpus> {
        let disk = disk_of(root, path)?;
        CompletionCpus::below(root, &disk, MAX_STACKED)
    }

    /// The CPUs of the first underlying disk whose CPUs are known, or of the disk itself if there is
    /// nothing below it.
    fn below(root: &Path, disk: &Disk, depth: usize) -> Option<CompletionCpus> {
        let depth = depth.checked_sub(1)?;
        let mut lower = linked_disks(&disk.whole.join("slaves"));
        lower.extend(disk.backing_file().and_then(|file| disk_of(root, &file)));
        if !lower.is_empty() {
            return lower.iter().find_map(|disk| CompletionCpus::below(root, disk, depth));
        }
        let (interrupts, queues) = (cpus_of_interrupts(root, disk), cpus_of_queues(disk));
        let by_interrupt = !interrupts.is_empty();
        let cpus = if by_interrupt { interrupts } else { queues };
        (!cpus.is_empty()).then(|| CompletionCpus { disk: disk.whole_name(), cpus, by_interrupt })
    }
}

fn disk_of(root: &Path, path: &Path) -> Option<Disk> {
    let meta = fs::metadata(path).ok()?;
    let kind = meta.mode() & libc::S_IFMT;
    // A device node names the device by `st_rdev`; a regular file is on the device `st_dev`.
    let number = if kind == libc::S_IFBLK { meta.rdev() } else { meta.dev() };
    match kind {
        libc::S_IFCHR => Disk::of_character(root, meta.rdev())?,
        _ => Disk::of(root, number),
    }
}

/// CPUs of the I/O interrupts of the PCI function that the disk belongs to.
fn cpus_of_interrupts(root: &Path, disk: &Disk) -> Vec<usize> {
    // The interrupts belong to the PCI function, some levels above the disk.
    let Some(vectors) =
        disk.dir.ancestors().map(|dir| dir.join("msi_irqs")).find(|dir| dir.is_dir())
    else {
        return Vec::new();
    };
    let numbers: BTreeSet<u32> =
        names(&vectors).iter().filter_map(|name| name.parse().ok()).collect();
    let of = |number: u32| {
        let dir = root.join("proc/irq").join(number.to_string());
        // Each handler of an interrupt has a directory of its name (kernel/irq/proc.c).
        let is_io = names(&dir).iter().any(|name| dir.join(name).is_dir() && is_io(name));
        is_io.then(|| fs::read_to_string(dir.join("effective_affinity_list")).unwrap_or_default())
    };
    unique_cpus(numbers.into_iter().filter_map(of))
}

/// Whether a handler of this name serves I/O queues. Excluded are virtio configuration and event
/// interrupts and the NVMe admin queue (names from `virtio_vdpa`, `virtscsi_init`,
/// `nvme_setup_irqs`).
fn is_io(name: &str) -> bool {
    let admin = name.starts_with("nvme") && name.ends_with("q0");
    !admin && !["-config", "-control", "-event"].iter().any(|end| name.ends_with(end))
}

/// CPUs mapped to the hardware queues, in queue order. The directory `mq` is not in
/// Documentation/ABI/stable/sysfs-block; see block/blk-mq-sysfs.c.
fn cpus_of_queues(disk: &Disk) -> Vec<usize> {
    let dir = disk.whole.join("mq");
    let numbers: BTreeSet<u32> = names(&dir).iter().filter_map(|name| name.parse().ok()).collect();
    unique_cpus(numbers.into_iter().filter_map(|number| {
        fs::read_to_string(dir.join(number.to_string()).join("cpu_list")).ok()
    }))
}

fn names(dir: &Path) -> Vec<String> {
    children(dir).iter().map(|path| name_of(path)).collect()
}

/// The CPUs of several lists such as `0-2,5` or `0, 1`, in order, without duplicates.
fn unique_cpus(lists: impl Iterator<Item = String>) -> Vec<usize> {
    let mut cpus = Vec::new();
    for list in lists {
        let new: Vec<usize> = cpu_list(&list).filter(|cpu| !cpus.contains(cpu)).collect();
        cpus.extend(new);
    }
    cpus
}

#[cfg(test)]
mod tests;
