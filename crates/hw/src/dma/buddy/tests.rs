use proptest::prelude::*;

use super::*;

const POOL: u64 = 3 * CHUNK;

#[test]
fn blocks_are_powers_of_two() {
    let sizes = [0, 1, 512, 513, 4096, 4097, 4 << 20, (4 << 20) + 1, 9 << 20].map(block_size);
    let chunks = [512, 512, 512, 1024, 4096, 8192, CHUNK, 2 * CHUNK, 3 * CHUNK].map(Some);
    assert_eq!(sizes, chunks);
    assert_eq!(block_size(usize::MAX), None);
}

#[test]
fn runs_need_adjacent_chunks() {
    let mut buddy = Buddy::new(POOL);
    assert_eq!([(); 3].map(|()| buddy.alloc(CHUNK)), [0, CHUNK, 2 * CHUNK].map(Some));
    buddy.free(0, CHUNK);
    buddy.free(2 * CHUNK, CHUNK);
    assert_eq!(buddy.alloc(2 * CHUNK), None);
    buddy.free(CHUNK, CHUNK);
    assert_eq!(buddy.alloc(2 * CHUNK), Some(0));
}

/// An allocated block: offset and size.
type Block = (u64, u64);

/// Allocates and frees at random: blocks are aligned, within the pool and disjoint; at the end the
/// pool is one free run again.
fn blocks_are_disjoint(
    steps: &[(bool, usize)],
    alloc: impl Fn(&mut Buddy, u64) -> Option<u64>,
    free: impl Fn(&mut Buddy, Block),
) -> Result<(), String> {
    let mut buddy = Buddy::new(POOL);
    let mut taken: Vec<Block> = Vec::new();
    for &(take, n) in steps {
        if take {
            let Some(size) = block_size(n) else { continue };
            let Some(offset) = alloc(&mut buddy, size) else { continue };
            let overlaps = taken.iter().any(|&(at, len)| offset < at + len && at < offset + size);
            if overlaps || offset % size.min(CHUNK) != 0 || offset + size > POOL {
                return Err(format!("{offset:#x}..+{size:#x} overlaps {taken:x?}"));
            }
            taken.push((offset, size));
        } else if !taken.is_empty() {
            free(&mut buddy, taken.swap_remove(n % taken.len()));
        }
    }
    taken.into_iter().for_each(|block| free(&mut buddy, block));
    if buddy.alloc(POOL) == Some(0) { Ok(()) } else { Err(format!("not whole: {buddy:?}")) }
}

fn free(buddy: &mut Buddy, (offset, size): Block) {
    buddy.free(offset, size);
}

proptest! {
    #[test]
    fn blocks_never_overlap_and_merge_again(
        steps in prop::collection::vec((prop::bool::weighted(0.6), prop_oneof![1..9000usize, 1..(9usize << 20)]), 1..80),
    ) {
        prop_assert_eq!(blocks_are_disjoint(&steps, Buddy::alloc, free), Ok(()));
    }
}

#[test]
fn double_allocation_mutant_is_caught() {
    let twice =
        |buddy: &mut Buddy, size| buddy.alloc(size).inspect(|&offset| buddy.free(offset, size));
    assert!(blocks_are_disjoint(&[(true, 512), (true, 512)], twice, free).is_err());
}

#[test]
fn no_merge_mutant_is_caught() {
    let split =
        |buddy: &mut Buddy, (offset, size): Block| _ = buddy.free[order_of(size)].insert(offset);
    assert!(blocks_are_disjoint(&[(true, 512)], Buddy::alloc, split).is_err());
}
