use proptest::prelude::*;
use rustix::fs::makedev;

use super::*;

#[test]
fn waiting_locks_are_not_held() {
    let file = FileId { device: makedev(0xfe, 0), inode: 1234 };
    let text = "1: FLOCK  ADVISORY  WRITE 711 fe:00:1234 0 EOF\n\
                1: -> FLOCK  ADVISORY  WRITE 712 fe:00:1234 0 EOF\n\
                2: OFDLCK ADVISORY  READ -1 fe:00:1234 100 101\n\
                3: POSIX  ADVISORY  WRITE 713 fe:00:12345 0 EOF\n\
                4: FLOCK  ADVISORY  WRITE 714 fe:01:1234 0 EOF\n\
                5: LEASE  ACTIVE    READ 715 fe:00:1234 0 EOF\n";
    let flock = LockRecord { kind: "FLOCK".into(), pid: Some("711".into()) };
    let ofd = LockRecord { kind: "OFDLCK".into(), pid: None };
    assert_eq!(parse_locks(text, file), [flock, ofd]);
}

#[test]
fn file_size_limit_is_checked_first() {
    let refused = within(4097, Some(4096)).unwrap_err();
    assert!(
        matches!(&refused, TargetFault::NoSpace(why) if why.contains("4097 bytes") && why.contains("ulimit")),
        "{refused}"
    );
    assert!(within(4096, Some(4096)).is_ok() && within(u64::MAX, None).is_ok());
}

proptest! {
    #[test]
    fn proc_locks_never_panic(text in ".{0,200}") {
        parse_locks(&text, FileId { device: 0, inode: 0 });
    }
}
