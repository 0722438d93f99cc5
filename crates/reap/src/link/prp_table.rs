//! PRP lists that are never written: one table over the whole buffer pool, made once.
//!
//! The pool is contiguous in bus addresses, so the PRP list of any buffer is a run of consecutive page addresses. A list
//! may begin anywhere in a page of the list (Base 4.1.1), but must not cross into the next without a chain entry. So
//! page *k* of the table lists pool pages 256·k to 256·k + 511: each run of up to 256 pages lies wholly in one page of
//! the table, and a transfer of any kind costs one address computation instead of building a list.

use hw::{DmaPool, Lent, PoolFull};

/// Bytes of a memory page: CC.MPS = 0 (Base 3.1.4.5).
const PAGE: u64 = 4096;
/// Entries of one page of the table.
const ENTRIES: u64 = PAGE / 8;
/// A run of this many entries never leaves the page it begins in.
const RUN: u64 = ENTRIES / 2;

/// The table. It belongs to the pool's controller for as long as the pool lives.
pub(crate) struct PrpTable {
    base: u64,
    /// Pages of the table in order; `pages[k]` lists pool pages from `RUN * k`.
    pages: Vec<Lent>,
}

impl PrpTable {
    /// The most bytes of one command whatever its buffer's offset: 256 entries after the first page, less an offset.
    pub(crate) const MAX_BYTES: u32 = (RUN * PAGE) as u32;

    /// Lists every page of the pool.
    pub(crate) fn new(pool: &DmaPool) -> Result<PrpTable, PoolFull> {
        let pool_pages = pool.len() / PAGE;
        let list = |k: u64| -> Result<Lent, PoolFull> {
            let mut page = pool.alloc(PAGE as usize)?;
            for (i, entry) in (0..ENTRIES).zip(page.chunks_exact_mut(8)) {
                entry.copy_from_slice(&(pool.base() + (k * RUN + i) * PAGE).to_le_bytes());
            }
            Ok(page.lend())
        };
        Ok(PrpTable { base: pool.base(), pages: (0..pool_pages.div_ceil(RUN)).map(list).collect::<Result<_, _>>()? })
    }

    /// PRP1 and PRP2 of `bytes` bytes (1 to [`PrpTable::MAX_BYTES`]) at `addr` in the pool (Base 4.1.1).
    #[inline]
    pub(crate) fn pointers(&self, addr: u64, bytes: u32) -> (u64, u64) {
        let offset = addr % PAGE;
        let end = offset + u64::from(bytes);
        if end <= PAGE {
            return (addr, 0);
        }
        let second = addr - offset + PAGE;
        (addr, if end <= 2 * PAGE { second } else { self.entry_of((second - self.base) / PAGE) })
    }

    /// The bus address of the entry that names pool page `page`, chosen so that a run of [`RUN`] follows it.
    fn entry_of(&self, page: u64) -> u64 {
        let at = (page / RUN) as usize;
        // Every page of the pool is in the table, and only addresses of the pool's buffers come here.
        let list = self.pages.get(at).map_or(0, Lent::addr);
        list + page % RUN * 8
    }
}

#[cfg(test)]
mod tests;
