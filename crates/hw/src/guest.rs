//! The memory of a guest: another process that passes file descriptors of its memory, which an
//! emulated controller then reads and writes.
//!
//! The guest is not trusted, and may change its memory at any time. No Rust reference into it is
//! ever made: each access is a copy, or a volatile load or store of a word. Every access is checked
//! against the ranges that are mapped at that moment, and no address is kept across a change of the
//! map. A file whose pages the guest can take away is mapped only if the guest is trusted, because
//! touching a missing page raises SIGBUS; otherwise it is accessed by system calls.
//!
//! ```text
//! bus address --ranges--> GuestFile + offset --+-- mapped: copy, volatile words
//!                     \                        +-- not mapped: pread, pwrite
//!                      +-> range without a file: callback (DMA_READ, DMA_WRITE messages)
//! ```

mod file;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

pub use file::DoorbellFile;
use file::GuestFile;
use nvme::BusError;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::mapping::{FileKey, PageLoss, file_key_and_size, keeps_pages};

/// Ranges are aligned to this.
const PAGE: u64 = 4096;

/// Why a range could not be mapped or unmapped.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The range is malformed, or its file cannot be guest memory.
    #[error("{0}")]
    Refused(String),
    /// The range overlaps a mapped range.
    #[error("{bytes:#x} bytes at address {addr:#x} overlap what is mapped at {other:#x}")]
    Overlap {
        /// First byte.
        addr: u64,
        /// Bytes.
        bytes: u64,
        /// First byte of the range that it overlaps.
        other: u64,
    },
    /// There are [`GuestMemory::MAX_RANGES`] ranges already.
    #[error("{} ranges are mapped, which is the maximum", GuestMemory::MAX_RANGES)]
    Full,
}

impl GuestError {
    fn shape(addr: u64, bytes: u64, offset: u64) -> GuestError {
        GuestError::Refused(format!(
            "{bytes:#x} bytes at address {addr:#x}, offset {offset:#x}, are not whole pages of a 64-bit address space"
        ))
    }
}

/// Which accesses the device may make to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The device may read the range.
    pub read: bool,
    /// The device may write to the range.
    pub write: bool,
}

/// A range of bus addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestRange {
    /// Bus address of its first byte.
    pub addr: u64,
    /// Bytes.
    pub bytes: u64,
    /// What the device may do with it.
    pub rights: Rights,
}

/// Consecutive bytes within one range.
enum Segment<'a> {
    /// Bytes in this file, from this offset on.
    File(&'a GuestFile, u64),
    /// Bytes in a range without a file, at this bus address.
    Elsewhere(u64),
}

#[derive(Debug)]
struct Mapped {
    bytes: u64,
    rights: Rights,
    /// The file, and the offset of the range in it. `None`: the range has no file, only an address.
    memory: Option<(Rc<GuestFile>, u64)>,
}

/// The bus addresses of one guest, and the files behind them. Used by one thread only (`Rc`).
#[derive(Debug, Default)]
pub struct GuestMemory {
    ranges: BTreeMap<u64, Mapped>,
    /// Open files by identity: many ranges of one file share one mapping.
    files: HashMap<FileKey, Weak<GuestFile>>,
    /// Map files even if the guest could take pages away.
    trusted: bool,
}

impl GuestMemory {
    /// Trusts the guest: maps files even if the guest could truncate them or take pages away.
    /// Touching a missing page then ends this process (SIGBUS). For trusted guests whose memory is
    /// not sealed, or consists of huge pages, which seals do not protect.
    pub fn trust(&mut self) {
        self.trusted = true;
    }

    /// Limit on mapped ranges. A guest with an IOMMU makes one per page.
    pub const MAX_RANGES: usize = 65_535;

