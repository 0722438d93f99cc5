//! Memory that is registered with a ring (IORING_REGISTER_BUFFERS): the kernel need not pin its
//! pages for each request.
//!
//! A chunk of the pool or of a region is registered when the first request names it, on the posting
//! thread: only the owner of a ring registers, also memory that another thread brought. Registering
//! touches and pins the whole chunk and takes as long as hundreds of requests;
//! [`RegisteredBuffers::prepare`] does it beforehand.

use std::collections::HashMap;

use hw::uring::{Fixed, Ring, RingError, Span};
use hw::{ChunkId, Lent};

use super::file::KernelFile;

/// Slots in a ring's buffer table: 4 GiB in chunks of 4 MiB.
pub(super) const BUFFER_SLOTS: u32 = 1024;

/// The registered memory of one ring.
#[derive(Default)]
pub(super) struct RegisteredBuffers {
    /// By chunk; `None`: the kernel refused to register it, and it is used unregistered.
    chunks: HashMap<ChunkId, Option<Fixed>>,
    /// The chunk of the last request: most requests name the same one again.
    last: Option<Fixed>,
    /// Slots in use. They are never freed: a chunk lives as long as its pool or region.
    filled: u32,
}

impl RegisteredBuffers {
    /// Bytes `start..end` of a buffer, as registered memory where possible.
    #[inline]
    pub(super) fn span(
        &mut self,
        ring: &Ring,
        kernel_file: &KernelFile,
        lent: &Lent,
        (start, end): (usize, usize),
    ) -> Span {
        if let Some(span) = self
            .last
            .map(|fixed| Span::fixed(lent, start..end, fixed))
            .filter(|span| span.is_fixed())
        {
            return span;
        }
        self.look_up(ring, kernel_file, lent).map_or_else(
            || Span::of(lent, start..end),
            |fixed| Span::fixed(lent, start..end, fixed),
        )
    }

    /// Registers the memory of a buffer unless it is registered already.
    #[cold]
    pub(super) fn prepare(&mut self, ring: &Ring, kernel_file: &KernelFile, lent: &Lent) {
        // A buffer that cannot be registered is used unregistered.
        _ = self.look_up(ring, kernel_file, lent);
    }

    #[cold]
    fn look_up(&mut self, ring: &Ring, kernel_file: &KernelFile, lent: &Lent) -> Option<Fixed> {
        let piece = lent.chunk_id()?;
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
            // The buffer spans two chunks: this one only, not a reason to stop.
            Err(RingError::Crosses) => None,
            Err(error) => {
                // Usually RLIMIT_MEMLOCK. For all queues: each further attempt would fail too, and
                // take time.
                if kernel_file.stop_registering() {
                    tracing::warn!(%error, "buffers are used unregistered from now on, which costs the kernel some time for each request");
                }
                None
            }
        }
    }

    /// Chunks registered with the kernel.
    #[cfg(test)]
    pub(super) fn registered(&self) -> usize {
        self.chunks.values().flatten().count()
    }
}
