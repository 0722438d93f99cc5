//! io_uring, safe to call: the submission and completion rings that this process shares with the
//! kernel.
//!
//! ```text
//! Sq::push      SQE[tail & mask] = entry; tail += 1 (release)
//!                      | Ring::enter: io_uring_enter(2) consumes SQEs, moves the SQ head
//! kernel        CQE[tail & mask] = result; tail += 1 (release)
//!                      |
//! Cq::pop       tail (acquire), read CQE[head & mask], head += 1 privately
//! Cq::release   head (release): the kernel may reuse the slots
//! ```
//!
//! **Memory.** A request names bytes of a [`Lent`] buffer. It may be taken back once the completion
//! of the request has been popped, or if the entry was dropped without being pushed. This module
//! cannot check that, just as nothing checks a device without an IOMMU.
//!
//! **Files.** An entry names a file by its slot in the table of registered files, which keeps the
//! file open. So no entry contains a descriptor number that has been closed and reused.
//!
//! **Threads.** There is one [`Sq`] and one [`Cq`] per ring, used through `&mut`; [`Ring`] is
//! shared. Ring words are atomics, so that any thread may read them without a lock. The crate
//! `io-uring` does not allow that: its queues read the word of their own side non-atomically and
//! write it back on drop.

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
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringEnterFlags, IoringFeatureFlags, IoringRegisterOp,
    IoringRsrcFlags, IoringSetupFlags, IoringSqFlags, IoringSqeFlags, io_uring_enter,
    io_uring_enter_arg, io_uring_files_update, io_uring_getevents_arg, io_uring_params,
    io_uring_ptr, io_uring_register, io_uring_rsrc_register, io_uring_rsrc_update2, io_uring_setup,
};
use rustix::mm::MapFlags;
use rustix::process::{Resource, getrlimit};
use units::Nanos;

use crate::clock::timespec;
use crate::mapping::Mapping;
use crate::{EventFd, ForkGuard, Lent};
pub(crate) use entry::NvmeCommand;
use entry::SecondHalf;
pub use entry::{Entry, FileSlot, Fixed, PassthroughCommand, Span};

/// IORING_SETUP_HYBRID_IOPOLL (6.13) and IORING_FEAT_MIN_TIMEOUT (6.12), which rustix does not
/// define.
const HYBRID_IOPOLL: IoringSetupFlags = IoringSetupFlags::from_bits_retain(1 << 17);
const MIN_TIMEOUT: IoringFeatureFlags = IoringFeatureFlags::from_bits_retain(1 << 15);
/// IORING_CQE_F_MORE.
const CQE_MORE: u32 = 1 << 1;

/// Which thread polls the device or the submission ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Poll {
    /// No thread polls: the device sends interrupts.
    #[default]
    No,
    /// The thread that waits in io_uring_enter polls the device (IORING_SETUP_IOPOLL): only for
    /// reads and writes of O_DIRECT files on devices with poll queues.
    Io,
    /// As [`Poll::Io`], after a sleep of half the mean completion time (IORING_SETUP_HYBRID_IOPOLL,
    /// 6.13).
    HybridIo,
    /// A kernel thread polls the submission ring (IORING_SETUP_SQPOLL).
    Sq {
        /// Milliseconds without new entries after which the kernel thread sleeps.
        idle_ms: u32,
    },
}

/// Options of a ring. Start from `Options::default()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Entries of the submission ring, rounded up to a power of two; at most 32768.
    pub entries: u32,
    /// Entries of the completion ring, rounded up to a power of two; 0: twice as many as `entries`.
    pub cq_entries: u32,
    /// Only the thread that makes the ring enters it, and completions are posted when that thread
    /// enters (IORING_SETUP_SINGLE_ISSUER, IORING_SETUP_DEFER_TASKRUN: 6.1). Otherwise any thread
    /// may enter, and completions are posted when the submitting thread next enters the kernel for
    /// any reason (IORING_SETUP_COOP_TASKRUN). Without effect with [`Poll::Sq`].
    pub owner: bool,
    /// Which thread polls.
    pub poll: Poll,
    /// Entries of 128 bytes and completions of 32, as NVMe passthrough commands need
    /// (IORING_SETUP_SQE128, IORING_SETUP_CQE32).
    pub big: bool,
    /// Slots for registered files; 0: no table.
    pub files: u32,
    /// Slots for registered buffers, at most 16384; 0: no table.
    pub buffers: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            entries: 128,
            cq_entries: 0,
            owner: false,
            poll: Poll::No,
            big: false,
            files: 0,
            buffers: 0,
        }
    }
}

