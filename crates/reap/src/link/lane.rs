//! A lane: where parts of a hardware queue's requests are posted, and where their completions are found. Which link it belongs to is
//! asked once for each batch.

use driver::{Completed, Counters, Reaped};
use hw::{Birth, EventFd};
use nvme::{QueueId, Vector};
use sync::Posted;
use units::Nanos;

use super::kernel::{UringLane, UringPosting};
use super::ring::{RingLane, RingPosting};
use super::{Owner, Part, Post};
use crate::counters::DeviceCounters;
use crate::request::Token;

/// A lane of any link. Its kind has a byte of its own, so that asking for it is one comparison.
#[repr(u8)]
#[allow(clippy::large_enum_variant, reason = "one for each hardware queue; a box would cost each call a load")]
pub(crate) enum Lane {
    /// A queue pair in memory that the controller shares.
    Ring(RingLane),
    /// An io_uring.
    Uring(UringLane),
}

/// `$body` with `$lane` as the lane that it is.
macro_rules! on_lane {
    ($self:expr, $lane:ident => $body:expr) => {
        match $self {
            Lane::Ring($lane) => $body,
            Lane::Uring($lane) => $body,
        }
    };
}

impl Lane {
    /// The queue pair, where it is one.
    pub(crate) fn ring(&self) -> Option<&RingLane> {
        if let Lane::Ring(lane) = self { Some(lane) } else { None }
    }

    /// The io_uring, where it is one.
    #[inline]
    pub(crate) fn uring(&self) -> Option<&UringLane> {
        if let Lane::Uring(lane) = self { Some(lane) } else { None }
    }

    /// The process that may use it: it belongs to the one that made it, and a forked child has neither the kernel's ring nor the
    /// threads that look after a controller.
    pub(crate) fn birth(&self) -> Birth {
        on_lane!(self, lane => lane.birth())
    }

