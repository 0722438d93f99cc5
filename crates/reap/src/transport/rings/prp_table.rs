//! Data pointers (PRP and SGL), and PRP lists that are not built per command: one table of page
//! addresses over the whole buffer pool, and one over each registered region.
//!
//! A pool is contiguous in bus addresses, and so is a region, so the PRP list of any buffer is a
//! run of consecutive page addresses. A list may begin anywhere in a page (Base §4.1.1) but must
//! not cross into the next page without a chain entry. So page *k* of the table lists pages 256·k
//! to 256·k + 511: each run of up to 256 pages lies in one page of the table, and a transfer costs
//! one address computation instead of a list.
//!
//! ```text
//!   table page 0: │ page 0 … 255 │ page 256 … 511 │
//!   table page 1:                │ page 256 … 511 │ page 512 … 767 │
//!   a run that begins at page 200 (≤ 256 entries) is whole in table page 0,
//!   one that begins at page 300 is whole in table page 1
//! ```
//! The pool's table is in the pool, shared by all paths. It takes 1/256 of the pool (64 MiB of 16
//! GiB), so none of it is touched at open: the first command that needs a page of it writes that
//! page. A region's table is separate memory, 1/256 of the region, and is written in the same way.
//! It is pinned when the region is registered, because a command has no way to report that pinning
//! failed.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use hw::{AllocError, DmaPool, Lent, Memory, Region, RegisterError};
use nvme::Sqe;
use nvme::prp::Dptr;
use nvme::sgl::Descriptor;

/// Bytes of a memory page: CC.MPS = 0 (Base §3.1.4.5).
const PAGE: u64 = 4096;
/// Entries of one table page.
const ENTRIES: u64 = PAGE / 8;
/// A run of this many entries never leaves the table page it begins in.
const RUN: u64 = ENTRIES / 2;

/// The pool's table. Controllers may read it for as long as the pool lives.
pub(crate) struct PrpTable {
    pool: DmaPool,
    base: u64,
    /// Pages of the pool.
    pages: u64,
    lists: Lent,
    /// Which table pages have been written.
    written: Box<[AtomicBool]>,
}

impl PrpTable {
    /// The maximum number of bytes of one command, whatever its buffer's offset: PRP 1 names the
    /// first page, a run of 256 entries the rest.
    pub(crate) const MAX_BYTES: u32 = (RUN * PAGE) as u32;

    /// Allocates the table of a pool without touching its memory.
    ///
    /// # Errors
    /// The pool has no room for it.
    pub(crate) fn new(pool: &DmaPool) -> Result<PrpTable, AllocError> {
        let lists = pool.alloc(table_bytes(pool.len()))?.lend();
        let written = (0..lists.len() as u64 / PAGE).map(|_| AtomicBool::new(false)).collect();
        Ok(PrpTable {
            pool: pool.clone(),
            base: pool.base(),
            pages: pool.len() / PAGE,
            lists,
            written,
        })
    }

    /// Whether no table page was written yet.
    #[cfg(test)]
    pub(crate) fn is_untouched(&self) -> bool {
        self.written.iter().all(|written| !written.load(Acquire))
    }

    /// The data pointer of a command that the caller built, which may transfer fewer or more than
    /// `bytes` bytes (0: none). An SGL is preferred, because a controller stays within its length.
    pub(crate) fn whole(
        &self,
        addr: u64,
        bytes: u32,
        buf: &Option<Lent>,
        sgls: bool,
    ) -> (Dptr, u8) {
        match bytes {
            0 => (Dptr::NONE, 0),
            _ if sgls => (Descriptor::data_block(addr, bytes).dptr(), Sqe::PSDT_SGL),
            _ => self.data(addr, bytes, buf, || false),
        }
    }

