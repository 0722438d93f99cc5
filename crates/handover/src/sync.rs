//! std's primitives, or under `--cfg loom` loom's, so that a unit of concurrency is written once and both runs and is
//! model-checked. A model is a call of [`model`]; anything it does must be bounded.

#[cfg(not(loom))]
mod imp {
    pub use std::hint;
    pub use std::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError, atomic};
    pub use std::thread;
}

#[cfg(loom)]
mod imp {
    pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};
    pub use loom::{hint, model, thread};
    pub use std::sync::TryLockError;
}

pub use imp::*;

/// Locks, and goes on after another thread's panic: what these mutexes guard is consistent between statements.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Locks if nobody holds the lock; `None` if somebody does.
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
