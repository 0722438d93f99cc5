//! Compare and Verify at the controller.

use nvme::io::{MAX_BLOCKS, compare, verify};

use super::*;
use crate::Fetch;
use crate::media::MediaError;

/// A medium of which one block cannot be read.
#[derive(Debug)]
struct Scratched(u64);

impl Media for Scratched {
    fn bytes(&self) -> u64 {
        1 << 20
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        let end = at + into.len() as u64;
        into.fill(3);
        let bad = (at..end).contains(&self.0);
        if bad { Err(MediaError::Io { what: crate::Access::Read, at, source: std::io::Error::other("scratched") }) } else { Ok(()) }
    }

    fn write_at(&mut self, _: u64, _: &[u8], _: bool) -> Result<(), MediaError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), MediaError> {
        Ok(())
    }
}

/// What it is, and whether it would be the same again; whether there is more in the error log is another matter.
fn told(status: Status) -> (Status, bool) {
    (status.kind(), status.do_not_retry())
}

const FAILED: (Status, bool) = (Status::COMPARE_FAILURE, true);

#[test]
fn a_compare_says_whether_blocks_hold_the_hosts_data() {
    const BYTES: usize = 144 << 10;
    for fetch in [Fetch::Late, Fetch::Early] {
        let config = Config { fetch, ..Config::new(Profile::optane()) };
        let mut host = Host::new(config, vec![mem(1 << 20, 512)]).ready();
        let mut pair = host.pair(1, 16);
        let page = host.page(BYTES as u64 / 4096);
        let data: Vec<u8> = (0..BYTES).map(|n| (n % 251) as u8).collect();
        let dptr = pointer(&mut host, page, BYTES as u64);
        let blocks = BYTES as u32 / 512;
        host.port.memory.write(page, &data).unwrap();
        let same = compare(Nsid(1), Lba(4), blocks, dptr);
        assert_eq!(told(run(&mut host, &mut pair, same)), FAILED, "{fetch:?}: nothing is written yet");
        assert_eq!(run(&mut host, &mut pair, nvme::io::write(Nsid(1), Lba(4), blocks, dptr, Flags::NONE)), Status::SUCCESS);
        assert_eq!(run(&mut host, &mut pair, same), Status::SUCCESS);
        for at in [0, 511, 65_535, 65_536, BYTES - 1] {
            host.port.memory.write(page + at as u64, &[!data[at]]).unwrap();
            assert_eq!(told(run(&mut host, &mut pair, same)), FAILED, "{fetch:?}, byte {at}");
            host.port.memory.write(page + at as u64, &data[at..=at]).unwrap();
        }
        assert_eq!(told(run(&mut host, &mut pair, compare(Nsid(1), Lba(5), blocks, dptr))), FAILED);
        assert_eq!(run(&mut host, &mut pair, same), Status::SUCCESS, "{fetch:?}: nothing has changed");
    }
}

#[test]
fn they_are_refused_for_the_reason_that_the_specification_names() {
    let (mut host, mut pair) = host(vec![mem(1 << 20, 512), mem(64 << 20, 4096)]);
    let page = host.page(1);
    let compared = |lba, blocks| compare(Nsid(1), Lba(lba), blocks, Dptr { prp1: page, prp2: 0 });
    for (sqe, expected) in [
        (compared(0, 8), Status::SUCCESS),
        (compared(2048, 1), Status::LBA_OUT_OF_RANGE),
        (Sqe { nsid: 2, ..compared(0, 257) }, Status::INVALID_FIELD),
        (Sqe { prp1: 0xdead_0000, ..compared(0, 1) }, Status::DATA_TRANSFER_ERROR),
        (Sqe { nsid: 3, ..compared(0, 1) }, Status::INVALID_NAMESPACE_OR_FORMAT),
        (verify(Nsid(1), Lba(0), 2048), Status::SUCCESS),
        (verify(Nsid(1), Lba(0), 2049), Status::LBA_OUT_OF_RANGE),
        (verify(Nsid(1), Lba(u64::MAX), 1), Status::LBA_OUT_OF_RANGE),
        (verify(Nsid(1), Lba(0), MAX_BLOCKS), Status::INVALID_FIELD),
        (verify(Nsid(2), Lba(0), 1024), Status::SUCCESS),
        (verify(Nsid(2), Lba(0), 1025), Status::INVALID_FIELD),
        (Sqe { flags: 1, ..verify(Nsid(1), Lba(0), 1) }, Status::INVALID_FIELD),
        (Sqe { cdw12: 1 << 29, ..verify(Nsid(1), Lba(0), 1) }, Status::INVALID_PROTECTION_INFORMATION),
    ] {
        assert_eq!(run(&mut host, &mut pair, sqe).kind(), expected, "{sqe:?}");
    }
    let config = Config { compare: false, verify: false, ..Config::new(Profile::optane()) };
    let mut host = Host::new(config, vec![mem(1 << 20, 512)]).ready();
    let mut pair = host.pair(1, 16);
    for sqe in [compared(0, 1), verify(Nsid(1), Lba(0), 1)] {
        assert_eq!(told(run(&mut host, &mut pair, sqe)), (Status::INVALID_OPCODE, true));
    }
}

#[test]
fn what_cannot_be_read_fails_both_and_nothing_beside_it() {
    let (mut host, mut pair) = host(vec![Namespace::new(Scratched(600 << 10), 4096).unwrap()]);
    let page = host.page(1);
    host.port.memory.write(page, &[3; 4096]).unwrap();
    let same = |lba| compare(Nsid(1), Lba(lba), 1, Dptr { prp1: page, prp2: 0 });
    for (sqe, expected) in [
        (same(149), Status::SUCCESS),
        (same(150), Status::UNRECOVERED_READ_ERROR),
        (verify(Nsid(1), Lba(0), 150), Status::SUCCESS),
        (verify(Nsid(1), Lba(0), 151), Status::UNRECOVERED_READ_ERROR),
        (verify(Nsid(1), Lba(151), 100), Status::SUCCESS),
    ] {
        assert_eq!(run(&mut host, &mut pair, sqe).kind(), expected, "{sqe:?}");
    }
}