    /// The data pointer and CDW0.PSDT for `bytes` bytes (1 to [`PrpTable::MAX_BYTES`]) at `addr`,
    /// which is in `buf` (Base §4.1.1). If `sgls` allows, more than two pages are named by one SGL
    /// data block: the buffer is contiguous in bus addresses, and the controller fetches no list.
    #[inline(always)]
    pub(crate) fn data(
        &self,
        addr: u64,
        bytes: u32,
        buf: &Option<Lent>,
        sgls: impl FnOnce() -> bool,
    ) -> (Dptr, u8) {
        let offset = addr % PAGE;
        let end = offset + u64::from(bytes);
        if end <= PAGE {
            return (Dptr { prp1: addr, prp2: 0 }, 0);
        }
        let second = addr - offset + PAGE;
        if end <= 2 * PAGE {
            return (Dptr { prp1: addr, prp2: second }, 0);
        }
        // Checked only now: shorter transfers need neither a list nor an SGL.
        if sgls() {
            return (Descriptor::data_block(addr, bytes).dptr(), Sqe::PSDT_SGL);
        }
        // Below `base` this wraps to a huge page number, which the bounds checks send to
        // `other_entry`.
        let page = second.wrapping_sub(self.base) / PAGE;
        let written =
            self.written.get((page / RUN) as usize).is_some_and(|written| written.load(Acquire));
        let prp2 =
            if written { entry_of(self.lists.addr(), page) } else { self.other_entry(second, buf) };
        (Dptr { prp1: addr, prp2 }, 0)
    }

    /// The list entry for the page at `second`, when its table page is not written yet or the page
    /// is not in the pool.
    #[cold]
    #[inline(never)]
    fn other_entry(&self, second: u64, buf: &Option<Lent>) -> u64 {
        let page = second.wrapping_sub(self.base) / PAGE;
        if page >= self.pages {
            return self.region_entry(second, buf);
        }
        self.write((self.lists.addr(), self.base), page / RUN, &self.written);
        entry_of(self.lists.addr(), page)
    }

    /// The list entry for the page at `second` of a registered region.
    fn region_entry(&self, second: u64, buf: &Option<Lent>) -> u64 {
        // No table: the buffer belongs to another device, and the request was refused before it
        // came here.
        let Some(table) = buf.as_ref().and_then(Lent::attachment) else { return 0 };
        let page = second.wrapping_sub(table.base) / PAGE;
        if !table.written.get((page / RUN) as usize).is_some_and(|written| written.load(Acquire)) {
            self.write((table.addr, table.base), page / RUN, &table.written);
        }
        entry_of(table.addr, page)
    }

    /// Writes page `k` of the table at `lists` over memory that begins at `base`. Threads that race
    /// write the same bytes, so no lock is needed; the copy is one that a device may read at the
    /// same time.
    #[cold]
    fn write(&self, (lists, base): (u64, u64), k: u64, written: &[AtomicBool]) {
        let mut list = [0; PAGE as usize];
        write_list(&mut list, base, k);
        let copied = self.pool.dma_write(lists + k * PAGE, &list);
        debug_assert!(copied.is_ok(), "a table is lent for as long as it is there");
        if let Some(written) = written.get(k as usize) {
            // Release, paired with the Acquire load in `data`: a thread that sees the flag posts a
            // command whose list is complete.
            written.store(true, Release);
        }
    }
}

/// Registers memory with the pool, together with an unwritten table over it.
pub(crate) fn register<M: Memory>(
    pool: &DmaPool,
    memory: M,
) -> Result<Region<M>, (RegisterError, M)> {
    pool.register_with(memory, |bytes| {
        let lists = pool.register(pool.pages(table_bytes(bytes))?).map_err(|(why, _)| why)?;
        Ok(Some(lists.buffer(0..lists.len()).map_err(std::io::Error::other)?.lend()))
    })
}

/// Bytes of a table over `bytes` bytes of memory.
fn table_bytes(bytes: u64) -> usize {
    ((bytes / PAGE).div_ceil(RUN) * PAGE) as usize
}

/// Writes page `k` of a table over the memory that begins at bus address `base`.
fn write_list(list: &mut [u8], base: u64, k: u64) {
    for (i, entry) in (0..ENTRIES).zip(list.chunks_exact_mut(8)) {
        entry.copy_from_slice(&(base + (k * RUN + i) * PAGE).to_le_bytes());
    }
}

/// The bus address of the entry for page `page` of the table at `lists`, such that a run of [`RUN`]
/// entries follows it in the same table page.
#[inline]
fn entry_of(lists: u64, page: u64) -> u64 {
    lists + page / RUN * PAGE + page % RUN * 8
}

#[cfg(test)]
mod tests;
