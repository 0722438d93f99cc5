//! The primitives of whatever is handed over: std's atomics and parking_lot's locks (an uncontended one costs half of
//! std's), or under `--cfg loom` loom's, so that a unit of concurrency is written once and both runs and is model-checked.
//! A model is a call of `model`; anything it does must be bounded.

#[cfg(not(loom))]
mod imp {
    pub use parking_lot::{Mutex, MutexGuard};
    pub use std::hint;
    pub use std::sync::{Arc, atomic};
    pub use std::thread;

    /// Locks. After another thread's panic too: what these mutexes guard is consistent between statements.
    #[inline]
    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock()
    }

    /// Locks if nobody holds the lock; `None` if somebody does.
    #[inline]
    pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        mutex.try_lock()
    }
}

#[cfg(loom)]
mod imp {
    pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};
    pub use loom::{hint, model, thread};

    /// Locks.
    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Locks if nobody holds the lock; `None` if somebody does.
    pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        mutex.try_lock().ok()
    }
}

pub use imp::*;
