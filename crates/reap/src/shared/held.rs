//! What a controller holds back of a queue's messages, as one thread says and others ask.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use completion::Coalesce;

/// A setting that one thread says and others ask for. It orders nothing: a thread that reads an old one is late by what is
/// held back, once, or is told sooner than it thought.
#[derive(Default)]
pub(crate) struct Held(AtomicU32);

impl Held {
    /// What was said last; [`Coalesce::OFF`] to begin with.
    #[inline]
    pub(crate) fn get(&self) -> Coalesce {
        match self.0.load(Relaxed) {
            0 => Coalesce::OFF,
            word => Coalesce::new((word >> 8) as u16, word as u8),
        }
    }

    /// Says another.
    pub(crate) fn set(&self, setting: Coalesce) {
        let word = if setting == Coalesce::OFF { 0 } else { u32::from(setting.entries()) << 8 | u32::from(setting.time()) };
        self.0.store(word, Relaxed);
    }
}
