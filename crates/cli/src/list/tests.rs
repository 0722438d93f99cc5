use std::os::unix::fs::symlink;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// A system of files.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Tree {
        Tree(tempfile::tempdir().unwrap())
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, to: &str, path: &str) {
        let (to, path) = (self.0.path().join(to), self.0.path().join(path));
        fs::create_dir_all(&to).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
    }

    fn function(&self, bdf: &str, driver: Option<&str>, group: Option<u32>) -> String {
        let at = format!("sys/devices/pci0000:00/{bdf}");
        for (name, text) in
            [("class", "0x010802\n"), ("vendor", "0x1b36\n"), ("device", "0x0010\n")]
        {
            self.file(&format!("{at}/{name}"), text);
        }
        self.link(&at, &format!("sys/bus/pci/devices/{bdf}"));
        if let Some(driver) = driver {
            self.link(&format!("sys/bus/pci/drivers/{driver}"), &format!("{at}/driver"));
        }
        if let Some(group) = group {
            self.link(&format!("sys/kernel/iommu_groups/{group}"), &format!("{at}/iommu_group"));
        }
        at
    }

    fn controller(&self, name: &str, serial: &str, function: &str) -> String {
        let at = format!("{function}/nvme/{name}");
        for (attribute, text) in [
            ("serial", serial),
            ("model", "QEMU NVMe Ctrl                          "),
            ("firmware_rev", "10.0"),
            ("transport", "pcie"),
            ("state", "live"),
        ] {
            self.file(&format!("{at}/{attribute}"), &format!("{text}\n"));
        }
        self.link(function, &format!("{at}/device"));
        self.link(&at, &format!("sys/class/nvme/{name}"));
        at
    }

    fn disk(&self, at: &str, number: &str, sectors: u64) {
        let name = at.rsplit('/').next().unwrap();
        self.file(&format!("{at}/dev"), number);
        self.file(&format!("{at}/size"), &sectors.to_string());
        self.file(&format!("{at}/queue/logical_block_size"), "4096\n");
        self.link(at, &format!("sys/block/{name}"));
    }

    fn look(&self, open: &[(&str, &str)]) -> DeviceList {
        let open: BTreeSet<_> = open
            .iter()
            .map(|(file, process)| (PathBuf::from(file), (*process).to_owned()))
            .collect();
        DeviceList::read(self.0.path(), &|_| open.clone()).unwrap()
    }
}

fn json(found: &DeviceList) -> Value {
    serde_json::to_value(found).unwrap()
}

/// A drive of the kernel's with a partition, one of vfio-pci's, one without a driver, and a virtual
/// disk.
fn machine() -> Tree {
    let tree = Tree::new();
    let function = tree.function("0000:00:04.0", Some("nvme"), Some(3));
    tree.function("0000:00:05.0", Some("vfio-pci"), Some(4));
    tree.function("0000:00:06.0", None, None);
    let controller = tree.controller("nvme0", "LAB0\u{1b}[2J", &function);
    let disk = format!("{controller}/nvme0n1");
    tree.disk(&disk, "259:0", 524_288);
    tree.file(&format!("{disk}/nsid"), "1\n");
    tree.file(&format!("{disk}/queue/io_poll"), "1\n");
    tree.link(&controller, &format!("{disk}/device"));
    tree.file(&format!("{disk}/nvme0n1p1/dev"), "259:1");
    tree.file(&format!("{disk}/nvme0n1p1/partition"), "1");
    tree.file(&format!("{disk}/nvme0n1p1/size"), "2048");
    tree.file("sys/class/nvme-generic/ng0n1/dev", "240:0");
    tree.disk("sys/devices/virtual/block/loop0", "7:0", 0);
    tree.disk("sys/devices/virtio1/block/vda", "254:0", 2048);
    tree.file("sys/devices/virtio1/block/vda/ro", "1\n");
    tree.file("proc/self/mountinfo", "50 1 259:1 / /srv rw - xfs /dev/nvme0n1p1 rw\n");
    tree
}

#[test]
fn controllers_are_listed_under_any_driver() {
    let found = machine().look(&[("/dev/vfio/4", "process 7 (reap)")]);
    let shown: Vec<_> = found
        .controllers
        .iter()
        .map(|c| {
            (
                c.controller.as_deref(),
                c.address.as_str(),
                c.driver.as_deref(),
                c.iommu_group,
                c.users.join(""),
            )
        })
        .collect();
    let wanted = [
        (Some("nvme0"), "0000:00:04.0", Some("nvme"), Some(3), String::new()),
        (None, "0000:00:05.0", Some("vfio-pci"), Some(4), "open in process 7 (reap)".to_owned()),
        (None, "0000:00:06.0", None, None, String::new()),
    ];
    assert_eq!(shown, wanted);
    assert_eq!(
        (found.controllers[1].pci_id.as_deref(), found.controllers[0].state.as_deref()),
        (Some("1b36:0010"), Some("live"))
    );
    assert_eq!(
        found.controllers[0].serial_number.as_deref(),
        Some("LAB0?[2J"),
        "what a terminal obeys is not passed on"
    );
}

