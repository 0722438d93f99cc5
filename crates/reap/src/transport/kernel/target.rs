//! A file or a block device, opened and held, and what is known of it before the first request.

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
use crate::error::{TargetError, TargetFault};
use crate::transport::file_lock::{self, FileAccess, retry_while_busy};
use crate::transport::write_back::WriteBack;
use hw::block::{Disk, Identity, Users, mount_of, mounts};

/// What addresses of buffers are multiples of, with commands that pass through: dwords (Base 4.1.1).
const DWORD: u32 = 4;

/// An open file or block device. While it is open nobody else writes to it: a block device is held exclusively
/// (O_EXCL, open(2)), a file by an advisory lock (flock(2)).
#[derive(Debug)]
pub(crate) struct Target {
    file: File,
    facts: TargetFacts,
    notes: Vec<String>,
    /// Of a namespace that is written by its character device, its block device: nobody mounts it meanwhile.
    _held: Option<File>,
    /// The process that has opened it.
    pid: u32,
    write_back: WriteBack,
}

/// What is known of a target.
#[derive(Clone, Debug)]
pub(crate) struct TargetFacts {
    /// File, block device or namespace.
    pub(crate) kind: TargetKind,
    /// Bytes at open: whole blocks, at least one.
    pub(crate) bytes: u64,
    /// Bytes of a logical block: a power of two, 512 or more. Offsets and lengths are multiples of it.
    pub(crate) lba_bytes: u32,
    /// What addresses of buffers are multiples of, in bytes: 1 if I/O goes through the page cache.
    pub(crate) mem_align: u32,
    /// I/O goes past the page cache.
    pub(crate) direct: bool,
    /// Nothing can be written.
    pub(crate) read_only: bool,
    /// What the disk says that it is, or that the file lies on, if it is one disk.
    pub(crate) disk: Option<DiskFacts>,
    /// For people. Of a file: its file system and its path.
    pub(crate) identity: Identity,
}

/// What a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetKind {
    /// A regular file.
    File {
        /// Of which file system: `ext4`.
        filesystem: String,
    },
    /// A block device.
    Block {
        /// It is a part of a disk.
        partition: bool,
        /// The kernel's name of the whole disk: `nvme0n1`.
        disk: String,
    },
    /// An NVMe namespace by its character device, which passes commands through.
    Namespace(Passthrough),
}

/// What the disk's queue says of itself (Documentation/ABI/stable/sysfs-block).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiskFacts {
    /// The kernel's name of the whole disk.
    pub(crate) name: String,
    /// It has moving parts, or does not say.
    pub(crate) rotational: bool,
    /// The most bytes that the kernel makes one command of; longer requests are split. `None`: it does not say.
    pub(crate) max_transfer: Option<u64>,
    /// It has poll queues, as it says: whether polling really works only a trial shows.
    pub(crate) poll_queues: bool,
    /// It can lose acknowledged writes unless they are flushed. What does not say may.
    pub(crate) volatile_cache: bool,
    /// It can write zeroes without being sent them.
    pub(crate) write_zeroes: bool,
    /// It can deallocate.
    pub(crate) discard: bool,
}

impl Target {
    /// Opens what `uri` names, for writing too if `writable` and the URI does not forbid it.
    ///
    /// # Errors
    /// See [`TargetFault`].
    pub(crate) fn open(uri: &KernelUri, writable: bool) -> Result<Target, TargetError> {
        let opening = OpenRequest { uri, writing: writable && !uri.read_only };
        opening.open().map_err(|fault| TargetError { path: uri.path.clone(), fault })
    }