/// For ENOMEM: a hint that RLIMIT_MEMLOCK may be too low.
fn memlock(error: &io::Error) -> String {
    if error.raw_os_error() != Some(libc::ENOMEM) {
        return String::new();
    }
    let limit = getrlimit(Resource::Memlock)
        .current
        .map_or_else(|| "unlimited".to_owned(), |limit| format!("{limit} bytes"));
    format!("; RLIMIT_MEMLOCK is {limit}, and rings may count against it: raise it (`ulimit -l`)")
}

/// Why a ring could not be made, why io_uring_enter(2) submitted nothing, or why a file or buffer
/// could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// EAGAIN, EBUSY: the kernel has no memory for a request now, or completions that overflowed
    /// the ring wait for room. Pop completions and try again.
    #[error("the kernel has no room for another request now; reap completions and try again")]
    Busy,
    /// EBADR: completions overflowed the ring, the kernel had no memory to keep them, and they are
    /// lost.
    #[error(
        "the kernel was out of memory and has lost completions of the io_uring; close the device"
    )]
    Lost,
    /// EEXIST: a ring with [`Options::owner`] was used by another thread.
    #[error("this io_uring belongs to the thread that made it, and another thread used it")]
    WrongThread,
    /// The ring belongs to the parent of this forked process.
    #[error(
        "this io_uring was made before a fork and belongs to the parent process; make a new one in the child"
    )]
    Forked,
    /// ENOMEM: RLIMIT_MEMLOCK does not allow so much pinned memory. The buffer can be used without
    /// being registered.
    #[error(
        "a buffer of {wanted} bytes cannot be registered with an io_uring: RLIMIT_MEMLOCK is {limit} bytes, part of which is in use; raise it (`ulimit -l`)"
    )]
    Memlock {
        /// Bytes to be pinned.
        wanted: u64,
        /// RLIMIT_MEMLOCK of the process, in bytes.
        limit: u64,
    },
    /// The buffer crosses a chunk boundary.
    #[error("a buffer that crosses chunks of 4 MiB cannot be registered with an io_uring")]
    Crosses,
    /// Another error. At setup: EINVAL for options that the kernel does not know or that exceed its
    /// limits, ENOMEM for RLIMIT_MEMLOCK (before 5.12 and since 6.14), EMFILE for RLIMIT_NOFILE.
    #[error("the kernel refuses {what}: {source}{}", memlock(source))]
    System {
        /// The refused operation.
        what: String,
        /// Its error.
        #[source]
        source: io::Error,
    },
}

/// Converts an error that every call on a ring may return.
#[cold]
fn ring_error(what: impl Into<String>, errno: Errno) -> RingError {
    match errno {
        Errno::EXIST => RingError::WrongThread,
        _ => RingError::System { what: what.into(), source: errno.into() },
    }
}

/// A head, tail or flags word in the mapping of an [`MappedRing`], which does not give it away.
#[derive(Debug)]
struct Word(NonNull<AtomicU32>);

impl Deref for Word {
    type Target = AtomicU32;

    #[inline]
    fn deref(&self) -> &AtomicU32 {
        // SAFETY: it is aligned as the kernel lays it out, in the mapping that lives as long as the
        // `MappedRing`, and all accesses to it are atomic.
        unsafe { self.0.as_ref() }
    }
}

/// Fields drop in this order: the mappings go before the descriptor closes.
#[derive(Debug)]
struct MappedRing {
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
    fork_guard: ForkGuard,
    enters: AtomicU64,
}

// SAFETY: words are atomics; submission entries are written by the only `Sq`, and completions read
// by the only `Cq`.
unsafe impl Send for MappedRing {}
// SAFETY: as above.
unsafe impl Sync for MappedRing {}

