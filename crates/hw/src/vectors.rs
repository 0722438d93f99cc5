//! Interrupt vectors over eventfds: `handover`'s, which loom goes through, as a guest of VFIO sees MSI-X.

use std::io;

use handover::{Bell, Posted, Signal};
use nvme::Vector;

use crate::EventFd;

/// The vectors of one controller. The device sends messages, the host arms, masks and sleeps.
#[derive(Debug)]
pub struct Vectors(handover::Vectors<EventFd>);

impl Signal for EventFd {
    #[inline]
    fn signal(&self) {
        EventFd::signal(self);
    }
}

impl Vectors {
    /// `count` vectors, masked. Where `masks` is false masks are without effect, as under VFIO: every message is sent.
    ///
    /// # Errors
    /// What `eventfd` says (too many open files).
    pub fn new(count: u16, masks: bool) -> io::Result<Vectors> {
        let signals = (0..count).map(|_| EventFd::new()).collect::<io::Result<Vec<_>>>()?;
        Ok(Vectors(handover::Vectors::new(signals, masks)))
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty)] // emptiness is no question here
    pub fn len(&self) -> u16 {
        self.0.len()
    }

    /// Host: the mask of a vector, to arm before sleeping and to mask when awake. `None`: there is no such vector.
    #[inline]
    pub fn bell(&self, vector: Vector) -> Option<&Bell> {
        self.0.bell(vector.0)
    }

    /// Host: what a vector's messages signal.
    pub fn eventfd(&self, vector: Vector) -> Option<&EventFd> {
        self.0.signal(vector.0)
    }

    /// Device, having stored every entry that the message announces: see [`handover::Vectors::message`].
    #[inline]
    pub fn message(&self, vector: Vector) -> bool {
        self.0.message(vector.0)
    }

    /// Host: where a vector's messages go from now on: see [`handover::Vectors::route`]. Arming and a look follow.
    pub fn route(&self, vector: Vector, home: Option<Vector>) {
        self.0.route(vector.0, home.map(|home| home.0));
    }

    /// Host, before it sleeps: see [`handover::Vectors::arm`]. A look follows.
    #[inline]
    pub fn arm(&self, vector: Vector) {
        self.0.arm(vector.0);
    }

    /// Host: the descriptor of `home`.
    #[inline]
    pub fn posted(&self, home: Vector) -> Option<&Posted> {
        self.0.posted(home.0)
    }

    /// Notifications sent so far: as many as messages, or, where they are posted into this vector's descriptor, fewer.
    pub fn notifications(&self, vector: Vector) -> u64 {
        self.0.notifications(vector.0)
    }

    /// Messages sent so far.
    pub fn messages(&self, vector: Vector) -> u64 {
        self.0.messages(vector.0)
    }
}

#[cfg(test)]
mod tests;
