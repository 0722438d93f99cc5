//! Memory that its owner lends to users (the host's buffers, lent to a device), who make short
//! accesses to it until the owner takes it back. One byte per piece of memory holds the state of
//! the piece: private, lent as a *kind*, lent and in use, or released. A kind is a number from 1 to
//! 126 whose meaning is the callers' (in `hw`: log2 of the block's size); a user can acquire a
//! piece only as the kind that it was lent as.
//!
//! ```text
//!   state           by      step                               next state
//!   PRIVATE         owner   grant                              kind
//!   kind            user    acquire                            kind | IN_USE
//!   kind            owner   revoke                             PRIVATE
//!   kind | IN_USE   user    drop of its Use                    kind
//!   kind | IN_USE   owner   revoke, first half: swap           PRIVATE, still in use
//!   PRIVATE         user    drop of its Use, after that swap   RELEASED
//!   RELEASED        owner   revoke, second half: the wait      PRIVATE
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
pub fn grant(state: &AtomicU8, kind: u8) {
    state.store(kind, Release);
}

/// The owner takes the piece back: this waits until no user accesses it. What users wrote is then
/// visible to the owner.
#[inline]
pub fn revoke(state: &AtomicU8) {
    if !begin_revoke(state) {
        finish_revoke(state);
    }
}

/// The first half of [`revoke`]: from now on no use begins. Returns true if the piece is not in
/// use: the revoke is complete. Returns false if it is in use: call [`finish_revoke`].
#[inline]
pub fn begin_revoke(state: &AtomicU8) -> bool {
    // A swap, not a store: it returns IN_USE if a user is inside. If none is, Acquire pairs with
    // the Release by which the last user left.
    state.swap(PRIVATE, Acquire) & IN_USE == 0
}

/// Completes the revoke if the user that [`begin_revoke`] found has finished. Returns whether it
/// has.
fn try_finish_revoke(state: &AtomicU8) -> bool {
    let released = state.load(Acquire) == RELEASED;
    if released {
        state.store(PRIVATE, Relaxed);
    }
    released
}

/// The second half of [`revoke`]: waits until the user that [`begin_revoke`] found has finished.
#[cold]
pub fn finish_revoke(state: &AtomicU8) {
    while !try_finish_revoke(state) {
        hint::spin_loop();
        // A use is one copy, which takes less time than a sleep, so this spins. It yields in case
        // the user was preempted.
        thread::yield_now();
    }
}

/// The kind as which the piece is lent now, or [`PRIVATE`].
#[inline]
pub fn kind_of(state: &AtomicU8) -> u8 {
    match state.load(Acquire) & !IN_USE {
        // The last user has left; the owner is still in `finish_revoke`.
        RELEASED => PRIVATE,
        kind => kind,
    }
}

/// Exclusive use of a piece, which is not taken back before this is dropped.
#[derive(Debug)]
pub struct Use<'a> {
    state: &'a AtomicU8,
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

/// Begins to use a piece that is lent as `kind`. Waits while another user has it. `None`: the piece
/// is not lent as that kind.
#[inline]
pub fn acquire(state: &AtomicU8, kind: u8) -> Option<Use<'_>> {
    loop {
        match try_acquire(state, kind) {
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
fn try_acquire(state: &AtomicU8, kind: u8) -> Result<Use<'_>, AcquireError> {
    match state.compare_exchange(kind, kind | IN_USE, Acquire, Relaxed) {
        Ok(_) => Ok(Use { state, kind }),
        Err(now) if now == kind | IN_USE => Err(AcquireError::InUse),
        Err(_) => Err(AcquireError::NotLent),
    }
}

impl Drop for Use<'_> {
    #[inline]
    fn drop(&mut self) {
        // Fails only if the owner has swapped in PRIVATE; the owner then waits for RELEASED.
        // Release: what this user wrote is visible to the owner, or to the next user.
        if self.state.compare_exchange(self.kind | IN_USE, self.kind, Release, Relaxed).is_err() {
            self.state.store(RELEASED, Release);
        }
    }
}

#[cfg(all(test, loom))]
#[path = "../tests/unit/lease_models.rs"]
mod models;
#[cfg(all(test, not(loom)))]
#[path = "../tests/unit/lease.rs"]
mod tests;
