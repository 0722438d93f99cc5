//! The controller's half: from PRPs to the runs of memory they mean.

use zerocopy::IntoBytes;

use super::{Dptr, ENTRY_LEN, PageSize, Segment};
use crate::Status;

/// List entries fetched at one time.
const FETCH: usize = 16;

/// Walks the data of one command, page by page, joining pages that follow each other into one [`Segment`].
///
/// The host may be wrong or malicious: every entry is checked, and the walk ends after `len` bytes whatever the lists say.
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
    /// Begins a walk over `len` bytes. Refuses a PRP1 that is not dword aligned, a second page with an offset, and a
    /// list that is not qword aligned: PRP Offset Invalid (Base 4.3.1).
    #[inline]
    pub fn new(dptr: Dptr, len: u64, page: PageSize) -> Result<Walker, Status> {
        let first = len.min(page.left_in_page(dptr.prp1));
        let left = len - first;
        let list = left > page.bytes();
        let prp2_offset = if list { dptr.prp2 & (ENTRY_LEN - 1) } else { dptr.prp2 & page.mask() };
        if dptr.prp1 & 3 != 0 || (left > 0 && prp2_offset != 0) {
            return Err(Status::PRP_OFFSET_INVALID.with_dnr());
        }
        Ok(Walker { page, pending: Segment { addr: dptr.prp1, len: first }, left, rest: Rest::Prp2(dptr.prp2) })
    }

    /// The next segment, `None` after the last. `fetch(addr, into)` reads a piece of a PRP list, which never crosses a
    /// page; if it fails the command ends with Data Transfer Error.
    ///
    /// After an error the walk is over.
    #[inline]
    pub fn next<E>(&mut self, fetch: impl FnMut(u64, &mut [u8]) -> Result<(), E>) -> Result<Option<Segment>, Status> {
        let segment = std::mem::take(&mut self.pending);
        if self.left == 0 {
            return Ok((segment.len != 0).then_some(segment));
        }
        self.grow(segment, fetch).map(Some)
    }

    /// Adds pages to `segment` as long as they follow it; the first that does not becomes pending.
    fn grow<E>(&mut self, mut segment: Segment, mut fetch: impl FnMut(u64, &mut [u8]) -> Result<(), E>) -> Result<Segment, Status> {
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
    fn next<E>(&mut self, left: u64, page: PageSize, fetch: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>) -> Result<u64, Status> {
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
            // More than one page of data is left, so the last slot is a pointer. A page of the list has at least 512
            // slots: this loop turns at most twice.
            (self.at, self.taken, self.fetched) = (entry, 0, 0);
        }
    }

    /// Reads as many entries as are needed, the list's page has, and fit.
    fn fetch<E>(&mut self, left: u64, page: PageSize, fetch: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>) -> Result<(), Status> {
        let in_page = page.left_in_page(self.at) / ENTRY_LEN;
        let wanted = (page.number(left - 1) + 1).min(in_page).min(FETCH as u64) as usize;
        fetch(self.at, self.entries[..wanted].as_mut_bytes()).map_err(|_| Status::DATA_TRANSFER_ERROR)?;
        (self.taken, self.fetched) = (0, wanted);
        Ok(())
    }
}