    /// Maps a range to a file from `offset` on. Without a file, accesses to the range go through
    /// the callback of [`GuestMemory::read`] and [`GuestMemory::write`].
    ///
    /// # Errors
    /// See [`GuestError`]. After an error nothing has changed.
    pub fn map(
        &mut self,
        range: GuestRange,
        file: Option<(OwnedFd, u64)>,
    ) -> Result<(), GuestError> {
        let GuestRange { addr, bytes, rights } = range;
        let offset = file.as_ref().map_or(0, |(_, offset)| *offset);
        let Some(end) = addr
            .checked_add(bytes)
            .filter(|_| bytes > 0 && (addr | bytes | offset).is_multiple_of(PAGE))
        else {
            return Err(GuestError::shape(addr, bytes, offset));
        };
        // Ranges do not overlap each other, so only the last one that begins before `end` can
        // overlap this one.
        if let Some((&other, _)) = self
            .ranges
            .range(..end)
            .next_back()
            .filter(|(other, mapped)| *other + mapped.bytes > addr)
        {
            return Err(GuestError::Overlap { addr, bytes, other });
        }
        if self.ranges.len() >= GuestMemory::MAX_RANGES {
            return Err(GuestError::Full);
        }
        let memory = match file {
            None => None,
            Some((file, offset)) => {
                let needed = offset
                    .checked_add(bytes)
                    .ok_or_else(|| GuestError::shape(addr, bytes, offset))?;
                Some((self.file(file, needed)?, offset))
            }
        };
        self.ranges.insert(addr, Mapped { bytes, rights, memory });
        Ok(())
    }

    /// The file of this descriptor, which must have `needed` bytes; shared with other ranges of the
    /// same file.
    fn file(&mut self, file: OwnedFd, needed: u64) -> Result<Rc<GuestFile>, GuestError> {
        // The seals are read before the size; see `keeps_pages`.
        let pages = keeps_pages(&file);
        let unknown = |error: io::Error| {
            GuestError::Refused(format!("the descriptor is not memory: {error}"))
        };
        let (key, size) = file_key_and_size(&file).map_err(unknown)?;
        if needed > size {
            return Err(GuestError::Refused(format!(
                "the file has {size:#x} bytes, and the range needs {needed:#x}"
            )));
        }
        // A file that has grown since it was mapped is mapped again, at its new size.
        if let Some(known) =
            self.files.get(&key).and_then(Weak::upgrade).filter(|known| known.bytes >= needed)
        {
            return Ok(known);
        }
        // hugetlbfs has no write(2) either: there is no fallback.
        if pages == Err(PageLoss::HugePages) && !self.trusted {
            let why = "the memory has huge pages; if they run out or are taken away, an access ends this process; `trust=yes` accepts that";
            return Err(GuestError::Refused(why.into()));
        }
        let memory = Rc::new(GuestFile::new(file, size, self.trusted || pages.is_ok()));
        self.files.retain(|_, file| file.strong_count() > 0);
        self.files.insert(key, Rc::downgrade(&memory));
        Ok(memory)
    }

    /// Unmaps all ranges within this one, and returns the number of bytes unmapped; zero is not an
    /// error.
    ///
    /// # Errors
    /// A mapped range is only partly within it; then nothing has changed.
    pub fn unmap(&mut self, addr: u64, bytes: u64) -> Result<u64, GuestError> {
        let end = addr.checked_add(bytes).ok_or_else(|| GuestError::shape(addr, bytes, 0))?;
        let cut = |other: u64| {
            GuestError::Refused(format!(
                "unmapping {bytes:#x} bytes at address {addr:#x} would split the range at {other:#x}"
            ))
        };
        if let Some((&other, _)) = self
            .ranges
            .range(..addr)
            .next_back()
            .filter(|(other, mapped)| *other + mapped.bytes > addr && bytes > 0)
        {
            return Err(cut(other));
        }
        let within: Vec<(u64, u64)> =
            self.ranges.range(addr..end).map(|(addr, mapped)| (*addr, mapped.bytes)).collect();
        if let Some((other, _)) = within.last().filter(|(addr, bytes)| addr + bytes > end) {
            return Err(cut(*other));
        }
        for (addr, _) in &within {
            self.ranges.remove(addr);
        }
        Ok(within.iter().map(|(_, bytes)| bytes).sum())
    }

