//! The thread that has a lane to itself, where no other may post, announce, or take completions.

use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

/// The thread that a lane belongs to.
#[derive(Debug, Default)]
pub(crate) struct Owner(Mutex<Option<ThreadId>>);

impl Owner {
    /// The lane belongs to the calling thread from now on.
    pub(crate) fn begin(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current().id());
    }

    /// The lane belongs to nobody.
    pub(crate) fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether it belongs to nobody.
    pub(crate) fn is_nobody(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Before the lane is used.
    ///
    /// # Panics
    /// On any other thread: a ring of the kernel's would refuse it (`EEXIST`), and the caller is wrong.
    pub(crate) fn check(&self) {
        let owner = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(owner, Some(std::thread::current().id()), "a lane is used by another thread than the one that owns it");
    }
}
