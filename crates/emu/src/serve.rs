//! Serving controllers to other processes: as PCI devices over vfio-user, and to hosts over
//! NVMe/TCP.
//!
//! | topic | file |
//! | --- | --- |
//! | event loop and thread of vfio-user | `server.rs` |
//! | parameters of a served controller, errors | `served.rs` |
//! | one controller: socket, client, control clients | `endpoint.rs`, `listener.rs` |
//! | fault injection while it runs | `control.rs` |
//! | messages in both directions | `connection.rs` |
//! | version negotiation, order of requests | `session.rs` |
//! | PCI function: regions, interrupts, configuration space | `function.rs`, `config_space.rs` |
//! | the controller's port: guest memory, doorbells | `host.rs`, `shadow.rs` |
//! | NVMe/TCP: event loop, associations, port | `tcp.rs`, `association.rs`, `fabric_host.rs` |
//!
//! One thread receives messages, steps the controllers and sends their interrupts, so that a
//! doorbell needs no wakeup of another thread and no lock.

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
