//! Interrupt vectors: a mask and a signal each, as a guest of VFIO sees MSI-X.
//!
//! Messages are counted where the host receives them: the signal counts itself, and nothing that a device says is believed for it. Posted
//! messages set bits in a descriptor, and most signal nothing, so that no host could count them: what stands here for the host's
//! remapping hardware does.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::{Bell, Posted};

/// What ends a thread's sleep, also one that begins later: an eventfd.
pub trait Signal {
    /// Ends the sleep.
    fn signal(&self);

    /// How often it was given so far. `None`: it cannot be told.
    fn count(&self) -> Option<u64>;
}

/// The vectors of one controller. The device sends messages, the host arms, masks and sleeps.
///
/// Where a vector's messages go may change while one is on its way:
///
/// ```text
///   host:    route   arm (bell; fence; next notification allowed)   look   sleep where messages go now
///   device:  publish an entry   (fence; bell)   where?   signal, or post
/// ```
///
/// A message whose fence comes before the host's may go the old way, and its entry is there for the look. Any other goes the new way.
#[derive(Debug)]
pub struct Vectors<S> {
    wires: Box<[Wire<S>]>,
    /// Masks hold messages back.
    masks: bool,
}

/// Apart from the neighbours' lines: the device reads the mask for every CQE.
#[derive(Debug)]
#[repr(align(64))]
struct Wire<S> {
    bell: Bell,
    signal: S,
    /// The vector whose descriptor messages are posted into; [`DIRECT`]: they signal this vector's own signal.
    route: AtomicU32,
    /// The descriptor of the vectors that post here, and how often its notification, which is this vector's signal, was given.
    posted: Posted,
    notified: AtomicU64,
    /// Messages of this vector that were posted.
    posts: AtomicU64,
}

/// Messages are not posted.
const DIRECT: u32 = u32::MAX;

impl<S: Signal> Vectors<S> {
    /// A vector for each signal, masked. Where `masks` is false masks are without effect, as under VFIO: every message is sent.
    pub fn new(signals: impl IntoIterator<Item = S>, masks: bool) -> Vectors<S> {
        let wire = |signal| Wire {
            bell: Bell::new(),
            signal,
            route: AtomicU32::new(DIRECT),
            posted: Posted::new(),
            notified: AtomicU64::new(0),
            posts: AtomicU64::new(0),
        };
        Vectors { wires: signals.into_iter().map(wire).collect(), masks }
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty)] // emptiness is no question here
    pub fn len(&self) -> u16 {
        self.wires.len() as u16
    }

    /// Host: the mask of a vector, to arm before sleeping and to mask when awake. `None`: there is no such vector.
    #[inline]
    pub fn bell(&self, vector: u16) -> Option<&Bell> {
        self.wire(vector).map(|wire| &wire.bell)
    }

    /// Host: what a vector's messages signal.
    pub fn signal(&self, vector: u16) -> Option<&S> {
        self.wire(vector).map(|wire| &wire.signal)
    }

    /// Device, having stored every entry that the message announces: fences, reads the mask, signals. Returns whether a
    /// message went out. A vector that does not exist sends none.
    #[inline]
    pub fn message(&self, vector: u16) -> bool {
        let Some(wire) = self.wire(vector) else { return false };
        let rings = wire.bell.rings() || !self.masks;
        if rings {
            match wire.route.load(Ordering::Relaxed) {
                DIRECT => wire.signal.signal(),
                home => {
                    wire.posts.fetch_add(1, Ordering::Relaxed);
                    self.post(vector, home);
                }
            }
        }
        rings
    }

    fn post(&self, vector: u16, home: u32) {
        if let Some(home) = self.wires.get(home as usize)
            && home.posted.post(vector)
        {
            home.notified.fetch_add(1, Ordering::Relaxed);
            home.signal.signal();
        }
    }

    /// Host: from now on messages of `vector` are posted into the descriptor of `home`, whose signal is its notification;
    /// `None`: they signal the vector's own. To be followed by arming and a look: a message that is on its way may still go
    /// the old one.
    pub fn route(&self, vector: u16, home: Option<u16>) {
        if let Some(wire) = self.wire(vector) {
            wire.route.store(home.map_or(DIRECT, u32::from), Ordering::Relaxed);
        }
    }

    /// Host, before it sleeps: allows messages of a vector, and, where they are posted, the next notification. Whatever came
    /// before and did not notify is visible to the look that the caller now owes.
    #[inline]
    pub fn arm(&self, vector: u16) {
        let Some(wire) = self.wire(vector) else { return };
        wire.bell.arm();
        match wire.route.load(Ordering::Relaxed) {
            DIRECT => {}
            home => self.posted(home as u16).into_iter().for_each(Posted::allow),
        }
    }

    /// Host: the descriptor of `home`.
    #[inline]
    pub fn posted(&self, home: u16) -> Option<&Posted> {
        self.wire(home).map(|wire| &wire.posted)
    }

    /// Whether signals can tell how often they were given, so that [`Vectors::messages`] and [`Vectors::notifications`] say something.
    pub fn are_counted(&self) -> bool {
        self.wires.first().is_some_and(|wire| wire.signal.count().is_some())
    }

    /// Notifications received so far: as many as messages, or, where they are posted into this vector's descriptor, fewer. 0 where signals
    /// do not count themselves.
    pub fn notifications(&self, vector: u16) -> u64 {
        self.wire(vector).and_then(|wire| wire.signal.count()).unwrap_or(0)
    }

    /// Messages received so far; a posted one that is on its way at this moment may be missing. As [`Vectors::notifications`].
    pub fn messages(&self, vector: u16) -> u64 {
        // The count of signals first: what of it is no message has been counted as a notification before.
        let signals = self.notifications(vector);
        self.wire(vector)
            .map_or(0, |wire| signals.saturating_sub(wire.notified.load(Ordering::Relaxed)) + wire.posts.load(Ordering::Relaxed))
    }

    #[inline]
    fn wire(&self, vector: u16) -> Option<&Wire<S>> {
        self.wires.get(usize::from(vector))
    }
}

#[cfg(test)]
mod tests;
