//! A ring: entering the kernel, looking without it, and what lives as long.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, Parameters, Submitter, cqueue, squeue};
use units::Nanos;

use super::error::EnterError;
use super::file::Kept;
use super::view::{NEED_WAKEUP, View};
use crate::birth::Birth;
use crate::dma::{Owner, lock};

/// Entries are of 64 and 16 bytes, or of 128 and 32 for commands that are passed through.
pub(super) enum Rings {
    Small(IoUring),
    Big(IoUring<squeue::Entry128, cqueue::Entry32>),
}

impl Rings {
    #[inline]
    pub fn submitter(&self) -> Submitter<'_> {
        match self {
            Rings::Small(rings) => rings.submitter(),
            Rings::Big(rings) => rings.submitter(),
        }
    }

    pub fn params(&self) -> &Parameters {
        match self {
            Rings::Small(rings) => rings.params(),
            Rings::Big(rings) => rings.params(),
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        let fd = match self {
            Rings::Small(rings) => rings.as_raw_fd(),
            Rings::Big(rings) => rings.as_raw_fd(),
        };
        // SAFETY: the rings own the descriptor, and the result lives no longer than `self`.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

/// Fields are dropped in this order: the kernel lets go of the ring before what the ring keeps is closed.
pub(super) struct Inner {
    pub rings: Rings,
    pub view: View,
    pub birth: Birth,
    pub id: NonZeroU64,
    sqpoll: bool,
    enters: AtomicU64,
    /// Whose memory the places of the table of buffers are.
    pub buffers: Mutex<BTreeMap<u16, Owner>>,
    kept: Mutex<Vec<OwnedFd>>,
}

/// The shared part of a ring. Cheap to clone; the ring closes, and its memory is unmapped, when the last clone and its
/// [`Sq`](super::Sq) and [`Cq`](super::Cq) are gone. What the kernel is at then is cancelled or ends by itself; the
/// buffers of such requests are to stay lent.
#[derive(Clone)]
pub struct Ring(pub(super) Arc<Inner>);

/// What can be seen without a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Nothing that shows.
    None,
    /// There are completions to take.
    Entries,
    /// Completions become entries with the next enter that runs tasks: they wait in the task (IORING_SQ_TASKRUN), or for
    /// room (IORING_SQ_CQ_OVERFLOW).
    TaskWork,
}

/// What an enter is to do. Start from `Enter::default()`, which does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enter {
    /// Published entries to submit. If fewer are there, those are submitted and nothing is waited for.
    pub submit: u32,
    /// Wait until so many completions can be taken, those that can be already included.
    pub wait_for: u32,
    /// Wait no longer than so long, from now on (`None` or [`Nanos::MAX`]: no limit). IOPOLL rings take no notice of it.
    pub timeout: Option<Nanos>,
    /// Wait so long for all of them, and after that for the first only: microseconds, rounded up (6.12).
    pub min_wait: Option<Nanos>,
    /// Bring what waits in the task, or for room, even if nothing is waited for; on an IOPOLL ring, look once.
    pub run_tasks: bool,
}

/// What an enter has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entered {
    /// Entries that were submitted. An entry that the kernel finds wrong is one of them: it completes with an error.
    pub submitted: u32,
    /// How the wait ended.
    pub ended: Ended,
}

/// A time-out that nobody waits for: 30 years.
const ENDLESS: Nanos = Nanos::from_secs(1_000_000_000);

/// How a wait ended. The kernel says it only if nothing was submitted and there is nothing to take: else it is
/// [`Ended::Done`], and the ring shows how many completions there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With what was waited for, or nothing was.
    Done,
    /// By the time-out (ETIME).
    TimedOut,
    /// By a signal (EINTR).
    Interrupted,
}

impl Ring {
    /// The shared part of `rings`.
    pub(super) fn of(rings: Rings) -> io::Result<Ring> {
        static RINGS: AtomicU64 = AtomicU64::new(1);
        let view = View::new(rings.fd(), rings.params())?;
        let (sqpoll, id) = (rings.params().is_setup_sqpoll(), RINGS.fetch_add(1, Ordering::Relaxed));
        Ok(Ring(Arc::new(Inner {
            rings,
            view,
            birth: Birth::here(),
            id: NonZeroU64::new(id).ok_or(io::ErrorKind::OutOfMemory)?,
            sqpoll,
            enters: AtomicU64::new(0),
            buffers: Mutex::default(),
            kept: Mutex::default(),
        })))
    }

    /// Whether there is something to take: loads only.
    #[inline]
    pub fn hint(&self) -> Hint {
        let view = &self.0.view;
        if view.has_entries() {
            Hint::Entries
        } else if view.has_task_work() {
            Hint::TaskWork
        } else {
            Hint::None
        }
    }

    /// How many completions can be taken: loads only.
    #[inline]
    pub fn ready(&self) -> u32 {
        self.0.view.entries()
    }

