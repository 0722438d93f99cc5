//! `tcp://HOST[:PORT]/NQN[?…]`: an NVMe controller over NVMe/TCP.
//!
//! Above this folder it is a controller with rings in memory like any other: tags, shared queues,
//! time-outs, aborts, resets and failover are those of every controller. Here the rings are private
//! memory, and a socket is behind the doorbell:
//!
//! ```text
//!   doorbell of an SQ  ─► read the SQEs ─► capsules, one sendmsg for the batch ─►  target
//!   poll               ─► one recv ─► PDUs ─► data to the buffers, CQEs into the CQ
//!   interrupt          ─► an epoll instance with the queue's socket: readable, or writable again
//!   properties         ─► Property Get and Set, answered later
//!   Create I/O SQ      ─► connect, ICReq, Connect       (thread "reap-tcp")
//! ```
//!
//! A reset ends the association (CC.EN = 0, CSTS.RDY = 0), and the next access to CAP or CC begins
//! another one. A lost association is replaced only after the fence: the time after which its
//! controller carries out nothing more (Base 9.6). So every new association implies that commands
//! of the one before cannot take effect any more.
//!
//! | question | file |
//! | --- | --- |
//! | what does the URI mean? | `uri.rs` |
//! | how is a connection made? | `connect.rs` |
//! | how do commands and completions move? | `queue.rs` |
//! | which subsystems has a target? | `discover.rs` |
//! | what is a controller: admin queue, properties, associations? | `controller.rs` |

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
pub use discover::{DiscoveryLog, discover};
pub(crate) use queue::TcpQueue;
pub(crate) use uri::SCHEME;
pub use uri::TcpUri;

/// Connects to the controller of `uri`, with buffers in the pool of `dma`.
///
/// # Errors
/// See [`OpenError`].
pub(crate) fn open(
    uri: &TcpUri,
    dma: DmaContext,
    options: &OpenOptions,
) -> Result<RingController, OpenError> {
    let queues = options.hardware().min(usize::from(uri.queues.unwrap_or(u16::MAX)));
    let vectors = hw::vectors(queues as u16 + 1, false)
        .map_err(|source| OpenError::System { what: "vectors", source })?;
    let vectors = Arc::new(vectors);
    let controller = TcpController::open(uri, dma.pool.clone(), vectors.clone())?;
    let notes = vec!["the connection is neither encrypted nor authenticated".to_owned()];
    Ok(RingController::over_tcp(controller, vectors, dma, notes))
}

#[cfg(test)]
mod tests;
