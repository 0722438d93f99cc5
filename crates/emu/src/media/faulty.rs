//! A medium with injected faults.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::{Media, MediaError};

/// A fault of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaFault {
    /// A bit of this logical block is flipped.
    Rot(u64),
    /// This number of writes go to the following block instead of their own (at the end, to the
    /// preceding one).
    Misdirected(u32),
    /// This number of writes are acknowledged but not executed.
    Phantom(u32),
    /// Writes stay in a volatile cache until a Flush or until it is full; a power loss drops them.
    Cache,
    /// Flush does not write the cache back.
    LyingFlush,
    /// Flush writes the cache back again.
    HonestFlush,
}

/// Capacity of the cache in bytes.
const CACHE: usize = 64 << 20;
/// Bytes of a cached piece.
const PIECE: u64 = 4096;

/// Wraps a medium and injects faults.
pub(crate) struct Faulty<M> {
    inner: M,
    misdirected: u32,
    phantom: u32,
    lies: bool,
    /// The durable content of each piece that was written since the last Flush; `None` without a
    /// cache.
    before: Option<BTreeMap<u64, Vec<u8>>>,
}

impl<M: Media> Faulty<M> {
    pub(crate) fn new(inner: M) -> Faulty<M> {
        Faulty { inner, misdirected: 0, phantom: 0, lies: false, before: None }
    }

    /// Injects a fault, which happens once or lasts from now on. `block`: logical block size in
    /// bytes.
    pub(crate) fn inject_fault(&mut self, fault: MediaFault, block: u64) -> Result<(), MediaError> {
        match fault {
            MediaFault::Rot(lba) => {
                let (at, mut byte) = (lba.saturating_mul(block), [0]);
                self.inner.read_at(at, &mut byte)?;
                // The write bypasses the cache: the fault is in the medium itself.
                self.inner.write_at(at, &[byte[0] ^ 0x10], false)?;
            }
            MediaFault::Misdirected(times) => self.misdirected = times,
            MediaFault::Phantom(times) => self.phantom = times,
            MediaFault::Cache => _ = self.before.get_or_insert_default(),
            MediaFault::LyingFlush => self.lies = true,
            MediaFault::HonestFlush => self.lies = false,
        }
        Ok(())
    }

    /// The injected faults that are still in effect.
    #[cfg(feature = "serve")]
    pub(crate) fn active_faults(&self) -> Vec<MediaFault> {
        let faults = [
            (self.misdirected > 0, MediaFault::Misdirected(self.misdirected)),
            (self.phantom > 0, MediaFault::Phantom(self.phantom)),
            (self.before.is_some(), MediaFault::Cache),
            (self.lies, MediaFault::LyingFlush),
        ];
        faults.into_iter().filter_map(|(lasts, fault)| lasts.then_some(fault)).collect()
    }

    /// Power loss: restores the durable content.
    pub(crate) fn lose_power(&mut self) -> Result<(), MediaError> {
        let before = self.before.as_mut().map(std::mem::take).unwrap_or_default();
        before.into_iter().try_for_each(|(at, bytes)| self.inner.write_at(at, &bytes, false))
    }

    /// Saves the durable content of a range before it is overwritten.
    fn remember(&mut self, at: u64, len: u64) -> Result<(), MediaError> {
        let Some(before) = &mut self.before else { return Ok(()) };
        if before.len() * PIECE as usize >= CACHE {
            before.clear();
        }
        let mut piece = at / PIECE * PIECE;
        while piece < at.saturating_add(len).min(self.inner.bytes()) {
            // Only the first write after a Flush: the later ones overwrite data that were never
            // durable.
            if let Entry::Vacant(vacant) = before.entry(piece) {
                let mut bytes = vec![0; PIECE.min(self.inner.bytes() - piece) as usize];
                self.inner.read_at(piece, &mut bytes)?;
                vacant.insert(bytes);
            }
            piece += PIECE;
        }
        Ok(())
    }
}

impl<M: Media> Media for Faulty<M> {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn allocated(&self) -> u64 {
        self.inner.allocated()
    }

    fn read_at(&mut self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.inner.read_at(at, into)
    }

    fn write_at(&mut self, mut at: u64, from: &[u8], fua: bool) -> Result<(), MediaError> {
        let len = from.len() as u64;
        if self.phantom > 0 {
            self.phantom -= 1;
            return Ok(());
        }
        if self.misdirected > 0 {
            self.misdirected -= 1;
            let fits = at.saturating_add(2 * len) <= self.inner.bytes();
            at = if fits { at + len } else { at.saturating_sub(len) };
        }
        if !fua {
            self.remember(at, len)?;
        }
        self.inner.write_at(at, from, fua)?;
        // A FUA write is durable: a power loss must not revert it together with earlier writes.
        if let Some(before) = self.before.as_mut().filter(|_| fua) {
            for (piece, bytes) in before.range_mut(at / PIECE * PIECE..at + len) {
                let (from_byte, to) = (at.max(*piece), (at + len).min(piece + bytes.len() as u64));
                let kept = bytes.get_mut((from_byte - piece) as usize..(to - piece) as usize);
                if let (Some(kept), Some(new)) =
                    (kept, from.get((from_byte - at) as usize..(to - at) as usize))
                {
                    kept.copy_from_slice(new);
                }
            }
        }
        Ok(())
    }

