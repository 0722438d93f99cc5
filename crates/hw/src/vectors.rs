//! Interrupt vectors: a mask, an eventfd and counters each, as a guest of VFIO sees MSI-X.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use handover::Bell;
use nvme::Vector;

use crate::EventFd;

/// The vectors of one controller. The device sends messages, the host arms, masks and sleeps.
#[derive(Debug)]
pub struct Vectors(Box<[Line]>);

/// Apart from the neighbours' lines: the device reads the mask for every CQE.
#[derive(Debug)]
#[repr(align(64))]
struct Line {
    bell: Bell,
    eventfd: EventFd,
    messages: AtomicU64,
}

impl Vectors {
    /// `count` vectors, masked.
    ///
    /// # Errors
    /// What `eventfd` says (too many open files).
    pub fn new(count: u16) -> io::Result<Vectors> {
        let line = || -> io::Result<Line> { Ok(Line { bell: Bell::new(), eventfd: EventFd::new()?, messages: AtomicU64::new(0) }) };
        (0..count).map(|_| line()).collect::<io::Result<_>>().map(Vectors)
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty)] // emptiness is no question here
    pub fn len(&self) -> u16 {
        self.0.len() as u16
    }

    /// Host: the mask of a vector, to arm before sleeping and to mask when awake. `None`: there is no such vector.
    #[inline]
    pub fn bell(&self, vector: Vector) -> Option<&Bell> {
        self.line(vector).map(|line| &line.bell)
    }

    /// Host: what a vector's messages signal.
    pub fn eventfd(&self, vector: Vector) -> Option<&EventFd> {
        self.line(vector).map(|line| &line.eventfd)
    }

    /// Device, having stored every entry that the message announces: fences, reads the mask, signals. Returns whether a
    /// message went out. A vector that does not exist sends none.
    #[inline]
    pub fn message(&self, vector: Vector) -> bool {
        let Some(line) = self.line(vector) else { return false };
        let rings = line.bell.rings();
        if rings {
            line.messages.fetch_add(1, Ordering::Relaxed);
            line.eventfd.signal();
        }
        rings
    }

    /// Messages sent so far.
    pub fn messages(&self, vector: Vector) -> u64 {
        self.line(vector).map_or(0, |line| line.messages.load(Ordering::Relaxed))
    }

    #[inline]
    fn line(&self, vector: Vector) -> Option<&Line> {
        self.0.get(usize::from(vector.0))
    }
}

#[cfg(test)]
mod tests;
