//! What keeps a controller of another process from being had, and what mends it.

use std::io;

use thiserror::Error;
use vfio_user::CallError;

/// Why the controller behind `vfio-user:` cannot be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PeerFault {
    /// Nothing has that name.
    #[error("there is no such socket; start its server first, as in `reap serve mem:1G --vfio-user SOCKET`")]
    NoSocket,
    /// Something else has that name.
    #[error("that is no socket; name the one that the server listens on")]
    NotASocket,
    /// The socket of a server that is gone.
    #[error("nobody listens there any more; start the server again")]
    NobodyListens,
    /// This user may not connect.
    #[error("this user may not connect to it; write permission on the socket lets it, or run as the server's user")]
    Permission,
    /// The server has closed the connection before it has said anything.
    #[error(
        "the server closes the connection at once: it has another client, or is no vfio-user server; end the other client, or see what the server says"
    )]
    Busy,
    /// What listens there does not speak the protocol.
    #[error("what listens there is no vfio-user server ({0}); name the socket of one")]
    NoServer(CallError),
    /// It speaks another version of it.
    #[error("the server speaks version {major}.{minor} of vfio-user, and Reap speaks 0.0; have a server of major version 0")]
    Version {
        /// Its major number.
        major: u16,
        /// Its minor number.
        minor: u16,
    },
    /// It serves something else.
    #[error("the server serves no NVMe controller: its class is {class:06x}h, and those have 010802h; name the socket of one")]
    NotNvme {
        /// Its class code.
        class: u32,
    },
    /// The device lacks something that Reap needs.
    #[error("it cannot be driven: {0}")]
    Lacks(String),
    /// The server refuses, breaks the protocol, says nothing, or is gone.
    #[error("cannot {what}: {source}; see what the server says, and start it anew if it hangs")]
    Server {
        /// What was tried.
        what: &'static str,
        /// What came of it.
        #[source]
        source: CallError,
    },
    /// The system refuses.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}
