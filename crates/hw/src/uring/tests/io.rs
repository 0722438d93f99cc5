use proptest::prelude::*;

use super::*;

/// With and without a registered buffer.
fn registered_and_not(ring: &Ring, fd: OwnedFd, lent: &Lent) -> [(FileSlot, Option<Fixed>); 2] {
    ring.register_file(FileSlot(3), &fd).unwrap();
    let fixed = ring.register_buffer(2, lent).unwrap();
    [(FileSlot(3), Some(fixed)), (FileSlot(3), None)]
}

fn span(lent: &Lent, range: std::ops::Range<usize>, fixed: Option<Fixed>) -> Span {
    fixed.map_or_else(
        || Span::of(lent, range.clone()),
        |fixed| Span::fixed(lent, range.clone(), fixed),
    )
}

#[test]
fn writes_are_read_back() {
    for options in kinds() {
        let mut whole = Whole::new(&options);
        let pool = DmaPool::new(4 << 20).unwrap();
        let (_file, fd) = file(16 * BLOCK as u64);
        let mut lent = filled(&pool, 4 * BLOCK, 0);
        for (n, (at, fixed)) in registered_and_not(&whole.ring, fd, &lent).into_iter().enumerate() {
            let byte = n as u8 + 1;
            let mut buf = lent.take_back();
            buf[..BLOCK].fill(byte);
            lent = buf.lend();
            assert_eq!(span(&lent, 0..BLOCK, fixed).is_fixed(), fixed.is_some());
            let offset = ((n + 1) * BLOCK) as u64;
            let flags = n % 2 == 0;
            assert_eq!(
                whole.result(Entry::write(at, offset, span(&lent, 0..BLOCK, fixed), flags)),
                BLOCK as i32,
                "{options:?}"
            );
            assert_eq!(whole.result(Entry::fsync(at, n % 2 == 0)), 0);
            let read = Entry::read(at, offset, span(&lent, 2 * BLOCK..3 * BLOCK, fixed));
            assert_eq!(whole.result(read), BLOCK as i32);
            let buf = lent.take_back();
            assert!(buf[2 * BLOCK..3 * BLOCK].iter().all(|b| *b == byte), "{options:?}, way {n}");
            assert!(buf[3 * BLOCK..].iter().all(|b| *b == 0));
            lent = buf.lend();
        }
        drop(lent.take_back());
    }
}

#[test]
fn reads_end_with_the_file() {
    for options in kinds() {
        let mut whole = Whole::new(&options);
        let pool = DmaPool::new(4 << 20).unwrap();
        let lent = filled(&pool, 4 * BLOCK, 9);
        let (_file, fd) = file(BLOCK as u64 + 512);
        let kept = whole.keep(&fd);
        assert_eq!(
            whole.result(Entry::read(kept, 0, Span::of(&lent, 0..4 * BLOCK))),
            BLOCK as i32 + 512
        );
        assert_eq!(whole.result(Entry::read(kept, 8 * BLOCK as u64, Span::of(&lent, 0..BLOCK))), 0);
        let buf = lent.take_back();
        // The bytes after them are unspecified: the kernel may fill in zeroes past the end of the
        // file.
        assert!(buf[..BLOCK + 512].iter().all(|b| *b == 0));
    }
}

#[test]
fn files_grow_and_get_holes() {
    for options in kinds() {
        let mut whole = Whole::new(&options);
        let pool = DmaPool::new(4 << 20).unwrap();
        let (file, fd) = file(0);
        let kept = whole.keep(&fd);
        assert_eq!(whole.result(Entry::allocate(kept, 0, 0, 8 * BLOCK as u64)), 0);
        assert_eq!(file.metadata().unwrap().len(), 8 * BLOCK as u64);
        let lent = filled(&pool, BLOCK, 7);
        assert_eq!(
            whole.result(Entry::write(kept, 0, Span::of(&lent, 0..BLOCK), false)),
            BLOCK as i32
        );
        let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        assert_eq!(whole.result(Entry::allocate(kept, hole, 0, BLOCK as u64)), 0);
        assert_eq!(whole.result(Entry::read(kept, 0, Span::of(&lent, 0..BLOCK))), BLOCK as i32);
        assert!(lent.take_back().iter().all(|b| *b == 0));
    }
}

