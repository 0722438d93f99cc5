//! The guard of regular files that are opened for writing, by `kernel:`, by `file:` and by a server; of block devices O_EXCL and
//! `hw::block` are that.
//!
//! The refusal itself is the kernel's: `flock`. What is read here names the holder. Two users of a regular file take no lock of
//! their own, so that they are looked for: swap, and loop devices.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use hw::Birth;
use hw::block::{Loop, loops, process_name, swaps};
use rustix::fs::{Dev, major, minor};
use rustix::process::{Resource, getrlimit};

use super::write_back::WriteBack;
use crate::error::TargetFault;

/// How long the kernel may need to let go of a file or device: of a request that one of its workers has carried out, such as a
/// Flush, it lets go after its completion was taken.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(300);

/// Tries for a while what fails while the target is held: it may be so for a moment by what was closed just now, or by a child of this
/// process that has its copies of all descriptors until it runs its program.
pub(super) fn retry_while_busy<T, E>(attempt: impl Fn() -> Result<T, E>, held: impl Fn(&E) -> bool) -> Result<T, E> {
    let since = Instant::now();
    loop {
        match attempt() {
            Err(e) if held(&e) && since.elapsed() < RELEASE_TIMEOUT => thread::sleep(RELEASE_TIMEOUT / 100),
            tried => return tried,
        }
    }
}

/// What a regular file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileAccess {
    /// Reading, next to other readers.
    Read,
    /// Writing, alone.
    Write,
    /// Writing, next to others that say so too (`share=yes`).
    Share,
}

/// Keeps writers from a regular file, and if it is written all other users: notes for the user.
///
/// `flock`, not POSIX locks: it belongs to the open file, so that a second device of this process is kept out as well, and no
/// unrelated `close` lets go of it. It ends with the last descriptor, a forked child's included.
///
/// # Errors
/// It is locked or in use, or larger than this process may write.
pub(super) fn lock(file: &File, access: FileAccess) -> Result<Vec<String>, TargetFault> {
    let meta = file.metadata().map_err(|source| TargetFault::System { what: "examine it", source })?;
    let id = FileId::of(&meta);
    let writing = access != FileAccess::Read;
    let lock = || if access == FileAccess::Write { file.try_lock() } else { file.try_lock_shared() };
    let mut notes = Vec::new();
    match retry_while_busy(lock, |e| matches!(e, TryLockError::WouldBlock)) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(locked(id, writing)),
        // Some network file systems lock nothing; they can be used all the same.
        Err(TryLockError::Error(e)) => notes.push(format!("the file system locks no files ({e}), so others may write to it as well")),
    }
    if !writing {
        return Ok(notes);
    }
    let by = file_users(id);
    if by.is_empty() { check_limit(meta.len()).map(|()| notes) } else { Err(in_use(&by)) }
}

/// The file is locked, for who wants to write it or to read it alone.
fn locked(file: FileId, writing: bool) -> TargetFault {
    let by: Vec<_> = locks(file).iter().filter(|lock| lock.kind == "FLOCK").map(LockRecord::holder).collect();
    let by = if by.is_empty() { "another process".to_owned() } else { by.join(", ") };
    TargetFault::InUse(format!("{by} has locked it; close that first{}", if writing { "" } else { " (only readers share a file)" }))
}

/// `by` use what is to be written.
pub(super) fn in_use(by: &[String]) -> TargetFault {
    TargetFault::InUse(format!("it is in use and is not opened for writing: {}; release it, or read it with `readonly=yes`", by.join("; ")))
}

/// Whether this process may write a file of `bytes` bytes: a write controller RLIMIT_FSIZE is a signal, which ends it (setrlimit(2)).
///
/// # Errors
/// Its limit is lower.
pub(super) fn check_limit(bytes: u64) -> Result<(), TargetFault> {
    within(bytes, getrlimit(Resource::Fsize).current)
}

fn within(bytes: u64, limit: Option<u64>) -> Result<(), TargetFault> {
    match limit {
        Some(limit) if limit < bytes => Err(TargetFault::NoSpace(format!(
            "no file may have {bytes} bytes here: this process may write files of {limit} bytes (`ulimit -f`); ask for less"
        ))),
        _ => Ok(()),
    }
}