    /// Unmaps everything.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.files.clear();
    }

    /// Copies from guest memory. `elsewhere` reads bytes of ranges without a file, from the given
    /// address on; it returns false if it cannot.
    ///
    /// # Errors
    /// Not all of the range can be read. A part may have been copied.
    #[inline]
    pub fn read(
        &self,
        addr: u64,
        into: &mut [u8],
        mut elsewhere: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<(), BusError> {
        let mut rest = into;
        self.for_each_segment(
            addr,
            rest.len() as u64,
            Rights { read: true, write: false },
            |segment, len| {
                let (now, later) = std::mem::take(&mut rest).split_at_mut(len);
                rest = later;
                match segment {
                    Segment::File(file, at) => file.read(at, now),
                    Segment::Elsewhere(at) => elsewhere(at, now),
                }
            },
        )
    }

    /// Copies to guest memory. `elsewhere` writes bytes of ranges without a file, from the given
    /// address on; it returns false if it cannot.
    ///
    /// # Errors
    /// Not all of the range can be written. A part may have been written.
    #[inline]
    pub fn write(
        &self,
        addr: u64,
        from: &[u8],
        mut elsewhere: impl FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), BusError> {
        let mut rest = from;
        self.for_each_segment(
            addr,
            rest.len() as u64,
            Rights { read: false, write: true },
            |segment, len| {
                let (now, later) = rest.split_at(len);
                rest = later;
                match segment {
                    Segment::File(file, at) => file.write(at, now),
                    Segment::Elsewhere(at) => elsewhere(at, now),
                }
            },
        )
    }

    /// Checks that all of a range can be accessed with these rights. `elsewhere` says whether
    /// ranges without a file can be.
    pub fn check(
        &self,
        addr: u64,
        len: u64,
        rights: Rights,
        elsewhere: impl Fn() -> bool,
    ) -> Result<(), BusError> {
        self.for_each_segment(addr, len, rights, |segment, _| {
            matches!(segment, Segment::File(..)) || elsewhere()
        })
    }

    /// Loads the words of a queue entry or of a shadow doorbell, then an acquire fence. Later loads
    /// see what the guest wrote before it stored these words.
    ///
    /// # Errors
    /// The words cannot be read, are not aligned to their size, or are not in one range.
    pub fn load<T: FromBytes + IntoBytes + Copy, const N: usize>(
        &self,
        addr: u64,
    ) -> Result<[T; N], BusError> {
        let len = size_of::<[T; N]>() as u64;
        let found = self.words::<T>(addr, len, Rights { read: true, write: false });
        found.and_then(|(file, at)| file.load(at)).ok_or(BusError { addr, len })
    }

    /// Stores an EventIdx, or the two words of a completion queue entry. Each word is a release
    /// store. The entry's byte 14, which has the phase tag, is not written before the other bytes.
    ///
    /// # Errors
    /// The words cannot be written, are not aligned to their size, or are not in one range.
    pub fn store<T: IntoBytes + Immutable + Copy, const N: usize>(
        &self,
        addr: u64,
        words: [T; N],
    ) -> Result<(), BusError> {
        let len = size_of::<[T; N]>() as u64;
        let found = self.words::<T>(addr, len, Rights { read: false, write: true });
        found
            .and_then(|(file, at)| file.store(at, words).then_some(()))
            .ok_or(BusError { addr, len })
    }

    /// The file at an address and the offset in it, if all the words are in one range.
    fn words<T>(&self, addr: u64, len: u64, rights: Rights) -> Option<(&GuestFile, u64)> {
        match self.segment(addr, rights).filter(|_| addr.is_multiple_of(size_of::<T>() as u64))? {
            (Segment::File(file, at), there) if there >= len => Some((file, at)),
            _ => None,
        }
    }

    /// The segment at an address, and the number of bytes up to the end of its range.
    #[inline]
    fn segment(&self, addr: u64, rights: Rights) -> Option<(Segment<'_>, u64)> {
        let (first, mapped) = self.ranges.range(..=addr).next_back()?;
        let within = addr - first;
        let allowed = within < mapped.bytes
            && (mapped.rights.read || !rights.read)
            && (mapped.rights.write || !rights.write);
        let segment = match &mapped.memory {
            _ if !allowed => return None,
            Some((file, offset)) => Segment::File(file, offset + within),
            None => Segment::Elsewhere(addr),
        };
        Some((segment, mapped.bytes - within))
    }

    /// Calls `act` for each segment of a range with its length, until it returns false.
    #[inline]
    fn for_each_segment<'a>(
        &'a self,
        addr: u64,
        len: u64,
        rights: Rights,
        mut act: impl FnMut(Segment<'a>, usize) -> bool,
    ) -> Result<(), BusError> {
        let refused = BusError { addr, len };
        let end = addr.checked_add(len).ok_or(refused)?;
        let mut at = addr;
        while at < end {
            let (segment, there) = self.segment(at, rights).ok_or(refused)?;
            let now = there.min(end - at);
            if !act(segment, now as usize) {
                return Err(refused);
            }
            at += now;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
