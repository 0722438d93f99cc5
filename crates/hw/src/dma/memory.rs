//! Memory that a caller owns: the trait that a type must implement so that its memory can be
//! registered for DMA, and two types that implement it.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::MemfdFlags;
use rustix::mm::{Advice, MapFlags};

use super::PAGE;
use crate::mapping::{Mapping, sealed_memfd};

/// The kind of memory of a pool. Its pages are not pre-faulted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// Private memory, in transparent huge pages where the kernel has them.
    #[default]
    Anonymous,
    /// A memfd, which another process can map as well.
    Memfd,
    /// A memfd of 2 MiB huge pages, which are reserved from the system's pool (`vm.nr_hugepages`)
    /// when it is mapped. If the pool has too few: [`Backing::Memfd`].
    HugeMemfd,
}

/// Memory that can be registered ([`DmaPool::register`](super::DmaPool::register)). Dropping it
/// frees the memory.
///
/// Implemented by [`Pages`], by [`RawMemory`] for memory known by its address, and by tuples of a
/// `Memory` and a value that is dropped after it.
///
/// # Safety
/// [`Memory::bytes`] always returns the same initialised, readable and writable memory. It stays in
/// place while the owner lives, even if the owner is moved. While the memory is registered, nothing
/// but the region, its buffers and the device accesses it. At other times only the owner's own
/// methods access it.
pub unsafe trait Memory: Send + 'static {
    /// The memory.
    fn bytes(&mut self) -> NonNull<[u8]>;

    /// The file that the memory is a shared mapping of, and the offset of the memory in it, a
    /// multiple of 4096. A device in another process accesses memory through its file. The file
    /// must not shrink while the owner lives: seal it (`F_SEAL_SHRINK`), because the other process
    /// has it too.
    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        None
    }
}

// SAFETY: the first value is a `Memory`, and upholds its contract. The second value is only dropped
// after the first.
unsafe impl<M: Memory, T: Send + 'static> Memory for (M, T) {
    fn bytes(&mut self) -> NonNull<[u8]> {
        self.0.bytes()
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.0.file()
    }
}

/// Whole pages, which the kernel fills with zeroes when they are first touched; used as a
/// page-aligned `Box<[u8]>`.
#[derive(Debug)]
pub struct Pages {
    pub(super) mapping: Mapping,
    /// The file that is mapped, from its first byte on.
    pub(super) file: Option<OwnedFd>,
}

impl Pages {
    /// Allocates at least `bytes` bytes, and at least a page.
    pub fn new(bytes: usize) -> io::Result<Pages> {
        Ok(Pages::backed(bytes, Backing::Anonymous)?.0)
    }

    /// As [`Pages::new`], but in a memfd, so that a device in another process can access it too.
    pub fn shared(bytes: usize) -> io::Result<Pages> {
        Ok(Pages::backed(bytes, Backing::Memfd)?.0)
    }

    /// Allocates pages, and returns the kind of memory that was available.
    pub(super) fn backed(bytes: usize, backing: Backing) -> io::Result<(Pages, Backing)> {
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(PAGE as usize)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let file = |kind, flags| {
            let file = sealed_memfd("reap-dma", bytes as u64, kind)?;
            let mapping = Mapping::shared(&file, 0, bytes, Mapping::READ_WRITE, flags)?;
            io::Result::Ok((Pages { mapping, file: Some(file) }, backing))
        };
        match backing {
            Backing::Anonymous => {
                let mapping = Mapping::anonymous(bytes, MapFlags::NORESERVE)?;
                // Best effort: without transparent huge pages the memory works as well.
                _ = mapping.advise(Advice::LinuxHugepage);
                Ok((Pages { mapping, file: None }, backing))
            }
            Backing::Memfd => file(MemfdFlags::empty(), MapFlags::NORESERVE),
            // No MAP_NORESERVE: the mapping reserves its huge pages. A page missing at the first
            // touch would raise SIGBUS.
            Backing::HugeMemfd => {
                file(MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB, MapFlags::empty())
                    .or_else(|_| Pages::backed(bytes, Backing::Memfd))
            }
        }
    }
}

// SAFETY: the mapping is exclusive to the owner, zeroed, and lasts until it is dropped.
unsafe impl Memory for Pages {
    fn bytes(&mut self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.mapping.at, self.mapping.bytes)
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.file.as_ref().map(|file| (file.as_fd(), 0))
    }
}

impl Deref for Pages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is initialised, and is written to only through `&mut self`: while it
        // is registered there is no `&Pages`.
        unsafe { std::slice::from_raw_parts(self.mapping.at.as_ptr(), self.mapping.bytes) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.at.as_ptr(), self.mapping.bytes) }
    }
}

/// Memory known by its address only: the frames of a database, or memory from C.
pub struct RawMemory {
    memory: NonNull<[u8]>,
    free: Option<Box<dyn FnOnce() + Send>>,
}

// SAFETY: the caller of `new` guarantees that the memory may be used from any thread; the closure
// is `Send`.
unsafe impl Send for RawMemory {}

impl RawMemory {
    /// The `bytes` bytes at `memory`. `free` is called once, when the last of the region and its
    /// buffers is dropped, by the thread that drops it. From then on neither the device nor this
    /// library accesses the bytes.
    ///
    /// ```
    /// use std::ptr::NonNull;
    ///
    /// #[derive(Clone)]
    /// #[repr(align(4096))]
    /// struct Frame([u8; 16384]);
    ///
    /// // Frames that live as long as the process.
    /// let frames: &'static mut [Frame] = vec![Frame([0; 16384]); 64].leak();
    /// let (first, bytes) = (NonNull::from(&mut *frames).cast(), size_of_val(frames));
    /// // SAFETY: initialised, never freed, and from now on accessed only through the region.
    /// let memory = unsafe { hw::RawMemory::new(first, bytes, || ()) };
    /// let region = hw::DmaPool::new(4 << 20)?.register(memory).map_err(|(why, _)| why)?;
    /// let frame = region.buffer(16384..32768)?;
    /// assert_eq!(frame.len(), 16384);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    /// Until `free` is called, the bytes must be valid and initialised, and no thread may access
    /// them except through this library.
    pub unsafe fn new(
        memory: NonNull<u8>,
        bytes: usize,
        free: impl FnOnce() + Send + 'static,
    ) -> RawMemory {
        RawMemory {
            memory: NonNull::slice_from_raw_parts(memory, bytes),
            free: Some(Box::new(free)),
        }
    }
}

// SAFETY: the caller of `RawMemory::new` guarantees what `Memory` requires.
unsafe impl Memory for RawMemory {
    fn bytes(&mut self) -> NonNull<[u8]> {
        self.memory
    }
}

impl Drop for RawMemory {
    fn drop(&mut self) {
        if let Some(free) = self.free.take() {
            free();
        }
    }
}

impl fmt::Debug for RawMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawMemory").field(&self.memory).finish()
    }
}

#[cfg(test)]
mod tests;
