use driver::Splitter;
use hw::DmaPool;
use nvme::Nsid;

use super::*;

#[test]
fn invalid_requests_are_refused() {
    let pool = DmaPool::new(8 << 20).unwrap();
    let ns = Namespace::new(Nsid(1), Splitter::new(9, 8 * 512, 0).unwrap(), 1 << 20, 0);
    let buf = || pool.alloc(4096).unwrap();
    assert!(matches!(
        Request::read(&ns, 0, buf()).bytes(100).check(&pool).0,
        Err(Refused::Length { .. })
    ));
    assert!(matches!(
        Request::read(&ns, 0, buf()).bytes(8192).check(&pool).0,
        Err(Refused::Length { .. })
    ));
    assert!(matches!(
        Request::write(&ns, (1 << 20) - 1, buf()).check(&pool).0,
        Err(Refused::OutOfRange { .. })
    ));
    assert!(matches!(
        Request::read(&ns, u64::MAX, buf()).check(&pool).0,
        Err(Refused::OutOfRange { .. })
    ));
    assert!(Request::flush(&ns).check(&pool).0.is_ok());
}

#[test]
fn constructors_set_the_operation() {
    let (pool, ns) = (DmaPool::new(1 << 20).unwrap(), dataless());
    let buf = || pool.alloc(4096).unwrap();
    let made = [
        (Op::Read, 4096, Request::read(&ns, 8, buf())),
        (Op::Write, 4096, Request::write(&ns, 8, buf())),
        (Op::Flush, 0, Request::flush(&ns).carrying(buf())),
        (Op::WriteZeroes, 4096, Request::write_zeroes(&ns, 8, 8).carrying(buf())),
        (Op::Deallocate, 4096, Request::deallocate(&ns, 8, 8).carrying(buf())),
    ];
    for (op, bytes, made) in made {
        let of = Request::of(op, &ns, made.lba, buf()).bytes(bytes);
        assert_eq!(
            (of.op, of.namespace, of.bytes, of.modifiers, of.urgent),
            (op, made.namespace, made.bytes, made.modifiers, made.urgent)
        );
        assert_eq!(of.check(&pool).0, Ok(()), "{op:?}");
    }
}

/// A Flush is for all of the namespace: one that names blocks would be posted once for each part of
/// them.
#[test]
fn flush_with_length_is_refused() {
    let pool = DmaPool::new(1 << 20).unwrap();
    let ns = dataless();
    for bytes in [1, 511, 512, 4096, 8 << 20, u32::MAX] {
        assert_eq!(
            Request::flush(&ns).bytes(bytes).check(&pool).0,
            Err(Refused::FlushOfBytes { bytes })
        );
        // And what it carries comes back.
        let (refused, request) =
            Request::flush(&ns).bytes(bytes).carrying(pool.alloc(4096).unwrap()).check(&pool);
        assert!(refused.is_err() && request.into_buffer().is_some());
    }
    assert_eq!(
        Request::flush(&ns).bytes(0).carrying(pool.alloc(4096).unwrap()).check(&pool).0,
        Ok(())
    );
    let device = crate::Device::open("mem:1M?profile=null").unwrap();
    let (queue, ns) = (device.queue().unwrap(), device.namespaces()[0]);
    let (why, request) = queue.submit([Request::flush(&ns).bytes(65_536).tag(7)]).unwrap_err();
    assert_eq!(
        (why, request.number(), queue.in_flight()),
        (Refused::FlushOfBytes { bytes: 65_536 }, 7, 0)
    );
}

/// 2^24 blocks of 512 bytes; 64 of them zeroed, and 256 deallocated, by one command.
fn dataless() -> Namespace {
    let splitter = Splitter::new(9, 8 * 512, 0).unwrap().with_dataless(Some(64), Some(256));
    Namespace::new(Nsid(1), splitter, 1 << 24, 0)
}

#[test]
fn dataless_requests_have_own_checks() {
    let (pool, other) = (DmaPool::new(8 << 20).unwrap(), DmaPool::new(1 << 20).unwrap());
    let ns = dataless();
    let huge = ns.with_blocks(1 << 40);
    for make in [Request::write_zeroes, Request::deallocate] {
        let check = |ns: &Namespace, lba, blocks| make(ns, lba, blocks).check(&pool).0;
        assert_eq!(check(&ns, 0, 1 << 24), Ok(()));
        assert_eq!(check(&ns, 0, 0), Err(Refused::NoBlocks));
        assert_eq!(
            check(&ns, 1, 1 << 24),
            Err(Refused::OutOfRange { lba: 1, end: (1 << 24) + 1, blocks: 1 << 24 })
        );
        for (lba, blocks) in [(u64::MAX, 1), (0, u64::MAX), (u64::MAX, u64::MAX), (1 << 24, 1)] {
            assert!(
                matches!(check(&ns, lba, blocks), Err(Refused::OutOfRange { .. })),
                "{lba} {blocks}"
            );
        }
        assert_eq!(
            check(&huge, 0, 1 << 32),
            Err(Refused::TooLong { blocks: 1 << 32, most: u32::MAX })
        );
        assert!(matches!(
            make(&ns, 0, 8).bytes(513).check(&pool).0,
            Err(Refused::Length { bytes: 513, block: 512, .. })
        ));
        assert_eq!(
            make(&ns, 0, 8).carrying(other.alloc(512).unwrap()).check(&pool).0,
            Err(Refused::ForeignBuffer)
        );
        let without = Namespace::new(Nsid(7), Splitter::new(9, 4096, 0).unwrap(), 1 << 24, 0);
        assert!(matches!(
            make(&without, 0, 8).check(&pool).0,
            Err(Refused::Unsupported { nsid: 7, .. })
        ));
    }
    // 2^24 ranges do not fit.
    assert_eq!(
        Request::deallocate(&huge, 0, u64::from(u32::MAX)).check(&pool).0,
        Err(Refused::NoRoom { bytes: 16 << 24 })
    );
    assert_eq!(Request::write_zeroes(&huge, 0, u64::from(u32::MAX)).check(&pool).0, Ok(()));
}

