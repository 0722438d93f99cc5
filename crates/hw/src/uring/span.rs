//! Bytes of a lent buffer that an entry names.

use std::ops::Range;
use std::ptr::NonNull;

use crate::dma::{Lent, Piece};

/// A piece of memory in a ring's table of buffers: see [`Ring::register_buffer`](super::Ring::register_buffer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    pub(super) slot: u16,
    pub(super) piece: Piece,
}

impl Fixed {
    /// Its place in the table.
    pub fn slot(self) -> u16 {
        self.slot
    }

    /// What it is.
    pub fn piece(self) -> Piece {
        self.piece
    }
}

/// Some bytes of a lent buffer. The buffer stays lent until the completion of the entry that names them.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub(super) at: NonNull<u8>,
    pub(super) len: u32,
    pub(super) slot: Option<u16>,
}

// SAFETY: the pointer is passed to the kernel and never followed here; the memory behind it may be used from any thread.
unsafe impl Send for Span {}

impl Span {
    /// The bytes `range` of `lent`.
    ///
    /// # Panics
    /// If they are not all in the buffer, or 4 GiB and more: as a slice would.
    #[inline]
    pub fn of(lent: &Lent, range: Range<usize>) -> Span {
        if range.start > range.end || range.end > lent.len() || range.len() > u32::MAX as usize {
            outside(range, lent.len());
        }
        // SAFETY: the range is inside the buffer's memory.
        let at = unsafe { lent.memory().add(range.start) };
        Span { at, len: range.len() as u32, slot: None }
    }

    /// [`Span::of`] by way of the registered `fixed`, if the buffer lies in it; else as if nothing were registered.
    ///
    /// # Panics
    /// As [`Span::of`].
    #[inline]
    pub fn fixed(lent: &Lent, range: Range<usize>, fixed: Fixed) -> Span {
        let slot = (lent.piece() == Some(fixed.piece)).then_some(fixed.slot);
        Span { slot, ..Span::of(lent, range) }
    }

    /// The same; `None`: the buffer does not lie in it.
    ///
    /// # Panics
    /// As [`Span::of`].
    #[inline]
    pub fn if_fixed(lent: &Lent, range: Range<usize>, fixed: Fixed) -> Option<Span> {
        Some(Span::fixed(lent, range, fixed)).filter(|span| span.is_fixed())
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty)] // emptiness is no question here
    pub fn len(self) -> u32 {
        self.len
    }

    /// What is left of it after `bytes` bytes; `None`: nothing.
    #[inline]
    pub fn after(self, bytes: u32) -> Option<Span> {
        let len = self.len.checked_sub(bytes).filter(|&len| len > 0)?;
        // SAFETY: fewer bytes than the span has were added, so that it is inside the same buffer.
        Some(Span { at: unsafe { self.at.add(bytes as usize) }, len, slot: self.slot })
    }

    /// Whether the kernel finds the memory in the ring's table.
    pub fn is_fixed(self) -> bool {
        self.slot.is_some()
    }
}

/// By value, so that the caller's range may stay in registers.
#[cold]
fn outside(range: Range<usize>, len: usize) -> ! {
    panic!("bytes {}..{} of a lent buffer of {len} bytes, and less than 4 GiB at once", range.start, range.end)
}
