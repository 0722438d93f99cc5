//! Waking a thread that sleeps in its poller, without a system call if the thread is awake.
//!
//! ```text
//!   sleeper                        waker
//!   arm the flag                   store the work
//!   check for work  (once more)    claim the flag ── armed ────► disarm it, signal the eventfd
//!   wait on the eventfd                            └ disarmed ─► nothing: the thread is awake
//!   disarm the flag
//! ```
//!
//! Either the sleeper's check sees the work, or the waker sees the armed flag: no wake-up is lost.

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
    /// A disarmed flag: its thread is awake.
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

/// Starts a thread that calls `f` with `items`. `f` runs application code, which may block, and the
/// housekeeping thread has other devices to serve. If the thread cannot be started, calls `f` on
/// this thread.
pub(crate) fn on_another_thread<T: Send + 'static>(name: &str, items: Vec<T>, f: fn(Vec<T>)) {
    if items.is_empty() {
        return;
    }
    // Shared, so that the items are still here if the thread cannot be started.
    let items = Arc::new(Mutex::new(items));
    let for_thread = items.clone();
    let take = |items: &Mutex<Vec<T>>| {
        std::mem::take(&mut *items.lock().unwrap_or_else(PoisonError::into_inner))
    };
    if let Err(error) =
        std::thread::Builder::new().name(name.into()).spawn(move || f(take(&for_thread)))
    {
        tracing::warn!(%error, name, "no thread can be started for the application's code; it runs on this thread, which may delay other devices");
        f(take(&items));
    }
}
