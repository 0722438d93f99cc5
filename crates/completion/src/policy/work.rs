//! What every rule goes by: when a look is worth it, and how much one takes.

use crate::Seen;

/// Entries that one look takes at most: the weight of NAPI and of irq_poll's users.
pub const WEIGHT: u32 = 64;

/// Whether a look is worth it without waiting: an entry is known to be there, or the thread was woken. Not while
/// another thread holds the lock: that one looks, and once more after it has released.
#[inline]
pub(super) fn work_is_known(seen: &Seen) -> bool {
    (seen.pending | seen.woke.is_some()) & !seen.lock_busy
}
