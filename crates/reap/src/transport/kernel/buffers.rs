//! Which memory a ring knows already. A chunk of the pool, or of a region, is registered when the first request names it, on the
//! thread that posts: so the owner of a ring registers, also memory that another thread brought. That touches and pins all of the
//! chunk, which takes as long as hundreds of requests: [`RegisteredBuffers::prepare`] does it beforehand.

use std::collections::HashMap;

use hw::uring::{Fixed, Ring, RingError, Span};
use hw::{Lent, Piece};

use super::file::KernelFile;

/// Places in the table of a ring: 4 GiB in chunks of 4 MiB.
pub(super) const BUFFER_SLOTS: u32 = 1024;

/// What a ring knows of memory.
#[derive(Default)]
pub(super) struct RegisteredBuffers {
    /// `None`: the kernel refused it, and it is used as it is.
    chunks: HashMap<Piece, Option<Fixed>>,
    /// Most requests name the same chunk as the last.
    last: Option<Fixed>,
    /// Places that have been filled.
    filled: u32,
}

impl RegisteredBuffers {
    /// The bytes from `start` to `end` of a buffer, by way of the table where it knows them, or can be told.
    #[inline]
    pub(super) fn span(&mut self, ring: &Ring, kernel_file: &KernelFile, lent: &Lent, (start, end): (usize, usize)) -> Span {
        if let Some(span) = self.last.map(|fixed| Span::fixed(lent, start..end, fixed)).filter(|span| span.is_fixed()) {
            return span;
        }
        self.look_up(ring, kernel_file, lent).map_or_else(|| Span::of(lent, start..end), |fixed| Span::fixed(lent, start..end, fixed))
    }

    /// Registers the memory of a buffer, if it is not known yet.
    #[cold]
    pub(super) fn prepare(&mut self, ring: &Ring, kernel_file: &KernelFile, lent: &Lent) {
        // Without a place in the table it is used as it is.
        _ = self.look_up(ring, kernel_file, lent);
    }

    #[cold]
    fn look_up(&mut self, ring: &Ring, kernel_file: &KernelFile, lent: &Lent) -> Option<Fixed> {
        let piece = lent.piece()?;
        let fixed = match self.chunks.get(&piece) {
            Some(known) => *known,
            None => {
                let fixed = self.register(ring, kernel_file, lent);
                self.chunks.insert(piece, fixed);
                fixed
            }
        };
        self.last = fixed.or(self.last);
        fixed
    }

    fn register(&mut self, ring: &Ring, kernel_file: &KernelFile, lent: &Lent) -> Option<Fixed> {
        if self.filled == BUFFER_SLOTS || !kernel_file.registers_buffers() {
            return None;
        }
        match ring.register_buffer(self.filled as u16, lent) {
            Ok(fixed) => {
                self.filled += 1;
                Some(fixed)
            }
            Err(RingError::Crosses) => None,
            Err(error) => {
                if kernel_file.stop_registering() {
                    tracing::warn!(%error, "buffers are used unregistered from now on, which costs the kernel some time for each request");
                }
                None
            }
        }
    }

    /// Chunks that the kernel has registered.
    #[cfg(test)]
    pub(super) fn registered(&self) -> usize {
        self.chunks.values().flatten().count()
    }
}
