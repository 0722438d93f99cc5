//! io_uring: the kernel's submission and completion rings, safe to call.
//!
//! **Memory.** A request names bytes of a [`Lent`] buffer, which stays mapped until it is taken back: once the request's completion has
//! been taken, or if the entry was never pushed. This module cannot check it, as nothing checks a device without an IOMMU.
//!
//! **Files.** An entry names a file by its slot in the ring's table, which keeps it open. So no entry means a number that
//! was closed and is another file by now.
//!
//! **Threads.** [`Sq`] and [`Cq`] exist once for each ring and need `&mut`; [`Ring`] is shared. The words of the rings are
//! atomics, so that any thread may look at them without a lock, which the queues of the crate `io-uring` do not allow: they
//! read the word that their own side writes without an atomic, and write it back when they are dropped.

mod entry;

use std::ffi::c_void;
use std::fs;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::io::Errno;
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringEnterFlags, IoringFeatureFlags, IoringRegisterOp, IoringRsrcFlags, IoringSetupFlags,
    IoringSqFlags, IoringSqeFlags, io_uring_enter, io_uring_enter_arg, io_uring_files_update, io_uring_getevents_arg, io_uring_params,
    io_uring_ptr, io_uring_register, io_uring_rsrc_register, io_uring_rsrc_update2, io_uring_setup,
};
use rustix::mm::MapFlags;
use rustix::process::{Resource, getrlimit};
use units::Nanos;

use crate::clock::timespec;
use crate::mapping::Mapping;
use crate::{Birth, EventFd, Lent};
use entry::Empty;
pub(crate) use entry::NvmeCommand;
pub use entry::{Command, Entry, FileSlot, Fixed, Span};

/// IORING_SETUP_HYBRID_IOPOLL (6.13) and IORING_FEAT_MIN_TIMEOUT (6.12), which rustix lacks.
const HYBRID_IOPOLL: IoringSetupFlags = IoringSetupFlags::from_bits_retain(1 << 17);
const MIN_TIMEOUT: IoringFeatureFlags = IoringFeatureFlags::from_bits_retain(1 << 15);
/// IORING_CQE_F_MORE.
const CQE_MORE: u32 = 1 << 1;

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
    /// Slots for registered files; 0: no table.
    pub files: u32,
    /// Slots for registered buffers, at most 16384; 0: no table.
    pub buffers: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { entries: 128, cq_entries: 0, owner: false, poll: Poll::No, big: false, files: 0, buffers: 0 }
    }
}

/// Of ENOMEM: what may be too low.
fn memlock(error: &io::Error) -> String {
    if error.raw_os_error() != Some(libc::ENOMEM) {
        return String::new();
    }
    let limit = getrlimit(Resource::Memlock).current.map_or_else(|| "not limited".to_owned(), |limit| format!("{limit} bytes"));
    format!("; RLIMIT_MEMLOCK is {limit}, and rings may count against it: raise it (`ulimit -l`)")
}

/// Why a ring was not made, why io_uring_enter(2) did nothing, or only a part, or why a file or a buffer was not registered.
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
    /// Anything else. At setup: EINVAL for what the kernel does not know or is beyond its limits, ENOMEM for RLIMIT_MEMLOCK before 5.12 and
    /// from 6.14 on, EMFILE beyond RLIMIT_NOFILE.
    #[error("the kernel refuses {what}: {source}{}", memlock(source))]
    System {
        /// What it refuses.
        what: String,
        /// Its error.
        #[source]
        source: io::Error,
    },
}

/// Of `what`: an error that every call on a ring may end with.
#[cold]
fn refused(what: impl Into<String>, errno: Errno) -> RingError {
    match errno {
        Errno::EXIST => RingError::WrongThread,
        _ => RingError::System { what: what.into(), source: errno.into() },
    }
}

/// A word of the mapping of an [`Inner`], which alone has these.
#[derive(Debug)]
struct Word(NonNull<AtomicU32>);

impl Deref for Word {
    type Target = AtomicU32;