/// The shared part of a ring; cheap to clone. The ring closes and its memory is unmapped when the
/// last clone, the [`Sq`] and the [`Cq`] are gone. Requests in progress at that time are cancelled
/// or finish in the kernel, so their buffers must stay lent.
#[derive(Clone, Debug)]
pub struct Ring(Arc<MappedRing>);

/// State of the completion side, as far as it can be read without a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqState {
    /// Nothing is pending, as far as can be seen without a system call.
    None,
    /// There are completions to pop.
    Entries,
    /// The next enter with [`Enter::run_tasks`] posts completions: they wait as task work
    /// (IORING_SQ_TASKRUN) or have overflowed the ring (IORING_SQ_CQ_OVERFLOW).
    TaskWork,
}

/// Arguments of [`Ring::enter`]. Start from `Enter::default()`, which does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enter {
    /// Number of pushed entries to submit. If fewer are there, those are submitted and the call
    /// does not wait.
    pub submit: u32,
    /// Wait until this many completions can be popped, including those that can be popped already.
    pub wait_for: u32,
    /// Maximum time to wait (`None` or [`Nanos::MAX`]: no limit). IOPOLL rings ignore it.
    pub timeout: Option<Nanos>,
    /// Wait this long for `wait_for` completions, and after that only for the first completion
    /// (6.12). Rounded up to microseconds.
    pub min_wait: Option<Nanos>,
    /// Run task work and flush overflowed completions even if nothing is waited for; on an IOPOLL
    /// ring, poll once.
    pub run_tasks: bool,
}

/// Means "no time-out" where the kernel requires one: 30 years.
const ENDLESS: Nanos = Nanos::from_secs(1_000_000_000);

impl Ring {
    /// Makes a ring with its producer and its consumer.
    pub fn new(options: &Options) -> Result<(Ring, Sq, Cq), RingError> {
        let Options { entries, cq_entries, owner, poll, big, files, buffers } = *options;
        let mut params = io_uring_params::default();
        // SUBMIT_ALL: an invalid entry completes with an error and does not stop the rest of the
        // batch.
        params.flags = IoringSetupFlags::SUBMIT_ALL;
        params.flags.set(IoringSetupFlags::CQSIZE, cq_entries > 0);
        params.flags.set(IoringSetupFlags::SQE128 | IoringSetupFlags::CQE32, big);
        params.cq_entries = cq_entries;
        params.flags |= match (poll, owner) {
            // The kernel refuses the task-work flags with SQPOLL: its thread runs the task work.
            (Poll::Sq { .. }, _) => IoringSetupFlags::SQPOLL,
            (_, true) => {
                IoringSetupFlags::SINGLE_ISSUER
                    | IoringSetupFlags::DEFER_TASKRUN
                    | IoringSetupFlags::TASKRUN_FLAG
            }
            (_, false) => IoringSetupFlags::COOP_TASKRUN | IoringSetupFlags::TASKRUN_FLAG,
        };
        match poll {
            Poll::Sq { idle_ms } => params.sq_thread_idle = idle_ms,
            Poll::Io => params.flags |= IoringSetupFlags::IOPOLL,
            Poll::HybridIo => params.flags |= IoringSetupFlags::IOPOLL | HYBRID_IOPOLL,
            Poll::No => {}
        }
        // SAFETY: none of these flags makes the kernel use a descriptor in `params`.
        let fd = unsafe { io_uring_setup(entries, &mut params) }
            .map_err(|errno| ring_error(format!("an io_uring of {options:?}"), errno))?;
        for (count, what) in
            [(files, "files"), (buffers, "buffers")].into_iter().filter(|(count, _)| *count > 0)
        {
            let mut table = io_uring_rsrc_register::default();
            (table.nr, table.flags) = (count, IoringRsrcFlags::REGISTER_SPARSE);
            let call = if what == "files" {
                IoringRegisterOp::RegisterFiles2
            } else {
                IoringRegisterOp::RegisterBuffers2
            };
            // SAFETY: the kernel reads `table`, which is empty of files and memory.
            let made = unsafe {
                io_uring_register(&fd, call, (&raw const table).cast(), size_of_val(&table) as u32)
            };
            made.map_err(|errno| {
                ring_error(format!("an io_uring a table of {count} {what}"), errno)
            })?;
        }
        let inner = MappedRing::map(fd, &params)
            .map_err(|source| RingError::System { what: "to map an io_uring".into(), source })?;
        let (tail, head) =
            (inner.sq_tail.load(Ordering::Relaxed), inner.cq_head.load(Ordering::Relaxed));
        let ring = Ring(Arc::new(inner));
        Ok((ring.clone(), Sq { ring: ring.clone(), tail }, Cq { ring, head }))
    }

