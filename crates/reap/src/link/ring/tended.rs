//! A lane over a queue pair, as the thread that looks after its controller has it.

use driver::{Abandoned, Command, Exclusive, Expired};
use hw::{CqRing, SqRing};
use nvme::{Cid, QueueId};
use units::Nanos;

use super::pair::Pair;

/// A lane whose commands a controller carries out: it is watched, closed and emptied.
pub(crate) trait Tended {
    /// The queue pair, for the state machines that watch over it.
    fn pair(&self) -> &Pair;

    /// Everything about it, for the thread that looks after its controller; `None`: some thread posts or reaps at this moment.
    fn try_exclusive(&self) -> Option<Held<'_>>;

    /// The queue that it is at the controller.
    fn id(&self) -> QueueId {
        self.pair().id()
    }

    /// The commands posted `timeout` or longer before `now`, appended to `out`; takes no lock.
    fn expired(&self, now: Nanos, timeout: Nanos, out: &mut Vec<Expired>) {
        self.pair().expired(now, timeout, out);
    }

    /// After [`Tended::try_exclusive`]: whether a completion waits for which somebody may have found the lock busy.
    fn look_again(&self) -> bool {
        self.pair().look_again()
    }
}

/// What is between a queue pair and its controller, where that is not memory of both: told of what is done to the pair.
pub(crate) trait Between {
    /// The pair is closed: what is under way to the controller is not sent any more.
    fn close(&mut self);

    /// The controller has stopped, and the pair is empty: so is everything in between.
    fn empty(&mut self);

    /// The controller has its queues again, which are empty: so is everything in between, and goes on.
    fn reopen(&mut self);
}

/// A lane that nobody posts to and nobody reaps.
pub(crate) struct Held<'a> {
    sides: Exclusive<'a, SqRing, CqRing>,
    between: Option<Box<dyn Between + 'a>>,
}

impl<'a> Held<'a> {
    /// A queue pair with whatever is between it and its controller.
    pub(in crate::link) fn new(sides: Exclusive<'a, SqRing, CqRing>, between: Option<Box<dyn Between + 'a>>) -> Held<'a> {
        Held { sides, between }
    }

    fn tell(&mut self, what: impl FnOnce(&mut dyn Between)) {
        if let Some(between) = &mut self.between {
            what(&mut **between);
        }
    }

    /// See [`Exclusive::begin_abort`].
    pub(crate) fn begin_abort(&mut self, command: &Command) -> bool {
        self.sides.begin_abort(command)
    }

    /// See [`Exclusive::end_abort`].
    pub(crate) fn end_abort(&mut self, cid: Cid) {
        self.sides.end_abort(cid);
    }

    /// See [`Exclusive::close`]: nothing is taken back.
    pub(crate) fn close(&mut self) -> Vec<Abandoned> {
        self.sides.close();
        self.tell(|between| between.close());
        Vec::new()
    }

    /// See [`Exclusive::abandon`].
    pub(crate) fn take_back(&mut self) -> Vec<Abandoned> {
        let abandoned = self.sides.abandon();
        self.tell(|between| between.empty());
        abandoned
    }

    /// See [`Exclusive::reopen`]: nothing is taken back.
    pub(crate) fn reopen(&mut self) -> Vec<Abandoned> {
        self.tell(|between| between.reopen());
        self.sides.reopen();
        Vec::new()
    }
}
