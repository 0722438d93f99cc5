//! How a thread that sleeps is told that there is something for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

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

/// Wakes each. A waker is its caller's code: one that panics is no reason for the others to sleep on, nor for a thread to end that has
/// more to look after.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
            tracing::error!("a waker has panicked");
        }
    }
}

/// Does something with each, on a thread that is made for it: what it comes to is the application's code and may block, and the
/// housekeeping thread has other devices to look after. Where the system has no thread left it is done here.
pub(crate) fn on_another_thread<T: Send + 'static>(name: &str, things: Vec<T>, with: fn(Vec<T>)) {
    if things.is_empty() {
        return;
    }
    let things = Arc::new(Mutex::new(things));
    let theirs = things.clone();
    let take = |things: &Mutex<Vec<T>>| std::mem::take(&mut *things.lock().unwrap_or_else(PoisonError::into_inner));
    if let Err(error) = std::thread::Builder::new().name(name.into()).spawn(move || with(take(&theirs))) {
        tracing::warn!(%error, name, "the application's code runs on this thread");
        with(take(&things));
    }
}
