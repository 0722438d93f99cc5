//! Interrupt vectors with masks, as MSI-X has them, and posted interrupts, where many vectors share
//! one notification. A *message* is what a device sends for a vector, as an MSI-X message. A
//! *signal* is how the message reaches the host's thread: a write to an eventfd.
//!
//! Messages are counted by the host's signals, never by what the device claims. A posted message
//! sets a bit in a descriptor and usually signals nothing, so this module, which stands in for the
//! host's interrupt-remapping hardware, counts posted messages itself.

use crate::WakeFlag;
use crate::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// Maximum number of times that the host takes the posted bits before it allows the next
/// notification (Linux's `MAX_POSTED_MSI_COALESCING_LOOP`). More rounds save notifications, but
/// delay the thread's other work.
pub const MAX_ROUNDS: u32 = 3;

/// A posted-interrupt descriptor: a pending bit for each of [`Posted::BITS`] vectors, and the
/// outstanding bit of the notification they share.
///
/// Follows Intel VT-d (section 9.10), as Linux uses it for device interrupts on bare metal since
/// 6.10 (`posted_msi`).
///
/// ```text
///   device:  publish CQE   set pending bit (release)   fence   outstanding was 0?  set it, notify
///   host:    notified      take bits, up to MAX_ROUNDS times   allow (outstanding = 0; fence)
///                          take bits once more   sleep
/// ```
///
/// The last round, after `allow`, finds messages that were posted while the outstanding bit was
/// still set and that therefore sent no notification.
#[derive(Debug, Default)]
pub struct Posted {
    pending: [AtomicU64; Posted::BITS as usize / 64],
    outstanding: AtomicBool,
}

impl Posted {
    /// Vectors that one descriptor serves.
    pub const BITS: u16 = 256;

    /// A descriptor without a pending bit, whose first message notifies.
    pub fn new() -> Posted {
        Posted::default()
    }

    /// Device, after publishing the entry: sets the vector's bit. Returns whether to notify. A
    /// vector from [`Posted::BITS`] on has no bit, and always notifies.
    #[inline]
    pub fn post(&self, vector: u16) -> bool {
        let Some(word) = self.pending.get(usize::from(vector / 64)) else { return true };
        // Release: the host's acquire in `take` makes the entry visible.
        word.fetch_or(1 << (vector % 64), Ordering::Release);
        // Pairs with the fence in `allow`: either this side sees that notifications are allowed, or
        // the host's check after `allow` sees the bit.
        fence(Ordering::SeqCst);
        self.claim_notification()
    }