#[test]
fn block_devices_list_users() {
    let found = machine().look(&[("/dev/vda", "process 9 (dd)")]);
    let wanted = serde_json::json!({
        "DevicePath": "/dev/nvme0n1", "NameSpace": 1, "GenericPath": "/dev/ng0n1", "Controllers": ["nvme0"], "ModelNumber": "QEMU NVMe Ctrl",
        "SerialNumber": "LAB0?[2J", "Firmware": "10.0", "PhysicalSize": 268_435_456, "SectorSize": 4096, "Driver": "nvme",
        "ReadOnly": false, "Polls": true, "Users": ["nvme0n1p1: mounted on /srv (xfs)"],
    });
    assert_eq!(json(&found)["BlockDevices"][0], wanted);
    let [_, vda] = &found.block_devices[..] else { panic!("{found:?}") };
    assert_eq!(
        (vda.device_path.as_str(), vda.nsid, vda.physical_size, vda.read_only),
        ("/dev/vda", None, 1 << 20, true)
    );
    assert_eq!(vda.users, ["open in process 9 (dd)"]);
}

#[test]
fn table_columns_fit_their_cells() {
    let found =
        machine().look(&[("/dev/vda", "process 9 (dd)"), ("/dev/vfio/4", "process 7 (reap)")]);
    let wanted = "\
Device Address      Driver   Group Model          Serial   Namespaces
------ ------------ -------- ----- -------------- -------- ------------------------
nvme0  0000:00:04.0 nvme     3     QEMU NVMe Ctrl LAB0?[2J nvme0n1
-      0000:00:05.0 vfio-pci 4     PCI 1b36:0010           open in process 7 (reap)
-      0000:00:06.0 none     none  PCI 1b36:0010

Block devices, usable as kernel:NODE:
Node         Generic    Size      Block Polls Model                Users
------------ ---------- --------- ----- ----- -------------------- --------------------------------
/dev/nvme0n1 /dev/ng0n1 268.44 MB 4 KiB yes   QEMU NVMe Ctrl       nvme0n1p1: mounted on /srv (xfs)
/dev/vda                1.05 MB   4 KiB no    disk vda (read-only) open in process 9 (dd)
";
    assert_eq!(text(&found), wanted);
}

/// Two controllers lead to the head; each path is hidden.
#[test]
fn multipath_namespace_is_listed_once() {
    let tree = Tree::new();
    for (n, bdf) in ["0000:00:04.0", "0000:00:05.0"].iter().enumerate() {
        let function = tree.function(bdf, Some("nvme"), None);
        let controller = tree.controller(&format!("nvme{}", n + 3), "S", &function);
        let path = format!("{controller}/nvme0c{}n1", n + 3);
        tree.disk(&path, "", 8);
        tree.file(&format!("{path}/hidden"), "1\n");
    }
    let head = "sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1";
    tree.disk(head, "259:0", 8);
    tree.file(&format!("{head}/nsid"), "1\n");
    tree.file("sys/devices/virtual/nvme-subsystem/nvme-subsys0/model", "M\n");
    tree.link("sys/devices/virtual/nvme-subsystem/nvme-subsys0", &format!("{head}/device"));
    let found = tree.look(&[]);
    assert_eq!(found.block_devices.len(), 1);
    assert_eq!(
        (found.block_devices[0].controllers.clone(), found.block_devices[0].model_number.as_str()),
        (vec!["nvme3".to_owned(), "nvme4".to_owned()], "M")
    );
}

#[test]
fn network_controller_lists_its_address() {
    let tree = Tree::new();
    tree.file("sys/class/nvme/nvme9/transport", "tcp\n");
    tree.file("sys/class/nvme/nvme9/address", "traddr=127.0.0.1,trsvcid=4420\n");
    let found = tree.look(&[]);
    assert_eq!(
        (found.controllers[0].transport.as_str(), found.controllers[0].address.as_str()),
        ("tcp", "traddr=127.0.0.1,trsvcid=4420")
    );
    assert_eq!(found.controllers[0].driver, None);
}

#[test]
fn a_system_without_anything_has_nothing() {
    let found = json(&Tree::new().look(&[]));
    assert_eq!(found, serde_json::json!({ "Controllers": [], "BlockDevices": [] }));
    let text = text(&Tree::new().look(&[]));
    assert!(text.contains("No NVMe controllers") && text.contains("No block devices"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_attribute_makes_printable_text(texts in prop::collection::vec("\\PC{0,12}|[0-9:x]{0,6}|.{0,3}\u{1b}", 7)) {
        let tree = machine();
        let disk = "sys/devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1";
        let names = ["nsid", "size", "queue/logical_block_size", "dev", "../model", "../serial", "../address"];
        for (name, text) in names.iter().zip(&texts) {
            tree.file(&format!("{disk}/{name}"), text);
        }
        let found = tree.look(&[]);
        let shown = serde_json::to_string(&found).unwrap();
        prop_assert!(!shown.contains("\\u00"), "{}", shown);
        _ = text(&found);
    }
}
