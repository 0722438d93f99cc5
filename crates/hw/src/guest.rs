//! Memory of another process, by descriptors that it hands over: what a device reaches of a guest.
//!
//! The other process can do what it likes with its memory, and is not trusted. No reference is ever made into it: each access is a copy, or
//! the volatile load or store of a word. Every range is checked against the ranges that are mapped at that instant, and no address is kept
//! across a change. A file whose pages its owner can take away is mapped only where that owner is trusted, because touching what is gone would be a
//! signal: any other such file is read and written by system calls.

mod file;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

pub use file::DoorbellFile;
use file::GuestFile;
use nvme::BusError;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::mapping::{FileKey, PageLoss, examine, keeps_pages};

/// Ranges begin and end at multiples of this.
const PAGE: u64 = 4096;

/// Why a range could not be mapped or unmapped.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// It makes no sense, or its file cannot be memory of this guest.
    #[error("{0}")]
    Refused(String),
    /// Some of it is mapped already.
    #[error("{bytes:#x} bytes at address {addr:#x} overlap what is mapped at {other:#x}")]
    Overlap {
        /// First byte.
        addr: u64,
        /// Bytes.
        bytes: u64,
        /// First byte of the range that is in the way.
        other: u64,
    },
    /// More ranges than are kept.
    #[error("{} ranges are mapped, and no more can be", GuestMemory::MOST_RANGES)]
    Full,
}

impl GuestError {
    fn shape(addr: u64, bytes: u64, offset: u64) -> GuestError {
        GuestError::Refused(format!(
            "{bytes:#x} bytes at address {addr:#x}, offset {offset:#x}, are no whole pages of an address space of 64 bits"
        ))
    }
}

/// What the device may do with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Read it.
    pub read: bool,
    /// Write to it.
    pub write: bool,
}

/// Where a range of bus addresses lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestRange {
    /// Bus address of its first byte.
    pub addr: u64,
    /// Bytes.
    pub bytes: u64,
    /// What the device may do with it.
    pub rights: Rights,
}

/// A piece of a range, in one place.
enum Piece<'a> {
    /// In a file, from this byte on.
    File(&'a GuestFile, u64),
    /// It has this address, and no memory that can be reached here.
    Elsewhere(u64),
}

#[derive(Debug)]
struct Mapped {
    bytes: u64,
    rights: Rights,
    /// The memory, and where in it the range begins. `None`: it has an address and nothing that can be reached.
    memory: Option<(Rc<GuestFile>, u64)>,
}

/// The bus addresses of one guest, and the memory behind them. It belongs to one thread.
#[derive(Debug, Default)]
pub struct GuestMemory {
    ranges: BTreeMap<u64, Mapped>,
    /// Files with ranges, so that many ranges of one file are one mapping of it.
    files: HashMap<FileKey, Weak<GuestFile>>,
    /// Files are mapped although their owner could take pages away.
    trusts: bool,
}

impl GuestMemory {
    /// From now on files are mapped although their owner could shorten them or take pages away, or may lack pages: touching what is not there ends
    /// this process by a signal (SIGBUS). For owners that are trusted, and whose memory is not sealed, or is huge pages, which seals do not keep.
    pub fn trust(&mut self) {
        self.trusts = true;
    }

    /// Ranges at one time, at most. An IOMMU in the guest makes one of each page.
    pub const MOST_RANGES: usize = 65_535;