    #[inline]
    fn deref(&self) -> &AtomicU32 {
        // SAFETY: it is aligned as the kernel lays it out, in the mapping that lives as long as the `Inner`, and all who reach it do so
        // atomically.
        unsafe { self.0.as_ref() }
    }
}

/// Fields are dropped in this order: nothing is mapped any more when the ring closes.
#[derive(Debug)]
struct Inner {
    sq_head: Word,
    sq_tail: Word,
    sq_flags: Word,
    cq_head: Word,
    cq_tail: Word,
    cqes: NonNull<u8>,
    /// Heads, tails, flags and completions.
    _rings: Mapping,
    /// Submission entries.
    sqes: Mapping,
    fd: OwnedFd,
    /// Numbers of entries: powers of two.
    sq_entries: u32,
    cq_entries: u32,
    big: bool,
    sqpoll: bool,
    birth: Birth,
    enters: AtomicU64,
}

// SAFETY: words are atomics; submission entries are written by the only `Sq`, and completions read by the only `Cq`.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// The shared part of a ring. Cheap to clone; the ring closes, and its memory is unmapped, when the last clone and its
/// [`Sq`] and [`Cq`] are gone. What the kernel is at then is cancelled or ends by itself; the buffers of such requests are
/// to stay lent.
#[derive(Clone, Debug)]
pub struct Ring(Arc<Inner>);

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

/// A time-out that nobody waits for: 30 years.
const ENDLESS: Nanos = Nanos::from_secs(1_000_000_000);

impl Ring {
    /// Makes a ring, with its only producer and consumer.
    pub fn new(options: &Options) -> Result<(Ring, Sq, Cq), RingError> {
        let Options { entries, cq_entries, owner, poll, big, files, buffers } = *options;
        let mut params = io_uring_params::default();
        params.flags = IoringSetupFlags::SUBMIT_ALL;
        params.flags.set(IoringSetupFlags::CQSIZE, cq_entries > 0);
        params.flags.set(IoringSetupFlags::SQE128 | IoringSetupFlags::CQE32, big);
        params.cq_entries = cq_entries;
        params.flags |= match (poll, owner) {
            // Its thread runs all that waits: the kernel refuses other kinds.
            (Poll::Sq { .. }, _) => IoringSetupFlags::SQPOLL,
            (_, true) => IoringSetupFlags::SINGLE_ISSUER | IoringSetupFlags::DEFER_TASKRUN | IoringSetupFlags::TASKRUN_FLAG,
            (_, false) => IoringSetupFlags::COOP_TASKRUN | IoringSetupFlags::TASKRUN_FLAG,
        };
        match poll {
            Poll::Sq { idle_ms } => params.sq_thread_idle = idle_ms,
            Poll::Io => params.flags |= IoringSetupFlags::IOPOLL,
            Poll::HybridIo => params.flags |= IoringSetupFlags::IOPOLL | HYBRID_IOPOLL,
            Poll::No => {}
        }
        // SAFETY: no flag of those above has the kernel look at a descriptor.
        let fd = unsafe { io_uring_setup(entries, &mut params) }.map_err(|errno| refused(format!("an io_uring of {options:?}"), errno))?;
        for (count, what) in [(files, "files"), (buffers, "buffers")].into_iter().filter(|(count, _)| *count > 0) {
            let mut table = io_uring_rsrc_register::default();
            (table.nr, table.flags) = (count, IoringRsrcFlags::REGISTER_SPARSE);
            let call = if what == "files" { IoringRegisterOp::RegisterFiles2 } else { IoringRegisterOp::RegisterBuffers2 };
            // SAFETY: the kernel reads `table`, which is empty of files and memory.
            let made = unsafe { io_uring_register(&fd, call, (&raw const table).cast(), size_of_val(&table) as u32) };
            made.map_err(|errno| refused(format!("an io_uring a table of {count} {what}"), errno))?;
        }
        let inner = Inner::map(fd, &params).map_err(|source| RingError::System { what: "to map an io_uring".into(), source })?;
        let (tail, head) = (inner.sq_tail.load(Ordering::Relaxed), inner.cq_head.load(Ordering::Relaxed));
        let ring = Ring(Arc::new(inner));
        Ok((ring.clone(), Sq { ring: ring.clone(), tail }, Cq { ring, head }))
    }

