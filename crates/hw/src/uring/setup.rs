//! How a ring is made.

use std::io;
use std::mem::MaybeUninit;

use io_uring::{Builder, IoUring, Parameters, cqueue, squeue};
use rustix::io_uring::{IoringSetupFlags, io_uring_params};

use super::cq::Cq;
use super::error::SetupError;
use super::ring::{Ring, Rings};
use super::sq::Sq;

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

impl Ring {
    /// Makes a ring, with its only producer and consumer.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(options: &Options) -> Result<(Ring, Sq, Cq), SetupError> {
        let rings = options.rings()?;
        if !rings.params().is_feature_single_mmap() {
            return Err(SetupError::Map(io::ErrorKind::Unsupported.into()));
        }
        let table = |what, count, made: fn(&Rings, u32) -> io::Result<()>| match count {
            0 => Ok(()),
            count => made(&rings, count).map_err(|source| SetupError::Table { what, count, source }),
        };
        table("files", options.files, |rings, count| rings.submitter().register_files_sparse(count))?;
        table("buffers", options.buffers, |rings, count| rings.submitter().register_buffers_sparse(count))?;
        let ring = Ring::of(rings).map_err(SetupError::Map)?;
        // SAFETY: the ring is new, and nobody has a queue of it.
        let (sq, cq) = unsafe { (Sq::new(ring.clone()), Cq::new(ring.clone())) };
        Ok((ring, sq, cq))
    }
}

impl Options {
    fn rings(&self) -> Result<Rings, SetupError> {
        let made = match (self.poll, self.big) {
            (Poll::HybridIo, true) => return Err(SetupError::Together("of big entries and hybrid polling at once")),
            (Poll::HybridIo, false) => self.by_hand().map(Rings::Small),
            (_, false) => self.configured(IoUring::builder()).build(self.entries).map(Rings::Small),
            (_, true) => {
                let builder = IoUring::<squeue::Entry128, cqueue::Entry32>::builder();
                self.configured(builder).build(self.entries).map(Rings::Big)
            }
        };
        made.map_err(|source| SetupError::Refused { entries: self.entries, what: self.to_string(), source })
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
    fn by_hand(&self) -> io::Result<IoUring> {
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