    /// The descriptor. Its offset means nothing.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The file opened once more, for one ring. The kernel reports a failed write-back once for each open file: a queue whose file is
    /// its own does not depend on when another thread takes its completions.
    ///
    /// # Errors
    /// It cannot be opened by its descriptor: no /proc, or not by this user.
    pub(crate) fn reopen(&self) -> io::Result<File> {
        let flags = fcntl_getfl(&self.file)? - OFlags::CREATE - OFlags::EXCL;
        let options = OpenOptions::new().read(true).write(!self.facts.read_only).custom_flags(flags.bits().cast_signed()).clone();
        options.open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// What it has lost since it was opened.
    pub(crate) fn write_back(&self) -> &WriteBack {
        &self.write_back
    }

    /// Whether writes pass the page cache, so that they are lost, if they are, when it is written back.
    pub(crate) fn uses_page_cache(&self) -> bool {
        !self.facts.direct
    }

    /// Whether it is a regular file that holds less than when it was opened.
    pub(crate) fn is_truncated(&self) -> bool {
        matches!(self.facts.kind, TargetKind::File { .. }) && self.write_back.is_truncated(&self.file, self.facts.bytes)
    }

    /// What is known of it.
    pub(crate) fn facts(&self) -> &TargetFacts {
        &self.facts
    }

    /// What is otherwise than one would expect: a sentence each.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Bytes that it has now, whole blocks or not: it may have grown, shrunk, or gone away since it was opened.
    ///
    /// # Errors
    /// The system does not say.
    pub(crate) fn current_bytes(&self) -> io::Result<u64> {
        match self.facts.kind {
            TargetKind::File { .. } => Ok(self.file.metadata()?.len()),
            TargetKind::Block { .. } => (&self.file).seek(SeekFrom::End(0)),
            TargetKind::Namespace(passthrough) => namespace::current_bytes(&self.file, passthrough.nsid),
        }
    }

    /// Whether a device that was there when it was opened has gone since, as far as the system tells: of its disk it shows no size.
    pub(crate) fn is_gone(&self) -> bool {
        match (&self.facts.kind, self.current_bytes()) {
            (TargetKind::File { .. }, _) => false,
            (_, Ok(bytes)) => bytes == 0,
            // A namespace may also be kept from telling.
            (TargetKind::Namespace(_), Err(e)) => matches!(Errno::from_io_error(&e), Some(Errno::NODEV | Errno::NXIO | Errno::NOTTY)),
            (TargetKind::Block { .. }, Err(_)) => true,
        }
    }

    /// How many bytes a file holds now, if these are fewer than when it was opened.
    pub(crate) fn truncated_to(&self) -> Option<u64> {
        let (TargetKind::File { .. }, Ok(bytes)) = (&self.facts.kind, self.current_bytes()) else { return None };
        (bytes < self.facts.bytes).then_some(bytes)
    }

    /// How commands pass through it, if they do.
    pub(crate) fn passthrough(&self) -> Option<Passthrough> {
        if let TargetKind::Namespace(passthrough) = self.facts.kind { Some(passthrough) } else { None }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Of a request that a worker of the kernel has carried out the kernel lets go a little later, and of the file with it. A child's
        // descriptor is its parent's file, with the parent's lock.
        if self.pid == std::process::id() {
            // It is closed in any case.
            let _ = self.file.unlock();
        }
    }
}

/// One opening.
struct OpenRequest<'a> {
    uri: &'a KernelUri,
    writing: bool,
}

/// What stands behind a path.
enum PathKind {
    Missing,
    File,
    Block(Metadata),
    /// With its block device.
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

