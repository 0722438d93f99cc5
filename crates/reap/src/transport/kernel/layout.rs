//! `size=`: lays out a new file.
//!
//! Every block is written, with random bytes that nothing compresses. A hole, an extent that is
//! only reserved, or zeroes on a compressing file system would be read without the disk, and a
//! first write would allocate: both would distort a measurement.

use std::fs::{File, OpenOptions, remove_file};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::transport::file_lock::check_limit;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate, fstatvfs};
use rustix::io::Errno;

use crate::error::TargetFault;

/// Bytes of one write.
const CHUNK: u64 = 1 << 20;

/// A new or empty file while it is laid out. If that fails, it is removed or emptied again.
pub(super) struct NewFile<'a> {
    path: &'a Path,
    file: &'a File,
    created: bool,
    done: bool,
}

/// Creates `path`, empty. Never opens an existing file.
///
/// # Errors
/// It exists, the directory does not, or the system refuses.
pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

impl<'a> NewFile<'a> {
    /// `created`: by [`create`]; a failure removes the file then.
    pub(super) fn new(path: &'a Path, file: &'a File, created: bool) -> NewFile<'a> {
        NewFile { path, file, created, done: false }
    }

    /// Writes `bytes` bytes and makes them durable, the name too.
    ///
    /// # Errors
    /// There is no room, a limit forbids it, or writing fails. The file is then gone, or empty
    /// again.
    pub(super) fn lay_out(mut self, bytes: u64) -> Result<(), TargetFault> {
        check_limit(bytes)?;
        // Reserved in one call, so that a full file system shows before anything is written, and
        // the extents are contiguous if possible. KEEP_SIZE: a file that was left half laid out
        // does not have the size that was asked for.
        match fallocate(self.file, FallocateFlags::KEEP_SIZE, 0, bytes) {
            Ok(()) => {}
            Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
                return Err(self.failed(bytes, e.into()));
            }
            // Not every file system can reserve. Writing does as well, but is not begun where it
            // cannot end.
            Err(_) if free(self.path).is_some_and(|free| free < bytes) => {
                return Err(self.failed(bytes, Errno::NOSPC.into()));
            }
            Err(_) => {}
        }
        self.fill(bytes).and_then(|()| self.file.sync_all()).map_err(|e| self.failed(bytes, e))?;
        // Drop the pages: they would stay in memory for nothing, and buffered readers would read
        // them instead of the disk.
        let _ = fadvise(self.file, 0, None, Advice::DontNeed);
        sync_parent(self.path).map_err(|source| TargetFault::System {
            what: "make the new file's name durable",
            source,
        })?;
        self.done = true;
        Ok(())
    }

    fn fill(&self, bytes: u64) -> io::Result<()> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(bytes);
        let mut chunk = vec![0; bytes.min(CHUNK) as usize];
        for at in (0..bytes).step_by(CHUNK as usize) {
            let length = (bytes - at).min(CHUNK) as usize;
            random.fill_bytes(&mut chunk[..length]);
            self.file.write_all_at(&chunk[..length], at)?;
        }
        Ok(())
    }

    fn failed(&mut self, asked: u64, source: io::Error) -> TargetFault {
        self.undo();
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC | Errno::DQUOT) => {
                let free = free(self.path).unwrap_or(0);
                TargetFault::NoSpace(format!(
                    "the file system has no room for {asked} bytes ({source}); {free} bytes are free to this user: make room, or ask for less"
                ))
            }
            Some(Errno::FBIG) => TargetFault::NoSpace(format!(
                "no file may have {asked} bytes here: the file system's limit is lower; ask for less"
            )),
            _ => TargetFault::System { what: "lay it out", source },
        }
    }

    fn undo(&mut self) {
        self.done = true;
        // Only the first failure is reported. If this one fails too, a file of the wrong size
        // stays, which no later open accepts.
        let _ = self.file.set_len(0);
        if self.created {
            let _ = remove_file(self.path);
        }
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.undo();
        }
    }
}

/// Free bytes for this user where the file is; `None`: the file system does not report them.
fn free(path: &Path) -> Option<u64> {
    let stat = File::open(parent(path)).ok().and_then(|dir| fstatvfs(dir).ok())?;
    (stat.f_blocks > 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match File::open(parent(path)).and_then(|dir| dir.sync_all()) {
        // A directory that may be searched and written need not be readable, and some file systems
        // do not sync directories.
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput
            ) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// The directory of the file.
pub(super) fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests;
