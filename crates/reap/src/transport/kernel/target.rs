//! Opens a file, block device or NVMe character device, locks it, and finds its limits before the
//! first request.
//!
//! The order matters: look at the path without opening it (opening has effects), open it, check
//! that it is still the same, lock it, and only then touch it.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, SeekFrom as Extent, fcntl_getfl, seek};
use rustix::io::Errno;

use super::direct::{self, Alignment, IoPath};
use super::layout::{self, NewFile};
use super::namespace::{self, IdentifyData, Passthrough};
use super::uri::{Buffered, KernelUri};
use crate::error::{OpenError, TargetFault};
use crate::transport::file_lock::{self, FileAccess, retry_while_busy};
use crate::transport::write_back::WriteBack;
use hw::block::{Disk, Identity, Users, mount_of, mounts};

/// Alignment of buffers for pass-through commands, in bytes: dwords (Base §4.1.1).
const DWORD: u32 = 4;

/// An open file or block device. While it is open for writing, no one else writes to it: a block
/// device is opened exclusively (O_EXCL, open(2)), a file is locked (flock(2)).
#[derive(Debug)]
pub(crate) struct Target {
    file: File,
    facts: TargetFacts,
    notes: Vec<String>,
    /// The block device of a namespace that is written through its character device, opened
    /// exclusively so that no one mounts it.
    _held: Option<File>,
    /// The process that opened it.
    pid: u32,
    write_back: WriteBack,
}

/// The limits and properties of a target.
#[derive(Clone, Debug)]
pub(crate) struct TargetFacts {
    /// File, block device or namespace.
    pub(crate) kind: TargetKind,
    /// Bytes at open: whole blocks, at least one.
    pub(crate) bytes: u64,
    /// Bytes of a logical block: a power of two, 512 or more. Offsets and lengths are multiples of
    /// it.
    pub(crate) lba_bytes: u32,
    /// Alignment of buffers in bytes; 1 if I/O goes through the page cache.
    pub(crate) mem_align: u32,
    /// I/O goes past the page cache.
    pub(crate) direct: bool,
    /// Writes are refused.
    pub(crate) read_only: bool,
    /// The limits of the disk that it is, or that its file system is on, if that is one disk.
    pub(crate) disk: Option<DiskFacts>,
    /// Model and so on, for display. Of a file: its file system and its path.
    pub(crate) identity: Identity,
}

/// What a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetKind {
    /// A regular file.
    File {
        /// Its file system, such as `ext4`.
        filesystem: String,
    },
    /// A block device.
    Block {
        /// It is a partition.
        partition: bool,
        /// The kernel's name of the whole disk: `nvme0n1`.
        disk: String,
    },
    /// An NVMe namespace by its character device, which passes commands through.
    Namespace(Passthrough),
}

/// The disk's limits from sysfs (Documentation/ABI/stable/sysfs-block).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiskFacts {
    /// The kernel's name of the whole disk.
    pub(crate) name: String,
    /// It is a rotating disk, or does not report.
    pub(crate) rotational: bool,
    /// Largest command in bytes; the kernel splits longer requests. `None`: not reported.
    pub(crate) max_transfer: Option<u64>,
    /// It claims to have poll queues. Only a test shows whether polling works.
    pub(crate) poll_queues: bool,
    /// It may lose acknowledged writes unless they are flushed; assumed if it does not report.
    pub(crate) volatile_cache: bool,
    /// It supports Write Zeroes.
    pub(crate) write_zeroes: bool,
    /// It can deallocate.
    pub(crate) discard: bool,
}

impl Target {
    /// Opens the target of `uri`, for writing too if `writable` and the URI does not forbid it.
    ///
    /// # Errors
    /// See [`TargetFault`].
    pub(crate) fn open(uri: &KernelUri, writable: bool) -> Result<Target, OpenError> {
        let opening = OpenRequest { uri, writing: writable && !uri.read_only };
        opening.open().map_err(|fault| OpenError::Kernel { path: uri.path.clone(), fault })
    }

