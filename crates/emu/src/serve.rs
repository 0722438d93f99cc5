//! Serving: controllers as PCI devices of another process, over vfio-user, and as those of hosts,
//! over NVMe/TCP.
//!
//! | question | file |
//! | --- | --- |
//! | which thread does it, and when does it sleep? | `server.rs` |
//! | what is served? | `served.rs` |
//! | what is there for each controller: socket, client, callers? | `endpoint.rs`, `listener.rs` |
//! | who may inject faults while it runs? | `control.rs` |
//! | how do both sides send requests? | `connection.rs` |
//! | what does one client ask, and in which order may it? | `session.rs` |
//! | what does a PCI function answer? | `function.rs`, `config_space.rs` |
//! | what does the controller see of its host? | `host.rs`, `shadow.rs` |
//! | all of this over NVMe/TCP: sockets, a host's controller, what it sees | `tcp.rs`, `association.rs`, `fabric_host.rs` |
//!
//! One thread does everything: it reads messages, steps the controllers and sends their interrupts.
//! So a doorbell wakes no other thread, and nothing is locked.

mod association;
mod config_space;
mod connection;
mod control;
mod endpoint;
mod event;
mod fabric_host;
mod function;
mod host;
mod listener;
mod served;
mod server;
mod session;
mod shadow;
mod tcp;

pub use control::{ControlError, ask};
pub use event::ServeEvent;
pub use listener::SocketFault;
pub use served::{Namespaces, ServeError, Served};
pub use server::Server;
pub use tcp::{TcpServer, ask_address};
