//! Memory from the kernel: what a pool and [`Pages`](super::Pages) are made of.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use crate::Birth;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// What stands behind a pool's memory. None of it is touched before it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// Private memory, in transparent huge pages where the kernel has them.
    #[default]
    Anonymous,
    /// A memory file, which another process can map as well.
    Memfd,
    /// The same of huge pages of 2 MiB that the administrator has set aside, all of them reserved at once. Where there are too few:
    /// [`Backing::Memfd`].
    HugeMemfd,
    /// Huge pages of 2 MiB that the administrator has set aside, all of them reserved at once. Where there are too few:
    /// [`Backing::Anonymous`].
    Hugepages,
}

/// A mapping of this process's own, zero at first, readable and writable; unmapped when it is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    pub memory: NonNull<u8>,
    pub bytes: usize,
    file: Option<OwnedFd>,
    /// Of one that forked children do not have, the process that does.
    born: Option<Birth>,
}

// SAFETY: the mapping may be used from any thread; who may reach which of its bytes is settled by its owner.
unsafe impl Send for Mapping {}
// SAFETY: as above; a `&Mapping` tells where it is and reaches nothing.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes, whole pages (of 2 MiB for huge ones), and says what was got.
    pub fn new(bytes: usize, backing: Backing) -> io::Result<(Mapping, Backing)> {
        match backing {
            Backing::Anonymous => {}
            Backing::Memfd => return Ok((Mapping::memfd(bytes, false)?, backing)),
            // Reserved by the mapping: a page that is missing when it is first touched would be a signal.
            Backing::HugeMemfd => {
                let huge = Mapping::memfd(bytes, true).map(|mapping| (mapping, backing));
                return huge.or_else(|_| Ok((Mapping::memfd(bytes, false)?, Backing::Memfd)));
            }
            // Reserved now: a page that is missing when it is first touched would be a signal.
            Backing::Hugepages => match Mapping::anonymous(bytes, MapFlags::HUGETLB | MapFlags::HUGE_2MB) {
                Ok(mapping) => return Ok((mapping, backing)),
                Err(error) => _ = error,
            },
        }
        let mapping = Mapping::anonymous(bytes, MapFlags::NORESERVE)?;
        // Best effort: without huge pages the memory works as well.
        // SAFETY: the range is the mapping just made, and the advice does not change what it holds.
        _ = unsafe { madvise(mapping.memory.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        Ok((mapping, Backing::Anonymous))
    }

    fn anonymous(bytes: usize, flags: MapFlags) -> io::Result<Mapping> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice aliases nothing.
        let memory = unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags | MapFlags::PRIVATE) }?;
        Mapping::at(memory, bytes, None)
    }

    fn memfd(bytes: usize, huge: bool) -> io::Result<Mapping> {
        let kind = if huge { MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB } else { MemfdFlags::empty() };
        let file = memfd_create("reap-dma", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | kind)?;
        ftruncate(&file, bytes as u64)?;
        // The process that gets the descriptor cannot take the memory away: touching what is gone would be a signal.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let flags = if huge { MapFlags::SHARED } else { MapFlags::SHARED | MapFlags::NORESERVE };
        // SAFETY: a mapping at an address of the kernel's choice replaces nothing, and nobody else has the file yet.
        let memory = unsafe { mmap(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags, &file, 0) }?;
        Mapping::at(memory, bytes, Some(file))
    }

    /// A forked child does not have it (MADV_DONTFORK, madvise(2)). Otherwise parent and child would share pages until one of them writes,
    /// and the writer gets another page than the one that a device knows.
    pub fn keep_from_children(&mut self) -> io::Result<()> {
        self.born = Some(Birth::here());
        // SAFETY: the range is this mapping, and the advice does not change what it holds.
        Ok(unsafe { madvise(self.memory.as_ptr().cast(), self.bytes, Advice::LinuxDontFork) }?)
    }

    fn at(memory: *mut c_void, bytes: usize, file: Option<OwnedFd>) -> io::Result<Mapping> {
        let memory = NonNull::new(memory.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { memory, bytes, file, born: None })
    }

    /// The file behind it; the mapping begins at its first byte.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.born.is_some_and(|born| !born.is_here()) {
            // A child has other memory at these addresses, its own.
            return;
        }
        // SAFETY: the mapping was made with this size, and its owner is done with what points into it.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast::<c_void>(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests;
