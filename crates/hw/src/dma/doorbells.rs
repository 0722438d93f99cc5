//! Doorbells that a host keeps in memory, for a controller to read (Base 5.2.5): a page of them, and a page of their EventIdx.

use std::convert::Infallible;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sync::shadow::{ShadowDoorbell, ShadowDoorbells};

use super::PAGE;
use super::pool::{AllocError, DmaPool, RingBlock};

/// Both pages, one behind the other. The tail of queue 0 comes first, its head, the tail of queue 1, and so on. They are 4 bytes each,
/// and as far apart as the controller's registers are (CAP.DSTRD).
#[derive(Clone, Debug)]
pub struct DoorbellPages {
    first: NonNull<u32>,
    /// Words from one doorbell to the next: a power of two.
    stride: usize,
    block: Arc<RingBlock>,
}

// SAFETY: the memory is reached only as atomics, and the block, kept by the `Arc`, is never given out as bytes or as a ring.
unsafe impl Send for DoorbellPages {}
// SAFETY: as above.
unsafe impl Sync for DoorbellPages {}

/// Words of a page.
const WORDS: usize = PAGE as usize / size_of::<u32>();

impl DmaPool {
    /// Pages for the doorbells of a controller whose doorbells are 2^(2 + `dstrd`) bytes apart (CAP.DSTRD), zeroed.
    ///
    /// # Errors
    /// See [`AllocError`].
    pub fn alloc_doorbells(&self, dstrd: u8) -> Result<DoorbellPages, AllocError> {
        let len = 2 * PAGE as usize;
        let offset = self.0.take(len)?;
        let first = self.0.own.at(offset);
        // SAFETY: the block is inside the mapping, and nobody else knows it.
        unsafe { first.write_bytes(0, len) };
        // It is not among the rings: nobody can map a queue over it.
        let block = Arc::new(RingBlock { offset, len: len as u64, pool: self.0.clone() });
        Ok(DoorbellPages { first: first.cast(), stride: 1 << dstrd.min(15), block })
    }
}

impl DoorbellPages {
    /// Bus addresses of both: doorbells, EventIdx.
    pub fn addrs(&self) -> (u64, u64) {
        let first = self.block.pool.own.base + self.block.offset;
        (first, first + PAGE)
    }

    /// All of them are 0: after a reset, before the controller learns of them again.
    pub fn clear(&self) {
        (0..2 * WORDS).for_each(|at| self.word(at).store(0, Ordering::Relaxed));
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at < 2 * WORDS);
        // SAFETY: `doorbell` and `clear` give no word beyond both pages, which are page-aligned, initialised (zeroed), live as long as
        // `block`, and are reached in this process by nothing but `AtomicU32`s. The controller's accesses are whole words, too.
        unsafe { &*self.first.as_ptr().add(at).cast::<AtomicU32>() }
    }
}

impl ShadowDoorbells for DoorbellPages {
    type Doorbell<'a> = DoorbellWords<'a>;

    /// `None`: the page ends before it.
    #[inline]
    fn doorbell(&self, n: usize) -> Option<DoorbellWords<'_>> {
        let at = n.checked_mul(self.stride).filter(|at| *at < WORDS)?;
        Some(DoorbellWords { pages: self, at })
    }
}

/// One doorbell, and its EventIdx. The controller may be a device: both words are little-endian.
#[derive(Clone, Copy, Debug)]
pub struct DoorbellWords<'a> {
    pages: &'a DoorbellPages,
    at: usize,
}

impl ShadowDoorbell for DoorbellWords<'_> {
    type Fault = Infallible;

    #[inline]
    fn value(&self) -> Result<u32, Infallible> {
        Ok(u32::from_le(self.pages.word(self.at).load(Ordering::Acquire)))
    }

    #[inline]
    fn set_value(&self, value: u32) -> Result<(), Infallible> {
        self.pages.word(self.at).store(value.to_le(), Ordering::Release);
        Ok(())
    }

    #[inline]
    fn event(&self) -> Result<u32, Infallible> {
        Ok(u32::from_le(self.pages.word(WORDS + self.at).load(Ordering::Relaxed)))
    }

    #[inline]
    fn set_event(&self, value: u32) -> Result<(), Infallible> {
        self.pages.word(WORDS + self.at).store(value.to_le(), Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
