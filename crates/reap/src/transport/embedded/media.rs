//! `file:` media: a namespace's blocks in a regular file. `fdatasync` makes them durable,
//! `fallocate` zeroes and deallocates them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use emu::{Media, MediaError, MediaOperation, write_zeroes};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::error::{OpenError, TargetFault};
use crate::transport::file_lock::{FileAccess, LockedFile, check_limit};
use crate::transport::write_back::name_of;

/// A file as a medium. The page cache plays the volatile write cache.
pub(super) struct FileMedia {
    file: File,
    bytes: u64,
    shared: Arc<LockedFile>,
    /// `fallocate` modes that the file system does not support: not tried again.
    refused: FallocateFlags,
    /// A full file system was logged already.
    said_full: bool,
}

impl FileMedia {
    /// Opens `path` for reading and writing. With `bytes` the file is created, or extended, to that
    /// size; without, its own size counts, rounded down to whole blocks. `access`: whether other
    /// processes may write to it as well.
    pub(super) fn open(
        path: &Path,
        bytes: Option<u64>,
        block: u32,
        access: FileAccess,
    ) -> Result<FileMedia, OpenError> {
        let fail = |what: &str, source: Option<io::Error>| {
            let what = source.as_ref().map_or_else(|| what.to_owned(), |e| format!("{what}: {e}"));
            OpenError::Media { path: path.to_owned(), what, source }
        };
        let held = |fault: TargetFault| fail(&fault.to_string(), None);
        check_limit(bytes.unwrap_or(0)).map_err(held)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(bytes.is_some())
            .truncate(false)
            .open(path)
            .map_err(|e| {
                let absent = bytes.is_none() && e.kind() == io::ErrorKind::NotFound;
                let remedy = if absent { " (`size=` creates it)" } else { "" };
                fail(&format!("cannot open it for reading and writing{remedy}"), Some(e))
            })?;
        let meta = file.metadata().map_err(|e| fail("cannot examine it", Some(e)))?;
        if !meta.is_file() {
            return Err(fail(
                "it is not a regular file; Reap writes to files, never to block devices or directories",
                None,
            ));
        }
        // Locked before the file is extended: it may be another program's.
        let shared = LockedFile::of(&file, access).map_err(held)?;
        let mut len = meta.len();
        if let Some(bytes) = bytes.filter(|&b| b > len) {
            file.set_len(bytes).map_err(|e| fail("cannot extend it", Some(e)))?;
            len = bytes;
        }
        let usable = len / u64::from(block) * u64::from(block);
        if usable == 0 {
            return Err(fail(
                &format!("{len} bytes hold no block of {block} bytes; give it a size with `size=`"),
                None,
            ));
        }
        Ok(FileMedia {
            file,
            bytes: usable,
            shared,
            refused: FallocateFlags::empty(),
            said_full: false,
        })
    }

    /// Checks that the file was not truncated: a write would make it grow again.
    fn fits(&self) -> Result<(), MediaError> {
        match self.shared.write_back.is_truncated(&self.file, self.bytes) {
            false => Ok(()),
            true => Err(MediaError::Truncated { bytes: self.bytes }),
        }
    }

    /// The error of a write. An NVMe status cannot say which file system is full, so the log does,
    /// once.
    fn failed(&mut self, what: MediaOperation, at: u64, source: io::Error) -> MediaError {
        if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            && !self.said_full
        {
            self.said_full = true;
            let path = name_of(&self.file);
            tracing::error!(
                "{path}: {source}: its file system has no room for blocks that were not written before; free some"
            );
        }
        MediaError::Io { what, at, source }
    }

    /// Calls fallocate(2) on a range. False: the file system does not support `how`.
    fn fallocate(&mut self, how: FallocateFlags, at: u64, len: u64) -> Result<bool, MediaError> {
        loop {
            // In the loop: a refusal below comes back here.
            if self.refused.contains(how) {
                return Ok(false);
            }
            match rustix::fs::fallocate(&self.file, how | FallocateFlags::KEEP_SIZE, at, len) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.refused |= how,
                Err(errno) => return Err(self.failed(MediaOperation::Zero, at, errno.into())),
            }
        }
    }
}

impl Media for FileMedia {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Blocks that the file system allocated, from `stat`, without its metadata.
    fn allocated(&self) -> u64 {
        let blocks = self.file.metadata().map(|meta| meta.blocks());
        // Preallocation may exceed the size.
        blocks.map_or(self.bytes, |blocks| blocks.saturating_mul(512).min(self.bytes))
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.file.read_exact_at(into, at).map_err(|source| MediaError::Io {
            what: MediaOperation::Read,
            at,
            source,
        })
    }

    fn write_at(&mut self, at: u64, from: &[u8], fua: bool) -> Result<(), MediaError> {
        self.fits()?;
        self.file
            .write_all_at(from, at)
            .map_err(|source| self.failed(MediaOperation::Write, at, source))?;
        if fua { self.flush() } else { Ok(()) }
    }

    fn zero_at(
        &mut self,
        at: u64,
        len: u64,
        deallocate: bool,
        fua: bool,
    ) -> Result<(), MediaError> {
        self.fits()?;
        let how = if deallocate { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::ZERO_RANGE };
        // Without file system support zeroes are written like any other data.
        if !self.fallocate(how, at, len)? {
            write_zeroes(len, |done, zeroes| {
                let at = at + done;
                self.file
                    .write_all_at(zeroes, at)
                    .map_err(|source| self.failed(MediaOperation::Zero, at, source))
            })?;
        }
        if fua { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), MediaError> {
        let write_back = &self.shared.write_back;
        // Truncated blocks may have been acknowledged, so no Flush can succeed.
        if write_back.is_truncated(&self.file, self.bytes) || write_back.has_failed() {
            return Err(MediaError::FlushLost);
        }
        self.file.sync_data().map_err(|source| {
            // Shared: other paths of this file must not report a good Flush later.
            self.shared.write_back.fail();
            self.failed(MediaOperation::Flush, 0, source)
        })
    }
}

#[cfg(test)]
mod tests;
