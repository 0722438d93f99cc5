//! Arm, look, sleep: how a thread goes to sleep without missing what it sleeps for.

use crate::sync::atomic::{AtomicBool, Ordering, fence};

/// One side is about to sleep, the other has something to tell. Each writes its own word, fences, and reads the
/// other's, so at least one of them sees the other:
///
/// ```text
///   sleeper:  arm (store armed; fence)   look at the data   nothing there: block
///   teller:   publish the data (release)   rings (fence; read armed)   armed: signal
/// ```
///
/// Without both fences each side may read before its own write is visible (store buffering), and the wake-up is lost:
/// `tests` takes the fences away and loom finds it.
///
/// A signal may find the sleeper awake again; it is then spurious, and the sleeper looks once for nothing. The signal
/// itself (an eventfd, an unpark) must be sticky: given before the sleeper blocks, it still ends that sleep.
#[derive(Debug, Default)]
pub struct Bell {
    armed: AtomicBool,
}

impl Bell {
    /// A bell that is masked: nobody sleeps yet.
    pub fn new() -> Bell {
        Bell { armed: AtomicBool::new(false) }
    }

    /// Sleeper: allows the other side to signal. What it published before and did not signal is visible to the look
    /// that the caller now owes.
    #[inline]
    pub fn arm(&self) {
        self.set_armed();
        fence(Ordering::SeqCst);
    }

    /// Sleeper: forbids signals, because it is looking anyway. One that is on its way may still come.
    #[inline]
    pub fn mask(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    /// Whether signals are allowed now.
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// Teller, after publishing: whether to signal. The bell stays armed, so each thing told is a signal of its own:
    /// one message per CQE, as MSI-X without coalescing.
    #[inline]
    pub fn rings(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_armed()
    }

    /// Teller, after publishing: whether to signal, masking the bell if so. One signal per sleep, however many tellers there are.
    #[inline]
    pub fn ring_once(&self) -> bool {
        // Not a swap: of several tellers only the one who signals writes, so that the mask is never written by somebody who
        // has nothing to show for it.
        self.rings() && self.armed.compare_exchange(true, false, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// [`Bell::arm`] without its fence: for the broken twin.
    pub(crate) fn set_armed(&self) {
        self.armed.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
