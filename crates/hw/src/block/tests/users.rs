use proptest::prelude::*;

use super::super::*;

const MOUNTS: &[u8] = b"22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n\
42 22 0:38 /home /srv/a\\040b rw,relatime shared:2 master:3 - btrfs /dev/nvme1n1 rw,subvol=/home\n\
43 22 0:5 / /proc rw - proc proc rw\n\
broken line\n";

/// Parses this text as a file below `/proc`.
fn with_proc_file<T>(file: &str, text: &[u8], read: impl Fn(&Path) -> T) -> T {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    read(root.path())
}

fn parse_mounts(text: &[u8]) -> Vec<Mount> {
    with_proc_file("proc/self/mountinfo", text, mounts)
}

fn parse_swaps(text: &[u8]) -> Vec<PathBuf> {
    with_proc_file("proc/swaps", text, swaps)
}

#[test]
fn mountinfo_is_parsed() {
    let mounts = parse_mounts(MOUNTS);
    assert_eq!(mounts.len(), 3);
    assert_eq!((mounts[0].number, &*mounts[0].filesystem), (makedev(259, 2), "ext4"));
    assert_eq!(
        (&*mounts[1].at, &*mounts[1].source),
        (Path::new("/srv/a b"), Path::new("/dev/nvme1n1"))
    );
}

#[test]
fn files_find_their_mount() {
    let mounts = parse_mounts(MOUNTS);
    let found = |number, path: &str| {
        mount_of(&mounts, number, Path::new(path)).map(|mount| &*mount.filesystem)
    };
    assert_eq!(found(makedev(259, 2), "/anything"), Some("ext4"));
    // A btrfs file has the number of its subvolume.
    assert_eq!(found(makedev(0, 77), "/srv/a b/disk"), Some("btrfs"));
    assert_eq!(found(makedev(0, 77), "/srv/a bc/disk"), Some("ext4"));
    assert_eq!(found(makedev(0, 77), "disk"), None);
}

#[test]
fn swap_header_is_skipped() {
    let text = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/zram0                              partition\t1\t0\t-2\n/a\\011b file\t1\t0\t-3\n";
    assert_eq!(parse_swaps(text), [Path::new("/dev/zram0"), Path::new("/a\tb")]);
    assert!(parse_swaps(b"").is_empty());
}

#[test]
fn own_mounts_are_parsed() {
    // In a chroot none of the mounts may be `/`, and there may be none.
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    assert_eq!(parse_mounts(&text).len(), text.iter().filter(|&&byte| byte == b'\n').count());
}

/// A tree with a disk whose partition is mounted through a device-mapper volume, and a disk used as
/// swap.
#[test]
fn users_include_those_of_holders() {
    let root = tempfile::tempdir().unwrap();
    let file = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let link = |to: &str, path: &str| {
        fs::create_dir_all(root.path().join(path).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(root.path().join(to), root.path().join(path)).unwrap();
    };
    for (disk, number) in
        [("sdx10", "199:7"), ("sdx2", "199:8"), ("dm-9", "199:9"), ("hid", "199:10")]
    {
        file(&format!("devices/{disk}/dev"), number);
        link(&format!("devices/{disk}"), &format!("sys/block/{disk}"));
    }
    file("devices/hid/hidden", "1\n");
    file("devices/sdx2/sdx2p1/dev", "199:11");
    file("devices/sdx2/sdx2p1/partition", "1\n");
    file("devices/dm-9/dm/name", "vg-home\n");
    link("devices/dm-9", "devices/sdx2/sdx2p1/holders/dm-9");
    file("proc/self/mountinfo", "50 1 199:9 / /srv rw - xfs /dev/mapper/vg-home rw\n");
    file("proc/swaps", "Filename Type Size Used Priority\n/dev/sdx10 partition 1 0 -2\n");
    let (users, disks) = (Users::at(root.path()), Disk::all(root.path()));
    assert_eq!(disks.iter().map(Disk::name).collect::<Vec<_>>(), ["dm-9", "sdx2", "sdx10"]);
    assert_eq!(users.of(&disks[2]), ["used as swap"]);
    assert!(users.of(&disks[1]).is_empty(), "its partition is another device");
    let partition = &disks[1].family()[1];
    assert_eq!(
        users.of(partition),
        ["held by dm-9 (vg-home)", "dm-9 (vg-home): mounted on /srv (xfs)"]
    );
    assert_eq!(
        users.holders(&disks[1]),
        ["sdx2p1: held by dm-9 (vg-home)", "sdx2p1: dm-9 (vg-home): mounted on /srv (xfs)"]
    );
}

#[test]
fn open_files_name_their_process() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_owned();
    assert_eq!(
        openers(std::slice::from_ref(&path)),
        BTreeSet::from([(path, "this process".to_owned())])
    );
}

proptest! {
    #[test]
    fn any_proc_text_is_parsed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        parse_mounts(&bytes);
        parse_swaps(&bytes);
    }

    #[test]
    fn escaped_paths_are_read_back(bytes in prop::collection::vec(1u8.., 0..50)) {
        // mangle_path() escapes these four.
        let escaped: Vec<u8> = bytes.iter().flat_map(|&b| match b {
            b' ' | b'\t' | b'\n' | b'\\' => format!("\\{b:03o}").into_bytes(),
            b => vec![b],
        }).collect();
        prop_assert_eq!(unescape(&escaped), PathBuf::from(OsString::from_vec(bytes)));
    }
}