    /// Maps a range: of the file from `offset` on, or, without a file, of nothing that can be reached.
    ///
    /// # Errors
    /// See [`GuestError`]; then nothing has changed.
    pub fn map(&mut self, range: GuestRange, file: Option<(OwnedFd, u64)>) -> Result<(), GuestError> {
        let GuestRange { addr, bytes, rights } = range;
        let offset = file.as_ref().map_or(0, |(_, offset)| *offset);
        let Some(end) = addr.checked_add(bytes).filter(|_| bytes > 0 && (addr | bytes | offset).is_multiple_of(PAGE)) else {
            return Err(GuestError::shape(addr, bytes, offset));
        };
        if let Some((&other, _)) = self.ranges.range(..end).next_back().filter(|(other, mapped)| *other + mapped.bytes > addr) {
            return Err(GuestError::Overlap { addr, bytes, other });
        }
        if self.ranges.len() >= GuestMemory::MOST_RANGES {
            return Err(GuestError::Full);
        }
        let memory = match file {
            None => None,
            Some((file, offset)) => {
                let needed = offset.checked_add(bytes).ok_or_else(|| GuestError::shape(addr, bytes, offset))?;
                Some((self.file(file, needed)?, offset))
            }
        };
        self.ranges.insert(addr, Mapped { bytes, rights, memory });
        Ok(())
    }

    /// The file of this descriptor, of at least this many bytes: as it is reached already, or anew.
    fn file(&mut self, file: OwnedFd, needed: u64) -> Result<Rc<GuestFile>, GuestError> {
        // Before its size.
        let pages = keeps_pages(&file);
        let unknown = |error: io::Error| GuestError::Refused(format!("the descriptor is no memory: {error}"));
        let (key, size) = examine(&file).map_err(unknown)?;
        if needed > size {
            return Err(GuestError::Refused(format!("the file has {size:#x} bytes, and the range needs {needed:#x}")));
        }
        if let Some(known) = self.files.get(&key).and_then(Weak::upgrade).filter(|known| known.bytes >= needed) {
            return Ok(known);
        }
        // They cannot be written to by calls either.
        if pages == Err(PageLoss::HugePages) && !self.trusts {
            let why = "the memory has huge pages, which may run out or be taken away, and that would end this process; `trust=yes` lets its owner";
            return Err(GuestError::Refused(why.into()));
        }
        let memory = Rc::new(GuestFile::new(file, size, self.trusts || pages.is_ok()));
        self.files.retain(|_, file| file.strong_count() > 0);
        self.files.insert(key, Rc::downgrade(&memory));
        Ok(memory)
    }

    /// Unmaps every range that lies in this one. Says how many bytes that was; none is no error.
    ///
    /// # Errors
    /// A range lies in it partly; then nothing has changed.
    pub fn unmap(&mut self, addr: u64, bytes: u64) -> Result<u64, GuestError> {
        let end = addr.checked_add(bytes).ok_or_else(|| GuestError::shape(addr, bytes, 0))?;
        let cut = |other: u64| {
            GuestError::Refused(format!("unmapping {bytes:#x} bytes at address {addr:#x} would cut the range at {other:#x} in two"))
        };
        if let Some((&other, _)) = self.ranges.range(..addr).next_back().filter(|(other, mapped)| *other + mapped.bytes > addr && bytes > 0)
        {
            return Err(cut(other));
        }
        let within: Vec<(u64, u64)> = self.ranges.range(addr..end).map(|(addr, mapped)| (*addr, mapped.bytes)).collect();
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

    /// Copies out of the guest's memory. `elsewhere` reads what was mapped without a file, if it can: from this address on.
    ///
    /// # Errors
    /// Not all of the range can be read; some of it may have been.
    #[inline]
    pub fn read(&self, addr: u64, into: &mut [u8], mut elsewhere: impl FnMut(u64, &mut [u8]) -> bool) -> Result<(), BusError> {
        let mut rest = into;
        self.each_piece(addr, rest.len() as u64, Rights { read: true, write: false }, |piece, len| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(len);
            rest = later;
            match piece {
                Piece::File(file, at) => file.read(at, now),
                Piece::Elsewhere(at) => elsewhere(at, now),
            }
        })
    }

