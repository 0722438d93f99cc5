use super::*;

fn made(paths: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    paths.iter().for_each(|path| fs::create_dir_all(root.path().join(path)).unwrap());
    root
}

fn found(root: &tempfile::TempDir) -> Vec<String> {
    disks(&root.path().join("function"), &root.path().join("subsystems")).unwrap()
}

#[test]
fn namespaces_without_multipath() {
    let root = made(&[
        "function/nvme/nvme1/nvme1n1",
        "function/nvme/nvme1/nvme1n2",
        "function/nvme/nvme1/ng1n1",
        "function/nvme/nvme1/power",
    ]);
    assert_eq!(found(&root), ["nvme1n1", "nvme1n2"]);
}

#[test]
fn with_multipath_they_are_the_subsystems() {
    // Controllers 3 and 4 lead to the namespaces of subsystem 0; controller 5 is another's.
    let root = made(&[
        "function/nvme/nvme3/nvme0c3n1",
        "function/nvme/nvme3/ng0n1",
        "subsystems/nvme-subsys0/nvme3",
        "subsystems/nvme-subsys0/nvme4",
        "subsystems/nvme-subsys0/nvme0n1",
        "subsystems/nvme-subsys0/nvme0n7",
        "subsystems/nvme-subsys0/ng0n1",
        "subsystems/nvme-subsys5/nvme5",
        "subsystems/nvme-subsys5/nvme5n1",
    ]);
    assert_eq!(found(&root), ["nvme0n1", "nvme0n7"]);
}

#[test]
fn other_driver_has_no_namespaces() {
    assert!(found(&made(&["function/net/eth0"])).is_empty());
}

#[test]
fn failed_chown_releases_the_drive() {
    let root = made(&["devices/0000:01:00.0", "drivers/vfio-pci"]);
    let at = root.path().join("devices/0000:01:00.0");
    fs::write(at.join("class"), "0x010802").unwrap();
    // No kernel acts on the files, so the drive is on vfio-pci from the start.
    std::os::unix::fs::symlink(root.path().join("drivers/vfio-pci"), at.join("driver")).unwrap();
    let bus = SysfsPci::at(root.path());
    let function = controller(&bus, "0000:01:00.0".parse().unwrap()).unwrap();
    let text = |path: &str| fs::read_to_string(root.path().join(path)).ok();
    let driver_override = || text("devices/0000:01:00.0/driver_override");

    bind_to_vfio(&bus, &function, None, || Ok(())).unwrap();
    assert_eq!(driver_override().as_deref(), Some("vfio-pci\n"));
    assert_eq!(text("drivers/vfio-pci/unbind"), None);

    let error = bind_to_vfio(&bus, &function, None, || bail!("cannot give it")).unwrap_err();
    assert!(format!("{error:#}").contains("cannot give it"), "{error:#}");
    assert_eq!(driver_override().as_deref(), Some("\n"));
    assert_eq!(text("drivers/vfio-pci/unbind").as_deref(), Some("0000:01:00.0"));
}
