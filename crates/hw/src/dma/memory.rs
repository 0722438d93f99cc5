//! Memory that a caller owns, and what a type must keep to that says where it is.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::MemfdFlags;
use rustix::mm::{Advice, MapFlags};

use super::PAGE;
use crate::mapping::{Mapping, sealed_memfd};

/// What stands behind a pool's memory. None of it is touched before it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// Private memory, in transparent huge pages where the kernel has them.
    #[default]
    Anonymous,
    /// A memory file, which another process can map as well.
    Memfd,
    /// The same of huge pages of 2 MiB that the administrator has set aside, all of them reserved at once. Where there are too few:
    /// [`Backing::Memfd`].
    HugeMemfd,
}

/// Somebody's memory, for [`DmaPool::register`](super::DmaPool::register). Dropping it frees the memory.
///
/// There are [`Pages`]; [`RawMemory`], of anything that has an address; and pairs of memory and something that is to be
/// dropped after it.
///
/// # Safety
/// [`Memory::bytes`] is initialised memory that may be read and written, always the same. It stays where it is while the
/// owner lives, wherever the owner is moved. Nobody reaches it but through the owner, and the owner does so only when
/// its own methods are called.
pub unsafe trait Memory: Send + 'static {
    /// Where the memory is.
    fn bytes(&mut self) -> NonNull<[u8]>;

    /// The file that the memory is a shared mapping of, and where in it the memory begins, a multiple of 4096. A device in another process reaches
    /// memory by its file. The file must not become shorter while the owner lives: seal it (`F_SEAL_SHRINK`), because that process has it too.
    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        None
    }
}

// SAFETY: the first owner's memory is; the second is another thing, and goes after it.
unsafe impl<M: Memory, T: Send + 'static> Memory for (M, T) {
    fn bytes(&mut self) -> NonNull<[u8]> {
        self.0.bytes()
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.0.file()
    }
}

/// Whole pages of zeroes, touched by nobody before they are used: a page-aligned `Box<[u8]>`.
#[derive(Debug)]
pub struct Pages {
    pub(super) mapping: Mapping,
    /// The file behind it, whose first byte is the first of the mapping.
    pub(super) file: Option<OwnedFd>,
}

impl Pages {
    /// At least `bytes` bytes, and at least a page.
    pub fn new(bytes: usize) -> io::Result<Pages> {
        Ok(Pages::backed(bytes, Backing::Anonymous)?.0)
    }

    /// The same with a file behind it, so that a device in another process reaches it too.
    pub fn shared(bytes: usize) -> io::Result<Pages> {
        Ok(Pages::backed(bytes, Backing::Memfd)?.0)
    }

    /// Whole pages, of 2 MiB for huge ones, and what was got.
    pub(super) fn backed(bytes: usize, backing: Backing) -> io::Result<(Pages, Backing)> {
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE as usize).ok_or(io::ErrorKind::OutOfMemory)?;
        let file = |kind, flags| {
            let file = sealed_memfd("reap-dma", bytes as u64, kind)?;
            let mapping = Mapping::shared(&file, 0, bytes, Mapping::READ_WRITE, flags)?;
            io::Result::Ok((Pages { mapping, file: Some(file) }, backing))
        };
        match backing {
            Backing::Anonymous => {
                let mapping = Mapping::anonymous(bytes, MapFlags::NORESERVE)?;
                // Best effort: without huge pages the memory works as well.
                _ = mapping.advise(Advice::LinuxHugepage);
                Ok((Pages { mapping, file: None }, backing))
            }
            Backing::Memfd => file(MemfdFlags::empty(), MapFlags::NORESERVE),
            // Huge pages are reserved by the mapping: one that is missing when it is first touched would be a signal.
            Backing::HugeMemfd => {
                file(MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB, MapFlags::empty()).or_else(|_| Pages::backed(bytes, Backing::Memfd))
            }
        }
    }
}

// SAFETY: the mapping is the owner's alone, zeroed, and stays until it is dropped.
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
        // SAFETY: the mapping is initialised, and is written to only through `&mut self`: while it is registered nobody
        // has a `&Pages`.
        unsafe { std::slice::from_raw_parts(self.mapping.at.as_ptr(), self.mapping.bytes) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.at.as_ptr(), self.mapping.bytes) }
    }
}

/// Memory that is known by its address alone: a database's own frames, or memory from C.
pub struct RawMemory {
    memory: NonNull<[u8]>,
    free: Option<Box<dyn FnOnce() + Send>>,
}

// SAFETY: its maker has promised that the memory may be used from any thread; the closure is `Send`.
unsafe impl Send for RawMemory {}

impl RawMemory {
    /// The `bytes` bytes at `memory`. `free` is called once, by whichever thread is the last to let go of them: then
    /// neither the device nor this process reaches them through this library.
    ///
    /// ```
    /// use std::ptr::NonNull;
    ///
    /// #[derive(Clone)]
    /// #[repr(align(4096))]
    /// struct Frame([u8; 16384]);
    ///
    /// // Frames that are there as long as the process.
    /// let frames: &'static mut [Frame] = vec![Frame([0; 16384]); 64].leak();
    /// let (first, bytes) = (NonNull::from(&mut *frames).cast(), size_of_val(frames));
    /// // SAFETY: they are initialised, never freed, and from now on reached only through the region.
    /// let memory = unsafe { hw::RawMemory::new(first, bytes, || ()) };
    /// let region = hw::DmaPool::new(4 << 20)?.register(memory).map_err(|(why, _)| why)?;
    /// let frame = region.buffer(16384..32768)?;
    /// assert_eq!(frame.len(), 16384);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    /// Until `free` is called the bytes are there, initialised, and nobody else reads or writes them, on any thread.
    pub unsafe fn new(memory: NonNull<u8>, bytes: usize, free: impl FnOnce() + Send + 'static) -> RawMemory {
        RawMemory { memory: NonNull::slice_from_raw_parts(memory, bytes), free: Some(Box::new(free)) }
    }
}

// SAFETY: that is what `RawMemory::new` asks of its caller.
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
