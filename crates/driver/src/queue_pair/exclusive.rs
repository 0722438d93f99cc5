//! Both sides of a queue pair, for the thread that looks after its controller: aborts, resets.

use nvme::{Cid, Consumer, CqSlots, Cqe, Producer, SqSlots};

use super::{Abandoned, CqSide, QueuePair, STOPPED, SqSide, look_word};
use crate::Command;
use sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use sync::atomic::fence;
use sync::{MutexGuard, lock, try_lock};

/// A queue pair with both locks held: nobody posts and nobody reaps. Once it is let go, ask [`QueuePair::look_again`].
#[derive(Debug)]
pub struct Exclusive<'a, S, C> {
    pair: &'a QueuePair<S, C>,
    sq: MutexGuard<'a, SqSide>,
    cq: MutexGuard<'a, CqSide>,
}

impl<S: SqSlots, C: CqSlots> QueuePair<S, C> {
    /// Waits for both sides.
    pub fn exclusive(&self) -> Exclusive<'_, S, C> {
        let sq = lock(&self.sq_side);
        Exclusive { pair: self, sq, cq: self.cq_side.lock() }
    }

    /// Both sides, if nobody has either: for a thread that must not wait for those who submit and reap.
    pub fn try_exclusive(&self) -> Option<Exclusive<'_, S, C>> {
        let sq = try_lock(&self.sq_side)?;
        Some(Exclusive { pair: self, sq, cq: self.cq_side.try_lock()? })
    }

    /// After [`Exclusive`]: whether an entry is pending. A thread may have found the lock busy, and gone to sleep.
    pub fn look_again(&self) -> bool {
        fence(SeqCst);
        self.pending()
    }

    /// [`Exclusive::begin_abort`], waiting for both sides.
    pub fn begin_abort(&self, command: &Command) -> bool {
        let begun = self.exclusive().begin_abort(command);
        fence(SeqCst);
        begun
    }

    /// [`Exclusive::end_abort`], waiting for both sides.
    pub fn end_abort(&self, cid: Cid) {
        self.exclusive().end_abort(cid);
        fence(SeqCst);
    }

    /// [`Exclusive::close`], waiting for both sides.
    pub fn close(&self) {
        self.exclusive().close();
    }

    /// [`Exclusive::abandon`], waiting for both sides.
    pub fn abandon(&self) -> Vec<Abandoned> {
        self.exclusive().abandon()
    }

    /// [`Exclusive::reopen`], waiting for both sides.
    pub fn reopen(&self) {
        self.exclusive().reopen();
    }
}

impl<S: SqSlots, C: CqSlots> Exclusive<'_, S, C> {
    /// Reserves the CID of `command`, for which an Abort is about to be posted, until both have completed. False: the
    /// command has completed meanwhile.
    pub fn begin_abort(&mut self, command: &Command) -> bool {
        self.pair.ledger.begin_abort(&mut self.cq.finisher, command)
    }

    /// The Abort for `cid` has completed, whatever it says.
    pub fn end_abort(&mut self, cid: Cid) {
        // Under the lock, so that a reset cannot free the same tag in between.
        if let Some(tag) = self.pair.ledger.end_abort(&mut self.cq.finisher, cid) {
            self.cq.returner.add(&self.pair.tags, tag);
            self.cq.returner.flush(&self.pair.tags);
        }
    }

    /// Stops posting: from now on [`super::SqGuard::post`] answers [`crate::NoTag`] and no doorbell is rung. Reaping goes on.
    pub fn close(&mut self) {
        self.sq.closed = true;
        self.sq.taker.forget();
    }

    /// Ends every command without an answer, returns what they were posted with, and empties both rings, the completion
    /// entries back at phase 0. The queue stays closed until [`Exclusive::reopen`]. Only after the controller has
    /// provably stopped (CSTS.RDY = 0) may anybody touch the commands' buffers, or the rings be given to it again.
    pub fn abandon(&mut self) -> Vec<Abandoned> {
        let (pair, sq, cq) = (self.pair, &mut *self.sq, &mut *self.cq);
        (sq.closed, cq.stopped) = (true, true);
        pair.look.store(STOPPED, Release);
        let mut abandoned = Vec::new();
        pair.ledger.abandon(&mut cq.finisher, |command| abandoned.push(command));
        sq.taker.reset(&mut cq.returner, &pair.tags);
        sq.taker.forget();
        sq.announced = 0;
        sq.producer = Producer::new(pair.sizes.sq_entries);
        cq.consumer = Consumer::new(pair.sizes.cq_entries);
        for slot in 0..pair.sizes.cq_entries {
            pair.cq.store(slot, &Cqe::default());
        }
        pair.finished.store(pair.announced.load(Relaxed), Release);
        abandoned
    }

    /// Opens it again after [`Exclusive::abandon`]: for the admin queue before the controller is enabled, for an I/O queue
    /// once it has been created again.
    pub fn reopen(&mut self) {
        (self.sq.closed, self.cq.stopped) = (false, false);
        self.pair.look.store(look_word(&self.cq.consumer), Release);
    }
}

#[cfg(all(test, loom))]
#[path = "../../tests/unit/exclusive_models.rs"]
mod models;