    /// Whether there is something to take: loads only.
    #[inline]
    pub fn hint(&self) -> Hint {
        if self.ready() > 0 {
            return Hint::Entries;
        }
        let flags = IoringSqFlags::from_bits_retain(self.0.sq_flags.load(Ordering::Relaxed));
        if flags.intersects(IoringSqFlags::CQ_OVERFLOW | IoringSqFlags::TASKRUN) { Hint::TaskWork } else { Hint::None }
    }

    /// How many completions can be taken: loads only.
    #[inline]
    pub fn ready(&self) -> u32 {
        self.0.cq_tail.load(Ordering::Acquire).wrapping_sub(self.0.cq_head.load(Ordering::Relaxed))
    }

    /// Enters the kernel once (io_uring_enter(2)): submits, then waits. An SQPOLL ring whose kernel thread is awake
    /// submits without. How many entries were submitted: one that the kernel finds wrong is among them, and completes with an
    /// error; the others stay published. A wait ends by its time-out or by a signal as well: [`Ring::ready`] tells what came.
    #[inline]
    pub fn enter(&self, enter: Enter) -> Result<u32, RingError> {
        let inner = &*self.0;
        if !inner.birth.is_here() {
            return Err(RingError::Forked);
        }
        let Enter { submit, wait_for, timeout, min_wait, run_tasks } = enter;
        let mut flags = IoringEnterFlags::empty();
        flags.set(IoringEnterFlags::GETEVENTS, wait_for > 0 || run_tasks);
        if inner.sqpoll {
            // The tail was published before the flag is read, as the kernel's thread sets it before it reads the tail.
            fence(Ordering::SeqCst);
            if IoringSqFlags::from_bits_retain(inner.sq_flags.load(Ordering::Relaxed)).contains(IoringSqFlags::NEED_WAKEUP) {
                flags |= IoringEnterFlags::SQ_WAKEUP;
            } else if flags.is_empty() {
                return Ok(submit);
            }
        }
        // One thread at a time enters: plain addition.
        inner.enters.store(inner.enters.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let timeout = timeout.filter(|timeout| *timeout != Nanos::MAX);
        let entered = if timeout.is_none() && min_wait.is_none() {
            // SAFETY: there is no argument. What the entries name was made sure of when they were pushed.
            unsafe { io_uring_enter(&inner.fd, submit, wait_for, flags) }
        } else {
            // Without a time-out the kernel would end the wait after the least time, whatever has come (io_cqring_min_timer_wakeup).
            let mut time = timespec(timeout.unwrap_or(ENDLESS));
            let min_wait_usec = min_wait.map_or(0, |wait| u32::try_from(wait.0.div_ceil(1_000)).unwrap_or(u32::MAX));
            let ts = io_uring_ptr::new((&raw mut time).cast());
            let arg = io_uring_getevents_arg { min_wait_usec, ts, ..Default::default() };
            // SAFETY: the argument and the time live until the call returns. As for the entries: see above.
            unsafe { io_uring_enter_arg(&inner.fd, submit, wait_for, flags | IoringEnterFlags::EXT_ARG, Some(&arg)) }
        };
        entered.or_else(without_entries)
    }

    /// Which process made it.
    pub fn birth(&self) -> Birth {
        self.0.birth
    }

    /// How often the kernel was entered.
    pub fn enters(&self) -> u64 {
        self.0.enters.load(Ordering::Relaxed)
    }
}

/// Files and buffers that the kernel knows before they are used. On a ring of kind owner only its thread registers. A slot may be filled
/// anew at any time: requests that are under way keep what they have found there.
impl Ring {
    /// Puts a file into a slot of the table, which keeps it open.
    pub fn register_file(&self, slot: FileSlot, file: impl AsFd) -> Result<(), RingError> {
        self.set_file(slot, file.as_fd().as_raw_fd())
    }