    /// The open file. Its file offset is not used.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Opens the file once more, for one ring. The kernel reports a failed write-back once to each
    /// open file description: a queue with its own does not miss the report because another thread
    /// reaped it.
    ///
    /// # Errors
    /// It cannot be opened by its descriptor: no /proc, or not by this user.
    pub(crate) fn reopen(&self) -> io::Result<File> {
        // O_EXCL would fail against our own exclusive open.
        let flags = fcntl_getfl(&self.file)? - OFlags::CREATE - OFlags::EXCL;
        let options = OpenOptions::new()
            .read(true)
            .write(!self.facts.read_only)
            .custom_flags(flags.bits().cast_signed())
            .clone();
        options.open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Writes lost since it was opened.
    pub(crate) fn write_back(&self) -> &WriteBack {
        &self.write_back
    }

    /// Whether writes go through the page cache, so that errors appear only at write-back.
    pub(crate) fn uses_page_cache(&self) -> bool {
        !self.facts.direct
    }

    /// Whether it is a regular file that was truncated since it was opened.
    pub(crate) fn is_truncated(&self) -> bool {
        matches!(self.facts.kind, TargetKind::File { .. })
            && self.write_back.is_truncated(&self.file, self.facts.bytes)
    }

    /// Its limits and properties.
    pub(crate) fn facts(&self) -> &TargetFacts {
        &self.facts
    }

    /// Notes for the user, one sentence each.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Its present size in bytes, whole blocks or not: it may have grown, shrunk, or disappeared
    /// since it was opened.
    ///
    /// # Errors
    /// The system does not say.
    pub(crate) fn current_bytes(&self) -> io::Result<u64> {
        match self.facts.kind {
            TargetKind::File { .. } => Ok(self.file.metadata()?.len()),
            TargetKind::Block { .. } => (&self.file).seek(SeekFrom::End(0)),
            TargetKind::Namespace(passthrough) => {
                namespace::current_bytes(&self.file, passthrough.nsid)
            }
        }
    }

    /// Whether a device has disappeared since it was opened, as far as the system shows: its disk
    /// has no size any more.
    pub(crate) fn is_gone(&self) -> bool {
        match (&self.facts.kind, self.current_bytes()) {
            (TargetKind::File { .. }, _) => false,
            (_, Ok(bytes)) => bytes == 0,
            // Other errors of Identify do not mean that the device is gone.
            (TargetKind::Namespace(_), Err(e)) => {
                matches!(Errno::from_io_error(&e), Some(Errno::NODEV | Errno::NXIO | Errno::NOTTY))
            }
            (TargetKind::Block { .. }, Err(_)) => true,
        }
    }

    /// The present size of a file in bytes, if it is smaller than at open.
    pub(crate) fn truncated_to(&self) -> Option<u64> {
        let (TargetKind::File { .. }, Ok(bytes)) = (&self.facts.kind, self.current_bytes()) else {
            return None;
        };
        (bytes < self.facts.bytes).then_some(bytes)
    }

    /// Its pass-through parameters, if it is an NVMe character device.
    pub(crate) fn passthrough(&self) -> Option<Passthrough> {
        if let TargetKind::Namespace(passthrough) = self.facts.kind {
            Some(passthrough)
        } else {
            None
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // The kernel holds the file for a moment after a request that one of its workers carried
        // out, so it is unlocked explicitly. Not in a forked child: the lock is its parent's.
        if self.pid == std::process::id() {
            // An error changes nothing: the file is closed in any case.
            let _ = self.file.unlock();
        }
    }
}

/// A request to open a target.
struct OpenRequest<'a> {
    uri: &'a KernelUri,
    writing: bool,
}

/// What a path names.
enum PathKind {
    Missing,
    File,
    Block(Metadata),
    /// An NVMe character device, with its block device.
    Namespace(Metadata, Option<Disk>),
}

impl OpenRequest<'_> {
    fn open(&self) -> Result<Target, TargetFault> {
        match (self.examine()?, self.uri.bytes) {
            (PathKind::Missing, _) => self.create(),
            (PathKind::File, _) => self.regular(),
            (PathKind::Block(_) | PathKind::Namespace(..), Some(_)) => Err(TargetFault::Parameter(
                "`size=` lays out regular files, and a block device has the size that it has; leave `size=` out".into(),
            )),
            (PathKind::Block(meta), None) => self.block(&meta),
            (PathKind::Namespace(meta, disk), None) => self.namespace(&meta, disk),
        }
    }

