use super::super::found::Partition;
use super::*;

fn use_(users: &[&str]) -> Use {
    let users = users.iter().map(|user| (*user).to_owned()).collect();
    Use { driver: None, read_only: false, polls: true, users, partitions: Vec::new() }
}

fn a_namespace() -> Namespace {
    Namespace {
        nsid: 1,
        device_path: "/dev/nvme0n1".into(),
        generic_path: Some("/dev/ng0n1".into()),
        firmware: "10.0".into(),
        model_number: "QEMU NVMe Ctrl".into(),
        serial_number: "LAB0".into(),
        used_bytes: Some(268_435_456),
        blocks: 524_288,
        physical_size: 268_435_456,
        sector_size: 512,
        metadata: 0,
        controllers: vec!["nvme0".into()],
        use_: use_(&[]),
    }
}

/// Compared with nvme-cli's own by `tests/pcie.sh`.
#[test]
fn namespaces_stand_in_nvme_clis_table() {
    let found = Found { devices: vec![a_namespace()], controllers: Vec::new(), block_devices: Vec::new() };
    let text = text(&found);
    let line = text.lines().nth(2).unwrap();
    let wanted = format!(
        "{:21} {:21} {:20} {:40} {:9} {:26} {:16} 10.0",
        "/dev/nvme0n1", "/dev/ng0n1", "LAB0", "QEMU NVMe Ctrl", "1", "268.44  MB / 268.44  MB", "512   B +  0 B"
    );
    assert_eq!(line, wanted);
    assert!(text.contains("There is no NVMe controller here"), "{text}");
}

#[test]
fn users_stand_beside_what_they_use() {
    let users = ["open in process 9 (dd)", "vda1: mounted on / (ext4)"];
    let part = Partition { device_path: "/dev/vda1".into(), physical_size: 5_000_000, users: vec!["mounted on / (ext4)".into()] };
    let vda = Block {
        device_path: "/dev/vda".into(),
        model_number: "virtio_blk disk".into(),
        serial_number: None,
        physical_size: 1 << 40,
        sector_size: 4096,
        use_: Use { partitions: vec![part], ..use_(&users) },
    };
    let found = Found { devices: Vec::new(), controllers: Vec::new(), block_devices: vec![vda] };
    let text = text(&found);
    let lines: Vec<_> = text.lines().rev().take(2).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines, ["/dev/vda1 5.00 MB mounted on / (ext4)", "/dev/vda 1.10 TB 4 KiB yes virtio_blk disk open in process 9 (dd)"]);
}

#[test]
fn nothing_at_all_is_said() {
    let text = text(&Found { devices: Vec::new(), controllers: Vec::new(), block_devices: Vec::new() });
    assert!(text.contains("no NVMe controller") && text.contains("no block device"), "{text}");
}

#[test]
fn sizes_are_written_as_nvme_cli_writes_them() {
    assert_eq!([0, 999, 1000, 268_435_456, u64::MAX].map(si), ["  0.00   B", "999.00   B", "  1.00  kB", "268.44  MB", " 18.45  EB"]);
    assert_eq!([512, 4096, 6000, 1 << 20].map(binary), [(512, ""), (4, "Ki"), (6, "Ki"), (1, "Mi")]);
}
