//! The host's half: PRPs for a buffer.

use super::{Dptr, ENTRY_LEN, PageSize, Segment};

/// Why there are no PRPs for a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// There is nothing to point to.
    #[error("an empty buffer has no PRPs; a command without data takes Dptr::NONE")]
    Empty,
    /// PRP1 must be dword aligned, and a list qword aligned.
    #[error("address {addr:#x} is not a multiple of {align}, as a PRP has to be")]
    Unaligned {
        /// The address.
        addr: u64,
        /// What it has to be a multiple of.
        align: u64,
    },
    /// The buffer or the list passes the end of the address space.
    #[error("{len:#x} bytes at bus address {addr:#x} pass the end of the address space", addr = .0.addr, len = .0.len)]
    Wraps(Segment),
    /// More pages than the list memory holds entries for.
    #[error("a PRP list of {need} bytes does not fit the {got} bytes set aside for it: make the transfer smaller")]
    ListTooShort {
        /// Bytes that the list takes.
        need: u64,
        /// Bytes given.
        got: u64,
    },
}

/// How many bytes of list memory, from the start of a page, suffice for any buffer of `len` bytes, wherever it begins.
/// 0: it never takes a list.
pub fn list_len(len: u64, page: PageSize) -> u64 {
    // At worst the buffer begins with the last dword of a page.
    let pages_after_first = len.saturating_sub(4).div_ceil(page.bytes());
    if pages_after_first < 2 { 0 } else { slots(pages_after_first, page.bytes() / ENTRY_LEN, page).saturating_mul(ENTRY_LEN) }
}

/// The data pointer for `buffer`, which is contiguous in bus addresses. Buffers of more than two pages take a list in
/// `list`, memory that is contiguous too and that the command owns until it completes; `put(addr, entry)` stores an entry
/// there, little-endian.
///
/// [`list_len`] says how large `list` has to be. For one or two pages this is [`Dptr::short`] and stores nothing.
#[inline]
pub fn build(buffer: Segment, page: PageSize, list: Segment, put: impl FnMut(u64, u64)) -> Result<Dptr, BuildError> {
    match Dptr::short(buffer.addr, buffer.len, page) {
        Some(dptr) => Ok(dptr),
        None => build_list(buffer, page, list, put),
    }
}

#[inline(never)]
fn build_list(buffer: Segment, page: PageSize, list: Segment, mut put: impl FnMut(u64, u64)) -> Result<Dptr, BuildError> {
    if buffer.len == 0 {
        return Err(BuildError::Empty);
    }
    check_aligned(buffer.addr, 4)?;
    check_aligned(list.addr, ENTRY_LEN)?;
    let last = last_byte(buffer)?;
    let data_entries = page.number(last) - page.number(buffer.addr);
    let need = slots(data_entries, page.left_in_page(list.addr) / ENTRY_LEN, page).saturating_mul(ENTRY_LEN);
    if need > list.len {
        return Err(BuildError::ListTooShort { need, got: list.len });
    }
    last_byte(list)?;

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

fn check_aligned(addr: u64, align: u64) -> Result<(), BuildError> {
    if addr.is_multiple_of(align) { Ok(()) } else { Err(BuildError::Unaligned { addr, align }) }
}

/// The address of the last byte of a run that is not empty.
fn last_byte(run: Segment) -> Result<u64, BuildError> {
    run.addr.checked_add(run.len - 1).ok_or(BuildError::Wraps(run))
}

/// Slots that a list of `entries` data entries takes if its first page has `first_page` slots: one more for each page
/// that it chains to.
fn slots(entries: u64, first_page: u64, page: PageSize) -> u64 {
    let per_page = page.bytes() / ENTRY_LEN;
    if entries <= first_page {
        return entries;
    }
    let beyond = entries - (first_page - 1);
    entries + 1 + beyond.saturating_sub(per_page).div_ceil(per_page - 1)
}