    /// Examines the path before it is opened, because opening has effects: a FIFO waits, a tape
    /// rewinds, a watchdog starts.
    fn examine(&self) -> Result<PathKind, TargetFault> {
        let path = &self.uri.path;
        let meta = match fs::metadata(path) {
            Ok(meta) => meta,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return match fs::read_link(path) {
                    Ok(to) => Err(TargetFault::NotFound(format!(
                        "it is a symbolic link to {}, which does not exist",
                        to.display()
                    ))),
                    Err(_) => Ok(PathKind::Missing),
                };
            }
            Err(e) => return Err(self.refused(e, false)),
        };
        let kind = meta.file_type();
        let unsupported = |what| {
            TargetFault::Unusable(format!(
                "it is {what}; only regular files, block devices and NVMe namespaces can be used"
            ))
        };
        match kind {
            _ if kind.is_file() => Ok(PathKind::File),
            _ if kind.is_block_device() => Ok(PathKind::Block(meta)),
            _ if kind.is_dir() => Err(TargetFault::Unusable(
                "it is a directory; name a file in it, and `size=` lays that out".into(),
            )),
            _ if kind.is_fifo() => Err(unsupported("a FIFO")),
            _ if kind.is_socket() => Err(unsupported("a socket")),
            _ => match Disk::of_character(Path::new("/"), meta.rdev()) {
                Some(disk) => Ok(PathKind::Namespace(meta, disk)),
                None => Err(unsupported("a character device")),
            },
        }
    }

    fn create(&self) -> Result<Target, TargetFault> {
        let path = &self.uri.path;
        let bytes = match self.uri.bytes {
            // A mistyped device name must not become a file in memory (devtmpfs) that fills up.
            _ if path.starts_with("/dev") && !path.starts_with("/dev/shm") => Err(
                "there is no such device, and no file is laid out below /dev; check the name, or whether the device is gone",
            ),
            _ if path.starts_with("~") => {
                Err("there is no such file; `~` is the shell's: write the path out")
            }
            None => Err("there is no such file; `size=` lays one out"),
            Some(_) if !self.writing => Err(
                "there is no such file, and a device that is opened only for reading lays none out",
            ),
            Some(bytes) => Ok(bytes),
        };
        let bytes = bytes.map_err(|why| TargetFault::NotFound(why.into()))?;
        let dir = layout::parent(path);
        let file = layout::create(path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => TargetFault::NotFound(format!("there is no directory {}; make it first", dir.display())),
            // Another process has just created it: it is not ours to lay out.
            ErrorKind::AlreadyExists => TargetFault::Replaced,
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => TargetFault::Permission {
                what: format!("no file can be made in {} ({e}); name another directory, or have this one made writable", dir.display()),
                source: e,
            },
            _ => self.refused(e, false),
        })?;
        let new = NewFile::new(path, &file, true);
        let notes = file_lock::lock(&file, FileAccess::Write)?;
        new.lay_out(bytes)?;
        self.file_target(file, notes)
    }

    fn regular(&self) -> Result<Target, TargetFault> {
        // O_NONBLOCK: if a FIFO has replaced the file since, opening it must not wait.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.open_with(&self.uri.path, flags).map_err(|e| self.refused(e, false))?;
        let meta = file.metadata().map_err(stat_failed)?;
        if !meta.is_file() {
            return Err(TargetFault::Replaced);
        }
        let notes = file_lock::lock(
            &file,
            if self.writing { FileAccess::Write } else { FileAccess::Read },
        )?;
        match (self.uri.bytes, meta.len()) {
            // An empty file is laid out like a new one.
            (Some(asked), 0) if self.writing => {
                NewFile::new(&self.uri.path, &file, false).lay_out(asked)?
            }
            (Some(asked), is) if asked != is => {
                return Err(TargetFault::Parameter(format!(
                    "it exists and holds {is} bytes, not `size=` {asked}; leave `size=` out to use it as it is, or remove it"
                )));
            }
            _ => {}
        }
        self.file_target(file, notes)
    }

    fn block(&self, meta: &Metadata) -> Result<Target, TargetFault> {
        let disk = Disk::of(Path::new("/"), meta.rdev());
        let file = self.open_exclusive(&self.uri.path, meta.rdev(), disk.as_ref())?;
        let name =
            disk.as_ref().map_or_else(|| self.uri.path.display().to_string(), Disk::whole_name);
        let kind = TargetKind::Block {
            partition: disk.as_ref().is_some_and(Disk::is_partition),
            disk: name,
        };
        let identity = disk.as_ref().map(Disk::identity).unwrap_or_default();
        let bytes = (&file)
            .seek(SeekFrom::End(0))
            .map_err(|source| TargetFault::System { what: "ask its size", source })?;
        self.target(file, TargetParams { kind, identity, bytes, disk, notes: Vec::new() })
    }

    /// Opens the block device with this device number, exclusively if it is to be written.
    fn open_exclusive(
        &self,
        path: &Path,
        number: u64,
        disk: Option<&Disk>,
    ) -> Result<File, TargetFault> {
        let flags = if self.writing { OFlags::EXCL } else { OFlags::empty() };
        let file = retry_while_busy(
            || self.open_with(path, flags),
            |e| Errno::from_io_error(e) == Some(Errno::BUSY),
        )
        .map_err(|e| match Errno::from_io_error(&e) {
            Some(Errno::BUSY) => file_lock::in_use(
                &disk.map_or_else(Vec::new, |disk| Users::at(Path::new("/")).holders(disk)),
            ),
            Some(Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM) => no_device(&e),
            Some(_) if self.writing && disk.is_some_and(Disk::read_only) => {
                TargetFault::ReadOnly("the device")
            }
            _ => self.refused(e, true),
        })?;
        let opened = file.metadata().map_err(stat_failed)?;
        // The node may have been replaced between stat and open.
        if !opened.file_type().is_block_device() || opened.rdev() != number {
            return Err(TargetFault::Replaced);
        }
        // Some drivers allow opening for writing and then fail the writes.
        if self.writing && disk.is_some_and(Disk::read_only) {
            return Err(TargetFault::ReadOnly("the device"));
        }
        Ok(file)
    }

    fn namespace(&self, meta: &Metadata, disk: Option<Disk>) -> Result<Target, TargetFault> {
        if self.uri.buffered == Buffered::Yes {
            return Err(TargetFault::Parameter(
                "commands that pass through the kernel pass no page cache; leave `buffered=yes` out, or use the block device of the namespace"
                    .into(),
            ));
        }
        let file =
            self.open_with(&self.uri.path, OFlags::empty()).map_err(|e| self.refused(e, true))?;
        if file.metadata().map_err(stat_failed)?.rdev() != meta.rdev() {
            return Err(TargetFault::Replaced);
        }
        let identify = IdentifyData::read(&file)?;
        let disk = disk.ok_or_else(no_block_device)?;
        if disk.nsid().is_some_and(|nsid| nsid != identify.usable.nsid.0) {
            return Err(TargetFault::Replaced);
        }
        // A zoned namespace must be written in order, which this transport does not do.
        if let Some(zoned) = disk.attribute("queue/zoned").filter(|zoned| zoned != "none") {
            let why = format!(
                "it is a zoned namespace ({zoned}), which takes writes in order only; use one that is not"
            );
            return Err(TargetFault::Unusable(why));
        }
        let held = if self.writing { Some(self.open_block_device(&disk)?) } else { None };
        self.namespace_target(file, held, &disk, &identify)
    }

    /// Opens the namespace's block device exclusively, because others would write through it.
    fn open_block_device(&self, disk: &Disk) -> Result<File, TargetFault> {
        let (node, number) = (disk.node(), disk.number().ok_or_else(no_block_device)?);
        self.open_exclusive(&node, number, Some(disk)).map_err(|fault| match fault {
            TargetFault::Permission { source, .. } => TargetFault::Permission {
                what: format!(
                    "{} is held while pass-through commands write, and this user may not open it ({source}); be a member of its group (often `disk`) or root, or read with `readonly=yes`",
                    node.display()
                ),
                source,
            },
            other => other,
        })
    }

    fn namespace_target(
        &self,
        file: File,
        held: Option<File>,
        disk: &Disk,
        identify: &IdentifyData,
    ) -> Result<Target, TargetFault> {
        let block = u32::try_from(identify.usable.block_size()).unwrap_or(u32::MAX);
        let (lba_bytes, bytes) = (self.uri.lba_bytes.unwrap_or(block), identify.usable.bytes());
        if !lba_bytes.is_multiple_of(block) {
            return Err(TargetFault::Parameter(format!(
                "`lba={lba_bytes}` is no multiple of {block} bytes, the namespace's block; take `lba={block}`, or leave it out"
            )));
        }
        if !bytes.is_multiple_of(u64::from(lba_bytes)) {
            return Err(not_whole(bytes, lba_bytes, block));
        }
        let passthrough = identify.passthrough(lba_bytes, disk, !self.writing)?;
        let facts = TargetFacts {
            kind: TargetKind::Namespace(passthrough),
            bytes,
            lba_bytes,
            mem_align: DWORD,
            direct: true,
            read_only: !self.writing || identify.usable.read_only,
            disk: Some(DiskFacts::of(disk).with_limits(&identify.limits)),
            identity: disk.identity(),
        };
        Ok(Target {
            file,
            facts,
            notes: Vec::new(),
            _held: held,
            pid: std::process::id(),
            write_back: WriteBack::default(),
        })
    }

    fn file_target(&self, file: File, mut notes: Vec<String>) -> Result<Target, TargetFault> {
        let meta = file.metadata().map_err(stat_failed)?;
        let root = Path::new("/");
        let mounts = mounts(root);
        let whole = fs::canonicalize(&self.uri.path).unwrap_or_default();
        let mount = mount_of(&mounts, meta.dev(), &whole);
        let disk = Disk::of(root, meta.dev()).or_else(|| Disk::of(root, mount?.device()?));
        let filesystem = mount
            .map_or_else(|| "unknown file system".to_owned(), |mount| mount.filesystem.clone());
        let identity = Identity {
            model: Some(format!("{filesystem} file {}", self.uri.path.display())),
            ..Identity::default()
        };
        if matches!(&*filesystem, "tmpfs" | "ramfs" | "rootfs") {
            notes.push(format!("the file is in memory ({filesystem}), not on a disk"));
        }
        if let Some(note) = holes(&file, meta.len()) {
            notes.push(note);
        }
        self.target(
            file,
            TargetParams {
                kind: TargetKind::File { filesystem },
                identity,
                bytes: meta.len(),
                disk,
                notes,
            },
        )
    }

    fn target(&self, file: File, params: TargetParams) -> Result<Target, TargetFault> {
        let TargetParams { kind, identity, bytes, disk, mut notes } = params;
        let device = matches!(kind, TargetKind::Block { .. });
        if bytes == 0 {
            let why = if device {
                "nothing is attached to the device, or it has no medium"
            } else {
                "`size=` lays it out"
            };
            return Err(TargetFault::NotFound(format!("it holds 0 bytes; {why}")));
        }
        // The disk's alignment applies to the device itself, not to a file on it.
        let io_path = direct::choose(&file, self.uri.buffered, disk.as_ref().filter(|_| device))?;
        let (direct, Alignment { offset, memory }) = match io_path {
            IoPath::Direct(alignment) => (true, alignment),
            IoPath::Buffered(why) => {
                notes.extend(why);
                (false, Alignment { offset: 1, memory: 1 })
            }
        };
        let least = offset.max(512);
        let lba_bytes = self.uri.lba_bytes.unwrap_or(least);
        if !lba_bytes.is_multiple_of(least) {
            return Err(TargetFault::Parameter(format!(
                "`lba={lba_bytes}` is no multiple of {least} bytes, which direct I/O needs here; take `lba={least}`, or `buffered=yes`"
            )));
        }
        let rest = bytes % u64::from(lba_bytes);
        if rest > 0 && (device || rest == bytes) {
            return Err(not_whole(bytes, lba_bytes, least));
        }
        if rest > 0 {
            // A file may end in a partial block; a device may not.
            notes.push(format!("the last {rest} of the file's {bytes} bytes are no whole block of {lba_bytes} bytes; they are not used"));
        }
        let bytes = bytes - rest;
        let disk = disk.as_ref().map(DiskFacts::of);
        let facts = TargetFacts {
            kind,
            bytes,
            lba_bytes,
            mem_align: memory,
            direct,
            read_only: !self.writing,
            disk,
            identity,
        };
        Ok(Target {
            file,
            facts,
            notes,
            _held: None,
            pid: std::process::id(),
            write_back: WriteBack::default(),
        })
    }

    fn open_with(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(self.writing)
            .custom_flags(flags.bits().cast_signed())
            .open(path)
    }

    fn refused(&self, source: io::Error, device: bool) -> TargetFault {
        match Errno::from_io_error(&source) {
            Some(errno @ (Errno::ACCESS | Errno::PERM)) => {
                // EACCES is about file modes. EPERM is not: root gets it as well.
                let allow = match (device, errno == Errno::ACCESS) {
                    (true, true) => {
                        "run as a member of the device's group (often `disk`) or as root"
                    }
                    (false, true) => "change the file's mode or owner",
                    (true, false) => {
                        "device rules of the container or a security module forbid it: have the device allowed there"
                    }
                    (false, false) => {
                        "it may be immutable or append-only (`lsattr`), or a security module forbids it"
                    }
                };
                let (access, or) = match self.writing {
                    true => ("reading and writing", ", or read it with `readonly=yes`"),
                    false => ("reading", ""),
                };
                TargetFault::Permission {
                    what: format!("no permission to open it for {access} ({source}); {allow}{or}"),
                    source,
                }
            }
            Some(Errno::ROFS) => TargetFault::ReadOnly("the file system"),
            // It existed a moment ago.
            Some(Errno::NOENT) => TargetFault::Replaced,
            _ => TargetFault::System { what: "open it", source },
        }
    }
}