    fn zero_at(
        &mut self,
        at: u64,
        len: u64,
        deallocate: bool,
        fua: bool,
    ) -> Result<(), MediaError> {
        if self.before.is_some() {
            // Cached zeroes are treated as data.
            return super::write_zeroes(len, |done, zeroes| self.write_at(at + done, zeroes, fua));
        }
        self.inner.zero_at(at, len, deallocate, fua)
    }

    fn flush(&mut self) -> Result<(), MediaError> {
        // The Flush is acknowledged but not executed: `before` is kept, and a power loss reverts
        // the writes.
        if self.lies {
            return Ok(());
        }
        if let Some(before) = &mut self.before {
            before.clear();
        }
        self.inner.flush()
    }

    fn is_volatile(&self) -> bool {
        self.before.is_some() || self.inner.is_volatile()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Budget, Mem};

    fn medium() -> Faulty<Mem> {
        Faulty::new(Mem::new(65_536, Budget::new(1 << 20)))
    }

    fn read(medium: &mut Faulty<Mem>, at: u64) -> u8 {
        let mut byte = [0];
        medium.read_at(at, &mut byte).unwrap();
        byte[0]
    }

    #[test]
    fn writes_go_astray_or_nowhere() {
        let mut medium = medium();
        medium.inject_fault(MediaFault::Misdirected(1), 512).unwrap();
        medium.write_at(512, &[7; 512], false).unwrap();
        assert_eq!((read(&mut medium, 512), read(&mut medium, 1024)), (0, 7));
        medium.inject_fault(MediaFault::Misdirected(1), 512).unwrap();
        medium.write_at(65_024, &[8; 512], false).unwrap();
        assert_eq!((read(&mut medium, 65_024), read(&mut medium, 64_512)), (0, 8));
        medium.inject_fault(MediaFault::Phantom(1), 512).unwrap();
        medium.write_at(0, &[9; 512], true).unwrap();
        assert_eq!(read(&mut medium, 0), 0);
        medium.write_at(0, &[9; 512], true).unwrap();
        assert_eq!(read(&mut medium, 0), 9);
        medium.inject_fault(MediaFault::Rot(0), 512).unwrap();
        assert_eq!(read(&mut medium, 0), 9 ^ 0x10);
        assert!(medium.inject_fault(MediaFault::Rot(u64::MAX), 512).is_err());
    }

    #[test]
    fn unreadable_blocks_hide_no_fault() {
        let mut medium = crate::config::Medium::Mem(Mem::new(65_536, Budget::new(1 << 20)));
        medium.inject_fault(MediaFault::Cache, 512).unwrap();
        medium.write_at(0, &[1; 512], false).unwrap();
        medium.mark_uncorrectable(4096, 512);
        medium.inject_fault(MediaFault::LyingFlush, 512).unwrap();
        medium.flush().unwrap();
        medium.lose_power().unwrap();
        let mut byte = [7];
        medium.read_at(0, &mut byte).unwrap();
        assert_eq!(byte, [0]);
        assert!(medium.read_at(4096, &mut byte).is_err());
    }

    #[test]
    fn cache_is_lost_with_power() {
        let mut medium = medium();
        medium.write_at(0, &[1; 8192], false).unwrap();
        medium.inject_fault(MediaFault::Cache, 512).unwrap();
        assert!(medium.is_volatile());
        medium.write_at(512, &[2; 512], false).unwrap();
        medium.write_at(1024, &[3; 512], true).unwrap();
        medium.zero_at(4096, 512, true, false).unwrap();
        medium.lose_power().unwrap();
        assert_eq!([0, 512, 1024, 4096].map(|at| read(&mut medium, at)), [1, 1, 3, 1]);
        medium.write_at(512, &[4; 512], false).unwrap();
        medium.flush().unwrap();
        medium.lose_power().unwrap();
        assert_eq!(read(&mut medium, 512), 4);
        medium.inject_fault(MediaFault::LyingFlush, 512).unwrap();
        medium.write_at(512, &[5; 512], false).unwrap();
        medium.flush().unwrap();
        medium.lose_power().unwrap();
        assert_eq!(read(&mut medium, 512), 4);
    }
}
