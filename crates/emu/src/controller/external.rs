//! Changes from outside that are in force, and those that are still to come.

use std::collections::BTreeMap;
use std::sync::Arc;

use units::{Nanos, Op};

use crate::FaultInjector;
use crate::schedule::Due;
use crate::subsystem::{Change, Loss, Mailbox};

/// Whether host and controller reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Up,
    Lost(Loss),
    /// They do again, and nothing goes on before a reset.
    NeedsReset,
}

/// Commands that are to be held when they are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    None,
    All,
    Only(Op),
}

/// Changes that are in force, and changes that are still to come.
#[derive(Debug)]
pub(crate) struct External {
    pub(super) mailbox: Option<Arc<Mailbox>>,
    /// In the order in which they are due.
    coming: Vec<(Nanos, Change)>,
    /// When the first of them is due.
    pub(super) next: Nanos,
    pub(super) link: Link,
    /// Writes of a lost path are carried out after that as well.
    pub(super) exceeds_cqt: bool,
    /// How much longer commands take.
    pub(super) delay: Nanos,
    pub(super) hold: Hold,
    /// How long following CC.EN takes, if something has changed that.
    pub(super) reset_takes: Option<Nanos>,
    /// What goes wrong with commands, entries and messages.
    pub(crate) faults: Option<FaultInjector>,
    /// Commands that are held.
    pub(super) held: Vec<Due>,
    /// Data of writes that were inside when the path was lost, by order.
    pub(super) taken: BTreeMap<u64, Vec<u8>>,
    /// When the last of them is forgotten, as the host no longer sends Keep Alive.
    pub(super) silent_at: Nanos,
}

impl External {
    pub(super) fn new(faults: Option<FaultInjector>) -> External {
        External {
            mailbox: None,
            coming: Vec::new(),
            next: Nanos::MAX,
            link: Link::Up,
            exceeds_cqt: false,
            delay: Nanos::ZERO,
            hold: Hold::None,
            reset_takes: None,
            faults,
            held: Vec::new(),
            taken: BTreeMap::new(),
            silent_at: Nanos::MAX,
        }
    }

    /// Whether this step is not like others.
    #[inline]
    pub(super) fn is_special(&self, now: Nanos) -> bool {
        now >= self.next
            || self.link != Link::Up
            || self.faults.is_some()
            || self.mailbox.as_ref().is_some_and(|mailbox| mailbox.has_news())
    }

    /// Whether a command is to be held; if so it is.
    #[inline]
    pub(super) fn holds(&mut self, op: Op, due: Due) -> bool {
        let held =
            self.hold != Hold::None && (self.hold == Hold::All || self.hold == Hold::Only(op));
        if held {
            self.held.push(due);
        }
        held
    }

    /// A reset: nothing of the host's is inside any more. A path that needs a reset is up again.
    pub(super) fn forget_host(&mut self) {
        self.held.clear();
        self.taken.clear();
        self.silent_at = Nanos::MAX;
        if self.link == Link::NeedsReset {
            self.link = Link::Up;
        }
    }

    pub(super) fn expect(&mut self, at: Nanos, change: Change) {
        let place = self.coming.partition_point(|(other, _)| *other <= at);
        self.coming.insert(place, (at, change));
        self.next = self.coming.first().map_or(Nanos::MAX, |(at, _)| *at);
    }

    /// The next change that is due.
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<(Nanos, Change)> {
        let due =
            self.coming.first().is_some_and(|(at, _)| *at <= now).then(|| self.coming.remove(0));
        self.next = self.coming.first().map_or(Nanos::MAX, |(at, _)| *at);
        due
    }
}