    /// State of the completion side; loads only.
    #[inline]
    pub fn cq_state(&self) -> CqState {
        if self.ready() > 0 {
            return CqState::Entries;
        }
        // Relaxed: the flag only decides whether to enter; the kernel checks again there.
        let flags = IoringSqFlags::from_bits_retain(self.0.sq_flags.load(Ordering::Relaxed));
        if flags.intersects(IoringSqFlags::CQ_OVERFLOW | IoringSqFlags::TASKRUN) {
            CqState::TaskWork
        } else {
            CqState::None
        }
    }

    /// Number of completions that can be popped; loads only.
    #[inline]
    pub fn ready(&self) -> u32 {
        self.0.cq_tail.load(Ordering::Acquire).wrapping_sub(self.0.cq_head.load(Ordering::Relaxed))
    }

    /// Enters the kernel once (io_uring_enter(2)): submits, then waits. Skipped for an SQPOLL ring
    /// whose kernel thread is awake, if nothing is waited for. Returns the number of entries
    /// submitted. An invalid entry counts as submitted and completes with an error; entries beyond
    /// that number stay in the ring. A wait also ends by time-out or signal: [`Ring::ready`] tells
    /// how many completions came.
    #[inline]
    pub fn enter(&self, enter: Enter) -> Result<u32, RingError> {
        let inner = &*self.0;
        if !inner.fork_guard.same_process() {
            return Err(RingError::Forked);
        }
        let Enter { submit, wait_for, timeout, min_wait, run_tasks } = enter;
        let mut flags = IoringEnterFlags::empty();
        flags.set(IoringEnterFlags::GETEVENTS, wait_for > 0 || run_tasks);
        if inner.sqpoll {
            // The tail must be visible before the flag is read: the kernel thread sets the flag,
            // then reads the tail once more. Either it sees the tail, or we see the flag (store
            // buffering; needs SeqCst on both sides).
            fence(Ordering::SeqCst);
            if IoringSqFlags::from_bits_retain(inner.sq_flags.load(Ordering::Relaxed))
                .contains(IoringSqFlags::NEED_WAKEUP)
            {
                flags |= IoringEnterFlags::SQ_WAKEUP;
            } else if flags.is_empty() {
                return Ok(submit);
            }
        }
        // A statistic: no locked instruction. One thread at a time enters.
        inner.enters.store(inner.enters.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let timeout = timeout.filter(|timeout| *timeout != Nanos::MAX);
        let entered = if timeout.is_none() && min_wait.is_none() {
            // SAFETY: there is no argument. The memory that entries name is valid (see `push`).
            unsafe { io_uring_enter(&inner.fd, submit, wait_for, flags) }
        } else {
            // Without a time-out the kernel ends the wait after the minimum time, even if nothing
            // has come (`io_cqring_min_timer_wakeup`).
            let mut time = timespec(timeout.unwrap_or(ENDLESS));
            let min_wait_usec = min_wait
                .map_or(0, |wait| u32::try_from(wait.0.div_ceil(1_000)).unwrap_or(u32::MAX));
            let ts = io_uring_ptr::new((&raw mut time).cast());
            let arg = io_uring_getevents_arg { min_wait_usec, ts, ..Default::default() };
            // SAFETY: the argument and the time live until the call returns. As for the entries:
            // see above.
            unsafe {
                io_uring_enter_arg(
                    &inner.fd,
                    submit,
                    wait_for,
                    flags | IoringEnterFlags::EXT_ARG,
                    Some(&arg),
                )
            }
        };
        entered.or_else(enter_error)
    }

    /// The process that made the ring.
    pub fn fork_guard(&self) -> ForkGuard {
        self.0.fork_guard
    }

    /// Number of io_uring_enter(2) calls.
    pub fn enters(&self) -> u64 {
        self.0.enters.load(Ordering::Relaxed)
    }
}

/// Registered files and buffers. If the ring has an owner, only that thread may register. A slot
/// may be replaced at any time: requests in progress keep the old file or buffer.
impl Ring {
    /// Registers a file in a slot, which keeps it open.
    pub fn register_file(&self, slot: FileSlot, file: impl AsFd) -> Result<(), RingError> {
        self.set_file(slot, file.as_fd().as_raw_fd())
    }

