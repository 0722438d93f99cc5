//! Write Zeroes and Dataset Management through the controller.

use nvme::io::{MAX_BLOCKS, Range, deallocate, write_zeroes};

use super::*;
use crate::{Change, Loss};

/// Deallocates these ranges, whose list is in a page of its own.
fn deallocate_at(host: &mut Host<TestPort>, ranges: &[(u64, u32)]) -> Sqe {
    let page = host.page(1);
    let list: Vec<u8> =
        ranges.iter().flat_map(|&(lba, blocks)| Range::new(Lba(lba), blocks).to_bytes()).collect();
    host.port.memory.write(page, &list).unwrap();
    deallocate(Nsid(1), ranges.len() as u32, Dptr { prp1: page, prp2: 0 })
}

#[test]
fn bad_dataless_commands_get_their_status() {
    let (mut host, mut pair) = host(vec![mem(1 << 20, 512), mem(64 << 20, 4096)]);
    let zeroes = |lba, blocks| write_zeroes(Nsid(1), Lba(lba), blocks, Flags::NONE);
    let good = deallocate_at(&mut host, &[(0, 1), (2047, 1), (9999, 0)]);
    let beyond = deallocate_at(&mut host, &[(0, 1), (2047, 2)]);
    let far = deallocate_at(&mut host, &[(u64::MAX, u32::MAX >> 11)]);
    let long = deallocate_at(&mut host, &[(0, (1 << 21) + 1)]);
    let much = deallocate_at(&mut host, &[(0, 1 << 21); 5]);
    for (sqe, expected) in [
        (zeroes(0, 1), Status::SUCCESS),
        (zeroes(0, 2048), Status::SUCCESS),
        (zeroes(0, 2049), Status::LBA_OUT_OF_RANGE),
        (zeroes(2048, 1), Status::LBA_OUT_OF_RANGE),
        (zeroes(u64::MAX, 1), Status::LBA_OUT_OF_RANGE),
        (zeroes(0, MAX_BLOCKS), Status::INVALID_FIELD),
        (Sqe { nsid: 2, ..zeroes(0, 1024) }, Status::SUCCESS),
        (Sqe { nsid: 2, ..zeroes(0, 1025) }, Status::INVALID_FIELD),
        (Sqe { nsid: 3, ..zeroes(0, 1) }, Status::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe { nsid: u32::MAX, ..zeroes(0, 1) }, Status::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe { flags: 1, ..zeroes(0, 1) }, Status::INVALID_FIELD),
        (Sqe { cdw12: 1 << 29, ..zeroes(0, 1) }, Status::INVALID_PROTECTION_INFORMATION),
        (good, Status::SUCCESS),
        (beyond, Status::LBA_OUT_OF_RANGE),
        (far, Status::LBA_OUT_OF_RANGE),
        (long, Status::COMMAND_SIZE_LIMIT_EXCEEDED),
        (much, Status::COMMAND_SIZE_LIMIT_EXCEEDED),
        (Sqe { cdw10: 255, ..good }, Status::COMMAND_SIZE_LIMIT_EXCEEDED),
        (Sqe { nsid: 3, ..good }, Status::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe { flags: 0x40, ..good }, Status::INVALID_FIELD),
        (Sqe { prp1: good.prp1 + 2, ..good }, Status::PRP_OFFSET_INVALID),
        (Sqe { prp1: 0xdead_0000, ..good }, Status::DATA_TRANSFER_ERROR),
    ] {
        let status = run(&mut host, &mut pair, sqe);
        assert_eq!(status.kind(), expected, "{sqe:?}");
        assert_eq!(status.do_not_retry(), expected != Status::SUCCESS);
    }
}