    /// Empties a slot of the table.
    pub fn unregister_file(&self, slot: FileSlot) -> Result<(), RingError> {
        self.set_file(slot, -1)
    }

    fn set_file(&self, FileSlot(slot): FileSlot, mut fd: i32) -> Result<(), RingError> {
        let mut update = io_uring_files_update::default();
        (update.offset, update.fds) = (slot, io_uring_ptr::new((&raw mut fd).cast()));
        // SAFETY: the kernel reads `update` and the one descriptor that it names.
        unsafe { self.register("a file", IoringRegisterOp::RegisterFilesUpdate, (&raw const update).cast(), 1) }
    }

    /// Puts the chunk of memory that `lent` lies in into a slot of the table: 4 MiB, or less at the end of a region. All of
    /// it is touched and pinned, and counts against RLIMIT_MEMLOCK. After [`RingError::Memlock`] the buffer can be used unregistered.
    ///
    /// The kernel holds the pages, not the mapping: a pool or region that goes takes no page away from a request. They are given back
    /// when the slot is filled anew or the ring closes.
    pub fn register_buffer(&self, slot: u16, lent: &Lent) -> Result<Fixed, RingError> {
        let (piece, at, bytes) = lent.chunk().ok_or(RingError::Crosses)?;
        let mut buffer = libc::iovec { iov_base: at.as_ptr().cast(), iov_len: bytes };
        let mut update = io_uring_rsrc_update2::default();
        (update.offset, update.nr, update.data) = (slot.into(), 1, io_uring_ptr::new((&raw mut buffer).cast()));
        let (arg, size) = ((&raw const update).cast(), size_of_val(&update) as u32);
        // SAFETY: the kernel reads `update` and what it names. The buffer is mapped now, which is all that is needed: its pages are pinned,
        // and the addresses of later requests are compared with the range without following them.
        match unsafe { self.register("a buffer", IoringRegisterOp::RegisterBuffersUpdate, arg, size) } {
            Ok(()) => Ok(Fixed { slot, piece }),
            Err(error) => match (&error, getrlimit(Resource::Memlock).current) {
                (RingError::System { source, .. }, Some(limit)) if source.raw_os_error() == Some(libc::ENOMEM) => {
                    Err(RingError::Memlock { wanted: bytes as u64, limit })
                }
                _ => Err(error),
            },
        }
    }

    /// From now on `event` is signalled when a completion is posted, or begins to wait in the task. EBUSY: there is one already. Of a ring
    /// with an owner this is all that wakes an epoll instance: its own descriptor is found readable when it is looked at, and wakes nobody
    /// who sleeps already (seen with 6.18).
    pub fn notify(&self, event: &EventFd) -> Result<(), RingError> {
        let fd = event.as_fd().as_raw_fd();
        // SAFETY: the kernel reads one descriptor.
        unsafe { self.register("an eventfd", IoringRegisterOp::RegisterEventfd, (&raw const fd).cast(), 1) }
    }