    /// Unregisters the file of a slot.
    pub fn unregister_file(&self, slot: FileSlot) -> Result<(), RingError> {
        self.set_file(slot, -1)
    }

    fn set_file(&self, FileSlot(slot): FileSlot, mut fd: i32) -> Result<(), RingError> {
        let mut update = io_uring_files_update::default();
        (update.offset, update.fds) = (slot, io_uring_ptr::new((&raw mut fd).cast()));
        // SAFETY: the kernel reads `update` and the one descriptor that it names.
        unsafe {
            self.register(
                "a file",
                IoringRegisterOp::RegisterFilesUpdate,
                (&raw const update).cast(),
                1,
            )
        }
    }

    /// Registers the chunk of memory that contains `lent` in a slot: 4 MiB, or less at the end of a
    /// region. All of it is faulted in, pinned, and counted against RLIMIT_MEMLOCK. After
    /// [`RingError::Memlock`] the buffer can be used unregistered.
    ///
    /// The kernel holds the pages, not the mapping: dropping the pool or region takes no page away
    /// from a request in progress. The pages are released when the slot is replaced or the ring
    /// closes.
    pub fn register_buffer(&self, slot: u16, lent: &Lent) -> Result<Fixed, RingError> {
        let (chunk, at, bytes) = lent.chunk().ok_or(RingError::Crosses)?;
        let mut buffer = libc::iovec { iov_base: at.as_ptr().cast(), iov_len: bytes };
        let mut update = io_uring_rsrc_update2::default();
        (update.offset, update.nr, update.data) =
            (slot.into(), 1, io_uring_ptr::new((&raw mut buffer).cast()));
        let (arg, size) = ((&raw const update).cast(), size_of_val(&update) as u32);
        // SAFETY: the kernel reads `update` and what it names. The buffer is mapped now, which is
        // all that is needed: its pages are pinned, and the addresses of later requests are
        // compared with the range without following them.
        match unsafe {
            self.register("a buffer", IoringRegisterOp::RegisterBuffersUpdate, arg, size)
        } {
            Ok(()) => Ok(Fixed { slot, chunk }),
            Err(error) => match (&error, getrlimit(Resource::Memlock).current) {
                (RingError::System { source, .. }, Some(limit))
                    if source.raw_os_error() == Some(libc::ENOMEM) =>
                {
                    Err(RingError::Memlock { wanted: bytes as u64, limit })
                }
                _ => Err(error),
            },
        }
    }

    /// Registers `event`: it is signalled when a completion is posted or task work is added. EBUSY:
    /// an eventfd is registered already. A ring with an owner needs this to wake epoll: its own
    /// descriptor is reported readable when epoll checks it, but does not wake a thread that sleeps
    /// already (observed on 6.18).
    pub fn notify(&self, event: &EventFd) -> Result<(), RingError> {
        let fd = event.as_fd().as_raw_fd();
        // SAFETY: the kernel reads one descriptor.
        unsafe {
            self.register(
                "an eventfd",
                IoringRegisterOp::RegisterEventfd,
                (&raw const fd).cast(),
                1,
            )
        }
    }