    /// Looked at before it is opened, because opening has effects: a FIFO waits, a tape rewinds, a watchdog starts.
    fn examine(&self) -> Result<PathKind, TargetFault> {
        let path = &self.uri.path;
        let meta = match fs::metadata(path) {
            Ok(meta) => meta,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return match fs::read_link(path) {
                    Ok(to) => Err(TargetFault::NotFound(format!("it is a symbolic kernel_file to {}, which does not exist", to.display()))),
                    Err(_) => Ok(PathKind::Missing),
                };
            }
            Err(e) => return Err(self.refused(e, false)),
        };
        let kind = meta.file_type();
        let unsupported =
            |what| TargetFault::Unusable(format!("it is {what}; only regular files, block devices and NVMe namespaces can be used"));
        match kind {
            _ if kind.is_file() => Ok(PathKind::File),
            _ if kind.is_block_device() => Ok(PathKind::Block(meta)),
            _ if kind.is_dir() => Err(TargetFault::Unusable("it is a directory; name a file in it, and `size=` lays that out".into())),
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
            // A mistyped name of a device becomes no file in memory that fills up.
            _ if path.starts_with("/dev") && !path.starts_with("/dev/shm") => {
                Err("there is no such device, and no file is laid out below /dev; check the name, or whether the device is gone")
            }
            _ if path.starts_with("~") => Err("there is no such file; `~` is the shell's: write the path out"),
            None => Err("there is no such file; `size=` lays one out"),
            Some(_) if !self.writing => Err("there is no such file, and a device that is opened only for reading lays none out"),
            Some(bytes) => Ok(bytes),
        };
        let bytes = bytes.map_err(|why| TargetFault::NotFound(why.into()))?;
        let dir = layout::parent(path);
        let file = layout::create(path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => TargetFault::NotFound(format!("there is no directory {}; make it first", dir.display())),
            // Somebody else has just made it: whatever it is, it is not ours to lay out.
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
        // Should a FIFO have taken its place just now, opening does not wait for a peer.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.open_with(&self.uri.path, flags).map_err(|e| self.refused(e, false))?;
        let meta = file.metadata().map_err(stat_failed)?;
        if !meta.is_file() {
            return Err(TargetFault::Replaced);
        }
        let notes = file_lock::lock(&file, if self.writing { FileAccess::Write } else { FileAccess::Read })?;
        match (self.uri.bytes, meta.len()) {
            // An empty file is as good as none.
            (Some(asked), 0) if self.writing => NewFile::new(&self.uri.path, &file, false).lay_out(asked)?,
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
        let name = disk.as_ref().map_or_else(|| self.uri.path.display().to_string(), Disk::whole_name);
        let kind = TargetKind::Block { partition: disk.as_ref().is_some_and(Disk::is_partition), disk: name };
        let identity = disk.as_ref().map(Disk::identity).unwrap_or_default();
        let bytes = (&file).seek(SeekFrom::End(0)).map_err(|source| TargetFault::System { what: "ask its size", source })?;
        self.target(file, TargetParams { kind, identity, bytes, disk, notes: Vec::new() })
    }

    /// Opens the block device of this number, and keeps others from writing if this one is to.
    fn open_exclusive(&self, path: &Path, number: u64, disk: Option<&Disk>) -> Result<File, TargetFault> {
        let flags = if self.writing { OFlags::EXCL } else { OFlags::empty() };
        let file = retry_while_busy(|| self.open_with(path, flags), |e| Errno::from_io_error(e) == Some(Errno::BUSY)).map_err(|e| {
            match Errno::from_io_error(&e) {
                Some(Errno::BUSY) => file_lock::in_use(&disk.map_or_else(Vec::new, |disk| Users::at(Path::new("/")).holders(disk))),
                Some(Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM) => no_device(&e),
                Some(_) if self.writing && disk.is_some_and(Disk::read_only) => TargetFault::ReadOnly("the device"),
                _ => self.refused(e, true),
            }
        })?;
        let opened = file.metadata().map_err(stat_failed)?;
        if !opened.file_type().is_block_device() || opened.rdev() != number {
            return Err(TargetFault::Replaced);
        }
        // Some drivers open for writing what they then do not write.
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
        let file = self.open_with(&self.uri.path, OFlags::empty()).map_err(|e| self.refused(e, true))?;
        if file.metadata().map_err(stat_failed)?.rdev() != meta.rdev() {
            return Err(TargetFault::Replaced);
        }
        let identify = IdentifyData::read(&file)?;
        let disk = disk.ok_or_else(no_block_device)?;
        if disk.nsid().is_some_and(|nsid| nsid != identify.usable.nsid.0) {
            return Err(TargetFault::Replaced);
        }
        // A zoned namespace takes commands of its own.
        if let Some(zoned) = disk.attribute("queue/zoned").filter(|zoned| zoned != "none") {
            let why = format!("it is a zoned namespace ({zoned}), which takes writes in order only; use one that is not");
            return Err(TargetFault::Unusable(why));
        }
        let held = if self.writing { Some(self.open_block_device(&disk)?) } else { None };
        self.namespace_target(file, held, &disk, &identify)
    }

    /// Holds the block device, through which others would write.
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

    fn namespace_target(&self, file: File, held: Option<File>, disk: &Disk, identify: &IdentifyData) -> Result<Target, TargetFault> {
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
        Ok(Target { file, facts, notes: Vec::new(), _held: held, pid: std::process::id(), write_back: WriteBack::default() })
    }

    fn file_target(&self, file: File, mut notes: Vec<String>) -> Result<Target, TargetFault> {
        let meta = file.metadata().map_err(stat_failed)?;
        let root = Path::new("/");
        let mounts = mounts(root);
        let whole = fs::canonicalize(&self.uri.path).unwrap_or_default();
        let mount = mount_of(&mounts, meta.dev(), &whole);
        let disk = Disk::of(root, meta.dev()).or_else(|| Disk::of(root, mount?.device()?));
        let filesystem = mount.map_or_else(|| "unknown file system".to_owned(), |mount| mount.filesystem.clone());
        let identity = Identity { model: Some(format!("{filesystem} file {}", self.uri.path.display())), ..Identity::default() };
        if matches!(&*filesystem, "tmpfs" | "ramfs" | "rootfs") {
            notes.push(format!("the file lies in memory ({filesystem}): no disk takes part"));
        }
        if let Some(note) = holes(&file, meta.len()) {
            notes.push(note);
        }
        self.target(file, TargetParams { kind: TargetKind::File { filesystem }, identity, bytes: meta.len(), disk, notes })
    }

    fn target(&self, file: File, params: TargetParams) -> Result<Target, TargetFault> {
        let TargetParams { kind, identity, bytes, disk, mut notes } = params;
        let device = matches!(kind, TargetKind::Block { .. });
        if bytes == 0 {
            let why = if device { "nothing is attached to the device, or it has no medium" } else { "`size=` lays it out" };
            return Err(TargetFault::NotFound(format!("it holds 0 bytes; {why}")));
        }
        // What a file lies on says nothing of how the file system aligns.
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
            notes.push(format!("the last {rest} of the file's {bytes} bytes are no whole block of {lba_bytes} bytes; they are not used"));
        }
        let bytes = bytes - rest;
        let disk = disk.as_ref().map(DiskFacts::of);
        let facts = TargetFacts { kind, bytes, lba_bytes, mem_align: memory, direct, read_only: !self.writing, disk, identity };
        Ok(Target { file, facts, notes, _held: None, pid: std::process::id(), write_back: WriteBack::default() })
    }

