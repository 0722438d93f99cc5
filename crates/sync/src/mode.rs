//! A mode that any thread may request and one thread, the owner, adopts.

use std::marker::PhantomData;

use crate::atomic::{AtomicU64, Ordering};

/// The mode requested and the mode in force. The owner adopts a change between batches, where no
/// decision of the old mode is pending. The check costs one relaxed load per batch.
///
/// The owner may be asleep under the old mode. So the requester wakes the owner by its
/// [`WakeFlag`](crate::WakeFlag) afterwards, and the owner, having armed it, calls
/// [`adopt`](ModeCell::adopt) as part of its check before it sleeps.
#[derive(Debug)]
pub struct ModeCell<T> {
    asked: AtomicU64,
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
        ModeCell { asked: AtomicU64::new(word), in_force: AtomicU64::new(word), mode: PhantomData }
    }

    /// Owner, at its start: adopts the start mode that `begins` returns, in place of the request to
    /// an earlier owner. Returns that mode.
    ///
    /// To change the start mode: first change what `begins` returns, then [`ask`](ModeCell::ask)
    /// every owner for it. Either the owner's second reading sees the new start mode, or the
    /// request comes after it.
    pub fn begin(&self, begins: impl Fn() -> T) -> T {
        let mode = begins();
        let word = mode.into();
        self.in_force.store(word, Ordering::Release);
        // Acquire: if this replaces a request for a newer start mode, the second reading below
        // returns that mode.
        self.asked.swap(word, Ordering::AcqRel);
        self.ask_instead(mode, begins());
        mode
    }

    /// Any thread: requests a mode. Of several requests between two batches the last one is
    /// adopted.
    pub fn ask(&self, mode: T) {
        // A store would do on hardware. A read-modify-write gives the loom models a total order of
        // requests.
        self.asked.swap(mode.into(), Ordering::AcqRel);
    }

    /// Any thread: requests `mode` if `unfit` is the mode requested now. Returns whether it did.
    pub fn ask_instead(&self, unfit: T, mode: T) -> bool {
        self.asked
            .compare_exchange(unfit.into(), mode.into(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Owner, between batches: the mode to change to, if a mode other than `current` is requested.
    /// It is then in force. `current` may be the mode or its word.
    #[inline]
    pub fn adopt(&self, current: impl Into<u64>) -> Option<T> {
        let asked = self.asked.load(Ordering::Relaxed);
        if asked == current.into() { None } else { self.change(asked) }
    }

    #[cold]
    fn change(&self, word: u64) -> Option<T> {
        // The word came through an atomic: a value that is no mode changes nothing.
        let mode = T::try_from(word).ok()?;
        self.in_force.store(word, Ordering::Release);
        Some(mode)
    }

    /// Any thread: the mode requested last. `None`: not a valid mode.
    pub fn asked(&self) -> Option<T> {
        T::try_from(self.asked.load(Ordering::Relaxed)).ok()
    }

    /// Owner, as it begins: the mode in force, whatever has been requested since. `None`: not a
    /// valid mode.
    pub fn in_force(&self) -> Option<T> {
        T::try_from(self.in_force.load(Ordering::Relaxed)).ok()
    }

    /// Any thread: whether the owner has adopted the mode requested last.
    pub fn settled(&self) -> bool {
        self.in_force.load(Ordering::Acquire) == self.asked.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[path = "../tests/unit/mode.rs"]
mod tests;
