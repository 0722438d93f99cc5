//! One file of guest memory. It is mapped if the guest cannot shrink it (F_SEAL_SHRINK), so that an
//! access cannot raise SIGBUS, or if the guest is trusted; otherwise it is accessed with pread(2)
//! and pwrite(2).

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

/// A file of guest memory.
#[derive(Debug)]
pub(super) struct GuestFile {
    pub(super) bytes: u64,
    pub(super) access: Access,
}

#[derive(Debug)]
pub(super) enum Access {
    Mapped { mapping: Mapping, writable: bool },
    Syscalls(File),
}

impl GuestFile {
    /// Opens the first `bytes` bytes of a file. `mapped`: map the file; the caller has checked that
    /// it cannot lose pages, or trusts its owner.
    pub(super) fn new(file: OwnedFd, bytes: u64, mapped: bool) -> GuestFile {
        let len = usize::try_from(bytes)
            .ok()
            .filter(|len| mapped && *len > 0 && isize::try_from(*len).is_ok());
        // A file that is not writable (F_SEAL_WRITE, or opened read-only) is mapped read-only. One
        // that cannot be mapped is accessed by system calls.
        let map = |access| Mapping::shared(&file, 0, len?, access, MapFlags::NORESERVE).ok();
        let mapped = map(Mapping::READ_WRITE).map(|mapping| (mapping, true));
        let access = match mapped.or_else(|| map(ProtFlags::READ).map(|mapping| (mapping, false))) {
            Some((mapping, writable)) => Access::Mapped { mapping, writable },
            None => Access::Syscalls(file.into()),
        };
        GuestFile { bytes, access }
    }

    /// The address of `len` bytes at offset `at`, if they are within the file and aligned to
    /// `alignment`.
    fn within(
        &self,
        mapping: &Mapping,
        at: u64,
        len: usize,
        alignment: usize,
    ) -> Option<NonNull<u8>> {
        at.checked_add(len as u64).filter(|end| *end <= self.bytes)?;
        // SAFETY: the mapping has `bytes` bytes and `at` is at most `bytes`, so the pointer is
        // within the mapping or one past its end.
        let place = unsafe { mapping.at.add(at as usize) };
        place.addr().get().is_multiple_of(alignment).then_some(place)
    }

    /// Copies from the file. Returns false if that is not possible.
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> bool {
        match &self.access {
            Access::Syscalls(file) => file.read_exact_at(into, at).is_ok(),
            Access::Mapped { mapping, .. } => {
                let Some(from) = self.within(mapping, at, into.len(), 1) else { return false };
                // SAFETY: `within` has checked the range, which is mapped as long as `self` lives,
                // and whose file cannot lose pages, or its owner is trusted not to. `into`, being a
                // `&mut`, does not overlap it: no reference into the mapping exists. The guest may
                // write to it at the same time; any bytes are valid `u8`s.
                unsafe {
                    ptr::copy_nonoverlapping(
                        from.as_ptr().cast_const(),
                        into.as_mut_ptr(),
                        into.len(),
                    )
                };
                true
            }
        }
    }

    /// Copies to the file. Returns false if that is not possible.
    pub(super) fn write(&self, at: u64, from: &[u8]) -> bool {
        match &self.access {
            Access::Syscalls(file) => file.write_all_at(from, at).is_ok(),
            Access::Mapped { writable: false, .. } => false,
            Access::Mapped { mapping, .. } => {
                let Some(to) = self.within(mapping, at, from.len(), 1) else { return false };
                // SAFETY: as of `read`; the mapping can be written to, and `from` does not overlap
                // it.
                unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
                true
            }
        }
    }

    /// Loads words from an aligned offset, followed by an acquire fence.
    pub(super) fn load<T: FromBytes + IntoBytes + Copy, const N: usize>(
        &self,
        at: u64,
    ) -> Option<[T; N]> {
        let mut words = [T::new_zeroed(); N];
        match &self.access {
            Access::Syscalls(file) => {
                for (n, word) in words.iter_mut().enumerate() {
                    file.read_exact_at(word.as_mut_bytes(), at + (n * size_of::<T>()) as u64)
                        .ok()?;
                }
            }
            Access::Mapped { mapping, .. } => {
                let first =
                    self.within(mapping, at, size_of::<[T; N]>(), align_of::<T>())?.cast::<T>();
                // SAFETY: `within` has checked the range and the alignment, and no reference into
                // the mapping exists.
                words = std::array::from_fn(|n| unsafe { first.add(n).read_volatile() });
            }
        }
        // Orders later reads after this one: an SQE is not read before the tail that announced it.
        fence(Ordering::Acquire);
        Some(words)
    }

    /// Stores words at an aligned offset, each as a release. If they are a CQE, two 64-bit words,
    /// byte 14, which has the phase tag, is not written before the other bytes. Returns false if
    /// the store is not possible.
    pub(super) fn store<T: IntoBytes + Copy + Immutable, const N: usize>(
        &self,
        at: u64,
        words: [T; N],
    ) -> bool {
        match &self.access {
            Access::Syscalls(file) => {
                let bytes = words.as_bytes();
                // pwrite(2) does not guarantee an order of the bytes within a call. Write byte 14,
                // which has the phase tag of a CQE, last and in a call of its own: the guest must
                // not see a new tag while other bytes are those of the old entry.
                let tag = bytes.len().min(14);
                let behind = bytes.len().min(15);
                [0..tag, behind..bytes.len(), tag..behind].into_iter().all(|part| {
                    fence(Ordering::SeqCst);
                    file.write_all_at(&bytes[part.clone()], at + part.start as u64).is_ok()
                })
            }
            Access::Mapped { writable: false, .. } => false,
            Access::Mapped { mapping, .. } => {
                let Some(first) = self.within(mapping, at, size_of::<[T; N]>(), align_of::<T>())
                else {
                    return false;
                };
                for (n, word) in words.into_iter().enumerate() {
                    // An EventIdx or CQE must not become visible before the data that it announces.
                    fence(Ordering::Release);
                    // SAFETY: `within` has checked the range and the alignment, the mapping can be
                    // written to, and no reference into it exists.
                    unsafe { first.cast::<T>().add(n).write_volatile(word) };
                }
                true
            }
        }
    }
}

/// Doorbells that a guest, a vfio-user client, maps: a memfd whose descriptor the guest gets. It is
/// sealed against resizing. Any process with the descriptor may write any word at any time, so the
/// reader validates the values.
#[derive(Debug)]
pub struct DoorbellFile {
    file: OwnedFd,
    memory: GuestFile,
}

impl DoorbellFile {
    /// A zero-filled file of `bytes` bytes.
    pub fn new(bytes: u64) -> io::Result<DoorbellFile> {
        let file = sealed_memfd("reap-doorbells", bytes, MemfdFlags::empty())?;
        let memory = GuestFile::new(file.try_clone()?, bytes, true);
        Ok(DoorbellFile { file, memory })
    }

    /// Loads the word at an aligned offset, with acquire ordering; 0 past the end.
    #[inline]
    pub fn load(&self, offset: u32) -> u32 {
        self.memory.load(offset.into()).map_or(0, |[word]| word)
    }

    /// Stores a word at an aligned offset, with release ordering; ignored past the end.
    #[inline]
    pub fn store(&self, offset: u32, value: u32) {
        self.memory.store(offset.into(), [value]);
    }
}

/// The descriptor for the guest.
impl AsFd for DoorbellFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