    /// io_uring_register(2).
    ///
    /// # Safety
    /// `arg` is what `call` wants.
    unsafe fn register(&self, what: &str, call: IoringRegisterOp, arg: *const c_void, count: u32) -> Result<(), RingError> {
        if !self.0.birth.is_here() {
            return Err(RingError::Forked);
        }
        // SAFETY: the caller's promise.
        unsafe { io_uring_register(&self.0.fd, call, arg, count) }.map(drop).map_err(|errno| refused(what, errno))
    }
}

/// What an enter that submitted nothing says.
#[cold]
fn without_entries(errno: Errno) -> Result<u32, RingError> {
    match errno {
        Errno::TIME | Errno::INTR => Ok(0),
        Errno::AGAIN | Errno::BUSY => Err(RingError::Busy),
        Errno::BADR => Err(RingError::Lost),
        _ => Err(refused("io_uring_enter", errno)),
    }
}

impl Inner {
    /// Maps the ring `fd`, which the kernel has described by `params`.
    fn map(fd: OwnedFd, params: &io_uring_params) -> io::Result<Inner> {
        let io_uring_params { flags, features, sq_entries, cq_entries, sq_off, cq_off, .. } = *params;
        if !features.contains(IoringFeatureFlags::SINGLE_MMAP) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let big = flags.contains(IoringSetupFlags::SQE128);
        let (sqe_bytes, cqe_bytes) =
            if big { (size_of::<Command>(), 2 * size_of::<Cqe>()) } else { (size_of::<Entry>(), size_of::<Cqe>()) };
        let ends = [sq_off.array as usize + 4 * sq_entries as usize, cq_off.cqes as usize + cqe_bytes * cq_entries as usize];
        let map = |offset, bytes| Mapping::shared(&fd, offset, bytes, Mapping::READ_WRITE, MapFlags::POPULATE);
        let rings = map(IORING_OFF_SQ_RING, ends[0].max(ends[1]))?;
        let sqes = map(IORING_OFF_SQES, sqe_bytes * sq_entries as usize)?;
        // SAFETY: the kernel says where its words lie in the mapping.
        let at = |offset: u32| unsafe { rings.at.add(offset as usize) };
        for n in 0..sq_entries {
            // The array of what is submitted, which stays as it is: entry n at n.
            // SAFETY: the word is in the mapping, and the kernel reads it once something is submitted.
            unsafe { at(sq_off.array + 4 * n).cast().write(n) };
        }
        let word = |offset| Word(at(offset).cast());
        Ok(Inner {
            sq_head: word(sq_off.head),
            sq_tail: word(sq_off.tail),
            sq_flags: word(sq_off.flags),
            cq_head: word(cq_off.head),
            cq_tail: word(cq_off.tail),
            cqes: at(cq_off.cqes),
            _rings: rings,
            sqes,
            fd,
            sq_entries,
            cq_entries,
            big,
            sqpoll: flags.contains(IoringSetupFlags::SQPOLL),
            birth: Birth::here(),
            enters: AtomicU64::new(0),
        })
    }
}

/// Readable while completions can be taken or wait in the task: for epoll, unless the ring has an owner: see [`Ring::notify`].
impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

/// Where entries go in; each ring has one.
#[derive(Debug)]
pub struct Sq {
    ring: Ring,
    /// What the kernel sees as the tail.
    tail: u32,
}

impl Sq {
    /// Puts an entry into the ring. The kernel takes it with the next [`Ring::enter`] that submits, and a thread of the kernel's
    /// ([`Poll::Sq`]) by itself. False: there is no room before the next enter, or the ring belongs to the process that has forked.
    #[inline]
    #[must_use]
    pub fn push(&mut self, entry: Entry) -> bool {
        self.push_chain([entry])
    }

    /// Puts entries into the ring of which each is begun when the one before it has succeeded, and cancelled if not
    /// (IOSQE_IO_LINK): all of them, or none. They are shown at once, because a thread of the kernel's ends a chain where it finds no more.
    #[inline]
    #[must_use]
    pub fn push_chain<const N: usize>(&mut self, chain: [Entry; N]) -> bool {
        if !self.takes(N as u32) {
            return false;
        }
        for (n, entry) in (0..).zip(chain) {
            let place = self.place(n).cast::<Entry>();
            // SAFETY: `takes` has found room: the place is in the mapping, aligned, the kernel has consumed what was there, and looks at it
            // once it is published. `self` is the ring's only producer. The buffer of the entry is lent until its completion is taken (the
            // module's promise), and its file is a slot of the ring's table.
            unsafe { place.write(if n as usize + 1 < N { entry.flag(IoringSqeFlags::IO_LINK) } else { entry }) };
            if self.ring.0.big {
                // SAFETY: as above, for the second half.
                unsafe { place.add(1).cast::<Empty>().write(Empty::default()) };
            }
        }
        self.publish(N as u32);
        true
    }

