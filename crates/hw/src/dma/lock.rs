//! Locks: what they guard is in order whatever befell a thread that held one.

use std::sync::{Mutex, MutexGuard};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while one of these is held, except for want of memory; the contents are valid regardless.
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
