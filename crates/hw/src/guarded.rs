//! Memory for a trial of what a device, a host or a file claims: what is written outside shows.

use std::io;

use crate::Pages;

/// Canaries on each side, at least.
const AROUND: usize = 1 << 16;

/// What the bytes around the buffer hold.
const CANARY: u8 = 0xa5;

/// A mapping of its own with a buffer in its middle and at least 64 KiB of canaries on each side. A device that copies whole pages where
/// part of one was asked for writes to canaries, not to the heap.
#[derive(Debug)]
pub struct Guarded {
    pages: Pages,
    at: usize,
    length: usize,
}

impl Guarded {
    /// A buffer of `length` bytes at an odd multiple of `alignment`, so that a stricter need shows. Both are below 16 MiB.
    pub fn new(length: usize, alignment: usize) -> io::Result<Guarded> {
        let mut pages = Pages::new(length + 2 * AROUND + 4 * alignment)?;
        pages.fill(CANARY);
        let base = pages.as_ptr().addr();
        let at = (base + AROUND).next_multiple_of(2 * alignment) + alignment - base;
        pages[at..at + length].fill(0);
        Ok(Guarded { pages, at, length })
    }

    /// The buffer.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.pages[self.at..self.at + self.length]
    }

    /// Whether all bytes around the buffer hold what they held at first.
    pub fn is_intact(&self) -> bool {
        let (before, after) = (&self.pages[..self.at], &self.pages[self.at + self.length..]);
        before.iter().chain(after).all(|&byte| byte == CANARY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_no_better() {
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