#[test]
fn unsupported_dataless_opcodes_are_invalid() {
    for (write_zeroes_there, dataset_management) in [(false, true), (true, false)] {
        let config = Config {
            write_zeroes: write_zeroes_there,
            dataset_management,
            ..Config::new(Profile::optane())
        };
        let mut host = Host::new(config, vec![mem(1 << 20, 512)]).ready();
        let mut pair = host.pair(1, 16);
        let list = deallocate_at(&mut host, &[(0, 1)]);
        let statuses = [write_zeroes(Nsid(1), Lba(0), 1, Flags::NONE), list]
            .map(|sqe| run(&mut host, &mut pair, sqe).kind());
        assert_eq!(
            statuses.map(|status| status == Status::INVALID_OPCODE),
            [!write_zeroes_there, !dataset_management]
        );
    }
}

/// If one range is invalid none is deallocated; without Deallocate nothing changes.
#[test]
fn ranges_deallocate_all_or_none() {
    let (mut host, mut pair) = host(vec![mem(1 << 20, 4096)]);
    let page = host.page(1);
    host.port.memory.write(page, &[7; 4096]).unwrap();
    for lba in 0..4 {
        assert_eq!(run(&mut host, &mut pair, write(lba, 1, page, 4096)), Status::SUCCESS);
    }
    let held = |host: &mut Host<TestPort>, pair: &mut Pair| {
        [0, 1, 2, 3].map(|lba| {
            let into = host.page(1);
            assert_eq!(run(host, pair, read(lba, 1, into, 4096)), Status::SUCCESS);
            host.port.memory.bytes(into, 4096)[4095]
        })
    };
    let wrong = deallocate_at(&mut host, &[(0, 2), (255, 2)]);
    assert_eq!(run(&mut host, &mut pair, wrong).kind(), Status::LBA_OUT_OF_RANGE);
    let right = deallocate_at(&mut host, &[(3, 1), (1, 1)]);
    assert_eq!(run(&mut host, &mut pair, Sqe { cdw11: 0b11, ..right }), Status::SUCCESS);
    assert_eq!(held(&mut host, &mut pair), [7; 4]);
    assert_eq!(run(&mut host, &mut pair, right), Status::SUCCESS);
    assert_eq!(held(&mut host, &mut pair), [7, 0, 7, 0]);
}

#[test]
fn refused_zeroing_is_write_fault() {
    let refuse = Arc::new(Mutex::new(Some(MediaOperation::Write)));
    let (mut host, mut pair) =
        host(vec![NamespaceConfig::new(Refusing(refuse.clone()), 512).unwrap()]);
    let list = deallocate_at(&mut host, &[(0, 8)]);
    for sqe in [write_zeroes(Nsid(1), Lba(0), 8, Flags::NONE), list] {
        assert_eq!(run(&mut host, &mut pair, sqe).kind(), Status::WRITE_FAULT);
    }
    *refuse.lock().unwrap() = Some(MediaOperation::Flush);
    assert_eq!(run(&mut host, &mut pair, list), Status::SUCCESS);
}

#[test]
fn zeroes_are_as_durable_as_writes() {
    let cache =
        Arc::new(Mutex::new(WriteCache::new(Mem::new(1 << 16, Budget::new(1 << 20)), 512, 99)));
    let (mut host, mut pair) = host(vec![NamespaceConfig::new(cache.clone(), 512).unwrap()]);
    let dirty = || cache.lock().unwrap().dirty_blocks();
    let list = deallocate_at(&mut host, &[(8, 4), (40, 1)]);
    for (sqe, expected) in [
        (write_zeroes(Nsid(1), Lba(0), 4, Flags::NONE), 4),
        (write_zeroes(Nsid(1), Lba(0), 2, Flags::FUA), 2),
        (list, 7),
        (nvme::io::flush(Nsid(1)), 0),
    ] {
        assert_eq!(run(&mut host, &mut pair, sqe), Status::SUCCESS);
        assert_eq!(dirty(), expected, "{sqe:?}");
    }
}

