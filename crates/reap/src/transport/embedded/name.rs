//! The NQN of an embedded controller's subsystem, derived from its medium. A server that is
//! restarted over the same file has the same name, and several servers of one file form one
//! subsystem. Memory is a new medium each time.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::error::OpenError;
use crate::uri::{Backing, DeviceUri};

/// The NQN of the subsystem over the medium of `uri`, which must exist. The namespaces' UUIDs are
/// derived from it.
///
/// # Errors
/// The file cannot be examined.
pub(super) fn nqn(uri: &DeviceUri) -> Result<String, OpenError> {
    let name = match &uri.backing {
        Backing::File { path, .. } => file(path)?,
        // Not the process identifier: two servers in containers can both be process 1.
        Backing::Mem { .. } => format!("embedded:{:016x}{:016x}", random(), random()),
    };
    Ok(format!("nqn.2026-11.reap:{name}"))
}

/// The serial number of a controller that is alone in its subsystem.
pub(super) fn serial(nqn: &str) -> String {
    // FNV-1a, 64 bits: it must be the same in every version of Reap, which `std`'s hasher does not
    // promise.
    let hash = nqn.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("REAP{hash:016x}")
}

/// A file's name: device, inode and birth time, because the inode number of a removed file is used
/// again.
fn file(path: &Path) -> Result<String, OpenError> {
    let meta = std::fs::metadata(path).map_err(|error| {
        let what = format!("cannot examine it: {error}");
        OpenError::Media { path: path.to_owned(), what, source: Some(error) }
    })?;
    let made = meta
        .created()
        .ok()
        .and_then(|made| made.duration_since(UNIX_EPOCH).ok())
        .map_or(0, |made| made.as_nanos());
    Ok(format!("file:{:x}:{:x}:{made:x}", meta.dev(), meta.ino()))
}

/// A random number; `RandomState` is seeded by the system.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests;
