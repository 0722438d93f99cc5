//! Mappings, and which files may be mapped: touching a page that a file no longer has is a signal (SIGBUS), which ends this process.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{FileType, MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::Birth;

/// A mapping of this process's own, unmapped when it is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub at: NonNull<u8>,
    pub bytes: usize,
    /// Of one that forked children do not have, the process that does.
    born: Option<Birth>,
}

// SAFETY: the mapping may be used from any thread; who may reach which of its bytes is settled by its owner.
unsafe impl Send for Mapping {}
// SAFETY: as above; a `&Mapping` tells where it is and reaches nothing.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

    /// Private memory, zero at first.
    pub fn anonymous(bytes: usize, flags: MapFlags) -> io::Result<Mapping> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice aliases nothing.
        Mapping::new(unsafe { mmap_anonymous(ptr::null_mut(), bytes, Mapping::READ_WRITE, flags | MapFlags::PRIVATE) }, bytes)
    }

    /// `bytes` bytes of a file from `offset` on, shared with whoever has it.
    pub fn shared(file: impl AsFd, offset: u64, bytes: usize, access: ProtFlags, flags: MapFlags) -> io::Result<Mapping> {
        // SAFETY: a mapping at an address of the kernel's choice replaces nothing. No reference into it is made here.
        Mapping::new(unsafe { mmap(ptr::null_mut(), bytes, access, flags | MapFlags::SHARED, file, offset) }, bytes)
    }

    fn new(mapped: Result<*mut c_void, Errno>, bytes: usize) -> io::Result<Mapping> {
        let at = NonNull::new(mapped?.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { at, bytes, born: None })
    }

    /// A forked child does not have it (MADV_DONTFORK, madvise(2)). Otherwise parent and child would share pages until one of them writes,
    /// and the writer gets another page than the one that a device knows.
    pub fn keep_from_children(&mut self) -> io::Result<()> {
        self.born = Some(Birth::here());
        self.advise(Advice::LinuxDontFork)
    }

    /// What is asked here changes no byte of it.
    pub fn advise(&self, advice: Advice) -> io::Result<()> {
        assert!(matches!(advice, Advice::LinuxDontFork | Advice::LinuxHugepage), "{advice:?}");
        // SAFETY: the range is this mapping, and the advice does not change what it holds.
        Ok(unsafe { madvise(self.at.as_ptr().cast(), self.bytes, advice) }?)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.born.is_some_and(|born| !born.is_here()) {
            // A child has other memory at these addresses, its own.
            return;
        }
        // SAFETY: the mapping was made with this size, and its owner is done with what points into it.
        let unmapped = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A memory file of zeroes. The process that gets the descriptor cannot take the memory away.
pub(crate) fn sealed_memfd(name: &str, bytes: u64, kind: MemfdFlags) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | kind)?;
    ftruncate(&file, bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Magic numbers of file systems (linux/magic.h).
const TMPFS: i64 = 0x0102_1994;
const HUGETLBFS: i64 = 0x9584_58f6;
/// Why pages of a file may be gone when they are touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PageLoss {
    /// It is on a disk, or can be made shorter.
    #[error("it is no memory file that is sealed against being made shorter (F_SEAL_SHRINK)")]
    Unsealed,
    /// Each huge page is taken from those set aside when it is first touched, by any process, and none need be left. A hole that is
    /// punched gives it back. No seal forbids either (memfd_create(2)).
    #[error("it has huge pages, which may run out or be taken away whatever its seals say")]
    HugePages,
}

/// Whether all pages of a file that another process also has will be there whenever they are touched. They will in ordinary memory files
/// (memfd_create(2), on tmpfs) that are sealed against shrinking: a hole that is punched there reads as zeroes. Any other file is refused.
///
/// Ask this before the file's size: an owner could shorten the file between the two, and seal it then.
pub(crate) fn keeps_pages(file: impl AsFd) -> Result<(), PageLoss> {
    judge(fstatfs(&file).map(|system| system.f_type), fcntl_get_seals(&file))
}

/// Which file: device and inode.
pub(crate) type FileKey = (u64, u64);

/// Which regular file it is, and its bytes.
pub(crate) fn examine(file: impl AsFd) -> io::Result<(FileKey, u64)> {
    let stat = fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(((stat.st_dev, stat.st_ino), u64::try_from(stat.st_size).unwrap_or(0)))
}

fn judge(system: Result<i64, Errno>, seals: Result<SealFlags, Errno>) -> Result<(), PageLoss> {
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
        assert_eq!(judge(Ok(TMPFS), sealed), Ok(()));
        for (system, seals, why) in [
            (Ok(TMPFS), Ok(SealFlags::SEAL | SealFlags::GROW), PageLoss::Unsealed),
            (Ok(TMPFS), Err(Errno::INVAL), PageLoss::Unsealed),
            (Ok(ext4), Err(Errno::INVAL), PageLoss::Unsealed),
            (Ok(ext4), sealed, PageLoss::Unsealed),
            (Ok(HUGETLBFS), sealed, PageLoss::HugePages),
            (Err(Errno::NOSYS), sealed, PageLoss::Unsealed),
        ] {
            assert_eq!(judge(system, seals), Err(why), "{system:?} {seals:?}");
        }
    }
}
