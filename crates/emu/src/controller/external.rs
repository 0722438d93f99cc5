//! State set from outside: link state, delays, held commands, faults, and changes scheduled for
//! later.

use std::collections::BTreeMap;
use std::sync::Arc;

use units::{Nanos, Op};

use crate::FaultInjector;
use crate::schedule::Due;
use crate::subsystem::{Change, Loss, Mailbox};

/// State of the path between host and controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Up,
    Lost(Loss),
    /// The path is restored; the controller needs a reset.
    NeedsReset,
}

/// Which commands are held after they are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    None,
    All,
    Only(Op),
}

/// External changes in force, and scheduled ones.
#[derive(Debug)]
pub(crate) struct External {
    pub(super) mailbox: Option<Arc<Mailbox>>,
    /// Scheduled changes, ordered by time.
    coming: Vec<(Nanos, Change)>,
    /// Time of the first scheduled change.
    pub(super) next: Nanos,
    pub(super) link: Link,
    /// Writes of a lost path are executed even after `silent_at`.
    pub(super) exceeds_cqt: bool,
    /// Additional service time.
    pub(super) delay: Nanos,
    pub(super) hold: Hold,
    /// Time to follow CC.EN, if a change has set it.
    pub(super) reset_takes: Option<Nanos>,
    /// Fault injection.
    pub(crate) faults: Option<FaultInjector>,
    /// Held commands.
    pub(super) held: Vec<Due>,
    /// Data of writes that were in service when the path was lost, by `order`.
    pub(super) taken: BTreeMap<u64, Vec<u8>>,
    /// When the Keep Alive Timeout and CQT are over: from then on no write in `taken` may be
    /// executed.
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

    /// Whether this step needs `Controller::step_with_changes`, which is slower.
    #[inline]
    pub(super) fn is_special(&self, now: Nanos) -> bool {
        now >= self.next
            || self.link != Link::Up
            || self.faults.is_some()
            || self.mailbox.as_ref().is_some_and(|mailbox| mailbox.has_news())
    }

    /// Holds a command if commands of its kind are held. Returns whether it is held.
    #[inline]
    pub(super) fn holds(&mut self, op: Op, due: Due) -> bool {
        let held =
            self.hold != Hold::None && (self.hold == Hold::All || self.hold == Hold::Only(op));
        if held {
            self.held.push(due);
        }
        held
    }

    /// Controller reset: drops held commands and saved data. A path that needed a reset is up
    /// again.
    pub(super) fn forget_host(&mut self) {
        self.held.clear();
        self.taken.clear();
        self.silent_at = Nanos::MAX;
        // A path that is lost stays lost: a reset of the controller does not repair it.
        if self.link == Link::NeedsReset {
            self.link = Link::Up;
        }
    }

    pub(super) fn expect(&mut self, at: Nanos, change: Change) {
        // Inserted after changes of the same time, so that changes are applied in the order in
        // which they were requested.
        let place = self.coming.partition_point(|(other, _)| *other <= at);
        self.coming.insert(place, (at, change));
        self.next = self.coming.first().map_or(Nanos::MAX, |(at, _)| *at);
    }

    /// Removes the next change that is due.
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<(Nanos, Change)> {
        let due =
            self.coming.first().is_some_and(|(at, _)| *at <= now).then(|| self.coming.remove(0));
        self.next = self.coming.first().map_or(Nanos::MAX, |(at, _)| *at);
        due
    }
}
