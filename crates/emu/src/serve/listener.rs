//! The listening Unix socket of one server, and the removal of its file.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Why a socket cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketFault {
    /// Another process listens at this path.
    #[error("another process serves at this socket; stop it, or use another socket")]
    InUse,
    /// A file that is not a socket exists at this path.
    #[error("a file of that name exists, which is not a socket; use another name")]
    NoSocket,
    /// The system's error.
    #[error("cannot listen there: {0}")]
    System(#[from] io::Error),
}

/// A listening socket. Its file is removed with it.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, so that only this server's file is removed.
    file: Option<(u64, u64)>,
    /// A connection is pending that could not be accepted, for want of a descriptor or memory.
    pub(super) must_retry_accept: bool,
}

impl Listener {
    /// Listens at `path`, replacing the socket file of a server that has exited; the second value
    /// is true if it did.
    pub(super) fn bind(path: &Path) -> Result<(Listener, bool), SocketFault> {
        let stale = match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(SocketFault::NoSocket),
            Ok(_) => {
                match UnixStream::connect(path) {
                    Ok(_) => return Err(SocketFault::InUse),
                    // Nothing listens at an existing socket file: its server has exited without
                    // removing it.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        fs::remove_file(path)?
                    }
                    Err(error) => return Err(error.into()),
                }
                true
            }
            Err(_) => false,
        };
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let file = fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()));
        Ok((Listener { listener, path: path.to_owned(), file, must_retry_accept: false }, stale))
    }

    /// Accepts the next connection; `None` if none is pending.
    ///
    /// # Errors
    /// A connection is pending, but there is no file descriptor (EMFILE, ENFILE) or no memory for
    /// it. The caller has to retry after a while, as the edge-triggered poller does not report it
    /// again.
    pub(super) fn accept(&mut self) -> io::Result<Option<UnixStream>> {
        let accepted = loop {
            match self.listener.accept() {
                Ok((stream, _)) => break Ok(Some(stream)),
                // The client closed the connection before it was accepted; see accept(2).
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        self.must_retry_accept = accepted.is_err();
        accepted
    }
}

/// Error text for a file that cannot be opened or received, with advice on descriptor limits.
pub(super) fn no_room(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => {
            let limit = getrlimit(Resource::Nofile)
                .current
                .map_or_else(|| "its limit".to_owned(), |limit| limit.to_string());
            format!(
                "this server has reached its limit of {limit} open files (RLIMIT_NOFILE): start it with a higher `ulimit -n`"
            )
        }
        Some(Errno::NFILE) => {
            "the system has reached its limit of open files (sysctl fs.file-max)".to_owned()
        }
        _ => error.to_string(),
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let now = fs::symlink_metadata(&self.path).ok().map(|file| (file.dev(), file.ino()));
        // Another server may have replaced the file in the meantime.
        if now.is_some() && now == self.file {
            _ = fs::remove_file(&self.path);
        }
    }
}
