//! Block devices as the system shows them, who uses them, and which CPUs complete their I/O. None is opened but loop devices, to be asked
//! for their file.

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
    /// Its directory.
    dir: PathBuf,
    /// The directory of the disk that it is, or is a part of.
    whole: PathBuf,
}

/// What a disk is, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Model, with the maker's name where that is a field of its own. Of a virtual disk: what it stands on, or its name.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Firmware revision.
    pub firmware: Option<String>,
}

impl Disk {
    /// The block device of this number; `root` is `/` for the system's. `None`: sysfs knows none, as with anonymous numbers of btrfs,
    /// overlayfs and tmpfs.
    pub fn of(root: &Path, number: Dev) -> Option<Disk> {
        Disk::at(&root.join(format!("sys/dev/block/{}:{}", major(number), minor(number))))
    }

    /// The one whose directory a link leads to.
    fn at(link: &Path) -> Option<Disk> {
        let dir = fs::canonicalize(link).ok()?;
        let whole = if dir.join("partition").exists() { dir.parent()?.to_owned() } else { dir.clone() };
        Some(Disk { dir, whole })
    }

    /// The block device of the NVMe namespace whose character device has this number (`ng0n1`, Linux 5.13): they stand in one directory,
    /// the head's of a namespace with several paths too. `None`: the number is something else's. `Some(None)`: the kernel has no block
    /// device of that namespace for others to use.
    pub fn of_character(root: &Path, number: Dev) -> Option<Option<Disk>> {
        let dir = fs::canonicalize(root.join(format!("sys/dev/char/{}:{}", major(number), minor(number)))).ok()?;
        let class = fs::canonicalize(dir.join("subsystem")).ok()?;
        let name = name_of(&dir).strip_prefix("ng").filter(|_| name_of(&class) == "nvme-generic")?.to_owned();
        let dir = dir.with_file_name(format!("nvme{name}"));
        let disk = Disk { whole: dir.clone(), dir };
        // Of what the kernel does not drive, such as another command set, it shows a disk without a number.
        Some(disk.number().is_some().then_some(disk))
    }

    /// Every whole disk below `root`, which is `/` for the system's, by name: `nvme2n1` before `nvme10n1`. Those that the kernel hides, such
    /// as each path to a namespace with several, are left out.
    pub fn all(root: &Path) -> Vec<Disk> {
        let shown = |dir: PathBuf| fs::canonicalize(dir).ok().filter(|dir| attribute(dir, "hidden").as_deref() != Some("1"));
        let mut found: Vec<Disk> =
            children(&root.join("sys/block")).into_iter().filter_map(shown).map(|dir| Disk { whole: dir.clone(), dir }).collect();
        found.sort_by_cached_key(|disk| by_number(&disk.name()));
        found
    }

    /// Bytes (`size` is in units of 512 bytes whatever the blocks are).
    pub fn bytes(&self) -> u64 {
        attribute(&self.dir, "size").and_then(|blocks| blocks.parse::<u64>().ok()).unwrap_or(0).saturating_mul(512)
    }

    /// An attribute of the whole disk, without white space around it: `nuse`, `queue/zoned`.
    pub fn attribute(&self, name: &str) -> Option<String> {
        attribute(&self.whole, name).filter(|text| !text.is_empty())
    }

    /// The driver of the device that it belongs to: `nvme`, `virtio_blk`.
    pub fn driver(&self) -> Option<String> {
        fs::canonicalize(self.whole.join("device/driver")).ok().map(|dir| name_of(&dir))
    }

    /// The namespace that it is at its controller (NSID), if it is NVMe's.
    pub fn nsid(&self) -> Option<u32> {
        attribute(&self.whole, "nsid")?.parse().ok()
    }

    /// It is a partition.
    pub fn is_partition(&self) -> bool {
        self.dir != self.whole
    }

    /// The kernel's name: `nvme0n1p2`.
    pub fn name(&self) -> String {
        name_of(&self.dir)
    }

