//! A loan: memory that one side lends, and another uses for a moment at a time until it is taken back. A byte stands for each piece of it:
//! private, lent (a kind of the caller's choice, 1 to 127), or lent and used at this moment.
//!
//! Once [`end`] has returned nobody uses the piece, and nobody begins to before [`lend`].

use crate::sync::atomic::AtomicU8;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{hint, thread};

/// Not lent.
pub const PRIVATE: u8 = 0;

/// Beside a kind: somebody uses the piece.
const USED: u8 = 0x80;

/// The owner lends the piece. What it wrote is there before anybody uses it.
#[inline]
pub fn lend(mark: &AtomicU8, kind: u8) {
    mark.store(kind, Release);
}

/// The owner takes back a piece that it has lent as `kind`, and waits for whoever uses it.
#[inline]
pub fn end(mark: &AtomicU8, kind: u8) {
    if !try_end(mark, kind) {
        wait_and_end(mark, kind);
    }
}

/// Takes the piece back, unless somebody uses it. What users wrote is there then.
#[inline]
fn try_end(mark: &AtomicU8, kind: u8) -> bool {
    mark.compare_exchange(kind, PRIVATE, Acquire, Relaxed).is_ok()
}

#[cold]
fn wait_and_end(mark: &AtomicU8, kind: u8) {
    while mark.load(Relaxed) != PRIVATE && !try_end(mark, kind) {
        hint::spin_loop();
        thread::yield_now();
    }
}

/// The kind as which the piece is lent at this moment, or [`PRIVATE`].
#[inline]
pub fn kind_of(mark: &AtomicU8) -> u8 {
    mark.load(Acquire) & !USED
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

/// Uses a piece that is lent as `kind`, after whoever uses it now; `None`: it is not.
#[inline]
pub fn enter(mark: &AtomicU8, kind: u8) -> Option<Use<'_>> {
    loop {
        match try_enter(mark, kind) {
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
fn try_enter(mark: &AtomicU8, kind: u8) -> Result<Use<'_>, Refused> {
    match mark.compare_exchange(kind, kind | USED, Acquire, Relaxed) {
        Ok(_) => Ok(Use { mark, kind }),
        Err(now) if now == kind | USED => Err(Refused::Used),
        Err(_) => Err(Refused::NotLent),
    }
}

impl Drop for Use<'_> {
    #[inline]
    fn drop(&mut self) {
        self.mark.store(self.kind, Release);
    }
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
