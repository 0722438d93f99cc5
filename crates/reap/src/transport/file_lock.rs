//! Locks regular files that are opened for writing, so that two devices, or two processes, do not
//! write to the same one. Used by `kernel:`, by `file:` and by servers. Block devices use O_EXCL
//! and `hw::block` instead.
//!
//! The lock is `flock`; `/proc/locks` is read only to name its holder. Swap and loop devices use a
//! regular file without a lock, so they are looked up separately.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use hw::ForkGuard;
use hw::block::{Loop, loops, process_name, swaps};
use rustix::fs::{Dev, major, minor};
use rustix::process::{Resource, getrlimit};

use super::write_back::WriteBack;
use crate::error::TargetFault;

/// How long to retry while the kernel still holds a file or device. It drops its reference to a
/// request that one of its worker threads carried out, such as a Flush, shortly after the
/// completion was reaped.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(300);

/// Retries `attempt` for [`RELEASE_TIMEOUT`] while `held` says that the target is in use. The
/// holder may be a file that was closed just now, or a forked child that keeps copies of all
/// descriptors until it execs.
pub(super) fn retry_while_busy<T, E>(
    attempt: impl Fn() -> Result<T, E>,
    held: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let since = Instant::now();
    loop {
        match attempt() {
            Err(e) if held(&e) && since.elapsed() < RELEASE_TIMEOUT => {
                thread::sleep(RELEASE_TIMEOUT / 100)
            }
            tried => return tried,
        }
    }
}

/// How a regular file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileAccess {
    /// For reading, shared with other readers.
    Read,
    /// For writing, exclusively.
    Write,
    /// For writing, shared with others that set `share=yes` too.
    Share,
}

/// Locks a regular file: against writers, and if it is to be written against all other users.
/// Returns notes for the user.
///
/// `flock`, not POSIX locks: it belongs to the open file description, so it also keeps out a second
/// device of this process, and no unrelated `close` releases it. It ends with the last descriptor,
/// a forked child's included.
///
/// # Errors
/// It is locked or in use, or larger than this process may write.
pub(super) fn lock(file: &File, access: FileAccess) -> Result<Vec<String>, TargetFault> {
    let meta =
        file.metadata().map_err(|source| TargetFault::System { what: "examine it", source })?;
    let id = FileId::of(&meta);
    let writing = access != FileAccess::Read;
    let lock =
        || if access == FileAccess::Write { file.try_lock() } else { file.try_lock_shared() };
    let mut notes = Vec::new();
    match retry_while_busy(lock, |e| matches!(e, TryLockError::WouldBlock)) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(locked(id, writing)),
        // Some network file systems have no locks; they can be used all the same.
        Err(TryLockError::Error(e)) => notes.push(format!(
            "the file system locks no files ({e}), so others may write to it as well"
        )),
    }
    if !writing {
        return Ok(notes);
    }
    let by = file_users(id);
    if by.is_empty() { check_limit(meta.len()).map(|()| notes) } else { Err(in_use(&by)) }
}

/// The error for a file that is locked. `writing`: this process wanted to write to it.
fn locked(file: FileId, writing: bool) -> TargetFault {
    let by: Vec<_> =
        locks(file).iter().filter(|lock| lock.kind == "FLOCK").map(LockRecord::holder).collect();
    let by = if by.is_empty() { "another process".to_owned() } else { by.join(", ") };
    TargetFault::InUse(format!(
        "{by} has locked it; close that first{}",
        if writing { "" } else { " (only readers share a file)" }
    ))
}

/// The error for a target that `by` use while this process wants to write to it.
pub(super) fn in_use(by: &[String]) -> TargetFault {
    TargetFault::InUse(format!(
        "it is in use and is not opened for writing: {}; release it, or read it with `readonly=yes`",
        by.join("; ")
    ))
}

/// Checks that this process may write a file of `bytes` bytes: a write past RLIMIT_FSIZE raises
/// SIGXFSZ, which ends the process (setrlimit(2)).
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

