//! Memory that has to stay where it is because a device reaches it by itself. It is pinned by chunks, each when some of
//! it is first given out: only so much counts against RLIMIT_MEMLOCK as is used.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::{Resource, getrlimit};

use super::CHUNK;
use super::lock;
use crate::Birth;

/// How a link pins memory and makes it reachable at a bus address, and the reverse. A device in another process reaches memory by its file: such a
/// process is trusted as a device without an IOMMU is, to touch nothing of it but what is lent, and rings.
pub trait Pinner: Debug + Send + Sync {
    /// From now on the chunk stays where it is, and the device reaches it. `file`: what it is a part of, and where it begins there, where a
    /// file stands behind the memory.
    ///
    /// # Errors
    /// What the system says. The chunk is then as it was.
    fn pin(&self, chunk: Chunk, file: Option<(BorrowedFd<'_>, u64)>) -> io::Result<()>;

    /// Whether it takes only memory with a file behind it.
    fn wants_file(&self) -> bool {
        false
    }

    /// Whether the process that gets such files is trusted to take no pages away. Otherwise only memory whose file keeps them is registered.
    fn trusts(&self) -> bool {
        false
    }

    /// Bytes of a chunk: a multiple of 4 MiB. Memory that costs nothing before it is touched may go as a whole.
    fn chunk_bytes(&self) -> u64 {
        CHUNK
    }

    /// The reverse, once for each chunk that was pinned: its memory is about to go.
    fn unpin(&self, chunk: Chunk);
}

/// What is pinned at once: 4 MiB, or as many as the pinner says; less at the end of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where it is for this process.
    pub memory: NonNull<u8>,
    /// Where it is for the device.
    pub addr: u64,
    /// Bytes, whole pages.
    pub bytes: u64,
}

/// Memory could not be pinned.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// More than the process may have pinned.
    #[error(
        "a device needs {wanted} more bytes pinned beside {pinned}, and RLIMIT_MEMLOCK is {limit} bytes; \
         raise it to {} or more (`ulimit -l {}`, or `LimitMEMLOCK={}` of a service)", .wanted + .pinned, (.wanted + .pinned).div_ceil(1024), .wanted + .pinned
    )]
    Limit {
        /// Bytes that were to be pinned.
        wanted: u64,
        /// Bytes that are pinned for this device already.
        pinned: u64,
        /// RLIMIT_MEMLOCK of the process, in bytes.
        limit: u64,
    },
    /// Anything else.
    #[error("cannot pin {wanted} bytes for a device: {source}")]
    System {
        /// Bytes that were to be pinned.
        wanted: u64,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// A device's way of pinning, and how much it has pinned.
#[derive(Debug)]
pub(super) struct Pinning {
    pub pinner: Arc<dyn Pinner>,
    bytes: AtomicU64,
    chunk: u64,
}

impl Pinning {
    pub fn new(pinner: Arc<dyn Pinner>) -> Pinning {
        let chunk = pinner.chunk_bytes().max(CHUNK) / CHUNK * CHUNK;
        Pinning { pinner, bytes: AtomicU64::new(0), chunk }
    }

    /// Bytes that are pinned.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn failed(&self, wanted: u64, source: io::Error) -> PinError {
        let refused = [libc::ENOMEM, libc::EPERM, libc::EAGAIN].map(Some).contains(&source.raw_os_error());
        match getrlimit(Resource::Memlock).current {
            Some(limit) if refused => PinError::Limit { wanted, pinned: self.bytes(), limit },
            _ => PinError::System { wanted, source },
        }
    }
}

/// Which chunks of a run of memory are pinned. They are unpinned when it is dropped, before the memory goes.
#[derive(Debug)]
pub(super) struct Pins {
    pinning: Arc<Pinning>,
    all: Chunk,
    /// The file behind it, and where in that it begins.
    file: Option<(OwnedFd, u64)>,
    pinned: Mutex<Vec<bool>>,
    /// The process whose pins they are.
    born: Birth,
}

// SAFETY: the pointer in `all` is passed on and never followed here.
unsafe impl Send for Pins {}
// SAFETY: as above.
unsafe impl Sync for Pins {}

impl Pins {
    /// None of `all` is pinned.
    pub fn new(pinning: Arc<Pinning>, all: Chunk, file: Option<(OwnedFd, u64)>) -> Pins {
        let chunks = all.bytes.div_ceil(pinning.chunk) as usize;
        Pins { pinning, all, file, pinned: Mutex::new(vec![false; chunks]), born: Birth::here() }
    }

    /// Pins what is not pinned yet of the chunks that hold `len` bytes from `offset` on.
    pub fn pin(&self, offset: u64, len: u64) -> Result<(), PinError> {
        let bytes = self.pinning.chunk;
        let chunks = (offset / bytes) as usize..(offset + len).div_ceil(bytes) as usize;
        // Held meanwhile: another thread that gets memory of the same chunk waits until it is pinned.
        let mut pinned = lock(&self.pinned);
        for n in chunks {
            if pinned.get(n) == Some(&false) {
                let chunk = self.chunk(n);
                let file = self.file.as_ref().map(|(file, at)| (file.as_fd(), at + (chunk.addr - self.all.addr)));
                self.pinning.pinner.pin(chunk, file).map_err(|source| self.pinning.failed(chunk.bytes, source))?;
                self.pinning.bytes.fetch_add(chunk.bytes, Ordering::Relaxed);
                pinned[n] = true;
            }
        }
        Ok(())
    }

    fn chunk(&self, n: usize) -> Chunk {
        let offset = n as u64 * self.pinning.chunk;
        // SAFETY: chunk `n` begins inside the memory that `all` is.
        let memory = unsafe { self.all.memory.add(offset as usize) };
        Chunk { memory, addr: self.all.addr + offset, bytes: self.pinning.chunk.min(self.all.bytes - offset) }
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        if !self.born.is_here() {
            // A child has its parent's way to the device, and would unpin what the parent uses.
            return;
        }
        let pinned = std::mem::take(&mut *lock(&self.pinned));
        for (n, _) in pinned.into_iter().enumerate().filter(|(_, pinned)| *pinned) {
            let chunk = self.chunk(n);
            self.pinning.pinner.unpin(chunk);
            self.pinning.bytes.fetch_sub(chunk.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
