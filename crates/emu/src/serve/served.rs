//! The parameters of a served controller, and the errors of starting a server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::listener::SocketFault;
use crate::{Config, NamespaceConfig, Subsystem, SubsystemError};

/// Why a controller cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The socket cannot be created.
    #[error("socket {}: {fault}", path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// What is wrong and what to do.
        #[source]
        fault: SocketFault,
    },
    /// A script step names a path (controller) that does not exist.
    #[error(
        "the script names path {path}, and there are {paths}, counted from 0: one for each socket"
    )]
    Path {
        /// The path in the script.
        path: usize,
        /// Number of paths.
        paths: usize,
    },
    /// The address cannot be bound.
    #[error("{address}: {source}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Other machines could connect, and no allowed hosts are configured.
    #[error(
        "{0} can be reached from other machines: name each host that may connect (--allow HOSTNQN), or serve at a loopback address"
    )]
    Open(SocketAddr),
    /// A script step that is not possible over TCP.
    #[error("{0}")]
    NotHere(String),
    /// The subsystem has no room for the controller.
    #[error(transparent)]
    Subsystem(#[from] SubsystemError),
    /// The poller failed.
    #[error("cannot wait for clients: {0}")]
    System(#[from] io::Error),
}

/// A controller to be served over vfio-user.
#[derive(Debug)]
pub struct Served<'a> {
    /// Name of the device in messages.
    pub device: String,
    /// The controller's configuration. `doorbell_stride` is ignored: the stride is 0, so that all
    /// doorbells fit in the page of a Doorbell Buffer Config buffer.
    pub config: Config,
    /// The controller's namespaces.
    pub namespaces: Namespaces<'a>,
    /// Map the client's files even if they can be truncated, in which case an access raises SIGBUS
    /// and ends this process.
    pub trust: bool,
    /// The client may map the doorbells (BAR 0), which the server then polls.
    pub maps_doorbells: bool,
}

/// Where a controller's namespaces come from.
#[derive(Debug)]
pub enum Namespaces<'a> {
    /// Private namespaces.
    Own(Vec<NamespaceConfig>),
    /// Those of a subsystem, to which the controller is added.
    Shared(&'a mut Subsystem),
}
