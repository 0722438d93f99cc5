//! The completion mode of a queue: any thread may request another mode, and one thread, the owner
//! of the queue, adopts it.

use std::marker::PhantomData;

use crate::atomic::{AtomicU64, Ordering};

/// The mode requested and the mode in force. The owner adopts a change between batches, where no
/// decision of the old mode is pending. The check costs one relaxed load per batch.
///
/// The owner may be asleep under the old mode. So the requester afterwards wakes the owner by the
/// owner's [`WakeFlag`](crate::WakeFlag). The owner arms that flag before it sleeps, and then calls
/// [`adopt`](ModeCell::adopt) as a part of its check.
#[derive(Debug)]
pub struct ModeCell<T> {
    requested: AtomicU64,
    in_force: AtomicU64,
    mode: PhantomData<fn(T) -> T>,
}

impl<T> ModeCell<T>
where
    T: Copy + TryFrom<u64> + Into<u64>,
{
    /// `mode` is in force, and no other is requested.
    pub fn new(mode: T) -> ModeCell<T> {
        let word = mode.into();
        ModeCell {
            requested: AtomicU64::new(word),
            in_force: AtomicU64::new(word),
            mode: PhantomData,
        }
    }

    /// Owner, when it begins: adopts the start mode, which `start_mode` returns, and discards a
    /// request that an earlier owner has not adopted. Returns the start mode.
    ///
    /// To change the start mode: first change what `start_mode` returns, then
    /// [`request`](ModeCell::request) it of every owner. This function calls `start_mode` again
    /// after it has discarded the old request. So a new start mode is either returned by that
    /// second call, or its request comes after that call and stays.
    pub fn begin(&self, start_mode: impl Fn() -> T) -> T {
        let mode = start_mode();
        let word = mode.into();
        self.in_force.store(word, Ordering::Release);
        // Acquire: if this discards a request for a newer start mode, the second call below returns
        // that mode.
        self.requested.swap(word, Ordering::AcqRel);
        self.replace_request(mode, start_mode());
        mode
    }

    /// Any thread: requests a mode. Of several requests between two batches the owner adopts the
    /// last.
    pub fn request(&self, mode: T) {
        // A store would do on hardware. A read-modify-write gives the loom models a total order of
        // requests.
        self.requested.swap(mode.into(), Ordering::AcqRel);
    }

    /// Any thread: requests `new` if `old` is the mode requested last. Returns whether it was.
    pub fn replace_request(&self, old: T, new: T) -> bool {
        self.requested
            .compare_exchange(old.into(), new.into(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Owner, between batches: if a mode other than `current` is requested, puts that mode in force
    /// and returns it. `current` may be the mode or its word.
    #[inline]
    pub fn adopt(&self, current: impl Into<u64>) -> Option<T> {
        let requested = self.requested.load(Ordering::Relaxed);
        if requested == current.into() { None } else { self.change(requested) }
    }

    #[cold]
    fn change(&self, word: u64) -> Option<T> {
        // A word that is not a valid mode changes nothing.
        let mode = T::try_from(word).ok()?;
        self.in_force.store(word, Ordering::Release);
        Some(mode)
    }

    /// Any thread: the mode requested last. `None`: not a valid mode.
    pub fn requested(&self) -> Option<T> {
        T::try_from(self.requested.load(Ordering::Relaxed)).ok()
    }

    /// Owner: the mode in force, even if another mode has been requested since. `None`: not a valid
    /// mode.
    pub fn in_force(&self) -> Option<T> {
        T::try_from(self.in_force.load(Ordering::Relaxed)).ok()
    }

    /// Any thread: whether the owner has adopted the mode requested last.
    pub fn is_adopted(&self) -> bool {
        self.in_force.load(Ordering::Acquire) == self.requested.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[path = "../tests/unit/mode.rs"]
mod tests;
