//! Synchronisation between threads, and between host and device. The primitives:
//!
//! | primitive | purpose |
//! | --- | --- |
//! | [`WakeFlag`], [`sleep`] | one thread arms the flag, checks for work and blocks; the other side publishes work, and signals if the flag is armed |
//! | [`PollLock`] | the thread that holds the lock polls a completion queue; other threads try the lock and do not wait for it |
//! | [`NotificationRole`] | selects, among the threads that share a completion queue, the one that blocks on its vector and reaps for all |
//! | [`Inbox`] | completions, from the thread that reaped them to the software queue that submitted the commands |
//! | [`TagWaitList`] | software queues that wait for a tag of the hardware queue they share |
//! | [`ModeCell`] | a completion mode, requested by any thread and adopted by the queue's owner |
//! | [`Vectors`], [`Posted`] | interrupt vectors with masks; posted interrupts |
//! | [`shadow`] | a doorbell in memory, which the host writes and a controller reads before it sleeps |
//! | [`lease`] | memory that a device accesses, for short times, until the host takes it back |
//! | [`Gate`] | blocks a device's access to all of a host's memory at once |
//!
//! A *software queue* is the queue of one thread. It submits to a *hardware queue*, the NVMe queue
//! pair (or pairs), which several software queues may share.
//!
//! Most primitives solve the same problem, store buffering: each side stores its own word, executes
//! a sequentially consistent fence, and loads the other's word. Then at least one side sees the
//! other's store, and no wake-up is lost.
//!
//! Under `--cfg loom` the primitives use loom's atomics and locks, otherwise std's atomics and
//! parking_lot's locks (an uncontended one costs half as much as std's). So loom checks the code
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

    /// Locks a mutex, even if a thread has panicked while it held the lock: what these mutexes
    /// guard is consistent after each statement.
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
