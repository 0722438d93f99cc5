//! A medium with unreadable blocks.

use std::collections::BTreeMap;

use super::{Media, MediaError};

/// Wraps a medium on which Write Uncorrectable has made blocks unreadable (NVM 3.3.7). A write to a
/// block makes it readable again.
pub(crate) struct BadBlocks<M> {
    pub(crate) inner: M,
    /// Start and end of each unreadable range, in bytes. Ranges do not overlap.
    marks: BTreeMap<u64, u64>,
}

impl<M: Media> BadBlocks<M> {
    pub(crate) fn new(inner: M) -> BadBlocks<M> {
        BadBlocks { inner, marks: BTreeMap::new() }
    }

    /// Makes `len` bytes from `at` unreadable.
    pub(crate) fn mark(&mut self, at: u64, len: u64) {
        self.clear(at, len);
        self.marks.insert(at, at.saturating_add(len));
    }

    /// Removes the marks from a range.
    fn clear(&mut self, at: u64, len: u64) {
        let end = at.saturating_add(len);
        let touched: Vec<(u64, u64)> = self.touching(at, end).collect();
        for (from, to) in touched {
            self.marks.remove(&from);
            // A write in the middle of a range leaves a marked part on each side.
            if from < at {
                self.marks.insert(from, at);
            }
            if to > end {
                self.marks.insert(end, to);
            }
        }
    }

    /// The marked ranges that overlap `at..end`.
    fn touching(&self, at: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        // Ranges do not overlap, so their ends are sorted like their starts.
        self.marks
            .range(..end)
            .rev()
            .take_while(move |(_, to)| **to > at)
            .map(|(from, to)| (*from, *to))
    }
}

impl<M: Media> Media for BadBlocks<M> {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn allocated(&self) -> u64 {
        self.inner.allocated()
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        let len = into.len() as u64;
        if self.touching(at, at.saturating_add(len)).next().is_some() {
            return Err(MediaError::Uncorrectable { at, len });
        }
        self.inner.read_at(at, into)
    }

    fn write_at(&mut self, at: u64, from: &[u8], fua: bool) -> Result<(), MediaError> {
        // The mark is removed only if the write succeeded; a failed one leaves the block
        // unreadable.
        self.inner.write_at(at, from, fua)?;
        self.clear(at, from.len() as u64);
        Ok(())
    }

    fn zero_at(
        &mut self,
        at: u64,
        len: u64,
        deallocate: bool,
        fua: bool,
    ) -> Result<(), MediaError> {
        self.inner.zero_at(at, len, deallocate, fua)?;
        self.clear(at, len);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), MediaError> {
        self.inner.flush()
    }

    fn is_volatile(&self) -> bool {
        self.inner.is_volatile()
    }
}
