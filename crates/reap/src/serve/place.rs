//! Where the socket is: a file that one server has.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Why a socket could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketFault {
    /// Another process listens there.
    #[error("another process serves there; end it, or name another socket")]
    InUse,
    /// Something else has that name.
    #[error("there is a file of that name, which is no socket; name another one")]
    NoSocket,
    /// The system says so.
    #[error("cannot listen there: {0}")]
    System(#[from] io::Error),
}

/// A socket that is listened on, whose file goes with it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, so that no other's is removed.
    file: Option<(u64, u64)>,
}

impl Place {
    /// Listens at `path`. The file of a server that is gone is replaced, which is told by the second value.
    pub(super) fn take(path: &Path) -> Result<(Place, bool), SocketFault> {
        let stale = match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(SocketFault::NoSocket),
            Ok(_) => {
                match UnixStream::connect(path) {
                    Ok(_) => return Err(SocketFault::InUse),
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
                    Err(error) => return Err(error.into()),
                }
                true
            }
            Err(_) => false,
        };
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let file = fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()));
        Ok((Place { listener, path: path.to_owned(), file }, stale))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let now = fs::symlink_metadata(&self.path).ok().map(|file| (file.dev(), file.ino()));
        if now.is_some() && now == self.file {
            _ = fs::remove_file(&self.path);
        }
    }
}
