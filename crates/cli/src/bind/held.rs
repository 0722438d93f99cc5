//! Namespaces of a controller, held so that nobody can use them meanwhile.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hw::block::{Disk, Users};
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
        found.extend(names(&at)?.iter().filter_map(|name| namespace_of(name)));
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

/// The namespace that an entry of a controller's directory is, or is a path to: `nvme0n2` for `nvme0n2`, and for `nvme0c1n2`, a path to a
/// namespace of subsystem 0. `None`: the entry is something else.
pub fn namespace_of(entry: &str) -> Option<String> {
    let (first, namespace) = entry.strip_prefix("nvme")?.rsplit_once('n')?;
    let name = format!("nvme{}n{namespace}", first.split_once('c').map_or(first, |(subsystem, _)| subsystem));
    is_head(&name).then_some(name)
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
    let found = Disk::all(Path::new("/")).into_iter().find(|found| found.name() == disk);
    found.map_or_else(|| "the system does not say by whom".to_owned(), |disk| Users::here().holders(&disk).join(", "))
}

#[cfg(test)]
mod tests;
