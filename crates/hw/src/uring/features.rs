//! What the running kernel has.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use io_uring::IoUring;

use super::entry::{Entry, FileSlot};
use super::queues::Cqe;
use super::ring::{Enter, Options, Poll, Ring, memlock};

/// Where an administrator switches io_uring off: 0 for nobody, 1 for those without CAP_SYS_ADMIN or the group, 2 for all.
const SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";

/// Why there is no io_uring.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The kernel has no such call.
    #[error("this kernel has no io_uring: it is older than 5.1, built without it, or a sandbox that hides it")]
    NoSuchCall,
    /// An administrator has switched it off.
    #[error(
        "io_uring is switched off for this process: kernel.io_uring_disabled is {0}; 0 allows it (`sysctl kernel.io_uring_disabled=0`)"
    )]
    SwitchedOff(u32),
    /// Something else forbids it.
    #[error(
        "io_uring is forbidden to this process, likely by the seccomp filter of a container; allow io_uring_setup, io_uring_enter and io_uring_register"
    )]
    Forbidden,
    /// ENOMEM: RLIMIT_MEMLOCK, against which newer kernels (6.14) count rings again, or no memory at all.
    #[error("the kernel has no memory for an io_uring{}", memlock(.0))]
    Memory(#[source] io::Error),
    /// Anything else.
    #[error("cannot set up an io_uring: {0}")]
    System(#[from] io::Error),
}

/// What the running kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Time-outs of a wait (IORING_FEAT_EXT_ARG, 5.11).
    pub timeouts: bool,
    /// Completions that do not fit are kept (IORING_FEAT_NODROP, 5.5).
    pub keeps_overflow: bool,
    /// [`Enter::min_wait`](super::Enter::min_wait) (IORING_FEAT_MIN_TIMEOUT, 6.12).
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
    ///
    /// # Errors
    /// See [`Unavailable`].
    pub fn probe() -> Result<Features, Unavailable> {
        let plain = IoUring::new(2).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSYS) => Unavailable::NoSuchCall,
            Some(libc::EPERM) => match fs::read_to_string(SWITCH).ok().and_then(|switch| switch.trim().parse().ok()) {
                Some(switch) if switch != 0 => Unavailable::SwitchedOff(switch),
                _ => Unavailable::Forbidden,
            },
            Some(libc::ENOMEM) => Unavailable::Memory(error),
            _ => Unavailable::System(error),
        })?;
        let params = plain.params();
        let makes = |owner, poll, big| match Ring::new(&Options { entries: 2, owner, poll, big, ..Options::default() }) {
            Err(error) => ![libc::EINVAL, libc::EPERM].map(Some).contains(&error.source.raw_os_error()),
            Ok(_) => true,
        };
        Ok(Features {
            timeouts: params.is_feature_ext_arg(),
            keeps_overflow: params.is_feature_nodrop(),
            min_wait: params.is_feature_min_timeout(),
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
        if ring.register_file(FileSlot(0), device).is_err() || sq.push(Entry::discard(FileSlot(0), 0, 0)).is_err() {
            return false;
        }
        let mut cqes = [Cqe::default(); 1];
        let asked = ring.enter(Enter { submit: 1, wait_for: 1, ..Enter::default() });
        // The device is to be free as soon as it is closed, and rings close late.
        _ = ring.unregister_file(FileSlot(0));
        asked.is_ok() && cq.take(&mut cqes) == 1 && cqes[0].result != -libc::EOPNOTSUPP
    }
}
