use super::*;
use std::os::unix::fs::symlink;

/// A machine with a virtio disk of one queue, an NVMe controller with two interrupt queues and one
/// poll queue (and native multipath), a partition and a device-mapper device.
fn machine(root: &Path) -> Topology {
    let dir = |path: &str| fs::create_dir_all(root.join(path)).unwrap();
    for (irq, name) in [
        (9, "acpi"),
        (35, "virtio1-config"),
        (36, "virtio1-req.0"),
        (40, "nvme0q0"),
        (41, "nvme0q1"),
        (42, "nvme0q2"),
        (50, ""),
    ] {
        dir(&format!("sys/kernel/irq/{irq}"));
        fs::write(root.join(format!("sys/kernel/irq/{irq}/actions")), format!("{name}\n")).unwrap();
    }
    fs::write(root.join("sys/kernel/irq/36/per_cpu_count"), "3,4000000000,0\n").unwrap();
    let pci = "sys/devices/pci0";
    for path in [
        "virtio/msi_irqs/35",
        "virtio/msi_irqs/36",
        "virtio/virtio1/block/vda/mq/0",
        "virtio/virtio1/block/vda/vda1",
    ] {
        dir(&format!("{pci}/{path}"));
    }
    fs::write(root.join(format!("{pci}/virtio/virtio1/block/vda/vda1/partition")), "1").unwrap();
    for path in [
        "nvme/msi_irqs/40",
        "nvme/msi_irqs/41",
        "nvme/msi_irqs/42",
        "nvme/nvme/nvme0/nvme0c0n1/mq/0",
    ] {
        dir(&format!("{pci}/{path}"));
    }
    dir(&format!("{pci}/nvme/nvme/nvme0/nvme0c0n1/mq/1"));
    dir(&format!("{pci}/nvme/nvme/nvme0/nvme0c0n1/mq/2"));
    dir("sys/devices/virtual/block/dm-0");
    dir("sys/block");
    dir("sys/class/block");
    let link = |target: String, name: &str| symlink(root.join(target), root.join(name)).unwrap();
    link(format!("{pci}/virtio/virtio1/block/vda"), "sys/block/vda");
    link(format!("{pci}/virtio/virtio1"), &format!("{pci}/virtio/virtio1/block/vda/device"));
    link(format!("{pci}/virtio/virtio1/block/vda/vda1"), "sys/class/block/vda1");
    link(format!("{pci}/nvme/nvme/nvme0/nvme0c0n1"), "sys/block/nvme0c0n1");
    link(format!("{pci}/nvme/nvme/nvme0"), &format!("{pci}/nvme/nvme/nvme0/nvme0c0n1/device"));
    link("sys/devices/virtual/block/dm-0".into(), "sys/block/dm-0");
    link("sys/devices/virtual/block/dm-0".into(), "sys/class/block/dm-0");
    Topology::read(root)
}

#[test]
fn each_queue_finds_its_line() {
    let root = tempfile::tempdir().unwrap();
    let machine = machine(root.path());
    let expected = [("nvme0c0n1", 0, 41), ("nvme0c0n1", 1, 42), ("vda", 0, 36)];
    assert_eq!(
        machine.queue_lines(),
        expected.map(|(disk, queue, irq)| (disk.to_owned(), queue, irq))
    );
    assert_eq!(machine.line_name(36), "virtio1-req.0");
    assert_eq!(machine.line_name(50), "irq 50");
    assert!(machine.irq_table_len() > 50);
    assert_eq!((machine.interrupts(36), machine.interrupts(9)), (4_000_000_003, 0));
}

#[test]
fn devices_are_found_by_any_name() {
    let root = tempfile::tempdir().unwrap();
    let machine = machine(root.path());
    assert_eq!(machine.find_disk("/dev/vda").unwrap(), ["vda"]);
    assert_eq!(machine.find_disk("nvme0n1").unwrap(), ["nvme0c0n1"]);
    let message = |name: &str| machine.find_disk(name).unwrap_err().to_string();
    assert_eq!(
        message("vda1"),
        "`vda1` is a partition, and requests complete on whole devices: use `-d vda`"
    );
    assert!(message("dm-0").contains("passes its I/O on"));
    assert_eq!(message("vdz"), "no block device `vdz` on this machine: it has nvme0c0n1, vda");
    assert!(message("../../etc/passwd").starts_with("no block device"));
    assert!(message("").starts_with("no block device"));
    assert!(message("nvme0n2").starts_with("no block device"));
    assert!(message("nvme1n1").starts_with("no block device"));
}

#[test]
fn interrupt_lines_by_name_and_number() {
    let root = tempfile::tempdir().unwrap();
    let machine = machine(root.path());
    assert_eq!(machine.find_line("nvme0q2").unwrap(), 42);
    assert_eq!(machine.find_line("42").unwrap(), 42);
    let message = machine.find_line("nvme0q9").unwrap_err().to_string();
    assert_eq!(
        message,
        "no interrupt line `nvme0q9` on this machine: its block devices have nvme0q0, nvme0q1, nvme0q2, virtio1-config, virtio1-req.0"
    );
}

#[test]
fn missing_sysfs_is_empty() {
    let root = tempfile::tempdir().unwrap();
    let machine = Topology::read(root.path());
    assert!(
        machine.disks.is_empty() && machine.lines.is_empty() && machine.queue_lines().is_empty()
    );
    assert!(machine.find_disk("vda").unwrap_err().to_string().ends_with("it has none"));
}
