//! What a subsystem is called: by its medium. So a server that is started again over the same file is known again, and several servers of one file are
//! of one subsystem. Memory is another medium each time.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::error::OpenError;
use crate::uri::{Backing, DeviceUri};

/// The NQN of the subsystem over the medium of `uri`, which is there. The namespaces' UUIDs follow from it.
///
/// # Errors
/// The file cannot be examined.
pub(super) fn nqn(uri: &DeviceUri) -> Result<String, OpenError> {
    let name = match &uri.backing {
        Backing::File { path, .. } => file(path)?,
        // Of two servers in containers of their own both can be process 1: nothing but chance tells them apart.
        Backing::Mem { .. } => format!("embedded:{:016x}{:016x}", random(), random()),
    };
    Ok(format!("nqn.2026-11.reap:{name}"))
}

/// A serial number for a controller that is alone in its subsystem, whose NQN and UUIDs follow from it.
pub(super) fn serial(nqn: &str) -> String {
    // FNV-1a, 64 bits.
    let hash = nqn.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("REAP{hash:016x}")
}

/// By file system, inode, and when that was made: the number of one that is gone may be given to another.
fn file(path: &Path) -> Result<String, OpenError> {
    let meta = std::fs::metadata(path).map_err(|error| {
        let what = format!("cannot examine it: {error}");
        OpenError::Media { path: path.to_owned(), what, source: Some(error) }
    })?;
    let made = meta.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok()).map_or(0, |made| made.as_nanos());
    Ok(format!("file:{:x}:{:x}:{made:x}", meta.dev(), meta.ino()))
}

/// Seeded by the system's random numbers.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests;
