use std::fs;
use std::os::unix::fs::symlink;

use super::*;

/// A bus with one function at 01:00.0.
fn bus(class: &str, driver: Option<&str>, grouped: bool) -> (tempfile::TempDir, SysfsPci) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("devices/0000:01:00.0");
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("class"), class).unwrap();
    if let Some(driver) = driver {
        symlink(root.path().join(driver), path.join("driver")).unwrap();
    }
    if grouped {
        symlink(root.path().join("groups/12"), path.join("iommu_group")).unwrap();
    }
    let bus = SysfsPci::at(root.path());
    (root, bus)
}

fn find_error(class: &str, driver: Option<&str>, grouped: bool, bdf: &str) -> String {
    let (_root, bus) = bus(class, driver, grouped);
    find(&bus, bdf.parse().unwrap()).unwrap_err().to_string()
}

#[test]
fn errors_name_the_remedy() {
    let nothing = find_error("0x010802", None, true, "01:00.1");
    assert_eq!(nothing, "there is no such PCI function here; NVMe controllers are at 0000:01:00.0");
    let card = find_error("0x020000", Some("e1000e"), true, "01:00.0");
    assert_eq!(
        card,
        "it is not an NVMe controller: its class is 020000h instead of 010802h; this machine has no NVMe controller on PCI"
    );
    let bound = find_error("0x010802", Some("nvme"), true, "01:00.0");
    assert_eq!(
        bound,
        "it is bound to the driver `nvme`; `reap bind 0000:01:00.0` gives it to vfio-pci"
    );
    let free = find_error("0x010802", None, true, "01:00.0");
    assert_eq!(free, "it has no driver; `reap bind 0000:01:00.0` gives it to vfio-pci");
    assert!(find_error("0x010802", Some("nvme"), false, "01:00.0").contains("no IOMMU"));
}

#[test]
fn bound_functions_are_found() {
    let (_root, bus) = bus("0x010802\n", Some("vfio-pci"), true);
    let (function, group) = find(&bus, "01:00.0".parse().unwrap()).unwrap();
    assert_eq!((function.bdf.to_string().as_str(), group), ("0000:01:00.0", 12));
}

#[test]
fn open_errors_are_distinct() {
    let message = |errno| {
        group_open_error(
            io::Error::from_raw_os_error(errno),
            "01:00.0".parse().unwrap(),
            Path::new("/dev/vfio/12"),
            12,
        )
        .to_string()
    };
    assert!(
        message(libc::EACCES)
            .contains("may not open /dev/vfio/12; `reap bind 0000:01:00.0 --user NAME`")
    );
    assert!(message(libc::EBUSY).contains("another process"));
    assert!(message(libc::ENOENT).contains("cannot open /dev/vfio/12"));
}