    /// Copies into the guest's memory. `elsewhere` writes what was mapped without a file, if it can: from this address on.
    ///
    /// # Errors
    /// Not all of the range can be written to; some of it may have been.
    #[inline]
    pub fn write(&self, addr: u64, from: &[u8], mut elsewhere: impl FnMut(u64, &[u8]) -> bool) -> Result<(), BusError> {
        let mut rest = from;
        self.each_piece(addr, rest.len() as u64, Rights { read: false, write: true }, |piece, len| {
            let (now, later) = rest.split_at(len);
            rest = later;
            match piece {
                Piece::File(file, at) => file.write(at, now),
                Piece::Elsewhere(at) => elsewhere(at, now),
            }
        })
    }

    /// Whether all of a range can be reached so. `elsewhere` says whether what was mapped without a file can be.
    pub fn check(&self, addr: u64, len: u64, rights: Rights, elsewhere: impl Fn() -> bool) -> Result<(), BusError> {
        self.each_piece(addr, len, rights, |piece, _| matches!(piece, Piece::File(..)) || elsewhere())
    }

    /// The words of a queue entry, or a doorbell that the guest keeps in memory, after whatever announced it: an acquire.
    ///
    /// # Errors
    /// It cannot be read, or does not lie, aligned to a word, in one range.
    pub fn load<T: FromBytes + IntoBytes + Copy, const N: usize>(&self, addr: u64) -> Result<[T; N], BusError> {
        let len = size_of::<[T; N]>() as u64;
        let found = self.words::<T>(addr, len, Rights { read: true, write: false });
        found.and_then(|(file, at)| file.load(at)).ok_or(BusError { addr, len })
    }

    /// Stores what the guest reads beside a doorbell of its own, or the two words of a completion queue entry: each as a release, and of the
    /// entry the byte with the phase tag (bits 48 to 55 of the second word) not before the others.
    ///
    /// # Errors
    /// It cannot be written to, or does not lie, aligned to a word, in one range.
    pub fn store<T: IntoBytes + Immutable + Copy, const N: usize>(&self, addr: u64, words: [T; N]) -> Result<(), BusError> {
        let len = size_of::<[T; N]>() as u64;
        let found = self.words::<T>(addr, len, Rights { read: false, write: true });
        found.and_then(|(file, at)| file.store(at, words).then_some(())).ok_or(BusError { addr, len })
    }

    /// The file at an address, and where in it, if all of these words are there in one piece.
    fn words<T>(&self, addr: u64, len: u64, rights: Rights) -> Option<(&GuestFile, u64)> {
        match self.piece(addr, rights).filter(|_| addr.is_multiple_of(size_of::<T>() as u64))? {
            (Piece::File(file, at), there) if there >= len => Some((file, at)),
            _ => None,
        }
    }

    /// What is at an address, and how many bytes there are in one piece.
    #[inline]
    fn piece(&self, addr: u64, rights: Rights) -> Option<(Piece<'_>, u64)> {
        let (first, mapped) = self.ranges.range(..=addr).next_back()?;
        let within = addr - first;
        let allowed = within < mapped.bytes && (mapped.rights.read || !rights.read) && (mapped.rights.write || !rights.write);
        let piece = match &mapped.memory {
            _ if !allowed => return None,
            Some((file, offset)) => Piece::File(file, offset + within),
            None => Piece::Elsewhere(addr),
        };
        Some((piece, mapped.bytes - within))
    }

    /// Calls `act` for each piece of a range, with its length, as long as it says that it could.
    #[inline]
    fn each_piece<'a>(
        &'a self,
        addr: u64,
        len: u64,
        rights: Rights,
        mut act: impl FnMut(Piece<'a>, usize) -> bool,
    ) -> Result<(), BusError> {
        let refused = BusError { addr, len };
        let end = addr.checked_add(len).ok_or(refused)?;
        let mut at = addr;
        while at < end {
            let (piece, there) = self.piece(at, rights).ok_or(refused)?;
            let now = there.min(end - at);
            if !act(piece, now as usize) {
                return Err(refused);
            }
            at += now;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