/// A regular file that the `file:` devices and servers of this process write to, one guard for all of them.
#[derive(Debug)]
pub(super) struct LockedFile {
    id: FileId,
    /// The description that is locked. Each user has one of its own beside it.
    file: File,
    access: FileAccess,
    born: Birth,
    pub(super) write_back: WriteBack,
}

impl LockedFile {
    /// The guard of `file`, which is open for writing: the one that this process has, or a new one.
    ///
    /// # Errors
    /// See [`lock`].
    pub(super) fn of(file: &File, access: FileAccess) -> Result<Arc<LockedFile>, TargetFault> {
        static ALL: Mutex<Vec<Weak<LockedFile>>> = Mutex::new(Vec::new());
        let failed = |what| move |source: io::Error| TargetFault::System { what, source };
        let id = FileId::of(&file.metadata().map_err(failed("examine it"))?);
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|shared| shared.strong_count() > 0);
        // A forked child has its parent's, and is another process.
        if let Some(shared) = all.iter().filter_map(Weak::upgrade).find(|shared| shared.id == id && shared.born.is_here()) {
            // Other processes may write to what it shares.
            let alone = access == FileAccess::Share || shared.access == FileAccess::Write;
            return if alone { Ok(shared) } else { Err(locked(id, true)) };
        }
        let notes = lock(file, access)?;
        notes.iter().for_each(|note| tracing::warn!("{note}"));
        let file = file.try_clone().map_err(failed("hold it"))?;
        let shared = Arc::new(LockedFile { id, file, access, born: Birth::here(), write_back: WriteBack::default() });
        all.push(Arc::downgrade(&shared));
        Ok(shared)
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // A forked child's copy of the descriptor would keep the lock; but the child itself must not end its parent's.
        if self.born.is_here() {
            let _ = self.file.unlock();
        }
    }
}

/// Which file it is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: Dev,
    inode: u64,
}

impl FileId {
    pub(super) fn of(meta: &fs::Metadata) -> FileId {
        FileId { device: meta.dev(), inode: meta.ino() }
    }

    fn is_at(self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|meta| FileId::of(&meta) == self)
    }
}

/// Who uses a regular file without a `flock`, and would be damaged by writes past it: swap, loop devices, and the holders
/// of byte-range locks (databases; QEMU locks the images of its guests so).
pub(super) fn file_users(file: FileId) -> Vec<String> {
    let swap = swaps(Path::new("/")).iter().any(|path| file.is_at(path)).then(|| "used as swap".to_owned());
    let is_of = |used: &Loop| used.id.map_or_else(|| file.is_at(&used.path), |(device, inode)| file == FileId { device, inode });
    let looped = loops().into_iter().filter(is_of);
    let looped = looped.map(|used| format!("attached to /dev/{0} (`losetup --detach /dev/{0}`)", used.name));
    let locked = locks(file).into_iter().filter(|lock| lock.kind != "FLOCK");
    let locked = locked.map(|lock| format!("parts of it are locked by {}", lock.holder()));
    let users: BTreeSet<String> = swap.into_iter().chain(looped).chain(locked).collect();
    users.into_iter().collect()
}

/// One lock of a file (proc_locks(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
struct LockRecord {
    /// FLOCK, POSIX or OFDLCK.
    kind: String,
    /// `None`: it belongs to an open file, or to a process that this one cannot see.
    pid: Option<String>,
}

impl LockRecord {
    fn holder(&self) -> String {
        self.pid.as_deref().map_or_else(|| "another process".to_owned(), process_name)
    }
}

fn locks(file: FileId) -> Vec<LockRecord> {
    parse_locks(&fs::read_to_string("/proc/locks").unwrap_or_default(), file)
}

fn parse_locks(text: &str, file: FileId) -> Vec<LockRecord> {
    let id = format!("{:02x}:{:02x}:{}", major(file.device), minor(file.device), file.inode);
    let lock = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        // One that waits has `->` as its second field, and one more than these.
        let [_, kind @ ("FLOCK" | "POSIX" | "OFDLCK"), _, _, pid, of, ..] = fields[..] else { return None };
        let seen = pid.parse().is_ok_and(|pid: i64| pid > 0);
        (of == id).then(|| LockRecord { kind: kind.to_owned(), pid: seen.then(|| pid.to_owned()) })
    };
    text.lines().filter_map(lock).collect()
}

#[cfg(test)]
mod tests;
