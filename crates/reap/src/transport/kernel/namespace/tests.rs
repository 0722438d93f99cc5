use nvme::identify::{ExtendedFormat, LbaFormat, VolatileCache};

use units::Op;

use super::*;

fn controller() -> Controller {
    let vwc = VolatileCache::new().with_present(true);
    Controller {
        vwc,
        oncs: Controller::ONCS_WRITE_ZEROES,
        mdts: 5,
        sqes: 0x66,
        cqes: 0x44,
        ..Controller::default()
    }
}

/// 1 GiB in blocks of 512 bytes.
fn namespace() -> NamespacePage {
    let mut namespace =
        NamespacePage { nsze: 1 << 21, ncap: 1 << 21, noiob: 256, ..NamespacePage::default() };
    namespace.lbaf[0] = LbaFormat::new().with_lbads(9);
    namespace
}

fn identify_data(
    controller: Controller,
    namespace: &NamespacePage,
    extended: Option<&NvmNamespace>,
) -> Result<IdentifyData, TargetFault> {
    IdentifyData::new(Nsid(1), (&controller, None), (namespace, extended))
}

/// A disk as sysfs has it, with these attributes of its queue.
fn disk(queue: &[(&str, &str)]) -> (tempfile::TempDir, Disk) {
    let root = tempfile::TempDir::new().unwrap();
    let dir = root.path().join("nvme0n1");
    std::fs::create_dir_all(dir.join("queue")).unwrap();
    queue
        .iter()
        .for_each(|(name, text)| std::fs::write(dir.join("queue").join(name), text).unwrap());
    let numbers = root.path().join("sys/dev/block");
    std::fs::create_dir_all(&numbers).unwrap();
    std::os::unix::fs::symlink(&dir, numbers.join("259:0")).unwrap();
    let disk = Disk::of(root.path(), rustix::fs::makedev(259, 0)).unwrap();
    (root, disk)
}

#[test]
fn command_size_respects_both_limits() {
    let most = |mdts: u8, queue: &[(&str, &str)]| {
        identify_data(Controller { mdts, ..controller() }, &namespace(), None)
            .unwrap()
            .max_bytes(&disk(queue).1)
    };
    assert_eq!(most(0, &[]), 1 << 20, "nobody says");
    assert_eq!(most(5, &[]), 128 << 10);
    assert_eq!(most(255, &[]), 1 << 20, "2^255 pages are no limit");
    // A buffer that begins within a page needs a segment more.
    assert_eq!(most(0, &[("max_segments", "128\n"), ("max_hw_sectors_kb", "512\n")]), 256 << 10);
    assert_eq!(most(0, &[("max_segments", "65\n"), ("max_hw_sectors_kb", "64\n")]), 64 << 10);
    assert_eq!(
        most(0, &[("max_segments", "0\n"), ("max_hw_sectors_kb", "0\n")]),
        512,
        "a block at least"
    );
}

#[test]
fn requests_split_at_device_blocks() {
    let (_dir, disk) = disk(&[]);
    let with = Controller {
        oncs: Controller::ONCS_WRITE_ZEROES | Controller::ONCS_DATASET_MANAGEMENT,
        ..controller()
    };
    let commands = NvmController { wzsl: 14, dmrsl: 4096, ..NvmController::default() };
    let identify =
        IdentifyData::new(Nsid(1), (&with, Some(&commands)), (&namespace(), None)).unwrap();
    let (same, larger) =
        (identify.splitter(9, &disk).unwrap(), identify.splitter(12, &disk).unwrap());
    assert_eq!(
        (same.block_size(), same.max_blocks(), larger.block_size(), larger.max_blocks()),
        (512, 256, 4096, 32)
    );
    assert_eq!(
        [same.max_optional_blocks(Op::WriteZeroes), same.max_optional_blocks(Op::Deallocate)],
        [Some(1 << 15), Some(4096)]
    );
    // NLB counts the namespace's blocks, and so does a range.
    assert_eq!(
        [larger.max_optional_blocks(Op::WriteZeroes), larger.max_optional_blocks(Op::Deallocate)],
        [Some(1 << 13), None]
    );
    // 256 blocks of 512 bytes are 32 of 4096: no part crosses a multiple of that.
    assert!(
        same.fits_one(128, 128)
            && !same.fits_one(129, 128)
            && larger.fits_one(16, 16)
            && !larger.fits_one(17, 16)
    );
    let odd = NamespacePage { noiob: 100, ..namespace() };
    let odd = IdentifyData::new(Nsid(1), (&with, None), (&odd, None))
        .unwrap()
        .splitter(12, &disk)
        .unwrap();
    assert!(odd.fits_one(17, 16), "no such boundary in larger blocks");
}

#[test]
fn unsupported_formats_are_refused() {
    let mut metadata = namespace();
    metadata.lbaf[0] = LbaFormat::new().with_lbads(12).with_ms(8);
    let why = identify_data(controller(), &metadata, None).err().unwrap();
    assert!(
        matches!(&why, TargetFault::Unusable(what) if what.contains("8 bytes of metadata")),
        "{why}"
    );
    let mut extended = NvmNamespace::default();
    extended.elbaf[0] = ExtendedFormat::new().with_sts(16);
    let why = identify_data(controller(), &namespace(), Some(&extended)).err().unwrap();
    assert!(
        why.to_string().starts_with(
            "it cannot be used: namespace 1 has LBA format 0 with a storage tag of 16 bits"
        ),
        "{why}"
    );
    assert!(matches!(
        identify_data(controller(), &NamespacePage::default(), None),
        Err(TargetFault::Unusable(_))
    ));
    let discovery = Controller { cntrltype: 2, ..controller() };
    assert!(
        matches!(identify_data(discovery, &namespace(), None), Err(TargetFault::Unusable(why)) if why.contains("its controller"))
    );
}
