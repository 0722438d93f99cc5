use driver::Splitter;
use hw::DmaPool;
use hw::uring::{FileSlot, Span};
use nvme::Nsid;

use super::*;
use crate::request::ERRNO;

const FILE: FileSlot = FileSlot(0);
const OPS: [Op; 8] = Op::ALL;

fn through(block_log2: u8) -> Passthrough {
    Passthrough { nsid: Nsid(3), block_log2, splitter: Splitter::default(), read_only: false }
}

#[test]
fn passthrough_matches_embedded_commands() {
    let pool = DmaPool::new(1 << 20).unwrap();
    let lent = pool.alloc(8192).unwrap().lend();
    let of = |op, fua| RingCommand {
        op,
        fua,
        offset: 3 << 32,
        remaining: Remaining::Data(Span::of(&lent, 0..8192)),
        ..RingCommand::NONE
    };
    for log2 in [9, 12] {
        let (through, lba, blocks) = (through(log2), Lba(3 << 32 >> log2), 8192 >> log2);
        assert_eq!(
            through.sqe(&of(Op::Read, false)),
            io::read(Nsid(3), lba, blocks, Dptr::NONE, Flags::NONE)
        );
        assert_eq!(
            through.sqe(&of(Op::Read, true)),
            io::read(Nsid(3), lba, blocks, Dptr::NONE, Flags::FUA)
        );
        assert_eq!(
            through.sqe(&of(Op::Write, false)),
            io::write(Nsid(3), lba, blocks, Dptr::NONE, Flags::NONE)
        );
        assert_eq!(
            through.sqe(&of(Op::Write, true)),
            io::write(Nsid(3), lba, blocks, Dptr::NONE, Flags::FUA)
        );
        let zeroes = |method, fua| {
            let remaining = Remaining::Range { bytes: 8192, method, fallback: None };
            through.sqe(&RingCommand {
                op: Op::WriteZeroes,
                fua,
                offset: 3 << 32,
                remaining,
                ..RingCommand::NONE
            })
        };
        assert_eq!(
            zeroes(ZeroMethod::Zero, true),
            io::write_zeroes(Nsid(3), lba, blocks, Flags::FUA)
        );
        assert_eq!(
            zeroes(ZeroMethod::Punch, false),
            io::write_zeroes(Nsid(3), lba, blocks, Flags::DEALLOCATE)
        );
        for ranges in [1, 8] {
            let list = Remaining::Data(Span::of(&lent, 0..16 * ranges as usize));
            let deallocate = RingCommand { remaining: list, ..of(Op::Deallocate, false) };
            assert_eq!(through.sqe(&deallocate), io::deallocate(Nsid(3), ranges, Dptr::NONE));
        }
        assert_eq!(
            through.sqe(&of(Op::Compare, false)),
            io::compare(Nsid(3), lba, blocks, Dptr::NONE)
        );
        let verify =
            RingCommand { remaining: Remaining::Check { bytes: 8192 }, ..of(Op::Verify, false) };
        assert_eq!(through.sqe(&verify), io::verify(Nsid(3), lba, blocks));
        let spoil = RingCommand { op: Op::WriteUncorrectable, ..verify };
        assert_eq!(through.sqe(&spoil), io::write_uncorrectable(Nsid(3), lba, blocks));
    }
    assert_eq!(through(9).sqe(&RingCommand::NONE), io::flush(Nsid(3)));
    drop(lent.take_back());
}

/// Root's descriptor that is open for reading would pass writes on.
#[test]
fn read_only_devices_pass_no_writes() {
    let pool = DmaPool::new(1 << 20).unwrap();
    let lent = pool.alloc(4096).unwrap().lend();
    let of = |op| {
        let remaining = match op {
            Op::Flush => Remaining::Sync,
            Op::Verify | Op::WriteUncorrectable => Remaining::Check { bytes: 4096 },
            Op::WriteZeroes => {
                Remaining::Range { bytes: 4096, method: ZeroMethod::Zero, fallback: None }
            }
            _ => Remaining::Data(Span::of(&lent, 0..4096)),
        };
        RingCommand { op, remaining, ..RingCommand::NONE }
    };
    let (writable, read_only) = (through(9), Passthrough { read_only: true, ..through(9) });
    assert!(OPS.into_iter().all(|op| writable.entry(&of(op), FILE).is_some()));
    let passed: Vec<_> =
        OPS.into_iter().filter(|op| read_only.entry(&of(*op), FILE).is_some()).collect();
    assert_eq!(passed, [Op::Read, Op::Flush, Op::Compare, Op::Verify]);
    drop(lent.take_back());
}

#[test]
fn answers_are_status_errno_or_pending() {
    let open = RingCommand { op: Op::Write, ..RingCommand::NONE };
    let over = |result, command: &RingCommand| match update(command, result) {
        Progress::Done(status, result) => Some((status, result)),
        Progress::Resubmit => None,
    };
    assert_eq!(over(0, &open), Some((Status::SUCCESS, 0)));
    let status = Status::LBA_OUT_OF_RANGE.with_dnr();
    assert_eq!(over(i32::from(status.0), &open), Some((status, 0)));
    assert_eq!(over(-13, &open), Some((ERRNO, 13)));
    // EINTR (a reset took it back) and EAGAIN (no memory now) are submitted again, unless
    // cancelled.
    assert_eq!([over(-4, &open), over(-11, &open)], [None, None]);
    assert_eq!(over(-4, &RingCommand { cancelled: true, ..open }), Some((ERRNO, 4)));
}