    /// [`Sq::push`] of a command that is passed through, which a ring that is not big never takes.
    #[must_use]
    pub fn push_command(&mut self, command: Command) -> bool {
        if !(self.ring.0.big && self.takes(1)) {
            return false;
        }
        // SAFETY: as in `push_chain`, for a place of a big ring.
        unsafe { self.place(0).cast::<Command>().write(command) };
        self.publish(1);
        true
    }

    /// Whether this many entries can be pushed.
    #[inline]
    fn takes(&self, entries: u32) -> bool {
        self.ring.0.birth.is_here() && self.room() >= entries
    }

    /// Where the entry goes that is the `n`th from the tail on.
    #[inline]
    fn place(&self, n: u32) -> NonNull<u8> {
        let inner = &*self.ring.0;
        let at = (self.tail.wrapping_add(n) & (inner.sq_entries - 1)) as usize;
        let bytes = if inner.big { size_of::<Command>() } else { size_of::<Entry>() };
        // SAFETY: the mapping has room for as many entries as the ring.
        unsafe { inner.sqes.at.add(at * bytes) }
    }

    #[inline]
    fn publish(&mut self, entries: u32) {
        self.tail = self.tail.wrapping_add(entries);
        self.ring.0.sq_tail.store(self.tail, Ordering::Release);
    }

    /// Entries that the kernel has not consumed: what [`Enter::submit`] wants.
    #[inline]
    pub fn unsubmitted(&self) -> u32 {
        self.tail.wrapping_sub(self.ring.0.sq_head.load(Ordering::Acquire))
    }

    /// Entries that can be pushed now.
    #[inline]
    pub fn room(&self) -> u32 {
        self.ring.0.sq_entries - self.unsubmitted()
    }
}

/// Where completions come out; each ring has one.
#[derive(Debug)]
pub struct Cq {
    ring: Ring,
    /// What the kernel sees as the head.
    head: u32,
}

/// A completion: `struct io_uring_cqe` (linux/io_uring.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cqe {
    /// The entry's.
    pub user_data: u64,
    /// What the operation returns, or a negative errno.
    pub result: i32,
    /// IORING_CQE_F_… bits.
    pub flags: u32,
}

impl Cqe {
    /// The same entry will complete again.
    pub fn more(&self) -> bool {
        self.flags & CQE_MORE != 0
    }
}

impl Cq {
    /// The oldest completion. The kernel gets its place back with [`Cq::release`]. In a forked child there is none.
    #[inline]
    pub fn pop(&mut self) -> Option<Cqe> {
        let inner = &*self.ring.0;
        if self.head == inner.cq_tail.load(Ordering::Acquire) || !inner.birth.is_here() {
            return None;
        }
        // Completions of a big ring are twice as large; the second half is the command's result, which has no user.
        let at = (self.head & (inner.cq_entries - 1)) as usize * if inner.big { 2 } else { 1 };
        self.head = self.head.wrapping_add(1);
        // SAFETY: the mapping has room for as many completions as the ring, and of this size. The kernel has written this one before the tail
        // that was read, and leaves it alone until the head that it sees is past it. `self` is the ring's only consumer.
        Some(unsafe { inner.cqes.cast::<Cqe>().add(at).read() })
    }

    /// Gives the kernel back the places of what was popped.
    #[inline]
    pub fn release(&mut self) {
        self.ring.0.cq_head.store(self.head, Ordering::Release);
    }
}

/// Where an administrator switches io_uring off: 0 for nobody, 1 for those without CAP_SYS_ADMIN or the group, 2 for all.
const SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";

/// Why there is no io_uring.
#[derive(Debug, thiserror::Error)]
#[error("{why}; {remedy}")]
pub struct Unavailable {
    /// What the kernel's answer means.
    pub why: String,
    /// What mends it: a command, or what an administrator does.
    pub remedy: &'static str,
}

