//! A mode that any thread may ask for and one thread adopts.

use std::marker::PhantomData;

use crate::atomic::{AtomicU64, Ordering};

/// The mode asked for, and the mode in force. The owner adopts a change between batches, where no plan of the old mode
/// is under way; that costs it one relaxed load per batch.
///
/// The owner may be asleep under the old mode. So the asker wakes the owner by its [`WakeFlag`](crate::WakeFlag) afterwards, and
/// the owner, having armed it, calls [`adopt`](ModeCell::adopt) as part of its check before it sleeps.
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
    /// `mode` is in force, and no other is asked for.
    pub fn new(mode: T) -> ModeCell<T> {
        let word = mode.into();
        ModeCell { asked: AtomicU64::new(word), in_force: AtomicU64::new(word), mode: PhantomData }
    }

    /// Owner, as it begins in the mode that `begins` gives, the same for all owners of its kind: it is asked for and in force, whatever an owner
    /// before it left. A mode that is made the one to begin with, and then asked of every owner, is asked for afterwards.
    pub fn begin(&self, begins: impl Fn() -> T) -> T {
        let mode = begins();
        let word = mode.into();
        self.in_force.store(word, Ordering::Release);
        // What this takes the place of was asked for earlier: acquired, it has the second reading find that mode.
        self.asked.swap(word, Ordering::AcqRel);
        self.ask_instead(mode, begins());
        mode
    }

    /// Any thread: asks for a mode. Of several that are asked for between two batches the last one is adopted.
    pub fn ask(&self, mode: T) {
        // A store would do: the models only know which of two read-modify-writes came later.
        self.asked.swap(mode.into(), Ordering::AcqRel);
    }

    /// Any thread: asks for `mode` where `unfit` is asked for, and for nothing where another is asked for meanwhile.
    /// Whether it did.
    pub fn ask_instead(&self, unfit: T, mode: T) -> bool {
        self.asked.compare_exchange(unfit.into(), mode.into(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Owner, between batches: the mode to change to, if another than `current` is asked for. It is then in force.
    /// An owner that keeps its mode as a word gives that.
    #[inline]
    pub fn adopt(&self, current: impl Into<u64>) -> Option<T> {
        let asked = self.asked.load(Ordering::Relaxed);
        if asked == current.into() { None } else { self.change(asked) }
    }

    #[cold]
    fn change(&self, word: u64) -> Option<T> {
        let mode = T::try_from(word).ok()?;
        self.in_force.store(word, Ordering::Release);
        Some(mode)
    }

    /// Any thread: the mode that was asked for last. `None`: not a mode of this kind.
    pub fn asked(&self) -> Option<T> {
        T::try_from(self.asked.load(Ordering::Relaxed)).ok()
    }

    /// Owner, as it begins: the mode in force, whatever has been asked for since. `None`: not a mode of this kind.
    pub fn in_force(&self) -> Option<T> {
        T::try_from(self.in_force.load(Ordering::Relaxed)).ok()
    }

    /// Any thread: whether the owner has adopted what was asked for last.
    pub fn settled(&self) -> bool {
        self.in_force.load(Ordering::Acquire) == self.asked.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[path = "../tests/unit/mode.rs"]
mod tests;
