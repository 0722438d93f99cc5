//! One file of another process: mapped where its pages stay, else read and written by system calls.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, fence};

use rustix::fs::{FileType, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Which file: device and inode.
pub(super) type FileKey = (u64, u64);

/// Which file it is, and its bytes.
pub(super) fn examine(file: &OwnedFd) -> io::Result<(FileKey, u64)> {
    let stat = fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(((stat.st_dev, stat.st_ino), u64::try_from(stat.st_size).unwrap_or(0)))
}

/// A file, from its first byte on.
#[derive(Debug)]
pub(super) struct GuestFile {
    bytes: u64,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Mapped { memory: NonNull<u8>, writable: bool },
    Calls(File),
}

impl GuestFile {
    /// The first `bytes` bytes of a file that has as many. `mapped`: map it, since its pages stay, or its owner is trusted not to take any away.
    pub(super) fn new(file: OwnedFd, bytes: u64, mapped: bool) -> GuestFile {
        let way = if mapped { map(&file, bytes) } else { None }.unwrap_or_else(|| Way::Calls(file.into()));
        GuestFile { bytes, way }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is mapped.
    #[cfg(test)]
    pub(super) fn is_mapped(&self) -> bool {
        matches!(self.way, Way::Mapped { .. })
    }

    /// Where `len` bytes from `at` on are, if all of them are in the mapping.
    fn within(&self, memory: NonNull<u8>, at: u64, len: u64) -> Option<NonNull<u8>> {
        at.checked_add(len).filter(|end| *end <= self.bytes)?;
        // SAFETY: the mapping has `bytes` bytes, of which the first of the range is one, or one past the last if the range is empty.
        Some(unsafe { memory.add(at as usize) })
    }

    /// Copies out of it. False: it cannot be.
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> bool {
        match &self.way {
            Way::Calls(file) => file.read_exact_at(into, at).is_ok(),
            Way::Mapped { memory, .. } => {
                let Some(from) = self.within(*memory, at, into.len() as u64) else { return false };
                // SAFETY: `within` has checked the range, which is mapped as long as `self` lives, and whose file cannot lose
                // pages, or its owner is trusted not to. `into`, being a `&mut`, does not overlap it: no reference into the mapping exists. The guest may write to it
                // meanwhile; any bytes are bytes.
                unsafe { ptr::copy_nonoverlapping(from.as_ptr().cast_const(), into.as_mut_ptr(), into.len()) };
                true
            }
        }
    }

    /// Copies into it. False: it cannot be.
    pub(super) fn write(&self, at: u64, from: &[u8]) -> bool {
        match &self.way {
            Way::Calls(file) => file.write_all_at(from, at).is_ok(),
            Way::Mapped { writable: false, .. } => false,
            Way::Mapped { memory, .. } => {
                let Some(to) = self.within(*memory, at, from.len() as u64) else { return false };
                // SAFETY: as of `read`; the mapping can be written to, and `from` does not overlap it.
                unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
                true
            }
        }
    }

    /// Loads words from a multiple of 8.
    pub(super) fn load<const WORDS: usize>(&self, at: u64) -> Option<[u64; WORDS]> {
        match &self.way {
            Way::Calls(file) => {
                let mut words = [0; WORDS];
                for (n, word) in words.iter_mut().enumerate() {
                    let mut bytes = [0; 8];
                    file.read_exact_at(&mut bytes, at + 8 * n as u64).ok()?;
                    *word = u64::from_ne_bytes(bytes);
                }
                Some(words)
            }
            Way::Mapped { memory, .. } => {
                let first = self.within(*memory, at, 8 * WORDS as u64).filter(|first| first.cast::<u64>().is_aligned())?.cast::<u64>();
                // SAFETY: `within` has checked the range, the address is aligned, and no reference into the mapping exists.
                let words = std::array::from_fn(|n| unsafe { first.add(n).read_volatile() });
                // What the guest had written before it announced the entry is visible after this.
                fence(Ordering::Acquire);
                Some(words)
            }
        }
    }

    /// Loads half a word from a multiple of 4, as an acquire.
    pub(super) fn load_half(&self, at: u64) -> Option<u32> {
        let half = match &self.way {
            Way::Calls(file) => {
                let mut bytes = [0; 4];
                file.read_exact_at(&mut bytes, at).ok()?;
                u32::from_ne_bytes(bytes)
            }
            Way::Mapped { memory, .. } => {
                let place = self.within(*memory, at, 4).filter(|place| place.cast::<u32>().is_aligned())?.cast::<u32>();
                // SAFETY: `within` has checked the range, the address is aligned, and no reference into the mapping exists.
                unsafe { place.read_volatile() }
            }
        };
        // What the guest had written before it is visible after this.
        fence(Ordering::Acquire);
        Some(half)
    }

    /// Stores half a word at a multiple of 4. False: it cannot be.
    pub(super) fn store_half(&self, at: u64, half: u32) -> bool {
        fence(Ordering::Release);
        match &self.way {
            Way::Calls(file) => file.write_all_at(&half.to_ne_bytes(), at).is_ok(),
            Way::Mapped { writable: false, .. } => false,
            Way::Mapped { memory, .. } => {
                let Some(place) = self.within(*memory, at, 4).filter(|place| place.cast::<u32>().is_aligned()) else { return false };
                // SAFETY: `within` has checked the range, the address is aligned, the mapping can be written to, and no reference into it
                // exists.
                unsafe { place.cast::<u32>().write_volatile(half) };
                true
            }
        }
    }

    /// Stores two words at a multiple of 8, the second as a release, and of it bits 48 to 55, the phase tag's, not before the others. False: it
    /// cannot be.
    pub(super) fn store(&self, at: u64, words: [u64; 2]) -> bool {
        match &self.way {
            Way::Calls(file) => {
                let bytes = [words[0].to_ne_bytes(), words[1].to_ne_bytes()].concat();
                // The system copies bytes in no promised order: the one with the phase tag has a call of its own.
                let parts = [(0, bytes.get(..14)), (15, bytes.get(15..)), (14, bytes.get(14..15))];
                parts.iter().all(|(from, part)| {
                    fence(Ordering::SeqCst);
                    part.is_some_and(|part| file.write_all_at(part, at + from).is_ok())
                })
            }
            Way::Mapped { writable: false, .. } => false,
            Way::Mapped { memory, .. } => {
                let Some(first) = self.within(*memory, at, 16).filter(|first| first.cast::<u64>().is_aligned()) else { return false };
                let first = first.cast::<u64>();
                // SAFETY: `within` has checked both words, the address is aligned, the mapping can be written to, and no reference into it
                // exists.
                unsafe { first.write_volatile(words[0]) };
                fence(Ordering::Release);
                // SAFETY: as above.
                unsafe { first.add(1).write_volatile(words[1]) };
                true
            }
        }
    }
}

/// Maps a file, for writing too if it can be.
fn map(file: &OwnedFd, bytes: u64) -> Option<Way> {
    let len = usize::try_from(bytes).ok().filter(|len| *len > 0 && isize::try_from(*len).is_ok())?;
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    let at = |protection| {
        // SAFETY: a mapping at an address of the kernel's choice replaces nothing.
        unsafe { mmap(ptr::null_mut(), len, protection, flags, file, 0) }.ok().and_then(|memory| NonNull::new(memory.cast::<u8>()))
    };
    match at(ProtFlags::READ | ProtFlags::WRITE) {
        Some(memory) => Some(Way::Mapped { memory, writable: true }),
        None => at(ProtFlags::READ).map(|memory| Way::Mapped { memory, writable: false }),
    }
}

impl Drop for GuestFile {
    fn drop(&mut self) {
        if let Way::Mapped { memory, .. } = &self.way {
            // SAFETY: the mapping was made with this size, and nothing points into it.
            let unmapped = unsafe { munmap(memory.as_ptr().cast::<c_void>(), self.bytes as usize) };
            debug_assert!(unmapped.is_ok());
        }
    }
}
