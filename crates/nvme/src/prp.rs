//! Physical Region Pages: the data pointer of commands (Base §4.3.1).
//!
//! A PRP entry is the address of a memory page (of CC.MPS size); only the first may have an offset.
//! PRP1 is the first page. PRP2 is the second page, if there are two. If there are more, PRP2 is
//! the address of a *PRP list*, which has the entries of the second and later pages. The list is in
//! memory pages (*list pages*). The last slot of a list page points to the next list page, or, if
//! only one entry is left, has that entry.
//!
//! ```text
//!   PRP1 ──► first page (offset allowed)
//!   PRP2 ──► list page:  [ 2nd page | 3rd page | … | next list page ] ──► [ … | last page ]
//! ```
//!
//! The host calls [`build`], the controller uses a [`Walker`]. Neither allocates memory.

use zerocopy::IntoBytes;

use crate::Status;

/// Bytes of a PRP entry.
pub const ENTRY_LEN: u64 = 8;

/// DPTR as two PRP entries (Base §4.1, DPTR).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dptr {
    /// PRP1: address of the first byte.
    pub prp1: u64,
    /// PRP2: the second page; or the address of a PRP list of the second and later pages; or
    /// unused.
    pub prp2: u64,
}

impl Dptr {
    /// A command without data.
    pub const NONE: Dptr = Dptr { prp1: 0, prp2: 0 };

    /// The data pointer for `len` bytes at bus address `addr` if one or two pages suffice. `None`
    /// if a list is needed, or if [`build`] would fail.
    pub fn short(addr: u64, len: u64, page: PageSize) -> Option<Dptr> {
        // The first page may have an offset, and then holds less than a page of data.
        let in_first = page.left_in_page(addr);
        // Wrapping, so that for an empty buffer no length below is large enough.
        let last = len.wrapping_sub(1);
        if addr & 3 != 0 {
            None
        } else if last < in_first {
            Some(Dptr { prp1: addr, prp2: 0 })
        } else if last - in_first < page.bytes() {
            Some(Dptr { prp1: addr, prp2: addr.checked_add(in_first)? })
        } else {
            None
        }
    }
}

/// The memory page size that CC.MPS sets: a power of two from 4 KiB to 128 MiB (Base §3.1.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    bytes: u64,
}

impl PageSize {
    /// 4 KiB: CC.MPS = 0.
    pub const MIN: PageSize = PageSize { bytes: 4096 };

    /// The page size for a value of CC.MPS, CAP.MPSMIN or CAP.MPSMAX (4 bits).
    pub const fn from_mps(mps: u8) -> PageSize {
        PageSize { bytes: 4096 << (mps & 0xf) }
    }

    /// Bytes.
    pub const fn bytes(self) -> u64 {
        self.bytes
    }

    /// Mask of the offset bits of an address.
    const fn mask(self) -> u64 {
        self.bytes - 1
    }

    /// Page number of an address.
    const fn number(self, addr: u64) -> u64 {
        addr >> self.bytes.trailing_zeros()
    }

    /// Bytes from an address to the end of its page.
    const fn left_in_page(self, addr: u64) -> u64 {
        self.bytes - (addr & self.mask())
    }
}

/// A contiguous range of bus addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// First byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Why PRPs cannot be built for a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The buffer is empty or not dword aligned, the list is not qword aligned, or one of them
    /// exceeds the address space.
    #[error("{:#x} bytes at bus address {:#x}: no bytes, unaligned, or beyond the end of the address space", .0.len, .0.addr)]
    Unaddressable(Segment),
    /// The list memory is too small.
    #[error(
        "a PRP list of {need} bytes does not fit the {got} bytes set aside for it: make the transfer smaller"
    )]
    ListTooShort {
        /// Bytes needed.
        need: u64,
        /// Bytes given.
        got: u64,
    },
}

/// Bytes of page-aligned list memory that suffice for any buffer of `len` bytes, at any offset. 0:
/// such a buffer never needs a list.
pub fn list_len(len: u64, page: PageSize) -> u64 {
    // Worst case: the first page holds only one dword.
    let pages_after_first = len.saturating_sub(4).div_ceil(page.bytes());
    if pages_after_first < 2 {
        0
    } else {
        slots(pages_after_first, page.bytes() / ENTRY_LEN, page).saturating_mul(ENTRY_LEN)
    }
}