    fn open_with(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        OpenOptions::new().read(true).write(self.writing).custom_flags(flags.bits().cast_signed()).open(path)
    }

    fn refused(&self, source: io::Error, device: bool) -> TargetFault {
        match Errno::from_io_error(&source) {
            Some(errno @ (Errno::ACCESS | Errno::PERM)) => {
                // EACCES is about modes. EPERM is not: root gets it as well.
                let allow = match (device, errno == Errno::ACCESS) {
                    (true, true) => "run as a member of the device's group (often `disk`) or as root",
                    (false, true) => "change the file's mode or owner",
                    (true, false) => "device rules of the container or a security module forbid it: have the device allowed there",
                    (false, false) => "it may be immutable or append-only (`lsattr`), or a security module forbids it",
                };
                let (access, or) = match self.writing {
                    true => ("reading and writing", ", or read it with `readonly=yes`"),
                    false => ("reading", ""),
                };
                TargetFault::Permission { what: format!("no permission to open it for {access} ({source}); {allow}{or}"), source }
            }
            Some(Errno::ROFS) => TargetFault::ReadOnly("the file system"),
            // It was there a moment ago.
            Some(Errno::NOENT) => TargetFault::Replaced,
            _ => TargetFault::System { what: "open it", source },
        }
    }
}

/// What kind of target it is, before it is known how I/O goes.
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
            volatile_cache: disk.attribute("queue/write_cache").is_none_or(|text| text != "write through"),
            write_zeroes: some("write_zeroes_max_bytes"),
            discard: some("discard_max_bytes"),
        }
    }
}

impl DiskFacts {
    /// With what the controller says in place of what the kernel makes of it: it adds what it does itself.
    fn with_limits(self, limits: &driver::Limits) -> DiskFacts {
        let (write_zeroes, discard) = (limits.write_zeroes.is_some(), limits.deallocate.is_some());
        DiskFacts { volatile_cache: limits.volatile_cache, write_zeroes, discard, ..self }
    }
}

pub(super) fn no_device(source: &io::Error) -> TargetFault {
    TargetFault::NotFound(format!("the device node is there, but no device is behind it ({source}); attach it, or check the name"))
}

fn no_block_device() -> TargetFault {
    TargetFault::Unusable(
        "the kernel has no block device of this namespace, so that it cannot be held; read it with `readonly=yes`, or use another".into(),
    )
}

/// `bytes` are no whole blocks of `block` bytes. `least`: the smallest block that can be had here.
fn not_whole(bytes: u64, block: u32, least: u32) -> TargetFault {
    // A smaller block may fit a size that is fixed.
    let remedy = if least < block && bytes.is_multiple_of(u64::from(least)) {
        format!("`lba={least}` would fit")
    } else {
        let whole = bytes / u64::from(block) * u64::from(block);
        let or_less = if whole > 0 { format!("{whole} or ") } else { String::new() };
        format!("make it {or_less}{} bytes long (`truncate --size`)", whole + u64::from(block))
    };
    TargetFault::Parameter(format!("its {bytes} bytes are no multiple of the block of {block} bytes; {remedy}"))
}

fn stat_failed(source: io::Error) -> TargetFault {
    TargetFault::System { what: "examine it", source }
}

/// Reads of a hole never reach the disk.
fn holes(file: &File, bytes: u64) -> Option<String> {
    let first = seek(file, Extent::Hole(0)).ok().filter(|&at| at < bytes)?;
    Some(format!("the file has holes (the first at byte {first}): reads of them do not reach the disk, and writes allocate"))
}

#[cfg(test)]
mod tests;
