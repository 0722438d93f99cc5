//! Memory mappings, and the rule for files of other processes: such a file is mapped only if its
//! pages cannot go away, because touching a missing page raises SIGBUS, which ends this process.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{
    FileType, MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::ForkGuard;

/// An owned mapping; unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub at: NonNull<u8>,
    pub bytes: usize,
    /// The process that has the mapping, if MADV_DONTFORK was set; `None` otherwise.
    fork_guard: Option<ForkGuard>,
}

// SAFETY: the mapping may be used from any thread; its owner decides which code may access which
// bytes.
unsafe impl Send for Mapping {}
// SAFETY: as above; a `&Mapping` gives the address and accesses nothing.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

    /// Private anonymous memory, zero-filled.
    pub fn anonymous(bytes: usize, flags: MapFlags) -> io::Result<Mapping> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice aliases nothing.
        Mapping::new(
            unsafe {
                mmap_anonymous(
                    ptr::null_mut(),
                    bytes,
                    Mapping::READ_WRITE,
                    flags | MapFlags::PRIVATE,
                )
            },
            bytes,
        )
    }

    /// A shared mapping of `bytes` bytes of a file from `offset` on.
    pub fn shared(
        file: impl AsFd,
        offset: u64,
        bytes: usize,
        access: ProtFlags,
        flags: MapFlags,
    ) -> io::Result<Mapping> {
        // SAFETY: a mapping at an address of the kernel's choice replaces nothing. No reference
        // into it is made here.
        Mapping::new(
            unsafe { mmap(ptr::null_mut(), bytes, access, flags | MapFlags::SHARED, file, offset) },
            bytes,
        )
    }

    fn new(mapped: Result<*mut c_void, Errno>, bytes: usize) -> io::Result<Mapping> {
        let at = NonNull::new(mapped?.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { at, bytes, fork_guard: None })
    }

    /// Keeps the mapping out of forked children (MADV_DONTFORK, madvise(2)). Otherwise parent and
    /// child share its pages copy-on-write, and the first to write gets another page than the one
    /// that the device knows.
    pub fn dont_fork(&mut self) -> io::Result<()> {
        self.fork_guard = Some(ForkGuard::current());
        self.advise(Advice::LinuxDontFork)
    }

    /// madvise(2), restricted to advice that changes no byte of the mapping.
    pub fn advise(&self, advice: Advice) -> io::Result<()> {
        assert!(matches!(advice, Advice::LinuxDontFork | Advice::LinuxHugepage), "{advice:?}");
        // SAFETY: the range is this mapping, and the advice does not change what it holds.
        Ok(unsafe { madvise(self.at.as_ptr().cast(), self.bytes, advice) }?)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.fork_guard.is_some_and(|fork_guard| !fork_guard.same_process()) {
            // The child does not have the mapping: other memory of its own may be at this address.
            return;
        }
        // SAFETY: the mapping was made with this size, and its owner no longer uses pointers into
        // it.
        let unmapped = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A zero-filled memory file, sealed against resizing: a process that receives the descriptor
/// cannot take pages away.
pub(crate) fn sealed_memfd(name: &str, bytes: u64, kind: MemfdFlags) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | kind)?;
    ftruncate(&file, bytes)?;
    // F_SEAL_SEAL as well: no seal can be added later, such as F_SEAL_WRITE.
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Magic numbers of file systems (linux/magic.h).
const TMPFS: i64 = 0x0102_1994;
const HUGETLBFS: i64 = 0x9584_58f6;
/// Why pages of a file may be missing when they are touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PageLoss {
    /// The file is on a disk, or can be truncated.
    #[error("it is not a memory file sealed against shrinking (F_SEAL_SHRINK)")]
    Unsealed,
    /// A huge page is taken from the reserved pool at the first touch, by any process, and the pool
    /// may be empty; a punched hole returns the page to it. No seal prevents either
    /// (memfd_create(2)).
    #[error("it has huge pages, which may run out or be taken away in spite of seals")]
    HugePages,
}

/// Checks that no other process can take pages of the file away. That holds for memory files on
/// tmpfs (memfd_create(2)) that are sealed against shrinking: a punched hole reads as zeroes. All
/// other files are refused.
///
/// Call this before reading the size: otherwise the owner could shorten the file in between and
/// seal it afterwards.
pub(crate) fn keeps_pages(file: impl AsFd) -> Result<(), PageLoss> {
    page_loss(fstatfs(&file).map(|system| system.f_type), fcntl_get_seals(&file))
}

/// Identity of a file: device and inode.
pub(crate) type FileKey = (u64, u64);

/// Identity and size in bytes of a regular file.
pub(crate) fn file_key_and_size(file: impl AsFd) -> io::Result<(FileKey, u64)> {
    let stat = fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(((stat.st_dev, stat.st_ino), u64::try_from(stat.st_size).unwrap_or(0)))
}

fn page_loss(system: Result<i64, Errno>, seals: Result<SealFlags, Errno>) -> Result<(), PageLoss> {
    match system {
        Ok(HUGETLBFS) => Err(PageLoss::HugePages),
        Ok(TMPFS) if seals.is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) => Ok(()),
        _ => Err(PageLoss::Unsealed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sealed_tmpfs_keeps_pages() {
        let (sealed, ext4) = (Ok(SealFlags::SHRINK | SealFlags::SEAL), 0xef53);
        assert_eq!(page_loss(Ok(TMPFS), sealed), Ok(()));
        for (system, seals, why) in [
            (Ok(TMPFS), Ok(SealFlags::SEAL | SealFlags::GROW), PageLoss::Unsealed),
            (Ok(TMPFS), Err(Errno::INVAL), PageLoss::Unsealed),
            (Ok(ext4), Err(Errno::INVAL), PageLoss::Unsealed),
            (Ok(ext4), sealed, PageLoss::Unsealed),
            (Ok(HUGETLBFS), sealed, PageLoss::HugePages),
            (Err(Errno::NOSYS), sealed, PageLoss::Unsealed),
        ] {
            assert_eq!(page_loss(system, seals), Err(why), "{system:?} {seals:?}");
        }
    }
}