/// Builds the data pointer of `buffer`, which is contiguous in bus addresses. If the buffer has
/// more than two pages, writes a PRP list to `list`, which must be contiguous and must not be
/// reused until the command completes; `put(addr, entry)` stores an entry, little-endian.
///
/// [`list_len`] gives the size of `list`. Buffers of one or two pages need no list
/// ([`Dptr::short`]).
pub fn build(
    buffer: Segment,
    page: PageSize,
    list: Segment,
    mut put: impl FnMut(u64, u64),
) -> Result<Dptr, BuildError> {
    if let Some(dptr) = Dptr::short(buffer.addr, buffer.len, page) {
        return Ok(dptr);
    }
    let last_byte = |run: Segment, align| {
        // The last byte, not the end: a buffer may reach the top of the address space.
        let last = run.addr.checked_add(run.len.saturating_sub(1));
        last.filter(|_| run.addr.is_multiple_of(align)).ok_or(BuildError::Unaddressable(run))
    };
    let last = last_byte(buffer, 4)?;
    last_byte(list, ENTRY_LEN)?;
    if buffer.len == 0 {
        return Err(BuildError::Unaddressable(buffer));
    }
    // PRP1 is the first page; every other page of the buffer takes an entry of the list.
    let data_entries = page.number(last) - page.number(buffer.addr);
    let need = slots(data_entries, page.left_in_page(list.addr) / ENTRY_LEN, page)
        .saturating_mul(ENTRY_LEN);
    if need > list.len {
        return Err(BuildError::ListTooShort { need, got: list.len });
    }
    let mut slot = list.addr;
    let mut data = buffer.addr & !page.mask();
    for left in (1..=data_entries).rev() {
        let next_slot = slot.wrapping_add(ENTRY_LEN);
        // The last slot of a list page points to the next list page, unless only one entry is left.
        if left > 1 && next_slot & page.mask() == 0 {
            // The list memory is contiguous, so the next list page begins at the next slot.
            put(slot, next_slot);
            slot = next_slot;
        }
        data += page.bytes();
        put(slot, data);
        slot = slot.wrapping_add(ENTRY_LEN);
    }
    Ok(Dptr { prp1: buffer.addr, prp2: list.addr })
}

/// Slots of a list of `entries` data entries: one for each, and one for each pointer to a next list
/// page. The list begins `slots_in_first_page` slots before the end of a page.
fn slots(entries: u64, slots_in_first_page: u64, page: PageSize) -> u64 {
    let per_page = page.bytes() / ENTRY_LEN;
    if entries <= slots_in_first_page {
        return entries;
    }
    // The last slot of each list page but the last list page is a pointer.
    let after_first_page = entries - (slots_in_first_page - 1);
    entries + 1 + after_first_page.saturating_sub(per_page).div_ceil(per_page - 1)
}

/// Maximum number of list entries read at a time.
const BATCH: usize = 16;

/// Iterates over the data segments of a command; adjacent pages are merged into one [`Segment`].
///
/// The host is not trusted: every entry is validated, and the walk ends after `len` bytes, so that
/// a cyclic list terminates.
#[derive(Clone, Debug)]
pub struct Walker {
    page: PageSize,
    /// The segment that the next call of [`Walker::next`] returns, after merging pages into it.
    /// Empty at the end.
    pending: Segment,
    /// Bytes of data after `pending`.
    left: u64,
    rest: Rest,
}

/// Source of the entries for the pages after the first.
#[derive(Clone, Debug)]
enum Rest {
    /// PRP2 as in the command: unused, the second page, or the address of a list of which no entry
    /// has been read.
    Prp2(u64),
    /// The list that PRP2 points to.
    List(List),
}

/// The position in a PRP list, and entries that were read ahead.
#[derive(Clone, Debug)]
struct List {
    /// Address of the entry that is returned next.
    at: u64,
    /// `entries[taken..fetched]` have been read and not returned yet.
    entries: [u64; BATCH],
    taken: usize,
    fetched: usize,
}

