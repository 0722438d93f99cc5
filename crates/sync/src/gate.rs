//! A gate that one side passes through for a moment at a time, and the other shuts for good: what an IOMMU does for memory
//! that a device may no longer reach.
//!
//! Once [`Gate::shut`] has returned nobody is inside, and nobody comes in before [`Gate::open`].

use crate::atomic::AtomicBool;
use crate::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::{atomic::fence, hint, thread};

/// A gate, open at first. One thread passes through it; any other may shut it.
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

/// While this lives, its owner is inside.
#[derive(Debug)]
pub struct Pass<'a>(&'a Gate);

impl Gate {
    /// Goes in; `None`: the gate is shut.
    #[inline]
    pub fn enter(&self) -> Option<Pass<'_>> {
        self.inside.store(true, Relaxed);
        // Either this sees that the gate is shut, or the thread that shuts it sees that another is inside.
        fence(SeqCst);
        let pass = Pass(self);
        (!self.shut.load(Relaxed)).then_some(pass)
    }

    /// Shuts the gate, and waits for the threads that are inside.
    pub fn shut(&self) {
        self.shut.store(true, Relaxed);
        fence(SeqCst);
        while self.inside.load(Acquire) {
            hint::spin_loop();
            thread::yield_now();
        }
    }

    /// Opens it again.
    pub fn open(&self) {
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