    /// io_uring_register(2).
    ///
    /// # Safety
    /// `arg` and `count` are valid for `call`.
    unsafe fn register(
        &self,
        what: &str,
        call: IoringRegisterOp,
        arg: *const c_void,
        count: u32,
    ) -> Result<(), RingError> {
        if !self.0.fork_guard.same_process() {
            return Err(RingError::Forked);
        }
        // SAFETY: the caller's promise.
        unsafe { io_uring_register(&self.0.fd, call, arg, count) }
            .map(drop)
            .map_err(|errno| ring_error(what, errno))
    }
}

/// The meaning of an error of io_uring_enter(2): it submitted nothing.
#[cold]
fn enter_error(errno: Errno) -> Result<u32, RingError> {
    match errno {
        // Not errors: the wait ended by time-out or signal.
        Errno::TIME | Errno::INTR => Ok(0),
        Errno::AGAIN | Errno::BUSY => Err(RingError::Busy),
        Errno::BADR => Err(RingError::Lost),
        _ => Err(ring_error("io_uring_enter", errno)),
    }
}

impl MappedRing {
    /// Maps the ring `fd` with the layout that the kernel reported in `params`.
    fn map(fd: OwnedFd, params: &io_uring_params) -> io::Result<MappedRing> {
        let io_uring_params { flags, features, sq_entries, cq_entries, sq_off, cq_off, .. } =
            *params;
        // 5.4 and later: one mapping holds both rings. Older kernels lack other features too.
        if !features.contains(IoringFeatureFlags::SINGLE_MMAP) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let big = flags.contains(IoringSetupFlags::SQE128);
        let (sqe_bytes, cqe_bytes) = if big {
            (size_of::<PassthroughCommand>(), 2 * size_of::<Cqe>())
        } else {
            (size_of::<Entry>(), size_of::<Cqe>())
        };
        let ends = [
            sq_off.array as usize + 4 * sq_entries as usize,
            cq_off.cqes as usize + cqe_bytes * cq_entries as usize,
        ];
        let map = |offset, bytes| {
            Mapping::shared(&fd, offset, bytes, Mapping::READ_WRITE, MapFlags::POPULATE)
        };
        let rings = map(IORING_OFF_SQ_RING, ends[0].max(ends[1]))?;
        let sqes = map(IORING_OFF_SQES, sqe_bytes * sq_entries as usize)?;
        // SAFETY: the kernel says where its words lie in the mapping.
        let at = |offset: u32| unsafe { rings.at.add(offset as usize) };
        for n in 0..sq_entries {
            // The indirection array from ring index to SQE stays the identity: entry n at n.
            // SAFETY: the word is in the mapping, and the kernel does not read it before the first
            // submission.
            unsafe { at(sq_off.array + 4 * n).cast().write(n) };
        }
        let word = |offset| Word(at(offset).cast());
        Ok(MappedRing {
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
            fork_guard: ForkGuard::current(),
            enters: AtomicU64::new(0),
        })
    }
}

/// Readable while completions can be popped or task work waits: for epoll, unless the ring has an
/// owner (see [`Ring::notify`]).
impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

/// The producer of the submission ring; each ring has one.
#[derive(Debug)]
pub struct Sq {
    ring: Ring,
    /// The tail, as published to the kernel.
    tail: u32,
}

impl Sq {
    /// Pushes an entry. The kernel takes it with the next [`Ring::enter`] that submits; with
    /// [`Poll::Sq`] its thread takes it by itself. False: the ring is full until the next enter, or
    /// belongs to the parent of this forked process.
    #[inline]
    #[must_use]
    pub fn push(&mut self, entry: Entry) -> bool {
        self.push_chain([entry])
    }

    /// Pushes a chain: each entry starts when the one before it has succeeded, and is cancelled
    /// otherwise (IOSQE_IO_LINK). Either all entries are pushed or none; returns whether they were.
    /// They are published together, because an SQPOLL thread ends a chain where it finds no further
    /// entry.
    #[inline]
    #[must_use]
    pub fn push_chain<const N: usize>(&mut self, chain: [Entry; N]) -> bool {
        if !self.has_room_for(N as u32) {
            return false;
        }
        for (n, entry) in (0..).zip(chain) {
            let sqe_at = self.sqe_at(n).cast::<Entry>();
            // SAFETY: `has_room_for` has found room: the place is in the mapping, aligned, the
            // kernel has consumed what was there, and looks at it once it is published. `self` is
            // the ring's only producer. The buffer of the entry is lent until its completion is
            // taken (the module's promise), and its file is a slot of the ring's table.
            unsafe {
                sqe_at.write(if n as usize + 1 < N {
                    entry.flag(IoringSqeFlags::IO_LINK)
                } else {
                    entry
                })
            };
            if self.ring.0.big {
                // SAFETY: as above, for the second half.
                unsafe { sqe_at.add(1).cast::<SecondHalf>().write(SecondHalf::default()) };
            }
        }
        self.publish(N as u32);
        true
    }

