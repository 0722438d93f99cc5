//! What sysfs says of a block device.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Dev, major, minor};

/// Where the kernel lists block devices by number (Documentation/ABI/stable/sysfs-block).
const BY_NUMBER: &str = "/sys/dev/block";
/// And character devices.
const CHARACTERS: &str = "/sys/dev/char";

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
    /// The block device of this number. `None`: sysfs knows none, as with anonymous numbers of btrfs, overlayfs and tmpfs.
    pub fn of(number: Dev) -> Option<Disk> {
        Disk::listed(Path::new(BY_NUMBER), number)
    }

    /// The same where the directory `by_number` lists them.
    pub fn listed(by_number: &Path, number: Dev) -> Option<Disk> {
        let dir = fs::canonicalize(by_number.join(format!("{}:{}", major(number), minor(number)))).ok()?;
        let whole = if dir.join("partition").exists() { dir.parent()?.to_owned() } else { dir.clone() };
        Some(Disk { dir, whole })
    }

    /// The block device of the NVMe namespace whose character device has this number (`ng0n1`, Linux 5.13): they stand in one directory,
    /// the head's of a namespace with several paths too. `None`: the number is something else's. `Some(None)`: the kernel has no block
    /// device of that namespace for others to use.
    pub fn of_character(number: Dev) -> Option<Option<Disk>> {
        Disk::beside(Path::new(CHARACTERS), number)
    }

    fn beside(by_number: &Path, number: Dev) -> Option<Option<Disk>> {
        let dir = fs::canonicalize(by_number.join(format!("{}:{}", major(number), minor(number)))).ok()?;
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

    /// An attribute of the whole disk, without white space around it: `nuse`, `device/address`.
    pub fn attribute(&self, name: &str) -> Option<String> {
        attribute(&self.whole, name).filter(|text| !text.is_empty())
    }

    /// The driver of the device that it belongs to: `nvme`, `virtio_blk`.
    pub fn driver(&self) -> Option<String> {
        driver_of(&self.whole)
    }

    /// Its directory in sysfs.
    pub fn path(&self) -> &Path {
        &self.dir
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
        self.queue_text(name)?.parse().ok()
    }

    /// A text of the disk's queue.
    pub fn queue_text(&self, name: &str) -> Option<String> {
        attribute(&self.whole, &format!("queue/{name}"))
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

    /// What stands on this device: device-mapper targets, RAID sets, caches.
    pub fn holders(&self) -> Vec<Disk> {
        let of = |dir: PathBuf| fs::canonicalize(dir).ok();
        let mut found: Vec<PathBuf> = children(&self.dir.join("holders")).into_iter().filter_map(of).collect();
        found.sort();
        found.into_iter().map(|dir| Disk { whole: dir.clone(), dir }).collect()
    }

    /// What this device stands on, in the order of their names: the disks of device-mapper targets and RAID sets.
    pub fn slaves(&self) -> Vec<Disk> {
        let mut found: Vec<PathBuf> =
            children(&self.whole.join("slaves")).into_iter().filter_map(|dir| fs::canonicalize(dir).ok()).collect();
        found.sort();
        let whole = |dir: &PathBuf| if dir.join("partition").exists() { dir.parent().map(Path::to_owned) } else { Some(dir.clone()) };
        found.into_iter().filter_map(|dir| Some(Disk { whole: whole(&dir)?, dir })).collect()
    }

    /// The device's number.
    pub fn number(&self) -> Option<Dev> {
        let text = attribute(&self.dir, "dev")?;
        let (major, minor) = text.split_once(':')?;
        Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    }

    /// The name that device-mapper gave it: `vg-home`, `luks-…`.
    pub fn mapper_name(&self) -> Option<String> {
        attribute(&self.whole, "dm/name")
    }

    /// The file that a loop device stands on.
    pub fn backing_file(&self) -> Option<PathBuf> {
        attribute(&self.whole, "loop/backing_file").map(PathBuf::from)
    }

    /// Who made it, and what it is. Where each driver says so differs: NVMe and SCSI below `device`, virtio beside it.
    pub fn identity(&self) -> Identity {
        let said = |name: &str| attribute(&self.whole, name).filter(|text| !text.is_empty());
        // PCI and virtio identifiers (`0x1af4`) are no maker's name.
        let vendor = said("device/vendor").filter(|text| !text.starts_with("0x"));
        let model = said("device/model").map(|model| vendor.map_or(model.clone(), |vendor| format!("{vendor} {model}")));
        let stands_on = || {
            let mapped = self.mapper_name().map(|name| format!("device-mapper {name}"));
            let looped = || self.backing_file().map(|file| format!("loop device over {}", file.display()));
            let raid = || said("md/level").map(|level| format!("md {level}"));
            let driver = || driver_of(&self.whole).map(|driver| format!("{driver} disk"));
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

fn driver_of(whole: &Path) -> Option<String> {
    fs::canonicalize(whole.join("device/driver")).ok().map(|dir| name_of(&dir))
}

fn name_of(dir: &Path) -> String {
    dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn children(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// The text of an attribute without the spaces around it, which NVMe pads its strings with.
fn attribute(dir: &Path, name: &str) -> Option<String> {
    let bytes = fs::read(dir.join(name)).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

#[cfg(test)]
mod tests;