/// A regular file that `file:` devices and servers of this process write to, with one lock for all
/// of them.
#[derive(Debug)]
pub(super) struct LockedFile {
    id: FileId,
    /// The open file description that is locked. Each user reads and writes through its own.
    file: File,
    access: FileAccess,
    born: ForkGuard,
    pub(super) write_back: WriteBack,
}

impl LockedFile {
    /// The lock of `file`, which is open for writing: the one that this process has, or a new one.
    ///
    /// # Errors
    /// See [`lock`].
    pub(super) fn of(file: &File, access: FileAccess) -> Result<Arc<LockedFile>, TargetFault> {
        static ALL: Mutex<Vec<Weak<LockedFile>>> = Mutex::new(Vec::new());
        let failed = |what| move |source: io::Error| TargetFault::System { what, source };
        let id = FileId::of(&file.metadata().map_err(failed("examine it"))?);
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|shared| shared.strong_count() > 0);
        // After a fork the child has a copy of its parent's list, but not the right to its locks.
        if let Some(shared) = all
            .iter()
            .filter_map(Weak::upgrade)
            .find(|shared| shared.id == id && shared.born.same_process())
        {
            // An exclusive user cannot join a shared lock: other processes may hold it as well.
            let allowed = access == FileAccess::Share || shared.access == FileAccess::Write;
            return if allowed { Ok(shared) } else { Err(locked(id, true)) };
        }
        let notes = lock(file, access)?;
        notes.iter().for_each(|note| tracing::warn!("{note}"));
        let file = file.try_clone().map_err(failed("hold it"))?;
        let shared = Arc::new(LockedFile {
            id,
            file,
            access,
            born: ForkGuard::current(),
            write_back: WriteBack::default(),
        });
        all.push(Arc::downgrade(&shared));
        Ok(shared)
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Unlocked by name: a forked child's copy of the descriptor would keep the lock. The child
        // in turn must not release its parent's.
        if self.born.same_process() {
            let _ = self.file.unlock();
        }
    }
}

/// A file's identity: device and inode number.
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

/// Users of a regular file that hold no `flock` and would be damaged by writes to it: swap, loop
/// devices, and holders of byte-range locks (databases; QEMU locks its images this way).
pub(super) fn file_users(file: FileId) -> Vec<String> {
    let swap = swaps(Path::new("/"))
        .iter()
        .any(|path| file.is_at(path))
        .then(|| "used as swap".to_owned());
    let is_of = |used: &Loop| {
        used.id.map_or_else(
            || file.is_at(&used.path),
            |(device, inode)| file == FileId { device, inode },
        )
    };
    let looped = loops().into_iter().filter(is_of);
    let looped =
        looped.map(|used| format!("attached to /dev/{0} (`losetup --detach /dev/{0}`)", used.name));
    let locked = locks(file).into_iter().filter(|lock| lock.kind != "FLOCK");
    let locked = locked.map(|lock| format!("parts of it are locked by {}", lock.holder()));
    let users: BTreeSet<String> = swap.into_iter().chain(looped).chain(locked).collect();
    users.into_iter().collect()
}

/// One line of /proc/locks (proc_locks(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
struct LockRecord {
    /// FLOCK, POSIX or OFDLCK.
    kind: String,
    /// `None`: it belongs to an open file description, or to a process that this one cannot see.
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
        // A waiting lock has `->` as its second field, and one field more than these: it does not
        // match.
        let [_, kind @ ("FLOCK" | "POSIX" | "OFDLCK"), _, _, pid, of, ..] = fields[..] else {
            return None;
        };
        let seen = pid.parse().is_ok_and(|pid: i64| pid > 0);
        (of == id).then(|| LockRecord { kind: kind.to_owned(), pid: seen.then(|| pid.to_owned()) })
    };
    text.lines().filter_map(lock).collect()
}

#[cfg(test)]
mod tests;
