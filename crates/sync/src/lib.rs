//! Synchronisation between threads, and between host and device. One page of primitives:
//!
//! | primitive | purpose |
//! | --- | --- |
//! | [`WakeFlag`], [`sleep`] | one side arms, checks and blocks; the other publishes, and signals if the flag is armed |
//! | [`PollLock`] | one thread polls a completion queue; others try the lock and do not wait |
//! | [`NotificationRole`] | selects the thread of a shared queue that blocks on its vector and polls for all |
//! | [`Inbox`] | completions, from the thread that reaped them to the software queue that submitted them |
//! | [`TagWaitList`] | software queues that wait for a tag |
//! | [`ModeCell`] | a mode, requested by any thread and adopted by one |
//! | [`Vectors`], [`Posted`] | interrupt vectors with masks; posted interrupts |
//! | [`shadow`] | a doorbell in memory, from a host that writes it to a controller that sleeps |
//! | [`lease`] | memory that a device uses for short accesses until the host takes it back |
//! | [`Gate`] | the same for all of a host's memory at once |
//!
//! Most of them solve the same problem, store buffering: each side stores its own word, executes a
//! sequentially consistent fence, and loads the other's word. Then at least one side sees the
//! other's store, and no wake-up is lost.
//!
//! The primitives use the atomics and locks of this module: those of std and parking_lot (an
//! uncontended lock costs half of std's), or loom's under `--cfg loom`. So loom checks the code
//! that runs (the command is in `docs/testing.md`). Each model has negative tests: the same code
//! with one step removed, which the model must reject.
#![warn(missing_docs, unnameable_types, unreachable_pub, missing_debug_implementations)]
#![forbid(unsafe_code)]

mod gate;
mod inbox;
mod interrupts;
pub mod lease;
mod mode;
mod poll;
pub mod shadow;
mod wait_list;
mod wake;

#[cfg(loom)]
#[path = "../tests/support/model.rs"]
pub mod model;

pub use gate::{Gate, Pass};
pub use inbox::Inbox;
pub use interrupts::{MAX_ROUNDS, Posted, Signal, Vectors};
pub use mode::ModeCell;
pub use poll::{NotificationRole, PollLock, Polled, WaiterId};
pub use primitives::*;
pub use wait_list::TagWaitList;
pub use wake::{SleepSteps, WakeFlag, sleep};

#[cfg(not(loom))]
mod primitives {
    pub use parking_lot::{Mutex, MutexGuard};
    pub use std::hint;
    pub use std::sync::{Arc, atomic};
    pub use std::thread;

    /// Locks, also after another thread's panic: what these mutexes guard is consistent between
    /// statements.
    #[inline]
    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock()
    }

    /// Locks if the lock is free.
    #[inline]
    pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        mutex.try_lock()
    }
}

#[cfg(loom)]
mod primitives {
    pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};
    pub use loom::{hint, thread};

    /// Locks.
    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Locks if the lock is free.
    pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        mutex.try_lock().ok()
    }
}
