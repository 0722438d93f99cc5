//! Synchronisation between threads, and between host and device. One page of primitives:
//!
//! | primitive | what it settles |
//! | --- | --- |
//! | [`WakeFlag`], [`sleep`] | one side arms, checks and blocks; the other publishes, and signals if the flag is armed |
//! | [`PollLock`] | one thread polls a completion queue; others try the lock and do not wait |
//! | [`NotificationRole`] | which of the threads that sleep on a shared queue blocks on its vector and polls for all |
//! | [`Inbox`] | completions, from the thread that reaped them to the software queue they belong to |
//! | [`TagWaitList`] | queues that wait for a tag |
//! | [`ModeCell`] | a mode, from the thread that asks for it to the one that runs it |
//! | [`Vectors`], [`Posted`] | interrupt vectors with masks; posted interrupts |
//! | [`shadow`] | a doorbell in memory, from a host that writes it to a controller that sleeps |
//! | [`lease`] | memory that a device uses for a moment at a time, until the host takes it back |
//! | [`Gate`] | the same for all of a host's memory at once |
//!
//! Each is written over the atomics and locks of this module: std's and parking_lot's (an uncontended lock costs half of std's), or
//! under `--cfg loom` loom's. So the code that runs is the code that loom checks (the command is in `docs/testing.md`), and each model
//! has mutants, the same code less one step, that it must catch.
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
pub use interrupts::{MOST_ROUNDS, Posted, Signal, Vectors};
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

    /// Locks. After another thread's panic too: what these mutexes guard is consistent between statements.
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
