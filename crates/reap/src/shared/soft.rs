//! What other threads may touch of a software queue.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use completion::Mode;
use sync::{Inbox, ModeCell};
use sync::{Mutex, MutexGuard, lock, try_lock};

use super::book::Requests;
use crate::request::Outcome;
use crate::wake::Wake;

/// What other threads may touch of a software queue.
pub(crate) struct Soft {
    /// The open requests. The queue's own thread has them while the application's iterator runs, so that nobody else waits for
    /// them: others try, and leave to the owner what they cannot do.
    requests: Mutex<Requests>,
    /// Requests that are not finished, those of them that somebody waits for, and finished ones that nobody has reaped:
    /// as the book says, to be read without its lock.
    open: AtomicU32,
    urgent: AtomicU32,
    done: AtomicU32,
    /// For how many entries its policy would have messages held back.
    holds: AtomicU32,
    /// Nothing is posted again from now on.
    impatient: AtomicBool,
    /// Entries of this queue that another thread took off the CQ.
    pub inbox: Inbox<Outcome>,
    /// The completion mode that was asked for, and the one in force.
    pub mode: ModeCell<Mode>,
    /// Armed while the queue's thread sleeps, for everything that is not its vector.
    pub wake: Arc<Wake>,
}

impl Soft {
    /// Software queue `index` of its hardware queue, with room for `parts` parts in flight.
    ///
    /// # Errors
    /// The system has no eventfd left.
    pub(crate) fn new(index: u8, parts: u32, mode: Mode) -> std::io::Result<Soft> {
        Ok(Soft {
            requests: Mutex::new(Requests::new(index)),
            open: AtomicU32::new(0),
            urgent: AtomicU32::new(0),
            done: AtomicU32::new(0),
            holds: AtomicU32::new(0),
            impatient: AtomicBool::new(false),
            inbox: Inbox::new(parts as usize),
            mode: ModeCell::new(mode),
            wake: Arc::new(Wake::new()?),
        })
    }

    /// The open requests, for the queue's own thread.
    #[inline]
    pub(crate) fn requests(&self) -> Book<'_> {
        Book { soft: self, requests: lock(&self.requests) }
    }

    /// The open requests, for any other thread; `None`: their own thread has them, and will not give them back soon if it runs
    /// an iterator of the application's.
    #[inline]
    pub(crate) fn try_requests(&self) -> Option<Book<'_>> {
        Some(Book { soft: self, requests: try_lock(&self.requests)? })
    }

    /// For how many entries its policy would have messages held back; 0: for none.
    #[inline]
    pub(crate) fn holds(&self) -> u32 {
        self.holds.load(Relaxed)
    }

    /// Its policy asks for something else. Whether it was the first to ask for anything.
    pub(crate) fn asks_to_hold(&self, entries: u32) -> bool {
        self.holds.swap(entries, Relaxed) == 0
    }

    /// Requests that are not finished.
    #[inline]
    pub(crate) fn open(&self) -> u32 {
        self.open.load(Relaxed)
    }

    /// Of these, the ones that somebody waits for.
    #[inline]
    pub(crate) fn urgent(&self) -> u32 {
        self.urgent.load(Relaxed)
    }

    /// Finished requests that can be reaped.
    #[inline]
    pub(crate) fn done(&self) -> u32 {
        self.done.load(Relaxed)
    }

    /// Whether another mode is asked for than the one in force.
    #[inline]
    pub(crate) fn mode_asked(&self) -> bool {
        !self.mode.settled()
    }

    /// From now on nothing is posted again.
    pub(crate) fn lose_patience(&self) {
        self.impatient.store(true, Relaxed);
        self.tell();
    }

    /// Whether nothing is to be posted again.
    pub(crate) fn is_impatient(&self) -> bool {
        self.impatient.load(Relaxed)
    }

    /// Wakes the queue's thread if it sleeps. What it is to see has been stored before.
    #[inline]
    pub(crate) fn tell(&self) {
        self.wake.tell();
    }
}

/// The open requests of a software queue, locked. What is counted of them is published when it is dropped.
pub(crate) struct Book<'a> {
    soft: &'a Soft,
    requests: MutexGuard<'a, Requests>,
}

impl Deref for Book<'_> {
    type Target = Requests;
    #[inline]
    fn deref(&self) -> &Requests {
        &self.requests
    }
}

impl DerefMut for Book<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Requests {
        &mut self.requests
    }
}

impl Drop for Book<'_> {
    #[inline]
    fn drop(&mut self) {
        self.soft.open.store(self.requests.open(), Relaxed);
        self.soft.urgent.store(self.requests.urgent(), Relaxed);
        self.soft.done.store(self.requests.done(), Relaxed);
    }
}