#[test]
fn deallocate_has_ranges_per_part() {
    let pool = DmaPool::new(8 << 20).unwrap();
    let mut request = Request::deallocate(&dataless(), 1000, 600);
    request = request.check(&pool).1;
    let list = request.buf.take().unwrap();
    let ranges: Vec<_> =
        list.as_chunks().0.iter().map(|&range| nvme::io::Range::from_bytes(range)).collect();
    assert_eq!(
        ranges,
        [(1000, 256), (1256, 256), (1512, 88)]
            .map(|(lba, blocks)| nvme::io::Range::new(nvme::Lba(lba), blocks))
    );
    // A buffer that it carries is used, if there is room.
    for (bytes, used) in [(512, true), (32, false)] {
        let carried = pool.alloc(bytes).unwrap();
        let addr = carried.addr();
        let mut request = Request::deallocate(&dataless(), 1000, 600).carrying(carried);
        request = request.check(&pool).1;
        assert_eq!(request.buf.unwrap().addr() == addr, used);
    }
}

#[test]
fn range_lists_are_one_command() {
    let (pool, other) = (DmaPool::new(8 << 20).unwrap(), DmaPool::new(1 << 20).unwrap());
    let ns = dataless();
    let ns = ns.with_splitter(ns.splitter().with_ranges(4));
    let check = |ns: &Namespace, ranges: &[std::ops::Range<u64>]| {
        Request::deallocate_ranges(ns, ranges, pool.alloc(512).unwrap()).check(&pool)
    };
    let (checked, request) = check(&ns, &[8..16, 1..2, 100..300]);
    assert_eq!((checked, request.modifiers.listed()), (Ok(()), true));
    let list = request.buf.unwrap();
    let ranges: Vec<_> = list
        .as_chunks()
        .0
        .iter()
        .take(4)
        .map(|&range| nvme::io::Range::from_bytes(range))
        .collect();
    assert_eq!(
        ranges,
        [(8, 8), (1, 1), (100, 200), (0, 0)]
            .map(|(lba, blocks)| nvme::io::Range::new(nvme::Lba(lba), blocks))
    );
    // One alone is as long as it likes.
    let (checked, request) = check(&ns, std::slice::from_ref(&(0..600)));
    assert_eq!((checked, request.modifiers.listed(), request.bytes), (Ok(()), false, 600 * 512));
    let refused = |ranges: &[std::ops::Range<u64>]| check(&ns, ranges).0.unwrap_err();
    let backwards = std::ops::Range { start: 9, end: 8 };
    assert_eq!(
        [
            refused(&[]),
            refused(&[0..8, 9..9]),
            refused(&[0..8, backwards]),
            refused(&[0..8, 0..u64::MAX])
        ],
        [Refused::NoBlocks; 4]
    );
    assert_eq!(
        refused(&[0..8, 1 << 24..(1 << 24) + 1]),
        Refused::OutOfRange { lba: 1 << 24, end: (1 << 24) + 1, blocks: 1 << 24 }
    );
    assert_eq!(refused(&[0..128, 256..400]), Refused::TooLong { blocks: 272, most: 256 });
    let five = [0..1, 2..3, 4..5, 6..7, 8..9];
    assert_eq!(refused(&five), Refused::TooManyRanges { ranges: 5, most: 4 });
    assert_eq!(
        check(&dataless(), &five[..2]).0,
        Err(Refused::TooManyRanges { ranges: 2, most: 1 })
    );
    let short = Request::deallocate_ranges(&ns, &five[..3], pool.alloc(32).unwrap()).check(&pool).0;
    assert_eq!(short, Err(Refused::TooManyRanges { ranges: 3, most: 2 }));
    let foreign =
        Request::deallocate_ranges(&ns, &five[..3], other.alloc(512).unwrap()).check(&pool).0;
    assert_eq!(foreign, Err(Refused::ForeignBuffer));
    // More than was listed names no blocks.
    let more = Request::deallocate_ranges(&ns, &five[..3], pool.alloc(512).unwrap())
        .bytes(4 * 512)
        .check(&pool)
        .0;
    assert_eq!(more, Err(Refused::NoBlocks));
}
