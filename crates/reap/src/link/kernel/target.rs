//! A file or a block device, opened and held, and what is known of it before the first request.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, SeekFrom as Extent, seek};
use rustix::io::Errno;

use super::direct::{self, Alignment, Way};
use super::disk::{Disk, Identity};
use super::hold::{self, FileId};
use super::layout::{self, NewFile};
use super::uri::KernelUri;
use crate::error::{TargetError, TargetFault};

/// How long the kernel may need to let go of a device: of a request that one of its workers has carried out, such as a Flush, it lets
/// go after its completion was taken.
const LETTING_GO: Duration = Duration::from_millis(300);

/// An open file or block device. While it is open nobody else writes to it: a block device is held exclusively
/// (O_EXCL, open(2)), a file by an advisory lock (flock(2)).
#[derive(Debug)]
pub(crate) struct Target {
    file: File,
    facts: Facts,
    notes: Vec<String>,
    /// The process that has opened it.
    pid: u32,
}

/// What is known of a target.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// File or block device.
    pub(crate) kind: Kind,
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
pub(crate) enum Kind {
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
        let opening = Opening { uri, writing: writable && !uri.read_only };
        opening.open().map_err(|fault| TargetError { path: uri.path.clone(), fault })
    }

    /// The descriptor. Its offset means nothing.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// What is known of it.
    pub(crate) fn facts(&self) -> &Facts {
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
            Kind::File { .. } => Ok(self.file.metadata()?.len()),
            Kind::Block { .. } => (&self.file).seek(SeekFrom::End(0)),
        }
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
struct Opening<'a> {
    uri: &'a KernelUri,
    writing: bool,
}

/// What stands behind a path.
enum Found {
    Nothing,
    Regular,
    Block(Metadata),
}

