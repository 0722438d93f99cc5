//! A binary buddy allocator over offsets in the pool. Its state is outside the pool, so that the
//! pages of the pool stay untouched until they are used.

use std::collections::BTreeSet;

use super::{CHUNK, MIN_BLOCK};

const ORDERS: usize = (CHUNK / MIN_BLOCK).trailing_zeros() as usize + 1;

/// Offsets of free blocks by order. The lowest is allocated first, so that memory in use stays
/// dense and few chunks are pinned.
#[derive(Debug)]
pub(super) struct Buddy {
    free: [BTreeSet<u64>; ORDERS],
}

/// Size of the block for `len` bytes: a power of two from 512 B to 4 MiB, a multiple of 4 MiB
/// above.
pub(super) fn block_size(len: usize) -> Option<u64> {
    let len = (len as u64).max(MIN_BLOCK);
    if len <= CHUNK { Some(len.next_power_of_two()) } else { len.checked_next_multiple_of(CHUNK) }
}

impl Buddy {
    /// An allocator of `bytes` bytes, all free, in whole chunks.
    pub(super) fn new(bytes: u64) -> Buddy {
        let mut free: [BTreeSet<u64>; ORDERS] = Default::default();
        free[ORDERS - 1] = (0..bytes / CHUNK).map(|chunk| chunk * CHUNK).collect();
        Buddy { free }
    }

    /// Allocates a block of `size` (as [`block_size`] gives it), aligned to its size or to a chunk.
    pub(super) fn alloc(&mut self, size: u64) -> Option<u64> {
        if size > CHUNK {
            return self.alloc_run(size / CHUNK);
        }
        let order = order_of(size);
        let (from, offset) = (order..ORDERS).find_map(|o| Some((o, self.free[o].pop_first()?)))?;
        // Splitting: the upper half of each level stays free.
        for o in order..from {
            self.free[o].insert(offset + (MIN_BLOCK << o));
        }
        Some(offset)
    }

    /// Allocates consecutive chunks: the first run that is long enough.
    fn alloc_run(&mut self, chunks: u64) -> Option<u64> {
        let whole = &mut self.free[ORDERS - 1];
        let (mut start, mut found) = (0, 0);
        for &offset in whole.iter() {
            if found == 0 || offset != start + found * CHUNK {
                (start, found) = (offset, 0);
            }
            found += 1;
            if found == chunks {
                (0..chunks).for_each(|i| _ = whole.remove(&(start + i * CHUNK)));
                return Some(start);
            }
        }
        None
    }

    /// Frees a block that [`Buddy::alloc`] returned for `size`, merging it with free buddies.
    pub(super) fn free(&mut self, mut offset: u64, size: u64) {
        if size > CHUNK {
            self.free[ORDERS - 1].extend((0..size / CHUNK).map(|i| offset + i * CHUNK));
            return;
        }
        let mut order = order_of(size);
        while order < ORDERS - 1 {
            let block = MIN_BLOCK << order;
            // The buddy of a block differs from it in one bit of the offset.
            if !self.free[order].remove(&(offset ^ block)) {
                break;
            }
            offset &= !block;
            order += 1;
        }
        self.free[order].insert(offset);
    }
}

fn order_of(size: u64) -> usize {
    (size / MIN_BLOCK).trailing_zeros() as usize
}

#[cfg(test)]
mod tests;
