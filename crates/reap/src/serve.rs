//! Serving: an embedded controller as a PCI device of another process, over vfio-user.
//!
//! | question | file |
//! | --- | --- |
//! | which thread does it, and when does it sleep? | `server.rs` |
//! | what is there for each controller: socket, client, callers? | `outlet.rs` |
//! | where is the socket? | `place.rs` |
//! | who may meddle while it runs? | `control.rs` |
//! | how do both sides ask each other? | `connection.rs` |
//! | what does one client ask, and in which order may it? | `session.rs` |
//! | what does a PCI function answer? | `function.rs`, `config_space.rs` |
//! | what does the controller see of its host? | `host.rs` |
//! | where are doorbells that the client keeps in memory? | `shadow.rs` |
//!
//! One thread does everything: it reads messages, steps the controller and sends its interrupts. So a doorbell wakes nobody else, and
//! nothing is locked.

mod config_space;
mod connection;
mod control;
mod event;
mod function;
mod host;
mod outlet;
mod place;
mod server;
mod session;
mod shadow;

pub use control::{ControlError, ask};
pub use event::ServeEvent;
pub use place::SocketFault;
pub use server::{ServeError, Server};

#[cfg(test)]
mod tests;