    /// [`Sq::push`] for a passthrough command. False also if the ring does not have
    /// [`Options::big`].
    #[must_use]
    pub fn push_command(&mut self, command: PassthroughCommand) -> bool {
        if !(self.ring.0.big && self.has_room_for(1)) {
            return false;
        }
        // SAFETY: as in `push_chain`, for a place of a big ring.
        unsafe { self.sqe_at(0).cast::<PassthroughCommand>().write(command) };
        self.publish(1);
        true
    }

    /// Whether this many entries can be pushed by this process.
    #[inline]
    fn has_room_for(&self, entries: u32) -> bool {
        self.ring.0.fork_guard.same_process() && self.room() >= entries
    }

    /// The address of the `n`th entry after the tail.
    #[inline]
    fn sqe_at(&self, n: u32) -> NonNull<u8> {
        let inner = &*self.ring.0;
        let at = (self.tail.wrapping_add(n) & (inner.sq_entries - 1)) as usize;
        let bytes = if inner.big { size_of::<PassthroughCommand>() } else { size_of::<Entry>() };
        // SAFETY: the mapping has room for as many entries as the ring.
        unsafe { inner.sqes.at.add(at * bytes) }
    }

    #[inline]
    fn publish(&mut self, entries: u32) {
        self.tail = self.tail.wrapping_add(entries);
        // Release: the entries are written before the kernel sees the tail.
        self.ring.0.sq_tail.store(self.tail, Ordering::Release);
    }

    /// Entries that the kernel has not consumed: the value for [`Enter::submit`].
    #[inline]
    pub fn unsubmitted(&self) -> u32 {
        // Acquire: the kernel has read the entries before this process overwrites them.
        self.tail.wrapping_sub(self.ring.0.sq_head.load(Ordering::Acquire))
    }

    /// Entries that can be pushed now.
    #[inline]
    pub fn room(&self) -> u32 {
        self.ring.0.sq_entries - self.unsubmitted()
    }
}

/// The consumer of the completion ring; each ring has one.
#[derive(Debug)]
pub struct Cq {
    ring: Ring,
    /// The head: ahead of the published one until [`Cq::release`].
    head: u32,
}

/// A completion: `struct io_uring_cqe` (linux/io_uring.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cqe {
    /// User data of the entry.
    pub user_data: u64,
    /// Result of the operation, or a negative errno.
    pub result: i32,
    /// IORING_CQE_F_… bits.
    pub flags: u32,
}

impl Cqe {
    /// Whether the same entry will complete again (multishot).
    pub fn more(&self) -> bool {
        self.flags & CQE_MORE != 0
    }
}

impl Cq {
    /// Pops the oldest completion. Its slot stays occupied until [`Cq::release`]. Always `None` in
    /// a forked child.
    #[inline]
    pub fn pop(&mut self) -> Option<Cqe> {
        let inner = &*self.ring.0;
        if self.head == inner.cq_tail.load(Ordering::Acquire) || !inner.fork_guard.same_process() {
            return None;
        }
        // Completions of a big ring have twice the size; the second half is the result dword of the
        // NVMe command, which is not used.
        let at = (self.head & (inner.cq_entries - 1)) as usize * if inner.big { 2 } else { 1 };
        self.head = self.head.wrapping_add(1);
        // SAFETY: the mapping has room for as many completions as the ring, and of this size. The
        // kernel has written this one before the tail that was read, and leaves it alone until the
        // head that it sees is past it. `self` is the ring's only consumer.
        Some(unsafe { inner.cqes.cast::<Cqe>().add(at).read() })
    }

    /// Releases the slots of popped completions to the kernel.
    #[inline]
    pub fn release(&mut self) {
        // Release: the CQEs are read before the kernel overwrites them. One store per batch.
        self.ring.0.cq_head.store(self.head, Ordering::Release);
    }
}

/// The sysctl that disables io_uring: 0 allows all processes, 1 only those with CAP_SYS_ADMIN or in
/// the group, 2 none.
const DISABLED_SYSCTL: &str = "/proc/sys/kernel/io_uring_disabled";

