//! A loan: memory that one side lends, and another uses for a moment at a time until it is taken back. A byte stands for each piece of it:
//! private, lent (a kind of the caller's choice, 1 to 126), or lent and used at this moment.
//!
//! Once [`revoke`] has returned nobody uses the piece, and nobody begins to before [`grant`].

use crate::atomic::AtomicU8;
use crate::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::{hint, thread};

/// Not lent.
pub const PRIVATE: u8 = 0;

/// Beside a kind: somebody uses the piece.
const USED: u8 = 0x80;

/// In place of a kind: the last user has left, and found that the owner takes the piece back.
const LEFT: u8 = 0x7f;

/// The owner lends the piece. What it wrote is there before anybody uses it.
#[inline]
pub fn grant(mark: &AtomicU8, kind: u8) {
    mark.store(kind, Release);
}

/// The owner takes back a piece that it has lent, and waits for the thread that uses it. The users' writes are there then.
#[inline]
pub fn revoke(mark: &AtomicU8) {
    if !begin_revoke(mark) {
        finish_revoke(mark);
    }
}

/// The first half of [`revoke`]: from now on nobody begins to use the piece. Whether nobody uses it, so that the owner has it back; else
/// [`finish_revoke`] follows.
#[inline]
pub fn begin_revoke(mark: &AtomicU8) -> bool {
    mark.swap(PRIVATE, Acquire) & USED == 0
}

/// Whether the last user has left, after [`begin_revoke`] has found it there: then the owner has the piece back.
fn is_left(mark: &AtomicU8) -> bool {
    let left = mark.load(Acquire) == LEFT;
    if left {
        mark.store(PRIVATE, Relaxed);
    }
    left
}

/// Waits for the thread that uses a piece that is being taken back.
#[cold]
pub fn finish_revoke(mark: &AtomicU8) {
    while !is_left(mark) {
        hint::spin_loop();
        thread::yield_now();
    }
}

/// The kind as which the piece is lent at this moment, or [`PRIVATE`].
#[inline]
pub fn kind_of(mark: &AtomicU8) -> u8 {
    match mark.load(Acquire) & !USED {
        LEFT => PRIVATE,
        kind => kind,
    }
}

/// While this lives the piece is its user's alone, and is not taken back.
#[derive(Debug)]
pub struct Use<'a> {
    mark: &'a AtomicU8,
    kind: u8,
}

/// Why a piece cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// It is not lent as that kind.
    NotLent,
    /// Somebody uses it.
    Used,
}

/// Uses a piece that is lent as `kind`, after the thread that uses it now; `None`: it is not.
#[inline]
pub fn acquire(mark: &AtomicU8, kind: u8) -> Option<Use<'_>> {
    loop {
        match try_acquire(mark, kind) {
            Ok(entered) => return Some(entered),
            Err(Refused::NotLent) => return None,
            Err(Refused::Used) => {
                hint::spin_loop();
                thread::yield_now();
            }
        }
    }
}

#[inline]
fn try_acquire(mark: &AtomicU8, kind: u8) -> Result<Use<'_>, Refused> {
    match mark.compare_exchange(kind, kind | USED, Acquire, Relaxed) {
        Ok(_) => Ok(Use { mark, kind }),
        Err(now) if now == kind | USED => Err(Refused::Used),
        Err(_) => Err(Refused::NotLent),
    }
}

impl Drop for Use<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.mark.compare_exchange(self.kind | USED, self.kind, Release, Relaxed).is_err() {
            self.mark.store(LEFT, Release);
        }
    }
}

#[cfg(all(test, loom))]
#[path = "../tests/unit/lease_models.rs"]
mod models;
#[cfg(all(test, not(loom)))]
#[path = "../tests/unit/lease.rs"]
mod tests;
