//! What a lane has not sent yet, and who sees to it.

use crate::Bell;
use crate::sync::atomic::{AtomicBool, Ordering};

/// A lane that sends bytes, or gives entries to a ring that may refuse them, may take only a part of what is committed.
/// Nothing more is sent until somebody tries again, and a thread that waits for completions alone waits for ever: the
/// controller answers nothing that it has not got. **Law 7**: a thread that stops with something unsent arms for writability, or
/// hands the debt on.
///
/// Several threads may commit on the lane, and one may sleep on it. So the debt is the lane's, not a thread's: a thread that stops
/// asks for all, and a thread that sleeps waits for all. Debtor and sleeper are [`Bell`]'s two sides: each writes its own word,
/// fences, and reads the other's, so that at least one of them sees the other.
///
/// ```text
///   sender:   under the lane's send lock: send; note what is left
///   to stop:  role: release(me), if it is registered; wake the heir
///             leave(the bell of the thread that sleeps on the lane)
///               Free    stop
///               Signal  signal that sleeper, and stop
///               Stay    send, or sleep as below, until it is free
///   to sleep: own bell: arm   look; owes: block for writability too
///   awake:    mask; owes: send, under the lock; look
/// ```
///
/// - *The debtor returns to its caller while the owner blocks for completions alone*: it rings the owner's bell, and the owner
///   asks again. An owner that is awake is not rung, because it asks before it sleeps.
/// - *The owner leaves*: the debt goes with the [`LookRole`](crate::LookRole). The heir is woken, and asks. Without an heir the
///   debt is the leaver's. It asks after the release: a debtor that found it in the role has noted its debt before, and one
///   that came later has found nobody, and stays.
/// - *Two debtors*: the first rings, the second finds the bell masked. The sleeper sends for both.
/// - *Settled meanwhile*: the sleeper is woken, or waits for a writability that is there at once. It looks once for nothing.
#[derive(Debug, Default)]
pub struct Debt {
    owing: AtomicBool,
}

/// What a thread that stops has to do about what is unsent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Leave {
    /// Nothing: all is sent, or the sleeper is awake and asks before it sleeps.
    Free,
    /// The sleeper's bell was rung: it has to be signalled.
    Signal,
    /// Nobody sleeps on the lane: the thread may not stop before all is sent, unless it waits for writability itself.
    Stay,
}

impl Debt {
    /// A lane that owes nothing.
    pub fn new() -> Debt {
        Debt { owing: AtomicBool::new(false) }
    }

    /// Sender, after each send, and before it lets go of the lane's send lock: whether anything is left. The lock keeps
    /// the notes in the order of the sends.
    #[inline]
    pub fn note(&self, left: bool) {
        // What is unsent stays under the lock: the note says only that it is worth a try.
        self.owing.store(left, Ordering::Relaxed);
    }

    /// Whether anything is unsent. A sleeper asks after [`Bell::arm`], and includes writability in what it waits for.
    #[inline]
    pub fn owes(&self) -> bool {
        self.owing.load(Ordering::Relaxed)
    }

    /// A thread that stops, after its last [`note`](Debt::note) and after it has given up the role. `sleeper`: the bell of the
    /// thread that sleeps on the lane; on a shared queue, of [`LookRole::owner`](crate::LookRole::owner), asked for now.
    #[inline]
    pub fn leave(&self, sleeper: Option<&Bell>) -> Leave {
        match sleeper {
            _ if !self.owes() => Leave::Free,
            None => Leave::Stay,
            Some(bell) if bell.ring_once() => Leave::Signal,
            Some(_) => Leave::Free,
        }
    }
}

#[cfg(test)]
mod tests;