/// What is known of a target before its I/O path is chosen.
struct TargetParams {
    kind: TargetKind,
    identity: Identity,
    bytes: u64,
    disk: Option<Disk>,
    notes: Vec<String>,
}

impl DiskFacts {
    fn of(disk: &Disk) -> DiskFacts {
        let some = |name: &str| disk.queue(name).is_some_and(|n| n > 0);
        DiskFacts {
            name: disk.whole_name(),
            rotational: disk.queue("rotational") != Some(0),
            max_transfer: disk.queue("max_sectors_kb").map(|kib| kib.saturating_mul(1024)),
            poll_queues: disk.queue("io_poll") == Some(1),
            volatile_cache: disk
                .attribute("queue/write_cache")
                .is_none_or(|text| text != "write through"),
            write_zeroes: some("write_zeroes_max_bytes"),
            discard: some("discard_max_bytes"),
        }
    }
}

impl DiskFacts {
    /// Replaces what the kernel reports by the controller's own limits: the kernel adds what it
    /// emulates, which pass-through commands do not have.
    fn with_limits(self, limits: &driver::Limits) -> DiskFacts {
        let (write_zeroes, discard) = (limits.write_zeroes.is_some(), limits.deallocate.is_some());
        DiskFacts { volatile_cache: limits.volatile_cache, write_zeroes, discard, ..self }
    }
}

