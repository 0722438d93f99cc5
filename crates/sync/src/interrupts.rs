//! Interrupt vectors: a mask and a signal each, as a guest of VFIO sees MSI-X; and posted interrupts.
//!
//! Messages are counted where the host receives them: the signal counts itself, and nothing that a device says is believed for it. Posted
//! messages set bits in a descriptor, and most signal nothing, so that no host could count them: what stands here for the host's
//! remapping hardware does.

use crate::WakeFlag;
use crate::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// Rounds of taking bits while the notification stays outstanding (Linux's `MAX_POSTED_MSI_COALESCING_LOOP`). More would
/// save notifications and keep the thread from its other work.
pub const MOST_ROUNDS: u32 = 3;

/// Many vectors, one notification: a pending bit for each of [`Posted::BITS`] vectors, and the outstanding bit of the notification.
///
/// After the posted-interrupt descriptor of Intel VT-d (section 9.10), as Linux uses it for device interrupts on bare metal since 6.10
/// (`posted_msi`). Each message sets its vector's bit; a notification is sent only by the one that finds none outstanding. The thread
/// that is notified takes bits for a bounded number of rounds, lets the next notification come, and checks once more.
#[derive(Debug, Default)]
pub struct Posted {
    pending: [AtomicU64; Posted::BITS as usize / 64],
    outstanding: AtomicBool,
}

impl Posted {
    /// Vectors that one descriptor serves.
    pub const BITS: u16 = 256;

    /// Nothing pending, nothing outstanding: the first message notifies.
    pub fn new() -> Posted {
        Posted::default()
    }

    /// Device, having stored what the message announces: sets the vector's bit. Whether to notify. A vector from
    /// [`Posted::BITS`] on has no bit, and always notifies.
    #[inline]
    pub fn post(&self, vector: u16) -> bool {
        let Some(word) = self.pending.get(usize::from(vector / 64)) else { return true };
        word.fetch_or(1 << (vector % 64), Ordering::Release);
        fence(Ordering::SeqCst);
        self.claim()
    }

    /// Whether a notification is to be sent: of several that find none outstanding, one.
    fn claim(&self) -> bool {
        !self.outstanding.load(Ordering::Relaxed)
            && self.outstanding.compare_exchange(false, true, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Host: whether the vector's bit was set; it is not any more. What it stood for is visible.
    #[inline]
    pub fn take(&self, vector: u16) -> bool {
        let Some(word) = self.pending.get(usize::from(vector / 64)) else { return false };
        let bit = 1 << (vector % 64);
        word.load(Ordering::Relaxed) & bit != 0 && word.fetch_and(!bit, Ordering::Acquire) & bit != 0
    }

    /// Whether a bit is set. For a thread that gets the notification in place of the one that takes: it has to pass it on.
    pub fn any(&self) -> bool {
        self.pending.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Host, before it sleeps: lets the next message notify. Whatever was posted before and did not is visible to the
    /// [`Posted::take`] that follows.
    #[inline]
    pub fn allow(&self) {
        self.set_allowed();
        fence(Ordering::SeqCst);
    }

    /// [`Posted::allow`] without its fence: for a mutant.
    pub(crate) fn set_allowed(&self) {
        self.outstanding.store(false, Ordering::Relaxed);
    }
}

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
///   host:    route   arm (flag; fence; next notification allowed)   check   sleep where messages go now
///   device:  publish an entry   (fence; flag)   where?   signal, or post
/// ```
///
/// A message whose fence comes before the host's may go the old way, and its entry is there for the check. Any other goes the new way.
///
/// A message that meets a masked vector leaves the vector's Pending bit, and the two sides meet over that as over a [`WakeFlag`]:
///
/// ```text
///   host:    arm (flag; fence)     pending: tell the device
///   device:  pending; fence        armed: send
///   device, told, or at any time:  armed: clear the bit, and send where that is due
/// ```
///
/// The device alone sets and clears the bit, because it alone knows whether the event behind it is satisfied.
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
    flag: WakeFlag,
    /// A message met the mask.
    pending: AtomicBool,
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
            flag: WakeFlag::new(),
            pending: AtomicBool::new(false),
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
    pub fn flag(&self, vector: u16) -> Option<&WakeFlag> {
        self.wire(vector).map(|wire| &wire.flag)
    }

    /// Host: what a vector's messages signal.
    pub fn signal(&self, vector: u16) -> Option<&S> {
        self.wire(vector).map(|wire| &wire.signal)
    }

    /// Device, having stored every entry that the message announces: fences, reads the mask, signals. Returns whether a
    /// message went out; one that did not has set the vector's Pending bit. A vector that does not exist sends none.
    #[inline]
    pub fn message(&self, vector: u16) -> bool {
        let Some(wire) = self.wire(vector) else { return false };
        if wire.flag.should_wake() || !self.masks {
            self.send(vector, wire);
            return true;
        }
        // A bit that is set already has been since before the fence: a host that unmasks from now on sees it.
        !wire.pending.load(Ordering::Relaxed) && self.pend(wire, vector)
    }

    fn send(&self, vector: u16, wire: &Wire<S>) {
        match wire.route.load(Ordering::Relaxed) {
            DIRECT => wire.signal.signal(),
            home => {
                wire.posts.fetch_add(1, Ordering::Relaxed);
                self.post(vector, home);
            }
        }
    }

    /// The first message to meet the mask: sets the bit. Where the host has unmasked meanwhile the message goes out.
    fn pend(&self, wire: &Wire<S>, vector: u16) -> bool {
        wire.pending.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let unmasked = wire.flag.is_armed();
        if unmasked {
            wire.pending.store(false, Ordering::Relaxed);
            self.send(vector, wire);
        }
        unmasked
    }

    /// Device: whether a vector whose Pending bit is set is masked still.
    #[inline]
    pub fn is_masked(&self, vector: u16) -> bool {
        self.masks && !self.flag(vector).is_some_and(WakeFlag::is_armed)
    }

    /// Device: clears a vector's Pending bit. Where its message is due [`Vectors::message`] follows.
    pub fn clear_pending(&self, vector: u16) {
        if let Some(wire) = self.wire(vector) {
            wire.pending.store(false, Ordering::Relaxed);
        }
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
    /// `None`: they signal the vector's own. Arming and a check follow: a message that is on its way may still go
    /// the old one.
    pub fn route(&self, vector: u16, home: Option<u16>) {
        if let Some(wire) = self.wire(vector) {
            wire.route.store(home.map_or(DIRECT, u32::from), Ordering::Relaxed);
        }
    }

    /// Host, before it sleeps: allows messages of a vector, and, where they are posted, the next notification. Whatever came
    /// before and did not notify is visible to the check that follows. True: the vector's Pending bit is set, and the
    /// device is to be told of the unmasking, should it sleep.
    #[inline]
    #[must_use = "a device that sleeps does not see that its vector was unmasked"]
    pub fn arm(&self, vector: u16) -> bool {
        let Some(wire) = self.wire(vector) else { return false };
        wire.flag.arm();
        match wire.route.load(Ordering::Relaxed) {
            DIRECT => {}
            home => self.posted(home as u16).into_iter().for_each(Posted::allow),
        }
        wire.pending.load(Ordering::Relaxed)
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
#[path = "../tests/unit/posted.rs"]
mod posted_tests;
#[cfg(test)]
#[path = "../tests/unit/vectors.rs"]
mod vectors_tests;
