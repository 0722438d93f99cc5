//! Which CPUs complete a disk's I/O.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Disk;

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
        let mut lower = disk.slaves();
        lower.extend(disk.backing_file().and_then(|file| disk_of(root, &file)));
        if !lower.is_empty() {
            return lower.iter().find_map(|disk| Completing::below(root, disk, depth));
        }
        let (interrupts, queues) = (by_interrupt(root, disk), by_queue(disk));
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
        libc::S_IFCHR => Disk::of_character(meta.rdev())?,
        _ => Disk::listed(&root.join("sys/dev/block"), number),
    }
}

/// CPUs of the interrupts of the PCI function that the disk belongs to, but for those that no I/O causes.
fn by_interrupt(root: &Path, disk: &Disk) -> Vec<usize> {
    let Some(vectors) = disk.path().ancestors().map(|dir| dir.join("msi_irqs")).find(|dir| dir.is_dir()) else { return Vec::new() };
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
fn by_queue(disk: &Disk) -> Vec<usize> {
    let whole = disk.family().pop().filter(|_| disk.is_partition()).unwrap_or_else(|| disk.clone());
    let dir = whole.path().join("mq");
    let numbers: BTreeSet<u32> = names(&dir).iter().filter_map(|name| name.parse().ok()).collect();
    once(numbers.into_iter().filter_map(|number| fs::read_to_string(dir.join(number.to_string()).join("cpu_list")).ok()))
}

fn names(dir: &Path) -> Vec<String> {
    let name = |path: PathBuf| Some(path.file_name()?.to_str()?.to_owned());
    fs::read_dir(dir).into_iter().flatten().flatten().filter_map(|entry| name(entry.path())).collect()
}

/// The CPUs of lists such as `0-2,5` or `0, 1`, each once, in order.
fn once(lists: impl Iterator<Item = String>) -> Vec<usize> {
    let mut cpus = Vec::new();
    for list in lists {
        for part in list.split(',').map(str::trim) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else { continue };
            let new: Vec<usize> = (first..=last.min(rustix::thread::CpuSet::MAX_CPU)).filter(|cpu| !cpus.contains(cpu)).collect();
            cpus.extend(new);
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{major, minor};

    use super::*;

    /// A root where this test's own file system stands on `dir`, below the PCI function of a virtio disk with two interrupts.
    struct Tree {
        root: tempfile::TempDir,
        file: PathBuf,
    }

    const DISK: &str = "sys/devices/pci0/0000:00:02.0/virtio1/block/vda";

    impl Tree {
        fn new(dir: &str) -> Tree {
            let root = tempfile::tempdir().unwrap();
            let file = root.path().join("file");
            fs::write(&file, "").unwrap();
            let tree = Tree { root, file };
            tree.write(&format!("{dir}/size"), "8");
            let number = fs::metadata(&tree.file).unwrap().dev();
            tree.link(dir, &format!("sys/dev/block/{}:{}", major(number), minor(number)));
            tree.write(&format!("{DISK}/mq/0/cpu_list"), "0, 1");
            for (irq, name, cpu) in [("35", "virtio1-config", "0"), ("36", "virtio1-req.0", "1"), ("37", "virtio1-req.1", "3")] {
                tree.write(&format!("sys/devices/pci0/0000:00:02.0/msi_irqs/{irq}"), "msix");
                tree.write(&format!("proc/irq/{irq}/effective_affinity_list"), cpu);
                fs::create_dir_all(tree.root.path().join(format!("proc/irq/{irq}/{name}"))).unwrap();
            }
            tree
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn link(&self, to: &str, path: &str) {
            let path = self.root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(self.root.path().join(to), path).unwrap();
        }

        fn found(&self) -> Option<(String, Vec<usize>, bool)> {
            let found = Completing::of(self.root.path(), &self.file)?;
            Some((found.disk, found.cpus, found.by_interrupt))
        }
    }

    #[test]
    fn interrupts_of_io_come_first() {
        assert_eq!(Tree::new(DISK).found(), Some(("vda".into(), vec![1, 3], true)));
    }

    #[test]
    fn a_partition_and_a_mapping_stand_on_their_disk() {
        let part = format!("{DISK}/vda1");
        let tree = Tree::new(&part);
        tree.write(&format!("{part}/partition"), "1");
        assert_eq!(tree.found(), Some(("vda".into(), vec![1, 3], true)));
        let mapped = Tree::new("sys/devices/virtual/block/dm-0");
        mapped.write("sys/devices/virtual/block/dm-0/mq/0/cpu_list", "7");
        mapped.link(DISK, "sys/devices/virtual/block/dm-0/slaves/vda");
        assert_eq!(mapped.found(), Some(("vda".into(), vec![1, 3], true)));
    }

    #[test]
    fn without_interrupts_its_queues_are_taken() {
        let tree = Tree::new(DISK);
        fs::remove_dir_all(tree.root.path().join("proc")).unwrap();
        assert_eq!(tree.found(), Some(("vda".into(), vec![0, 1], false)));
        let part = format!("{DISK}/vda1");
        let tree = Tree::new(&part);
        tree.write(&format!("{part}/partition"), "1");
        fs::remove_dir_all(tree.root.path().join("proc")).unwrap();
        assert_eq!(tree.found(), Some(("vda".into(), vec![0, 1], false)));
    }

    #[test]
    fn what_is_not_known_is_none() {
        assert_eq!(Tree::new("sys/devices/virtual/block/zram0").found(), None);
        let nowhere = tempfile::tempdir().unwrap();
        assert_eq!(Completing::of(nowhere.path(), nowhere.path()), None);
        // A mapping of itself ends.
        let circle = Tree::new("sys/devices/virtual/block/dm-0");
        circle.link("sys/devices/virtual/block/dm-0", "sys/devices/virtual/block/dm-0/slaves/dm-0");
        assert_eq!(circle.found(), None);
    }

    #[test]
    fn admin_queues_complete_no_io() {
        for (name, io) in [("nvme0q0", false), ("nvme0q10", true), ("nvme10q1", true), ("virtio0-request", true), ("virtio0-event", false)]
        {
            assert_eq!(is_io(name), io, "{name}");
        }
        assert_eq!(once(["0-2,5".into(), "1, 7".into(), "x".into(), String::new()].into_iter()), [0, 1, 2, 5, 7]);
    }
}
