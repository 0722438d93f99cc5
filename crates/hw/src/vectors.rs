//! Interrupt vectors over eventfds: `sync`'s, which loom goes through, as a guest of VFIO sees MSI-X.
//!
//! Messages are counted in the eventfd, by the kernel, which is read and never emptied.

use std::io;

use nvme::Vector;
use sync::{Posted, Signal, WakeFlag};

use crate::EventFd;

/// The vectors of one controller. The device sends messages, the host arms, masks and sleeps.
#[derive(Debug)]
pub struct Vectors(sync::Vectors<EventFd>);

impl Signal for EventFd {
    #[inline]
    fn signal(&self) {
        EventFd::signal(self);
    }

    #[inline]
    fn count(&self) -> Option<u64> {
        EventFd::count(self).ok()
    }
}

impl Vectors {
    /// `count` vectors, masked. Where `masks` is false masks are without effect, as under VFIO: every message is sent.
    ///
    /// # Errors
    /// What `eventfd` says (too many open files).
    pub fn new(count: u16, masks: bool) -> io::Result<Vectors> {
        let signals = (0..count).map(|_| EventFd::new()).collect::<io::Result<Vec<_>>>()?;
        Ok(Vectors(sync::Vectors::new(signals, masks)))
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty)] // emptiness is no question here
    pub fn len(&self) -> u16 {
        self.0.len()
    }

    /// Host: the mask of a vector, to arm before sleeping and to mask when awake. `None`: there is no such vector.
    #[inline]
    pub fn bell(&self, vector: Vector) -> Option<&WakeFlag> {
        self.0.flag(vector.0)
    }

    /// Host: what a vector's messages signal.
    pub fn eventfd(&self, vector: Vector) -> Option<&EventFd> {
        self.0.signal(vector.0)
    }

    /// Device, having stored every entry that the message announces: see [`sync::Vectors::message`].
    #[inline]
    pub fn message(&self, vector: Vector) -> bool {
        self.0.message(vector.0)
    }

    /// Device: whether a vector whose Pending bit is set is masked still.
    #[inline]
    pub fn is_masked(&self, vector: Vector) -> bool {
        self.0.is_masked(vector.0)
    }

    /// Device: clears a vector's Pending bit.
    pub fn clear_pending(&self, vector: Vector) {
        self.0.clear_pending(vector.0);
    }

    /// Host: where a vector's messages go from now on: see [`sync::Vectors::route`]. Arming and a look follow.
    pub fn route(&self, vector: Vector, home: Option<Vector>) {
        self.0.route(vector.0, home.map(|home| home.0));
    }

    /// Host, before it sleeps: see [`sync::Vectors::arm`]. A look follows. True: a device that sleeps is to be told.
    #[inline]
    #[must_use = "a device that sleeps does not see that its vector was unmasked"]
    pub fn arm(&self, vector: Vector) -> bool {
        self.0.arm(vector.0)
    }

    /// Host: the descriptor of `home`.
    #[inline]
    pub fn posted(&self, home: Vector) -> Option<&Posted> {
        self.0.posted(home.0)
    }

    /// Whether the system shows what eventfds have counted, so that [`Vectors::messages`] and [`Vectors::notifications`] say something.
    pub fn are_counted(&self) -> bool {
        self.0.are_counted()
    }

    /// Notifications received so far: as many as messages, or, where they are posted into this vector's descriptor, fewer. Three system
    /// calls. 0 where the system does not show what eventfds have counted.
    pub fn notifications(&self, vector: Vector) -> u64 {
        self.0.notifications(vector.0)
    }

    /// Messages received so far; a posted one that is on its way at this moment may be missing. As [`Vectors::notifications`].
    pub fn messages(&self, vector: Vector) -> u64 {
        self.0.messages(vector.0)
    }
}

#[cfg(test)]
mod tests;
