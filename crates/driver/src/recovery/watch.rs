//! Looking for commands that take too long.

use nvme::{CqSlots, QueueId, SqSlots};
use units::Nanos;

use super::config::RecoveryConfig;
use crate::{Command, Expired, Purpose, QueuePair};

/// The commands past their time-out, over all the queue pairs of a controller. Kept, so that looking allocates rarely.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    expired: Vec<(QueueId, Expired)>,
    /// When the next command that is in flight now will be past its time-out.
    next: Option<Nanos>,
    scratch: Vec<Expired>,
}

impl Watch {
    /// Has looked at nothing.
    pub fn new() -> Watch {
        Watch::default()
    }

    /// Forgets what it saw.
    pub fn clear(&mut self) {
        self.expired.clear();
        self.next = None;
    }

    /// Looks at a queue pair, without a lock. The tokens of queue 0, the admin queue, have to be those of [`Purpose`].
    pub fn look<S: SqSlots, C: CqSlots>(&mut self, pair: &QueuePair<S, C>, now: Nanos, config: &RecoveryConfig) {
        let admin = pair.id() == QueueId::ADMIN;
        let timeout = if admin { config.grace } else { config.command_timeout };
        self.scratch.clear();
        pair.expired(now, Nanos::ZERO, &mut self.scratch);
        for expired in &self.scratch {
            if admin && Purpose::from_token(expired.command.token).may_wait_for_ever() {
                continue;
            }
            let expires = expired.command.posted_at + timeout;
            if expires <= now {
                self.expired.push((pair.id(), *expired));
            } else {
                self.next = Some(self.next.unwrap_or(Nanos::MAX).min(expires));
            }
        }
    }

    pub(super) fn expired(&self) -> impl Iterator<Item = &(QueueId, Expired)> {
        self.expired.iter()
    }

    /// A command that no longer may be waited for.
    pub(super) fn overdue(&self, now: Nanos, config: &RecoveryConfig) -> Option<(QueueId, Command)> {
        self.expired.iter().find(|(queue, expired)| due(*queue, expired, config) <= now).map(|(queue, e)| (*queue, e.command))
    }

    /// When to look again: a command posted after this look cannot be past its time-out earlier.
    pub(super) fn next_event(&self, now: Nanos, config: &RecoveryConfig) -> Nanos {
        let due = self.expired.iter().map(|(queue, expired)| due(*queue, expired, config));
        due.chain(self.next).min().unwrap_or(Nanos::MAX).min(now + config.command_timeout.min(config.grace))
    }
}

/// When waiting for a command that is past its time-out ends.
fn due(queue: QueueId, expired: &Expired, config: &RecoveryConfig) -> Nanos {
    let posted_at = expired.command.posted_at;
    if queue == QueueId::ADMIN { posted_at + config.grace } else { posted_at + config.command_timeout + config.grace }
}