    /// Enters the kernel once (io_uring_enter(2)): submits, then waits. An SQPOLL ring whose kernel thread is awake
    /// submits without.
    ///
    /// # Errors
    /// See [`EnterError`]. Entries that were not submitted stay published.
    #[inline]
    pub fn enter(&self, enter: Enter) -> Result<Entered, EnterError> {
        let inner = &*self.0;
        if !inner.birth.is_here() {
            return Err(EnterError::Forked);
        }
        let mut flags = EnterFlags::empty();
        flags.set(EnterFlags::GETEVENTS, enter.wait_for > 0 || enter.run_tasks);
        if inner.sqpoll {
            // The tail was published before the flag is read, as the kernel's thread sets it before it reads the tail.
            fence(Ordering::SeqCst);
            if inner.view.flags() & NEED_WAKEUP != 0 {
                flags |= EnterFlags::SQ_WAKEUP;
            } else if flags.is_empty() {
                return Ok(Entered { submitted: enter.submit, ended: Ended::Done });
            }
        }
        inner.enters.fetch_add(1, Ordering::Relaxed);
        match inner.enter(enter, flags) {
            Ok(submitted) => Ok(Entered { submitted: submitted as u32, ended: Ended::Done }),
            Err(error) => without_entries(error),
        }
    }

    /// Whether this process made the ring: after `fork` the child has it too, and must not use it.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.birth().is_here()
    }

    /// Which process made it.
    pub fn birth(&self) -> Birth {
        self.0.birth
    }

    /// How often the kernel was entered.
    pub fn enters(&self) -> u64 {
        self.0.enters.load(Ordering::Relaxed)
    }

    /// Entries of the submission ring.
    pub fn sq_entries(&self) -> u32 {
        self.0.rings.params().sq_entries()
    }

    /// Entries of the completion ring.
    pub fn cq_entries(&self) -> u32 {
        self.0.rings.params().cq_entries()
    }

    /// Takes over a descriptor, for entries that name it until the ring closes. For another ring to send to: a copy of
    /// its descriptor (`ring.as_fd().try_clone_to_owned()`).
    pub fn keep(&self, fd: OwnedFd) -> Kept {
        let kept = Kept { fd: fd.as_raw_fd(), ring: self.0.id };
        lock(&self.0.kept).push(fd);
        kept
    }
}

impl Inner {
    #[inline]
    fn enter(&self, Enter { submit, wait_for, timeout, min_wait, .. }: Enter, flags: EnterFlags) -> io::Result<usize> {
        let submitter = self.rings.submitter();
        let timeout = timeout.filter(|timeout| *timeout != Nanos::MAX);
        if timeout.is_none() && min_wait.is_none() {
            // SAFETY: there is no argument. What the entries name was made sure of when they were pushed.
            return unsafe { submitter.enter::<libc::sigset_t>(submit, wait_for, flags.bits(), None) };
        }
        // Without a time-out the kernel would end the wait after the least time, whatever has come (io_cqring_min_timer_wakeup).
        let timeout = timeout.or(min_wait.map(|_| ENDLESS));
        let time = timeout.map(|timeout| Timespec::from(std::time::Duration::from_nanos(timeout.0)));
        let usec = min_wait.map_or(0, |wait| u32::try_from(wait.0.div_ceil(1_000)).unwrap_or(u32::MAX));
        let args = SubmitArgs::new().min_wait_usec(usec);
        let flags = (flags | EnterFlags::EXT_ARG).bits();
        match &time {
            // SAFETY: the argument and the time live until the call returns. As for the entries: see above.
            Some(time) => unsafe { submitter.enter(submit, wait_for, flags, Some(&args.timespec(time))) },
            // SAFETY: as above.
            None => unsafe { submitter.enter(submit, wait_for, flags, Some(&args)) },
        }
    }
}

/// What an enter that submitted nothing says.
#[cold]
fn without_entries(error: io::Error) -> Result<Entered, EnterError> {
    let nothing = |ended| Ok(Entered { submitted: 0, ended });
    match error.raw_os_error() {
        Some(libc::ETIME) => nothing(Ended::TimedOut),
        Some(libc::EINTR) => nothing(Ended::Interrupted),
        Some(libc::EAGAIN) => Err(EnterError::Again),
        Some(libc::EBUSY) => Err(EnterError::Busy),
        Some(libc::EBADR) => Err(EnterError::Lost),
        Some(libc::EEXIST) => Err(EnterError::WrongThread),
        _ => Err(EnterError::System(error)),
    }
}

/// Readable while completions can be taken or wait in the task: to copy for [`Ring::keep`], and for epoll, unless the ring has
/// an owner: see [`Ring::notify`].
impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.rings.fd()
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("id", &self.0.id).field("fd", &self.as_fd().as_raw_fd()).finish_non_exhaustive()
    }
}
