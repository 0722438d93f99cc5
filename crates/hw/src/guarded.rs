//! A buffer between guard bytes, for tests of devices and hosts that may write out of bounds.

use std::io;

use crate::Pages;

/// Minimum number of guard bytes on each side.
const GUARD_BYTES: usize = 1 << 16;

/// Value of the guard bytes.
const CANARY: u8 = 0xa5;

/// A mapping of its own with a buffer in the middle and at least 64 KiB of guard bytes on each
/// side. A device that copies whole pages where part of a page was asked for overwrites guard
/// bytes, not the heap.
#[derive(Debug)]
pub struct GuardedBuffer {
    pages: Pages,
    at: usize,
    length: usize,
}

impl GuardedBuffer {
    /// A buffer of `length` bytes, aligned to `alignment` and to no larger power of two: a device
    /// that needs more fails visibly. Both values must be below 16 MiB.
    pub fn new(length: usize, alignment: usize) -> io::Result<GuardedBuffer> {
        let mut pages = Pages::new(length + 2 * GUARD_BYTES + 4 * alignment)?;
        pages.fill(CANARY);
        let base = pages.as_ptr().addr();
        // An odd multiple of `alignment` is not aligned to 2 * `alignment`.
        let at = (base + GUARD_BYTES).next_multiple_of(2 * alignment) + alignment - base;
        pages[at..at + length].fill(0);
        Ok(GuardedBuffer { pages, at, length })
    }

    /// The buffer.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.pages[self.at..self.at + self.length]
    }

    /// Whether all guard bytes are unchanged.
    pub fn is_intact(&self) -> bool {
        let (before, after) = (&self.pages[..self.at], &self.pages[self.at + self.length..]);
        before.iter().chain(after).all(|&byte| byte == CANARY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_exactly_the_alignment() {
        for (length, alignment) in [(512, 4), (4096, 512), (4096, 4096), (65_536, 8_192)] {
            let mut guarded = GuardedBuffer::new(length, alignment).unwrap();
            let at = guarded.bytes().as_ptr().addr();
            assert_eq!((at % alignment, at / alignment % 2, guarded.bytes().len()), (0, 1, length));
            guarded.bytes().fill(1);
            assert!(guarded.is_intact());
        }
    }

    #[test]
    fn writes_outside_are_detected() {
        let write = |by: isize| {
            let mut guarded = GuardedBuffer::new(4096, 512).unwrap();
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
