//! Waking a thread that sleeps in its poller, without a system call if it does not sleep.
//!
//! ```text
//!   sleeper                        waker
//!   arm the flag                   store the work
//!   check for work  (once more)    claim the flag ── armed ──► signal the eventfd
//!   wait on the eventfd                             └ masked ─► nothing: the thread is awake
//!   mask the flag
//! ```
//!
//! Either the check sees the work, or the claim sees the flag: no wake-up is lost.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use hw::EventFd;
use sync::WakeFlag;

/// A wake flag and its eventfd. The sleeper's poller watches the eventfd; the sleeper arms the flag
/// before its last check.
pub(crate) struct Wake {
    flag: WakeFlag,
    signal: EventFd,
}

impl Wake {
    /// Masked: the thread is awake.
    ///
    /// # Errors
    /// What `eventfd` says (too many open files).
    pub(crate) fn new() -> io::Result<Wake> {
        Ok(Wake { flag: WakeFlag::new(), signal: EventFd::new()? })
    }

    /// A copy of the eventfd, for a thread that sleeps elsewhere than in its poller.
    ///
    /// # Errors
    /// Too many open files.
    pub(crate) fn try_clone_signal(&self) -> io::Result<EventFd> {
        self.signal.try_clone()
    }

    /// Called by the sleeper before its last check: wakers signal from now on.
    #[inline]
    pub(crate) fn arm(&self) {
        self.flag.arm();
    }

    /// Called by the sleeper when it is awake again.
    #[inline]
    pub(crate) fn disarm(&self) {
        self.flag.disarm();
    }

    /// The flag.
    pub(crate) fn flag(&self) -> &WakeFlag {
        &self.flag
    }

    /// Wakes the thread if it sleeps. The caller has stored the work before.
    #[inline]
    pub(crate) fn notify(&self) {
        // Only the first waker after `arm` claims the flag: several wake-ups cost one signal.
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

/// Wakes each waker. A waker is application code: if one panics, the others must still be woken,
/// and this thread has other devices to serve.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
            tracing::error!("a waker has panicked");
        }
    }
}

/// Runs `with` on a thread made for it: it runs application code, which may block, and the
/// housekeeping thread has other devices to serve. Runs it on this thread if the system has no
/// thread left.
pub(crate) fn on_another_thread<T: Send + 'static>(name: &str, things: Vec<T>, with: fn(Vec<T>)) {
    if things.is_empty() {
        return;
    }
    // Shared, so that they are still here if the thread cannot be started.
    let things = Arc::new(Mutex::new(things));
    let theirs = things.clone();
    let take = |things: &Mutex<Vec<T>>| {
        std::mem::take(&mut *things.lock().unwrap_or_else(PoisonError::into_inner))
    };
    if let Err(error) =
        std::thread::Builder::new().name(name.into()).spawn(move || with(take(&theirs)))
    {
        tracing::warn!(%error, name, "the application's code runs on this thread");
        with(take(&things));
    }
}
