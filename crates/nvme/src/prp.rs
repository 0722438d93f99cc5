//! Physical Region Pages: where the data of a command are (Base 4.3.1).
//!
//! A PRP entry is the address of a memory page, of the size that CC.MPS says, with an offset in the
//! first entry only. PRP1 is the first page. PRP2 is the second and last page or, if there are
//! more, the address of a *PRP list*: the entries for the second and later pages. The last slot of
//! a page of the list points to the next page of the list, unless one entry remains, which then
//! stands in it.
//!
//! The host calls [`build`], the controller drives a [`Walker`]. Neither allocates.

use zerocopy::IntoBytes;

use crate::Status;

/// Bytes of a PRP entry.
pub const ENTRY_LEN: u64 = 8;

/// DPTR as two PRP entries (Base 4.1, DPTR).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dptr {
    /// PRP1: where the data begin.
    pub prp1: u64,
    /// PRP2: the second page, or a PRP list of the second and later pages, or unused.
    pub prp2: u64,
}

impl Dptr {
    /// A command without data.
    pub const NONE: Dptr = Dptr { prp1: 0, prp2: 0 };

    /// The pointer to `len` bytes at bus address `addr` if they touch one or two pages and so need
    /// no list. `None`: they touch more, or are nothing that [`build`] accepts either.
    pub fn short(addr: u64, len: u64, page: PageSize) -> Option<Dptr> {
        let in_first = page.left_in_page(addr);
        // Less one, so that an empty buffer is the longest of all.
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

/// The memory page size that CC.MPS sets: a power of two from 4 KiB to 128 MiB (Base 3.1.4.5).
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

    /// The bits of an address that are the offset in a page.
    const fn mask(self) -> u64 {
        self.bytes - 1
    }

    /// Which page an address is in.
    const fn number(self, addr: u64) -> u64 {
        addr >> self.bytes.trailing_zeros()
    }

    /// From an address to the end of its page.
    const fn left_in_page(self, addr: u64) -> u64 {
        self.bytes - (addr & self.mask())
    }
}

/// A run of bus addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// First byte.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}

/// Why there are no PRPs for a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The buffer is empty or not dword aligned, the list is not qword aligned, or one of them
    /// passes the end of the address space.
    #[error("{:#x} bytes at bus address {:#x} are none, unaligned, or pass the end of the address space", .0.len, .0.addr)]
    Unaddressable(Segment),
    /// More pages than the list memory holds entries for.
    #[error(
        "a PRP list of {need} bytes does not fit the {got} bytes set aside for it: make the transfer smaller"
    )]
    ListTooShort {
        /// Bytes that the list takes.
        need: u64,
        /// Bytes given.
        got: u64,
    },
}

/// How many bytes of list memory, from the start of a page, suffice for any buffer of `len` bytes,
/// wherever it begins. 0: it never takes a list.
pub fn list_len(len: u64, page: PageSize) -> u64 {
    // At worst the buffer begins with the last dword of a page.
    let pages_after_first = len.saturating_sub(4).div_ceil(page.bytes());
    if pages_after_first < 2 {
        0
    } else {
        slots(pages_after_first, page.bytes() / ENTRY_LEN, page).saturating_mul(ENTRY_LEN)
    }
}

/// The data pointer for `buffer`, which is contiguous in bus addresses. Buffers of more than two
/// pages take a list in `list`, memory that is contiguous too and that the command owns until it
/// completes; `put(addr, entry)` stores an entry there, little-endian.
///
/// [`list_len`] says how large `list` has to be. For one or two pages this is [`Dptr::short`] and
/// stores nothing.
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
        let last = run.addr.checked_add(run.len.saturating_sub(1));
        last.filter(|_| run.addr.is_multiple_of(align)).ok_or(BuildError::Unaddressable(run))
    };
    let last = last_byte(buffer, 4)?;
    last_byte(list, ENTRY_LEN)?;
    if buffer.len == 0 {
        return Err(BuildError::Unaddressable(buffer));
    }
    let data_entries = page.number(last) - page.number(buffer.addr);
    let need = slots(data_entries, page.left_in_page(list.addr) / ENTRY_LEN, page)
        .saturating_mul(ENTRY_LEN);
    if need > list.len {
        return Err(BuildError::ListTooShort { need, got: list.len });
    }
    let mut slot = list.addr;
    let mut data = buffer.addr & !page.mask();
    for left in (1..=data_entries).rev() {
        let next_page_of_list = slot.wrapping_add(ENTRY_LEN);
        if left > 1 && next_page_of_list & page.mask() == 0 {
            // The list is contiguous, so its next page begins where this one ends.
            put(slot, next_page_of_list);
            slot = next_page_of_list;
        }
        data += page.bytes();
        put(slot, data);
        slot = slot.wrapping_add(ENTRY_LEN);
    }
    Ok(Dptr { prp1: buffer.addr, prp2: list.addr })
}

