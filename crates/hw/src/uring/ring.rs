//! A ring: how it is made, entering the kernel, looking without it, what is registered with it, and what lives as long.

use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{Builder, EnterFlags, IoUring, Parameters, Submitter, cqueue, squeue};
use rustix::io_uring::{IoringSetupFlags, io_uring_params};
use rustix::process::{Resource, getrlimit};
use units::Nanos;

use super::entry::{FileSlot, Fixed, Kept};
use super::queues::{Cq, Sq};
use super::view::View;
use crate::EventFd;
use crate::birth::Birth;
use crate::dma::{Lent, lock};

/// IORING_SETUP_HYBRID_IOPOLL (6.13).
const HYBRID_IOPOLL: u32 = 1 << 17;

/// Who polls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Poll {
    /// Nobody: the device interrupts.
    #[default]
    No,
    /// The thread that enters and waits (IORING_SETUP_IOPOLL): reads and writes of O_DIRECT files on devices with poll queues only.
    Io,
    /// The same after a sleep of half the usual time (IORING_SETUP_HYBRID_IOPOLL, 6.13).
    HybridIo,
    /// A thread of the kernel looks for entries (IORING_SETUP_SQPOLL).
    Sq {
        /// Milliseconds without any until it sleeps.
        idle_ms: u32,
    },
}

/// What a ring is to be. Start from `Options::default()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Entries of the submission ring: rounded up to a power of two, at most 32768.
    pub entries: u32,
    /// Entries of the completion ring, likewise; 0: twice as many.
    pub cq_entries: u32,
    /// The thread that makes the ring is the only one that enters it, and completions wait for it to do so
    /// (IORING_SETUP_SINGLE_ISSUER, IORING_SETUP_DEFER_TASKRUN: 6.1). Else any may, and completions wait until the thread that
    /// submitted enters the kernel for whatever reason (IORING_SETUP_COOP_TASKRUN). No matter with [`Poll::Sq`].
    pub owner: bool,
    /// Who polls.
    pub poll: Poll,
    /// Entries of 128 bytes and completions of 32: for commands that are passed through.
    pub big: bool,
    /// Places for registered files; 0: no table.
    pub files: u32,
    /// Places for registered buffers, at most 16384; 0: no table.
    pub buffers: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { entries: 128, cq_entries: 0, owner: false, poll: Poll::No, big: false, files: 0, buffers: 0 }
    }
}

/// Why a ring was not made: the kernel's error is EINVAL for what it does not know or is beyond its limits, ENOMEM for RLIMIT_MEMLOCK
/// before 5.12 and from 6.14 on, EMFILE beyond RLIMIT_NOFILE.
#[derive(Debug, thiserror::Error)]
#[error("the kernel refuses {what}: {source}{}", memlock(source))]
pub struct SetupError {
    what: String,
    /// What the kernel says.
    #[source]
    pub source: io::Error,
}

/// Of ENOMEM: what may be too low.
pub(super) fn memlock(error: &io::Error) -> String {
    if error.raw_os_error() != Some(libc::ENOMEM) {
        return String::new();
    }
    let limit = getrlimit(Resource::Memlock).current.map_or_else(|| "not limited".to_owned(), |limit| format!("{limit} bytes"));
    format!("; RLIMIT_MEMLOCK is {limit}, and rings may count against it: raise it (`ulimit -l`)")
}

