//! Doorbells that a guest maps: a file of the device's, which the guest gets a descriptor of.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::file::GuestFile;

/// A memory file that nobody can shorten or lengthen, and its words. Whoever has the descriptor may write any of them at any time.
#[derive(Debug)]
pub struct DoorbellFile {
    file: OwnedFd,
    memory: GuestFile,
}

impl DoorbellFile {
    /// One of this many bytes, all zero.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(bytes: u64) -> io::Result<DoorbellFile> {
        let file = memfd_create("reap-doorbells", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let memory = GuestFile::new(file.try_clone()?, bytes, true);
        Ok(DoorbellFile { file, memory })
    }

    /// The word at a multiple of 4, as an acquire; 0 where there is none.
    #[inline]
    pub fn load(&self, offset: u32) -> u32 {
        self.memory.load_half(offset.into()).unwrap_or(0)
    }

    /// Stores a word at a multiple of 4, as a release. Where there is none nothing happens.
    #[inline]
    pub fn store(&self, offset: u32, value: u32) {
        self.memory.store_half(offset.into(), value);
    }
}

/// What the guest gets.
impl AsFd for DoorbellFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