    /// Its node. A slash within a name is an exclamation mark in sysfs.
    pub fn node(&self) -> PathBuf {
        Path::new("/dev").join(self.name().replace('!', "/"))
    }

    /// The name of the whole disk: `nvme0n1`.
    pub fn whole_name(&self) -> String {
        name_of(&self.whole)
    }

    /// The kernel refuses writes (`ro`).
    pub fn read_only(&self) -> bool {
        attribute(&self.dir, "ro").as_deref() == Some("1")
    }

    /// A number of the disk's queue; `None`: this kernel or this device has no such attribute.
    pub fn queue(&self, name: &str) -> Option<u64> {
        attribute(&self.whole, &format!("queue/{name}"))?.parse().ok()
    }

    /// The whole disk and its partitions, this device first. What one of them is held for keeps the others from writers.
    pub fn family(&self) -> Vec<Disk> {
        let part = |dir: PathBuf| Disk { dir, whole: self.whole.clone() };
        // A partition may be written while its siblings are in use: they are not of its family.
        if self.is_partition() {
            return vec![self.clone(), part(self.whole.clone())];
        }
        let mut parts: Vec<PathBuf> = children(&self.whole).into_iter().filter(|dir| dir.join("partition").exists()).collect();
        parts.sort();
        std::iter::once(self.clone()).chain(parts.into_iter().map(part)).collect()
    }

    /// What stands on this device, by name: device-mapper targets, RAID sets, caches.
    pub fn holders(&self) -> Vec<Disk> {
        linked(&self.dir.join("holders"))
    }

    /// The device's number.
    pub fn number(&self) -> Option<Dev> {
        let text = attribute(&self.dir, "dev")?;
        let (major, minor) = text.split_once(':')?;
        Some(makedev(major.parse().ok()?, minor.parse().ok()?))
    }

    /// The file that a loop device stands on.
    fn backing_file(&self) -> Option<PathBuf> {
        attribute(&self.whole, "loop/backing_file").map(PathBuf::from)
    }

    /// Who made it, and what it is. Where each driver says so differs: NVMe and SCSI below `device`, virtio beside it.
    pub fn identity(&self) -> Identity {
        let said = |name: &str| self.attribute(name);
        // PCI and virtio identifiers (`0x1af4`) are no maker's name.
        let vendor = said("device/vendor").filter(|text| !text.starts_with("0x"));
        let model = said("device/model").map(|model| vendor.map_or(model.clone(), |vendor| format!("{vendor} {model}")));
        let stands_on = || {
            let mapped = self.attribute("dm/name").map(|name| format!("device-mapper {name}"));
            let looped = || self.backing_file().map(|file| format!("loop device over {}", file.display()));
            let raid = || said("md/level").map(|level| format!("md {level}"));
            let driver = || self.driver().map(|driver| format!("{driver} disk"));
            mapped.or_else(looped).or_else(raid).or_else(driver).unwrap_or_else(|| format!("disk {}", self.whole_name()))
        };
        Identity {
            model: Some(model.unwrap_or_else(stands_on)),
            serial: said("device/serial").or_else(|| said("serial")),
            firmware: said("device/firmware_rev").or_else(|| said("device/rev")),
        }
    }
}

/// A loop device that has a file.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The kernel's name of the device: `loop0`.
    pub name: String,
    /// What the file is called, or was, where it was opened: it may have other names, or none any more.
    pub path: PathBuf,
    /// Its device number and inode. `None`: this process may not ask.
    pub id: Option<(Dev, u64)>,
}

/// Loop devices that have a file.
pub fn loops() -> Vec<Loop> {
    let of = |dir: PathBuf| {
        let (name, path) = (name_of(&dir), attribute(&dir, "loop/backing_file")?.into());
        let id = File::open(Path::new("/dev").join(&name)).ok().and_then(|device| loop_file(&device));
        Some(Loop { name, path, id })
    };
    children(Path::new("/sys/block")).into_iter().filter_map(of).collect()
}

