//! Write Uncorrectable through the controller.

use nvme::io::{MAX_BLOCKS, compare, verify, write_uncorrectable, write_zeroes};

use super::*;
use crate::Fetch;

fn spoil(lba: u64, blocks: u32) -> Sqe {
    write_uncorrectable(Nsid(1), Lba(lba), blocks)
}

#[test]
fn bad_write_uncorrectable_gets_status() {
    let (mut host, mut pair) = host(vec![mem(1 << 20, 512), mem(64 << 20, 4096)]);
    for (sqe, expected) in [
        (spoil(0, 2048), Status::SUCCESS),
        (spoil(0, 2049), Status::LBA_OUT_OF_RANGE),
        (spoil(u64::MAX, 1), Status::LBA_OUT_OF_RANGE),
        (spoil(0, MAX_BLOCKS), Status::INVALID_FIELD),
        // WUSL.
        (Sqe { nsid: 2, ..spoil(0, 1024) }, Status::SUCCESS),
        (Sqe { nsid: 2, ..spoil(0, 1025) }, Status::INVALID_FIELD),
        (Sqe { nsid: 3, ..spoil(0, 1) }, Status::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe { flags: 1, ..spoil(0, 1) }, Status::INVALID_FIELD),
    ] {
        assert_eq!(run(&mut host, &mut pair, sqe).kind(), expected, "{sqe:?}");
    }
    let config = Config { uncorrectable: false, ..Config::new(Profile::optane()) };
    let mut without = Host::new(config, vec![mem(1 << 20, 512)]).ready();
    let mut pair = without.pair(1, 16);
    assert_eq!(run(&mut without, &mut pair, spoil(0, 1)).kind(), Status::INVALID_OPCODE);
}

/// The blocks of `0..48` that cannot be read individually.
fn lost(host: &mut Host<TestPort>, pair: &mut Pair, page: u64) -> Vec<u64> {
    let mut fails = |lba: &u64| {
        let status = run(host, pair, read(*lba, 1, page, 512));
        assert!(
            [Status::SUCCESS, Status::UNRECOVERED_READ_ERROR].contains(&status.kind()),
            "{status}"
        );
        status != Status::SUCCESS
    };
    (0..48).filter(|lba| fails(lba)).collect()
}

/// On memory, on another medium, and on a shared one; with early and late data.
#[test]
fn uncorrectable_blocks_recover_when_written() {
    let other = || {
        NamespaceConfig::new(WriteCache::new(Mem::new(1 << 20, Budget::new(1 << 20)), 512, 3), 512)
            .unwrap()
    };
    let shared = || mem(1 << 20, 512).share();
    for (fetch, namespace) in [
        (Fetch::Late, mem(1 << 20, 512)),
        (Fetch::Early, mem(1 << 20, 512)),
        (Fetch::Late, other()),
        (Fetch::Late, shared()),
    ] {
        let mut host =
            Host::new(Config { fetch, ..Config::new(Profile::optane()) }, vec![namespace]).ready();
        let mut pair = host.pair(1, 16);
        let page = host.page(1);
        host.port.memory.write(page, &[7; 4096]).unwrap();
        for lba in (0..48).step_by(8) {
            assert_eq!(run(&mut host, &mut pair, write(lba, 8, page, 4096)), Status::SUCCESS);
        }
        for (lba, blocks) in [(10, 20), (12, 2), (29, 3), (40, 1)] {
            assert_eq!(run(&mut host, &mut pair, spoil(lba, blocks)), Status::SUCCESS);
        }
        let expected: Vec<u64> = (10..32).chain([40]).collect();
        assert_eq!(lost(&mut host, &mut pair, page), expected, "{fetch:?}");
        // A command fails if any of its blocks is unreadable; adjacent blocks are unchanged.
        let data = Dptr { prp1: page, prp2: 0 };
        for sqe in [
            read(3, 8, page, 4096),
            read(31, 8, page, 4096),
            verify(Nsid(1), Lba(39), 3),
            compare(Nsid(1), Lba(40), 1, data),
        ] {
            let status = run(&mut host, &mut pair, sqe);
            assert_eq!(
                (status.kind(), status.do_not_retry()),
                (Status::UNRECOVERED_READ_ERROR, true),
                "{sqe:?}"
            );
        }
        host.port.memory.write(page, &[0; 4096]).unwrap();
        assert_eq!(run(&mut host, &mut pair, read(32, 8, page, 4096)), Status::SUCCESS);
        assert_eq!(host.port.memory.bytes(page, 4096), [7; 4096], "{fetch:?}");
        // Write and Write Zeroes make their blocks readable again, and no others.
        assert_eq!(run(&mut host, &mut pair, write(14, 8, page, 4096)), Status::SUCCESS);
        assert_eq!(
            run(&mut host, &mut pair, write_zeroes(Nsid(1), Lba(40), 1, Flags::NONE)),
            Status::SUCCESS
        );
        let expected: Vec<u64> = (10..14).chain(22..32).collect();
        assert_eq!(lost(&mut host, &mut pair, page), expected, "{fetch:?}");
    }
}
