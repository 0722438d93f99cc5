//! A volatile write cache with simulated power loss.

use std::collections::BTreeMap;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::{Media, MediaError};

/// A volatile cache in front of a medium. Data acknowledged by [`Media::flush`] or a FUA write are
/// on the medium; of other blocks any version since may survive a power loss, but only whole
/// blocks, as a logical block is atomic (NVM 2.1.4).
#[derive(Debug)]
pub(crate) struct WriteCache<M> {
    inner: M,
    block: usize,
    capacity: usize,
    /// Versions of a block written since the last flush, oldest first. Any of them may have reached
    /// the medium.
    dirty: BTreeMap<u64, Vec<Version>>,
}

/// Content of a block version.
#[derive(Debug)]
enum Version {
    Data(Box<[u8]>),
    /// Zeroes, and whether the block may be deallocated.
    Zeroes {
        deallocate: bool,
    },
}

impl<M: Media> WriteCache<M> {
    /// A cache of blocks of `block` bytes (logical block size). With more than `capacity` dirty
    /// blocks it writes back.
    pub(crate) fn new(inner: M, block: u32, capacity: usize) -> WriteCache<M> {
        WriteCache { inner, block: block.max(1) as usize, capacity, dirty: BTreeMap::new() }
    }

    /// Blocks that a power loss may revert.
    pub(crate) fn dirty_blocks(&self) -> usize {
        self.dirty.len()
    }

    /// Power loss: each dirty block keeps its durable content or one of its later versions, chosen
    /// by `seed`. Errors are those of the medium.
    pub(crate) fn cut(&mut self, seed: u64) -> Result<(), MediaError> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        for (block, versions) in std::mem::take(&mut self.dirty) {
            let survivor = (rng.next_u64() % (versions.len() as u64 + 1)) as usize;
            if let Some(version) = survivor.checked_sub(1).and_then(|v| versions.get(v)) {
                put(&mut self.inner, block * self.block as u64, self.block, version, true)?;
            }
        }
        Ok(())
    }

    fn write_back(&mut self) -> Result<(), MediaError> {
        while let Some((&block, versions)) = self.dirty.first_key_value() {
            if let Some(last) = versions.last() {
                put(&mut self.inner, block * self.block as u64, self.block, last, false)?;
            }
            self.dirty.pop_first();
        }
        Ok(())
    }

    /// Calls `each` with (block, offset in the block, range of the buffer) for every block that a
    /// range overlaps.
    fn for_blocks(
        block: usize,
        at: u64,
        len: usize,
        mut each: impl FnMut(u64, usize, std::ops::Range<usize>) -> Result<(), MediaError>,
    ) -> Result<(), MediaError> {
        let mut done = 0;
        while done < len {
            let position = at + done as u64;
            let offset = (position % block as u64) as usize;
            let end = len.min(done + block - offset);
            each(position / block as u64, offset, done..end)?;
            done = end;
        }
        Ok(())
    }
}

/// Stores a version of the block of `size` bytes at `at`; the last block of a medium may be
/// shorter.
fn put(
    inner: &mut impl Media,
    at: u64,
    size: usize,
    version: &Version,
    fua: bool,
) -> Result<(), MediaError> {
    match version {
        Version::Data(data) => inner.write_at(at, data, fua),
        Version::Zeroes { deallocate } => {
            inner.zero_at(at, (inner.bytes() - at).min(size as u64), *deallocate, fua)
        }
    }
}

impl<M: Media> Media for WriteCache<M> {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn allocated(&self) -> u64 {
        self.inner.allocated()
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.inner.read_at(at, into)?;
        Self::for_blocks(self.block, at, into.len(), |block, offset, range| {
            if let Some(cached) = self.dirty.get(&block).and_then(|v| v.last()) {
                let len = range.len();
                match cached {
                    Version::Data(data) => into[range].copy_from_slice(&data[offset..offset + len]),
                    Version::Zeroes { .. } => into[range].fill(0),
                }
            }
            Ok(())
        })
    }

    fn write_at(&mut self, at: u64, from: &[u8], fua: bool) -> Result<(), MediaError> {
        if at.checked_add(from.len() as u64).is_none_or(|end| end > self.bytes()) {
            return Err(MediaError::OutOfRange { at, len: from.len() as u64, bytes: self.bytes() });
        }
        let (size, bytes) = (self.block, self.bytes());
        Self::for_blocks(size, at, from.len(), |block, offset, range| {
            let start = block * size as u64;
            let mut whole = vec![0; (bytes - start).min(size as u64) as usize].into_boxed_slice();
            if range.len() < whole.len() {
                self.read_at(start, &mut whole)?;
            }
            whole[offset..offset + range.len()].copy_from_slice(&from[range]);
            if fua {
                self.inner.write_at(start, &whole, true)?;
                self.dirty.remove(&block);
            } else {
                self.dirty.entry(block).or_default().push(Version::Data(whole));
            }
            Ok(())
        })?;
        if self.dirty.len() > self.capacity { self.write_back() } else { Ok(()) }
    }

    fn zero_at(
        &mut self,
        at: u64,
        len: u64,
        deallocate: bool,
        fua: bool,
    ) -> Result<(), MediaError> {
        let block = self.block as u64;
        if !at.is_multiple_of(block)
            || !len.is_multiple_of(block)
            || at.checked_add(len).is_none_or(|end| end > self.bytes())
        {
            return super::write_zeroes(len, |done, zeroes| {
                self.write_at(at.saturating_add(done), zeroes, fua)
            });
        }
        let blocks = at / block..(at + len) / block;
        if fua {
            self.inner.zero_at(at, len, deallocate, true)?;
            self.dirty.retain(|block, _| !blocks.contains(block));
            return Ok(());
        }
        for block in blocks {
            self.dirty.entry(block).or_default().push(Version::Zeroes { deallocate });
            if self.dirty.len() > self.capacity {
                self.write_back()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), MediaError> {
        self.write_back()?;
        self.inner.flush()
    }
}
