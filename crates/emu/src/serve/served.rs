//! What is served, and why it cannot be.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::listener::SocketFault;
use crate::{Config, Namespace, Subsystem, SubsystemError};

/// Why a controller cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The socket cannot be had.
    #[error("socket {}: {fault}", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// What is wrong and what to do.
        #[source]
        fault: SocketFault,
    },
    /// The script names a controller that there is not.
    #[error(
        "the script names path {path}, and there are {paths}, counted from 0: one for each socket"
    )]
    Path {
        /// The path that it names.
        path: usize,
        /// How many there are.
        paths: usize,
    },
    /// The address cannot be had.
    #[error("{address}: {source}")]
    Address {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Other machines could connect.
    #[error(
        "{0} can be reached from other machines: name each host that may connect (--allow HOSTNQN), or serve at a loopback address"
    )]
    Open(SocketAddr),
    /// What a script says cannot happen over TCP.
    #[error("{0}")]
    NotHere(String),
    /// The subsystem cannot have the controller.
    #[error(transparent)]
    Subsystem(#[from] SubsystemError),
    /// The thread cannot sleep.
    #[error("cannot wait for clients: {0}")]
    System(#[from] io::Error),
}

/// A controller to be served.
#[derive(Debug)]
pub struct Served<'a> {
    /// What it is called where people read of it.
    pub device: String,
    /// What it is made of. Doorbells are side by side, whatever this says, so that all of them fit
    /// in the page that a host keeps them in.
    pub config: Config,
    /// Whose namespaces it has.
    pub namespaces: Namespaces<'a>,
    /// Files of the client are mapped even where it could take pages away, which ends this process.
    pub trust: bool,
    /// The client may map the doorbells, which are polled then.
    pub maps_doorbells: bool,
}

/// Whose namespaces a controller has.
#[derive(Debug)]
pub enum Namespaces<'a> {
    /// Its own.
    Own(Vec<Namespace>),
    /// A subsystem's, which it becomes a controller of.
    Shared(&'a mut Subsystem),
}