impl Opening<'_> {
    fn open(&self) -> Result<Target, TargetFault> {
        match (self.look()?, self.uri.bytes) {
            (Found::Nothing, Some(bytes)) => self.create(bytes),
            (Found::Nothing, None) => Err(self.absent()),
            (Found::Regular, _) => self.regular(),
            (Found::Block(_), Some(_)) => Err(TargetFault::SizeOfDevice),
            (Found::Block(meta), None) => self.block(&meta),
        }
    }

    /// Looked at before it is opened, because opening has effects: a FIFO waits, a tape rewinds, a watchdog starts.
    fn look(&self) -> Result<Found, TargetFault> {
        let path = &self.uri.path;
        let meta = match fs::metadata(path) {
            Ok(meta) => meta,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return fs::read_link(path).map_or(Ok(Found::Nothing), |to| Err(TargetFault::Dangling { to }));
            }
            Err(e) => return Err(self.refused(e, false)),
        };
        let kind = meta.file_type();
        match kind {
            _ if kind.is_file() => Ok(Found::Regular),
            _ if kind.is_block_device() => Ok(Found::Block(meta)),
            _ if kind.is_dir() => Err(TargetFault::Directory),
            _ if kind.is_fifo() => Err(TargetFault::NoStorage("a FIFO")),
            _ if kind.is_socket() => Err(TargetFault::NoStorage("a socket")),
            _ => Err(nvme_block(path).map_or(TargetFault::NoStorage("a character device"), |block| TargetFault::NvmeCharacter { block })),
        }
    }

    fn absent(&self) -> TargetFault {
        match self.uri.path.starts_with("/dev") && !self.uri.path.starts_with("/dev/shm") {
            true => TargetFault::NoSuchDevice,
            false => TargetFault::NotFound { tilde: self.uri.path.starts_with("~") },
        }
    }

    fn create(&self, bytes: u64) -> Result<Target, TargetFault> {
        // A mistyped name of a device becomes no file in memory that fills up.
        let absent = self.absent();
        if matches!(absent, TargetFault::NoSuchDevice | TargetFault::NotFound { tilde: true }) {
            return Err(absent);
        }
        if !self.writing {
            return Err(TargetFault::NotLaidOut);
        }
        let path = &self.uri.path;
        let file = layout::create(path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => TargetFault::NoParent(layout::parent(path)),
            // Somebody else has just made it: whatever it is, it is not ours to lay out.
            ErrorKind::AlreadyExists => TargetFault::Replaced,
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => TargetFault::MayNotMake { dir: layout::parent(path), source: e },
            _ => self.refused(e, false),
        })?;
        let new = NewFile::new(path, &file, true);
        let notes = self.lock(&file, &file.metadata().map_err(stat_failed)?)?;
        new.lay_out(bytes)?;
        self.file_target(file, notes)
    }

    fn regular(&self) -> Result<Target, TargetFault> {
        // Should a FIFO have taken its place just now, opening does not wait for a peer.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.open_with(flags).map_err(|e| self.refused(e, false))?;
        let meta = file.metadata().map_err(stat_failed)?;
        if !meta.is_file() {
            return Err(TargetFault::Replaced);
        }
        let notes = self.lock(&file, &meta)?;
        match (self.uri.bytes, meta.len()) {
            // An empty file is as good as none.
            (Some(asked), 0) if self.writing => NewFile::new(&self.uri.path, &file, false).lay_out(asked)?,
            (Some(asked), is) if asked != is => return Err(TargetFault::OtherSize { is, asked }),
            _ => {}
        }
        self.file_target(file, notes)
    }

    /// `flock`, not POSIX locks: it belongs to the open file, so that a second device of this process is kept out as well, and no
    /// unrelated `close` lets go of it. It ends with the last descriptor, a forked child's included.
    fn lock(&self, file: &File, meta: &Metadata) -> Result<Vec<String>, TargetFault> {
        let id = FileId::of(meta);
        let locked = if self.writing { file.try_lock() } else { file.try_lock_shared() };
        let mut notes = Vec::new();
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(TargetFault::Locked { by: hold::lockers(id), writing: self.writing }),
            // Some network file systems lock nothing; they can be used all the same.
            Err(TryLockError::Error(e)) => notes.push(format!("the file system locks no files ({e}), so others may write to it as well")),
        }
        let by = if self.writing { hold::file_users(id) } else { Vec::new() };
        if by.is_empty() { Ok(notes) } else { Err(TargetFault::Held { by }) }
    }

    fn block(&self, meta: &Metadata) -> Result<Target, TargetFault> {
        let disk = Disk::of(meta.rdev());
        let flags = if self.writing { OFlags::EXCL } else { OFlags::empty() };
        let file = self.open_once_free(flags).map_err(|e| match Errno::from_io_error(&e) {
            Some(Errno::BUSY) => TargetFault::Held { by: disk.as_ref().map_or_else(Vec::new, hold::device_holders) },
            Some(Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM) => TargetFault::NoDevice(e),
            Some(_) if self.writing && disk.as_ref().is_some_and(Disk::read_only) => TargetFault::ReadOnly("the device"),
            _ => self.refused(e, true),
        })?;
        let opened = file.metadata().map_err(stat_failed)?;
        if !opened.file_type().is_block_device() || opened.rdev() != meta.rdev() {
            return Err(TargetFault::Replaced);
        }
        // Some drivers open for writing what they then do not write.
        if self.writing && disk.as_ref().is_some_and(Disk::read_only) {
            return Err(TargetFault::ReadOnly("the device"));
        }
        let name = disk.as_ref().map_or_else(|| self.uri.path.display().to_string(), Disk::whole_name);
        let kind = Kind::Block { partition: disk.as_ref().is_some_and(Disk::is_partition), disk: name };
        let identity = disk.as_ref().map(Disk::identity).unwrap_or_default();
        let bytes = (&file).seek(SeekFrom::End(0)).map_err(|source| TargetFault::System { what: "ask its size", source })?;
        self.target(file, Asked { kind, identity, bytes, disk, notes: Vec::new() })
    }

    fn file_target(&self, file: File, mut notes: Vec<String>) -> Result<Target, TargetFault> {
        let meta = file.metadata().map_err(stat_failed)?;
        let mounts = hold::mounts();
        let whole = fs::canonicalize(&self.uri.path).unwrap_or_default();
        let mount = hold::mount_of(&mounts, meta.dev(), &whole);
        let disk = Disk::of(meta.dev()).or_else(|| Disk::of(mount?.device()?));
        let filesystem = mount.map_or_else(|| "unknown file system".to_owned(), |mount| mount.filesystem.clone());
        let identity = Identity { model: Some(format!("{filesystem} file {}", self.uri.path.display())), ..Identity::default() };
        if matches!(&*filesystem, "tmpfs" | "ramfs" | "rootfs") {
            notes.push(format!("the file lies in memory ({filesystem}): no disk takes part"));
        }
        if let Some(note) = holes(&file, meta.len()) {
            notes.push(note);
        }
        self.target(file, Asked { kind: Kind::File { filesystem }, identity, bytes: meta.len(), disk, notes })
    }

    fn target(&self, file: File, asked: Asked) -> Result<Target, TargetFault> {
        let Asked { kind, identity, bytes, disk, mut notes } = asked;
        let device = matches!(kind, Kind::Block { .. });
        if bytes == 0 {
            return Err(TargetFault::Empty { device });
        }
        // What a file lies on says nothing of how the file system aligns.
        let way = direct::settle(&file, self.uri.buffered, disk.as_ref().filter(|_| device))?;
        let (direct, Alignment { offset, memory }) = match way {
            Way::Direct(alignment) => (true, alignment),
            Way::Buffered(why) => {
                notes.extend(why);
                (false, Alignment { offset: 1, memory: 1 })
            }
        };
        let least = offset.max(512);
        let lba_bytes = self.uri.lba_bytes.unwrap_or(least);
        if !lba_bytes.is_multiple_of(least) {
            return Err(TargetFault::Alignment { lba: lba_bytes, needs: least });
        }
        if !bytes.is_multiple_of(u64::from(lba_bytes)) {
            return Err(TargetFault::NotWhole { bytes, block: lba_bytes, least });
        }
        let disk = disk.as_ref().map(DiskFacts::of);
        let facts = Facts { kind, bytes, lba_bytes, mem_align: memory, direct, read_only: !self.writing, disk, identity };
        Ok(Target { file, facts, notes, pid: std::process::id() })
    }

    fn open_with(&self, flags: OFlags) -> io::Result<File> {
        OpenOptions::new().read(true).write(self.writing).custom_flags(flags.bits().cast_signed()).open(&self.uri.path)
    }

    /// The same for a block device, which may be held for a moment by what was closed just now.
    fn open_once_free(&self, flags: OFlags) -> io::Result<File> {
        let since = Instant::now();
        loop {
            match self.open_with(flags) {
                Err(e) if Errno::from_io_error(&e) == Some(Errno::BUSY) && since.elapsed() < LETTING_GO => thread::sleep(LETTING_GO / 100),
                opened => return opened,
            }
        }
    }

    fn refused(&self, source: io::Error, device: bool) -> TargetFault {
        match Errno::from_io_error(&source) {
            Some(Errno::ACCESS | Errno::PERM) => TargetFault::Permission { writing: self.writing, device, source },
            Some(Errno::ROFS) => TargetFault::ReadOnly("the file system"),
            // It was there a moment ago.
            Some(Errno::NOENT) => TargetFault::Replaced,
            _ => TargetFault::System { what: "open it", source },
        }
    }
}

/// What kind of target it is, before it is known how I/O goes.
struct Asked {
    kind: Kind,
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
            volatile_cache: disk.queue_text("write_cache").is_none_or(|text| text != "write through"),
            write_zeroes: some("write_zeroes_max_bytes"),
            discard: some("discard_max_bytes"),
        }
    }
}

fn stat_failed(source: io::Error) -> TargetFault {
    TargetFault::System { what: "examine it", source }
}

/// The block device of the namespace that an NVMe character device (`/dev/ng0n1`) stands for; `None`: it is none.
fn nvme_block(path: &Path) -> Option<Option<PathBuf>> {
    let name = path.file_name()?.to_str()?;
    let rest = name.strip_prefix("ng").filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))?;
    let block = path.with_file_name(format!("nvme{rest}"));
    Some(block.exists().then_some(block))
}

/// Reads of a hole never reach the disk.
fn holes(file: &File, bytes: u64) -> Option<String> {
    let first = seek(file, Extent::Hole(0)).ok().filter(|&at| at < bytes)?;
    Some(format!("the file has holes (the first at byte {first}): reads of them do not reach the disk, and writes allocate"))
}

#[cfg(test)]
mod tests;
