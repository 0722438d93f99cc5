//! `file:` media: the blocks of a namespace in a file, durable by `fdatasync`, given back by `fallocate`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use emu::{Access, Media, MediaError, write_zeroes};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::error::{OpenError, TargetFault};
use crate::transport::file_lock::{FileAccess, LockedFile, check_limit};
use crate::transport::write_back::name_of;

/// A file as a medium. The page cache is its volatile write cache.
pub(super) struct FileMedia {
    file: File,
    bytes: u64,
    shared: Arc<LockedFile>,
    /// What the file system has refused to do to ranges of a file: it is not asked again.
    refused: FallocateFlags,
    /// The log has said that its file system is full.
    said_full: bool,
}

impl FileMedia {
    /// Opens `path` for reading and writing. With `bytes` the file is created, or extended, to that size; without, it
    /// has the size it has, rounded down to whole blocks. `access`: whether other processes may write to it as well.
    pub(super) fn open(path: &Path, bytes: Option<u64>, block: u32, access: FileAccess) -> Result<FileMedia, OpenError> {
        let fail = |what: &str, source: Option<io::Error>| {
            let what = source.as_ref().map_or_else(|| what.to_owned(), |e| format!("{what}: {e}"));
            OpenError::Media { path: path.to_owned(), what, source }
        };
        let held = |fault: TargetFault| fail(&fault.to_string(), None);
        check_limit(bytes.unwrap_or(0)).map_err(held)?;
        let file = OpenOptions::new().read(true).write(true).create(bytes.is_some()).truncate(false).open(path).map_err(|e| {
            let absent = bytes.is_none() && e.kind() == io::ErrorKind::NotFound;
            let remedy = if absent { " (`size=` creates it)" } else { "" };
            fail(&format!("cannot open it for reading and writing{remedy}"), Some(e))
        })?;
        let meta = file.metadata().map_err(|e| fail("cannot examine it", Some(e)))?;
        if !meta.is_file() {
            return Err(fail("it is not a regular file; Reap writes to files, never to block devices or directories", None));
        }
        // Before the file is touched: it may be another program's.
        let shared = LockedFile::of(&file, access).map_err(held)?;
        let mut len = meta.len();
        if let Some(bytes) = bytes.filter(|&b| b > len) {
            file.set_len(bytes).map_err(|e| fail("cannot extend it", Some(e)))?;
            len = bytes;
        }
        let usable = len / u64::from(block) * u64::from(block);
        if usable == 0 {
            return Err(fail(&format!("{len} bytes hold no block of {block} bytes; give it a size with `size=`"), None));
        }
        Ok(FileMedia { file, bytes: usable, shared, refused: FallocateFlags::empty(), said_full: false })
    }

    /// Whether the file still holds what it did: a write would make it grow again.
    fn fits(&self) -> Result<(), MediaError> {
        match self.shared.write_back.is_truncated(&self.file, self.bytes) {
            false => Ok(()),
            true => Err(MediaError::Truncated { bytes: self.bytes }),
        }
    }

    /// The error of a write. A status has no words for where there is no room, and what to do: the log has, once.
    fn failed(&mut self, what: Access, at: u64, source: io::Error) -> MediaError {
        if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) && !self.said_full {
            self.said_full = true;
            let path = name_of(&self.file);
            tracing::error!("{path}: {source}: its file system has no room for blocks that were not written before; free some");
        }
        MediaError::Io { what, at, source }
    }

    /// Does this to a range (fallocate(2)). False: the file system cannot.
    fn fallocate(&mut self, how: FallocateFlags, at: u64, len: u64) -> Result<bool, MediaError> {
        loop {
            if self.refused.contains(how) {
                return Ok(false);
            }
            match rustix::fs::fallocate(&self.file, how | FallocateFlags::KEEP_SIZE, at, len) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.refused |= how,
                Err(errno) => return Err(self.failed(Access::Zero, at, errno.into())),
            }
        }
    }
}

impl Media for FileMedia {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    /// By `stat`: blocks that the file system has given to the file, its own tables left out.
    fn allocated(&self) -> u64 {
        let blocks = self.file.metadata().map(|meta| meta.blocks());
        blocks.map_or(self.bytes, |blocks| blocks.saturating_mul(512).min(self.bytes))
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.file.read_exact_at(into, at).map_err(|source| MediaError::Io { what: Access::Read, at, source })
    }

    fn write_at(&mut self, at: u64, from: &[u8], fua: bool) -> Result<(), MediaError> {
        self.fits()?;
        self.file.write_all_at(from, at).map_err(|source| self.failed(Access::Write, at, source))?;
        if fua { self.flush() } else { Ok(()) }
    }

    fn zero_at(&mut self, at: u64, len: u64, deallocate: bool, fua: bool) -> Result<(), MediaError> {
        self.fits()?;
        let how = if deallocate { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::ZERO_RANGE };
        // Where neither is to be had, zeroes are data like any other.
        if !self.fallocate(how, at, len)? {
            write_zeroes(len, |done, zeroes| {
                let at = at + done;
                self.file.write_all_at(zeroes, at).map_err(|source| self.failed(Access::Zero, at, source))
            })?;
        }
        if fua { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), MediaError> {
        let write_back = &self.shared.write_back;
        // What was cut off may have been acknowledged.
        if write_back.is_truncated(&self.file, self.bytes) || write_back.has_failed() {
            return Err(MediaError::FlushLost);
        }
        self.file.sync_data().map_err(|source| {
            self.shared.write_back.fail();
            self.failed(Access::Flush, 0, source)
        })
    }
}

#[cfg(test)]
mod tests;
