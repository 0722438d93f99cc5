//! How a thread that sleeps is told that there is something for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use hw::EventFd;
use sync::WakeFlag;

/// A flag, and what it signals. The thread that sleeps has the descriptor in its poller, and arms the flag before its last check.
pub(crate) struct Wake {
    flag: WakeFlag,
    signal: EventFd,
}

impl Wake {
    /// Masked: nobody sleeps yet.
    ///
    /// # Errors
    /// What `eventfd` says (too many open files).
    pub(crate) fn new() -> io::Result<Wake> {
        Ok(Wake { flag: WakeFlag::new(), signal: EventFd::new()? })
    }

    /// What it signals, for a thread that sleeps elsewhere than in its poller.
    ///
    /// # Errors
    /// Too many open files.
    pub(crate) fn try_clone_signal(&self) -> io::Result<EventFd> {
        self.signal.try_clone()
    }

    /// The sleeper: others may signal from now on. A look follows.
    #[inline]
    pub(crate) fn arm(&self) {
        self.flag.arm();
    }

    /// The sleeper is awake.
    #[inline]
    pub(crate) fn mask(&self) {
        self.flag.mask();
    }

    /// The flag alone.
    pub(crate) fn flag(&self) -> &WakeFlag {
        &self.flag
    }

    /// Wakes the thread if it sleeps. What it is to see has been stored before.
    #[inline]
    pub(crate) fn tell(&self) {
        if self.flag.claim_wake() {
            self.signal.signal();
        }
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}
