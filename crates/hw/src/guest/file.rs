//! One file of another process: mapped where its pages stay, else read and written by system calls.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, fence};

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::mapping::{Mapping, sealed_memfd};

/// A file, from its first byte on.
#[derive(Debug)]
pub(super) struct GuestFile {
    pub(super) bytes: u64,
    pub(super) access: Access,
}

#[derive(Debug)]
pub(super) enum Access {
    Mapped { mapping: Mapping, writable: bool },
    Calls(File),
}

impl GuestFile {
    /// The first `bytes` bytes of a file that has as many. `mapped`: map it, since its pages stay, or its owner is trusted not to take any away.
    pub(super) fn new(file: OwnedFd, bytes: u64, mapped: bool) -> GuestFile {
        let len = usize::try_from(bytes).ok().filter(|len| mapped && *len > 0 && isize::try_from(*len).is_ok());
        let map = |access| Mapping::shared(&file, 0, len?, access, MapFlags::NORESERVE).ok();
        let mapped = map(Mapping::READ_WRITE).map(|mapping| (mapping, true));
        let access = match mapped.or_else(|| map(ProtFlags::READ).map(|mapping| (mapping, false))) {
            Some((mapping, writable)) => Access::Mapped { mapping, writable },
            None => Access::Calls(file.into()),
        };
        GuestFile { bytes, access }
    }

    /// Where `len` bytes from `at` on are, if all of them are in the mapping, and they are aligned to `alignment`.
    fn within(&self, mapping: &Mapping, at: u64, len: usize, alignment: usize) -> Option<NonNull<u8>> {
        at.checked_add(len as u64).filter(|end| *end <= self.bytes)?;
        // SAFETY: the mapping has `bytes` bytes, of which the first of the range is one, or one past the last if the range is empty.
        let place = unsafe { mapping.at.add(at as usize) };
        place.addr().get().is_multiple_of(alignment).then_some(place)
    }

    /// Copies out of it. False: it cannot be.
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> bool {
        match &self.access {
            Access::Calls(file) => file.read_exact_at(into, at).is_ok(),
            Access::Mapped { mapping, .. } => {
                let Some(from) = self.within(mapping, at, into.len(), 1) else { return false };
                // SAFETY: `within` has checked the range, which is mapped as long as `self` lives, and whose file cannot lose
                // pages, or its owner is trusted not to. `into`, being a `&mut`, does not overlap it: no reference into the mapping exists.
                // The guest may write to it meanwhile; any bytes are bytes.
                unsafe { ptr::copy_nonoverlapping(from.as_ptr().cast_const(), into.as_mut_ptr(), into.len()) };
                true
            }
        }
    }

    /// Copies into it. False: it cannot be.
    pub(super) fn write(&self, at: u64, from: &[u8]) -> bool {
        match &self.access {
            Access::Calls(file) => file.write_all_at(from, at).is_ok(),
            Access::Mapped { writable: false, .. } => false,
            Access::Mapped { mapping, .. } => {
                let Some(to) = self.within(mapping, at, from.len(), 1) else { return false };
                // SAFETY: as of `read`; the mapping can be written to, and `from` does not overlap it.
                unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
                true
            }
        }
    }

    /// Loads words from a multiple of their size, as an acquire.
    pub(super) fn load<T: FromBytes + IntoBytes + Copy, const N: usize>(&self, at: u64) -> Option<[T; N]> {
        let mut words = [T::new_zeroed(); N];
        match &self.access {
            Access::Calls(file) => {
                for (n, word) in words.iter_mut().enumerate() {
                    file.read_exact_at(word.as_mut_bytes(), at + (n * size_of::<T>()) as u64).ok()?;
                }
            }
            Access::Mapped { mapping, .. } => {
                let first = self.within(mapping, at, size_of::<[T; N]>(), align_of::<T>())?.cast::<T>();
                // SAFETY: `within` has checked the range and the alignment, and no reference into the mapping exists.
                words = std::array::from_fn(|n| unsafe { first.add(n).read_volatile() });
            }
        }
        // What the guest had written before it announced them is visible after this.
        fence(Ordering::Acquire);
        Some(words)
    }

    /// Stores words at a multiple of their size, each as a release; of a second word of 64 bits, bits 48 to 55, the phase tag's, not before
    /// the others. False: it cannot be.
    pub(super) fn store<T: IntoBytes + Copy + Immutable, const N: usize>(&self, at: u64, words: [T; N]) -> bool {
        match &self.access {
            Access::Calls(file) => {
                let bytes = words.as_bytes();
                // The system copies bytes in no promised order: the one with the phase tag has a call of its own, which comes last.
                let tag = bytes.len().min(14);
                let behind = bytes.len().min(15);
                [0..tag, behind..bytes.len(), tag..behind].into_iter().all(|part| {
                    fence(Ordering::SeqCst);
                    file.write_all_at(&bytes[part.clone()], at + part.start as u64).is_ok()
                })
            }
            Access::Mapped { writable: false, .. } => false,
            Access::Mapped { mapping, .. } => {
                let Some(first) = self.within(mapping, at, size_of::<[T; N]>(), align_of::<T>()) else { return false };
                for (n, word) in words.into_iter().enumerate() {
                    fence(Ordering::Release);
                    // SAFETY: `within` has checked the range and the alignment, the mapping can be written to, and no reference into it
                    // exists.
                    unsafe { first.cast::<T>().add(n).write_volatile(word) };
                }
                true
            }
        }
    }
}

/// Doorbells that a guest maps: a memory file of the device's, which the guest gets a descriptor of. Nobody can shorten or lengthen it, and
/// whoever has the descriptor may write any of its words at any time.
#[derive(Debug)]
pub struct DoorbellFile {
    file: OwnedFd,
    memory: GuestFile,
}

impl DoorbellFile {
    /// One of this many bytes, all zero.
    pub fn new(bytes: u64) -> io::Result<DoorbellFile> {
        let file = sealed_memfd("reap-doorbells", bytes, MemfdFlags::empty())?;
        let memory = GuestFile::new(file.try_clone()?, bytes, true);
        Ok(DoorbellFile { file, memory })
    }

    /// The word at a multiple of 4, as an acquire; 0 where there is none.
    #[inline]
    pub fn load(&self, offset: u32) -> u32 {
        self.memory.load(offset.into()).map_or(0, |[word]| word)
    }

    /// Stores a word at a multiple of 4, as a release. Where there is none nothing happens.
    #[inline]
    pub fn store(&self, offset: u32, value: u32) {
        self.memory.store(offset.into(), [value]);
    }
}

/// What the guest gets.
impl AsFd for DoorbellFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
