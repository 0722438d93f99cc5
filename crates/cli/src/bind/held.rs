//! Namespaces of a controller, held so that nobody can use them meanwhile; and who uses a file.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hw::pci::Function;
use rustix::fs::OFlags;
use rustix::io::Errno;

/// The whole of each namespace, opened for this process alone (O_EXCL, open(2)): no file system is mounted from it or from a partition of
/// it, no swap, no volume, no other such user is there, and none comes.
#[derive(Debug)]
pub struct Held {
    _files: Vec<File>,
}

impl Held {
    /// The namespaces of a controller that the kernel's driver has; none of another.
    ///
    /// # Errors
    /// One is in use.
    pub fn namespaces(function: &Function) -> Result<Held> {
        let disks = disks(function.path(), Path::new("/sys/class/nvme-subsystem")).context("cannot read its namespaces in /sys")?;
        let hold = |name: &String| {
            let path = PathBuf::from("/dev").join(name);
            match OpenOptions::new().read(true).custom_flags(OFlags::EXCL.bits() as i32).open(&path) {
                Ok(file) => Ok(file),
                Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                    bail!("{}: {} is in use: {}", function.bdf, path.display(), users(name))
                }
                Err(error) => Err(error).with_context(|| format!("{}: cannot hold {}", function.bdf, path.display())),
            }
        };
        Ok(Held { _files: disks.iter().map(hold).collect::<Result<_>>()? })
    }
}

/// The block devices of a controller's namespaces. With native multipath the namespace is the subsystem's, whichever controllers lead to it.
fn disks(function: &Path, subsystems: &Path) -> std::io::Result<Vec<String>> {
    let mut found = Vec::new();
    for controller in names(&function.join("nvme"))? {
        let at = function.join("nvme").join(&controller);
        for name in names(&at)?.into_iter().filter(|name| name.starts_with("nvme")) {
            // nvme0c1n2 is a path to a namespace of subsystem 0: nvme0n2.
            match name.strip_prefix("nvme").and_then(|rest| rest.split_once('c')).zip(name.rsplit_once('n')) {
                Some(((subsystem, _), (_, namespace))) => found.push(format!("nvme{subsystem}n{namespace}")),
                None => found.push(name),
            }
        }
        // The heads of its subsystem, should a path not be shown.
        for subsystem in names(subsystems)? {
            let at = subsystems.join(&subsystem);
            if at.join(&controller).exists() {
                found.extend(names(&at)?.into_iter().filter(|name| is_head(name)));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// `nvme0n1`, not `nvme0` nor `nvme0c1n1`.
fn is_head(name: &str) -> bool {
    let number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    name.strip_prefix("nvme").and_then(|rest| rest.split_once('n')).is_some_and(|(one, two)| number(one) && number(two))
}

fn names(directory: &Path) -> std::io::Result<Vec<String>> {
    match fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => Ok(entries?.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()),
    }
}

/// Who has a disk or a partition of it, as far as the system tells.
fn users(disk: &str) -> String {
    let mut all = Vec::new();
    let sys = Path::new("/sys/class/block").join(disk);
    let parts = names(&sys).unwrap_or_default().into_iter().filter(|name| sys.join(name).join("partition").exists());
    for part in std::iter::once(disk.to_owned()).chain(parts) {
        let node = format!("/dev/{part}");
        all.extend(first_fields("/proc/self/mounts", &node).map(|place| format!("{node} is mounted at {place}")));
        all.extend(first_fields("/proc/swaps", &node).map(|_| format!("{node} is swap space")));
        let holders = names(&Path::new("/sys/class/block").join(&part).join("holders")).unwrap_or_default();
        all.extend(holders.iter().map(|holder| format!("{node} is held by {holder}")));
        all.extend(users_of(&node).into_iter().map(|process| format!("{node} is open in {process}")));
    }
    if all.is_empty() { "the system does not say by whom".into() } else { all.join(", ") }
}

/// Of the lines of a table that begin with `first`, the second field.
fn first_fields(table: &str, first: &str) -> impl Iterator<Item = String> {
    let text = fs::read_to_string(table).unwrap_or_default();
    let second = |line: &str| {
        let mut fields = line.split_whitespace();
        (fields.next() == Some(first)).then(|| fields.next().unwrap_or_default().to_owned())
    };
    text.lines().filter_map(second).collect::<Vec<_>>().into_iter()
}

/// The processes that have a file open, by name and number; of others' processes only root is told.
pub fn users_of(path: &str) -> Vec<String> {
    let Ok(processes) = names(Path::new("/proc")) else { return Vec::new() };
    let has = |process: &&String| {
        let directory = Path::new("/proc").join(process).join("fd");
        let files = names(&directory).unwrap_or_default();
        files.iter().any(|file| fs::read_link(directory.join(file)).is_ok_and(|to| to == Path::new(path)))
    };
    let numbered = processes.iter().filter(|name| name.bytes().all(|digit| digit.is_ascii_digit())).filter(has);
    let named = |process: &String| {
        let name = fs::read_to_string(Path::new("/proc").join(process).join("comm")).unwrap_or_default();
        format!("{} (process {process})", name.trim())
    };
    numbered.map(named).collect()
}

#[cfg(test)]
mod tests;
