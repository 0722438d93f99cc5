//! Media: where the blocks of a namespace are kept.
//!
//! [`Mem`] is here; a file lives where there are system calls, and implements [`Media`] too.

mod budget;
#[cfg(test)]
#[path = "tests/cache.rs"]
mod cache;
mod faulty;
mod mem;
mod slabs;
mod spoilt;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

pub use budget::Budget;
#[cfg(test)]
pub(crate) use cache::WriteCache;
pub(crate) use faulty::Faulty;
pub use faulty::MediaFault;
pub use mem::Mem;
pub(crate) use spoilt::Spoilt;

/// Bytes at offsets, volatile until [`Media::flush`]. The controller checks ranges before it calls.
pub trait Media: Send {
    /// Size in bytes. Constant.
    fn bytes(&self) -> u64;

    /// Bytes that the medium really occupies; less than [`Media::bytes`] if it is sparse.
    fn allocated(&self) -> u64 {
        self.bytes()
    }

    /// Fills `into` from offset `at`. What was never written reads as zeroes.
    fn read_at(&mut self, at: u64, into: &mut [u8]) -> Result<(), MediaError>;

    /// Stores `from` at offset `at`; with `fua` (Force Unit Access, NVM 3.3.6) it is durable on
    /// return.
    fn write_at(&mut self, at: u64, from: &[u8], fua: bool) -> Result<(), MediaError>;

    /// Makes `len` bytes from `at` on read as zeroes; volatile, as a write is, but for `fua`. Where
    /// the caller wants to `deallocate`, the room that they took is not needed, and a medium gives
    /// back what it can. This writes zeroes, and gives nothing back.
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

    /// Makes every write that has returned durable. Once it failed, it and all later ones fail: the
    /// kernel reports a failed write-back once.
    fn flush(&mut self) -> Result<(), MediaError>;

    /// Whether data may be lost at a power cut until they are flushed: Identify Controller VWC.
    fn is_volatile(&self) -> bool {
        true
    }
}

/// Calls `write` with zeroes and how many were written before, until it is `len`.
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

/// A medium that a test, say, keeps a hand on while a controller uses it.
impl<M: Media> Media for Arc<Mutex<M>> {
    fn bytes(&self) -> u64 {
        self.lock().unwrap_or_else(PoisonError::into_inner).bytes()
    }

    fn allocated(&self) -> u64 {
        self.lock().unwrap_or_else(PoisonError::into_inner).allocated()
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.lock().unwrap_or_else(PoisonError::into_inner).read_at(at, into)
    }

    fn write_at(&mut self, at: u64, from: &[u8], fua: bool) -> Result<(), MediaError> {
        self.lock().unwrap_or_else(PoisonError::into_inner).write_at(at, from, fua)
    }

    fn zero_at(
        &mut self,
        at: u64,
        len: u64,
        deallocate: bool,
        fua: bool,
    ) -> Result<(), MediaError> {
        self.lock().unwrap_or_else(PoisonError::into_inner).zero_at(at, len, deallocate, fua)
    }

    fn flush(&mut self) -> Result<(), MediaError> {
        self.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }

    fn is_volatile(&self) -> bool {
        self.lock().unwrap_or_else(PoisonError::into_inner).is_volatile()
    }
}

/// Why a medium refused.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    /// A sparse medium has no memory left for another block.
    #[error(
        "the memory budget of {limit} bytes for written blocks is used up; raise it or write to fewer blocks"
    )]
    Full {
        /// The budget in bytes.
        limit: u64,
    },
    /// A range beyond the end of the medium.
    #[error("offset {at:#x}..+{len:#x} is beyond the medium's {bytes:#x} bytes")]
    OutOfRange {
        /// First byte.
        at: u64,
        /// Bytes.
        len: u64,
        /// Size of the medium.
        bytes: u64,
    },
    /// The operating system refused.
    #[error("{what} at offset {at:#x}: {source}")]
    Io {
        /// Which operation.
        what: Access,
        /// First byte.
        at: u64,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The host marked blocks of it as unreadable.
    #[error(
        "offset {at:#x}..+{len:#x} has blocks that a Write Uncorrectable made unreadable; they can be read once they are written"
    )]
    Spoilt {
        /// First byte.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// The file behind it was truncated: a write would make it grow again.
    #[error(
        "the file was truncated below its {bytes} bytes while it was open; check what it holds, and open it again"
    )]
    Truncated {
        /// Bytes of the medium.
        bytes: u64,
    },
    /// An earlier flush failed: what it should have made durable may be gone, and no later flush
    /// can bring it back.
    #[error(
        "an earlier flush of this medium failed, so nothing written to it since the last good flush can be trusted to be durable"
    )]
    FlushLost,
}

/// What was tried on a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Zeroing, or deallocating.
    Zero,
    /// Making durable.
    Flush,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::Zero => "zeroing",
            Access::Flush => "flush",
        })
    }
}

#[cfg(test)]
mod tests;
