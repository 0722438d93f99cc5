//! The completion ring's consumer.

use std::mem::ManuallyDrop;

use io_uring::cqueue::EntryMarker;
use io_uring::{IoUring, cqueue, squeue};

use super::ring::{Ring, Rings};

/// Where completions come out; each ring has one.
///
/// The queue is never dropped: that would write the head, in a forked child too. It owns nothing.
#[derive(Debug)]
pub struct Cq {
    queue: ManuallyDrop<Queue>,
    /// Keeps the memory that `queue` points to.
    ring: Ring,
}

enum Queue {
    Small(cqueue::CompletionQueue<'static, cqueue::Entry>),
    Big(cqueue::CompletionQueue<'static, cqueue::Entry32>),
}

// SAFETY: the queue points into the rings, which `ring` keeps and which any thread may use, one at a time: `&mut` sees to it.
unsafe impl Send for Cq {}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Queue::Small(_)) { "Small" } else { "Big" })
    }
}

/// A completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cqe {
    /// The entry's.
    pub user_data: u64,
    /// What the operation returns, or a negative errno.
    pub result: i32,
    /// IORING_CQE_F_… bits.
    pub flags: u32,
    /// What big rings have besides; else 0.
    pub big: [u64; 2],
}

impl Cqe {
    /// The same entry will complete again.
    pub fn more(&self) -> bool {
        cqueue::more(self.flags)
    }
}

impl From<cqueue::Entry> for Cqe {
    #[inline]
    fn from(cqe: cqueue::Entry) -> Cqe {
        Cqe { user_data: cqe.user_data(), result: cqe.result(), flags: cqe.flags(), big: [0; 2] }
    }
}

impl From<cqueue::Entry32> for Cqe {
    #[inline]
    fn from(cqe: cqueue::Entry32) -> Cqe {
        Cqe { user_data: cqe.user_data(), result: cqe.result(), flags: cqe.flags(), big: *cqe.big_cqe() }
    }
}

impl Cq {
    /// # Safety
    /// It is the only one of this ring.
    pub(super) unsafe fn new(ring: Ring) -> Cq {
        let queue = match &ring.0.rings {
            // SAFETY: the caller says that it is the only one. It lives no longer than `ring`, which keeps the rings where they are.
            Rings::Small(rings) => Queue::Small(unsafe { queue(rings) }),
            // SAFETY: as above.
            Rings::Big(rings) => Queue::Big(unsafe { queue(rings) }),
        };
        Cq { queue: ManuallyDrop::new(queue), ring }
    }

    /// Moves completions into `out`, the oldest first, and tells how many. The kernel gets their places back at the end.
    /// In a forked child there are none.
    #[inline]
    pub fn take(&mut self, out: &mut [Cqe]) -> usize {
        if !self.ring.0.birth.is_here() {
            return 0;
        }
        match &mut *self.queue {
            Queue::Small(queue) => take(queue, out),
            Queue::Big(queue) => take(queue, out),
        }
    }

    /// Completions that the kernel had no memory for, and that are lost.
    pub fn lost(&self) -> u32 {
        match &*self.queue {
            Queue::Small(queue) => queue.overflow(),
            Queue::Big(queue) => queue.overflow(),
        }
    }

    /// The ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }
}

#[inline]
fn take<E: EntryMarker + Into<Cqe>>(queue: &mut cqueue::CompletionQueue<'static, E>, out: &mut [Cqe]) -> usize {
    if queue.len() < out.len() {
        queue.sync();
    }
    let mut taken = 0;
    // The place first: a completion without one would be lost.
    for (place, cqe) in out.iter_mut().zip(&mut *queue) {
        *place = cqe.into();
        taken += 1;
    }
    if taken > 0 {
        queue.sync();
    }
    taken
}

/// # Safety
/// It is the only queue of these rings, and is used no longer than they live, at the same address.
unsafe fn queue<S: squeue::EntryMarker, C: cqueue::EntryMarker>(rings: &IoUring<S, C>) -> cqueue::CompletionQueue<'static, C> {
    // SAFETY: it is the only one.
    let queue = unsafe { rings.completion_shared() };
    // SAFETY: only the lifetime changes, and the caller keeps to it.
    unsafe { std::mem::transmute::<cqueue::CompletionQueue<'_, C>, cqueue::CompletionQueue<'static, C>>(queue) }
}