    /// Sets the outstanding bit. Returns true to exactly one of several messages that find the bit
    /// clear at the same time: the one that has to notify.
    fn claim_notification(&self) -> bool {
        // Load first: while a notification is outstanding no locked instruction is needed.
        !self.outstanding.load(Ordering::Relaxed)
            && self
                .outstanding
                .compare_exchange(false, true, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Host: clears the vector's bit. Returns whether the bit was set; if so, the entries posted
    /// before it are visible.
    #[inline]
    pub fn take(&self, vector: u16) -> bool {
        let Some(word) = self.pending.get(usize::from(vector / 64)) else { return false };
        let bit = 1 << (vector % 64);
        // Load first: most bits are clear, and a locked instruction for each bit would cost more
        // than the poll.
        word.load(Ordering::Relaxed) & bit != 0
            && word.fetch_and(!bit, Ordering::Acquire) & bit != 0
    }

    /// Whether any bit is set. A thread that receives the notification but does not take the bits
    /// uses this to decide whether to pass it on.
    pub fn any(&self) -> bool {
        self.pending.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Host, before it sleeps: allows the next notification. Messages that were posted before
    /// without a notification are visible to the [`Posted::take`] that follows.
    #[inline]
    pub fn allow(&self) {
        self.set_allowed();
        fence(Ordering::SeqCst);
    }

    /// [`Posted::allow`] without its fence, for a negative test.
    pub(crate) fn set_allowed(&self) {
        self.outstanding.store(false, Ordering::Relaxed);
    }
}

/// What ends a thread's sleep: an eventfd. If the thread is awake, the signal ends its next sleep.
pub trait Signal {
    /// Ends the current sleep, or the next one.
    fn signal(&self);

    /// Number of signals so far. `None`: they cannot be counted.
    fn count(&self) -> Option<u64>;
}

/// The vectors of one controller. The device sends messages; the host arms, masks and sleeps.
///
/// The route of a vector may change while one of its messages is being sent:
///
/// ```text
///   host:    route   arm (flag; fence; allow the next notification)   check   sleep on the new route
///   device:  publish an entry   (fence; read flag)   read route   signal, or post
/// ```
///
/// If the device's fence comes before the host's, the message may take the old route, but the
/// host's check finds the message's entry. Otherwise the message takes the new route.
///
/// A message sent while its vector is masked sets the vector's Pending bit. The two sides
/// synchronise over that bit as over a [`WakeFlag`]:
///
/// ```text
///   host:    arm (flag; fence)   read Pending   set: notify the device that the vector is unmasked
///   device:  set Pending; fence  read flag      armed: clear Pending, send
///   device, once notified, or at any time:      armed: clear Pending, send if it is due
/// ```
///
/// Only the device sets and clears the Pending bit, because only the device knows whether the
/// message is still due.
#[derive(Debug)]
pub struct Vectors<S> {
    vectors: Box<[Vector<S>]>,
    /// Whether masks suppress messages; see [`Vectors::new`].
    masks: bool,
}

/// Each vector has a cache line to itself, because the device reads the mask for every CQE.
#[derive(Debug)]
#[repr(align(64))]
struct Vector<S> {
    flag: WakeFlag,
    /// The Pending bit: a message was sent while the vector was masked.
    pending: AtomicBool,
    signal: S,
    /// The vector whose descriptor this vector's messages are posted into. [`DIRECT`]: messages are
    /// not posted, but signal this vector's `signal`.
    route: AtomicU32,
    /// The descriptor that messages of other vectors are posted into; its notification is this
    /// vector's `signal`.
    posted: Posted,
    /// Number of notifications of `posted` so far.
    notified: AtomicU64,
    /// Messages of this vector that were posted.
    posts: AtomicU64,
}

/// The route of a vector whose messages are not posted.
const DIRECT: u32 = u32::MAX;

impl<S: Signal> Vectors<S> {
    /// A masked vector for each signal. `masks`: whether a mask suppresses messages. Under VFIO
    /// `masks` is false: every message is sent, and the host leaves the eventfd of a masked vector
    /// unread.
    pub fn new(signals: impl IntoIterator<Item = S>, masks: bool) -> Vectors<S> {
        let entry = |signal| Vector {
            flag: WakeFlag::new(),
            pending: AtomicBool::new(false),
            signal,
            route: AtomicU32::new(DIRECT),
            posted: Posted::new(),
            notified: AtomicU64::new(0),
            posts: AtomicU64::new(0),
        };
        Vectors { vectors: signals.into_iter().map(entry).collect(), masks }
    }

    /// Number of vectors.
    #[allow(clippy::len_without_is_empty)] // emptiness is no question here
    pub fn len(&self) -> u16 {
        self.vectors.len() as u16
    }

    /// Host: the flag of a vector. Armed means unmasked, disarmed means masked. Arm the vector by
    /// [`Vectors::arm`] before sleeping, and disarm the flag when awake. `None`: no such vector.
    #[inline]
    pub fn flag(&self, vector: u16) -> Option<&WakeFlag> {
        self.entry(vector).map(|entry| &entry.flag)
    }

    /// Host: the signal of a vector's messages.
    pub fn signal(&self, vector: u16) -> Option<&S> {
        self.entry(vector).map(|entry| &entry.signal)
    }

    /// Device, after publishing the entries: sends a message if the vector is unmasked, or else
    /// sets the Pending bit. Returns whether the message was sent. Does nothing if there is no such
    /// vector.
    #[inline]
    pub fn message(&self, vector: u16) -> bool {
        let Some(entry) = self.entry(vector) else { return false };
        if entry.flag.should_wake() || !self.masks {
            self.send(vector, entry);
            return true;
        }
        // If the Pending bit is set already, it was set before the fence in `should_wake`. A host
        // that unmasks after that fence sees the bit, so nothing is left to do.
        !entry.pending.load(Ordering::Relaxed) && self.pend(entry, vector)
    }

    fn send(&self, vector: u16, entry: &Vector<S>) {
        match entry.route.load(Ordering::Relaxed) {
            DIRECT => entry.signal.signal(),
            target => {
                entry.posts.fetch_add(1, Ordering::Relaxed);
                if let Some(target) = self.entry(target as u16)
                    && target.posted.post(vector)
                {
                    // Counted before the signal, so that `messages` never takes the notification
                    // for a message.
                    target.notified.fetch_add(1, Ordering::Relaxed);
                    target.signal.signal();
                }
            }
        }
    }

    /// For the first message while masked: sets the Pending bit. If the host has unmasked the
    /// vector in the meantime, sends the message instead and returns true.
    fn pend(&self, entry: &Vector<S>, vector: u16) -> bool {
        // The device's half of the handshake with `arm`: the device stores Pending, fences, and
        // reads the flag; the host stores the flag, fences, and reads Pending. At least one side
        // sees the other's store, so no message is lost.
        entry.pending.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let unmasked = entry.flag.is_armed();
        if unmasked {
            entry.pending.store(false, Ordering::Relaxed);
            self.send(vector, entry);
        }
        unmasked
    }

    /// Device: whether a vector is masked.
    #[inline]
    pub fn is_masked(&self, vector: u16) -> bool {
        self.masks && !self.flag(vector).is_some_and(WakeFlag::is_armed)
    }

    /// Device: clears a vector's Pending bit. If its message is still due, call
    /// [`Vectors::message`] next.
    pub fn clear_pending(&self, vector: u16) {
        if let Some(entry) = self.entry(vector) {
            entry.pending.store(false, Ordering::Relaxed);
        }
    }

    /// Host: from now on messages of `vector` are posted into the descriptor of the vector
    /// `target`, whose signal is the notification. `target` is `None`: messages signal the vector's
    /// own signal. Arm and check afterwards, as a message that is being sent may still take the old
    /// route.
    pub fn route(&self, vector: u16, target: Option<u16>) {
        if let Some(entry) = self.entry(vector) {
            entry.route.store(target.map_or(DIRECT, u32::from), Ordering::Relaxed);
        }
    }

    /// Host, before it sleeps: unmasks a vector and, where its messages are posted, allows the next
    /// notification. What was published before without a signal is visible to the check that
    /// follows.
    ///
    /// Returns true if the vector's Pending bit is set. The caller must then notify the device of
    /// the unmasking, because the device may be asleep.
    #[inline]
    #[must_use = "a device that sleeps does not see that its vector was unmasked"]
    pub fn arm(&self, vector: u16) -> bool {
        let Some(entry) = self.entry(vector) else { return false };
        entry.flag.arm();
        match entry.route.load(Ordering::Relaxed) {
            DIRECT => {}
            target => self.posted(target as u16).into_iter().for_each(Posted::allow),
        }
        // Read after the fence in `WakeFlag::arm`: the host's half of the handshake (see `pend`).
        entry.pending.load(Ordering::Relaxed)
    }

    /// Host: the descriptor that messages of vectors routed to `target` are posted into.
    #[inline]
    pub fn posted(&self, target: u16) -> Option<&Posted> {
        self.entry(target).map(|entry| &entry.posted)
    }

    /// Whether signals are countable, so that [`Vectors::messages`] and [`Vectors::notifications`]
    /// are meaningful.
    pub fn are_counted(&self) -> bool {
        self.vectors.first().is_some_and(|entry| entry.signal.count().is_some())
    }

    /// Signals of this vector so far: one per message, or fewer than that where other vectors'
    /// messages are posted into this vector's descriptor. 0 if signals are not countable.
    pub fn notifications(&self, vector: u16) -> u64 {
        self.entry(vector).and_then(|entry| entry.signal.count()).unwrap_or(0)
    }

    /// Messages of this vector so far. A posted message that is being sent may not be included yet.
    /// 0 if signals are not countable.
    pub fn messages(&self, vector: u16) -> u64 {
        // The signals are read first: a notification is counted before it is signalled, so the
        // difference below never includes a notification.
        let signals = self.notifications(vector);
        self.entry(vector).map_or(0, |entry| {
            signals.saturating_sub(entry.notified.load(Ordering::Relaxed))
                + entry.posts.load(Ordering::Relaxed)
        })
    }

    #[inline]
    fn entry(&self, vector: u16) -> Option<&Vector<S>> {
        self.vectors.get(usize::from(vector))
    }
}

#[cfg(test)]
#[path = "../tests/unit/posted.rs"]
mod posted_tests;
#[cfg(test)]
#[path = "../tests/unit/vectors.rs"]
mod vectors_tests;