/// What the running kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Time-outs of a wait (IORING_FEAT_EXT_ARG, 5.11).
    pub timeouts: bool,
    /// Completions that do not fit are kept (IORING_FEAT_NODROP, 5.5).
    pub keeps_overflow: bool,
    /// [`Enter::min_wait`] (IORING_FEAT_MIN_TIMEOUT, 6.12).
    pub min_wait: bool,
    /// [`Options::owner`] (6.1).
    pub owner: bool,
    /// Shared rings as they are made here (IORING_SETUP_COOP_TASKRUN and TASKRUN_FLAG, 5.19). Such a kernel knows every
    /// operation of [`Entry`].
    pub shared: bool,
    /// [`Options::big`], and so commands that pass through (5.19).
    pub big: bool,
    /// [`Poll::Io`].
    pub io_poll: bool,
    /// [`Poll::HybridIo`] (6.13).
    pub hybrid_io_poll: bool,
    /// [`Poll::Sq`], for this user.
    pub sq_poll: bool,
}

impl Features {
    /// Asks the kernel, by making some small rings.
    pub fn probe() -> Result<Features, Unavailable> {
        let mut params = io_uring_params::default();
        // SAFETY: without flags the kernel looks at no descriptor.
        if let Err(errno) = unsafe { io_uring_setup(2, &mut params) } {
            let disabled = fs::read_to_string(SWITCH).ok().and_then(|switch| switch.trim().parse::<u32>().ok()).unwrap_or(0);
            let (why, remedy) = match errno {
                Errno::NOSYS => (
                    "this kernel has no io_uring: it is older than 5.1, built without it, or a sandbox that hides it".to_owned(),
                    "boot Linux 5.19 or newer with CONFIG_IO_URING",
                ),
                Errno::PERM if disabled != 0 => {
                    let why = format!("io_uring is switched off for this process: kernel.io_uring_disabled is {disabled}; 0 allows it");
                    (why, "sysctl kernel.io_uring_disabled=0")
                }
                Errno::PERM => (
                    "io_uring is forbidden to this process, likely by the seccomp filter of a container".to_owned(),
                    "allow io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp profile",
                ),
                // RLIMIT_MEMLOCK, against which newer kernels (6.14) count rings again, or no memory at all.
                Errno::NOMEM => (format!("the kernel has no memory for an io_uring{}", memlock(&errno.into())), "ulimit -l unlimited"),
                _ => (format!("cannot set up an io_uring: {}", io::Error::from(errno)), "strace -e io_uring_setup reap doctor"),
            };
            return Err(Unavailable { why, remedy });
        }
        let makes = |owner, poll, big| match Ring::new(&Options { entries: 2, owner, poll, big, ..Options::default() }) {
            Err(RingError::System { source, .. }) => ![libc::EINVAL, libc::EPERM].map(Some).contains(&source.raw_os_error()),
            _ => true,
        };
        Ok(Features {
            timeouts: params.features.contains(IoringFeatureFlags::EXT_ARG),
            keeps_overflow: params.features.contains(IoringFeatureFlags::NODROP),
            min_wait: params.features.contains(MIN_TIMEOUT),
            owner: makes(true, Poll::No, false),
            shared: makes(false, Poll::No, false),
            big: makes(false, Poll::No, true),
            io_poll: makes(false, Poll::Io, false),
            hybrid_io_poll: makes(false, Poll::HybridIo, false),
            sq_poll: makes(false, Poll::Sq { idle_ms: 1 }, false),
        })
    }

    /// Whether this block device takes [`Entry::discard`], by a trial that discards nothing: of no bytes it is wrong, where it is known.
    pub fn discards(&self, device: impl AsFd) -> bool {
        let options = Options { entries: 2, files: 1, ..Options::default() };
        let Some((ring, mut sq, mut cq)) = Ring::new(&options).ok().filter(|_| self.big) else { return false };
        if ring.register_file(FileSlot(0), device).is_err() || !sq.push(Entry::discard(FileSlot(0), 0, 0)) {
            return false;
        }
        let asked = ring.enter(Enter { submit: 1, wait_for: 1, ..Enter::default() });
        // The device is to be free as soon as it is closed, and rings close late.
        _ = ring.unregister_file(FileSlot(0));
        asked.is_ok() && cq.pop().is_some_and(|cqe| cqe.result != -libc::EOPNOTSUPP)
    }
}

#[cfg(test)]
mod tests;