/// Why io_uring is unavailable.
#[derive(Debug, thiserror::Error)]
#[error("{why}; {remedy}")]
pub struct Unavailable {
    /// What the error of the kernel means.
    pub why: String,
    /// How to solve it: a command, or an instruction for the administrator.
    pub remedy: &'static str,
}

/// io_uring features of the running kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Time-outs for waits (IORING_FEAT_EXT_ARG, 5.11).
    pub timeouts: bool,
    /// Completions that overflow the ring are kept (IORING_FEAT_NODROP, 5.5).
    pub keeps_overflow: bool,
    /// [`Enter::min_wait`] (IORING_FEAT_MIN_TIMEOUT, 6.12).
    pub min_wait: bool,
    /// [`Options::owner`] (6.1).
    pub owner: bool,
    /// Rings without an owner (IORING_SETUP_COOP_TASKRUN and TASKRUN_FLAG, 5.19). Such a kernel
    /// knows every operation of [`Entry`].
    pub shared: bool,
    /// [`Options::big`], which passthrough commands need (5.19).
    pub big: bool,
    /// [`Poll::Io`].
    pub io_poll: bool,
    /// [`Poll::HybridIo`] (6.13).
    pub hybrid_io_poll: bool,
    /// [`Poll::Sq`], for this user.
    pub sq_poll: bool,
}

impl Features {
    /// Probes the kernel by making small rings.
    pub fn probe() -> Result<Features, Unavailable> {
        let mut params = io_uring_params::default();
        // SAFETY: without flags the kernel uses no descriptor in `params`.
        if let Err(errno) = unsafe { io_uring_setup(2, &mut params) } {
            let disabled = fs::read_to_string(DISABLED_SYSCTL)
                .ok()
                .and_then(|text| text.trim().parse::<u32>().ok())
                .unwrap_or(0);
            let (why, remedy) = match errno {
                Errno::NOSYS => (
                    "this kernel has no io_uring: it is older than 5.1, was built without it, or a sandbox hides it".to_owned(),
                    "boot Linux 5.19 or newer with CONFIG_IO_URING",
                ),
                Errno::PERM if disabled != 0 => {
                    let why = format!("io_uring is disabled for this process: kernel.io_uring_disabled is {disabled}; 0 allows it");
                    (why, "sysctl kernel.io_uring_disabled=0")
                }
                Errno::PERM => (
                    "io_uring is forbidden to this process, likely by the seccomp filter of a container".to_owned(),
                    "allow io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp profile",
                ),
                // Since 6.14 rings count against RLIMIT_MEMLOCK again; or memory is short.
                Errno::NOMEM => (format!("the kernel has no memory for an io_uring{}", memlock(&errno.into())), "ulimit -l unlimited"),
                _ => (format!("cannot set up an io_uring: {}", io::Error::from(errno)), "strace -e io_uring_setup reap doctor"),
            };
            return Err(Unavailable { why, remedy });
        }
        let makes = |owner, poll, big| match Ring::new(&Options {
            entries: 2,
            owner,
            poll,
            big,
            ..Options::default()
        }) {
            // EINVAL and EPERM mean "not supported". Other errors, such as ENOMEM, do not say that
            // it is missing.
            Err(RingError::System { source, .. }) => {
                ![libc::EINVAL, libc::EPERM].map(Some).contains(&source.raw_os_error())
            }
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

    /// Whether this block device supports [`Entry::discard`]. Tries a discard of zero bytes: EINVAL
    /// if the command is known, EOPNOTSUPP if not.
    pub fn discards(&self, device: impl AsFd) -> bool {
        let options = Options { entries: 2, files: 1, ..Options::default() };
        let Some((ring, mut sq, mut cq)) = Ring::new(&options).ok().filter(|_| self.big) else {
            return false;
        };
        if ring.register_file(FileSlot(0), device).is_err()
            || !sq.push(Entry::discard(FileSlot(0), 0, 0))
        {
            return false;
        }
        let asked = ring.enter(Enter { submit: 1, wait_for: 1, ..Enter::default() });
        // Rings close asynchronously; do not keep the device open until then.
        _ = ring.unregister_file(FileSlot(0));
        asked.is_ok() && cq.pop().is_some_and(|cqe| cqe.result != -libc::EOPNOTSUPP)
    }
}

#[cfg(test)]
mod tests;