/// Why io_uring_enter(2) did nothing, or only a part, or why a file or a buffer was not registered.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// EAGAIN, EBUSY: the kernel has no memory for a request now, or completions that did not fit wait for room. Take completions and try
    /// again.
    #[error("the kernel has no room for another request now; take completions and try again")]
    Busy,
    /// EBADR: the kernel had no memory for completions that did not fit, and they are lost.
    #[error("the kernel was out of memory and has lost completions of the io_uring; close the device")]
    Lost,
    /// EEXIST: the ring belongs to another thread.
    #[error("this io_uring belongs to the thread that made it, and another one uses it")]
    WrongThread,
    /// The ring belongs to the process that has forked.
    #[error("this io_uring was made before a fork and belongs to the parent process; make another in the child")]
    Forked,
    /// ENOMEM: more than the process may have pinned. The buffer can be used unregistered.
    #[error(
        "a buffer of {wanted} bytes cannot be registered with an io_uring: RLIMIT_MEMLOCK is {limit} bytes, and some are used; raise it (`ulimit -l`)"
    )]
    Memlock {
        /// Bytes that were to be pinned.
        wanted: u64,
        /// RLIMIT_MEMLOCK of the process, in bytes.
        limit: u64,
    },
    /// The buffer does not lie in one chunk.
    #[error("a buffer that crosses chunks of 4 MiB cannot be registered with an io_uring")]
    Crosses,
    /// Anything else.
    #[error("io_uring: {0}")]
    System(#[source] io::Error),
}

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
    /// Wait until this many completions can be taken, those that can be already included.
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
    /// Makes a ring, with its only producer and consumer.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(options: &Options) -> Result<(Ring, Sq, Cq), SetupError> {
        static RINGS: AtomicU64 = AtomicU64::new(1);
        let refused = |what: String| move |source| SetupError { what, source };
        let rings = options.rings().map_err(refused(format!("an io_uring of {} entries ({options})", options.entries)))?;
        let Options { files, buffers, .. } = *options;
        if files > 0 {
            rings.submitter().register_files_sparse(files).map_err(refused(format!("an io_uring a table of {files} files")))?;
        }
        if buffers > 0 {
            rings.submitter().register_buffers_sparse(buffers).map_err(refused(format!("an io_uring a table of {buffers} buffers")))?;
        }
        let view = match rings.params().is_feature_single_mmap() {
            true => View::new(rings.fd(), rings.params()),
            false => Err(io::ErrorKind::Unsupported.into()),
        };
        let view = view.map_err(refused("to map an io_uring".into()))?;
        let sqpoll = rings.params().is_setup_sqpoll();
        let ring = Ring(Arc::new(Inner {
            rings,
            view,
            birth: Birth::here(),
            id: NonZeroU64::MIN.saturating_add(RINGS.fetch_add(1, Ordering::Relaxed)),
            sqpoll,
            enters: AtomicU64::new(0),
            kept: Mutex::default(),
        }));
        Ok((ring.clone(), Sq::new(ring.clone()), Cq::new(ring)))
    }

    /// Whether there is something to take: loads only.
    #[inline]
    pub fn hint(&self) -> Hint {
        let view = &self.0.view;
        if view.entries() > 0 {
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
    /// See [`RingError`]. Entries that were not submitted stay published.
    #[inline]
    pub fn enter(&self, enter: Enter) -> Result<Entered, RingError> {
        let inner = &*self.0;
        if !inner.birth.is_here() {
            return Err(RingError::Forked);
        }
        let mut flags = EnterFlags::empty();
        flags.set(EnterFlags::GETEVENTS, enter.wait_for > 0 || enter.run_tasks);
        if inner.sqpoll {
            // The tail was published before the flag is read, as the kernel's thread sets it before it reads the tail.
            fence(Ordering::SeqCst);
            if inner.view.needs_wakeup() {
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

/// Files and buffers that the kernel knows before they are used. On a ring of kind owner only its thread registers. A place may be filled
/// anew at any time: requests that are under way keep what they have found there.
impl Ring {
    /// Puts a file into a place of the table, which keeps it open.
    ///
    /// # Errors
    /// See [`RingError`].
    pub fn register_file(&self, slot: FileSlot, file: impl AsFd) -> Result<(), RingError> {
        self.set_file(slot, file.as_fd().as_raw_fd())
    }

    /// Empties a place of the table.
    ///
    /// # Errors
    /// See [`RingError`].
    pub fn unregister_file(&self, slot: FileSlot) -> Result<(), RingError> {
        self.set_file(slot, -1)
    }

    fn set_file(&self, FileSlot(slot): FileSlot, fd: i32) -> Result<(), RingError> {
        self.here()?;
        self.0.rings.submitter().register_files_update(slot, &[fd]).map(drop).map_err(|error| failed(error, 0))
    }

    /// Puts the chunk of memory that `lent` lies in into a place of the table: 4 MiB, or less at the end of a region. All of
    /// it is touched and pinned, and counts against RLIMIT_MEMLOCK.
    ///
    /// The kernel holds the pages, not the mapping: a pool or region that goes takes no page away from a request. They are given back
    /// when the place is filled anew or the ring closes.
    ///
    /// # Errors
    /// See [`RingError`]; after [`RingError::Memlock`] the buffer can be used unregistered.
    pub fn register_buffer(&self, slot: u16, lent: &Lent) -> Result<Fixed, RingError> {
        let (piece, at, bytes) = lent.chunk().ok_or(RingError::Crosses)?;
        self.here()?;
        let buffer = libc::iovec { iov_base: at.as_ptr().cast(), iov_len: bytes };
        // SAFETY: the buffer is mapped now, which is all that is needed: the kernel pins its pages, and compares the
        // addresses of later requests with the range without following them.
        let registered = unsafe { self.0.rings.submitter().register_buffers_update(slot.into(), &[buffer], None) };
        registered.map_err(|error| failed(error, bytes as u64)).map(|()| Fixed { slot, piece })
    }

    /// From now on `event` is signalled when a completion is posted, or begins to wait in the task; with `None`, nothing is.
    /// Of a ring with an owner this is all that wakes an epoll instance: its own descriptor is found readable when it is
    /// looked at, and wakes nobody who sleeps already (seen with 6.18).
    ///
    /// # Errors
    /// See [`RingError`]; EBUSY if there is one, ENXIO if there was none.
    pub fn notify(&self, event: Option<&EventFd>) -> Result<(), RingError> {
        self.here()?;
        let submitter = self.0.rings.submitter();
        match event {
            Some(event) => submitter.register_eventfd(event.as_fd().as_raw_fd()),
            None => submitter.unregister_eventfd(),
        }
        .map_err(|error| failed(error, 0))
    }

    fn here(&self) -> Result<(), RingError> {
        if self.0.birth.is_here() { Ok(()) } else { Err(RingError::Forked) }
    }
}

fn failed(error: io::Error, wanted: u64) -> RingError {
    match (error.raw_os_error(), getrlimit(Resource::Memlock).current) {
        (Some(libc::EEXIST), _) => RingError::WrongThread,
        (Some(libc::ENOMEM), Some(limit)) if wanted > 0 => RingError::Memlock { wanted, limit },
        _ => RingError::System(error),
    }
}

impl Options {
    fn rings(&self) -> io::Result<Rings> {
        match (self.poll, self.big) {
            (Poll::HybridIo, true) => Err(io::Error::new(io::ErrorKind::Unsupported, "big entries and hybrid polling do not go together")),
            (Poll::HybridIo, false) => self.hybrid().map(Rings::Small),
            (_, false) => self.configured(IoUring::builder()).build(self.entries).map(Rings::Small),
            (_, true) => {
                let builder = IoUring::<squeue::Entry128, cqueue::Entry32>::builder();
                self.configured(builder).build(self.entries).map(Rings::Big)
            }
        }
    }

    fn configured<S: squeue::EntryMarker, C: cqueue::EntryMarker>(&self, mut builder: Builder<S, C>) -> Builder<S, C> {
        builder.setup_submit_all();
        if self.cq_entries > 0 {
            builder.setup_cqsize(self.cq_entries);
        }
        match self.poll {
            // Its thread runs all that waits: the kernel refuses other kinds.
            Poll::Sq { idle_ms } => return builder.setup_sqpoll(idle_ms).clone(),
            Poll::Io | Poll::HybridIo => _ = builder.setup_iopoll(),
            Poll::No => {}
        }
        match self.owner {
            true => builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag(),
            false => builder.setup_coop_taskrun().setup_taskrun_flag(),
        };
        builder
    }

    /// With hybrid polling, which the crate's builder does not have.
    fn hybrid(&self) -> io::Result<IoUring> {
        let mut flags = IoringSetupFlags::SUBMIT_ALL | IoringSetupFlags::IOPOLL | IoringSetupFlags::TASKRUN_FLAG;
        flags |= match self.owner {
            true => IoringSetupFlags::SINGLE_ISSUER | IoringSetupFlags::DEFER_TASKRUN,
            false => IoringSetupFlags::COOP_TASKRUN,
        };
        flags.set(IoringSetupFlags::CQSIZE, self.cq_entries > 0);
        let mut params = io_uring_params::default();
        params.flags = flags | IoringSetupFlags::from_bits_retain(HYBRID_IOPOLL);
        params.cq_entries = self.cq_entries;
        // SAFETY: `params` is a place for the question and the answer.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, self.entries, &raw mut params) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut theirs = MaybeUninit::<Parameters>::uninit();
        const { assert!(size_of::<Parameters>() == size_of::<io_uring_params>()) };
        // SAFETY: `Parameters` is documented as a transparent wrapper over the system's structure, which both describe.
        let params = unsafe {
            theirs.as_mut_ptr().cast::<io_uring_params>().write_unaligned(params);
            theirs.assume_init()
        };
        // SAFETY: the descriptor is new, owned, and the kernel has filled in the parameters for it.
        unsafe { IoUring::from_fd(fd as i32, params) }
    }
}

impl std::fmt::Display for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cq = if self.cq_entries > 0 { self.cq_entries } else { self.entries.saturating_mul(2) };
        write!(f, "{cq} completions, ")?;
        f.write_str(match (self.poll, self.owner) {
            (Poll::Sq { .. }, _) => "a kernel thread that submits",
            (_, true) => "one owner, who runs what is deferred",
            (_, false) => "shared",
        })?;
        f.write_str(match self.poll {
            Poll::No | Poll::Sq { .. } => "",
            Poll::Io => ", polled",
            Poll::HybridIo => ", polled after a sleep",
        })?;
        f.write_str(if self.big { ", big entries" } else { "" })
    }
}

/// What an enter that submitted nothing says.
#[cold]
fn without_entries(error: io::Error) -> Result<Entered, RingError> {
    let nothing = |ended| Ok(Entered { submitted: 0, ended });
    match error.raw_os_error() {
        Some(libc::ETIME) => nothing(Ended::TimedOut),
        Some(libc::EINTR) => nothing(Ended::Interrupted),
        Some(libc::EAGAIN | libc::EBUSY) => Err(RingError::Busy),
        Some(libc::EBADR) => Err(RingError::Lost),
        Some(libc::EEXIST) => Err(RingError::WrongThread),
        _ => Err(RingError::System(error)),
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
