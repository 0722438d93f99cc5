//! Why a file or a block device cannot be used.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why `kernel:PATH` could not be opened.
#[derive(Debug, Error)]
#[error("kernel:{}: {fault}", path.display())]
pub struct TargetError {
    /// As given.
    pub path: PathBuf,
    /// What is wrong and what to do.
    pub fault: TargetFault,
}

/// What is wrong with a file or a block device: a variant for each thing that a caller can do about it. The text says what it is, where, and
/// what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TargetFault {
    /// The running kernel lacks what the link needs, or keeps it from this process.
    #[error("it cannot be driven through this kernel: {0}")]
    Kernel(String),
    /// Nothing has this name, no device is behind it, or it holds no bytes: `size=` lays a file out, and a device is to be attached.
    #[error("{0}")]
    NotFound(String),
    /// It cannot be used by any user or with any option: a directory, a controller or a format that the driver does not use.
    #[error("{0}")]
    Unusable(String),
    /// The system does not allow it to this user.
    #[error("{what}")]
    Permission {
        /// What is not allowed, and what allows it.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The device or the file system takes no writes: it can be opened for reading.
    #[error("{0} is read-only; open it with `readonly=yes`")]
    ReadOnly(&'static str),
    /// It is mounted, used as swap, locked or held: until its holders, named as far as the system tells, let it go.
    #[error("{0}")]
    InUse(String),
    /// A parameter of the URI does not fit it: `size=`, `lba=`, `buffered=` or `readonly=`.
    #[error("{0}")]
    Parameter(String),
    /// There is no room for the file that `size=` asks for, or it is larger than a limit allows.
    #[error("{0}")]
    NoSpace(String),
    /// The path named something else a moment later: it can be opened again.
    #[error("it was replaced by something else while it was being opened; open it again")]
    Replaced,
    /// Something else.
    #[error("cannot {what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}