#[test]
fn empty_file_slots_are_errors() {
    for options in kinds() {
        let mut whole = Whole::new(&options);
        let pool = DmaPool::new(4 << 20).unwrap();
        let lent = filled(&pool, BLOCK, 7);
        let (_file, fd) = file(BLOCK as u64);
        let read = |at: FileSlot, fixed| Entry::read(at, 0, span(&lent, 0..BLOCK, fixed));
        for slot in [0, 4, u32::MAX] {
            assert_eq!(whole.result(read(FileSlot(slot), None)), -libc::EBADF, "{slot}");
        }
        whole.ring.register_file(FileSlot(0), &fd).unwrap();
        let fixed = whole.ring.register_buffer(1, &lent).unwrap();
        assert_eq!(whole.result(read(FileSlot(0), Some(fixed))), BLOCK as i32);
        whole.ring.unregister_file(FileSlot(0)).unwrap();
        assert_eq!(whole.result(read(FileSlot(0), None)), -libc::EBADF);
        assert!(matches!(
            whole.ring.register_file(FileSlot(16), &fd),
            Err(RingError::System { .. })
        ));
        assert!(matches!(whole.ring.register_buffer(4, &lent), Err(RingError::System { .. })));
        drop(lent.take_back());
    }
}

/// Batches of reads and writes of whole blocks, no two of a batch of the same block.
fn batches() -> impl Strategy<Value = Vec<Vec<(usize, Option<u8>, bool)>>> {
    let one = (0..16_usize, proptest::option::of(1..=255_u8), any::<bool>());
    let batch = proptest::collection::vec(one, 1..8).prop_map(|mut batch| {
        let mut seen = std::collections::HashSet::new();
        batch.retain(|(block, ..)| seen.insert(*block));
        batch
    });
    proptest::collection::vec(batch, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn random_writes_make_the_file(batches in batches()) {
        for options in kinds() {
            let mut whole = Whole::new(&options);
            let (pool, mut model) = (DmaPool::new(4 << 20).unwrap(), [0_u8; 16]);
            let (_file, fd) = file(16 * BLOCK as u64);
            let mut lent = filled(&pool, 16 * BLOCK, 0);
            let registered_and_not = registered_and_not(&whole.ring, fd, &lent);
            for batch in &batches {
                let mut buf = lent.take_back();
                for &(block, write, _) in batch {
                    buf[block * BLOCK..][..BLOCK].fill(write.unwrap_or(0xee));
                }
                lent = buf.lend();
                for &(block, write, plain) in batch {
                    let (at, fixed) = registered_and_not[usize::from(plain)];
                    let (span, offset) = (span(&lent, block * BLOCK..(block + 1) * BLOCK, fixed), (block * BLOCK) as u64);
                    let entry = match write {
                        Some(byte) => {
                            model[block] = byte;
                            Entry::write(at, offset, span, false)
                        }
                        None => Entry::read(at, offset, span),
                    };
                    whole.push(entry.user_data(block as u64));
                }
                let mut all: Vec<(u64, i32)> = batch.iter().map(|&(block, ..)| (block as u64, BLOCK as i32)).collect();
                all.sort_unstable();
                prop_assert_eq!(whole.results(batch.len() as u32), all);
                let buf = lent.take_back();
                for &(block, ..) in batch {
                    prop_assert!(buf[block * BLOCK..][..BLOCK].iter().all(|byte| *byte == model[block]));
                }
                lent = buf.lend();
            }
            drop(lent.take_back());
        }
    }
}

/// Block devices: tests/links/zeroes.rs.
#[test]
fn a_file_is_not_discarded() {
    let Some(features) = features() else { return };
    let (file, fd) = file(4 * BLOCK as u64);
    assert!(!features.discards(&fd));
    for options in kinds() {
        let mut whole = Whole::new(&options);
        let kept = whole.keep(&fd);
        assert_eq!(
            whole.result(Entry::discard(kept, 0, BLOCK as u64)),
            -libc::EOPNOTSUPP,
            "{options:?}"
        );
    }
    assert_eq!(file.metadata().unwrap().len(), 4 * BLOCK as u64);
}
