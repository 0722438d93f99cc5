//! Why a file or a block device cannot be used.

use std::fmt;
use std::io;
use std::path::PathBuf;

use driver::{RefusedFormat, Unusable};
use rustix::io::Errno;
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

/// What is wrong with a file or a block device.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TargetFault {
    /// The running kernel lacks what the link needs.
    #[error("it cannot be driven through this kernel: {0}")]
    Kernel(String),
    /// Nothing has this name.
    #[error("there is no such file{}", if *tilde { "; `~` is the shell's: write the path out" } else { "; `size=` lays one out" })]
    NotFound {
        /// The path begins with `~`.
        tilde: bool,
    },
    /// Nothing has this name, and `size=` cannot make it: the device is opened only for reading.
    #[error("there is no such file, and a device that is opened only for reading lays none out")]
    NotLaidOut,
    /// A directory on the way to it does not exist, so no file can be laid out there.
    #[error("there is no directory {}; make it first", .0.display())]
    NoParent(PathBuf),
    /// A symbolic link to nothing.
    #[error("it is a symbolic link to {}, which does not exist", to.display())]
    Dangling {
        /// What the link says.
        to: PathBuf,
    },
    /// A directory.
    #[error("it is a directory; name a file in it, and `size=` lays that out")]
    Directory,
    /// Something else that holds no blocks.
    #[error("it is {0}; only regular files, block devices and NVMe namespaces can be used")]
    NoStorage(&'static str),
    /// An NVMe namespace whose format this driver does not use.
    #[error("it cannot be used: {0}")]
    Format(#[from] RefusedFormat),
    /// A controller of an NVMe namespace that this driver does not use.
    #[error("its controller cannot be used: {0}")]
    Controller(#[source] Unusable),
    /// A zoned namespace.
    #[error("it is a zoned namespace ({0}), which takes writes in order only; use one that is not")]
    Zoned(String),
    /// The kernel passes no commands on.
    #[error(
        "the kernel passes no NVMe commands of this user's to it ({0}); be root, use its block device, or have Linux 6.2 and a controller that reports the effects of its commands"
    )]
    NotPassed(io::Error),
    /// A namespace that is to be written, and that nothing could be held of.
    #[error("the kernel has no block device of this namespace, so that it cannot be held; read it with `readonly=yes`, or use another")]
    NoBlockDevice,
    /// The block device of a namespace that is to be written may not be opened.
    #[error(
        "{} is held while commands that write pass beside it, and this user may not open it ({source}); be a member of its group (often `disk`) or root, or read with `readonly=yes`", block.display()
    )]
    Beside {
        /// The block device.
        block: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// `buffered=yes` of a device that has no page cache.
    #[error("commands that pass through the kernel pass no page cache; leave `buffered=yes` out, or use the block device of the namespace")]
    NoPageCache,
    /// `lba=` is finer than the namespace's blocks.
    #[error("`lba={lba}` is no multiple of {block} bytes, the namespace's block; take `lba={block}`, or leave it out")]
    BlockOfNamespace {
        /// What `lba=` says.
        lba: u32,
        /// Bytes of a block of the namespace.
        block: u32,
    },
    /// No regular file is laid out among device nodes.
    #[error("there is no such device, and no file is laid out below /dev; check the name, or whether the device is gone")]
    NoSuchDevice,
    /// The node stands for no device.
    #[error("the device node is there, but no device is behind it ({0}); attach it, or check the name")]
    NoDevice(io::Error),
    /// The system does not allow it.
    #[error("no permission to open it for {} ({source}); {}", access(*writing), remedy(*writing, *device, source))]
    Permission {
        /// For reading and writing; otherwise only for reading.
        writing: bool,
        /// It is a block device.
        device: bool,
        /// The system's error.
        source: io::Error,
    },
    /// No file can be made in the directory.
    #[error("no file can be made in {} ({source}); name another directory, or have this one made writable", dir.display())]
    MayNotMake {
        /// The directory.
        dir: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The device or the file system takes no writes.
    #[error("{0} is read-only; open it with `readonly=yes`")]
    ReadOnly(&'static str),
    /// It is mounted, used as swap, or held by others.
    #[error("it is in use and is not opened for writing: {}; release it, or read it with `readonly=yes`", by.join("; "))]
    Held {
        /// Who holds it, as far as the system tells.
        by: Vec<String>,
    },
    /// Another process, or another device of this one, has the file open.
    #[error("{} has locked it; close that first{}", lockers(by), if *writing { "" } else { " (only readers share a file)" })]
    Locked {
        /// Who, as far as the system tells.
        by: Vec<String>,
        /// It was to be opened for writing.
        writing: bool,
    },
    /// It holds no bytes.
    #[error("it holds 0 bytes; {}", if *device { "nothing is attached to the device, or it has no medium" } else { "`size=` lays it out" })]
    Empty {
        /// It is a block device.
        device: bool,
    },
    /// Its size is not a number of whole blocks.
    #[error("its {bytes} bytes are no multiple of the block of {block} bytes; {}", fit(*bytes, *block, *least))]
    NotWhole {
        /// Its size.
        bytes: u64,
        /// Bytes of a block.
        block: u32,
        /// The smallest block that direct I/O takes here.
        least: u32,
    },
    /// `size=` of a file that has another size.
    #[error("it exists and holds {is} bytes, not `size=` {asked}; leave `size=` out to use it as it is, or remove it")]
    OtherSize {
        /// Its size.
        is: u64,
        /// What `size=` says.
        asked: u64,
    },
    /// `size=` of a block device.
    #[error("`size=` lays out regular files, and a block device has the size that it has; leave `size=` out")]
    SizeOfDevice,
    /// The file system has too little room for a new file.
    #[error("the file system has no room for {asked} bytes ({source}); {free} bytes are free to this user: make room, or ask for less")]
    NoSpace {
        /// What `size=` says.
        asked: u64,
        /// What is left now, the new file removed.
        free: u64,
        /// The system's error: ENOSPC or EDQUOT.
        source: io::Error,
    },
    /// The file system, or the limit of the process, allows no file of this size.
    #[error("no file may have {asked} bytes here: {limit}; ask for less")]
    TooLarge {
        /// What `size=` says.
        asked: u64,
        /// Whose limit it is.
        limit: String,
    },
    /// `lba=` is finer than direct I/O takes.
    #[error("`lba={lba}` is no multiple of {needs} bytes, which direct I/O needs here; take `lba={needs}`, or `buffered=yes`")]
    Alignment {
        /// What `lba=` says.
        lba: u32,
        /// What offsets and lengths must be multiples of.
        needs: u32,
    },
    /// `buffered=no`, and the kernel refuses direct I/O.
    #[error("{why}, and `buffered=no` forbids the page cache; leave `buffered=no` out")]
    NoDirect {
        /// What refuses it.
        why: String,
    },
    /// The path named something else a moment later.
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

fn access(writing: bool) -> &'static str {
    if writing { "reading and writing" } else { "reading" }
}

fn remedy(writing: bool, device: bool, source: &io::Error) -> String {
    // EACCES is about modes. EPERM is not: root gets it as well.
    let by_mode = source.raw_os_error() != Some(Errno::PERM.raw_os_error());
    let allow = match (device, by_mode) {
        (true, true) => "run as a member of the device's group (often `disk`) or as root",
        (false, true) => "change the file's mode or owner",
        (true, false) => "device rules of the container or a security module forbid it: have the device allowed there",
        (false, false) => "it may be immutable or append-only (`lsattr`), or a security module forbids it",
    };
    if writing { format!("{allow}, or read it with `readonly=yes`") } else { allow.to_owned() }
}

fn lockers(by: &[String]) -> impl fmt::Display {
    if by.is_empty() { "another process".to_owned() } else { by.join(", ") }
}

fn fit(bytes: u64, block: u32, least: u32) -> String {
    // A smaller block may fit a size that is fixed.
    if least < block && bytes.is_multiple_of(u64::from(least)) {
        return format!("`lba={least}` would fit");
    }
    let whole = bytes / u64::from(block) * u64::from(block);
    let or_less = if whole > 0 { format!("{whole} or ") } else { String::new() };
    format!("make it {or_less}{} bytes long (`truncate --size`)", whole + u64::from(block))
}
