//! The lock of a completion queue: tried, never waited for.

use crate::sync::atomic::{Ordering, fence};
use crate::sync::{Mutex, MutexGuard, lock, try_lock};

/// The thread that holds it looks at the queue, so one that finds it held need not look. But an entry that arrives between the
/// holder's last look and the release is then seen by neither:
///
/// ```text
///   holder:  look: nothing     release; fence      look once more
///   device:                post; message
///   sleeper:                        wake; arm; fence; try: busy, so sleep
/// ```
///
/// Therefore [`try_look`](LookLock::try_look) looks once more after the release. The release and the sleeper's try of
/// the lock are one pair of store and load, the entry and the look another; with a fence on each side (the sleeper's is
/// in [`Bell::arm`](crate::Bell::arm)) at least one of the two finds the entry.
#[derive(Debug, Default)]
pub struct LookLock<T>(Mutex<T>);

/// What [`LookLock::try_look`] came back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looked<R> {
    /// What was found under the lock.
    pub found: R,
    /// Something is pending after the release. The caller looks again, or, if it may not (its budget is used up and it
    /// leaves), wakes the owner of the queue's [`LookRole`](crate::LookRole).
    pub more: bool,
}

impl<T> LookLock<T> {
    /// A lock around what only the one who looks may touch.
    pub fn new(inner: T) -> LookLock<T> {
        LookLock(Mutex::new(inner))
    }

    /// Looks, unless somebody else does (`None`). `look` runs under the lock; `pending` is a look without it, and runs
    /// after the release.
    #[inline(always)] // What `look` answers stays in registers.
    pub fn try_look<R>(&self, look: impl FnOnce(&mut T) -> R, pending: impl FnOnce() -> bool) -> Option<Looked<R>> {
        let found = self.try_release(look)?;
        fence(Ordering::SeqCst);
        Some(Looked { found, more: pending() })
    }

    /// [`LookLock::try_look`] without what follows the release: for the broken twins.
    #[inline(always)] // As `try_look`.
    pub(crate) fn try_release<R>(&self, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut guard = try_lock(&self.0)?;
        Some(look(&mut guard))
    }

    /// The lock, if nobody has it: for what is no look. Afterwards fence, and look whether an entry is pending.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        try_lock(&self.0)
    }

    /// Waits for the lock: not for the data path, but for a reset, say. The second look is the caller's business.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests;
