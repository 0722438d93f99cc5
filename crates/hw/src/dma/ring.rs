//! Queue rings in DMA memory: their memory, their slots as 8-byte atomics, and shadow doorbells.
//! The tail doorbell (submission) and the phase tag (completion) decide which side may read an
//! entry.
//!
//! ```text
//! SQ   host                                     device
//!      words of the SQE (relaxed)
//!      tail doorbell (release)     --------->   tail (acquire), then the words (relaxed)
//!
//! CQ device host word 0 (relaxed) word 1 with phase (release) ---------> word 1 (acquire); phase
//! as expected: word 0 (relaxed) ```

use std::convert::Infallible;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nvme::{CqSlots, Cqe, SqSlots, Sqe};
use sync::shadow::{ShadowDoorbell, ShadowDoorbells};

use super::pool::{AllocError, DmaPool, Pool};
use super::{PAGE, lock};

/// Memory of a submission or completion queue. The host keeps it while the controller may use the
/// queue. Rings mapped over it keep it alive too, so that neither side uses memory that has been
/// freed.
#[derive(Debug)]
pub struct RingMemory {
    offset: u64,
    pub(super) len: u64,
    pool: Arc<Pool>,
}

impl RingMemory {
    /// Bus address of the first byte, page-aligned.
    pub fn addr(&self) -> u64 {
        self.pool.own.base + self.offset
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        if !self.pool.fork_guard.same_process() {
            return;
        }
        lock(&self.pool.rings).remove(&self.offset);
        self.pool.free_block(self.offset, self.len as usize);
    }
}

impl DmaPool {
    /// Allocates memory for a queue: zeroed and page-aligned, `len` bytes rounded up to pages.
    /// [`DmaPool::sq`] and [`DmaPool::cq`] map it; it is never accessible as bytes.
    pub fn alloc_ring(&self, len: usize) -> Result<Arc<RingMemory>, AllocError> {
        let block = self
            .zeroed(len.max(1).checked_next_multiple_of(PAGE as usize).ok_or(self.0.full(len))?)?;
        lock(&self.0.rings).insert(block.offset, Arc::downgrade(&block));
        Ok(block)
    }

    /// Allocates zeroed pages for shadow doorbells, 2^(2 + `dstrd`) bytes apart (CAP.DSTRD).
    pub fn alloc_doorbells(&self, dstrd: u8) -> Result<DoorbellPages, AllocError> {
        // Not inserted into `rings`: no queue can be mapped over it.
        let block = self.zeroed(2 * PAGE as usize)?;
        Ok(DoorbellPages {
            first: self.0.own.at(block.offset).cast(),
            stride: 1 << dstrd.min(15),
            block,
        })
    }

    fn zeroed(&self, len: usize) -> Result<Arc<RingMemory>, AllocError> {
        let offset = self.0.alloc_block(len)?;
        // SAFETY: the block is inside the mapping and just allocated: no other code uses it.
        unsafe { self.0.own.at(offset).write_bytes(0, len) };
        Ok(Arc::new(RingMemory { offset, len: len as u64, pool: self.0.clone() }))
    }

    /// Maps a submission queue of `entries` entries at bus address `addr`. `None` unless all of it
    /// lies in one [`RingMemory`], 8-byte aligned.
    pub fn sq(&self, addr: u64, entries: u32) -> Option<SqRing> {
        self.slots(addr, entries)
    }

    /// Maps a completion queue, as [`DmaPool::sq`] does.
    pub fn cq(&self, addr: u64, entries: u32) -> Option<CqRing> {
        self.slots(addr, entries)
    }

    /// Maps `entries` entries at `addr`, if they are within one ring block.
    fn slots<const WORDS: usize>(&self, addr: u64, entries: u32) -> Option<Slots<WORDS>> {
        let own = &self.0.own;
        let offset = addr.checked_sub(own.base).filter(|o| *o < own.bytes && o % 8 == 0)?;
        let (_, block) = lock(&self.0.rings)
            .range(..=offset)
            .next_back()
            .map(|(&at, block)| (at, block.upgrade()))?;
        let block = block?;
        let end = offset + u64::from(entries) * 8 * WORDS as u64;
        if entries == 0 || end > block.offset + block.len {
            return None;
        }
        Some(Slots { first: own.at(offset).cast(), entries, _block: block })
    }
}

/// The slots of a submission queue.
pub type SqRing = Slots<8>;

/// The slots of a completion queue.
pub type CqRing = Slots<2>;

/// `entries` entries of `WORDS` words at `first`, inside a ring block that is kept alive.
#[derive(Clone, Debug)]
pub struct Slots<const WORDS: usize> {
    first: NonNull<u64>,
    entries: u32,
    _block: Arc<RingMemory>,
}

// SAFETY: the memory is reached only as atomics, and the block, kept by the `Arc`, is never
// accessible as bytes.
unsafe impl<const WORDS: usize> Send for Slots<WORDS> {}
// SAFETY: as above.
unsafe impl<const WORDS: usize> Sync for Slots<WORDS> {}

