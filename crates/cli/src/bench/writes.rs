//! Whether jobs may write to a file or a block device, and what they would write over.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use workload::Job;

/// What jobs may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Regular files of the user's own.
    Own,
    /// Whatever the system allows (`--allow-writes`).
    All,
}

/// Whether `job` changes what its devices hold: it writes or trims.
pub fn to(job: &Job) -> bool {
    job.pattern.changes() && job.verify.as_ref().is_none_or(|verify| !verify.only)
}

/// Refuses what `users` would write to `path`, unless that is a regular file of the user's own or all is `allowed`.
///
/// # Errors
/// It says what would be lost.
pub fn check(path: &Path, meta: &Metadata, users: &[&Job], allowed: Allowed) -> Result<()> {
    let own = meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw();
    // Neither file nor block device: it is refused for what it is.
    if own || allowed == Allowed::All || !(meta.is_file() || meta.file_type().is_block_device()) {
        return Ok(());
    }
    let (device, what) = if meta.is_file() {
        (None, format!("a regular file of user {}", meta.uid()))
    } else {
        let disk = sys_of(meta.rdev());
        (Some(disk.clone()), format!("a block device{}", holds(path, &disk)))
    };
    let bytes = device.map_or(meta.len(), |disk| sectors(&disk).saturating_mul(512));
    let (from, to) = range(users, bytes);
    let place = path.display();
    bail!(
        "it would write over bytes {from} to {to} of {place}, {what}, and what they hold would be lost. \
         --allow-writes lets it; rw=read or rw=randread needs no leave"
    )
}

/// The bytes that `users` write to, at most, of a target of `bytes`.
fn range(users: &[&Job], bytes: u64) -> (u64, u64) {
    let part = |job: &&&Job| {
        let start = job.offset.on(bytes).min(bytes);
        let last = job.offset_increment.on(bytes).saturating_mul(u64::from(job.numjobs.max(1)) - 1);
        let end = job.size.map_or(bytes, |size| start.saturating_add(last).saturating_add(size.on(bytes)));
        (start, end.min(bytes))
    };
    let writers = users.iter().filter(|job| to(job));
    let all = writers.map(|job| part(&job)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    all.unwrap_or((0, bytes))
}

/// What the system says of a block device.
fn sys_of(dev: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev)))
}

fn sectors(disk: &Path) -> u64 {
    fs::read_to_string(disk.join("size")).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// ` with the partitions vda1, vda2`, ` that holds an ext4 file system`, or nothing.
fn holds(path: &Path, disk: &Path) -> String {
    let entries = fs::read_dir(disk).into_iter().flatten().flatten();
    let mut parts: Vec<String> = entries
        .filter(|entry| entry.path().join("partition").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    parts.sort_unstable();
    match (parts.as_slice(), File::open(path).ok().and_then(|file| signature(&file))) {
        ([], None) => String::new(),
        ([], Some(what)) => format!(" that holds {what}"),
        (parts, _) => format!(" with the partitions {}", parts.join(", ")),
    }
}

/// What begins so: where, with which bytes (as libblkid knows them).
const SIGNATURES: [(u64, &[u8], &str); 9] = [
    (0x438, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x10040, b"_BHRfS_M", "a Btrfs file system"),
    (0x400, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS file system"),
    (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    (0x218, b"LVM2 001", "an LVM volume"),
    (4086, b"SWAPSPACE2", "swap space"),
    (512, b"EFI PART", "a partition table (GPT)"),
    (510, &[0x55, 0xaa], "a boot sector or a partition table (MBR)"),
];

fn signature(file: &File) -> Option<&'static str> {
    let matches = |&&(at, magic, _): &&(u64, &[u8], &str)| {
        let mut found = [0; 8 + 2];
        let found = &mut found[..magic.len()];
        file.read_exact_at(found, at).is_ok() && found == magic
    };
    SIGNATURES.iter().find(matches).map(|&(_, _, name)| name)
}

#[cfg(test)]
mod tests;
