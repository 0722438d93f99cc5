use std::os::unix::fs::symlink;
use tempfile::TempDir;

use super::super::*;

/// A tree as sysfs has it: a partitioned NVMe disk, a device-mapper target on its first partition.
fn tree() -> TempDir {
    let root = TempDir::new().unwrap();
    let file = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    file("devices/nvme0/model", "Model X                 \n");
    file("devices/nvme0/serial", "S123    \n");
    file("devices/nvme0/firmware_rev", "1.0 \n");
    file("devices/nvme0/nvme0n1/dev", "259:0\n");
    file("devices/nvme0/nvme0n1/ro", "0\n");
    file("devices/nvme0/nvme0n1/queue/io_poll", "1\n");
    file("devices/nvme0/nvme0n1/queue/logical_block_size", "4096\n");
    file("devices/nvme0/nvme0n1/queue/write_cache", "write through\n");
    for (part, number) in [("nvme0n1p1", "1"), ("nvme0n1p2", "2")] {
        file(&format!("devices/nvme0/nvme0n1/{part}/dev"), &format!("259:{number}\n"));
        file(&format!("devices/nvme0/nvme0n1/{part}/partition"), number);
        file(&format!("devices/nvme0/nvme0n1/{part}/ro"), "1\n");
    }
    file("devices/dm-0/dev", "252:0\n");
    file("devices/dm-0/dm/name", "vg-home\n");
    let link = |to: &str, path: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(root.path().join(to), path).unwrap();
    };
    link("devices/nvme0", "devices/nvme0/nvme0n1/device");
    link("devices/nvme0/nvme0n1", "sys/dev/block/259:0");
    link("devices/nvme0/nvme0n1/nvme0n1p1", "sys/dev/block/259:1");
    link("devices/dm-0", "devices/nvme0/nvme0n1/nvme0n1p1/holders/dm-0");
    root
}

fn disk(root: &TempDir, minor: u32) -> Option<Disk> {
    Disk::of(root.path(), makedev(259, minor))
}

#[test]
fn partitions_share_their_disks_queue() {
    let root = tree();
    let (whole, part) = (disk(&root, 0).unwrap(), disk(&root, 1).unwrap());
    assert!(!whole.is_partition() && part.is_partition());
    assert_eq!((part.name(), part.whole_name()), ("nvme0n1p1".into(), "nvme0n1".into()));
    assert_eq!(
        (part.queue("io_poll"), part.queue("logical_block_size"), part.queue("no_such")),
        (Some(1), Some(4096), None)
    );
    assert_eq!(part.attribute("queue/write_cache").as_deref(), Some("write through"));
    let identity = Identity {
        model: Some("Model X".into()),
        serial: Some("S123".into()),
        firmware: Some("1.0".into()),
    };
    assert_eq!((part.identity(), whole.identity()), (identity.clone(), identity));
    assert!(part.read_only() && !whole.read_only());
    assert_eq!((part.number(), part.node()), (Some(makedev(259, 1)), "/dev/nvme0n1p1".into()));
    assert!(disk(&root, 9).is_none());
}

#[test]
fn families_leave_siblings_out() {
    let root = tree();
    let names = |disk: Disk| disk.family().iter().map(Disk::name).collect::<Vec<_>>();
    assert_eq!(names(disk(&root, 0).unwrap()), ["nvme0n1", "nvme0n1p1", "nvme0n1p2"]);
    assert_eq!(names(disk(&root, 1).unwrap()), ["nvme0n1p1", "nvme0n1"]);
}

#[test]
fn holders_are_found() {
    let root = tree();
    let holders = disk(&root, 1).unwrap().holders();
    assert_eq!(holders.iter().map(Disk::name).collect::<Vec<_>>(), ["dm-0"]);
    assert_eq!(holders[0].attribute("dm/name").as_deref(), Some("vg-home"));
    assert_eq!(holders[0].number(), Some(makedev(252, 0)));
    assert_eq!(holders[0].identity().model.as_deref(), Some("device-mapper vg-home"));
    assert!(disk(&root, 0).unwrap().holders().is_empty());
}

/// In sysfs the generic device is next to the disk, in the directory of the controller, or of the
/// subsystem for a multipath namespace.
#[test]
fn generic_devices_find_their_disk() {
    let root = tree();
    let character = |name: &str, number: u32, class: &str| {
        let dir = root.path().join("devices/nvme0").join(name);
        fs::create_dir_all(&dir).unwrap();
        fs::create_dir_all(root.path().join("class").join(class)).unwrap();
        fs::create_dir_all(root.path().join("sys/dev/char")).unwrap();
        symlink(root.path().join("class").join(class), dir.join("subsystem")).unwrap();
        symlink(&dir, root.path().join(format!("sys/dev/char/240:{number}"))).unwrap();
        Disk::of_character(root.path(), makedev(240, number))
            .map(|disk| disk.map(|disk| disk.name()))
    };
    assert_eq!(character("ng0n1", 0, "nvme-generic"), Some(Some("nvme0n1".into())));
    // A namespace that the kernel does not drive: a disk without a number.
    fs::create_dir_all(root.path().join("devices/nvme0/nvme0n2")).unwrap();
    assert_eq!(character("ng0n2", 1, "nvme-generic"), Some(None));
    assert_eq!(character("ng0n3", 2, "nvme-generic"), Some(None));
    assert_eq!(character("nvme0", 3, "nvme"), None);
    assert_eq!(character("ngx", 4, "input"), None);
    assert!(Disk::of_character(root.path(), makedev(240, 5)).is_none());
}
