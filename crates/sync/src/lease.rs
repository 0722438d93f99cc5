//! Memory that one side lends and another uses for short accesses until it is taken back. One byte
//! per piece of memory holds its state: private, lent (as a kind of the caller's choice, 1 to 126),
//! or lent and in use.
//!
//! ```text
//!             grant                  acquire
//!   PRIVATE ----------> kind <------------------> kind | IN_USE
//!      ^                 |         drop                |
//!      |  revoke         |                             | revoke: swap to PRIVATE, then wait
//!      +-----------------+                             v
//!      +<------------------------------------------- RELEASED   (stored by drop, seen by the owner)
//! ```
//!
//! Once [`revoke`] has returned, the piece is not in use, and no use begins before [`grant`].

use crate::atomic::AtomicU8;
use crate::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::{hint, thread};

/// Not lent.
pub const PRIVATE: u8 = 0;

/// Or-ed to a kind: the piece is in use.
const IN_USE: u8 = 0x80;

/// In place of a kind: the user has finished and found that the owner is taking the piece back.
const RELEASED: u8 = 0x7f;

/// The owner lends the piece. What the owner wrote before is visible to users.
#[inline]
pub fn grant(mark: &AtomicU8, kind: u8) {
    mark.store(kind, Release);
}

/// The owner takes back the piece and waits until it is not in use. What users wrote is visible
/// then.
#[inline]
pub fn revoke(mark: &AtomicU8) {
    if !begin_revoke(mark) {
        finish_revoke(mark);
    }
}

/// The first half of [`revoke`]: from now on no use begins. Returns whether the piece is not in
/// use, so that the owner has it back; otherwise call [`finish_revoke`].
#[inline]
pub fn begin_revoke(mark: &AtomicU8) -> bool {
    // A swap, not a store: it must see a user that entered just before. Acquire pairs with that
    // user's release.
    mark.swap(PRIVATE, Acquire) & IN_USE == 0
}

/// Whether the user that [`begin_revoke`] found has finished. If so the owner has the piece back.
fn is_released(mark: &AtomicU8) -> bool {
    let released = mark.load(Acquire) == RELEASED;
    if released {
        mark.store(PRIVATE, Relaxed);
    }
    released
}

/// Waits until a piece that is being taken back is not in use.
#[cold]
pub fn finish_revoke(mark: &AtomicU8) {
    while !is_released(mark) {
        hint::spin_loop();
        // A use is one copy, so spinning is shorter than a sleep. The yield is for a user that was
        // preempted.
        thread::yield_now();
    }
}

/// The kind as which the piece is lent now, or [`PRIVATE`].
#[inline]
pub fn kind_of(mark: &AtomicU8) -> u8 {
    match mark.load(Acquire) & !IN_USE {
        // The last user has left, but the owner has not noticed yet.
        RELEASED => PRIVATE,
        kind => kind,
    }
}

/// Exclusive use of a piece, which is not taken back before this is dropped.
#[derive(Debug)]
pub struct Use<'a> {
    mark: &'a AtomicU8,
    kind: u8,
}

/// Why a piece cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AcquireError {
    /// The piece is not lent as that kind.
    NotLent,
    /// The piece is in use.
    InUse,
}

/// Begins to use a piece that is lent as `kind`, waiting for another user. `None`: it is not lent
/// as that kind.
#[inline]
pub fn acquire(mark: &AtomicU8, kind: u8) -> Option<Use<'_>> {
    loop {
        match try_acquire(mark, kind) {
            Ok(entered) => return Some(entered),
            Err(AcquireError::NotLent) => return None,
            Err(AcquireError::InUse) => {
                hint::spin_loop();
                thread::yield_now();
            }
        }
    }
}

#[inline]
fn try_acquire(mark: &AtomicU8, kind: u8) -> Result<Use<'_>, AcquireError> {
    match mark.compare_exchange(kind, kind | IN_USE, Acquire, Relaxed) {
        Ok(_) => Ok(Use { mark, kind }),
        Err(now) if now == kind | IN_USE => Err(AcquireError::InUse),
        Err(_) => Err(AcquireError::NotLent),
    }
}

impl Drop for Use<'_> {
    #[inline]
    fn drop(&mut self) {
        // Fails only if the owner has swapped in PRIVATE: it waits for RELEASED. Release: what this
        // user wrote is visible to the owner, or to the next user.
        if self.mark.compare_exchange(self.kind | IN_USE, self.kind, Release, Relaxed).is_err() {
            self.mark.store(RELEASED, Release);
        }
    }
}

#[cfg(all(test, loom))]
#[path = "../tests/unit/lease_models.rs"]
mod models;
#[cfg(all(test, not(loom)))]
#[path = "../tests/unit/lease.rs"]
mod tests;
