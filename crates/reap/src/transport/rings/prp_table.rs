//! Data pointers, and PRP lists that no command writes: one table over the whole buffer pool, and one over each region.
//!
//! A pool is contiguous in bus addresses, and so is a region: the PRP list of any buffer is a run of consecutive page
//! addresses. A list may begin anywhere in a page of the list (Base 4.1.1), but must not cross into the next without a
//! chain entry. So page *k* of the table lists pages 256·k to 256·k + 511: each run of up to 256 pages lies wholly in one
//! page of the table, and a transfer of any kind costs one address computation instead of building a list.
//!
//! The pool's table is in the pool, and all paths that reach the pool have the one. It is a 256th of the pool: 64 MiB of 16 GiB. So none of
//! it is touched at open: a page of it is written by the first command that needs it, on that command's thread. A region's table is memory of
//! its own, a 256th of the region, which goes with it, and is written in the same way. What of it has to be pinned is pinned when the region
//! is registered, because a command could tell nobody that it cannot be.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use hw::{AllocError, DmaPool, Lent, Memory, Region, RegisterError};
use nvme::Sqe;
use nvme::prp::Dptr;
use nvme::sgl::Descriptor;

/// Bytes of a memory page: CC.MPS = 0 (Base 3.1.4.5).
const PAGE: u64 = 4096;
/// Entries of one page of the table.
const ENTRIES: u64 = PAGE / 8;
/// A run of this many entries never leaves the page it begins in.
const RUN: u64 = ENTRIES / 2;

/// The pool's table. It belongs to the pool's controllers for as long as the pool lives.
pub(crate) struct PrpTable {
    pool: DmaPool,
    base: u64,
    /// Pages that it lists.
    pages: u64,
    lists: Lent,
    /// Which pages of the table are written.
    written: Box<[AtomicBool]>,
}

impl PrpTable {
    /// The most bytes of one command whatever its buffer's offset: 256 entries after the first page, less an offset.
    pub(crate) const MAX_BYTES: u32 = (RUN * PAGE) as u32;

    /// Room for the lists of every page of the pool. It touches none of it.
    ///
    /// # Errors
    /// The pool has no room for them.
    pub(crate) fn new(pool: &DmaPool) -> Result<PrpTable, AllocError> {
        let lists = pool.alloc(table_bytes(pool.len()))?.lend();
        let written = (0..lists.len() as u64 / PAGE).map(|_| AtomicBool::new(false)).collect();
        Ok(PrpTable { pool: pool.clone(), base: pool.base(), pages: pool.len() / PAGE, lists, written })
    }

    /// Whether no command has needed a list.
    #[cfg(test)]
    pub(crate) fn is_untouched(&self) -> bool {
        self.written.iter().all(|written| !written.load(Acquire))
    }

    /// The data pointer of a command that may transfer another number of bytes than `bytes`, which may be 0: an SGL is preferred, because a
    /// controller stays within its length.
    pub(crate) fn whole(&self, addr: u64, bytes: u32, buf: &Option<Lent>, sgls: bool) -> (Dptr, u8) {
        match bytes {
            0 => (Dptr::NONE, 0),
            _ if sgls => (Descriptor::data_block(addr, bytes).dptr(), Sqe::PSDT_SGL),
            _ => self.data(addr, bytes, buf, || false),
        }
    }

    /// The data pointer of `bytes` bytes (1 to [`PrpTable::MAX_BYTES`]) at `addr`, which is in `buf` (Base 4.1.1), and CDW0.PSDT. If
    /// `sgls` may be used, an SGL data block names more than two pages: the buffer is one run of bus addresses, and the controller fetches no list.
    #[inline(always)]
    pub(crate) fn data(&self, addr: u64, bytes: u32, buf: &Option<Lent>, sgls: impl FnOnce() -> bool) -> (Dptr, u8) {
        let offset = addr % PAGE;
        let end = offset + u64::from(bytes);
        if end <= PAGE {
            return (Dptr { prp1: addr, prp2: 0 }, 0);
        }
        let second = addr - offset + PAGE;
        if end <= 2 * PAGE {
            return (Dptr { prp1: addr, prp2: second }, 0);
        }
        // Asked here, because shorter commands need neither.
        if sgls() {
            return (Descriptor::data_block(addr, bytes).dptr(), Sqe::PSDT_SGL);
        }
        let page = second.wrapping_sub(self.base) / PAGE;
        let written = self.written.get((page / RUN) as usize).is_some_and(|written| written.load(Acquire));
        let prp2 = if written { entry_of(self.lists.addr(), page) } else { self.other_entry(second, buf) };
        (Dptr { prp1: addr, prp2 }, 0)
    }

    /// The entry for the page at `second`, which is in a part of the table that is yet to be written, or not in the pool.
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

    /// The entry for the page at `second`, which is not in the pool: the buffer is a range of a region, or was refused.
    fn region_entry(&self, second: u64, buf: &Option<Lent>) -> u64 {
        let Some(table) = buf.as_ref().and_then(Lent::attachment) else { return 0 };
        let page = second.wrapping_sub(table.base) / PAGE;
        if !table.written.get((page / RUN) as usize).is_some_and(|written| written.load(Acquire)) {
            self.write((table.addr, table.base), page / RUN, &table.written);
        }
        entry_of(table.addr, page)
    }

    /// Writes page `k` of a table at `lists` over memory that begins at `base`. Threads that come at once write the same, one after the
    /// other, and a controller that reads it for one of them finds that: it is copied as a device copies.
    #[cold]
    fn write(&self, (lists, base): (u64, u64), k: u64, written: &[AtomicBool]) {
        let mut list = [0; PAGE as usize];
        write_list(&mut list, base, k);
        let copied = self.pool.dma_write(lists + k * PAGE, &list);
        debug_assert!(copied.is_ok(), "a table is lent for as long as it is there");
        if let Some(written) = written.get(k as usize) {
            // Release: who finds it written finds what was written.
            written.store(true, Release);
        }
    }
}

/// Registers memory with the pool's device, with room for a table over it, of which none is written.
pub(crate) fn register<M: Memory>(pool: &DmaPool, memory: M) -> Result<Region<M>, (RegisterError, M)> {
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

/// The bus address of the entry that names page `page` of the table at `lists`, chosen so that a run of [`RUN`] follows it.
#[inline]
fn entry_of(lists: u64, page: u64) -> u64 {
    lists + page / RUN * PAGE + page % RUN * 8
}

#[cfg(test)]
mod tests;
