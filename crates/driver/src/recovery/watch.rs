//! Looking for commands that take too long.

use std::collections::HashMap;

use nvme::{Cid, CqSlots, QueueId, SqSlots};
use units::Nanos;

use super::config::RecoveryConfig;
use crate::{Command, Expired, Purpose, QueuePair, Stage};

/// The commands past their time-out, over all the queue pairs of a controller. Kept, so that looking allocates rarely.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    late: Vec<Late>,
    /// When the next command that is in flight now will be past its time-out.
    next: Option<Nanos>,
    scratch: Vec<Expired>,
    /// When each queue pair was last looked at.
    looked: HashMap<QueueId, Nanos>,
    /// What was in flight then, since when it counts, and since when its Abort has been answered.
    known: HashMap<(QueueId, Cid), (Command, Nanos, Option<Nanos>)>,
    /// Made while a pair is looked at: what is in flight now.
    present: Vec<(Command, Nanos, Option<Nanos>)>,
}

/// How long a command is waited for once its Abort has been answered and it was looked for again: a controller that says
/// "aborted" has posted its completion (Base 2.1, 5.1.1), and one that says "not aborted" has nothing else to offer than a reset.
const ABORTED_GRACE: Nanos = Nanos::from_secs(1);

/// A command past its time-out. Its own word of when it was posted stays as it is, because an Abort names the command by all of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    pub queue: QueueId,
    pub expired: Expired,
    /// Since when it counts.
    since: Nanos,
    /// When its Abort was first seen to be answered.
    aborted: Option<Nanos>,
}

impl Late {
    /// When waiting for it ends.
    fn due(&self, config: &RecoveryConfig) -> Nanos {
        let due = self.since + if self.queue == QueueId::ADMIN { config.grace } else { config.command_timeout + config.grace };
        self.aborted.map_or(due, |at| due.min(at + ABORTED_GRACE.min(config.grace)))
    }
}

impl Watch {
    /// Has looked at nothing.
    pub fn new() -> Watch {
        Watch::default()
    }

    /// Forgets what it saw.
    pub fn clear(&mut self) {
        self.late.clear();
        self.next = None;
    }

    /// Looks at a queue pair, without a lock. The tokens of queue 0, the admin queue, have to be those of [`Purpose`].
    pub fn look<S: SqSlots, C: CqSlots>(&mut self, pair: &QueuePair<S, C>, now: Nanos, config: &RecoveryConfig) {
        let admin = pair.id() == QueueId::ADMIN;
        let timeout = if admin { config.grace } else { config.command_timeout };
        self.scratch.clear();
        pair.expired(now, Nanos::ZERO, &mut self.scratch);
        let before = self.looked.insert(pair.id(), now);
        self.present.clear();
        for expired in &self.scratch {
            if admin && Purpose::from_token(expired.command.token).may_wait_for_ever() {
                continue;
            }
            let command = expired.command;
            let (since, aborted) = match self.known.get(&(pair.id(), command.cid)) {
                Some(&(known, since, aborted)) if known == command => (since, aborted),
                _ => (believable(command.posted_at, before, now), None),
            };
            let aborted = aborted.or((expired.stage == Stage::Aborted).then_some(now));
            self.present.push((command, since, aborted));
            let expires = since + timeout;
            if expires <= now {
                self.late.push(Late { queue: pair.id(), expired: *expired, since, aborted });
            } else {
                self.next = Some(self.next.unwrap_or(Nanos::MAX).min(expires));
            }
        }
        self.known.retain(|(queue, _), _| *queue != pair.id());
        self.known.extend(self.present.iter().map(|&known| ((pair.id(), known.0.cid), known)));
    }

    /// A command past its time-out that no Abort has been sent for.
    pub(super) fn to_abort(&self) -> Option<&Late> {
        self.late.iter().find(|late| late.queue != QueueId::ADMIN && late.expired.stage == Stage::InFlight)
    }

    /// A command that no longer may be waited for, and how long it has been.
    pub(super) fn overdue(&self, now: Nanos, config: &RecoveryConfig) -> Option<(QueueId, Command, Nanos)> {
        let late = self.late.iter().find(|late| late.due(config) <= now)?;
        Some((late.queue, late.expired.command, now - late.since))
    }

    /// When to look again: a command posted after this look cannot be past its time-out earlier.
    pub(super) fn next_event(&self, now: Nanos, config: &RecoveryConfig) -> Nanos {
        let due = self.late.iter().map(|late| late.due(config));
        due.chain(self.next).min().unwrap_or(Nanos::MAX).min(now + config.command_timeout.min(config.grace))
    }
}

/// Since when a command counts that is seen for the first time, at `now`. The thread that posts says when that was, and may have another
/// clock. A command that was not there at the last look (`before`) was not posted before it, and none is posted after `now`. A wrong word
/// would make a command late that is not, or keep it for ever.
pub fn believable(posted_at: Nanos, before: Option<Nanos>, now: Nanos) -> Nanos {
    if posted_at > now || before.is_some_and(|before| posted_at < before) { now } else { posted_at }
}

#[cfg(all(test, not(loom)))]
mod tests;