impl Walker {
    /// Starts a walk over `len` bytes. Fails with PRP Offset Invalid (Base §4.3.1) if PRP1 is not
    /// dword aligned, a second page has an offset, or a list is not qword aligned.
    pub fn new(dptr: Dptr, len: u64, page: PageSize) -> Result<Walker, Status> {
        let first = len.min(page.left_in_page(dptr.prp1));
        let left = len - first;
        // PRP2 is a list if more than one page is left. A list may begin anywhere in a page, at an
        // 8-byte boundary (Base §4.3.1).
        let list = left > page.bytes();
        let prp2_offset = if list { dptr.prp2 & (ENTRY_LEN - 1) } else { dptr.prp2 & page.mask() };
        if dptr.prp1 & 3 != 0 || (left > 0 && prp2_offset != 0) {
            return Err(Status::PRP_OFFSET_INVALID.with_dnr());
        }
        Ok(Walker {
            page,
            pending: Segment { addr: dptr.prp1, len: first },
            left,
            rest: Rest::Prp2(dptr.prp2),
        })
    }

    /// The next segment, or `None` after the last. `read(addr, into)` reads a part of a PRP list
    /// that does not cross a page; if it fails, the walk fails with Data Transfer Error.
    ///
    /// After an error the walk must not be continued.
    pub fn next<E>(
        &mut self,
        read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Option<Segment>, Status> {
        let segment = std::mem::take(&mut self.pending);
        if self.left == 0 {
            return Ok((segment.len != 0).then_some(segment));
        }
        self.grow(segment, read).map(Some)
    }

    /// Merges the following pages into `segment` while they are adjacent; the first page that is
    /// not adjacent becomes `pending`.
    fn grow<E>(
        &mut self,
        mut segment: Segment,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Segment, Status> {
        if let Rest::Prp2(list) = self.rest
            && self.left > self.page.bytes()
        {
            self.rest = Rest::List(List { at: list, entries: [0; BATCH], taken: 0, fetched: 0 });
        }
        while self.left > 0 {
            let entry = match &mut self.rest {
                Rest::Prp2(second) => Ok(*second),
                Rest::List(list) => list.next(self.left, self.page, &mut read),
            };
            let addr = entry.inspect_err(|_| self.left = 0)?;
            let len = self.left.min(self.page.bytes());
            self.left -= len;
            // Adjacent pages are merged: one DMA access instead of many for a contiguous buffer.
            if segment.addr.checked_add(segment.len) != Some(addr) {
                self.pending = Segment { addr, len };
                break;
            }
            segment.len += len;
        }
        Ok(segment)
    }
}

impl List {
    /// The next entry that is not a pointer to a list page. `left`: the number of bytes of data, at
    /// least 1, that this and the later entries describe.
    fn next<E>(
        &mut self,
        left: u64,
        page: PageSize,
        read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<u64, Status> {
        loop {
            if self.taken == self.fetched {
                self.refill(left, page, read)?;
            }
            let entry = self.entries[self.taken];
            self.taken += 1;
            // An entry of a list has no offset, nor has a pointer to the next list page.
            if entry & page.mask() != 0 {
                return Err(Status::PRP_OFFSET_INVALID.with_dnr());
            }
            let was_last_slot = page.left_in_page(self.at) == ENTRY_LEN;
            self.at = self.at.wrapping_add(ENTRY_LEN);
            if !was_last_slot || left <= page.bytes() {
                return Ok(entry);
            }
            // More than one page of data is left, so the last slot is a pointer. The next list page
            // begins at offset 0 and has at least 512 slots, so its first slot is not its last: the
            // loop runs at most twice.
            (self.at, self.taken, self.fetched) = (entry, 0, 0);
        }
    }

    /// Reads the next entries: as many as `left` bytes of data need, but no more than are left in
    /// the list page or fit `entries`.
    fn refill<E>(
        &mut self,
        left: u64,
        page: PageSize,
        read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), Status> {
        let in_page = page.left_in_page(self.at) / ENTRY_LEN;
        // No more than needed: the memory after the list's last entry need not be accessible to the
        // controller.
        let wanted = left.div_ceil(page.bytes()).min(in_page).min(BATCH as u64) as usize;
        read(self.at, self.entries[..wanted].as_mut_bytes())
            .map_err(|_| Status::DATA_TRANSFER_ERROR)?;
        (self.taken, self.fetched) = (0, wanted);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
