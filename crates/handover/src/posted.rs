//! Many vectors, one notification: posted interrupts.
//!
//! After the posted-interrupt descriptor of Intel VT-d (section 9.10: a pending bit per vector and one outstanding bit),
//! as Linux uses it for device interrupts on bare metal since 6.10 (`posted_msi`). Each message sets its vector's bit; a
//! notification is sent only by the one that finds none outstanding. The thread that is notified takes bits for a bounded number
//! of rounds, lets the next notification come, and looks once more.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// Rounds of taking bits while the notification stays outstanding (Linux's `MAX_POSTED_MSI_COALESCING_LOOP`). More would
/// save notifications and keep the thread from its other work.
pub const MOST_ROUNDS: u32 = 3;

/// A pending bit for each of [`Posted::BITS`] vectors, and the outstanding bit of the notification they share.
#[derive(Debug, Default)]
pub struct Posted {
    pending: [AtomicU64; Posted::BITS as usize / 64],
    outstanding: AtomicBool,
}

impl Posted {
    /// Vectors that one descriptor serves.
    pub const BITS: u16 = 256;

    /// Nothing pending, nothing outstanding: the first message notifies.
    pub fn new() -> Posted {
        Posted::default()
    }

    /// Device, having stored what the message announces: sets the vector's bit. Whether to notify. A vector from
    /// [`Posted::BITS`] on has no bit, and always notifies.
    #[inline]
    pub fn post(&self, vector: u16) -> bool {
        let Some(word) = self.pending.get(usize::from(vector / 64)) else { return true };
        word.fetch_or(1 << (vector % 64), Ordering::Release);
        fence(Ordering::SeqCst);
        self.claim()
    }

    /// Whether a notification is to be sent: of several that find none outstanding, one.
    fn claim(&self) -> bool {
        !self.outstanding.load(Ordering::Relaxed)
            && self.outstanding.compare_exchange(false, true, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Host: whether the vector's bit was set; it is not any more. What it stood for is visible.
    #[inline]
    pub fn take(&self, vector: u16) -> bool {
        let Some(word) = self.pending.get(usize::from(vector / 64)) else { return false };
        let bit = 1 << (vector % 64);
        word.load(Ordering::Relaxed) & bit != 0 && word.fetch_and(!bit, Ordering::Acquire) & bit != 0
    }

    /// Whether a bit is set. For a thread that gets the notification in place of the one that takes: it has to pass it on.
    pub fn any(&self) -> bool {
        self.pending.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Host, before it sleeps: lets the next message notify. Whatever was posted before and did not is visible to the
    /// [`Posted::take`] that the caller now owes.
    #[inline]
    pub fn allow(&self) {
        self.set_allowed();
        fence(Ordering::SeqCst);
    }

    /// [`Posted::allow`] without its fence: for the broken twin.
    pub(crate) fn set_allowed(&self) {
        self.outstanding.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