/// LOOP_GET_STATUS64 (loop(4)): the file of a loop device.
fn loop_file(device: &File) -> Option<(Dev, u64)> {
    /// linux/loop.h.
    const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
    // `struct loop_info64` has 232 bytes: first lo_device and lo_inode, of 8 bytes each.
    let mut info = [0u64; 29];
    // SAFETY: the call fills in a `struct loop_info64`, and `info` is as long and aligned as one.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, info.as_mut_ptr()) };
    (done == 0).then_some((info[0], info[1]))
}

/// A name with each number in it as such, for sorting.
fn by_number(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let (word, tail) = rest.split_at(rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len()));
        let (digits, tail) = tail.split_at(tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len()));
        parts.push((word.to_owned(), digits.parse().unwrap_or(0)));
        rest = tail;
    }
    parts
}

fn name_of(dir: &Path) -> String {
    dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn linked(dir: &Path) -> Vec<Disk> {
    let mut found: Vec<Disk> = children(dir).iter().filter_map(|link| Disk::at(link)).collect();
    found.sort_by(|one, other| one.dir.cmp(&other.dir));
    found
}

fn children(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// The text of an attribute without the spaces around it, which NVMe pads its strings with.
fn attribute(dir: &Path, name: &str) -> Option<String> {
    let bytes = fs::read(dir.join(name)).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

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

/// The file systems that this process sees; `root` is `/` for the system's.
pub fn mounts(root: &Path) -> Vec<Mount> {
    let text = fs::read(root.join("proc/self/mountinfo")).unwrap_or_default();
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
        if Disk::of(Path::new("/"), self.number).is_some() {
            return Some(self.number);
        }
        node_number(&self.source)
    }
}

/// Files and devices that are swap (proc_swaps(5)); `root` is `/` for the system's.
pub fn swaps(root: &Path) -> Vec<PathBuf> {
    let text = fs::read(root.join("proc/swaps")).unwrap_or_default();
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
    /// Those of the system whose `/proc` is below `root`.
    pub fn at(root: &Path) -> Users {
        Users { mounts: mounts(root), swaps: swaps(root).into_iter().map(|path| (path.clone(), node_number(&path))).collect() }
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
            let open = |(node, process): (PathBuf, String)| {
                format!("{} is open in {process}", node.strip_prefix("/dev").unwrap_or(&node).display())
            };
            told.extend(openers(&nodes).into_iter().map(open));
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
            let is_of_it = |mount: &&Mount| mount.number == number || mount.source == disk.node() || mount.device() == Some(number);
            let of_it = self.mounts.iter().filter(is_of_it);
            let places: Vec<_> = of_it.map(|mount| format!("{subject}mounted on {} ({})", mount.at.display(), mount.filesystem)).collect();
            // Containers mount one thing in dozens of places.
            told.extend(places.iter().take(SHOWN).cloned());
            told.extend(places.get(SHOWN..).filter(|rest| !rest.is_empty()).map(|rest| format!("{subject}and on {} more", rest.len())));
            let swap = self.swaps.iter().filter(|(path, swap)| *swap == Some(number) || *path == disk.node());
            told.extend(swap.map(|_| format!("{subject}used as swap")));
        }
        for holder in disk.holders() {
            let name = holder.attribute("dm/name").map_or_else(|| holder.name(), |mapped| format!("{} ({mapped})", holder.name()));
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

/// What [`Completing::of`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completing {
    /// The name of the disk: the lowest one, where others stand on it.
    pub disk: String,
    /// CPUs, in the order of the disk's interrupts, or of its queues; each once, never empty.
    pub cpus: Vec<usize>,
    /// They are the effective affinity of its interrupts. Otherwise no interrupt is known to be its, and these are the CPUs that its
    /// hardware queues belong to.
    pub by_interrupt: bool,
}

/// Disks stand on each other no deeper than this.
const DEPTH: usize = 8;

impl Completing {
    /// Of a block device, or of the one that holds a file. `root` has `sys` and `proc`. `None`: there is no such disk (network file
    /// systems, btrfs, overlayfs, tmpfs), or it has neither (`zram`).
    pub fn of(root: &Path, path: &Path) -> Option<Completing> {
        let disk = disk_of(root, path)?;
        Completing::below(root, &disk, DEPTH)
    }

    /// The first disk of those that `disk` stands on, or itself.
    fn below(root: &Path, disk: &Disk, depth: usize) -> Option<Completing> {
        let depth = depth.checked_sub(1)?;
        let mut lower = linked(&disk.whole.join("slaves"));
        lower.extend(disk.backing_file().and_then(|file| disk_of(root, &file)));
        if !lower.is_empty() {
            return lower.iter().find_map(|disk| Completing::below(root, disk, depth));
        }
        let (interrupts, queues) = (cpus_of_interrupts(root, disk), cpus_of_queues(disk));
        let by_interrupt = !interrupts.is_empty();
        let cpus = if by_interrupt { interrupts } else { queues };
        (!cpus.is_empty()).then(|| Completing { disk: disk.whole_name(), cpus, by_interrupt })
    }
}

fn disk_of(root: &Path, path: &Path) -> Option<Disk> {
    let meta = fs::metadata(path).ok()?;
    let kind = meta.mode() & libc::S_IFMT;
    let number = if kind == libc::S_IFBLK { meta.rdev() } else { meta.dev() };
    match kind {
        libc::S_IFCHR => Disk::of_character(root, meta.rdev())?,
        _ => Disk::of(root, number),
    }
}

/// CPUs of the interrupts of the PCI function that the disk belongs to, but for those that no I/O causes.
fn cpus_of_interrupts(root: &Path, disk: &Disk) -> Vec<usize> {
    let Some(vectors) = disk.dir.ancestors().map(|dir| dir.join("msi_irqs")).find(|dir| dir.is_dir()) else { return Vec::new() };
    let numbers: BTreeSet<u32> = names(&vectors).iter().filter_map(|name| name.parse().ok()).collect();
    let of = |number: u32| {
        let dir = root.join("proc/irq").join(number.to_string());
        // Each handler of an interrupt has a directory of its name (kernel/irq/proc.c).
        let is_io = names(&dir).iter().any(|name| dir.join(name).is_dir() && is_io(name));
        is_io.then(|| fs::read_to_string(dir.join("effective_affinity_list")).unwrap_or_default())
    };
    once(numbers.into_iter().filter_map(of))
}

/// Whether the handler of this name is one of I/O: not of virtio's configuration changes and events, nor of an NVMe controller's admin
/// queue (`virtio_vdpa`, `virtscsi_init`, `nvme_setup_irqs`).
fn is_io(name: &str) -> bool {
    let admin = name.starts_with("nvme") && name.ends_with("q0");
    !admin && !["-config", "-control", "-event"].iter().any(|end| name.ends_with(end))
}

/// CPUs of its hardware queues, in their order (Documentation/ABI/stable/sysfs-block has no `mq`; block/blk-mq-sysfs.c).
fn cpus_of_queues(disk: &Disk) -> Vec<usize> {
    let dir = disk.whole.join("mq");
    let numbers: BTreeSet<u32> = names(&dir).iter().filter_map(|name| name.parse().ok()).collect();
    once(numbers.into_iter().filter_map(|number| fs::read_to_string(dir.join(number.to_string()).join("cpu_list")).ok()))
}

fn names(dir: &Path) -> Vec<String> {
    children(dir).iter().map(|path| name_of(path)).collect()
}

/// The CPUs of lists such as `0-2,5` or `0, 1`, each once, in order.
fn once(lists: impl Iterator<Item = String>) -> Vec<usize> {
    let mut cpus = Vec::new();
    for list in lists {
        let new: Vec<usize> = cpu_list(&list).filter(|cpu| !cpus.contains(cpu)).collect();
        cpus.extend(new);
    }
    cpus
}

#[cfg(test)]
mod tests;