    /// Waits for the submission side: no thread runs the application's code while it has it.
    pub(crate) fn lock(&self) -> Posting<'_> {
        match self {
            Lane::Ring(lane) => Posting::Ring(lane.lock()),
            Lane::Uring(lane) => Posting::Uring(lane.lock()),
        }
    }

    /// The submission side, if nobody has it: for a thread that must not wait for those who post.
    pub(crate) fn try_lock(&self) -> Option<Posting<'_>> {
        Some(match self {
            Lane::Ring(lane) => Posting::Ring(lane.try_lock()?),
            Lane::Uring(lane) => Posting::Uring(lane.try_lock()?),
        })
    }

    /// Announces what was posted. How many commands that were.
    #[inline]
    pub(crate) fn commit(&self) -> u32 {
        on_lane!(self, lane => lane.commit())
    }

    /// The same, unless some thread posts at this moment, and commits by itself.
    pub(crate) fn try_commit(&self) -> u32 {
        self.try_lock().map_or(0, |mut posting| posting.commit())
    }

    /// Whether a completion waits, without a lock and without a system call.
    #[inline(always)] // Asked for each plan.
    pub(crate) fn hint(&self) -> bool {
        match self {
            Lane::Ring(lane) => lane.hint(),
            other => other.hint_elsewhere(),
        }
    }

    /// The same where it is more than a comparison.
    #[inline(never)]
    fn hint_elsewhere(&self) -> bool {
        on_lane!(self, lane => lane.hint())
    }

    /// The same for a thread that has not submitted: of an io_uring it finds only what the submitter's thread has brought.
    pub(crate) fn shows(&self) -> bool {
        match self {
            Lane::Ring(lane) => lane.hint(),
            Lane::Uring(lane) => lane.shows(),
        }
    }

    /// Whether a completion waits, for a thread that goes to sleep or spins: without a lock.
    #[inline]
    pub(crate) fn pending(&self) -> bool {
        match self {
            Lane::Ring(lane) => lane.hint(),
            Lane::Uring(lane) => lane.pending(),
        }
    }

    /// Takes as many completions as `out` has places. `None`: another thread does, and looks once more afterwards.
    #[inline(always)]
    pub(crate) fn try_reap(&self, out: &mut [Completed]) -> Option<Reaped> {
        match self {
            Lane::Ring(lane) => lane.try_reap(out),
            Lane::Uring(lane) => Some(lane.reap(out)),
        }
    }

    /// The same, for at most `budget` completions, appended to `out` as far as it has room, for a thread that waits for nobody.
    pub(crate) fn try_reap_more(&self, budget: u32, out: &mut Vec<Completed>) -> Option<Reaped> {
        match self {
            Lane::Ring(lane) => lane.try_reap_more(budget, out),
            Lane::Uring(lane) => lane.try_reap_more(budget, out),
        }
    }

    /// Allows its notifications; where they are posted, the next one. A look is owed. A ring of the kernel's notifies
    /// the thread that waits.
    #[inline]
    pub(crate) fn arm(&self) {
        if let Lane::Ring(lane) = self {
            lane.arm();
        }
    }

    /// Forbids its notifications, where that can be.
    #[inline]
    pub(crate) fn mask(&self) {
        if let Lane::Ring(lane) = self {
            lane.mask();
        }
    }

    /// Whether [`Lane::mask`] is this lane's affair alone.
    #[inline]
    pub(crate) fn is_maskable(&self) -> bool {
        self.ring().is_some_and(RingLane::is_maskable)
    }

    /// What a thread that sleeps on it waits for, to be read.
    pub(crate) fn wait_on(&self) -> Option<&EventFd> {
        on_lane!(self, lane => lane.wait_on())
    }

    /// Whether its completions notify.
    pub(crate) fn notifies(&self) -> bool {
        on_lane!(self, lane => lane.notifies())
    }

    /// The vector that its completions raise, or a number that stands for it.
    pub(crate) fn vector(&self) -> Vector {
        on_lane!(self, lane => lane.vector())
    }

    /// Whether `home`'s notification may stand for its messages.
    pub(crate) fn may_post_to(&self, home: Vector) -> bool {
        self.ring().is_some_and(|lane| lane.may_post_to(home))
    }

    /// From now on the notification of `home` stands for its messages; `None`: they signal its own eventfd. Arming and a look
    /// follow. False: they go where they went.
    pub(crate) fn route(&self, home: Option<Vector>) -> bool {
        self.ring().is_some_and(|lane| lane.route(home))
    }

    /// What is signalled for messages that `home` stands for.
    pub(crate) fn notification(&self, home: Vector) -> Option<&EventFd> {
        self.ring()?.notification(home)
    }

    /// Whether anything was posted for this lane to `home` since this was asked last.
    pub(crate) fn take_posted(&self, home: Vector) -> bool {
        self.ring().is_some_and(|lane| lane.take_posted(home))
    }

    /// The descriptor of `home`, into which messages are posted.
    pub(crate) fn posted(&self, home: Vector) -> Option<&Posted> {
        self.ring()?.posted(home)
    }

    /// When the first message was sent that nobody has asked after yet, where the controller is in this process.
    pub(crate) fn take_message_time(&self) -> Option<Nanos> {
        self.ring()?.take_message_time()
    }

    /// Messages of its vector so far; of a ring of the kernel's, waits that ended with something.
    pub(crate) fn messages(&self) -> u64 {
        on_lane!(self, lane => lane.messages())
    }

    /// Notifications that came of messages.
    pub(crate) fn notifications(&self) -> u64 {
        match self {
            Lane::Ring(lane) => lane.notifications(),
            Lane::Uring(lane) => lane.messages(),
        }
    }

    /// Whether the two lead to one controller, whose notifications can be shared.
    pub(crate) fn is_beside(&self, other: &Lane) -> bool {
        self.ring().zip(other.ring()).is_some_and(|(one, other)| one.is_beside(other))
    }

    /// The queue that it is at the controller.
    pub(crate) fn id(&self) -> QueueId {
        on_lane!(self, lane => lane.id())
    }

    /// Commands that it has room for.
    #[inline]
    pub(crate) fn tags(&self) -> u32 {
        on_lane!(self, lane => lane.tags())
    }

    /// Commands announced and not yet taken.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        on_lane!(self, lane => lane.in_flight())
    }

    /// What has been counted.
    pub(crate) fn counters(&self) -> Counters {
        on_lane!(self, lane => lane.counters())
    }

    /// What has been counted, as a part of its device; the messages of its vector only if asked for, because lanes may share one.
    pub(crate) fn device_counters(&self, with_messages: bool) -> DeviceCounters {
        let counters = self.counters();
        let of_vector = |count: u64| if with_messages { count } else { 0 };
        DeviceCounters {
            sq_doorbells: counters.sq_doorbells,
            cq_doorbells: counters.cq_doorbells,
            messages: of_vector(self.messages()),
            notifications: of_vector(self.notifications()),
            system_calls: self.uring().map(UringLane::enters),
            ..DeviceCounters::default()
        }
    }

    /// The thread that alone may use it, where there is such a one.
    #[inline]
    pub(crate) fn owner(&self) -> Option<&Owner> {
        match self {
            Lane::Ring(lane) => lane.owner(),
            Lane::Uring(lane) => lane.owner(),
        }
    }
}

/// A lane's submission side, locked.
pub(crate) enum Posting<'a> {
    Ring(RingPosting<'a, true>),
    Uring(UringPosting<'a>),
}

impl Posting<'_> {
    /// Whether there is no room for another command now, or the lane is closed.
    pub(crate) fn is_exhausted(&self) -> bool {
        match self {
            Posting::Ring(posting) => posting.is_exhausted(),
            Posting::Uring(posting) => posting.is_exhausted(),
        }
    }
}

impl Post for Posting<'_> {
    fn post(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        match self {
            Posting::Ring(posting) => posting.post(part, token, now),
            Posting::Uring(posting) => posting.post(part, token, now),
        }
    }

    fn post_other(&mut self, part: &Part<'_>, token: Token, now: Nanos) -> bool {
        match self {
            Posting::Ring(posting) => posting.post_other(part, token, now),
            Posting::Uring(posting) => posting.post_other(part, token, now),
        }
    }

    fn commit(&mut self) -> u32 {
        match self {
            Posting::Ring(posting) => posting.commit(),
            Posting::Uring(posting) => posting.commit(),
        }
    }
}
