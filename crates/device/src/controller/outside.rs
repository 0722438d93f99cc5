//! What happens to a controller from outside while it runs: ANA states that change, a path that is lost and comes back,
//! commands that take longer, or are held.

use std::collections::BTreeMap;
use std::sync::Arc;

use nvme::{Cid, Status};
use units::{Nanos, Op};

use crate::schedule::Due;
use crate::subsystem::{Change, Loss, Mailbox};

/// Whether host and controller reach each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Touch {
    #[default]
    Whole,
    Lost(Loss),
    /// They do again, and nothing goes on before a reset.
    Severed,
}

/// Commands that are to be held when they are fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Hold {
    #[default]
    None,
    All,
    Only(Op),
}

/// What goes wrong with so many entries, and their messages. Zeroes: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wrong {
    statuses: u32,
    status: Status,
    cids: u32,
    messages: u32,
}

/// Takes one of so many. Whether there was one.
fn take(left: &mut u32) -> bool {
    let some = *left > 0;
    *left -= u32::from(some);
    some
}

/// Circumstances, and changes of them that are still to come.
#[derive(Debug)]
pub(super) struct Outside {
    pub(super) mailbox: Option<Arc<Mailbox>>,
    /// In the order in which they are due.
    coming: Vec<(Nanos, Change)>,
    /// When the first of them is due.
    next: Nanos,
    pub(super) touch: Touch,
    pub(super) delay: Nanos,
    pub(super) hold: Hold,
    /// How long following CC.EN takes, if something has changed that.
    pub(super) reset_takes: Option<Nanos>,
    /// What goes wrong with the entries that come next.
    wrong: Wrong,
    /// Commands that are held.
    pub(super) held: Vec<Due>,
    /// Data of writes that were inside when the path was lost, by order.
    pub(super) taken: BTreeMap<u64, Vec<u8>>,
    /// When the last of them is forgotten, as the host no longer sends Keep Alive.
    pub(super) silent_at: Nanos,
}

impl Default for Outside {
    fn default() -> Outside {
        Outside {
            mailbox: None,
            coming: Vec::new(),
            next: Nanos::MAX,
            touch: Touch::Whole,
            delay: Nanos::ZERO,
            hold: Hold::None,
            reset_takes: None,
            wrong: Wrong::default(),
            held: Vec::new(),
            taken: BTreeMap::new(),
            silent_at: Nanos::MAX,
        }
    }
}

impl Outside {
    /// Whether this step is not like others.
    #[inline]
    pub(super) fn is_special(&self, now: Nanos) -> bool {
        now >= self.next || self.touch != Touch::Whole || self.mailbox.as_ref().is_some_and(|mailbox| mailbox.has_news())
    }

    /// When the next change is due.
    #[inline]
    pub(super) fn next(&self) -> Nanos {
        self.next
    }

    /// How much longer commands take.
    #[inline]
    pub(super) fn delay(&self) -> Nanos {
        self.delay
    }

    /// Whether a command is to be held; if so it is.
    #[inline]
    pub(super) fn holds(&mut self, op: Op, due: Due) -> bool {
        let held = self.hold != Hold::None && (self.hold == Hold::All || self.hold == Hold::Only(op));
        if held {
            self.held.push(due);
        }
        held
    }

    /// Whether the host cannot see the registers.
    pub(super) fn is_out_of_sight(&self) -> bool {
        matches!(self.touch, Touch::Lost(_))
    }

    /// A reset: nothing of the host's is inside any more. A path that was severed is whole again.
    pub(super) fn forget_host(&mut self) {
        self.held.clear();
        self.taken.clear();
        self.silent_at = Nanos::MAX;
        if self.touch == Touch::Severed {
            self.touch = Touch::Whole;
        }
    }

    /// Whether host and controller reach each other.
    pub(super) fn is_whole(&self) -> bool {
        self.touch == Touch::Whole
    }

    pub(super) fn is_plain(&self) -> bool {
        self.delay == Nanos::ZERO && self.hold == Hold::None && self.is_right()
    }

    /// Whether entries are posted as they should be.
    #[inline]
    pub(super) fn is_right(&self) -> bool {
        let Wrong { statuses, cids, messages, .. } = self.wrong;
        statuses | cids | messages == 0
    }

    /// Something is to go wrong with entries, or no more.
    pub(super) fn go_wrong(&mut self, change: Change) {
        match change {
            Change::WrongStatus { status, times } => (self.wrong.status, self.wrong.statuses) = (status, times),
            Change::WrongCid(times) => self.wrong.cids = times,
            Change::LoseMessage(times) => self.wrong.messages = times,
            _ => {}
        }
    }

    /// What is posted for a command in place of this, and how many messages follow.
    #[cold]
    pub(super) fn meddle(&mut self, cid: Cid, status: Status) -> (Cid, Status, u32) {
        let status = if take(&mut self.wrong.statuses) { self.wrong.status } else { status };
        let cid = if take(&mut self.wrong.cids) { Cid(cid.0 ^ 0x8000) } else { cid };
        (cid, status, u32::from(!take(&mut self.wrong.messages)))
    }

    /// The changes that are in force.
    pub(super) fn changes(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        if let Touch::Lost(loss) = self.touch {
            changes.push(Change::Lost(loss));
        }
        if self.delay > Nanos::ZERO {
            changes.push(Change::Delay(self.delay));
        }
        match self.hold {
            Hold::None => {}
            Hold::All => changes.push(Change::Hold(None)),
            Hold::Only(op) => changes.push(Change::Hold(Some(op))),
        }
        changes.extend(self.reset_takes.map(Change::ResetTakes));
        let Wrong { statuses, status, cids, messages } = self.wrong;
        let wrong = [
            (statuses, Change::WrongStatus { status, times: statuses }),
            (cids, Change::WrongCid(cids)),
            (messages, Change::LoseMessage(messages)),
        ];
        changes.extend(wrong.into_iter().filter_map(|(left, change)| (left > 0).then_some(change)));
        changes
    }

    pub(super) fn expect(&mut self, at: Nanos, change: Change) {
        let place = self.coming.partition_point(|(other, _)| *other <= at);
        self.coming.insert(place, (at, change));
        self.next = self.coming.first().map_or(Nanos::MAX, |(at, _)| *at);
    }

    /// The next change that is due.
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<(Nanos, Change)> {
        let due = self.coming.first().is_some_and(|(at, _)| *at <= now).then(|| self.coming.remove(0));
        self.next = self.coming.first().map_or(Nanos::MAX, |(at, _)| *at);
        due
    }
}
