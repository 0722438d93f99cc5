//! Numbers that tell devices apart within the process.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// The number of none: no device has as many.
pub(crate) const NO_LINK: u32 = u32::MAX;

/// A number that nothing else that has namespaces has.
pub(crate) fn next_number() -> u32 {
    static NUMBERS: AtomicU32 = AtomicU32::new(0);
    NUMBERS.fetch_add(1, Relaxed)
}
