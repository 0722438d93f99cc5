//! What the kernel may refuse.

use std::io;

use rustix::process::{Resource, getrlimit};

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
    #[error("the kernel has no memory for an io_uring{}", locked(.0))]
    Memory(#[source] io::Error),
    /// Anything else.
    #[error("cannot set up an io_uring: {0}")]
    System(#[from] io::Error),
}

/// Of ENOMEM: what may be too low.
fn locked(error: &io::Error) -> String {
    if error.raw_os_error() != Some(libc::ENOMEM) {
        return String::new();
    }
    let limit = getrlimit(Resource::Memlock).current.map_or_else(|| "not limited".to_owned(), |limit| format!("{limit} bytes"));
    format!("; RLIMIT_MEMLOCK is {limit}, and rings may count against it: raise it (`ulimit -l`)")
}

/// Why a ring was not made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The kernel refuses io_uring_setup(2) with these options.
    #[error("the kernel refuses an io_uring of {entries} entries ({what}): {source}{}", locked(source))]
    Refused {
        /// Entries asked for.
        entries: u32,
        /// What else was asked for.
        what: String,
        /// The kernel's error: EINVAL for what it does not know, ENOMEM for RLIMIT_MEMLOCK before 5.12 and from 6.14 on.
        #[source]
        source: io::Error,
    },
    /// These options go together in no ring of this library.
    #[error("an io_uring cannot be {0}")]
    Together(&'static str),
    /// Tables of files or buffers are refused.
    #[error("the kernel refuses an io_uring a table of {count} {what}: {source}")]
    Table {
        /// Files or buffers.
        what: &'static str,
        /// How many.
        count: u32,
        /// The kernel's error: EMFILE beyond RLIMIT_NOFILE, EINVAL beyond its own limit.
        #[source]
        source: io::Error,
    },
    /// The ring could not be mapped.
    #[error("cannot map an io_uring: {0}")]
    Map(#[source] io::Error),
}

/// Why io_uring_enter(2) did nothing, or only a part.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// EAGAIN: the kernel has no memory for a request now. Take completions and try again.
    #[error("the kernel has no room for another request now; take completions and try again")]
    Again,
    /// EBUSY: completions that did not fit wait for room. Take completions and try again.
    #[error("completions that did not fit the ring wait for room; take completions and try again")]
    Busy,
    /// EBADR: the kernel had no memory for completions that did not fit, and they are lost.
    #[error("the kernel was out of memory and has lost completions of the io_uring; close the device")]
    Lost,
    /// EEXIST: the ring belongs to another thread.
    #[error("this io_uring belongs to the thread that made it, and another one entered it")]
    WrongThread,
    /// The ring belongs to the process that has forked.
    #[error("this io_uring was made before a fork and belongs to the parent process; make another in the child")]
    Forked,
    /// Anything else.
    #[error("io_uring_enter: {0}")]
    System(#[source] io::Error),
}

/// Why a file or a buffer was not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
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
    /// EEXIST: the ring belongs to another thread.
    #[error("this io_uring belongs to the thread that made it, and another one registers with it")]
    WrongThread,
    /// The ring belongs to the process that has forked.
    #[error("this io_uring was made before a fork and belongs to the parent process; make another in the child")]
    Forked,
    /// Anything else: ENXIO without a table, EINVAL outside it, EBADF for what is no file that can be registered.
    #[error("io_uring_register: {0}")]
    System(#[source] io::Error),
}