/// Slots that a list of `entries` data entries takes if its first page has `first_page` slots: one
/// more for each page that it chains to.
fn slots(entries: u64, first_page: u64, page: PageSize) -> u64 {
    let per_page = page.bytes() / ENTRY_LEN;
    if entries <= first_page {
        return entries;
    }
    let beyond = entries - (first_page - 1);
    entries + 1 + beyond.saturating_sub(per_page).div_ceil(per_page - 1)
}

/// List entries fetched at one time.
const FETCH: usize = 16;

/// Walks the data of one command, page by page, joining pages that follow each other into one
/// [`Segment`].
///
/// The host may be wrong or malicious: every entry is checked, and the walk ends after `len` bytes
/// whatever the lists say.
#[derive(Clone, Debug)]
pub struct Walker {
    page: PageSize,
    /// The segment that [`Walker::next`] returns next, as far as it is known; empty at the end.
    pending: Segment,
    /// Bytes beyond `pending`.
    left: u64,
    rest: Rest,
}

/// Where the pages after the first are.
#[derive(Clone, Debug)]
enum Rest {
    /// As PRP2 says: unused, the second page, or a list of which nothing has been fetched.
    Prp2(u64),
    /// As the list says that PRP2 points to.
    List(List),
}

/// The part of a list that has been fetched.
#[derive(Clone, Debug)]
struct List {
    /// The address of the next entry.
    at: u64,
    entries: [u64; FETCH],
    taken: usize,
    fetched: usize,
}

impl Walker {
    /// Begins a walk over `len` bytes. Refuses a PRP1 that is not dword aligned, a second page with
    /// an offset, and a list that is not qword aligned: PRP Offset Invalid (Base 4.3.1).
    pub fn new(dptr: Dptr, len: u64, page: PageSize) -> Result<Walker, Status> {
        let first = len.min(page.left_in_page(dptr.prp1));
        let left = len - first;
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

    /// The next segment, `None` after the last. `fetch(addr, into)` reads a piece of a PRP list,
    /// which never crosses a page; if it fails the command ends with Data Transfer Error.
    ///
    /// After an error the walk is over.
    pub fn next<E>(
        &mut self,
        fetch: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Option<Segment>, Status> {
        let segment = std::mem::take(&mut self.pending);
        if self.left == 0 {
            return Ok((segment.len != 0).then_some(segment));
        }
        self.grow(segment, fetch).map(Some)
    }

    /// Adds pages to `segment` as long as they follow it; the first that does not becomes pending.
    fn grow<E>(
        &mut self,
        mut segment: Segment,
        mut fetch: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Segment, Status> {
        if let Rest::Prp2(list) = self.rest
            && self.left > self.page.bytes()
        {
            self.rest = Rest::List(List { at: list, entries: [0; FETCH], taken: 0, fetched: 0 });
        }
        while self.left > 0 {
            let entry = match &mut self.rest {
                Rest::Prp2(second) => Ok(*second),
                Rest::List(list) => list.next(self.left, self.page, &mut fetch),
            };
            let addr = entry.inspect_err(|_| self.left = 0)?;
            let len = self.left.min(self.page.bytes());
            self.left -= len;
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
    /// The next data entry, given that `left` bytes (at least 1) are still without one.
    fn next<E>(
        &mut self,
        left: u64,
        page: PageSize,
        fetch: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<u64, Status> {
        loop {
            if self.taken == self.fetched {
                self.fetch(left, page, fetch)?;
            }
            let entry = self.entries[self.taken];
            self.taken += 1;
            if entry & page.mask() != 0 {
                return Err(Status::PRP_OFFSET_INVALID.with_dnr());
            }
            let was_last_slot = page.left_in_page(self.at) == ENTRY_LEN;
            self.at = self.at.wrapping_add(ENTRY_LEN);
            if !was_last_slot || left <= page.bytes() {
                return Ok(entry);
            }
            // More than one page of data is left, so the last slot is a pointer. A page of the list
            // has at least 512 slots: this loop turns at most twice.
            (self.at, self.taken, self.fetched) = (entry, 0, 0);
        }
    }

    /// Reads as many entries as are needed, the list's page has, and fit.
    fn fetch<E>(
        &mut self,
        left: u64,
        page: PageSize,
        fetch: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), Status> {
        let in_page = page.left_in_page(self.at) / ENTRY_LEN;
        let wanted = (page.number(left - 1) + 1).min(in_page).min(FETCH as u64) as usize;
        fetch(self.at, self.entries[..wanted].as_mut_bytes())
            .map_err(|_| Status::DATA_TRANSFER_ERROR)?;
        (self.taken, self.fetched) = (0, wanted);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
