//! Ring slots in shared memory, as atomics. Entries are 8-byte words; who may read which entry when is settled by the
//! doorbell (submission) and by the phase tag (completion).

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nvme::{CqSlots, Cqe, SqSlots, Sqe};

use super::RingBlock;

/// The slots of a submission queue.
#[derive(Clone, Debug)]
pub struct SqRing(Slots<8>);

/// The slots of a completion queue.
#[derive(Clone, Debug)]
pub struct CqRing(Slots<2>);

/// `entries` entries of `WORDS` words at `first`, inside a ring block that is kept alive.
#[derive(Clone, Debug)]
struct Slots<const WORDS: usize> {
    first: NonNull<u64>,
    entries: u32,
    _block: Arc<RingBlock>,
}

// SAFETY: the memory is reached only as atomics, and the block, kept by the `Arc`, is never given out as bytes.
unsafe impl<const WORDS: usize> Send for Slots<WORDS> {}
// SAFETY: as above.
unsafe impl<const WORDS: usize> Sync for Slots<WORDS> {}

impl<const WORDS: usize> Slots<WORDS> {
    /// Calls `f` with the words of a slot. Slots come from ring arithmetic; one outside the ring is a bug of ours, and
    /// panics as an index would.
    #[inline]
    fn with<R>(&self, slot: u32, f: impl FnOnce(&[AtomicU64; WORDS]) -> R) -> R {
        if slot >= self.entries {
            out_of_ring(slot, self.entries);
        }
        // SAFETY: the slot is inside the ring, which `DmaPool::ring_block` has found to be inside the block and 8-byte
        // aligned. The memory is initialised (zeroed), lives at least as long as `_block`, and is only ever accessed
        // as `AtomicU64`s. The reference ends with this call.
        f(unsafe { &*self.first.as_ptr().add(slot as usize * WORDS).cast::<[AtomicU64; WORDS]>() })
    }

    /// The words of `len` slots from `first` on, all of them inside the ring.
    #[inline]
    fn run(&self, first: u32, len: usize) -> &[[AtomicU64; WORDS]] {
        if first as usize + len > self.entries as usize {
            out_of_ring(first.max(self.entries), self.entries);
        }
        // SAFETY: as in `with`, for each of the slots; the slice lives no longer than `self`, which keeps the memory.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr().add(first as usize * WORDS).cast(), len) }
    }
}

/// By value, so that the caller's slot may stay in a register.
#[cold]
fn out_of_ring(slot: u32, entries: u32) -> ! {
    panic!("slot {slot} of a ring of {entries} entries")
}

impl SqRing {
    /// `at` is where `entries` entries begin inside `block`, 8-byte aligned.
    pub(super) fn new(block: Arc<RingBlock>, at: NonNull<u8>, entries: u32) -> SqRing {
        SqRing(Slots { first: at.cast(), entries, _block: block })
    }
}

impl CqRing {
    /// `at` is where `entries` entries begin inside `block`, 8-byte aligned.
    pub(super) fn new(block: Arc<RingBlock>, at: NonNull<u8>, entries: u32) -> CqRing {
        CqRing(Slots { first: at.cast(), entries, _block: block })
    }
}

impl SqSlots for SqRing {
    #[inline]
    fn store(&self, slot: u32, sqe: &Sqe) {
        // Relaxed: the tail doorbell, a release, publishes them.
        self.0.with(slot, |words| words.iter().zip(sqe.to_words()).for_each(|(word, value)| word.store(value, Ordering::Relaxed)));
    }

    #[inline]
    fn load(&self, slot: u32) -> Sqe {
        Sqe::from_words(self.0.with(slot, |words| std::array::from_fn(|i| words[i].load(Ordering::Relaxed))))
    }
}

impl CqSlots for CqRing {
    #[inline]
    fn store(&self, slot: u32, cqe: &Cqe) {
        let [first, phase] = cqe.to_words();
        self.0.with(slot, |words| {
            words[0].store(first, Ordering::Relaxed);
            words[1].store(phase, Ordering::Release);
        });
    }

    #[inline]
    fn load(&self, slot: u32, phase: bool) -> Option<Cqe> {
        self.0.with(slot, |words| {
            let second = words[1].load(Ordering::Acquire);
            (Cqe::phase_of(second) == phase).then(|| Cqe::from_words([words[0].load(Ordering::Relaxed), second]))
        })
    }

    #[inline]
    fn load_run<T>(&self, slot: u32, phase: bool, out: &mut [T], mut each: impl FnMut(Cqe, &mut T) -> bool) -> u32 {
        let mut taken = 0;
        for (words, place) in self.0.run(slot, out.len()).iter().zip(out) {
            let second = words[1].load(Ordering::Acquire);
            if Cqe::phase_of(second) != phase || !each(Cqe::from_words([words[0].load(Ordering::Relaxed), second]), place) {
                break;
            }
            taken += 1;
        }
        taken
    }

    #[inline]
    fn is_new(&self, slot: u32, phase: bool) -> bool {
        self.0.with(slot, |words| Cqe::phase_of(words[1].load(Ordering::Acquire)) == phase)
    }
}
