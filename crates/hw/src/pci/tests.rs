use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;

fn at(domain: u32, bus: u8, device: u8, function: u8) -> Bdf {
    Bdf { domain, bus, device, function }
}

#[test]
fn pci_addresses_are_parsed() {
    assert_eq!("0000:01:00.0".parse(), Ok(at(0, 1, 0, 0)));
    assert_eq!("c1:1f.7".parse(), Ok(at(0, 0xc1, 0x1f, 7)));
    assert_eq!("10000:e1:00.0".parse(), Ok(at(0x10000, 0xe1, 0, 0)), "behind VMD");
    assert_eq!("1:2.3".parse(), Ok(at(0, 1, 2, 3)));
}

#[test]
fn malformed_addresses_are_refused() {
    for text in [
        "",
        "01:00",
        "0000:01:00",
        "01:20.0",
        "01:00.8",
        "0000:01:00.0.0",
        "+1:00.0",
        "01:-1.0",
        "0:0:0:0.0",
        "zz:00.0",
        "01:00.00",
    ] {
        assert_eq!(text.parse::<Bdf>(), Err(BdfError(text.to_owned())));
    }
}

proptest! {
    #[test]
    fn addresses_round_trip(domain: u32, bus: u8, device in 0u8..32, function in 0u8..8) {
        let bdf = at(domain, bus, device, function);
        prop_assert_eq!(bdf.to_string().parse(), Ok(bdf));
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "[0-9a-fA-F:.+ -]{0,16}|.{0,12}") {
        if let Ok(bdf) = text.parse::<Bdf>() {
            prop_assert!(bdf.device < 32 && bdf.function < 8);
            prop_assert_eq!(bdf.to_string().parse(), Ok(bdf));
        }
    }
}

/// A sysfs copy with two controllers and a bridge in group 7, a controller without an IOMMU, and a
/// network card.
fn bus() -> (tempfile::TempDir, SysfsPci) {
    let root = tempfile::tempdir().unwrap();
    let group = root.path().join("groups/7/devices");
    fs::create_dir_all(&group).unwrap();
    for (bdf, class, driver, grouped) in [
        ("0000:00:01.0", "0x060400", Some("pcieport"), true),
        ("0000:02:00.0", "0x010802", None, true),
        ("0000:01:00.0", "0x010802", Some("nvme"), true),
        ("0000:03:00.0", "0x010802", Some("nvme"), false),
        ("0000:04:00.0", "0x020000", Some("virtio-pci"), false),
    ] {
        let path = root.path().join("devices").join(bdf);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("class"), format!("{class}\n")).unwrap();
        if let Some(driver) = driver {
            let to = root.path().join("drivers").join(driver);
            fs::create_dir_all(&to).unwrap();
            symlink(to, path.join("driver")).unwrap();
        }
        if grouped {
            symlink(root.path().join("groups/7"), path.join("iommu_group")).unwrap();
            symlink(&path, group.join(bdf)).unwrap();
        }
    }
    let bus = SysfsPci::at(root.path());
    (root, bus)
}

#[test]
fn functions_have_driver_and_group() {
    let (_root, bus) = bus();
    let one = bus.find(at(0, 1, 0, 0)).unwrap().unwrap();
    assert_eq!(
        (one.class, one.driver().as_deref(), one.iommu_group()),
        (CLASS_NVME, Some("nvme"), Some(7))
    );
    let members = one.group_members().unwrap();
    let named = |member: &Function| (member.bdf.to_string(), member.is_bridge());
    let wanted = [("0000:00:01.0", true), ("0000:01:00.0", false), ("0000:02:00.0", false)];
    assert_eq!(
        members.iter().map(named).collect::<Vec<_>>(),
        wanted.map(|(bdf, bridge)| (bdf.to_owned(), bridge))
    );
    let alone = bus.find(at(0, 3, 0, 0)).unwrap().unwrap();
    assert_eq!((alone.iommu_group(), alone.group_members().unwrap().len()), (None, 0));
    assert!(bus.find(at(0, 9, 0, 0)).unwrap().is_none());
}

#[test]
fn only_nvme_controllers_are_listed() {
    let (_root, bus) = bus();
    let found: Vec<_> =
        bus.controllers().unwrap().iter().map(|function| function.bdf.bus).collect();
    assert_eq!(found, [1, 2, 3]);
    assert!(SysfsPci::at(Path::new("/nowhere")).controllers().unwrap().is_empty());
}

#[test]
fn bad_class_codes_are_errors() {
    let (root, bus) = bus();
    fs::write(root.path().join("devices/0000:01:00.0/class"), "huh").unwrap();
    assert_eq!(bus.find(at(0, 1, 0, 0)).unwrap_err().kind(), io::ErrorKind::InvalidData);
}
