//! Events that a server reports to its operator.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Something that happened, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServeEvent {
    /// The socket file of a server that has exited was replaced.
    TookOver(PathBuf),
    /// An event of one of several controllers.
    At {
        /// The controller's socket.
        socket: PathBuf,
        /// The event.
        event: Box<ServeEvent>,
    },
    /// Clients can connect.
    Listening {
        /// Path of the socket.
        socket: PathBuf,
        /// Name of the device.
        device: String,
    },
    /// Hosts can connect.
    ListeningTcp {
        /// The bound address.
        address: SocketAddr,
        /// Name of the device.
        device: String,
        /// NQN of the subsystem.
        nqn: String,
    },
    /// The address is reachable from other machines, and the only protection is the list of host
    /// NQNs, which are not authenticated.
    OnlyFilters,
    /// A host has connected and has a controller.
    Associated {
        /// CNTLID.
        controller: u16,
        /// HOSTNQN.
        host: String,
        /// Address to which it connected.
        address: SocketAddr,
    },
    /// An association has ended.
    Dissociated {
        /// CNTLID.
        controller: u16,
        /// HOSTNQN.
        host: String,
        /// The reason.
        why: String,
        /// Commands completed.
        commands: u64,
    },
    /// Doorbells can be mapped; the server polls them.
    Polls,
    /// A client has connected and negotiated the version.
    Attached,
    /// A connection is pending that cannot be accepted for want of descriptors or memory: the
    /// reason, and what to do.
    Waits(String),
    /// A second client was rejected.
    Busy,
    /// A request was refused as invalid or unsupported.
    Refused(String),
    /// More requests were refused than are reported.
    MoreRefused,
    /// A fault was injected by a script or `reap ctl`.
    Fault(String),
    /// The client did not reply correctly and in time to a DMA message, for memory without a
    /// descriptor. No more DMA messages are sent.
    GivesNoMemory,
    /// The client unmapped the memory of a queue: the controller failed (CSTS.CFS).
    QueueLost,
    /// The client disconnected, and the controller was reset.
    Detached {
        /// The reason, if it was an error.
        why: Option<String>,
        /// Commands completed.
        commands: u64,
        /// Doorbell writes received as messages.
        doorbells: u64,
    },
}

impl fmt::Display for ServeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeEvent::TookOver(socket) => write!(
                f,
                "{}: no server listens there any more; the socket file is replaced",
                socket.display()
            ),
            ServeEvent::At { socket, event } => write!(f, "{}: {event}", socket.display()),
            ServeEvent::Listening { socket, device } => {
                write!(f, "{}: serving {device}", socket.display())
            }
            ServeEvent::ListeningTcp { address, device, nqn } => {
                write!(f, "{address}: serving {device} as {nqn}")
            }
            ServeEvent::OnlyFilters => {
                write!(
                    f,
                    "other machines can connect: --allow compares host names (HOSTNQN), and authenticates no host"
                )
            }
            ServeEvent::Associated { controller, host, address } => {
                write!(f, "{address}: controller {controller} for {host}")
            }
            ServeEvent::Dissociated { controller, host, why, commands } => {
                write!(
                    f,
                    "controller {controller} of {host} ended after {commands} commands: {why}"
                )
            }
            ServeEvent::Polls => write!(
                f,
                "clients may map the doorbells, whose writes send no message: the server polls them, and uses a CPU while it has a client"
            ),
            ServeEvent::Attached => write!(f, "a client connected"),
            ServeEvent::Waits(why) => write!(f, "a connection waits to be accepted: {why}"),
            ServeEvent::Busy => {
                write!(f, "another client was refused: a device has one at a time")
            }
            ServeEvent::Refused(what) => write!(f, "refused: {what}"),
            ServeEvent::MoreRefused => write!(
                f,
                "refused: more of this client's requests, which are no longer reported one by one"
            ),
            ServeEvent::Fault(change) => write!(f, "asked for: {change}"),
            ServeEvent::GivesNoMemory => write!(
                f,
                "the client mapped memory without a descriptor, and does not answer DMA messages about it; commands with data there fail"
            ),
            ServeEvent::QueueLost => {
                write!(
                    f,
                    "the client has unmapped a queue that is in use; the controller has failed, and waits for a reset"
                )
            }
            ServeEvent::Detached { why: None, commands, doorbells } => {
                write!(
                    f,
                    "the client disconnected after {commands} commands and {doorbells} doorbell messages; the controller is reset"
                )
            }
            ServeEvent::Detached { why: Some(why), commands, doorbells } => {
                write!(
                    f,
                    "the client was disconnected after {commands} commands and {doorbells} doorbell messages, and the controller is reset: {why}"
                )
            }
        }
    }
}
