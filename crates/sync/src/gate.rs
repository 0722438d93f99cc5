//! Blocks a device's access to all of a host's memory at once, as an IOMMU does when a device is
//! detached.
//!
//! The device side calls [`Gate::enter`] before each access. Once [`Gate::shut`] has returned, no
//! access is in progress and none begins before [`Gate::open`].

use crate::atomic::AtomicBool;
use crate::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::{atomic::fence, hint, thread};

/// A gate, open at first. One thread enters the gate; any other thread may shut it.
#[derive(Debug)]
pub struct Gate {
    shut: AtomicBool,
    inside: AtomicBool,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate { shut: AtomicBool::new(false), inside: AtomicBool::new(false) }
    }
}

/// An access in progress. Dropping it leaves the gate.
#[derive(Debug)]
pub struct Pass<'a>(&'a Gate);

impl Gate {
    /// Begins an access. `None`: the gate is shut.
    #[inline]
    pub fn enter(&self) -> Option<Pass<'_>> {
        self.inside.store(true, Relaxed);
        // Store buffering: without this fence and the one in `shut` both sides could read the old
        // value, and the access would overlap the unmapping that follows `shut`.
        fence(SeqCst);
        // Made before the test: if the gate is shut, dropping the pass clears `inside`.
        let pass = Pass(self);
        (!self.shut.load(Relaxed)).then_some(pass)
    }

    /// Shuts the gate and waits until the access in progress, if any, has ended.
    pub fn shut(&self) {
        self.shut.store(true, Relaxed);
        fence(SeqCst);
        // Acquire pairs with the release in `Pass::drop`: what the access wrote is visible
        // afterwards. An access is a copy of a few pages, which takes less time than a sleep, so
        // this spins. It yields in case the other thread was preempted.
        while self.inside.load(Acquire) {
            hint::spin_loop();
            thread::yield_now();
        }
    }

    /// Opens the gate again.
    pub fn open(&self) {
        // Release: the memory is mapped before an access can begin.
        self.shut.store(false, Release);
    }
}

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.inside.store(false, Release);
    }
}

#[cfg(all(test, loom))]
#[path = "../tests/unit/gate_models.rs"]
mod models;
#[cfg(all(test, not(loom)))]
#[path = "../tests/unit/gate.rs"]
mod tests;
