//! What a server tells while it runs.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Something that happened, for people to read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServeEvent {
    /// A socket that a server had left behind was taken over.
    TookOver(PathBuf),
    /// Where several controllers are served: it happened at this one's socket.
    At {
        /// Whose.
        socket: PathBuf,
        /// What.
        event: Box<ServeEvent>,
    },
    /// Clients can come.
    Listening {
        /// Where.
        socket: PathBuf,
        /// What is served.
        device: String,
    },
    /// Hosts can connect.
    ListeningTcp {
        /// Where.
        address: SocketAddr,
        /// What is served.
        device: String,
        /// As which subsystem.
        nqn: String,
    },
    /// Other machines reach the server, and only names of hosts keep them away.
    OnlyFilters,
    /// A host has a controller.
    Associated {
        /// CNTLID.
        controller: u16,
        /// HOSTNQN.
        host: String,
        /// Where it came.
        address: SocketAddr,
    },
    /// It has none any more.
    Dissociated {
        /// CNTLID.
        controller: u16,
        /// HOSTNQN.
        host: String,
        /// Why.
        why: String,
        /// Commands that it had carried out.
        commands: u64,
    },
    /// Doorbells can be mapped, and the server polls them.
    Polls,
    /// A client came, and speaks the protocol.
    Attached,
    /// One has connected, and waits: there is no file descriptor for it yet, or no memory. Why, and
    /// what to do.
    Waits(String),
    /// Another one came, and was sent away.
    Busy,
    /// A request was refused: the client lies, or asks for what is not here.
    Refused(String),
    /// More requests were refused than are reported.
    MoreRefused,
    /// A fault was injected by a script or `reap ctl`.
    Fault(String),
    /// The client does not answer, or not as it should, when it is asked for memory that it mapped
    /// without a descriptor. It is not asked again.
    GivesNoMemory,
    /// A queue lies in memory that the client has taken away: the controller failed (CSTS.CFS).
    QueueLost,
    /// The client went, and the controller was reset.
    Detached {
        /// Why, if it was not its own wish.
        why: Option<String>,
        /// Commands that it had carried out.
        commands: u64,
        /// Doorbells that it rang by messages.
        doorbells: u64,
    },
}

impl fmt::Display for ServeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeEvent::TookOver(socket) => write!(
                f,
                "{}: nobody listened there any more; the socket file is replaced",
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
                    "other machines can connect: --allow compares the names that hosts give themselves, and authenticates no host"
                )
            }
            ServeEvent::Associated { controller, host, address } => {
                write!(f, "{address}: controller {controller} for {host}")
            }
            ServeEvent::Dissociated { controller, host, why, commands } => {
                write!(
                    f,
                    "controller {controller} of {host} is gone after {commands} commands: {why}"
                )
            }
            ServeEvent::Polls => write!(
                f,
                "clients may map the doorbells, and a mapped one wakes nobody: the server polls them, and never idles while it has a client"
            ),
            ServeEvent::Attached => write!(f, "a client has come"),
            ServeEvent::Waits(why) => write!(f, "a client that has connected waits: {why}"),
            ServeEvent::Busy => {
                write!(f, "another client was sent away: a device has one at a time")
            }
            ServeEvent::Refused(what) => write!(f, "refused: {what}"),
            ServeEvent::MoreRefused => write!(
                f,
                "refused: more of this client's requests, which are not told of one by one"
            ),
            ServeEvent::Fault(change) => write!(f, "asked for: {change}"),
            ServeEvent::GivesNoMemory => write!(
                f,
                "the client mapped memory without a descriptor, and does not answer DMA messages about it; commands that point there fail"
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
                    "the client has gone after {commands} commands and {doorbells} doorbell messages; the controller is reset"
                )
            }
            ServeEvent::Detached { why: Some(why), commands, doorbells } => {
                write!(
                    f,
                    "the client was let go after {commands} commands and {doorbells} doorbell messages, and the controller is reset: {why}"
                )
            }
        }
    }
}
