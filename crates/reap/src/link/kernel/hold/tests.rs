use proptest::prelude::*;

use super::*;

const MOUNTS: &[u8] = b"22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n\
42 22 0:38 /home /srv/a\\040b rw,relatime shared:2 master:3 - btrfs /dev/nvme1n1 rw,subvol=/home\n\
43 22 0:5 / /proc rw - proc proc rw\n\
broken line\n";

#[test]
fn mounts_are_read_with_their_optional_fields_and_escapes() {
    let mounts = parse_mounts(MOUNTS);
    assert_eq!(mounts.len(), 3);
    assert_eq!((mounts[0].number, &*mounts[0].filesystem), (makedev(259, 2), "ext4"));
    assert_eq!((&*mounts[1].at, &*mounts[1].source), (Path::new("/srv/a b"), Path::new("/dev/nvme1n1")));
}

#[test]
fn a_file_is_on_the_mount_of_its_number_or_else_of_its_path() {
    let mounts = parse_mounts(MOUNTS);
    let found = |number, path: &str| mount_of(&mounts, number, Path::new(path)).map(|mount| &*mount.filesystem);
    assert_eq!(found(makedev(259, 2), "/anything"), Some("ext4"));
    // A btrfs file has the number of its subvolume.
    assert_eq!(found(makedev(0, 77), "/srv/a b/disk"), Some("btrfs"));
    assert_eq!(found(makedev(0, 77), "/srv/a bc/disk"), Some("ext4"));
    assert_eq!(found(makedev(0, 77), "disk"), None);
}

#[test]
fn swaps_are_read_behind_their_heading() {
    let text = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/zram0                              partition\t1\t0\t-2\n/a\\011b file\t1\t0\t-3\n";
    assert_eq!(parse_swaps(text), [Path::new("/dev/zram0"), Path::new("/a\tb")]);
    assert!(parse_swaps(b"").is_empty());
}

#[test]
fn locks_are_told_by_kind_and_those_that_wait_are_not_held() {
    let file = FileId { device: makedev(0xfe, 0), inode: 1234 };
    let text = "1: FLOCK  ADVISORY  WRITE 711 fe:00:1234 0 EOF\n\
                1: -> FLOCK  ADVISORY  WRITE 712 fe:00:1234 0 EOF\n\
                2: OFDLCK ADVISORY  READ -1 fe:00:1234 100 101\n\
                3: POSIX  ADVISORY  WRITE 713 fe:00:12345 0 EOF\n\
                4: FLOCK  ADVISORY  WRITE 714 fe:01:1234 0 EOF\n\
                5: LEASE  ACTIVE    READ 715 fe:00:1234 0 EOF\n";
    let flock = Lock { kind: "FLOCK".into(), pid: Some("711".into()) };
    let ofd = Lock { kind: "OFDLCK".into(), pid: None };
    assert_eq!(parse_locks(text, file), [flock, ofd]);
}

#[test]
fn the_root_file_system_is_found_on_this_machine() {
    let mounts = mounts();
    assert!(mounts.iter().any(|mount| mount.at == Path::new("/")), "{mounts:?}");
}

proptest! {
    #[test]
    fn nothing_that_proc_may_say_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        parse_mounts(&bytes);
        parse_swaps(&bytes);
        parse_locks(&String::from_utf8_lossy(&bytes), FileId { device: 0, inode: 0 });
    }

    #[test]
    fn a_path_that_the_kernel_escapes_is_read_back(bytes in prop::collection::vec(1u8.., 0..50)) {
        // mangle_path() escapes these four.
        let escaped: Vec<u8> = bytes.iter().flat_map(|&b| match b {
            b' ' | b'\t' | b'\n' | b'\\' => format!("\\{b:03o}").into_bytes(),
            b => vec![b],
        }).collect();
        prop_assert_eq!(unescape(&escaped), PathBuf::from(OsString::from_vec(bytes)));
    }
}
