//! The words of a ring that say whether there is something to do, mapped once more and read-only: threads that are neither its producer
//! nor its consumer ask, without a lock and without a system call. The io-uring crate's own queues cannot be asked by these: they read
//! the word that their own side writes without an atomic, and write it back when they are dropped.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use io_uring::Parameters;
use rustix::io_uring::{IORING_OFF_SQ_RING, io_uring_params};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The kernel's thread of an SQPOLL ring sleeps (io_uring_setup(2)).
const NEED_WAKEUP: u32 = 1 << 0;
/// Completions that did not fit wait for an enter.
const CQ_OVERFLOW: u32 = 1 << 1;
/// Work is pending in the task that entered.
const TASKRUN: u32 = 1 << 2;

/// The head and tail of both rings, and the flags, by their offsets.
#[derive(Debug)]
pub(super) struct View {
    memory: NonNull<u8>,
    bytes: usize,
    sq_head: usize,
    sq_tail: usize,
    sq_flags: usize,
    cq_head: usize,
    cq_tail: usize,
}

// SAFETY: the memory is only read, as atomics.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    /// Of the ring `fd`, which the kernel has described by `params`.
    pub fn new(fd: BorrowedFd<'_>, params: &Parameters) -> io::Result<View> {
        const { assert!(size_of::<Parameters>() == size_of::<io_uring_params>()) };
        // The kernel's structure: the crate has it too, and keeps the offsets to itself.
        // SAFETY: `Parameters` is documented as a transparent wrapper over the system's structure, which both describe.
        let layout: &io_uring_params = unsafe { &*ptr::from_ref(params).cast() };
        let (sq, cq) = (&layout.sq_off, &layout.cq_off);
        let offsets = [sq.head, sq.tail, sq.flags, cq.head, cq.tail].map(|offset| offset as usize);
        let bytes = offsets.into_iter().fold(0, usize::max) + size_of::<u32>();
        // Both rings are in this mapping since 5.4 (IORING_FEAT_SINGLE_MMAP), which setup has asked for.
        // SAFETY: a mapping at an address of the kernel's choice replaces nothing.
        let memory = unsafe { mmap(ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, fd, IORING_OFF_SQ_RING) }?;
        let memory = NonNull::new(memory.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let [sq_head, sq_tail, sq_flags, cq_head, cq_tail] = offsets;
        Ok(View { memory, bytes, sq_head, sq_tail, sq_flags, cq_head, cq_tail })
    }

    #[inline]
    fn load(&self, offset: usize, order: Ordering) -> u32 {
        // SAFETY: the offset is one of five inside the mapping, aligned as the kernel lays them out. A load of a word
        // needs no writable memory. All who write these words do so atomically.
        unsafe { &*self.memory.add(offset).cast::<AtomicU32>().as_ptr() }.load(order)
    }

    /// How many entries were pushed and the kernel has not consumed.
    #[inline]
    pub fn unsubmitted(&self) -> u32 {
        self.load(self.sq_tail, Ordering::Relaxed).wrapping_sub(self.load(self.sq_head, Ordering::Acquire))
    }

    /// How many completions can be taken.
    #[inline]
    pub fn entries(&self) -> u32 {
        self.load(self.cq_tail, Ordering::Acquire).wrapping_sub(self.load(self.cq_head, Ordering::Relaxed))
    }

    /// Whether an enter would bring completions that are no entries yet.
    #[inline]
    pub fn has_task_work(&self) -> bool {
        self.load(self.sq_flags, Ordering::Relaxed) & (CQ_OVERFLOW | TASKRUN) != 0
    }

    /// Whether the kernel's thread of an SQPOLL ring has to be woken.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.load(self.sq_flags, Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this size, and nobody has a pointer into it.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