impl<const WORDS: usize> Slots<WORDS> {
    /// The words of `len` slots from `first` on. A slot outside the ring is a bug in the ring
    /// arithmetic and panics, as an index would.
    #[inline]
    fn run(&self, first: u32, len: usize) -> &[[AtomicU64; WORDS]] {
        if first as usize + len > self.entries as usize {
            out_of_ring(first.max(self.entries), self.entries);
        }
        // SAFETY: the slots are inside the ring, which `DmaPool::slots` has found to be inside the
        // block and 8-byte aligned. The memory is initialised (zeroed), lives at least as long as
        // `_block`, and is only ever accessed as `AtomicU64`s.
        unsafe {
            std::slice::from_raw_parts(self.first.as_ptr().add(first as usize * WORDS).cast(), len)
        }
    }

    #[inline]
    fn slot(&self, slot: u32) -> &[AtomicU64; WORDS] {
        if slot >= self.entries {
            out_of_ring(slot, self.entries);
        }
        // SAFETY: as in `run`.
        unsafe { self.first.add(slot as usize * WORDS).cast().as_ref() }
    }
}

/// Takes its arguments by value so that the caller can keep the slot in a register.
#[cold]
fn out_of_ring(slot: u32, entries: u32) -> ! {
    panic!("slot {slot} of a ring of {entries} entries")
}

impl SqSlots for SqRing {
    #[inline]
    fn store(&self, slot: u32, sqe: &Sqe) {
        // Relaxed: the release store of the tail doorbell publishes them.
        self.slot(slot)
            .iter()
            .zip(sqe.to_words())
            .for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }

    #[inline]
    fn load(&self, slot: u32) -> Sqe {
        // Relaxed: the acquire load of the tail doorbell came before.
        Sqe::from_words(self.slot(slot).each_ref().map(|word| word.load(Ordering::Relaxed)))
    }
}

impl CqSlots for CqRing {
    #[inline]
    fn store(&self, slot: u32, cqe: &Cqe) {
        let (words, [first, phase]) = (self.slot(slot), cqe.to_words());
        words[0].store(first, Ordering::Relaxed);
        // The phase tag is in word 1: its release store publishes the entry, so it comes last.
        words[1].store(phase, Ordering::Release);
    }

    #[inline]
    fn load(&self, slot: u32, phase: bool) -> Option<Cqe> {
        let words = self.slot(slot);
        let second = words[1].load(Ordering::Acquire);
        // Word 0 only after the phase tag matches: before that it is the previous entry's.
        (Cqe::phase_of(second) == phase)
            .then(|| Cqe::from_words([words[0].load(Ordering::Relaxed), second]))
    }

    #[inline]
    fn load_run<T>(
        &self,
        slot: u32,
        phase: bool,
        out: &mut [T],
        mut each: impl FnMut(Cqe, &mut T) -> bool,
    ) -> u32 {
        let mut taken = 0;
        for (words, place) in self.run(slot, out.len()).iter().zip(out) {
            let second = words[1].load(Ordering::Acquire);
            if Cqe::phase_of(second) != phase
                || !each(Cqe::from_words([words[0].load(Ordering::Relaxed), second]), place)
            {
                break;
            }
            taken += 1;
        }
        taken
    }

    #[inline]
    fn is_new(&self, slot: u32, phase: bool) -> bool {
        Cqe::phase_of(self.slot(slot)[1].load(Ordering::Acquire)) == phase
    }
}

/// Shadow doorbells in host memory, which the controller reads (Base 5.2.5, Doorbell Buffer
/// Config): one page of doorbells followed by one page of EventIdx values. Order: SQ 0 tail, CQ 0
/// head, SQ 1 tail and so on, 4 bytes each, as far apart as the doorbell registers (CAP.DSTRD).
#[derive(Clone, Debug)]
pub struct DoorbellPages {
    first: NonNull<u32>,
    /// Distance between doorbells in words: a power of two.
    stride: usize,
    block: Arc<RingMemory>,
}

// SAFETY: the memory is reached only as atomics, and the block, kept by the `Arc`, is never
// accessible as bytes or as a ring.
unsafe impl Send for DoorbellPages {}
// SAFETY: as above.
unsafe impl Sync for DoorbellPages {}

/// Words of a page.
const WORDS: usize = PAGE as usize / size_of::<u32>();

impl DoorbellPages {
    /// Bus addresses of the doorbell page and of the EventIdx page.
    pub fn addrs(&self) -> (u64, u64) {
        let first = self.block.pool.own.base + self.block.offset;
        (first, first + PAGE)
    }

    /// Zeroes both pages: after a reset, before Doorbell Buffer Config is sent again.
    pub fn clear(&self) {
        (0..2 * WORDS).for_each(|at| self.word(at).store(0, Ordering::Relaxed));
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at < 2 * WORDS);
        // SAFETY: `doorbell` and `clear` pass no index beyond both pages, which are page-aligned,
        // zeroed, live as long as `block`, and are accessed in this process only as `AtomicU32`s.
        // The controller accesses whole words too.
        unsafe { &*self.first.as_ptr().add(at).cast::<AtomicU32>() }
    }
}

impl ShadowDoorbells for DoorbellPages {
    type Doorbell<'a> = DoorbellWords<'a>;

    /// `None`: past the end of the page. The doorbell then has only its register.
    #[inline]
    fn doorbell(&self, n: usize) -> Option<DoorbellWords<'_>> {
        let at = n.checked_mul(self.stride).filter(|at| *at < WORDS)?;
        Some(DoorbellWords { pages: self, at })
    }
}

/// One shadow doorbell and its EventIdx. Little-endian, because the controller may be a device on a
/// bus.
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
        // Release: entries before the doorbell. The caller adds the fence between this store and
        // the load of EventIdx.
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
