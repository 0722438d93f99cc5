//! Host memory that the controller reaches, and the rings in it.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use emu::BusError;
use nvme::{CqSlots, Cqe, SqSlots, Sqe};

const SQE: usize = 1 << Sqe::SIZE_LOG2;
const CQE: usize = 1 << Cqe::SIZE_LOG2;

/// One range of bus addresses. It is allocated from the bottom and never freed.
#[derive(Clone, Debug)]
pub(crate) struct Memory(Rc<AddressRange>);

#[derive(Debug)]
struct AddressRange {
    base: u64,
    bytes: RefCell<Vec<u8>>,
    used: Cell<usize>,
}

impl Memory {
    /// `bytes` zeroed bytes. They do not start at address 0, so that an address that was never set
    /// is noticed.
    pub(crate) fn new(bytes: usize) -> Memory {
        Memory(Rc::new(AddressRange {
            base: 1 << 32,
            bytes: RefCell::new(vec![0; bytes]),
            used: Cell::new(0),
        }))
    }

    /// The address of `len` bytes, page-aligned. `None`: there is no room.
    pub(crate) fn alloc(&self, len: usize) -> Option<u64> {
        let at = self.0.used.get().next_multiple_of(4096);
        let end = at.checked_add(len)?;
        if end > self.0.bytes.borrow().len() {
            return None;
        }
        self.0.used.set(end);
        Some(self.0.base + at as u64)
    }

    pub(crate) fn check(&self, addr: u64, len: u64) -> Result<Range<usize>, BusError> {
        let range = || {
            let start = usize::try_from(addr.checked_sub(self.0.base)?).ok()?;
            let end = start.checked_add(usize::try_from(len).ok()?)?;
            (end <= self.0.bytes.borrow().len()).then_some(start..end)
        };
        range().ok_or(BusError { addr, len })
    }

    pub(crate) fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), BusError> {
        let range = self.check(addr, into.len() as u64)?;
        into.copy_from_slice(&self.0.bytes.borrow()[range]);
        Ok(())
    }

    pub(crate) fn write(&self, addr: u64, from: &[u8]) -> Result<(), BusError> {
        let range = self.check(addr, from.len() as u64)?;
        self.0.bytes.borrow_mut()[range].copy_from_slice(from);
        Ok(())
    }

    /// Calls `f` with a range of memory, or with an empty slice if it lies outside.
    pub(crate) fn with<R>(&self, addr: u64, len: u64, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let range = self.check(addr, len).unwrap_or(0..0);
        f(&mut self.0.bytes.borrow_mut()[range])
    }

    pub(crate) fn sq(&self, addr: u64, entries: u32) -> Result<SimSq, BusError> {
        let range = self.check(addr, u64::from(entries) * SQE as u64)?;
        Ok(SimSq { memory: self.clone(), first: range.start })
    }

    pub(crate) fn cq(&self, addr: u64, entries: u32) -> Result<SimCq, BusError> {
        let range = self.check(addr, u64::from(entries) * CQE as u64)?;
        Ok(SimCq { memory: self.clone(), first: range.start })
    }

    #[inline]
    fn words<const N: usize>(&self, at: usize) -> [u64; N] {
        let bytes = self.0.bytes.borrow();
        let (words, _) = bytes[at..at + 8 * N].as_chunks::<8>();
        std::array::from_fn(|i| u64::from_le_bytes(words[i]))
    }

    fn set_words<const N: usize>(&self, at: usize, words: [u64; N]) {
        let mut bytes = self.0.bytes.borrow_mut();
        let (slots, _) = bytes[at..at + 8 * N].as_chunks_mut::<8>();
        for (slot, word) in slots.iter_mut().zip(words) {
            *slot = word.to_le_bytes();
        }
    }
}

/// A submission queue in [`Memory`]. Slots come from ring arithmetic, so they lie in the checked
/// range.
#[derive(Clone, Debug)]
pub(crate) struct SimSq {
    memory: Memory,
    first: usize,
}

/// A completion queue in [`Memory`].
#[derive(Clone, Debug)]
pub(crate) struct SimCq {
    memory: Memory,
    first: usize,
}

impl SqSlots for SimSq {
    fn store(&self, slot: u32, sqe: &Sqe) {
        self.memory.set_words(self.first + slot as usize * SQE, sqe.to_words());
    }

    fn load(&self, slot: u32) -> Sqe {
        Sqe::from_words(self.memory.words(self.first + slot as usize * SQE))
    }
}

impl CqSlots for SimCq {
    fn store(&self, slot: u32, cqe: &Cqe) {
        self.memory.set_words(self.first + slot as usize * CQE, cqe.to_words());
    }

    fn load(&self, slot: u32, phase: bool) -> Option<Cqe> {
        let words = self.memory.words(self.first + slot as usize * CQE);
        (Cqe::phase_of(words[1]) == phase).then(|| Cqe::from_words(words))
    }

    #[inline]
    fn is_new(&self, slot: u32, phase: bool) -> bool {
        let [word] = self.memory.words(self.first + slot as usize * CQE + 8);
        Cqe::phase_of(word) == phase
    }
}
