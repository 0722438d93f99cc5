use std::os::unix::fs::symlink;

use super::super::*;

/// A root in which the file system of this test is on the disk `dir`, below the PCI function of a
/// virtio disk with two interrupts.
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
        for (irq, name, cpu) in [
            ("35", "virtio1-config", "0"),
            ("36", "virtio1-req.0", "1"),
            ("37", "virtio1-req.1", "3"),
        ] {
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
        let found = CompletionCpus::of(self.root.path(), &self.file)?;
        Some((found.disk, found.cpus, found.by_interrupt))
    }
}

#[test]
fn io_interrupts_come_first() {
    assert_eq!(Tree::new(DISK).found(), Some(("vda".into(), vec![1, 3], true)));
}

#[test]
fn stacked_devices_find_their_disk() {
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
fn queues_replace_missing_interrupts() {
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
fn unknown_disks_are_none() {
    assert_eq!(Tree::new("sys/devices/virtual/block/zram0").found(), None);
    let nowhere = tempfile::tempdir().unwrap();
    assert_eq!(CompletionCpus::of(nowhere.path(), nowhere.path()), None);
    // A device-mapper target stacked on itself: the recursion ends.
    let circle = Tree::new("sys/devices/virtual/block/dm-0");
    circle.link("sys/devices/virtual/block/dm-0", "sys/devices/virtual/block/dm-0/slaves/dm-0");
    assert_eq!(circle.found(), None);
}

#[test]
fn admin_queues_complete_no_io() {
    for (name, io) in [
        ("nvme0q0", false),
        ("nvme0q10", true),
        ("nvme10q1", true),
        ("virtio0-request", true),
        ("virtio0-event", false),
    ] {
        assert_eq!(is_io(name), io, "{name}");
    }
    assert_eq!(
        unique_cpus(["0-2,5".into(), "1, 7".into(), "x".into(), String::new()].into_iter()),
        [0, 1, 2, 5, 7]
    );
}
