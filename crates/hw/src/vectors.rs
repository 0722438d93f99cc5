//! Interrupt vectors: a mask, an eventfd and counters each, as a guest of VFIO sees MSI-X.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use handover::{Bell, Posted};
use nvme::Vector;

use crate::EventFd;

/// The vectors of one controller. The device sends messages, the host arms, masks and sleeps.
#[derive(Debug)]
pub struct Vectors {
    lines: Box<[Line]>,
    /// Masks hold messages back.
    masks: bool,
}

/// Apart from the neighbours' lines: the device reads the mask for every CQE.
#[derive(Debug)]
#[repr(align(64))]
struct Line {
    bell: Bell,
    eventfd: EventFd,
    messages: AtomicU64,
    /// The vector whose descriptor messages are posted into; [`DIRECT`]: they signal this vector's own eventfd.
    route: AtomicU32,
    /// The descriptor of whoever posts here, and how often its notification, this vector's eventfd, was signalled.
    posted: Posted,
    signals: AtomicU64,
}

/// Messages are not posted.
const DIRECT: u32 = u32::MAX;

impl Vectors {
    /// `count` vectors, masked. Where `masks` is false masks are without effect, as under VFIO: every message is sent.
    ///
    /// # Errors
    /// What `eventfd` says (too many open files).
    pub fn new(count: u16, masks: bool) -> io::Result<Vectors> {
        let line = || -> io::Result<Line> {
            Ok(Line {
                bell: Bell::new(),
                eventfd: EventFd::new()?,
                messages: AtomicU64::new(0),
                route: AtomicU32::new(DIRECT),
                posted: Posted::new(),
                signals: AtomicU64::new(0),
            })
        };
        let lines = (0..count).map(|_| line()).collect::<io::Result<_>>()?;
        Ok(Vectors { lines, masks })
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty)] // emptiness is no question here
    pub fn len(&self) -> u16 {
        self.lines.len() as u16
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
        let rings = line.bell.rings() || !self.masks;
        if rings {
            line.messages.fetch_add(1, Ordering::Relaxed);
            match line.route.load(Ordering::Relaxed) {
                DIRECT => line.signal(),
                home => self.post(vector, home),
            }
        }
        rings
    }

    fn post(&self, vector: Vector, home: u32) {
        if let Some(home) = self.lines.get(home as usize)
            && home.posted.post(vector.0)
        {
            home.signal();
        }
    }

    /// Host: from now on messages of `vector` are posted into the descriptor of `home`, whose eventfd is its notification;
    /// `None`: they signal the vector's own. To be followed by arming and a look: a message that is on its way may still go
    /// the old one.
    pub fn route(&self, vector: Vector, home: Option<Vector>) {
        if let Some(line) = self.line(vector) {
            line.route.store(home.map_or(DIRECT, |home| home.0.into()), Ordering::Relaxed);
        }
    }

    /// Host, before it sleeps: allows messages of a vector, and, where they are posted, the next notification. Whatever came
    /// before and did not notify is visible to the look that the caller now owes.
    #[inline]
    pub fn arm(&self, vector: Vector) {
        let Some(line) = self.line(vector) else { return };
        line.bell.arm();
        match line.route.load(Ordering::Relaxed) {
            DIRECT => {}
            home => self.posted(Vector(home as u16)).into_iter().for_each(Posted::allow),
        }
    }

    /// Host: the descriptor of `home`.
    #[inline]
    pub fn posted(&self, home: Vector) -> Option<&Posted> {
        self.line(home).map(|line| &line.posted)
    }

    /// Notifications sent so far: as many as messages, or, where they are posted into this vector's descriptor, fewer.
    pub fn notifications(&self, vector: Vector) -> u64 {
        self.line(vector).map_or(0, |line| line.signals.load(Ordering::Relaxed))
    }

    /// Messages sent so far.
    pub fn messages(&self, vector: Vector) -> u64 {
        self.line(vector).map_or(0, |line| line.messages.load(Ordering::Relaxed))
    }

    #[inline]
    fn line(&self, vector: Vector) -> Option<&Line> {
        self.lines.get(usize::from(vector.0))
    }
}

impl Line {
    #[inline]
    fn signal(&self) {
        self.signals.fetch_add(1, Ordering::Relaxed);
        self.eventfd.signal();
    }
}

#[cfg(test)]
mod tests;
