use super::super::command::{Progress, Remaining, RingCommand};
use super::super::target::DiskFacts;
use super::*;
use crate::request::ERRNO;
use hw::block::Identity;
use nvme::Status;

fn facts(kind: TargetKind, disk: Option<DiskFacts>) -> TargetFacts {
    let identity = Identity::default();
    TargetFacts {
        kind,
        bytes: 1 << 20,
        lba_bytes: 512,
        mem_align: 1,
        direct: true,
        read_only: false,
        disk,
        identity,
    }
}

pub(in crate::transport::kernel) fn file(filesystem: &str) -> ZeroMethods {
    ZeroMethods::new(
        "/a/file",
        &facts(TargetKind::File { filesystem: filesystem.into() }, None),
        true,
    )
}

fn block(write_zeroes: bool, discard: bool, discards: bool) -> ZeroMethods {
    let disk = DiskFacts {
        name: "vda".into(),
        rotational: false,
        max_transfer: None,
        poll_queues: false,
        volatile_cache: true,
        write_zeroes,
        discard,
    };
    ZeroMethods::new(
        "/dev/vda",
        &facts(TargetKind::Block { partition: false, disk: "vda".into() }, Some(disk)),
        discards,
    )
}

const ZEROES: Op = Op::WriteZeroes;

#[test]
fn punch_hole_needs_file_system_support() {
    let ext4 = file("ext4");
    assert_eq!(ext4.choose(ZEROES, false), (ZeroMethod::Punch, Some(ZeroMethod::Zero)));
    assert_eq!(ext4.choose(ZEROES, true), (ZeroMethod::Zero, Some(ZeroMethod::Punch)));
    assert_eq!(
        ext4.choose(Op::Deallocate, false),
        (ZeroMethod::Punch, None),
        "files are not discarded"
    );
    let vfat = file("vfat");
    assert!(!vfat.any(ZEROES) && !vfat.any(Op::Deallocate));
    assert!(WITHOUT_HOLES.is_sorted());
}

#[test]
fn discard_follows_queue_limits() {
    // Write Zeroes, discard, and a kernel that discards by entries; then how zeroes come about, and
    // how room is given back.
    for (has, zeroes, back) in [
        (
            (true, true, true),
            (ZeroMethod::Punch, Some(ZeroMethod::Zero)),
            Some((ZeroMethod::Discard, Some(ZeroMethod::Punch))),
        ),
        (
            (true, true, false),
            (ZeroMethod::Punch, Some(ZeroMethod::Zero)),
            Some((ZeroMethod::Punch, None)),
        ),
        (
            (true, false, true),
            (ZeroMethod::Punch, Some(ZeroMethod::Zero)),
            Some((ZeroMethod::Punch, None)),
        ),
        ((false, true, true), (ZeroMethod::Zero, None), Some((ZeroMethod::Discard, None))),
        ((false, true, false), (ZeroMethod::Zero, None), None),
        ((false, false, true), (ZeroMethod::Zero, None), None),
    ] {
        let methods = block(has.0, has.1, has.2);
        assert_eq!(methods.choose(ZEROES, false), zeroes, "{has:?}");
        assert_eq!(methods.choose(ZEROES, true).0, ZeroMethod::Zero);
        assert_eq!(
            methods.any(Op::Deallocate).then(|| methods.choose(Op::Deallocate, false)),
            back,
            "{has:?}"
        );
    }
}

fn command(methods: &ZeroMethods, op: Op, fua: bool) -> RingCommand {
    let (method, fallback) = methods.choose(op, false);
    RingCommand {
        op,
        fua,
        remaining: Remaining::Range { bytes: 4096, method, fallback },
        open: true,
        ..RingCommand::NONE
    }
}

#[test]
fn refused_methods_fall_back_once() {
    let methods = file("some new one");
    let mut first = command(&methods, ZEROES, false);
    assert!(matches!(first.update(-95, &methods), Progress::Resubmit));
    assert!(matches!(
        first.remaining,
        Remaining::Range { bytes: 4096, method: ZeroMethod::Zero, fallback: None }
    ));
    assert!(matches!(first.update(0, &methods), Progress::Done(Status::SUCCESS, 0)));
    assert_eq!(methods.choose(ZEROES, false), (ZeroMethod::Zero, None));
    assert!(!methods.any(Op::Deallocate) && methods.any(ZEROES));
    let mut last = command(&methods, ZEROES, true);
    assert!(matches!(last.update(-95, &methods), Progress::Done(ERRNO, 95)));
    assert!(!methods.any(ZEROES));
    // And is still an answer for those who have not noticed.
    assert!(matches!(
        command(&methods, Op::Deallocate, false).update(-95, &methods),
        Progress::Done(ERRNO, 95)
    ));
}

#[test]
fn fua_is_a_following_sync() {
    let methods = file("ext4");
    let mut zeroes = command(&methods, ZEROES, true);
    assert!(matches!(zeroes.update(-4, &methods), Progress::Resubmit), "interrupted");
    assert!(matches!(zeroes.remaining, Remaining::Range { method: ZeroMethod::Punch, .. }));
    assert!(matches!(zeroes.update(0, &methods), Progress::Resubmit));
    assert!(matches!(zeroes.remaining, Remaining::Sync));
    assert!(matches!(zeroes.update(-4, &methods), Progress::Resubmit), "interrupted");
    let mut failed = zeroes;
    assert!(matches!(failed.update(-5, &methods), Progress::Done(ERRNO, 5)));
    assert!(matches!(zeroes.update(0, &methods), Progress::Done(Status::SUCCESS, 0)));
    let mut full = command(&methods, ZEROES, true);
    assert!(
        matches!(full.update(-28, &methods), Progress::Done(ERRNO, 28)),
        "what was not zeroed is not synced"
    );
    let mut given_back = command(&methods, Op::Deallocate, true);
    assert!(
        matches!(given_back.update(0, &methods), Progress::Done(Status::SUCCESS, 0)),
        "only writes have it"
    );
}
