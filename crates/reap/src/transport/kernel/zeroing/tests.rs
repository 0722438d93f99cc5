use super::super::command::{Answer, Command, Rest};
use super::super::target::DiskFacts;
use super::*;
use crate::request::ERRNO;
use hw::block::Identity;
use nvme::Status;

fn facts(kind: Kind, disk: Option<DiskFacts>) -> Facts {
    let identity = Identity::default();
    Facts { kind, bytes: 1 << 20, lba_bytes: 512, mem_align: 1, direct: true, read_only: false, disk, identity }
}

pub(in crate::transport::kernel) fn file(filesystem: &str) -> Ways {
    Ways::new("/a/file", &facts(Kind::File { filesystem: filesystem.into() }, None), true)
}

fn block(write_zeroes: bool, discard: bool, discards: bool) -> Ways {
    let disk = DiskFacts {
        name: "vda".into(),
        rotational: false,
        max_transfer: None,
        poll_queues: false,
        volatile_cache: true,
        write_zeroes,
        discard,
    };
    Ways::new("/dev/vda", &facts(Kind::Block { partition: false, disk: "vda".into() }, Some(disk)), discards)
}

const ZEROES: Op = Op::WriteZeroes;

#[test]
fn punch_hole_needs_file_system_support() {
    let ext4 = file("ext4");
    assert_eq!(ext4.choose(ZEROES, false), (Way::Punch, Some(Way::Zero)));
    assert_eq!(ext4.choose(ZEROES, true), (Way::Zero, Some(Way::Punch)));
    assert_eq!(ext4.choose(Op::Deallocate, false), (Way::Punch, None), "files are not discarded");
    let vfat = file("vfat");
    assert!(!vfat.any(ZEROES) && !vfat.any(Op::Deallocate));
    assert!(WITHOUT_HOLES.is_sorted());
}

#[test]
fn discard_follows_queue_limits() {
    // Write Zeroes, discard, and a kernel that discards by entries; then how zeroes come about, and how room is given back.
    for (has, zeroes, back) in [
        ((true, true, true), (Way::Punch, Some(Way::Zero)), Some((Way::Discard, Some(Way::Punch)))),
        ((true, true, false), (Way::Punch, Some(Way::Zero)), Some((Way::Punch, None))),
        ((true, false, true), (Way::Punch, Some(Way::Zero)), Some((Way::Punch, None))),
        ((false, true, true), (Way::Zero, None), Some((Way::Discard, None))),
        ((false, true, false), (Way::Zero, None), None),
        ((false, false, true), (Way::Zero, None), None),
    ] {
        let ways = block(has.0, has.1, has.2);
        assert_eq!(ways.choose(ZEROES, false), zeroes, "{has:?}");
        assert_eq!(ways.choose(ZEROES, true).0, Way::Zero);
        assert_eq!(ways.any(Op::Deallocate).then(|| ways.choose(Op::Deallocate, false)), back, "{has:?}");
    }
}

fn command(ways: &Ways, op: Op, fua: bool) -> Command {
    let (way, other) = ways.choose(op, false);
    Command { op, fua, rest: Rest::Range { bytes: 4096, way, other }, open: true, ..Command::NONE }
}

#[test]
fn refused_methods_fall_back_once() {
    let ways = file("some new one");
    let mut first = command(&ways, ZEROES, false);
    assert!(matches!(first.answered(-95, &ways), Answer::Reconnect));
    assert!(matches!(first.rest, Rest::Range { bytes: 4096, way: Way::Zero, other: None }));
    assert!(matches!(first.answered(0, &ways), Answer::Over(Status::SUCCESS, 0)));
    assert_eq!(ways.choose(ZEROES, false), (Way::Zero, None));
    assert!(!ways.any(Op::Deallocate) && ways.any(ZEROES));
    let mut last = command(&ways, ZEROES, true);
    assert!(matches!(last.answered(-95, &ways), Answer::Over(ERRNO, 95)));
    assert!(!ways.any(ZEROES));
    // And is still an answer for those who have not noticed.
    assert!(matches!(command(&ways, Op::Deallocate, false).answered(-95, &ways), Answer::Over(ERRNO, 95)));
}

#[test]
fn fua_is_a_following_sync() {
    let ways = file("ext4");
    let mut zeroes = command(&ways, ZEROES, true);
    assert!(matches!(zeroes.answered(-4, &ways), Answer::Reconnect), "interrupted");
    assert!(matches!(zeroes.rest, Rest::Range { way: Way::Punch, .. }));
    assert!(matches!(zeroes.answered(0, &ways), Answer::Reconnect));
    assert!(matches!(zeroes.rest, Rest::Sync));
    assert!(matches!(zeroes.answered(-4, &ways), Answer::Reconnect), "interrupted");
    let mut failed = zeroes;
    assert!(matches!(failed.answered(-5, &ways), Answer::Over(ERRNO, 5)));
    assert!(matches!(zeroes.answered(0, &ways), Answer::Over(Status::SUCCESS, 0)));
    let mut full = command(&ways, ZEROES, true);
    assert!(matches!(full.answered(-28, &ways), Answer::Over(ERRNO, 28)), "what was not zeroed is not synced");
    let mut given_back = command(&ways, Op::Deallocate, true);
    assert!(matches!(given_back.answered(0, &ways), Answer::Over(Status::SUCCESS, 0)), "only writes have it");
}