pub(super) fn no_device(source: &io::Error) -> TargetFault {
    TargetFault::NotFound(format!(
        "the device node is there, but no device is behind it ({source}); attach it, or check the name"
    ))
}

fn no_block_device() -> TargetFault {
    TargetFault::Unusable(
        "the kernel has no block device of this namespace, so that it cannot be held; read it with `readonly=yes`, or use another".into(),
    )
}

/// The error for a size that is no multiple of the block size. `least`: the smallest block size
/// possible here.
fn not_whole(bytes: u64, block: u32, least: u32) -> TargetFault {
    // The size of a device is fixed, but a smaller block may fit it.
    let remedy = if least < block && bytes.is_multiple_of(u64::from(least)) {
        format!("`lba={least}` would fit")
    } else {
        let whole = bytes / u64::from(block) * u64::from(block);
        let or_less = if whole > 0 { format!("{whole} or ") } else { String::new() };
        format!("make it {or_less}{} bytes long (`truncate --size`)", whole + u64::from(block))
    };
    TargetFault::Parameter(format!(
        "its {bytes} bytes are no multiple of the block of {block} bytes; {remedy}"
    ))
}

fn stat_failed(source: io::Error) -> TargetFault {
    TargetFault::System { what: "examine it", source }
}

/// A note if the file has holes: reads of them never reach the disk.
fn holes(file: &File, bytes: u64) -> Option<String> {
    let first = seek(file, Extent::Hole(0)).ok().filter(|&at| at < bytes)?;
    Some(format!(
        "the file has holes (the first at byte {first}): reads of them do not reach the disk, and writes allocate"
    ))
}

#[cfg(test)]
mod tests;
