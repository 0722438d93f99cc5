//! Physical Region Pages: where the data of a command are (Base 4.3.1).
//!
//! A PRP entry is the address of a memory page, of the size that CC.MPS says, with an offset in the first entry only.
//! PRP1 is the first page. PRP2 is the second and last page or, if there are more, the address of a *PRP list*: the
//! entries for the second and later pages. The last slot of a page of the list points to the next page of the list,
//! unless one entry remains, which then stands in it.
//!
//! The host calls [`build`], the controller drives a [`Walker`]. Neither allocates.

mod build;
mod walk;

pub use build::{BuildError, build, list_len};
pub use walk::Walker;

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

    /// The pointer to `len` bytes at bus address `addr` if they touch one or two pages and so need no list. `None`:
    /// they touch more, or are nothing that [`build`] accepts either.
    #[inline]
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
    #[inline]
    pub const fn from_mps(mps: u8) -> PageSize {
        PageSize { bytes: 4096 << (mps & 0xf) }
    }

    /// Bytes.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self.bytes
    }

    /// The bits of an address that are the offset in a page.
    #[inline]
    const fn mask(self) -> u64 {
        self.bytes - 1
    }

    /// Which page an address is in.
    #[inline]
    const fn number(self, addr: u64) -> u64 {
        addr >> self.bytes.trailing_zeros()
    }

    /// From an address to the end of its page.
    #[inline]
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

#[cfg(test)]
mod tests;
