//! `hybrid-mean`: sleep for half of the observed mean service time, then spin.
//!
//! Linux had this from 4.10 to 6.2 (`blk_mq_poll_hybrid`, `io_poll_delay` 0): a mean per direction and power-of-two
//! size, half of it slept on a high-resolution timer, once per request. Three differences: the half is measured from
//! the submission rather than from the first poll; the mean is a moving one over [`MEMORY`] completions rather than
//! that of the last 100 ms; and only completions found while looking enter it, because the age of one found after a
//! sleep says no more than that the device took at most this long.

use units::{Class, Nanos};

use super::{WEIGHT, poll, work_is_known};
use crate::{Batch, Done, Found, Plan, Seen};

/// Completions over which the moving mean forgets.
const MEMORY: u64 = 16;

/// Batches in flight that are told apart. What comes on top is counted with the youngest.
const BATCHES: usize = 32;

/// Mean service times, and when the batches in flight are half-way through theirs.
#[derive(Clone, Debug)]
pub(super) struct HybridMean {
    /// Per class, in nanoseconds; 0: nothing known yet.
    means: [u64; Class::COUNT],
    batches: [Waiting; BATCHES],
    /// Slots of `batches` in use, oldest first.
    used: usize,
    /// Commands in them.
    commands: u32,
}

/// A batch of which some commands are in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    class: usize,
    commands: u32,
    /// Half-way through the mean; the submission itself where no mean is known.
    due: Nanos,
}

impl Default for HybridMean {
    fn default() -> HybridMean {
        HybridMean { means: [0; Class::COUNT], batches: [Waiting::default(); BATCHES], used: 0, commands: 0 }
    }
}

impl HybridMean {
    pub(super) fn submitted(&mut self, now: Nanos, batch: &Batch) {
        let Some(class) = batch.class else { return };
        if batch.commands == 0 {
            return;
        }
        self.commands = self.commands.saturating_add(batch.commands);
        if let Some(free) = self.batches.get_mut(self.used) {
            let half = Nanos(self.means[class.index()] / 2);
            *free = Waiting { class: class.index(), commands: batch.commands, due: now + half };
            self.used += 1;
        } else if let Some(youngest) = self.batches.last_mut() {
            youngest.commands = youngest.commands.saturating_add(batch.commands);
        }
    }

    pub(super) fn completed(&mut self, done: &[Done]) {
        for d in done {
            self.learn(d);
            self.forget(d.class.index());
        }
    }

    pub(super) fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        // Commands that left without a completion: taken by another thread, given up by a reset.
        while self.commands > seen.in_flight {
            self.forget(self.batches[0].class);
        }
        if work_is_known(seen) || seen.budget_used_up && seen.in_flight > 0 {
            return Plan::Look { budget: WEIGHT };
        }
        if seen.in_flight == 0 {
            return Plan::Rest;
        }
        match self.earliest() {
            // Commands of which this policy never heard may be due at any time.
            Some(due) if due > now && self.commands == seen.in_flight && !seen.leaving => Plan::Nap { until: due },
            _ => poll::spin(now, seen),
        }
    }

    fn learn(&mut self, done: &Done) {
        let mean = &mut self.means[done.class.index()];
        let age = match done.found {
            Found::Looking => done.age.0,
            Found::AfterSleep { at_most } if at_most.0 < *mean => at_most.0,
            Found::AfterSleep { .. } => return,
        };
        *mean = match *mean {
            0 => age,
            mean => (mean - mean / MEMORY).saturating_add(age / MEMORY),
        };
    }

    /// One command fewer: of the oldest batch of this class, or of the oldest if there is none.
    fn forget(&mut self, class: usize) {
        let used = &mut self.batches[..self.used];
        if used.is_empty() {
            return;
        }
        let at = used.iter().position(|w| w.class == class).unwrap_or(0);
        used[at].commands -= 1;
        self.commands -= 1;
        if used[at].commands == 0 {
            used.copy_within(at + 1.., at);
            self.used -= 1;
        }
    }

    fn earliest(&self) -> Option<Nanos> {
        self.batches[..self.used].iter().map(|w| w.due).min()
    }
}
