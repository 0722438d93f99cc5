//! The submission ring's producer.

use std::mem::ManuallyDrop;
use std::num::NonZeroU64;

use io_uring::{IoUring, cqueue, squeue};

use super::command::Command;
use super::entry::Entry;
use super::ring::{Ring, Rings};

/// Where entries go in; each ring has one.
///
/// The queue is never dropped: that would write the tail, in a forked child too. It owns nothing.
#[derive(Debug)]
pub struct Sq {
    queue: ManuallyDrop<Queue>,
    /// Entries pushed so far, modulo 2³².
    tail: u32,
    /// Keeps the memory that `queue` points to.
    ring: Ring,
}

enum Queue {
    Small(squeue::SubmissionQueue<'static, squeue::Entry>),
    Big(squeue::SubmissionQueue<'static, squeue::Entry128>),
}

// SAFETY: the queue points into the rings, which `ring` keeps and which any thread may use, one at a time: `&mut` sees to it.
unsafe impl Send for Sq {}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Queue::Small(_)) { "Small" } else { "Big" })
    }
}

/// An entry that was not pushed.
#[derive(Debug)]
pub struct Refused<E = Entry> {
    /// The entry.
    pub entry: E,
    /// What is in the way.
    pub why: Why,
}

/// Why an entry was not pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// No room: submit first.
    #[error("the submission ring is full; submit first")]
    Full,
    /// It names a descriptor that another ring keeps.
    #[error("the entry names a file that another ring keeps")]
    Foreign,
    /// A command that is passed through, and the ring's entries are small.
    #[error("a command that is passed through needs a ring of big entries")]
    Small,
    /// The ring belongs to the process that has forked.
    #[error("this io_uring was made before a fork and belongs to the parent process; make another in the child")]
    Forked,
}

impl Sq {
    /// # Safety
    /// It is the only one of this ring.
    pub(super) unsafe fn new(ring: Ring) -> Sq {
        let queue = match &ring.0.rings {
            // SAFETY: the caller says that it is the only one. It lives no longer than `ring`, which keeps the rings where they are.
            Rings::Small(rings) => Queue::Small(unsafe { queue(rings) }),
            // SAFETY: as above.
            Rings::Big(rings) => Queue::Big(unsafe { queue(rings) }),
        };
        Sq { queue: ManuallyDrop::new(queue), tail: 0, ring }
    }

    fn fault(&self, ring: Option<NonZeroU64>) -> Option<Why> {
        match ring {
            Some(id) if id != self.ring.0.id => Some(Why::Foreign),
            _ if !self.ring.0.birth.is_here() => Some(Why::Forked),
            _ => None,
        }
    }

    /// Puts an entry into the ring, where the kernel does not see it before [`Sq::publish`]. A ring that looks full is
    /// published, to learn what the kernel has consumed.
    ///
    /// # Errors
    /// The entry, and [`Why`].
    #[inline]
    pub fn push(&mut self, entry: Entry) -> Result<(), Refused> {
        if let Some(why) = self.fault(entry.ring) {
            return Err(Refused { entry, why });
        }
        // SAFETY (all): the buffer of the entry is lent until its completion is taken (the module's promise), and its file
        // stays open with the ring or is a place in the ring's table.
        let pushed = match &mut *self.queue {
            Queue::Small(queue) => {
                if queue.is_full() {
                    queue.sync();
                }
                // SAFETY: see above.
                unsafe { queue.push(&entry.sqe) }
            }
            Queue::Big(queue) => {
                if queue.is_full() {
                    queue.sync();
                }
                // SAFETY: see above.
                unsafe { queue.push(&entry.sqe.clone().into()) }
            }
        };
        if pushed.is_err() {
            return Err(Refused { entry, why: Why::Full });
        }
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// [`Sq::push`] of a command that is passed through.
    ///
    /// # Errors
    /// The command, and [`Why`].
    pub fn push_command(&mut self, command: Command) -> Result<(), Box<Refused<Command>>> {
        if let Some(why) = self.fault(command.ring) {
            return Err(Box::new(Refused { entry: command, why }));
        }
        let Queue::Big(queue) = &mut *self.queue else {
            return Err(Box::new(Refused { entry: command, why: Why::Small }));
        };
        if queue.is_full() {
            queue.sync();
        }
        // SAFETY: as in `push`.
        if unsafe { queue.push(&command.sqe) }.is_err() {
            return Err(Box::new(Refused { entry: command, why: Why::Full }));
        }
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Shows the kernel what was pushed, and tells how many entries it has to submit: what
    /// [`Enter::submit`](super::Enter::submit) wants. In a forked child it does nothing and tells 0.
    #[inline]
    pub fn publish(&mut self) -> u32 {
        if !self.ring.0.birth.is_here() {
            return 0;
        }
        match &mut *self.queue {
            Queue::Small(queue) => queue.sync(),
            Queue::Big(queue) => queue.sync(),
        }
        self.unsubmitted()
    }

    /// Entries pushed, published or not, that the kernel has not consumed.
    #[inline]
    pub fn unsubmitted(&self) -> u32 {
        self.tail.wrapping_sub(self.ring.0.view.sq_head())
    }

    /// Entries that can be pushed now.
    #[inline]
    pub fn room(&self) -> u32 {
        self.ring.sq_entries() - self.unsubmitted()
    }

    /// The ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }
}

/// # Safety
/// It is the only queue of these rings, and is used no longer than they live, at the same address.
unsafe fn queue<S: squeue::EntryMarker, C: cqueue::EntryMarker>(rings: &IoUring<S, C>) -> squeue::SubmissionQueue<'static, S> {
    // SAFETY: it is the only one.
    let queue = unsafe { rings.submission_shared() };
    // SAFETY: only the lifetime changes, and the caller keeps to it.
    unsafe { std::mem::transmute::<squeue::SubmissionQueue<'_, S>, squeue::SubmissionQueue<'static, S>>(queue) }
}
