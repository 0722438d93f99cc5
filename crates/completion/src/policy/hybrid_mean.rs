//! `hybrid-mean`: sleep for half of the observed mean service time, then spin.
//!
//! Linux had this from 4.10 until 2023 (`blk_mq_poll_hybrid`, `io_poll_delay` 0): a mean per direction and power-of-two
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
    commands: u64,
}

/// A batch of which some commands are in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    class: usize,
    commands: u64,
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
        let commands = u64::from(batch.commands);
        self.commands += commands;
        if let Some(free) = self.batches.get_mut(self.used) {
            let half = Nanos(self.means[class.index()] / 2);
            *free = Waiting { class: class.index(), commands, due: now + half };
            self.used += 1;
        } else if let Some(youngest) = self.batches.last_mut() {
            youngest.commands += commands;
        }
    }

    pub(super) fn completed(&mut self, done: &[Done]) {
        for d in done {
            self.learn(d);
            self.forget(d.class.index());
        }
    }

    pub(super) fn next(&mut self, now: Nanos, seen: &Seen) -> Plan {
        self.forget_beyond(u64::from(seen.in_flight));
        if work_is_known(seen) || seen.budget_used_up && seen.in_flight > 0 {
            return Plan::Look { budget: WEIGHT };
        }
        if seen.in_flight == 0 {
            return Plan::Rest;
        }
        match self.earliest() {
            // Commands of which this policy never heard may be due at any time.
            Some(due) if due > now && self.commands == u64::from(seen.in_flight) && !seen.leaving => Plan::Nap { until: due },
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
        let of_class = self.batches[..self.used].iter().position(|w| w.class == class);
        self.take(of_class.unwrap_or(0), 1);
    }

    /// Forgets the oldest of what left without a completion: taken by another thread, given up by a reset.
    fn forget_beyond(&mut self, in_flight: u64) {
        while self.commands > in_flight {
            self.take(0, self.commands - in_flight);
        }
    }

    /// At most `commands` fewer in batch `at`.
    fn take(&mut self, at: usize, commands: u64) {
        if at >= self.used {
            return;
        }
        let taken = commands.min(self.batches[at].commands);
        self.batches[at].commands -= taken;
        self.commands -= taken;
        if self.batches[at].commands == 0 {
            self.batches.copy_within(at + 1..self.used, at);
            self.used -= 1;
        }
    }

    fn earliest(&self) -> Option<Nanos> {
        self.batches[..self.used].iter().map(|w| w.due).min()
    }
}
