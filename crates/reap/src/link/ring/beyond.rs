//! A controller's end that is not in this process: what its host has of it beside its registers.

use std::io;
use std::sync::Arc;

use hw::EventFd;
use hw::vfio::PciDevice;
use nvme::Vector;

use crate::link::peer::Peer;

/// A controller that is not in this process.
#[derive(Clone)]
pub(in crate::link) enum Beyond {
    /// On the bus. It is reset when it is closed.
    Bus(Arc<PciDevice>),
    /// In another process, which hears of the end when it is closed.
    Peer(Arc<Peer>),
}

impl Beyond {
    /// Messages of `vector` signal `signal`, the eventfd of `home`, from now on.
    pub(super) fn signal_from(&self, vector: Vector, home: Vector, signal: &EventFd) -> io::Result<()> {
        match self {
            Beyond::Bus(device) => device.signal_from(vector, signal),
            Beyond::Peer(peer) => peer.signal_from(vector, home, signal).map_err(io::Error::other),
        }
    }

    /// As [`driver::Properties::reset_function`].
    pub(super) fn reset_function(&self) -> bool {
        let done = match self {
            Beyond::Bus(device) => device.reset().map_err(|error| error.to_string()),
            Beyond::Peer(peer) => peer.reset().map_err(|error| error.to_string()),
        };
        match &done {
            Ok(()) => tracing::warn!("the controller did not stop, and its function was reset"),
            Err(error) => tracing::warn!(error, "the controller does not stop, and its function cannot be reset"),
        }
        done.is_ok()
    }
}
