//! The two ends of a ring: where entries go in, and where completions come out.

use std::num::NonZeroU64;

use io_uring::cqueue::EntryMarker;
use io_uring::{cqueue, squeue};

use super::entry::{Command, Entry};
use super::ring::{Ring, Rings};

/// Where entries go in; each ring has one.
#[derive(Debug)]
pub struct Sq {
    ring: Ring,
    /// Entries pushed since [`Sq::take_pushed`] was asked last.
    pushed: u32,
}

/// Why an entry was not pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
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
    /// To be called once for each ring.
    pub(super) fn new(ring: Ring) -> Sq {
        Sq { ring, pushed: 0 }
    }

    #[inline]
    fn check(&self, ring: Option<NonZeroU64>) -> Result<(), Refused> {
        match ring {
            Some(id) if id != self.ring.0.id => Err(Refused::Foreign),
            _ if !self.ring.0.birth.is_here() => Err(Refused::Forked),
            _ => Ok(()),
        }
    }

    /// Puts an entry into the ring. The kernel takes it with the next [`Ring::enter`] that submits, and a thread of the kernel's
    /// ([`Poll::Sq`](super::Poll::Sq)) by itself.
    ///
    /// # Errors
    /// See [`Refused`].
    #[inline]
    pub fn push(&mut self, entry: Entry) -> Result<(), Refused> {
        self.check(entry.ring)?;
        let pushed = match &self.ring.0.rings {
            // SAFETY: no other queue of the ring exists meanwhile: `self` is its only producer, and is borrowed mutably. The buffer of
            // the entry is lent until its completion is taken (the module's promise), and its file stays open with the ring or is a
            // place in the ring's table.
            Rings::Small(rings) => unsafe { rings.submission_shared().push(&entry.sqe) },
            // SAFETY: as above.
            Rings::Big(rings) => unsafe { rings.submission_shared().push(&entry.sqe.into()) },
        };
        self.count(pushed.is_ok(), 1)
    }

    /// Puts entries into the ring of which each is begun when the one before it has succeeded, and cancelled if not
    /// (IOSQE_IO_LINK): all of them, or none. They are shown at once, because a thread of the kernel's ends a chain where it finds no more.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn push_chain<const N: usize>(&mut self, chain: [Entry; N]) -> Result<(), Refused> {
        chain.iter().try_for_each(|entry| self.check(entry.ring))?;
        let link = |(n, entry): (usize, Entry)| if n + 1 < N { entry.sqe.flags(squeue::Flags::IO_LINK) } else { entry.sqe };
        let sqes: Vec<squeue::Entry> = chain.into_iter().enumerate().map(link).collect();
        let pushed = match &self.ring.0.rings {
            // SAFETY: as in `push`.
            Rings::Small(rings) => unsafe { rings.submission_shared().push_multiple(&sqes) },
            Rings::Big(rings) => {
                let big: Vec<squeue::Entry128> = sqes.into_iter().map(Into::into).collect();
                // SAFETY: as in `push`.
                unsafe { rings.submission_shared().push_multiple(&big) }
            }
        };
        self.count(pushed.is_ok(), N as u32)
    }

    /// [`Sq::push`] of a command that is passed through.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn push_command(&mut self, command: Command) -> Result<(), Refused> {
        self.check(command.ring)?;
        let Rings::Big(rings) = &self.ring.0.rings else { return Err(Refused::Small) };
        // SAFETY: as in `push`.
        let pushed = unsafe { rings.submission_shared().push(&command.sqe) };
        self.count(pushed.is_ok(), 1)
    }

    #[inline]
    fn count(&mut self, pushed: bool, entries: u32) -> Result<(), Refused> {
        if !pushed {
            return Err(Refused::Full);
        }
        self.pushed = self.pushed.wrapping_add(entries);
        Ok(())
    }

    /// Entries that were pushed since this was asked last, whether or not a thread of the kernel's has consumed them meanwhile.
    #[inline]
    pub fn take_pushed(&mut self) -> u32 {
        std::mem::take(&mut self.pushed)
    }

    /// Entries that the kernel has not consumed: what [`Enter::submit`](super::Enter::submit) wants.
    #[inline]
    pub fn unsubmitted(&self) -> u32 {
        self.ring.0.view.unsubmitted()
    }

    /// Entries that can be pushed now.
    #[inline]
    pub fn room(&self) -> u32 {
        self.ring.sq_entries() - self.unsubmitted()
    }
}

/// Where completions come out; each ring has one.
#[derive(Debug)]
pub struct Cq {
    ring: Ring,
}

/// A completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cqe {
    /// The entry's.
    pub user_data: u64,
    /// What the operation returns, or a negative errno.
    pub result: i32,
    /// IORING_CQE_F_… bits.
    pub flags: u32,
    /// What big rings have besides; else 0.
    pub big: [u64; 2],
}

impl Cqe {
    /// The same entry will complete again.
    pub fn more(&self) -> bool {
        cqueue::more(self.flags)
    }
}

impl From<cqueue::Entry> for Cqe {
    #[inline]
    fn from(cqe: cqueue::Entry) -> Cqe {
        Cqe { user_data: cqe.user_data(), result: cqe.result(), flags: cqe.flags(), big: [0; 2] }
    }
}

impl From<cqueue::Entry32> for Cqe {
    #[inline]
    fn from(cqe: cqueue::Entry32) -> Cqe {
        Cqe { user_data: cqe.user_data(), result: cqe.result(), flags: cqe.flags(), big: *cqe.big_cqe() }
    }
}

impl Cq {
    /// To be called once for each ring.
    pub(super) fn new(ring: Ring) -> Cq {
        Cq { ring }
    }

    /// Moves completions into `out`, the oldest first, and tells how many. The kernel gets their places back at the end.
    /// In a forked child there are none.
    #[inline]
    pub fn take(&mut self, out: &mut [Cqe]) -> usize {
        if !self.ring.0.birth.is_here() {
            return 0;
        }
        match &self.ring.0.rings {
            // SAFETY: no other queue of the ring exists meanwhile: `self` is its only consumer, and is borrowed mutably.
            Rings::Small(rings) => take(unsafe { rings.completion_shared() }, out),
            // SAFETY: as above.
            Rings::Big(rings) => take(unsafe { rings.completion_shared() }, out),
        }
    }
}

#[inline]
fn take<E: EntryMarker + Into<Cqe>>(mut queue: cqueue::CompletionQueue<'_, E>, out: &mut [Cqe]) -> usize {
    let mut taken = 0;
    // The place first: a completion without one would be lost.
    for (place, cqe) in out.iter_mut().zip(&mut queue) {
        *place = cqe.into();
        taken += 1;
    }
    taken
}
