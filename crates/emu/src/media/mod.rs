//! Storage media of namespaces.
//!
//! [`Mem`] is defined here; media that need system calls (files) implement [`Media`] in their own
//! crates.

mod bad_blocks;
mod budget;
#[cfg(test)]
#[path = "tests/cache.rs"]
mod cache;
mod faulty;
mod mem;
mod slabs;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use bad_blocks::BadBlocks;
pub use budget::Budget;
#[cfg(test)]
pub(crate) use cache::WriteCache;
pub(crate) use faulty::Faulty;
pub use faulty::MediaFault;
pub use mem::Mem;

/// A byte-addressed medium. Writes may be volatile until [`Media::flush`]. The controller checks
/// ranges before it calls these methods.
pub trait Media: Send {
    /// Size in bytes. Constant.
    fn bytes(&self) -> u64;

    /// Bytes allocated; less than [`Media::bytes`] if the medium is sparse.
    fn allocated(&self) -> u64 {
        self.bytes()
    }

    /// Fills `into` from offset `at`. Bytes that were never written read as zero.
    fn read_at(&mut self, at: u64, into: &mut [u8]) -> Result<(), MediaError>;

    /// Writes `from` at offset `at`; with `fua` (Force Unit Access, NVM 3.3.6) it is durable on
    /// return.
    fn write_at(&mut self, at: u64, from: &[u8], fua: bool) -> Result<(), MediaError>;

    /// Makes `len` bytes from `at` read as zero; volatile like a write, unless `fua` is set. With
    /// `deallocate` the medium may free their storage. The default implementation writes zeroes and
    /// frees nothing.
    fn zero_at(
        &mut self,
        at: u64,
        len: u64,
        deallocate: bool,
        fua: bool,
    ) -> Result<(), MediaError> {
        let _ = deallocate;
        write_zeroes(len, |done, zeroes| self.write_at(at + done, zeroes, fua))
    }

    /// Makes every completed write durable. After a failure this and all later calls fail: the
    /// kernel reports a failed write-back only once.
    fn flush(&mut self) -> Result<(), MediaError>;

    /// Whether data may be lost at power loss until they are flushed: Identify Controller VWC.
    fn is_volatile(&self) -> bool {
        true
    }
}

/// Calls `write` with a piece of zeroes and the number of bytes written before, until `len` bytes
/// are written.
pub fn write_zeroes(
    len: u64,
    mut write: impl FnMut(u64, &[u8]) -> Result<(), MediaError>,
) -> Result<(), MediaError> {
    static ZEROES: [u8; 64 << 10] = [0; 64 << 10];
    let mut done = 0;
    while done < len {
        let zeroes = &ZEROES[..(len - done).min(ZEROES.len() as u64) as usize];
        write(done, zeroes)?;
        done += zeroes.len() as u64;
    }
    Ok(())
}

/// Methods of [`Media`] that call those of another medium.
macro_rules! forward_media {
    ($self:ident, $medium:expr, $mutable:expr) => {
        fn bytes(&$self) -> u64 {
            $medium.bytes()
        }
        fn allocated(&$self) -> u64 {
            $medium.allocated()
        }
        fn read_at(&mut $self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
            $mutable.read_at(at, into)
        }
        fn write_at(&mut $self, at: u64, from: &[u8], fua: bool) -> Result<(), MediaError> {
            $mutable.write_at(at, from, fua)
        }
        fn zero_at(&mut $self, at: u64, len: u64, deallocate: bool, fua: bool) -> Result<(), MediaError> {
            $mutable.zero_at(at, len, deallocate, fua)
        }
        fn flush(&mut $self) -> Result<(), MediaError> {
            $mutable.flush()
        }
        fn is_volatile(&$self) -> bool {
            $medium.is_volatile()
        }
    };
}
pub(crate) use forward_media;

/// Locks a shared medium. A panic of another holder leaves it usable.
pub(crate) fn lock<M>(shared: &Mutex<M>) -> MutexGuard<'_, M> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A medium that its owner, such as a test, can access while a controller uses it.
impl<M: Media> Media for Arc<Mutex<M>> {
    forward_media!(self, lock(self), lock(self));
}

/// Errors of media.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    /// The memory budget of sparse media is exhausted.
    #[error(
        "the memory budget of {limit} bytes for written blocks is used up; raise it or write to fewer blocks"
    )]
    Full {
        /// The budget in bytes.
        limit: u64,
    },
    /// The range exceeds the medium.
    #[error("offset {at:#x}..+{len:#x} is beyond the medium's {bytes:#x} bytes")]
    OutOfRange {
        /// Offset in bytes.
        at: u64,
        /// Length in bytes.
        len: u64,
        /// Size of the medium in bytes.
        bytes: u64,
    },
    /// A system call failed.
    #[error("{what} at offset {at:#x}: {source}")]
    Io {
        /// The operation.
        what: MediaOperation,
        /// Offset in bytes.
        at: u64,
        /// The system's error.
        source: std::io::Error,
    },
    /// Write Uncorrectable has marked blocks of the range.
    #[error(
        "offset {at:#x}..+{len:#x} has blocks that Write Uncorrectable made unreadable; write them again"
    )]
    Uncorrectable {
        /// Offset in bytes.
        at: u64,
        /// Length in bytes.
        len: u64,
    },
    /// The file behind the medium was truncated; a write would extend it again.
    #[error(
        "the file was truncated below its {bytes} bytes while it was open; check its contents, and open it again"
    )]
    Truncated {
        /// Size of the medium in bytes.
        bytes: u64,
    },
    /// An earlier flush failed: data that were acknowledged may be lost, and a later flush cannot
    /// recover them.
    #[error(
        "an earlier flush of this medium failed, so writes since the last successful flush may not be durable"
    )]
    FlushLost,
}

/// An operation on a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaOperation {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Zeroing or deallocation.
    Zero,
    /// Flush.
    Flush,
}

impl fmt::Display for MediaOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MediaOperation::Read => "read",
            MediaOperation::Write => "write",
            MediaOperation::Zero => "zeroing",
            MediaOperation::Flush => "flush",
        })
    }
}

#[cfg(test)]
mod tests;
