//! Interrupt vectors: a mask and an eventfd each, as a guest of VFIO sees MSI-X.
//!
//! Messages are counted where the host receives them: in the eventfd, by the kernel, which is read and never emptied. Nothing that a
//! device says is believed for it. Posted messages set bits in a descriptor, and most signal nothing, so that no host could count
//! them: what stands here for the host's remapping hardware does.

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
    /// Never drained: its count is that of the signals so far.
    eventfd: EventFd,
    /// The vector whose descriptor messages are posted into; [`DIRECT`]: they signal this vector's own eventfd.
    route: AtomicU32,
    /// The descriptor of whoever posts here, and how often its notification, which is this vector's eventfd, was signalled.
    posted: Posted,
    notified: AtomicU64,
    /// Messages of this vector that were posted.
    posts: AtomicU64,
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
                route: AtomicU32::new(DIRECT),
                posted: Posted::new(),
                notified: AtomicU64::new(0),
                posts: AtomicU64::new(0),
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
            match line.route.load(Ordering::Relaxed) {
                DIRECT => line.eventfd.signal(),
                home => {
                    line.posts.fetch_add(1, Ordering::Relaxed);
                    self.post(vector, home);
                }
            }
        }
        rings
    }

    fn post(&self, vector: Vector, home: u32) {
        if let Some(home) = self.lines.get(home as usize)
            && home.posted.post(vector.0)
        {
            home.notified.fetch_add(1, Ordering::Relaxed);
            home.eventfd.signal();
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

    /// Whether the system shows what eventfds have counted, so that [`Vectors::messages`] and [`Vectors::notifications`] say something.
    pub fn are_counted(&self) -> bool {
        self.lines.first().is_some_and(|line| line.eventfd.count().is_ok())
    }

    /// Notifications received so far: as many as messages, or, where they are posted into this vector's descriptor, fewer. Three system
    /// calls. 0 where the system does not show what eventfds have counted.
    pub fn notifications(&self, vector: Vector) -> u64 {
        self.line(vector).map_or(0, Line::signals)
    }

    /// Messages received so far; a posted one that is on its way at this moment may be missing. As [`Vectors::notifications`].
    pub fn messages(&self, vector: Vector) -> u64 {
        self.line(vector).map_or(0, |line| {
            // The count of signals first: whatever of it is no message has been counted as a notification before.
            let signals = line.signals();
            signals.saturating_sub(line.notified.load(Ordering::Relaxed)) + line.posts.load(Ordering::Relaxed)
        })
    }

    #[inline]
    fn line(&self, vector: Vector) -> Option<&Line> {
        self.lines.get(usize::from(vector.0))
    }
}

impl Line {
    fn signals(&self) -> u64 {
        self.eventfd.count().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