/// A command in service when the path is lost is executed, like a write.
#[test]
fn lost_controller_finishes_dataless_commands() {
    let cache =
        Arc::new(Mutex::new(WriteCache::new(Mem::new(1 << 16, Budget::new(1 << 20)), 512, 99)));
    let (mut host, mut pair) = host(vec![NamespaceConfig::new(cache.clone(), 512).unwrap()]);
    cache.lock().unwrap().write_at(0, &[7; 1 << 16], false).unwrap();
    let list = deallocate_at(&mut host, &[(8, 4), (40, 1)]);
    for sqe in [write_zeroes(Nsid(1), Lba(0), 4, Flags::NONE), list] {
        let cid = host.cid();
        host.post(&mut pair, sqe, cid);
    }
    let now = host.now;
    host.device.change(now, Change::Hold(None));
    host.ring(&pair);
    host.run_until(now + Nanos::from_millis(1));
    host.device.change(host.now, Change::Lost(Loss::Frozen));
    host.run_until(host.now + Nanos::from_millis(1));
    // The host reuses the memory.
    host.port.memory.write(list.prp1, &[0xff; 4096]).unwrap();
    let read = |block: u64| {
        let mut byte = [1];
        cache.lock().unwrap().read_at(block * 512, &mut byte).unwrap();
        byte[0]
    };
    assert_eq!([0, 8, 40].map(read), [7; 3], "they are held");
    host.device.change(host.now, Change::Release);
    host.run_until(host.now + Nanos::from_millis(1));
    assert_eq!([0, 3, 4, 8, 11, 12, 40, 41].map(read), [0, 0, 7, 0, 0, 7, 0, 7]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    /// Blocks equal a reference vector after random writes, zeroing and deallocation.
    #[test]
    fn blocks_match_the_model(seed in any::<u64>(), block in prop::sample::select(vec![512u32, 4096]), plain in any::<bool>()) {
        const BYTES: u64 = 1 << 20;
        let mem = Mem::new(BYTES, Budget::new(2 << 20));
        let namespace = if plain { NamespaceConfig::mem(mem, block) } else { NamespaceConfig::new(WriteCache::new(mem, block, 20), block) };
        let (mut host, mut pair) = host(vec![namespace.unwrap()]);
        let (mut model, mut roll) = (vec![0u8; BYTES as usize], random_below(seed));
        let blocks = BYTES / u64::from(block);
        let bytes_of = |lba: u64, count: u64| (lba * u64::from(block)) as usize..((lba + count) * u64::from(block)) as usize;
        let page = host.page(1);
        for n in 1..80u8 {
            let mut range = || {
                let count = 1 + roll(blocks / 2);
                (roll(blocks - count + 1), count)
            };
            let (lba, count) = range();
            let sqe = match n % 4 {
                0 => {
                    let ranges: Vec<_> = (0..3).map(|_| range()).collect();
                    ranges.iter().for_each(|&(lba, count)| model[bytes_of(lba, count)].fill(0));
                    let list: Vec<_> = ranges.iter().map(|&(lba, count)| (lba, count as u32)).collect();
                    deallocate_at(&mut host, &list)
                }
                1 => {
                    model[bytes_of(lba, count)].fill(0);
                    let flags = if roll(2) == 0 { Flags::DEALLOCATE } else { Flags::NONE };
                    write_zeroes(Nsid(1), Lba(lba), count as u32, flags)
                }
                _ => {
                    host.port.memory.write(page, &[n; 4096]).unwrap();
                    let count = 4096 / u64::from(block);
                    let lba = roll(blocks - count + 1);
                    model[bytes_of(lba, count)].fill(n);
                    write(lba, count as u32, page, 4096)
                }
            };
            prop_assert_eq!(run(&mut host, &mut pair, sqe), Status::SUCCESS);
        }
        let into = host.page(256);
        let dptr = pointer(&mut host, into, BYTES);
        let all = nvme::io::read(Nsid(1), Lba(0), blocks as u32, dptr, Flags::NONE);
        prop_assert_eq!(run(&mut host, &mut pair, all), Status::SUCCESS);
        prop_assert!(host.port.memory.bytes(into, BYTES as usize) == model);
    }
}
