//! Memory for a trial of what a device, a host or a file claims: nothing else lies near it, and what is written outside shows.

use std::io;
use std::ptr;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// What a page of any machine is a divisor of.
const PAGE: usize = 1 << 16;

/// What the bytes around the buffer hold.
const CANARY: u8 = 0xa5;

/// A mapping of its own with a buffer in its middle, at least 64 KiB of canaries on each side, and pages that cannot be touched
/// beyond these. A device that copies whole pages where part of one was asked for writes to canaries, not to the heap.
#[derive(Debug)]
pub struct Guarded {
    base: *mut u8,
    mapped: usize,
    at: usize,
    length: usize,
}

impl Guarded {
    /// A buffer of `length` bytes at an odd multiple of `alignment`, so that a stricter need shows. Both are below 16 MiB.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(length: usize, alignment: usize) -> io::Result<Guarded> {
        let around = PAGE.max(2 * alignment).next_multiple_of(PAGE);
        let inner = around + length.next_multiple_of(PAGE) + 2 * around;
        let mapped = inner + 2 * PAGE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), mapped, ProtFlags::empty(), MapFlags::PRIVATE)? }.cast::<u8>();
        let mut guarded = Guarded { base, mapped, at: 0, length };
        // SAFETY: the pages are within the mapping just made.
        unsafe { mprotect(base.add(PAGE).cast(), inner, MprotectFlags::READ | MprotectFlags::WRITE)? };
        // SAFETY: the pages were just made writable, and nothing else knows of them.
        unsafe { base.add(PAGE).write_bytes(CANARY, inner) };
        let first = base.addr() + PAGE + around;
        guarded.at = first.next_multiple_of(2 * alignment) + alignment - base.addr();
        guarded.bytes().fill(0);
        Ok(guarded)
    }

    /// The buffer.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `at` and `length` lie within the writable pages, which are initialised, and `self` is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(self.at), self.length) }
    }

    /// Whether all bytes around the buffer hold what they held at first.
    pub fn is_intact(&self) -> bool {
        let (first, end) = (PAGE, self.mapped - PAGE);
        // SAFETY: the range lies within the readable pages, which are initialised; the buffer between is not looked at.
        let intact =
            |from: usize, to: usize| unsafe { std::slice::from_raw_parts(self.base.add(from), to - from) }.iter().all(|&b| b == CANARY);
        intact(first, self.at) && intact(self.at + self.length, end)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's alone, and no borrow of it is left. An error leaves it mapped, which harms nothing.
        let _ = unsafe { munmap(self.base.cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_is_at_an_odd_multiple() {
        for (length, alignment) in [(512, 4), (4096, 512), (4096, 4096), (65_536, 8_192)] {
            let mut guarded = Guarded::new(length, alignment).unwrap();
            let at = guarded.bytes().as_ptr().addr();
            assert_eq!((at % alignment, at / alignment % 2, guarded.bytes().len()), (0, 1, length));
            guarded.bytes().fill(1);
            assert!(guarded.is_intact());
        }
    }

    #[test]
    fn a_write_outside_is_seen() {
        let write = |by: isize| {
            let mut guarded = Guarded::new(4096, 512).unwrap();
            let at = guarded.bytes().as_mut_ptr();
            // SAFETY: within the canaries of the mapping, as a device would write there.
            unsafe { at.offset(by).write(0) };
            guarded.is_intact()
        };
        // The page that the buffer begins in, and the last byte of the one that it ends in.
        assert!(!write(-512) && !write(-1) && !write(4096) && !write(4096 + 3583));
        assert!(write(0) && write(4095));
    }
}
