//! Compare and Verify through the controller.

use nvme::io::{compare, verify};

use super::*;
use crate::Fetch;

/// A page filled with `byte`.
fn page_of(host: &mut Host<TestPort>, byte: u8) -> u64 {
    let page = host.page(1);
    host.port.memory.write(page, &[byte; 4096]).unwrap();
    page
}

#[test]
fn bad_checks_get_their_status() {
    let (mut host, mut pair) = host(vec![mem(1 << 20, 512), mem(8 << 20, 4096)]);
    let zeroes = page_of(&mut host, 0);
    for (good, has_data) in [
        (compare(Nsid(1), Lba(0), 1, Dptr { prp1: zeroes, prp2: 0 }), true),
        (verify(Nsid(1), Lba(0), 1), false),
    ] {
        for (sqe, expected) in [
            (good, Status::SUCCESS),
            (Sqe { cdw10: 2047, ..good }, Status::SUCCESS),
            (Sqe { cdw10: 2048, ..good }, Status::LBA_OUT_OF_RANGE),
            (Sqe { cdw10: 2047, cdw12: 1, ..good }, Status::LBA_OUT_OF_RANGE),
            (Sqe { cdw10: u32::MAX, cdw11: u32::MAX, ..good }, Status::LBA_OUT_OF_RANGE),
            // MDTS and VSL.
            (Sqe { nsid: 2, cdw12: 256, ..good }, Status::INVALID_FIELD),
            (Sqe { nsid: 3, ..good }, Status::INVALID_NAMESPACE_OR_FORMAT),
            (Sqe { flags: 1, ..good }, Status::INVALID_FIELD),
            (Sqe { cdw12: 1 << 29, ..good }, Status::INVALID_PROTECTION_INFORMATION),
            (
                Sqe { prp1: zeroes + 2, ..good },
                if has_data { Status::PRP_OFFSET_INVALID } else { Status::SUCCESS },
            ),
            (
                Sqe { prp1: 0xdead_0000, ..good },
                if has_data { Status::DATA_TRANSFER_ERROR } else { Status::SUCCESS },
            ),
        ] {
            let status = run(&mut host, &mut pair, sqe);
            assert_eq!(
                (status.kind(), status.do_not_retry()),
                (expected, expected != Status::SUCCESS),
                "{sqe:?}"
            );
        }
    }
}

#[test]
fn unsupported_check_opcodes_are_invalid() {
    let config = Config { checks: false, ..Config::new(Profile::optane()) };
    let mut host = Host::new(config, vec![mem(1 << 20, 512)]).ready();
    let mut pair = host.pair(1, 16);
    let data = Dptr { prp1: page_of(&mut host, 0), prp2: 0 };
    for sqe in [compare(Nsid(1), Lba(0), 1, data), verify(Nsid(1), Lba(0), 1)] {
        assert_eq!(run(&mut host, &mut pair, sqe).kind(), Status::INVALID_OPCODE);
    }
}

/// On memory and on another medium, with early and late data; the blocks are unchanged.
#[test]
fn compare_covers_every_bit() {
    let other = || {
        NamespaceConfig::new(WriteCache::new(Mem::new(1 << 20, Budget::new(1 << 20)), 512, 3), 512)
            .unwrap()
    };
    for (fetch, namespace) in [Fetch::Late, Fetch::Early]
        .into_iter()
        .flat_map(|fetch| [(fetch, mem(1 << 20, 512)), (fetch, other())])
    {
        let mut host =
            Host::new(Config { fetch, ..Config::new(Profile::optane()) }, vec![namespace]).ready();
        let mut pair = host.pair(1, 16);
        let page = page_of(&mut host, 7);
        assert_eq!(run(&mut host, &mut pair, write(8, 8, page, 4096)), Status::SUCCESS);
        let mut compared = |host: &mut Host<TestPort>, at: Option<u64>| {
            let data = page_of(host, 7);
            if let Some(at) = at {
                host.port.memory.write(data + at, &[6]).unwrap();
            }
            run(host, &mut pair, compare(Nsid(1), Lba(8), 8, Dptr { prp1: data, prp2: 0 })).kind()
        };
        let statuses = [None, Some(0), Some(4095), None].map(|at| compared(&mut host, at));
        assert_eq!(
            statuses,
            [Status::SUCCESS, Status::COMPARE_FAILURE, Status::COMPARE_FAILURE, Status::SUCCESS],
            "{fetch:?}"
        );
    }
}

#[test]
fn verify_finds_unreadable_blocks() {
    let refuse = Arc::new(Mutex::new(None));
    let (mut host, mut pair) =
        host(vec![NamespaceConfig::new(Refusing(refuse.clone()), 512).unwrap()]);
    let data = Dptr { prp1: page_of(&mut host, 0), prp2: 0 };
    let both = [compare(Nsid(1), Lba(0), 1, data), verify(Nsid(1), Lba(0), 8)];
    assert_eq!(run(&mut host, &mut pair, both[1]), Status::SUCCESS);
    *refuse.lock().unwrap() = Some(MediaOperation::Read);
    assert_eq!(
        both.map(|sqe| run(&mut host, &mut pair, sqe).kind()),
        [Status::UNRECOVERED_READ_ERROR; 2]
    );
}
