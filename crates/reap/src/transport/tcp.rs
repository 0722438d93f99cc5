//! `tcp://HOST[:PORT]/NQN[?…]`: an NVMe controller over NVMe/TCP.
//!
//! The layers above use it as any controller with rings in memory: tags, shared queues, time-outs,
//! aborts, resets and failover are the same. The rings are private memory of this process; a
//! doorbell sends their commands over a socket:
//!
//! ```text
//!   SQ doorbell     ─► SQEs ─► command capsules, one sendmsg per batch ─►  target
//!   poll            ◄─ CQEs into the CQ, data into buffers ◄─ PDUs, one recv ◄─ target
//!   interrupt       ◄─ epoll instance of the queue's socket: readable, or writable again
//!   CAP, CC, CSTS   ─► Property Get and Property Set, answered asynchronously
//!   Create I/O SQ   ─► connect(2), ICReq, Connect       (thread "reap-tcp")
//! ```
//!
//! A reset ends the association (CC.EN = 0, then CSTS.RDY = 0); the next access to CAP or CC starts
//! a new one. After a lost association the host waits until the old controller has certainly
//! stopped executing commands (Base 9.6, here called the fence), or another path has reset it
//! (`controller_task/cross_reset.rs`), and only then connects again. A
//! new association therefore implies that commands of the old one can no longer take effect.
//!
//! | question | file |
//! | --- | --- |
//! | which parameters does a URI have? | `uri.rs` |
//! | how is a connection made? | `connect.rs` |
//! | how are commands sent and completions received? | `queue.rs` |
//! | which subsystems does a target export? | `discover.rs` |
//! | admin queue, properties, associations | `controller.rs` |

mod connect;
mod controller;
mod discover;
mod queue;
mod uri;

use std::sync::Arc;

use super::rings::{DmaContext, RingController};
use crate::error::OpenError;
use crate::options::OpenOptions;

pub(crate) use controller::TcpController;
pub(crate) use discover::addresses;
pub use discover::{DiscoveryLog, discover};
pub(crate) use queue::TcpQueue;
pub(crate) use uri::SCHEME;
pub use uri::TcpUri;

/// Connects to the controller of `uri`. Buffers are in the pool of `dma`.
///
/// # Errors
/// See [`OpenError`].
pub(crate) fn open(
    uri: &TcpUri,
    dma: DmaContext,
    options: &OpenOptions,
) -> Result<RingController, OpenError> {
    let queues = options.hardware().min(usize::from(uri.queues.unwrap_or(u16::MAX)));
    // One vector per I/O queue, and vector 0 for the admin queue.
    let vectors = hw::vectors(queues as u16 + 1, false)
        .map_err(|source| OpenError::System { what: "vectors", source })?;
    let vectors = Arc::new(vectors);
    let controller = TcpController::open(uri, dma.pool.clone(), vectors.clone())?;
    let notes = vec!["the connection is neither encrypted nor authenticated".to_owned()];
    Ok(RingController::over_tcp(controller, vectors, dma, notes))
}

#[cfg(test)]
mod tests;
